//! Idempotency keys: bind, do not reserve.
//!
//! A submitter publishes the task's message first and then a BIND of key and message id on the register, a compacted topic of
//! its own with a fixed number of partitions. The first BIND of a key in log order wins, and every answer names the winner.
//! A worker that meets a message with an unbound key binds it itself and waits; a message that lost is acknowledged and
//! dropped. There is nothing pending, so nobody need take anything over: a submitter may die anywhere.
//!
//! Every BIND has a write-once key, `key/message id/random`. If submitter and worker shared one compaction key for the same
//! message, the later of the two would replace the earlier, and the winner would move behind its competitor.

use longhaul::TaskId;
use std::collections::BTreeMap;

/// Says that a message is the task of an idempotency key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bind {
    /// The idempotency key.
    pub key: String,
    /// The message.
    pub task: TaskId,
    /// Makes the entry's compaction key unique.
    pub nonce: u128,
}

impl Bind {
    /// The compaction key of the entry on the register: used by exactly one publish, ever.
    #[must_use]
    pub fn entry_key(&self) -> String {
        format!("{}/{}/{:032x}", self.key, self.task, self.nonce)
    }
}

/// The folded register.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bindings {
    bound: BTreeMap<String, TaskId>,
}

/// What a submitter does about its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SubmitterStep {
    /// Publish the task's message, then decide again.
    Submit,
    /// Publish a BIND of the own message, then wait until it is read back.
    Bind(TaskId),
    /// Answer with this task.
    Answer(TaskId),
}

/// What a worker does about a message with an idempotency key, before it claims it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WorkerStep {
    /// Publish a BIND of the message, then wait until it is read back.
    Bind,
    /// Go on: the message is the key's task.
    Run,
    /// Acknowledge and drop it: another message is.
    Drop(TaskId),
}

impl Bindings {
    /// Takes the register's next entry in log order. Whether it won.
    pub fn apply(&mut self, bind: &Bind) -> bool {
        let mut won = false;
        self.bound.entry(bind.key.clone()).or_insert_with(|| {
            won = true;
            bind.task
        });
        won
    }

    /// The task of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<TaskId> {
        self.bound.get(key).copied()
    }

    /// What a submitter does that has published `own` for this key, or nothing yet.
    #[must_use]
    pub fn submitter_step(&self, key: &str, own: Option<TaskId>) -> SubmitterStep {
        match (self.get(key), own) {
            (Some(winner), _) => SubmitterStep::Answer(winner),
            (None, Some(own)) => SubmitterStep::Bind(own),
            (None, None) => SubmitterStep::Submit,
        }
    }

    /// What a worker does about a message of this key.
    #[must_use]
    pub fn worker_step(&self, key: &str, task: TaskId) -> WorkerStep {
        match self.get(key) {
            None => WorkerStep::Bind,
            Some(winner) if winner == task => WorkerStep::Run,
            Some(winner) => WorkerStep::Drop(winner),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bind(key: u8, entry: u64, nonce: u128) -> Bind {
        let task = TaskId { ledger: 0, entry, partition: -1, batch_index: None };
        Bind { key: key.to_string(), task, nonce }
    }

    fn fold<'a>(log: impl IntoIterator<Item = &'a Bind>) -> Bindings {
        let mut bindings = Bindings::default();
        log.into_iter().for_each(|bind| {
            bindings.apply(bind);
        });
        bindings
    }

    #[test]
    fn the_first_binding_wins_and_everybody_names_it() {
        let bindings = fold(&[bind(1, 7, 0), bind(1, 8, 1)]);
        let (winner, loser) = (bind(1, 7, 0).task, bind(1, 8, 0).task);
        assert_eq!(bindings.submitter_step("1", Some(loser)), SubmitterStep::Answer(winner));
        assert_eq!(bindings.worker_step("1", loser), WorkerStep::Drop(winner));
        assert_eq!(bindings.worker_step("1", winner), WorkerStep::Run);
        assert_eq!(bindings.submitter_step("2", None), SubmitterStep::Submit);
        assert_eq!(bindings.submitter_step("2", Some(loser)), SubmitterStep::Bind(loser));
        assert_eq!(bindings.worker_step("2", loser), WorkerStep::Bind);
    }

    proptest! {
        /// No key of an entry repeats, so compaction removes nothing; and reading the register twice changes nothing.
        #[test]
        fn reading_the_register_again_changes_nothing(
            log in proptest::collection::vec((0..3_u8, 0..5_u64), 0..20),
        ) {
            let log: Vec<Bind> = log
                .into_iter()
                .zip(0..)
                .map(|((key, entry), nonce)| bind(key, entry, nonce))
                .collect();
            let keys: std::collections::BTreeSet<_> = log.iter().map(Bind::entry_key).collect();
            prop_assert_eq!(keys.len(), log.len());
            prop_assert_eq!(fold(log.iter().chain(&log)), fold(&log));
        }
    }
}
