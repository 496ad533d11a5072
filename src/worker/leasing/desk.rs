//! Who waits for leases, and which claim is for whom. Pure but for the channels by which it
//! answers.
//!
//! Who has waited longest comes first. A claim is bound to a request when it is published; when it
//! is granted the lease goes there, and when nothing comes of it the request waits on. A request is
//! answered as soon as it has a lease and no claim for it is on its way: so one that asks for many
//! gets what is there, and does not wait for more.

use super::{Lease, LeaseKey, LeaseNotice, LeaseRequest, LeaseRequestId};
use crate::worker::driver::LaneId;
use longhaul_core::task::TaskId;
use longhaul_core::wanted::{TaskType, WantedLeases};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// A task on a lane.
type LaneTask = (LaneId, TaskId);

/// See the module's documentation.
#[derive(Default)]
pub(in crate::worker) struct LeaseQueue {
    wishes: BTreeMap<LeaseRequestId, PendingLeaseRequest>,
    /// Those of them that ask for more than claims are on their way for, and for any type.
    open: BTreeSet<LeaseRequestId>,
    /// The same of those that ask for some types only, by type.
    typed: BTreeMap<TaskType, BTreeSet<LeaseRequestId>>,
    /// How many leases they ask for in all, and of which types.
    free: usize,
    wanted: WantedLeases,
    /// Claims on their way, and for whom.
    bound: HashMap<LaneTask, Bound>,
    /// Who looks after the leases of this worker.
    pub(in crate::worker) attendants: HashMap<LeaseKey, mpsc::Sender<LeaseNotice>>,
}

/// Whom a claim is for.
#[derive(Clone, Debug)]
pub(in crate::worker) struct Bound {
    wish: LeaseRequestId,
    /// The worker's name.
    pub(in crate::worker) worker: Arc<str>,
    /// The silence after which its lease is ended, where the request says it.
    pub(in crate::worker) lease_time: Option<Duration>,
}

struct PendingLeaseRequest {
    worker: Arc<str>,
    lease_time: Option<Duration>,
    /// None: it asks for any.
    types: Box<[TaskType]>,
    /// So many more it asks for.
    open: usize,
    /// Claims for it on their way.
    bound: usize,
    /// It waits for these alone.
    last: bool,
    granted: Vec<Lease>,
    reply: oneshot::Sender<Vec<Lease>>,
}

impl LeaseQueue {
    /// Somebody asks.
    pub(in crate::worker) fn ask(
        &mut self,
        id: LeaseRequestId,
        request: LeaseRequest,
        reply: oneshot::Sender<Vec<Lease>>,
    ) {
        let LeaseRequest { worker, count, lease_time, types, .. } = request;
        let types: BTreeSet<_> =
            types.iter().flatten().map(|name| TaskType::of(Some(name))).collect();
        let (worker, types) = (worker.into(), types.into_iter().collect());
        let (open, bound, last, granted) = (0, 0, false, Vec::new());
        let wish =
            PendingLeaseRequest { worker, lease_time, types, open, bound, last, granted, reply };
        self.wishes.insert(id, wish);
        self.set_open(id, count);
    }

    /// It asks for so many leases that no claim is on its way for.
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

    /// It has waited as long as it may: for claims on their way it waits on, and is answered at
    /// once where there are none.
    pub(in crate::worker) fn last(&mut self, id: LeaseRequestId) {
        self.set_open(id, 0);
        let Some(wish) = self.wishes.get_mut(&id) else { return };
        wish.last = true;
        if wish.bound == 0 {
            self.answer(id);
        }
    }

    /// Nobody waits for it any more. What is on its way for it is given back when it comes.
    pub(in crate::worker) fn gone(&mut self, id: LeaseRequestId) {
        self.set_open(id, 0);
        self.wishes.remove(&id);
    }

    /// How many leases are asked for that no claim is on its way for.
    pub(in crate::worker) const fn free(&self) -> usize {
        self.free
    }

    /// The same by type, while somebody asks for some types only.
    pub(in crate::worker) fn wanted(&self) -> Option<&WantedLeases> {
        (!self.wanted.types.is_empty()).then_some(&self.wanted)
    }

    /// A claim of a task of this type is published: for whoever has waited longest of those that
    /// ask for such a one. `None`: nobody does.
    pub(in crate::worker) fn bind(
        &mut self,
        of: LaneTask,
        task_type: Option<TaskType>,
    ) -> Option<Bound> {
        let of_type = task_type.and_then(|task_type| self.typed.get(&task_type)?.first());
        let id = of_type.into_iter().chain(self.open.first()).min().copied()?;
        let wish = self.wishes.get_mut(&id)?;
        wish.bound += 1;
        let bound =
            Bound { wish: id, worker: Arc::clone(&wish.worker), lease_time: wish.lease_time };
        let open = wish.open;
        self.bound.insert(of, bound.clone());
        self.set_open(id, open.saturating_sub(1));
        Some(bound)
    }

    /// Nothing came of the claim.
    pub(in crate::worker) fn unbind(&mut self, of: LaneTask) {
        let Some(Bound { wish: id, .. }) = self.bound.remove(&of) else { return };
        let Some(wish) = self.wishes.get_mut(&id) else { return };
        wish.bound -= 1;
        let is_over = wish.last || !wish.granted.is_empty();
        if is_over && wish.bound == 0 {
            self.answer(id);
        } else if !wish.last {
            let open = wish.open;
            self.set_open(id, open + 1);
        }
    }

    /// The lease is there. False if nobody waits for it any more.
    pub(in crate::worker) fn grant(&mut self, of: LaneTask, lease: Lease) -> bool {
        let Some(Bound { wish: id, .. }) = self.bound.remove(&of) else { return false };
        let Some(wish) = self.wishes.get_mut(&id).filter(|wish| !wish.reply.is_closed()) else {
            self.gone(id);
            return false;
        };
        wish.bound -= 1;
        wish.granted.push(lease);
        if wish.bound > 0 {
            return true;
        }
        self.answer(id)
    }

    /// False if the one lease that it was given finds nobody.
    fn answer(&mut self, id: LeaseRequestId) -> bool {
        self.set_open(id, 0);
        let Some(wish) = self.wishes.remove(&id) else { return false };
        // Whoever has just given up holds leases that it does not know of: they end in silence.
        wish.reply.send(wish.granted).is_ok()
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
