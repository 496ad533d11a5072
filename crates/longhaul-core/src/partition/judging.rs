//! When this worker may claim a task, by its own clock and its place among the others.

use super::Partition;
use crate::machine::{Stage, Task};
use crate::protocol::entry::ClaimKind;
use crate::protocol::fold::{Phase, TaskFold};
use crate::protocol::moment::Moment;
use crate::protocol::rank::rank;
use crate::task::TaskId;
use std::time::Duration;

/// How long a worker that wants an offered task waits per place in line, so that not all workers
/// claim the same tasks. A claim usually comes back sooner. Behind the last place all claim at
/// once.
const OFFER_SLOT: Duration = Duration::from_millis(20);
const OFFER_PLACES_MAX: u64 = 4;

/// The times that apply to an idle task.
pub(super) struct Judged {
    /// When the task may be claimed.
    pub(super) due: Moment,
    /// When and how a claim closes it instead.
    pub(super) closes: Option<(Moment, ClaimKind)>,
}

impl Partition {
    /// When this worker may claim the task: when the retry is due or the owner stale. `None`: some
    /// other event must happen first.
    pub(super) fn judge(&mut self, id: TaskId, now: Moment) -> Option<Judged> {
        let task = self.machine.task(id)?;
        let (fold, held) = (task.fold, task.held);
        if task.stage != Stage::Idle {
            return None;
        }
        let own = self.machine.is_own(fold.owner);
        let closes = self.closes_at(id, &task, now);
        let open = self.open.get(&id)?;
        let due = match fold.phase {
            Phase::Retry => {
                let due = self.due_unless_parked(id, open.due);
                let at = closes.map_or(due, |(closes, _)| due.min(closes));
                let patience = 2 * self.settings.ledger.heartbeat;
                // The last owner has the payload and goes first, like a holder. The holder of an
                // offered task does not want it.
                if held || own {
                    open.cancelled.map_or(at, |cancelled| at.min(cancelled))
                } else if fold.is_offered() {
                    let at = open.cancelled.map_or(at, |cancelled| at.min(cancelled));
                    self.turn_at_offer(id, &fold, now)?.max(at)
                } else {
                    // A claim that closes it needs nothing that the others have.
                    let at = at + patience;
                    let at = open.cancelled.map_or(at, |cancelled| at.min(cancelled));
                    at + self.delay(id, now)
                }
            }
            Phase::Running => match task.lease_ms {
                Some(lease_ms) => self.lease_over_at(id, lease_ms, held, now)?,
                None => self.stale_at(id, &fold, held, now)?,
            },
            // A holder closes it at once.
            Phase::New if fold.cancel && !held => open.cancelled? + self.delay(id, now),
            Phase::New => now,
            Phase::Completed | Phase::Final | Phase::Cancelled | Phase::Expired | Phase::Sealed => {
                return None;
            }
        };
        Some(Judged { due, closes })
    }

    /// When and how the task's own limits, or the tasks that it waited for, close it instead of
    /// running it.
    pub(super) fn closes_at(
        &self,
        id: TaskId,
        task: &Task,
        now: Moment,
    ) -> Option<(Moment, ClaimKind)> {
        let limits = || task.limits.as_deref()?.closes_at(&task.fold, task.created_ms);
        let limited = limits().map(|(at_ms, kind)| (self.wall.moment(at_ms), kind));
        let closed = self.closed_by_others(id, &task.fold);
        let (at, kind) = [closed, limited].into_iter().flatten().min_by_key(|(at, _)| *at)?;
        // An offered task is due for all workers: only the holder closes it at once.
        let waits = task.fold.is_offered() && !task.held;
        Some((if waits { at + self.delay(id, now) } else { at }, kind))
    }

    /// When this worker may take the task over, as far as known now. `None`: the next own heartbeat
    /// will tell.
    fn stale_at(&mut self, id: TaskId, fold: &TaskFold, held: bool, now: Moment) -> Option<Moment> {
        if !self.silence.is_stale(fold.owner) {
            if let Some(open) = self.open.get_mut(&id) {
                open.stale = None;
            }
            return self.ask_whether_silent(id, self.silence.extra_at(fold.owner), now);
        }
        let open = self.open.get_mut(&id)?;
        let stale = *open.stale.get_or_insert(now);
        Some(if held { stale } else { stale + self.delay(id, now) })
    }

    /// Sends the heartbeat that proves whether the task's owner is silent, or returns when to send
    /// it. `None`: it is in flight.
    pub(super) fn ask_whether_silent(
        &mut self,
        id: TaskId,
        extra_at: Option<Moment>,
        now: Moment,
    ) -> Option<Moment> {
        match extra_at {
            Some(at) if at > now => return Some(at),
            Some(_) => self.send_heartbeats(now),
            None => {}
        }
        self.awaiting_heartbeat.insert(id);
        None
    }

    /// When it is this worker's turn to claim a task offered by another worker, which is not in the
    /// line. A cancellation is left to the holder for longer.
    pub(super) fn turn_at_offer(&self, id: TaskId, fold: &TaskFold, now: Moment) -> Option<Moment> {
        let open = self.open.get(&id)?;
        let line = self.silence.live_owners(now).filter(|owner| *owner != fold.owner);
        let place = rank(id, self.machine.owner(), line).min(OFFER_PLACES_MAX);
        let turn = open.due + OFFER_SLOT * u32::try_from(place).unwrap_or(u32::MAX);
        let cancelled = open.cancelled.map(|at| at + self.delay(id, now));
        Some(turn.max(cancelled.unwrap_or_default()))
    }
}
