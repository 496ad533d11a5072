//! Topics and partitions that are not there, or accept no more messages.

use super::listed::{indexes, listed};
use super::{FindingKind, Judge, Severity, TopicFinding};
use crate::observe::{TopicRole, TopicState, in_words};

impl Judge<'_> {
    pub(super) fn topic_missing(&self) -> TopicFinding {
        let risk = match self.role {
            TopicRole::Task => {
                "workers find no tasks, and a topic that the broker creates by itself keeps none before they start"
            }
            TopicRole::Ledger => {
                "workers cannot claim tasks, and a topic that the broker creates by itself loses claims"
            }
            TopicRole::Metadata => {
                "nobody can see the state of a task, and a topic that the broker creates by itself loses it"
            }
            TopicRole::Register => {
                "workers take no tasks before they have read it, and a topic that the broker creates by itself loses keys"
            }
            TopicRole::DeadLetters => {
                "the broker creates it when the first task fails for good, and deletes it, with \
                 all dead letters, soon after the last worker has ended"
            }
        };
        let what = "the topic does not exist".to_owned();
        self.finding(FindingKind::TopicMissing, Severity::Error, what, risk, self.setup())
    }

    pub(super) fn partitions_missing(&self, state: &TopicState) -> Option<TopicFinding> {
        let missing = indexes(&state.partitions, |partition| !partition.exists);
        let what =
            format!("{} of the topic's {} missing", listed(&missing)?, in_words(state.shape));
        let risk = "tasks of these partitions do not run, or their state is lost";
        Some(self.finding(
            FindingKind::PartitionsMissing,
            Severity::Error,
            what,
            risk,
            self.setup(),
        ))
    }

    pub(super) fn terminated(&self, state: &TopicState) -> Option<TopicFinding> {
        let terminated = indexes(&state.partitions, |partition| partition.terminated);
        let what = format!(
            "{} of the topic's {} terminated, as by a migration to a scalable topic",
            listed(&terminated)?,
            in_words(state.shape)
        );
        let risk = match self.role {
            TopicRole::Task => {
                "nobody can submit tasks, and no worker sees tasks submitted elsewhere"
            }
            TopicRole::Ledger => "no task begins, and no outcome is stored",
            TopicRole::Metadata | TopicRole::DeadLetters => {
                "no outcome is shown, and finished tasks stay unacknowledged"
            }
            TopicRole::Register => "tasks wait for their keys and limits for ever",
        };
        let remedy =
            "this cannot be undone: stop the workers, and create a queue under another name"
                .to_owned();
        Some(self.finding(FindingKind::TopicTerminated, Severity::Error, what, risk, remedy))
    }
}
