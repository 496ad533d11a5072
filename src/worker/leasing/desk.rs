//! The requests for leases, and the assignment of claims to requests. Pure except for the channels
//! for answers.
//!
//! The request that has waited longest comes first. A claim is bound to a request when it is
//! published. When it is granted the lease goes to that request; if the claim has no effect the
//! request waits on. A request is answered as soon as it has a lease and no claim for it is in
//! flight: a request for many leases gets the available ones without waiting for more. Leases of a
//! request that ends without an answer are given back.

use super::{Lease, LeaseKey, LeaseNotice, LeaseReply, LeaseRequest, LeaseRequestId};
use crate::lease::LeaseError;
use crate::worker::driver::LaneId;
use longhaul_core::task::{TaskId, WorkerIdentity};
use longhaul_core::wanted::{TaskType, WantedLeases};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// A task on a lane.
type LaneTask = (LaneId, TaskId);

/// The requests for leases and the claims for them. See the module's documentation.
#[derive(Default)]
pub(in crate::worker) struct LeaseQueue {
    wishes: BTreeMap<LeaseRequestId, PendingLeaseRequest>,
    /// Requests for any type with more requested leases than claims in flight.
    open: BTreeSet<LeaseRequestId>,
    /// Requests for certain types with more requested leases than claims in flight, by type.
    typed: BTreeMap<TaskType, BTreeSet<LeaseRequestId>>,
    /// Total number of open leases in requests; below, by type.
    free: usize,
    wanted: WantedLeases,
    /// Claims in flight, and their requests.
    bound: HashMap<LaneTask, Bound>,
    /// The attendants of this worker's leases.
    pub(in crate::worker) attendants: HashMap<LeaseKey, mpsc::Sender<LeaseNotice>>,
}

/// The request of a claim.
#[derive(Clone, Debug)]
pub(in crate::worker) struct Bound {
    wish: LeaseRequestId,
    /// The body of its claims, which names the requesting worker.
    pub(in crate::worker) claim_body: Arc<str>,
    /// The silence after which its lease is ended, if the request sets it.
    pub(in crate::worker) lease_time: Option<Duration>,
    /// Whether the worker confirms the lease before it starts the task.
    pub(in crate::worker) confirms: bool,
    /// The size of the task.
    bytes: usize,
}

struct PendingLeaseRequest {
    /// The name and the instance of the worker; `None` if it has said no instance.
    worker: Option<WorkerIdentity>,
    claim_body: Arc<str>,
    lease_time: Option<Duration>,
    /// Empty: any type.
    types: Box<[TaskType]>,
    /// Number of leases still to be claimed for it.
    open: usize,
    /// Number of its claims in flight.
    bound: usize,
    /// Whether it waits only for these.
    last: bool,
    /// Number of bytes that further tasks may have.
    room: usize,
    confirms: bool,
    granted: Vec<(LaneId, Lease)>,
    reply: LeaseReply,
}

impl LeaseQueue {
    /// Adds a request.
    pub(in crate::worker) fn ask(
        &mut self,
        id: LeaseRequestId,
        request: LeaseRequest,
        reply: LeaseReply,
    ) {
        let claim_body = request.claim_body().into();
        let LeaseRequest { count, lease_time, types, worker, instance, bytes, confirms, .. } =
            request;
        let worker = (!instance.is_empty()).then(|| WorkerIdentity::lessee(worker, instance));
        let types: BTreeSet<_> =
            types.iter().flatten().map(|name| TaskType::of(Some(name))).collect();
        let types = types.into_iter().collect();
        let (open, bound, last, granted) = (0, 0, false, Vec::new());
        let wish = PendingLeaseRequest {
            worker,
            claim_body,
            lease_time,
            types,
            open,
            bound,
            last,
            room: bytes,
            confirms,
            granted,
            reply,
        };
        self.wishes.insert(id, wish);
        self.set_open(id, count);
    }

    /// Sets the number of leases without a claim for the request.
    fn set_open(&mut self, id: LeaseRequestId, open: usize) {
        let Some(wish) = self.wishes.get_mut(&id) else { return };
        let before = std::mem::replace(&mut wish.open, open);
        self.free = (self.free + open).saturating_sub(before);
        if wish.types.is_empty() {
            self.wanted.change(None, before, open);
            set(&mut self.open, id, open > 0);
        }
        for task_type in &wish.types {
            self.wanted.change(Some(*task_type), before, open);
            let of_type = self.typed.entry(*task_type).or_default();
            set(of_type, id, open > 0);
            if of_type.is_empty() {
                self.typed.remove(task_type);
            }
        }
    }

    /// Handles the end of a request's wait: it still waits for claims in flight, and is answered at
    /// once if there are none.
    pub(in crate::worker) fn last(&mut self, id: LeaseRequestId) {
        self.set_open(id, 0);
        let Some(wish) = self.wishes.get_mut(&id) else { return };
        wish.last = true;
        if wish.bound == 0 {
            self.answer(id);
        }
    }

    /// Removes a request that was given up, and gives back its leases: those in flight when they
    /// come.
    pub(in crate::worker) fn gone(&mut self, id: LeaseRequestId) {
        if let Some(wish) = self.remove(id) {
            self.give_back(wish.granted);
        }
    }

    /// Gives back leases that their worker has not got.
    fn give_back(&mut self, granted: Vec<(LaneId, Lease)>) {
        for (id, lease) in granted {
            self.end_unwanted((id, lease.token.task, lease.token.epoch));
        }
    }

    /// Tells the attendant of a lease that its worker has not got it. The attendant ends, and takes
    /// no reports any more.
    pub(in crate::worker) fn end_unwanted(&mut self, key: LeaseKey) {
        if let Some(attendant) = self.attendants.remove(&key) {
            // An attendant that does not listen has ended by itself.
            drop(attendant.try_send(LeaseNotice::Unwanted));
        }
    }

    /// The workers that wait for leases, without those that have said no instance: so many at most.
    pub(in crate::worker) fn waiting(&self, max: usize) -> Vec<WorkerIdentity> {
        let mut waiting: Vec<&WorkerIdentity> = Vec::new();
        for worker in self.wishes.values().filter_map(|wish| wish.worker.as_ref()) {
            if waiting.len() < max && !waiting.contains(&worker) {
                waiting.push(worker);
            }
        }
        waiting.into_iter().cloned().collect()
    }

    /// Refuses the requests of the workers that are to drain. Leases in flight for them are given
    /// back when they come.
    pub(in crate::worker) fn refuse_drained(
        &mut self,
        is_drained: impl Fn(&WorkerIdentity) -> bool,
    ) {
        let is_told = |wish: &PendingLeaseRequest| wish.worker.as_ref().is_some_and(&is_drained);
        let told = self.wishes.iter().filter(|(_, wish)| is_told(wish)).map(|(id, _)| *id);
        for id in told.collect::<Vec<_>>() {
            // Those that it has got already come first; its next request is refused.
            if self.wishes.get(&id).is_some_and(|wish| !wish.granted.is_empty()) {
                self.answer(id);
            } else if let Some(wish) = self.remove(id) {
                wish.reply.send(Err(LeaseError::Drained)).ok();
            }
        }
    }

    /// Number of requested leases without a claim in flight.
    pub(in crate::worker) const fn free(&self) -> usize {
        self.free
    }

    /// The same by type, if any request names types.
    pub(in crate::worker) fn wanted(&self) -> Option<&WantedLeases> {
        (!self.wanted.types.is_empty()).then_some(&self.wanted)
    }

    /// Binds a published claim of a task of this type and size to the matching request that has
    /// waited longest and has room. `None`: there is none.
    pub(in crate::worker) fn bind(
        &mut self,
        of: LaneTask,
        task_type: Option<TaskType>,
        bytes: usize,
    ) -> Option<Bound> {
        loop {
            let of_type = task_type.and_then(|task_type| self.typed.get(&task_type)?.first());
            let id = of_type.into_iter().chain(self.open.first()).min().copied()?;
            let wish = self.wishes.get_mut(&id)?;
            let is_first = wish.bound == 0 && wish.granted.is_empty();
            if bytes > wish.room && !is_first {
                // It is answered with the others. If one of those has no effect, it waits on.
                self.set_open(id, 0);
                continue;
            }
            wish.bound += 1;
            wish.room = wish.room.saturating_sub(bytes);
            let bound = Bound {
                wish: id,
                claim_body: Arc::clone(&wish.claim_body),
                lease_time: wish.lease_time,
                confirms: wish.confirms,
                bytes,
            };
            let open = wish.open;
            self.bound.insert(of, bound.clone());
            self.set_open(id, open.saturating_sub(1));
            return Some(bound);
        }
    }

    /// Whether the worker confirms the lease that this claim is for.
    pub(in crate::worker) fn confirms(&self, of: LaneTask) -> bool {
        self.bound.get(&of).is_some_and(|bound| bound.confirms)
    }

    /// Unbinds a claim without effect.
    pub(in crate::worker) fn unbind(&mut self, of: LaneTask) {
        let Some(Bound { wish: id, bytes, .. }) = self.bound.remove(&of) else { return };
        let Some(wish) = self.wishes.get_mut(&id) else { return };
        wish.bound -= 1;
        wish.room = wish.room.saturating_add(bytes);
        let is_over = wish.last || !wish.granted.is_empty();
        if is_over && wish.bound == 0 {
            self.answer(id);
        } else if !wish.last {
            let open = wish.open;
            self.set_open(id, open + 1);
        }
    }

    /// Grants a lease to the request of its claim, or gives it back if the request was given up.
    pub(in crate::worker) fn grant(&mut self, of: LaneTask, lease: Lease) {
        let granted = (of.0, lease);
        let bound = self.bound.remove(&of);
        let wish = bound.and_then(|bound| Some((bound.wish, self.wishes.get_mut(&bound.wish)?)));
        let Some((id, wish)) = wish else { return self.give_back(vec![granted]) };
        wish.bound -= 1;
        wish.granted.push(granted);
        if wish.reply.is_closed() {
            self.gone(id);
        } else if wish.bound == 0 {
            self.answer(id);
        }
    }

    /// Answers a request with its leases.
    fn answer(&mut self, id: LeaseRequestId) {
        let Some(PendingLeaseRequest { granted, reply, .. }) = self.remove(id) else { return };
        let lanes: Vec<LaneId> = granted.iter().map(|(id, _)| *id).collect();
        let leases = granted.into_iter().map(|(_, lease)| lease).collect();
        // A receiver that is gone returns them.
        if let Err(Ok(leases)) = reply.send(Ok(leases)) {
            self.give_back(lanes.into_iter().zip(leases).collect());
        }
    }

    fn remove(&mut self, id: LeaseRequestId) -> Option<PendingLeaseRequest> {
        self.set_open(id, 0);
        self.wishes.remove(&id)
    }
}

fn set(wishes: &mut BTreeSet<LeaseRequestId>, id: LeaseRequestId, is_in: bool) {
    if is_in {
        wishes.insert(id);
    } else {
        wishes.remove(&id);
    }
}

#[cfg(test)]
mod tests;
