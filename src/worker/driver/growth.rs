//! Decides whether the worker can work on partitions that the task topic has gained, and what to
//! tell the operator.

use crate::topics::TopicNames;

/// Number of partitions of the task topic and of its ledger; `None` for a topic without partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::worker) struct PartitionCounts {
    pub(in crate::worker) task: Option<u32>,
    pub(in crate::worker) ledger: Option<u32>,
}

/// A problem with the number of partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartitionMismatch {
    /// The ledger has fewer partitions, and the broker creates none beyond their number.
    NotCovered { task: u32, ledger: u32 },
    /// The ledger is not a partitioned topic: the broker creates one topic per partition, without
    /// policies.
    NotSetUp { task: u32 },
}

/// Remembers what was logged, so that each change is logged once.
#[derive(Debug, Default)]
pub(in crate::worker) struct Growth {
    said: Option<PartitionMismatch>,
}

impl Growth {
    /// The number of partitions to work on; `open` of them are open already. The ledger and the
    /// metadata topic must be extended before the task topic.
    pub(in crate::worker) fn judge(
        &mut self,
        counts: PartitionCounts,
        open: usize,
        topics: &TopicNames,
    ) -> Option<u32> {
        let task = counts.task?;
        let grown = usize::try_from(task).is_ok_and(|task| task > open);
        let trouble = match counts.ledger {
            Some(ledger) if ledger < task => Some(PartitionMismatch::NotCovered { task, ledger }),
            None if grown => Some(PartitionMismatch::NotSetUp { task }),
            // The last message about the same number still applies.
            None => self.said,
            Some(_) => None,
        };
        if trouble != self.said {
            self.said = trouble;
            trouble.inspect(|trouble| trouble.tell(topics));
        }
        // A new worker would also work on all of them, where the broker creates the topics on
        // demand.
        Some(counts.ledger.map_or(task, |ledger| ledger.min(task)))
    }
}

impl PartitionMismatch {
    fn tell(self, topics: &TopicNames) {
        let (topic, ledger_topic) = (&topics.task, &topics.ledger);
        match self {
            Self::NotCovered { task, ledger } => tracing::warn!(
                topic,
                "the task topic has {task} partitions, its ledger {ledger_topic} has {ledger}: \
                 tasks of partitions {ledger} to {} do not run until ledger and metadata topic \
                 have as many; run `longhaul topic setup`",
                task - 1
            ),
            Self::NotSetUp { task } => tracing::warn!(
                topic,
                "the task topic has grown to {task} partitions, and its ledger {ledger_topic} was \
                 never set up: the broker creates a topic per partition, without policies; once no \
                 task is open, stop the workers, delete those topics of ledger and metadata, and \
                 run `longhaul topic setup`"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the number to work on and what was logged last, after each count; two partitions are
    /// open.
    #[track_caller]
    fn check(
        counts: &[(Option<u32>, Option<u32>)],
        expected: &[(Option<u32>, Option<PartitionMismatch>)],
    ) {
        let topics = "tasks".parse().unwrap();
        let mut growth = Growth::default();
        let judged = counts.iter().map(|(task, ledger)| {
            let counts = PartitionCounts { task: *task, ledger: *ledger };
            (growth.judge(counts, 2, &topics), growth.said)
        });
        assert_eq!(judged.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn what_the_ledger_covers_is_worked_on() {
        check(&[(None, None), (None, Some(1))], &[(None, None), (None, None)]);
        check(
            &[(Some(2), Some(2)), (Some(3), Some(4)), (Some(4), Some(4))],
            &[(Some(2), None), (Some(3), None), (Some(4), None)],
        );
    }

    #[test]
    fn what_the_ledger_does_not_cover_is_said_until_it_does() {
        let trouble = |task, ledger| Some(PartitionMismatch::NotCovered { task, ledger });
        check(
            &[(Some(4), Some(2)), (Some(4), Some(2)), (Some(4), Some(3)), (Some(4), Some(4))],
            &[
                (Some(2), trouble(4, 2)),
                (Some(2), trouble(4, 2)),
                (Some(3), trouble(4, 3)),
                (Some(4), None),
            ],
        );
    }

    #[test]
    fn a_ledger_that_was_never_set_up_is_said_when_the_task_topic_grows() {
        check(
            &[(Some(2), None), (Some(3), None), (Some(3), None), (Some(3), Some(3))],
            &[
                (Some(2), None),
                (Some(3), Some(PartitionMismatch::NotSetUp { task: 3 })),
                (Some(3), Some(PartitionMismatch::NotSetUp { task: 3 })),
                (Some(3), None),
            ],
        );
    }
}
