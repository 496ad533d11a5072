//! Who holds the leases of a lane, and who has held those that have ended, until that is shown.

use super::lane::PartitionDriver;
use crate::transport::Message;
use longhaul_core::ledger;
use longhaul_core::metadata::ShownEntry;
use longhaul_core::protocol::entry::{Claim, ClaimKind, Done, Entry};
use longhaul_core::task::{TaskId, WorkerIdentity};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

/// Of so many leases that have ended it is known who held them. Whoever has ended one shows that at
/// once; the others know the name only for the case that this one dies before.
const ENDED_MAX: usize = 10_000;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct LeaseHolders {
    running: BTreeMap<TaskId, RunningLease>,
    ended: EndedHolders,
}

/// The names of those who have held leases that have ended.
#[derive(Debug, Default)]
struct EndedHolders {
    /// With their places in the order of the ends.
    workers: BTreeMap<TaskId, (u64, Arc<str>)>,
    order: BTreeMap<u64, TaskId>,
    next: u64,
}

impl EndedHolders {
    /// Adds one. Of too many the one goes that ended first.
    fn insert(&mut self, task: TaskId, worker: Arc<str>) {
        self.remove(task);
        self.workers.insert(task, (self.next, worker));
        self.order.insert(self.next, task);
        self.next += 1;
        if self.workers.len() > ENDED_MAX
            && let Some((_, first)) = self.order.pop_first()
        {
            self.workers.remove(&first);
        }
    }

    fn remove(&mut self, task: TaskId) {
        if let Some((place, _)) = self.workers.remove(&task) {
            self.order.remove(&place);
        }
    }
}

/// Who holds a lease.
#[derive(Debug)]
struct RunningLease {
    /// The worker's name.
    worker: Arc<str>,
    /// When the lease was claimed, by the broker's wall clock.
    claimed_ms: u64,
}

impl LeaseHolders {
    fn begin(&mut self, task: TaskId, holder: RunningLease) {
        self.ended.remove(task);
        self.running.insert(task, holder);
    }

    fn end(&mut self, task: TaskId) {
        let Some(RunningLease { worker, .. }) = self.running.remove(&task) else { return };
        self.ended.insert(task, worker);
    }

    /// Who has held the lease of this task is shown.
    pub(super) fn forget_ended(&mut self, task: TaskId) {
        self.ended.remove(task);
    }

    /// The task runs otherwise.
    fn forget(&mut self, task: TaskId) {
        self.running.remove(&task);
        self.ended.remove(task);
    }

    /// These are sealed: nothing more is shown of them.
    pub(super) fn forget_all(&mut self, tasks: RangeInclusive<TaskId>) {
        let sealed: Vec<TaskId> = self.ended.workers.range(tasks).map(|(task, _)| *task).collect();
        for task in sealed {
            self.ended.remove(task);
        }
    }
}

impl PartitionDriver {
    /// Who holds the lease of this task.
    pub(super) fn holder(&self, task: TaskId) -> Arc<str> {
        self.holders
            .running
            .get(&task)
            .map_or_else(|| Arc::from(""), |holder| Arc::clone(&holder.worker))
    }

    /// How long the lease of this task has run already, by the wall clocks: whoever takes it over
    /// goes on with what is left of its budget.
    pub(super) fn leased_for(&self, task: TaskId, wall_ms: u64) -> Duration {
        let claimed_ms =
            self.holders.running.get(&task).map_or(wall_ms, |holder| holder.claimed_ms);
        Duration::from_millis(wall_ms.saturating_sub(claimed_ms))
    }

    /// What entries of the task say of who works on it, or did so last, if it is leased.
    pub(super) fn shown_holder(&self, task: TaskId) -> Option<String> {
        let LeaseHolders { running, ended } = &self.holders;
        let ended = || ended.workers.get(&task).map(|(_, worker)| worker);
        let worker = running.get(&task).map(|holder| &holder.worker).or_else(ended)?;
        Some(WorkerIdentity::named(worker.as_ref()).shown_json())
    }

    /// An accepted claim says who holds a lease, and an outcome that nobody does any more. What
    /// runs no attempt changes nothing of who had the last one.
    pub(super) fn note_holder(&mut self, entry: &Entry, message: &Message) {
        match entry {
            Entry::Claim(Claim { key, lease_ms: Some(_), .. }) => {
                let content = ledger::content(message).unwrap_or_default();
                let worker = String::from_utf8_lossy(&content).as_ref().into();
                let claimed_ms = message.publish_time_ms;
                self.holders.begin(key.task, RunningLease { worker, claimed_ms });
            }
            Entry::Claim(Claim { key, kind: ClaimKind::Run, .. }) => self.holders.forget(key.task),
            Entry::Claim(Claim { key, .. }) | Entry::Done(Done { key, .. }) => {
                self.holders.end(key.task);
            }
            Entry::Cancel(_)
            | Entry::Heartbeat(_)
            | Entry::Checkpoint(_)
            | Entry::Renewal(_)
            | Entry::Seal(_)
            | Entry::Config(_)
            | Entry::Tombstone(_) => {}
        }
    }

    /// The metadata topic shows the task so.
    pub(super) fn note_shown_end(&mut self, task: TaskId, shown: &ShownEntry) {
        let epoch = self.core.machine().fold(task).epoch;
        if shown.terminal && shown.epoch == Some(epoch.0) {
            self.holders.forget_ended(task);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn task(entry: u64) -> TaskId {
        TaskId { ledger: 1, entry, partition: -1, batch_index: None }
    }

    /// A gateway that shows none of these ends has no other use for the names.
    #[test]
    fn the_names_of_ended_leases_are_bounded_and_those_of_running_ones_kept() {
        let mut holders = LeaseHolders::default();
        let last = ENDED_MAX as u64 + 5;
        for entry in 0..=last {
            holders.begin(task(entry), RunningLease { worker: "ann".into(), claimed_ms: 0 });
            if entry > 0 {
                holders.end(task(entry));
            }
        }
        assert_eq!((holders.running.len(), holders.ended.workers.len()), (1, ENDED_MAX));
        assert!(
            !holders.ended.workers.contains_key(&task(5))
                && holders.ended.workers.contains_key(&task(last))
        );
        holders.forget_all(task(0)..=task(last - 1));
        assert_eq!((holders.running.len(), holders.ended.workers.len()), (1, 1));
        holders.begin(task(last), RunningLease { worker: "bob".into(), claimed_ms: 0 });
        holders.forget(task(last));
        assert_eq!((holders.running.len(), holders.ended.workers.len()), (1, 0));
        assert!(holders.ended.order.is_empty());
    }

    /// Whoever does not read the metadata topic keeps names until there are too many. The lease of
    /// an old task may end last.
    #[test]
    fn of_ended_leases_those_are_forgotten_first_that_ended_first() {
        let mut holders = LeaseHolders::default();
        let first = ENDED_MAX as u64 + 5;
        for entry in (0..=first).rev() {
            holders.begin(task(entry), RunningLease { worker: "ann".into(), claimed_ms: 0 });
            holders.end(task(entry));
            assert!(holders.ended.workers.contains_key(&task(entry)));
        }
        let EndedHolders { workers, order, .. } = &holders.ended;
        assert_eq!((workers.len(), order.len()), (ENDED_MAX, ENDED_MAX));
        assert!(!holders.ended.workers.contains_key(&task(first)));
    }
}
