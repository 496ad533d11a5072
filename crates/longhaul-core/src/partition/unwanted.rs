//! Tasks of types that nobody asks for here, where tasks are leased: they wait without their
//! payloads, and stand in nobody's way. What else becomes of them goes on: they can be cancelled,
//! they expire, and their retries are counted.
//!
//! A subscription cannot tell the broker which types it wants, so that a gateway is given all of
//! them. Where other workers are, what was delivered here and is not asked for is offered to them
//! on the ledger (`protocol/offer.rs`), once. A gateway that is alone says nothing.
//!
//! Workers without leases use the same offers for tasks that wait for a slot and cannot go back to
//! the broker, or came here again when they did ([`Partition::hand_back_after`]).

use super::delivering::place;
use super::{Mode, Partition, Slots};
use crate::agenda::Agenda;
use crate::machine::Task;
use crate::protocol::claim::Decision;
use crate::protocol::entry::{AttemptCause, ClaimKind, Offer};
use crate::protocol::fold::Phase;
use crate::protocol::moment::Moment;
use crate::task::TaskId;
use crate::wanted::{TaskType, WantedLeases};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// So many tasks of a partition may wait for which nobody asks, offered ones of others included,
/// before they count as what was asked for, and no more are received. Each takes up 1.3 kB, so that
/// a partition has 13 MB of them at most.
const KEPT_MAX: usize = 10_000;

/// So many more are asked for at once as are kept already, up to this: behind a million of them
/// lies what is asked for.
const AHEAD_MAX: usize = 256;

/// A task is offered when nobody has asked for it here for so long: who works on one task after the
/// other soon asks again.
const OFFERED_AFTER: Duration = Duration::from_millis(20);

/// So many are offered within this time at most.
const OFFERS_MAX: usize = 1_000;
const OFFERS_PAUSE: Duration = Duration::from_millis(100);

/// See the module's documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Unwanted {
    tasks: BTreeMap<TaskId, (TaskType, Moment)>,
    /// In the order in which they became ready.
    order: BTreeSet<(Moment, TaskId)>,
    by_type: BTreeMap<TaskType, BTreeSet<(Moment, TaskId)>>,
    /// Those of them that are to be offered where others are, and when.
    pub(super) to_offer: Agenda<TaskId>,
    /// Payload reads in progress, with the type that a request asks for; slow reads are left out.
    reading: BTreeMap<TaskId, TaskType>,
    reads: BTreeMap<TaskType, usize>,
    /// Since when, and how many, were offered without a pause.
    offers: (Moment, usize),
    /// When the next ones are to be offered.
    pub(super) offer_at: Option<Moment>,
}

impl Unwanted {
    /// A task that became ready then waits until it is asked for, or is offered.
    fn keep(&mut self, id: TaskId, task_type: TaskType, ready: Moment, offer: Option<Moment>) {
        self.remove(id);
        self.tasks.insert(id, (task_type, ready));
        self.order.insert((ready, id));
        self.by_type.entry(task_type).or_default().insert((ready, id));
        if let Some(offer) = offer {
            self.to_offer.set(id, offer);
        }
    }

    /// It is looked at, or gone.
    pub(super) fn remove(&mut self, id: TaskId) {
        self.to_offer.remove(id);
        if self.tasks.is_empty() {
            return;
        }
        let Some((task_type, ready)) = self.tasks.remove(&id) else { return };
        self.order.remove(&(ready, id));
        if let Some(line) = self.by_type.get_mut(&task_type) {
            line.remove(&(ready, id));
            if line.is_empty() {
                self.by_type.remove(&task_type);
            }
        }
    }

    /// The task is to be offered to the other workers, as soon as that may be.
    pub(super) fn offer(&mut self, id: TaskId, now: Moment) {
        self.to_offer.set_by(id, now);
    }

    /// It is not held here any more.
    pub(super) fn let_go(&mut self, id: TaskId) {
        self.to_offer.remove(id);
    }

    /// The session that brought them has ended: `knows` says which of them are known all the same.
    pub(super) fn session_lost(&mut self, knows: impl Fn(TaskId) -> bool) {
        self.to_offer = Agenda::default();
        let gone: Vec<TaskId> = self.tasks.keys().copied().filter(|id| !knows(*id)).collect();
        for id in gone {
            self.remove(id);
        }
    }

    /// The first of them that is asked for by now, and its place.
    fn first(&self, wanted: Option<&WantedLeases>) -> Option<(Moment, TaskId)> {
        let (ready, id) = *self.order.first()?;
        let Some(wanted) = wanted else { return Some((ready, id)) };
        let may = self.may_read(wanted);
        if self.tasks.get(&id).is_some_and(|(task_type, _)| may(task_type)) {
            return Some((ready, id));
        }
        let first = |task_type: &TaskType| {
            let line = self.by_type.get(task_type).filter(|_| may(task_type))?;
            line.first().copied()
        };
        if wanted.any > 0 {
            self.by_type.keys().filter_map(first).min()
        } else {
            wanted.types.keys().filter_map(first).min()
        }
    }

    pub(super) fn begin_read(&mut self, id: TaskId, task_type: TaskType) {
        self.reading.insert(id, task_type);
        *self.reads.entry(task_type).or_default() += 1;
    }

    pub(super) fn end_read(&mut self, id: TaskId) {
        let Some(task_type) = self.reading.remove(&id) else { return };
        if let Some(reads) = self.reads.get_mut(&task_type) {
            *reads -= 1;
            if *reads == 0 {
                self.reads.remove(&task_type);
            }
        }
    }

    /// Whether more tasks of a type are asked for than payloads of it are being read.
    fn may_read(&self, wanted: &WantedLeases) -> impl Fn(&TaskType) -> bool {
        let of = |counts: &BTreeMap<TaskType, usize>, task_type: &TaskType| {
            counts.get(task_type).copied().unwrap_or_default()
        };
        let for_any = self
            .reads
            .iter()
            .map(|(task_type, reads)| reads.saturating_sub(of(&wanted.types, task_type)));
        let any_left = wanted.any > for_any.sum();
        move |task_type| any_left || of(&wanted.types, task_type) > of(&self.reads, task_type)
    }

    /// When the next one may be offered.
    fn may_offer_at(&self) -> Moment {
        let (since, count) = self.offers;
        if count < OFFERS_MAX { Moment::default() } else { since + OFFERS_PAUSE }
    }

    fn next_to_offer(&mut self, now: Moment) -> Option<TaskId> {
        if self.may_offer_at() > now {
            return None;
        }
        let id = self.to_offer.pop_due(now)?;
        let (since, count) = &mut self.offers;
        if now >= *since + OFFERS_PAUSE {
            (*since, *count) = (now, 0);
        }
        *count += 1;
        Some(id)
    }
}

impl Partition {
    /// What type a task has, as its message says. Asked for only where somebody asks for tasks of
    /// some types.
    pub fn note_type(&mut self, id: TaskId, task_type: TaskType) {
        if let Some(open) = self.open.get_mut(&id) {
            open.task_type = Some(task_type);
        }
    }

    /// Whether there are tasks that wait until somebody asks for their types.
    #[must_use]
    pub fn has_unwanted(&self) -> bool {
        !self.unwanted.tasks.is_empty()
    }

    /// How many deliveries more may come than there are requests, so that those are found that are
    /// asked for.
    #[must_use]
    pub fn looks_ahead(&self) -> usize {
        let kept = self.unwanted.tasks.len();
        kept.min(AHEAD_MAX).min(KEPT_MAX.saturating_sub(kept))
    }

    /// Tasks for which nobody asks that count as what was asked for, so that no more come.
    #[must_use]
    pub fn unwanted_beyond(&self) -> usize {
        self.unwanted.tasks.len().saturating_sub(KEPT_MAX)
    }

    /// The type of a task that nobody asks for. What type it has that was neither delivered nor
    /// offered tells its message, which is read for that.
    pub(super) fn unwanted_type(
        &self,
        id: TaskId,
        decision: Decision,
        now: Moment,
        slots: &Slots,
    ) -> Option<TaskType> {
        let task_type = self.open.get(&id)?.task_type?;
        let is_wanted = match (decision, slots.wanted()) {
            (Decision::ReadPayload, Some(wanted)) => self.unwanted.may_read(wanted)(&task_type),
            (Decision::Claim(_), Some(wanted)) => wanted.of(task_type) > 0,
            // What was still on its way for a request that is over the others may be asked for.
            (Decision::ReadPayload | Decision::Claim(_), None) => {
                slots.free() > 0 || !self.machine.leases() || !self.has_others(now)
            }
            (Decision::Wait, _) => true,
        };
        (!is_wanted).then_some(task_type)
    }

    /// Its payload is read because somebody asks for its type.
    pub(super) fn note_read(&mut self, id: TaskId, slots: &Slots) {
        if slots.wanted().is_some()
            && let Some(task_type) = self.open.get(&id).and_then(|open| open.task_type)
        {
            self.unwanted.begin_read(id, task_type);
        }
    }

    /// A task is claimed: one less is asked for.
    pub(super) fn take_for(&mut self, id: TaskId, slots: &mut Slots) {
        if slots.wanted().is_some()
            && let Some(task_type) = self.open.get(&id).and_then(|open| open.task_type)
        {
            slots.take_for(task_type);
        }
    }

    /// Nobody asks for it: it waits without its payload, and is looked at again when it may be
    /// closed.
    pub(super) fn keep_unwanted(&mut self, id: TaskId, task_type: TaskType, now: Moment) {
        self.machine.drop_waiting_payload(id);
        self.waiting.remove(id);
        self.give_up_ticket(id);
        let may = self.may_offer(id);
        let heartbeat = self.settings.ledger.heartbeat;
        if let Some(open) = self.open.get_mut(&id) {
            open.granted = false;
            // An offer that came to nothing is not repeated at full speed.
            let again = open.offered.map(|at| at + heartbeat).unwrap_or_default();
            let offer = may.then_some((now + OFFERED_AFTER).max(again));
            self.unwanted.keep(id, task_type, place(open.ready_ms), offer);
        }
        self.look_when_it_closes(id, now);
    }

    /// The first of those that somebody asks for by now, and its place in the order of ready tasks.
    pub(super) fn first_unwanted(&self, now: Moment, slots: &Slots) -> Option<(Moment, TaskId)> {
        if self.unwanted.tasks.is_empty() || slots.full || !self.may_take(now) {
            return None;
        }
        self.unwanted.first(slots.wanted())
    }

    /// What was delivered here and nobody has asked for is offered where others are: they may be
    /// asked for it.
    pub(super) fn offer_unwanted(&mut self, now: Moment, slots: &mut Slots) {
        self.unwanted.offer_at = None;
        if self.unwanted.to_offer.next().is_none()
            || self.mode != Mode::Live
            || !self.has_others(now)
        {
            return;
        }
        while let Some(id) = self.unwanted.next_to_offer(now) {
            if let Some(open) = self.open.get_mut(&id) {
                open.tried = Some(now);
            }
            self.look_or_offer(id, true, now, slots);
        }
        let next = self.unwanted.to_offer.next();
        self.unwanted.offer_at = next.map(|at| at.max(self.unwanted.may_offer_at()));
    }

    /// The claim that offers a task to the others, if nobody asks for it here.
    pub(super) fn offer_of(&self, id: TaskId, now: Moment, slots: &Slots) -> Option<ClaimKind> {
        let ready_by = self.wall.at(now);
        let may = self.may_offer(id);
        let open = self.open.get(&id).filter(|_| may)?;
        let task_type = open.task_type?;
        let asked_for = slots.wanted().map_or_else(|| slots.free(), |wanted| wanted.of(task_type));
        if asked_for > 0 {
            return None;
        }
        // Whose clock is ahead must not make others wait.
        Some(ClaimKind::Offer(Offer { task_type, ready_ms: open.ready_ms.min(ready_by) }))
    }

    /// Whether a task may be offered: others would not come by it, or late. What goes on with an
    /// attempt that had begun is not: an offer would not say so.
    fn may_offer(&self, id: TaskId) -> bool {
        let ours = |task: &Task| task.held || self.machine.is_own(task.fold.owner);
        let may = |task: &Task| match task.fold.phase {
            Phase::New => task.held,
            Phase::Retry => match task.fold.next_attempt.after {
                AttemptCause::Other | AttemptCause::Others => ours(task),
                AttemptCause::Drain | AttemptCause::Offer(_) => false,
            },
            Phase::Running
            | Phase::Completed
            | Phase::Final
            | Phase::Cancelled
            | Phase::Expired
            | Phase::Sealed => false,
        };
        self.machine.task(id).is_some_and(|task| may(&task))
    }
}
