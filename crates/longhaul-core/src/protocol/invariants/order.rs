//! Judges C-29 from the ledger, given the order keys of the tasks. It uses only accepted entries
//! and no lines.

use super::{ORDER, Violation};
use crate::protocol::entry::Entry;
use crate::protocol::fold::{Phase, TaskFold, Verdict};
use crate::task::TaskId;
use std::collections::{BTreeMap, BTreeSet};

/// Reads a whole ledger in order, and finds tasks that have begun before their time. It is not told
/// of tasks without a key and of scheduled ones.
#[derive(Clone, Debug, Default)]
pub struct OrderJudge {
    keys: BTreeMap<TaskId, Vec<u8>>,
    /// Unfinished tasks, by key.
    open: BTreeMap<Vec<u8>, BTreeSet<TaskId>>,
    folds: BTreeMap<TaskId, TaskFold>,
    begun: BTreeSet<TaskId>,
}

impl OrderJudge {
    /// Adds a task with this key.
    pub fn add(&mut self, task: TaskId, key: &[u8]) {
        self.keys.insert(task, key.to_vec());
        self.open.entry(key.to_vec()).or_default().insert(task);
    }

    /// Number of tasks with a key that have begun.
    #[must_use]
    pub fn begun(&self) -> usize {
        self.begun.len()
    }

    /// Handles the next entry of the ledger.
    pub fn read(&mut self, entry: &Entry) -> Option<Violation> {
        if let Entry::Seal(seal) = entry {
            let sealed = |task: &TaskId| seal.entries.get(task.entry_id()).is_some();
            let sealed: Vec<TaskId> = self.keys.keys().copied().filter(sealed).collect();
            sealed.into_iter().for_each(|task| self.end(task));
            return None;
        }
        let task = entry.task().filter(|task| self.keys.contains_key(task))?;
        let fold = self.folds.entry(task).or_default();
        // A parked task begins when it continues.
        let before = fold.phase == Phase::New || fold.is_parked();
        let accepted = fold.apply(entry) == Verdict::Accepted;
        let after = fold.phase != Phase::New && !fold.is_parked();
        if fold.phase.is_terminal() {
            self.end(task);
        } else if accepted && before && after {
            self.begun.insert(task);
            let line = self.open.get(self.keys.get(&task)?)?;
            if line.first() != Some(&task) {
                let what = "a task began before one of its order key that comes first was over";
                return Some(Violation { id: ORDER, what, task: Some(task) });
            }
        }
        None
    }

    fn end(&mut self, task: TaskId) {
        if let Some(line) = self.keys.get(&task).and_then(|key| self.open.get_mut(key)) {
            line.remove(&task);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::entry::{Claim, ClaimKind, Done, Outcome};
    use crate::protocol::key::{Epoch, OnceKey, OwnerId};

    const fn task(entry: u64) -> TaskId {
        TaskId { ledger: 1, entry, partition: -1, batch_index: None }
    }

    const fn key(entry: u64) -> OnceKey {
        OnceKey { task: task(entry), epoch: Epoch(1), owner: OwnerId(7), serial: entry }
    }

    fn claim(entry: u64, kind: ClaimKind) -> Entry {
        let attempt = u32::from(kind == ClaimKind::Run);
        Entry::Claim(Claim::plain(key(entry), attempt, kind))
    }

    fn done(entry: u64) -> Entry {
        let (key, outcome) = (key(entry), Outcome::Completed);
        Entry::Done(Done { key, attempt: 1, outcome, writer: None })
    }

    /// The tasks that began before their time, of 1, 2 and 3 with one key and 4 with another one.
    fn early(entries: &[Entry]) -> Vec<u64> {
        let mut judge = OrderJudge::default();
        for (entry, key) in [(1, b"a"), (2, b"a"), (3, b"a"), (4, b"b")] {
            judge.add(task(entry), key);
        }
        let found = entries.iter().filter_map(|entry| judge.read(entry));
        found.map(|found| found.task.map_or(0, |task| task.entry)).collect()
    }

    #[test]
    fn a_task_that_begins_before_its_time_is_found() {
        let run = |entry| claim(entry, ClaimKind::Run);
        assert!(early(&[run(1), run(4), done(1), run(2), done(2), run(3)]).is_empty());
        assert_eq!(early(&[run(2)]), [2]);
        assert_eq!(early(&[run(1), run(2), done(1)]), [2]);
        assert_eq!(early(&[run(1), done(1), run(3), run(2)]), [3]);
        // A task that ends without having begun makes room, and needs no place.
        let cancelled = |entry| claim(entry, ClaimKind::Cancelled);
        assert!(early(&[cancelled(2), run(1), done(1), run(3)]).is_empty());
    }
}
