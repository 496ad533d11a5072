//! Tasks of types without a request here, where tasks are leased. They wait without their payloads
//! and block nothing. They can be cancelled, they expire, and their retries are counted.
//!
//! A subscription cannot select types at the broker, so a gateway receives all of them. If there
//! are other workers, a task that was delivered here without a request is offered to them on the
//! ledger (`protocol/offer.rs`), once. A gateway that is alone makes no offers.
//!
//! Workers without leases use the same offers for tasks that wait for a slot and cannot go back to
//! the broker, or returned from there ([`Partition::hand_back_after`]).

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

/// Maximum number of tasks of a partition without a request, including those offered by others.
/// Beyond it they count as requested ones, and no more are received. Each takes 1.3 kB, so a
/// partition has 13 MB of them at most.
const KEPT_MAX: usize = 10_000;

/// As many more deliveries are requested at once as are kept already, up to this number: the
/// requested tasks may lie behind a million of others.
const AHEAD_MAX: usize = 256;

/// Time without a request after which a task is offered: a client that works on one task after the
/// other soon sends the next request.
const OFFERED_AFTER: Duration = Duration::from_millis(20);

/// Maximum number of offers within this time.
const OFFERS_MAX: usize = 1_000;
const OFFERS_PAUSE: Duration = Duration::from_millis(100);

/// Tasks without a request. See the module's documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Unwanted {
    tasks: BTreeMap<TaskId, (TaskType, Moment)>,
    /// In the order in which they became ready.
    order: BTreeSet<(Moment, TaskId)>,
    by_type: BTreeMap<TaskType, BTreeSet<(Moment, TaskId)>>,
    /// The tasks to offer to other workers, each as soon as its time comes and the rate allows it.
    pub(super) to_offer: Agenda<TaskId>,
    /// Payload reads in progress, with the type that a request asks for; slow reads are left out.
    reading: BTreeMap<TaskId, TaskType>,
    reads: BTreeMap<TaskType, usize>,
    /// When the current series of offers without a pause began, and its length.
    offers: (Moment, usize),
    /// When to make the next offers.
    pub(super) offer_at: Option<Moment>,
}

impl Unwanted {
    /// Keeps a task that became ready at `ready` until it is requested or offered.
    fn keep(&mut self, id: TaskId, task_type: TaskType, ready: Moment, offer: Option<Moment>) {
        self.remove(id);
        self.tasks.insert(id, (task_type, ready));
        self.order.insert((ready, id));
        self.by_type.entry(task_type).or_default().insert((ready, id));
        if let Some(offer) = offer {
            self.to_offer.set(id, offer);
        }
    }

    /// Removes a task that is being looked at or is gone.
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

    /// Handles the end of the session; `knows` tells which tasks are known regardless of it.
    pub(super) fn session_lost(&mut self, knows: impl Fn(TaskId) -> bool) {
        self.to_offer = Agenda::default();
        let gone: Vec<TaskId> = self.tasks.keys().copied().filter(|id| !knows(*id)).collect();
        for id in gone {
            self.remove(id);
        }
    }

    /// The first task with a request by now, and its place.
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

    /// Whether more tasks of a type are requested than payloads of it are being read.
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

    /// When the next offer may be made.
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
    /// The type of a task, if it matters. For a worker without leases it does, because an offer
    /// carries it. A gateway whose requests have never named types keeps a task for the next
    /// request, and offers it only if it cannot hand it back.
    fn type_that_matters(&self, id: TaskId, slots: &Slots) -> Option<TaskType> {
        let stays = id.batch_index.is_some() || self.has_come_back(id);
        let matters = stays || slots.are_typed() || !self.machine.leases() || self.keeps_order();
        self.open.get(&id)?.task_type.filter(|_| matters)
    }

    /// Whether there are tasks that wait for a request for their types.
    #[must_use]
    pub fn has_unwanted(&self) -> bool {
        !self.unwanted.tasks.is_empty()
    }

    /// Number of deliveries to request beyond the open requests, to find the requested tasks.
    #[must_use]
    pub fn looks_ahead(&self) -> usize {
        let kept = self.unwanted.tasks.len();
        kept.min(AHEAD_MAX).min(KEPT_MAX.saturating_sub(kept))
    }

    /// Number of tasks without a request that count as requested ones, so that no more come.
    #[must_use]
    pub fn unwanted_beyond(&self) -> usize {
        self.unwanted.tasks.len().saturating_sub(KEPT_MAX)
    }

    /// The type of a task without a request. For a task that was neither delivered nor offered, the
    /// message is read to find the type.
    pub(super) fn unwanted_type(
        &self,
        id: TaskId,
        decision: Decision,
        now: Moment,
        slots: &Slots,
    ) -> Option<TaskType> {
        let task_type = self.type_that_matters(id, slots)?;
        let is_wanted = match (decision, slots.wanted()) {
            (Decision::ReadPayload, Some(wanted)) => self.unwanted.may_read(wanted)(&task_type),
            (Decision::Claim(_), Some(wanted)) => wanted.of(task_type) > 0,
            // A task that was in flight for a request that is over may be requested at another
            // worker.
            (Decision::ReadPayload | Decision::Claim(_), None) => {
                slots.free() > 0 || !self.machine.leases() || !self.has_others(now)
            }
            (Decision::Wait, _) => true,
        };
        (!is_wanted).then_some(task_type)
    }

    /// Notes a payload read for a request for its type.
    pub(super) fn record_read(&mut self, id: TaskId, slots: &Slots) {
        if slots.wanted().is_some()
            && let Some(task_type) = self.open.get(&id).and_then(|open| open.task_type)
        {
            self.unwanted.begin_read(id, task_type);
        }
    }

    /// Counts a claimed task: one request less is open.
    pub(super) fn take_for(&mut self, id: TaskId, slots: &mut Slots) {
        if slots.wanted().is_some()
            && let Some(task_type) = self.open.get(&id).and_then(|open| open.task_type)
        {
            slots.take_for(task_type);
        }
    }

    /// Keeps a task without a request: it waits without its payload, and is looked at again when it
    /// may be closed.
    pub(super) fn keep_unwanted(&mut self, id: TaskId, task_type: TaskType, now: Moment) {
        self.machine.drop_waiting_payload(id);
        self.waiting.remove(id);
        self.give_up_ticket(id);
        let may = self.may_offer(id);
        let heartbeat = self.settings.ledger.heartbeat;
        if let Some(open) = self.open.get_mut(&id) {
            open.granted = false;
            // An offer without effect is repeated only after a heartbeat interval.
            let again = open.offered.map(|at| at + heartbeat).unwrap_or_default();
            let offer = may.then_some((now + OFFERED_AFTER).max(again));
            self.unwanted.keep(id, task_type, place(open.ready_ms), offer);
        }
        self.look_when_it_closes(id, now);
    }

    /// The first task with a request by now, and its place in the order of ready tasks.
    pub(super) fn first_unwanted(&self, now: Moment, slots: &Slots) -> Option<(Moment, TaskId)> {
        if self.unwanted.tasks.is_empty() || slots.full || !self.may_take(now) {
            return None;
        }
        self.unwanted.first(slots.wanted())
    }

    /// Offers tasks that were delivered here without a request, if there are other workers: they
    /// may have requests.
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

    /// The claim that offers a task to the others, if there is no request for it here.
    pub(super) fn offer_of(&self, id: TaskId, now: Moment, slots: &Slots) -> Option<ClaimKind> {
        let ready_by = self.wall.at(now);
        let may = self.may_offer(id);
        let open = self.open.get(&id).filter(|_| may)?;
        let task_type = self.type_that_matters(id, slots)?;
        let asked_for = slots.wanted().map_or_else(|| slots.free(), |wanted| wanted.of(task_type));
        if asked_for > 0 {
            return None;
        }
        // A worker with a fast clock must not make others wait.
        Some(ClaimKind::Offer(Offer { task_type, ready_ms: open.ready_ms.min(ready_by) }))
    }

    /// Whether a task may be offered: other workers would not get it, or late. A task that
    /// continues an attempt is not offered, because an offer would not tell that.
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
