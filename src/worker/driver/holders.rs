//! The holders of the leases of a lane, and of ended leases until their end is shown.

use super::lane::PartitionDriver;
use super::notes::TaskNotes;
use crate::lease::{ClaimedFor, holder_in};
use crate::transport::Message;
use longhaul_core::ledger;
use longhaul_core::metadata::ShownEntry;
use longhaul_core::protocol::entry::{Claim, ClaimKind, Done, Entry};
use longhaul_core::task::{TaskId, WorkerIdentity};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

/// The holders of leases of a lane.
#[derive(Debug, Default)]
pub(super) struct LeaseHolders {
    running: BTreeMap<TaskId, RunningLease>,
    /// The worker that ended a lease shows its end at once; the others need the name only if that
    /// worker dies first.
    ended: TaskNotes,
}

/// A running lease and its holder.
#[derive(Debug)]
struct RunningLease {
    /// The worker's name.
    worker: Arc<str>,
    /// Whether reports may name the lease by its worker.
    by_name: bool,
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

    /// Forgets the holder of an ended lease; the end is shown.
    pub(super) fn forget_ended(&mut self, task: TaskId) {
        self.ended.remove(task);
    }

    /// Forgets the lease of a task that now runs without one.
    fn forget(&mut self, task: TaskId) {
        self.running.remove(&task);
        self.ended.remove(task);
    }

    /// Forgets sealed tasks; nothing more is shown for them.
    pub(super) fn forget_all(&mut self, tasks: RangeInclusive<TaskId>) {
        self.ended.remove_all(tasks);
    }
}

impl PartitionDriver {
    /// The holder of the task's lease.
    pub(super) fn holder(&self, task: TaskId) -> Arc<str> {
        self.holders
            .running
            .get(&task)
            .map_or_else(|| Arc::from(""), |holder| Arc::clone(&holder.worker))
    }

    /// Whether reports may name the task's lease by its worker.
    pub(super) fn is_by_name(&self, task: TaskId) -> bool {
        self.holders.running.get(&task).is_some_and(|holder| holder.by_name)
    }

    /// How long the lease of this task has run, by the wall clocks. A worker that takes it over
    /// continues with the rest of its budget.
    pub(super) fn leased_for(&self, task: TaskId, wall_ms: u64) -> Duration {
        let claimed_ms =
            self.holders.running.get(&task).map_or(wall_ms, |holder| holder.claimed_ms);
        Duration::from_millis(wall_ms.saturating_sub(claimed_ms))
    }

    /// The worker that entries of a leased task show: its current or its last holder.
    pub(super) fn shown_holder(&self, task: TaskId) -> Option<String> {
        let LeaseHolders { running, ended } = &self.holders;
        let worker = running.get(&task).map(|holder| &holder.worker);
        let worker = worker.or_else(|| ended.get(task))?;
        Some(WorkerIdentity::named(worker.as_ref()).shown_json())
    }

    /// Notes the holder of an accepted claim of a lease, and its end at an outcome. An entry that
    /// runs no attempt leaves the last holder unchanged.
    pub(super) fn record_holder(&mut self, entry: &Entry, message: &Message) {
        match entry {
            Entry::Claim(Claim { key, lease_ms: Some(_), .. }) => {
                let content = ledger::content(message).unwrap_or_default();
                let ClaimedFor { worker, by_name, .. } = holder_in(&content);
                let worker = worker.into();
                let claimed_ms = message.publish_time_ms;
                self.holders.begin(key.task, RunningLease { worker, by_name, claimed_ms });
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

    /// Forgets the holder, and who has cancelled the task, once the metadata topic shows the end of the task.
    pub(super) fn record_shown_end(&mut self, task: TaskId, shown: &ShownEntry) {
        let epoch = self.core.machine().fold(task).epoch;
        if shown.terminal && shown.epoch == Some(epoch.0) {
            self.holders.forget_ended(task);
            self.cancel_notes.remove(task);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::notes::NOTES_MAX;
    use super::*;

    const fn task(entry: u64) -> TaskId {
        TaskId { ledger: 1, entry, partition: -1, batch_index: None }
    }

    fn running(worker: &str) -> RunningLease {
        RunningLease { worker: worker.into(), by_name: false, claimed_ms: 0 }
    }

    /// A gateway that shows none of these ends needs the names for nothing else.
    #[test]
    fn the_names_of_ended_leases_are_bounded_and_those_of_running_ones_kept() {
        let mut holders = LeaseHolders::default();
        let last = NOTES_MAX as u64 + 5;
        for entry in 0..=last {
            holders.begin(task(entry), running("ann"));
            if entry > 0 {
                holders.end(task(entry));
            }
        }
        assert_eq!((holders.running.len(), holders.ended.len()), (1, NOTES_MAX));
        assert!(holders.ended.get(task(5)).is_none() && holders.ended.get(task(last)).is_some());
        holders.forget_all(task(0)..=task(last - 1));
        assert_eq!((holders.running.len(), holders.ended.len()), (1, 1));
        holders.begin(task(last), running("bob"));
        holders.forget(task(last));
        assert_eq!((holders.running.len(), holders.ended.len()), (1, 0));
    }
}
