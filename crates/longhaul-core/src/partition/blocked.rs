//! Why a task is not claimed now. [`Partition::blocked`] has all reasons, in the order in which they
//! are checked, and changes nothing; [`Partition::wait_for`] does for each what ends the wait, or
//! plans the next look. A new reason to wait is one more variant, with one line in each of the two;
//! if it holds for all tasks, [`Partition::may_take`] must say no as well.

use super::{Mode, Partition, Slots};
use crate::legacy::LegacyClaimCheck;
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
    /// Workers that are older than this version of the protocol would not know the claim.
    OlderWorkers(u32),
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
    /// A Java worker may have it.
    Legacy(LegacyClaimCheck),
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

    const fn is_offer(&self) -> bool {
        matches!(self.decision, Decision::Claim(claim) if matches!(claim.kind, ClaimKind::Offer(_)))
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
            && let Some(protocol) = self.unknown_to_older(claim.kind)
        {
            return Some(Blocked::OlderWorkers(protocol));
        }
        let has_slot = self.has_slot(id, decision, slots);
        if let Some(blocked) = self.worker_blocked(id, closes, has_slot, now) {
            return Some(blocked);
        }
        // The worker that takes an offer checks the metadata topic.
        if let Some(legacy) = self.legacy.as_ref().filter(|_| !step.is_offer()) {
            match legacy.check(id, now) {
                LegacyClaimCheck::Free => {}
                check @ (LegacyClaimCheck::RunsUntil(_) | LegacyClaimCheck::NotRead) => {
                    return Some(Blocked::Legacy(check));
                }
            }
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
        (!has_slot).then_some(Blocked::NoSlot)
    }

    /// What speaks against any step of this worker for the task.
    fn worker_blocked(
        &self,
        id: TaskId,
        closes: bool,
        has_slot: bool,
        now: Moment,
    ) -> Option<Blocked> {
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
        } else if let Some(at) = not_before.filter(|at| *at > now) {
            Some(Blocked::BacksOff(at))
        } else if self.legacy.is_some() && !has_slot {
            // An answer from the metadata topic is good for one look.
            Some(Blocked::NoSlot)
        } else {
            None
        }
    }

    /// Does what ends the wait, or plans the next look at the task.
    pub(super) fn wait_for(&mut self, blocked: Blocked, id: TaskId, now: Moment) {
        if matches!(blocked, Blocked::AwaitsTicket | Blocked::NeedsTicket | Blocked::Full) {
            // The metadata topic was asked for this look.
            self.use_legacy_answer(id);
        }
        match blocked {
            Blocked::NotDue(due) if due > now => self.agenda.set(id, due),
            // An entry, or the end of the processor, has the task looked at.
            Blocked::NotDue(_) | Blocked::NotLive | Blocked::ProcessorRuns => {}
            Blocked::NotRequested(task_type) => self.keep_unwanted(id, task_type, now),
            Blocked::OlderWorkers(protocol) => {
                self.keep_out_before(protocol, now);
                self.agenda.set(id, now + self.settings.ledger.heartbeat);
            }
            Blocked::Paused => _ = self.hand_back_in_time(id, now),
            Blocked::HeartbeatTooOld => {
                self.awaiting_heartbeat.insert(id);
                self.hand_back_in_time(id, now);
            }
            Blocked::BacksOff(at) => self.agenda.set(id, at),
            Blocked::Legacy(check) => self.wait_for_legacy(check, id, now),
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
