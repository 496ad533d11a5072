//! The tasks in the log, folded by the checkers.

use longhaul::TaskId;
use longhaul_core::protocol::entry::{Claim, ClaimKind, Done, Entry, Outcome};
use longhaul_transport::Message;
use proofs::checkers::fold::{End, State};
use proofs::checkers::{History, LedgerEntry};
use std::collections::BTreeMap;

/// The message property with the key of its task.
const KEY: &str = "IDEMPOTENCY_KEY";

/// All data about the tasks.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    /// The key of each task on the task topic.
    pub(super) keys: BTreeMap<TaskId, String>,
    /// Every accepted claim that runs an attempt, by task and epoch.
    pub(super) epochs: BTreeMap<(TaskId, u32), Epoch>,
    /// The final state of each task.
    pub(super) ends: BTreeMap<TaskId, State>,
}

/// An attempt under an accepted claim.
#[derive(Clone, Debug, Default)]
pub(super) struct Epoch {
    pub(super) attempt: u32,
    /// Its claim grants a lease.
    pub(super) leased: bool,
    pub(super) claimed_ms: u64,
    /// The accepted outcome.
    pub(super) ended: Option<Ended>,
}

/// An accepted outcome.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    pub(super) outcome: Outcome,
    /// The failure reason, or the result.
    pub(super) body: String,
    pub(super) at_ms: u64,
}

impl Log {
    /// From the messages on the task topic and the entries on the ledger.
    pub(super) fn read(tasks: &[Message], history: &History) -> Self {
        let key = |message: &Message| {
            let key = message.properties.get(KEY).unwrap_or_default().to_owned();
            (TaskId::new(message.position, -1), key)
        };
        let mut log = Self { keys: tasks.iter().map(key).collect(), ..Self::default() };
        for message in &history.ledger {
            if let Ok(entry) = &message.entry {
                log.take(entry, message);
            }
        }
        log
    }

    fn take(&mut self, entry: &Entry, message: &LedgerEntry) {
        if matches!(entry, Entry::Tombstone(_)) {
            return;
        }
        let Some(task) = entry.task() else { return };
        let counts = self.ends.entry(task).or_default().take(entry);
        match entry {
            Entry::Claim(claim) if counts && claim.kind == ClaimKind::Run => {
                self.begin(task, claim, message);
            }
            Entry::Done(done) if counts => self.end(task, done, message),
            Entry::Claim(_)
            | Entry::Done(_)
            | Entry::Cancel(_)
            | Entry::Heartbeat(_)
            | Entry::Checkpoint(_)
            | Entry::Renewal(_)
            | Entry::Seal(_)
            | Entry::Config(_)
            | Entry::Tombstone(_) => {}
        }
    }

    fn begin(&mut self, task: TaskId, claim: &Claim, message: &LedgerEntry) {
        let epoch = Epoch {
            attempt: claim.attempt,
            leased: claim.lease_ms.is_some(),
            claimed_ms: message.publish_time_ms,
            ended: None,
        };
        self.epochs.insert((task, claim.key.epoch.0), epoch);
    }

    fn end(&mut self, task: TaskId, done: &Done, message: &LedgerEntry) {
        let Some(epoch) = self.epochs.get_mut(&(task, done.key.epoch.0)) else { return };
        let body = String::from_utf8_lossy(&message.body).into_owned();
        let ended = Ended { outcome: done.outcome, body, at_ms: message.publish_time_ms };
        epoch.ended = Some(ended);
    }

    /// How a task ended.
    pub(super) fn end_of(&self, task: TaskId) -> Option<End> {
        self.ends.get(&task).and_then(State::end)
    }

    /// The tasks with this end.
    pub(super) fn ended(&self, end: End) -> impl Iterator<Item = TaskId> {
        self.keys.keys().copied().filter(move |task| self.end_of(*task) == Some(end))
    }
}
