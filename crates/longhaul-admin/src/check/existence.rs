//! Topics and partitions that are not there, or accept no more messages.

use super::listed::{indexes, listed};
use super::{FindingKind, Judge, Severity, TopicFinding};
use crate::observe::{TopicRole, TopicState};

impl Judge<'_> {
    pub(super) fn topic_missing(&self) -> TopicFinding {
        let risk = match self.role {
            TopicRole::Task => {
                "workers find no tasks, and a topic that the broker makes by itself keeps none before they come"
            }
            TopicRole::Ledger => {
                "workers cannot claim anything, and a topic that the broker makes by itself forgets claims"
            }
            TopicRole::Metadata => {
                "nobody can see the state of a task, and a topic that the broker makes by itself forgets it"
            }
            TopicRole::Register => {
                "workers take no tasks before they have read it, and a topic that the broker makes by itself forgets keys"
            }
            TopicRole::DeadLetters => {
                "the first task that fails for good makes the broker create it, and a topic so made is deleted, with all \
                 dead letters, soon after the last worker has gone"
            }
        };
        let what = "the topic does not exist".to_owned();
        self.finding(FindingKind::TopicMissing, Severity::Error, what, risk, self.setup())
    }

    pub(super) fn partitions_missing(&self, state: &TopicState) -> Option<TopicFinding> {
        let missing = indexes(&state.partitions, |partition| !partition.exists);
        let what = format!("{} of the topic's {} missing", listed(&missing)?, state.shape);
        let risk = "tasks of these partitions stand still, or what is known of them is gone";
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
            state.shape
        );
        let risk = match self.role {
            TopicRole::Task => "nobody can submit, and what is submitted elsewhere no worker sees",
            TopicRole::Ledger => "no task begins, and no outcome is stored",
            TopicRole::Metadata | TopicRole::DeadLetters => {
                "no end is shown, and tasks that have ended stay unacknowledged"
            }
            TopicRole::Register => "tasks wait for their keys and limits for ever",
        };
        let remedy = "this cannot be undone: stop the workers, export the queue (longhaul export), and import it under \
                      another name"
            .to_owned();
        Some(self.finding(FindingKind::TopicTerminated, Severity::Error, what, risk, remedy))
    }
}
