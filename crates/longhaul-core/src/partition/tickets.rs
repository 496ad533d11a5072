//! Claims that need a ticket, where the queue has limits. The tickets are on the register, which
//! the core of the queue reads: the partition requests one, and that core tells it when the task
//! may be claimed. A queue without limits costs the check of a flag.
//!
//! A task that waits for its ticket uses no slot. The worker requests no more tickets than it has
//! free slots, over all its partitions, so that granted ones can be used. Tasks in the line of
//! their key do not count, because others behind them may begin.
//!
//! The ticket of a lease is given back when the ledger shows that the lease is over. Until then it
//! is needed, whichever gateway attends the lease.

use super::blocked::Blocked;
use super::handing_back::WAIT_FOR_SLOT_MAX;
use super::{Mode, Partition, PartitionEffect, Slots};
use crate::agenda::Agenda;
use crate::machine::Stage;
use crate::protocol::fold::Phase;
use crate::protocol::key::{Epoch, OwnerId};
use crate::protocol::moment::Moment;
use crate::task::TaskId;
use std::collections::BTreeMap;

/// Maximum number of tasks in the lines of their keys, beside those for which slots are free.
const LINED_UP_MAX: usize = 256;

/// The limits on the claims of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClaimLimits {
    /// Whether the queue is paused: nothing is claimed.
    pub paused: bool,
    /// Whether claims need tickets.
    pub tickets: bool,
    /// Whether the tickets depend on the task's message.
    pub by_key: bool,
}

/// The tickets of a partition's tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct PartitionTickets {
    limits: ClaimLimits,
    tasks: BTreeMap<TaskId, TicketState>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum TicketState {
    /// Requested.
    Asked,
    /// In the line of the task's key.
    LinedUp,
    /// The task may be claimed, since this time.
    Granted(Moment),
    /// The task is claimed or runs, also under a lease that was granted here.
    Used,
}

impl PartitionTickets {
    /// Number of tasks that wait for a ticket, or have it and no slot yet; slots are kept free for
    /// them.
    fn waiting(&self) -> usize {
        let (mut asked, mut lined_up) = (0, 0_usize);
        for state in self.tasks.values() {
            match state {
                TicketState::Asked | TicketState::Granted(_) => asked += 1,
                TicketState::LinedUp => lined_up += 1,
                TicketState::Used => {}
            }
        }
        asked + lined_up.saturating_sub(LINED_UP_MAX)
    }

    /// Whether the claim of a task may be published as soon as a slot is free.
    pub(super) fn is_granted(&self, id: TaskId) -> bool {
        matches!(self.tasks.get(&id), Some(TicketState::Granted(_)))
    }

    /// The task that has had its tickets for the longest time.
    pub(super) fn first_of(&self, tasks: &Agenda<TaskId>) -> Option<TaskId> {
        if tasks.is_empty() {
            return None;
        }
        let since = |(id, state): (&TaskId, &TicketState)| {
            let since = match state {
                TicketState::Granted(since) => *since,
                // Its claim had no effect.
                TicketState::Used => Moment::default(),
                TicketState::Asked | TicketState::LinedUp => return None,
            };
            tasks.contains(id).then_some((since, *id))
        };
        self.tasks.iter().filter_map(since).min().map(|(_, id)| id)
    }

    /// Notes that a claim of the task is published.
    pub(super) fn use_up(&mut self, id: TaskId) {
        if let Some(state) = self.tasks.get_mut(&id) {
            *state = TicketState::Used;
        }
    }

    pub(super) const fn is_paused(&self) -> bool {
        self.limits.paused
    }
}

impl Partition {
    /// Applies these limits to claims from now on.
    pub fn limit_claims(&mut self, limits: ClaimLimits, now: Moment) {
        let before = std::mem::replace(&mut self.tickets.limits, limits);
        if before != limits {
            for id in self.open.keys() {
                self.agenda.set_by(*id, now);
            }
        }
    }

    /// Notes that the task has all its tickets.
    pub fn grant_ticket(&mut self, id: TaskId, now: Moment) {
        let Some(state) = self.tickets.tasks.get_mut(&id) else { return };
        if *state == TicketState::Used {
            return;
        }
        *state = TicketState::Granted(now);
        if let Some(open) = self.open.get_mut(&id) {
            // A wait for the ticket does not count as a wait for a slot.
            open.received = open.received.map(|_| now);
        }
        self.agenda.set(id, now);
    }

    /// Notes whether the task waits in the line of its key, so that others may begin before it.
    pub fn line_up(&mut self, id: TaskId, in_line_of_key: bool) {
        if let Some(state @ (TicketState::Asked | TicketState::LinedUp)) =
            self.tickets.tasks.get_mut(&id)
        {
            *state = if in_line_of_key { TicketState::LinedUp } else { TicketState::Asked };
        }
    }

    /// Number of tasks that wait for a ticket, or have it and no slot yet; slots are kept free for
    /// them.
    #[must_use]
    pub fn waiting_for_tickets(&self) -> usize {
        if self.tickets.tasks.is_empty() { 0 } else { self.tickets.waiting() }
    }

    /// Whether the owner in another process has been silent for so long that others take over its
    /// tasks. `heard` is when a ticket of it was last read: this worker may not have read the
    /// ledger far enough to know the owner.
    #[must_use]
    pub fn is_silent(&self, owner: OwnerId, heard: Moment) -> bool {
        let limit = 2 * self.settings.ledger.heartbeat;
        let is_other = self.machine.is_ready() && !self.machine.is_own(owner);
        is_other && self.silence.is_stale(owner) && self.silence.is_over(heard, limit)
    }

    /// Whether the lease granted to this task under this owner's ticket goes on. The gateway may be
    /// gone, or another one may attend the lease by now.
    #[must_use]
    pub fn needs_ticket_of(&self, id: TaskId, gateway: OwnerId) -> bool {
        self.runs_lease(id, |owner| owner.is_lease_of(gateway))
    }

    fn runs_lease(&self, id: TaskId, of: impl FnOnce(OwnerId) -> bool) -> bool {
        self.machine.lease(id).is_some_and(|(_, owner, _)| of(owner))
    }

    /// Whether the free slots allow the request of one more ticket.
    pub(super) fn may_ask(&self, slots: &Slots) -> bool {
        !self.tickets.limits.tickets
            || self.tickets.waiting() + slots.asked_elsewhere < slots.free()
    }

    /// Why the claim of a task does not have all the tickets that it needs; `None` if it has them.
    /// `reads`: the task's message must be read first.
    pub(super) fn ticket_block(&self, id: TaskId, reads: bool, slots: &Slots) -> Option<Blocked> {
        let ClaimLimits { tickets: true, by_key, .. } = self.tickets.limits else { return None };
        match self.tickets.tasks.get(&id) {
            // A claim without effect leaves its ticket to the next one.
            Some(TicketState::Used | TicketState::Granted(_)) => None,
            Some(TicketState::Asked | TicketState::LinedUp) => Some(Blocked::AwaitsTicket),
            None if reads && by_key => None,
            None if self.may_ask(slots) => Some(Blocked::NeedsTicket),
            None => Some(Blocked::NoSlot),
        }
    }

    pub(super) fn ask_for_ticket(&mut self, id: TaskId, now: Moment) {
        self.tickets.tasks.insert(id, TicketState::Asked);
        self.effects.push_back(PartitionEffect::AskForTicket(id));
        self.look_when_it_closes(id, now);
    }

    /// Gives back the tickets of tasks that will not be claimed and of attempts that are over. Call
    /// it after everything else.
    pub(super) fn return_tickets(&mut self) {
        if self.tickets.tasks.is_empty() {
            return;
        }
        let tasks = &self.tickets.tasks;
        let over =
            |(id, state): (&TaskId, &TicketState)| (!self.needs_ticket(*id, *state)).then_some(*id);
        let over: Vec<TaskId> = tasks.iter().filter_map(over).collect();
        for id in over {
            self.return_ticket(id);
        }
    }

    fn return_ticket(&mut self, id: TaskId) {
        self.tickets.tasks.remove(&id);
        self.effects.push_back(PartitionEffect::ReturnTicket(id));
    }

    /// Gives back the ticket of a task that cannot begin for lack of a slot or of room, after a
    /// while, so that a worker with both can use it.
    pub(super) fn return_ticket_in_time(&mut self, id: TaskId, now: Moment) {
        let Some(TicketState::Granted(since)) = self.tickets.tasks.get(&id) else { return };
        let until = *since + WAIT_FOR_SLOT_MAX;
        if now >= until {
            self.return_ticket(id);
        } else {
            self.agenda.set_by(id, until);
        }
    }

    /// Plans a look at the time when the task's limits close it.
    pub(super) fn look_when_it_closes(&mut self, id: TaskId, now: Moment) {
        let closes = self.machine.task(id).and_then(|task| self.closes_at(id, &task, now));
        if let Some((at, _)) = closes.filter(|(at, _)| *at > now) {
            self.agenda.set_by(id, at);
        }
    }

    /// Gives the ticket of a task without a request to another task.
    pub(super) fn give_up_ticket(&mut self, id: TaskId) {
        if self.tickets.is_granted(id) {
            self.return_ticket(id);
        }
    }

    fn needs_ticket(&self, id: TaskId, state: TicketState) -> bool {
        if state == TicketState::Used {
            if self.mode == Mode::Bootstrap {
                // Behind a self-fence the ledger is read again, and does not show yet which leases
                // go on.
                return true;
            }
            let epochs = (id, Epoch(0))..=(id, Epoch(u32::MAX));
            return self.claims.contains_key(&id)
                || self.processors.range(epochs).next().is_some()
                || self.runs_lease(id, |owner| self.machine.speaks_for(owner));
        }
        let Some(task) = self.machine.task(id) else { return false };
        let (fold, idle) = (task.fold, matches!(task.stage, Stage::Idle | Stage::Reading));
        let claimable = match fold.phase {
            Phase::New => task.held,
            Phase::Retry => true,
            Phase::Running => self.runs_in_silence(&task, id),
            Phase::Completed | Phase::Final | Phase::Cancelled | Phase::Expired | Phase::Sealed => {
                false
            }
        };
        // Another task that is due may have taken the place before this one in the line of their
        // key, and may wait for the same ticket.
        let behind = self.machine.stands_behind_in_line(id, &fold);
        idle && claimable && !behind && self.mode == Mode::Live && !self.tickets.limits.paused
    }
}
