//! Eviction, and what it says about time: R has passed, so that whatever is older than that is gone or fenced.

use super::settle::Settle;
use super::tamper::Fault;
use super::world::{Worker, message_of, small, task_id};
use longhaul::TaskId;
use longhaul::protocol::entry::Entry;

impl Settle<'_> {
    /// The machine is told how its tombstones fared.
    pub(super) fn eviction_ended(&self, worker: &mut Worker) {
        for task in 0..self.bounds.tasks {
            let id = task_id(self.bounds, task);
            let mut pending = worker.out.iter();
            if !pending.any(|entry| entry.task() == Some(id)) {
                worker.machine.eviction_ended(id);
            }
        }
    }

    /// R has passed since the mark-delete position passed the task: whatever is older is gone, and whoever has not seen the
    /// terminal yet has a view older than R.
    pub(super) fn evict(&mut self, evictor: u8, task: u8) {
        let id = task_id(self.bounds, task);
        let stored = message_of(self.bounds, task) < self.world.stored || !self.bounds.marked;
        let acked = self.world.messages[usize::from(message_of(self.bounds, task))].acked;
        self.history(|history| history.evicted(id, stored && acked));
        let Some(terminal) = self.world.terminal_at(id) else { return };
        for index in 0..self.world.workers.len() {
            if self.world.workers[index].left {
                continue;
            }
            self.worker(small(index), |after, worker| {
                after.age(worker, task, terminal);
                if index == usize::from(evictor) {
                    worker.machine.evict(id);
                }
            });
        }
        for ghost in &mut self.world.ghosts {
            ghost.retain(|entry| !is_work_on(entry, id));
        }
        self.world.ghosts.retain(|entries| !entries.is_empty());
    }

    fn age(&mut self, worker: &mut Worker, task: u8, terminal: usize) {
        let id = task_id(self.bounds, task);
        let fault = self.bounds.fault;
        worker.out.retain(|entry| !is_work_on(entry, id));
        let held = worker.machine.task(id).is_some_and(|known| known.held);
        let queued = worker.queue >> message_of(self.bounds, task) & 1 == 1;
        if held || queued {
            worker.old |= 1 << task;
        }
        if !worker.machine.is_ready() {
            let long = usize::from(worker.end) <= terminal;
            worker.stale |= long && fault != Fault::LongBootstrap;
        } else if usize::from(worker.cursor) <= terminal {
            worker.stale |= fault != Fault::NoSelfFence;
        } else if worker.second.is_some_and(|(_, end)| usize::from(end) <= terminal) {
            worker.machine.second_read_failed();
        }
    }
}

/// Tombstones are recent; everything else of an evicted task is older than R.
fn is_work_on(entry: &Entry, id: TaskId) -> bool {
    entry.task() == Some(id) && !matches!(entry, Entry::Tombstone(_))
}
