//! Why a task is not claimed now. [`Partition::blocked`] has all reasons, in the order in which they
//! are checked, and changes nothing; [`Partition::wait_for`] does for each what ends the wait, or
//! plans the next look. A new reason to wait is one more variant, with one line in each of the two;
//! if it holds for all tasks, [`Partition::may_take`] must say no as well.

use super::{Mode, Partition, Slots};
use crate::protocol::claim::Decision;
use crate::protocol::entry::ClaimKind;
use crate::protocol::key::Epoch;
use crate::protocol::moment::Moment;
use crate::task::TaskId;
use crate::wanted::TaskType;

/// The next step for a task, as far as the state of the task alone decides it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) id: TaskId,
    pub(super) decision: Decision,
    /// When the task may be claimed.
    pub(super) due: Moment,
    /// Whether its message is only read to end the task, which needs no slot.
    pub(super) ends_unseen: bool,
}

/// Why a task is not claimed now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blocked {
    /// A retry pause, the owner's patience or this worker's turn is not over; if the time is over,
    /// some other event must happen first.
    NotDue(Moment),
    /// No client of leases requests this type.
    NotRequested(TaskType),
    /// A gateway waits until the ledger has its settings.
    NoConfig,
    /// The worker still reads the ledger, or drains.
    NotLive,
    /// The queue is paused.
    Paused,
    /// The last own heartbeat that came back is too old.
    HeartbeatTooOld,
    /// A fenced processor of an earlier epoch has not ended.
    ProcessorRuns,
    /// Own claims came back too late.
    BacksOff(Moment),
    /// A limit of the queue: its ticket is requested.
    AwaitsTicket,
    /// A limit of the queue: its ticket must be requested.
    NeedsTicket,
    /// The worker holds as much as it may.
    Full,
    /// All slots are taken.
    NoSlot,
}

impl Step {
    /// Whether the step ends or offers the task instead of running it.
    const fn closes(&self) -> bool {
        match self.decision {
            Decision::Claim(claim) => !matches!(claim.kind, ClaimKind::Run),
            Decision::ReadPayload => self.ends_unseen,
            Decision::Wait => false,
        }
    }
}

impl Partition {
    /// Why the step is not done now. `None`: nothing speaks against it.
    pub(super) fn blocked(&self, step: &Step, now: Moment, slots: &Slots) -> Option<Blocked> {
        let Step { id, decision, due, .. } = *step;
        let (closes, reads) = (step.closes(), decision == Decision::ReadPayload);
        if decision == Decision::Wait {
            return Some(Blocked::NotDue(due));
        }
        if !closes && let Some(task_type) = self.unwanted_type(id, decision, now, slots) {
            return Some(Blocked::NotRequested(task_type));
        }
        if let Decision::Claim(claim) = decision
            && !claim.kind.closes()
            && self.machine.leases()
            && self.config.is_none()
        {
            return Some(Blocked::NoConfig);
        }
        if let Some(blocked) = self.worker_blocked(id, closes, now) {
            return Some(blocked);
        }
        if closes {
            return None;
        }
        if let Some(blocked) = self.ticket_block(id, reads, slots) {
            return Some(blocked);
        }
        if reads && slots.full {
            return Some(Blocked::Full);
        }
        (!self.has_slot(id, decision, slots)).then_some(Blocked::NoSlot)
    }

    /// What speaks against any step of this worker for the task.
    fn worker_blocked(&self, id: TaskId, closes: bool, now: Moment) -> Option<Blocked> {
        let mut processors = self.processors.range((id, Epoch(0))..=(id, Epoch(u32::MAX)));
        let not_before = self.open.get(&id).map(|open| open.not_before);
        if self.mode != Mode::Live {
            Some(Blocked::NotLive)
        } else if self.tickets.is_paused() && !closes {
            Some(Blocked::Paused)
        } else if !self.silence.may_claim(now) {
            Some(Blocked::HeartbeatTooOld)
        } else if processors.next().is_some() {
            Some(Blocked::ProcessorRuns)
        } else if closes {
            // A claim that ends a task is not given back, however late it comes back.
            None
        } else {
            not_before.filter(|at| *at > now).map(Blocked::BacksOff)
        }
    }

    /// Does what ends the wait, or plans the next look at the task.
    pub(super) fn wait_for(&mut self, blocked: Blocked, id: TaskId, now: Moment) {
        match blocked {
            Blocked::NotDue(due) if due > now => self.agenda.set(id, due),
            // An entry, or the end of the processor, has the task looked at.
            Blocked::NotDue(_) | Blocked::NotLive | Blocked::ProcessorRuns => {}
            Blocked::NotRequested(task_type) => self.keep_unwanted(id, task_type, now),
            Blocked::NoConfig => self.share_config(),
            Blocked::Paused => _ = self.hand_back_in_time(id, now),
            Blocked::HeartbeatTooOld => {
                self.awaiting_heartbeat.insert(id);
                self.hand_back_in_time(id, now);
            }
            Blocked::BacksOff(at) => self.agenda.set(id, at),
            Blocked::AwaitsTicket => self.look_when_it_closes(id, now),
            Blocked::NeedsTicket => self.ask_for_ticket(id, now),
            Blocked::Full => {
                self.awaiting_heartbeat.insert(id);
                self.return_ticket_in_time(id, now);
            }
            Blocked::NoSlot => self.wait_for_slot(id, now),
        }
    }
}
