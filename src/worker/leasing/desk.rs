//! Who waits for leases, and which claim is for whom. Pure but for the channels by which it answers.
//!
//! Who has waited longest comes first. A claim is bound to a request when it is published; when it is granted the lease goes there, and when nothing
//! comes of it the request waits on. A request is answered as soon as it has a lease and no claim for it is on its way: so one that asks for many
//! gets what is there, and does not wait for more.

use super::{Lease, LeaseKey, LeaseRequest, Told, WishId};
use crate::task::TaskId;
use crate::worker::driver::LaneId;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// A task on a lane.
type LaneTask = (LaneId, TaskId);

/// See the module's documentation.
#[derive(Default)]
pub(in crate::worker) struct Desk {
    wishes: BTreeMap<WishId, Wish>,
    /// Those of them that ask for more than claims are on their way for.
    open: std::collections::BTreeSet<WishId>,
    /// How many leases they ask for in all.
    free: usize,
    /// Claims on their way, and for whom.
    bound: HashMap<LaneTask, Bound>,
    /// Who looks after the leases of this worker.
    pub(in crate::worker) attendants: HashMap<LeaseKey, mpsc::Sender<Told>>,
}

/// Whom a claim is for.
#[derive(Clone, Debug)]
pub(in crate::worker) struct Bound {
    wish: WishId,
    /// The worker's name.
    pub(in crate::worker) worker: Arc<str>,
    /// The silence after which its lease is ended.
    pub(in crate::worker) lease_time: Duration,
}

struct Wish {
    worker: Arc<str>,
    lease_time: Duration,
    /// So many more it asks for.
    open: usize,
    /// Claims for it on their way.
    bound: usize,
    granted: Vec<Lease>,
    reply: oneshot::Sender<Vec<Lease>>,
}

impl Desk {
    /// Somebody asks.
    pub(in crate::worker) fn ask(
        &mut self,
        id: WishId,
        request: LeaseRequest,
        by_default: Duration,
        reply: oneshot::Sender<Vec<Lease>>,
    ) {
        let LeaseRequest { worker, count, lease_time, .. } = request;
        let lease_time = lease_time.unwrap_or(by_default);
        let worker = worker.into();
        let wish = Wish { worker, lease_time, open: count, bound: 0, granted: Vec::new(), reply };
        self.free += count;
        self.open.insert(id);
        self.wishes.insert(id, wish);
    }

    /// Nobody waits for it any more. What is on its way for it is given back when it comes.
    pub(in crate::worker) fn gone(&mut self, id: WishId) {
        if let Some(wish) = self.wishes.remove(&id) {
            self.free -= wish.open;
            self.open.remove(&id);
        }
    }

    /// How many leases are asked for that no claim is on its way for.
    pub(in crate::worker) const fn free(&self) -> usize {
        self.free
    }

    /// A claim is published: for whoever has waited longest.
    pub(in crate::worker) fn bind(&mut self, of: LaneTask) -> Option<Bound> {
        let id = *self.open.first()?;
        let wish = self.wishes.get_mut(&id)?;
        wish.open -= 1;
        wish.bound += 1;
        self.free -= 1;
        if wish.open == 0 {
            self.open.remove(&id);
        }
        let bound =
            Bound { wish: id, worker: Arc::clone(&wish.worker), lease_time: wish.lease_time };
        self.bound.insert(of, bound.clone());
        Some(bound)
    }

    /// Nothing came of the claim.
    pub(in crate::worker) fn unbind(&mut self, of: LaneTask) {
        let Some(Bound { wish: id, .. }) = self.bound.remove(&of) else { return };
        let Some(wish) = self.wishes.get_mut(&id) else { return };
        wish.bound -= 1;
        if wish.granted.is_empty() || wish.bound > 0 {
            wish.open += 1;
            self.free += 1;
            self.open.insert(id);
        } else {
            self.answer(id);
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
    fn answer(&mut self, id: WishId) -> bool {
        let Some(wish) = self.wishes.remove(&id) else { return false };
        self.free -= wish.open;
        self.open.remove(&id);
        // Whoever has just given up holds leases that it does not know of: they end in silence.
        wish.reply.send(wish.granted).is_ok()
    }
}
