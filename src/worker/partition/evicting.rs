//! Finished tasks leave the ledger, and dead owners' heartbeats too.

use super::{Effect, Mode, Partition};
use crate::protocol::key::Key;
use crate::protocol::moment::Moment;
use crate::protocol::rank::SLOT;
use crate::task::{EntryId, TaskId};
use crate::worker::machine::Action;
use std::time::Duration;

/// The mark-delete position is read this often within R.
const SAMPLES_PER_RETENTION: u32 = 8;

/// Tasks evicted at one go; the rest follows at the next sample.
const EVICTED_AT_ONCE_MAX: usize = 1_000;

impl Partition {
    pub(super) fn mark_delete_at(&self) -> Moment {
        self.mark_delete_asked + self.settings.ledger.ledger_retention / SAMPLES_PER_RETENTION
    }

    pub(super) fn ask_mark_delete(&mut self, now: Moment) {
        if matches!(self.mode, Mode::Bootstrap(_)) || now < self.mark_delete_at() {
            return;
        }
        self.mark_delete_asked = now;
        self.effects.push_back(Effect::AskMarkDelete);
    }

    /// The mark-delete position was read.
    pub fn handle_mark_delete(&mut self, position: EntryId, now: Moment) {
        if matches!(self.mode, Mode::Bootstrap(_)) {
            return;
        }
        self.mark_delete.read(now, position);
        self.evict(now);
        self.close_left_behind(position, now);
        self.forget_dead_owners(now);
        self.settle();
    }

    /// Evicts what the mark-delete position has passed for R. One worker does it, by rank; the others only if it does not.
    fn evict(&mut self, now: Moment) {
        let retention = self.settings.ledger.ledger_retention;
        let Some(stayed) = self.mark_delete.stayed(retention) else { return };
        if !self.silence.may_claim(now) {
            return;
        }
        let overdue = now.since(stayed.since).saturating_sub(retention);
        let due: Vec<TaskId> = self
            .machine
            .over()
            .take_while(|id| id.entry_id() <= stayed.position)
            .filter(|id| self.over_since(*id) <= stayed.since)
            .filter(|id| overdue >= patience(self.rank(*id, now)))
            .take(EVICTED_AT_ONCE_MAX)
            .collect();
        for id in due {
            self.machine.evict(id);
        }
    }

    /// A task whose finisher died before the ack would never be passed by the mark-delete position.
    fn close_left_behind(&mut self, position: EntryId, now: Moment) {
        let retention = self.settings.ledger.ledger_retention;
        let left: Vec<TaskId> = self
            .machine
            .left_behind()
            .filter(|id| id.entry_id() > position && now.since(self.over_since(*id)) > retention)
            .filter(|id| self.rank(*id, now) == 0)
            .take(EVICTED_AT_ONCE_MAX)
            .collect();
        for id in left {
            self.machine.close(id);
        }
    }

    /// When this worker first saw that nothing more happens to a task.
    fn over_since(&self, id: TaskId) -> Moment {
        self.ended.get(&id).copied().unwrap_or(self.bootstrapped)
    }

    fn forget_dead_owners(&mut self, now: Moment) {
        let retention = self.settings.ledger.ledger_retention;
        let dead: Vec<_> = self.silence.silent_for(retention, now).collect();
        for owner in &dead {
            self.silence.left(*owner);
        }
        if !dead.is_empty() {
            let keys = dead.into_iter().map(Key::Heartbeat).collect();
            self.effects.push_back(Effect::Do(Action::Tombstone(keys)));
        }
    }
}

/// How long a worker of this rank leaves an eviction to those before it.
fn patience(rank: u64) -> Duration {
    SLOT.saturating_mul(u32::try_from(rank.saturating_mul(20)).unwrap_or(u32::MAX))
}
