//! Leases what the worker claims: binds claims to requests and grants leases. `lease_reports.rs`
//! handles messages of holders; `lease_keeping.rs` handles leases that others granted or that were
//! silent for too long.

use super::WorkerDriver;
use super::lane::TaskPayload;
use super::lanes::LaneId;
use crate::lease::{LEASE_TIME, Lease, LeaseToken, ReportError};
use crate::worker::erased::ErasedProcessor;
use crate::worker::leasing::{
    Confirmations, HolderMessage, LeaseCommand, LeaseEvent, LeaseKey, LeaseQueue, LeaseSupervisor,
    LeaseTerms, Renewed, Reply,
};
use bytes::Bytes;
use longhaul_core::lease::ReportedOutcome;
use longhaul_core::protocol::entry::{Claim, LeaseMs, lease_time};
use longhaul_core::protocol::key::OnceKey;
use longhaul_core::protocol::moment::Moment;
use longhaul_core::protocol::register::{DocumentKind, DocumentName};
use longhaul_core::task::{Position, TaskId, WorkerIdentity};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;

/// Capacity of an attendant's channel.
const TOLD_MAX: usize = 64;

/// How long a request about a lease that this worker does not see waits for a complete view.
pub(super) const LOOK_MAX: Duration = Duration::from_secs(5);

/// An answer and its recipient.
pub(super) type ReportReply = (Result<(), ReportError>, Reply<()>);

/// State of a driver that leases what it claims.
pub(super) struct Leasing {
    pub(super) desk: LeaseQueue,
    pub(super) terms: LeaseTerms,
    pub(super) confirmations: Confirmations,
    /// Requests that wait for the end of a lease to be accepted, with the reported outcome.
    pub(super) reporters: HashMap<LeaseKey, Vec<(ReportedOutcome, Reply<()>)>>,
    /// Renewals that are stored and not yet read back.
    pub(super) unread: HashMap<LaneId, BTreeMap<Position, Renewed>>,
    /// Answers that wait until the metadata topic shows their fact, because the recipient may look
    /// there.
    pub(super) unshown: HashMap<LeaseKey, Vec<ReportReply>>,
    /// Requests about leases whose tasks are being read, so that they can be attended here.
    pub(super) attending: HashMap<(LaneId, TaskId), Vec<(LeaseToken, HolderMessage)>>,
}

impl Leasing {
    pub(super) fn new(terms: LeaseTerms) -> Self {
        Self {
            desk: LeaseQueue::default(),
            terms,
            confirmations: Confirmations::default(),
            reporters: HashMap::new(),
            unread: HashMap::new(),
            unshown: HashMap::new(),
            attending: HashMap::new(),
        }
    }
}

impl Leasing {
    /// Gives back a lease that its worker has not confirmed.
    pub(super) fn miss(&mut self, key: LeaseKey) {
        self.confirmations.missed(&key);
        self.desk.end_unwanted(key);
        let (_, task, epoch) = key;
        tracing::info!(event = "lease_unconfirmed", %task, %epoch, "lease given back: the worker has not confirmed it in time");
    }
}

impl WorkerDriver {
    /// Whether this worker attends the lease of this attempt.
    pub(super) fn attends(&self, key: &LeaseKey) -> bool {
        self.leasing.as_ref().is_some_and(|leasing| leasing.desk.attendants.contains_key(key))
    }

    /// Sets the number of free slots to the number of requested tasks.
    pub(super) fn set_free_slots(&mut self) {
        if let Some(leasing) = &self.leasing {
            self.slots.set_free(leasing.desk.free());
            self.slots.set_wanted(leasing.desk.wanted());
        }
    }

    /// Binds a claim that is about to be published to a request for a lease. Returns the claim's
    /// body, which names the worker; `None` if no request for such a task is left, so that the
    /// claim must not be published.
    pub(super) fn bind_claim(&mut self, id: LaneId, claim: &mut Claim) -> Option<Bytes> {
        let leasing = self.leasing.as_mut().filter(|_| claim.lease_ms.is_some());
        let Some(leasing) = leasing else { return Some(Bytes::new()) };
        let task = claim.key.task;
        let payload = self.lanes.get(&id).and_then(|lane| lane.payloads.get(task));
        let task_type = payload.and_then(|payload| payload.facts.task_type);
        let bytes = payload.map_or(0, TaskPayload::size);
        let bound = leasing.desk.bind((id, task), task_type, bytes)?;
        let terms = payload.and_then(|payload| payload.terms.as_deref());
        let by_task = terms.and_then(|terms| terms.no_progress_timeout);
        let by_task = by_task.map(|time| time.clamp(*LEASE_TIME.start(), *LEASE_TIME.end()));
        let time = bound.lease_time.or(by_task).unwrap_or(leasing.terms.lease_time);
        claim.lease_ms = Some(lease_ms(time));
        Some(Bytes::copy_from_slice(bound.claim_body.as_bytes()))
    }

    /// Withdraws a claim that was not published: the task waits for the next request.
    pub(super) fn withdraw_claim(&mut self, id: LaneId, key: OnceKey) {
        let now = self.env.clock.now();
        if let Some(lane) = self.lanes.get_mut(&id) {
            lane.core.handle_publish_failed(key, now);
        }
    }

    /// Unbinds the task from its request; no claim of it is in flight any more.
    pub(super) fn unbind_claim(&mut self, id: LaneId, task: TaskId) {
        if let Some(leasing) = &mut self.leasing {
            leasing.desk.unbind((id, task));
            self.without_credit.insert(id);
        }
    }

    /// The attendant of this attempt's lease; `None` if this worker processes its tasks itself.
    pub(super) fn attendant(
        &mut self,
        (id, task, epoch): LeaseKey,
        fresh: bool,
    ) -> Option<Arc<dyn ErasedProcessor>> {
        let (clock, driver) = (self.env.clock, self.env.answers.clone());
        let leasing = self.leasing.as_mut()?;
        let lane = self.lanes.get(&id)?;
        let machine = lane.core.machine();
        let (_, owner, lease_ms) = machine.lease(task)?;
        let key = (id, task, epoch);
        if fresh && leasing.desk.confirms((id, task)) {
            leasing.confirmations.await_for(key, lease_time(lease_ms), clock.now());
        }
        let (sender, told) = mpsc::channel(TOLD_MAX);
        leasing.desk.attendants.insert(key, sender);
        Some(Arc::new(LeaseSupervisor {
            key,
            token: LeaseToken { task, epoch, owner },
            worker: lane.holder(task),
            max_attempts: machine.max_attempts(task),
            lease_time: lease_time(lease_ms),
            expired_at_once: leasing.terms.expired_at_once,
            fresh,
            cancelled: lane
                .core
                .cancelled_for(task, clock.now())
                .map(|time| self.config.cancel_grace.saturating_sub(time))
                .filter(|_| !fresh),
            clock,
            told: Mutex::new(Some(told)),
            driver,
        }))
    }

    /// Forgets the attendant of an attempt that has ended here or was let go of.
    pub(super) fn forget_attendant(&mut self, key: LeaseKey) {
        if let Some(leasing) = &mut self.leasing {
            leasing.desk.attendants.remove(&key);
            leasing.confirmations.forget(&key);
        }
    }

    /// Gives back the leases that their workers have not confirmed in time.
    pub(super) fn end_unconfirmed(&mut self, now: Moment) {
        while let Some(leasing) = &mut self.leasing
            && let Some(key) = leasing.confirmations.overdue(now)
        {
            leasing.miss(key);
        }
    }

    pub(super) fn handle_lease(&mut self, event: LeaseEvent, now: Moment) {
        match event {
            LeaseEvent::Asked(asked) => self.handle_asked(asked, now + LOOK_MAX, now),
            LeaseEvent::AskedAgain(asked, until) => self.handle_asked(asked, until, now),
            LeaseEvent::Begun(key, lease) => self.grant(key, *lease),
            LeaseEvent::Renewed(stored, renewed) => self.handle_renewed(stored, renewed),
            LeaseEvent::Over { key, message } => self.handle_lease_read(key, *message),
            LeaseEvent::Shown(key) => self.answer_shown(key),
        }
    }

    fn handle_asked(&mut self, asked: LeaseCommand, until: Moment, now: Moment) {
        let Some(leasing) = &mut self.leasing else { return };
        match asked {
            LeaseCommand::Lease { wish, request, reply } => {
                leasing.desk.ask(wish, request, reply);
                self.refuse_drained();
                self.wake();
            }
            LeaseCommand::Last(wish) => leasing.desk.last(wish),
            LeaseCommand::Gone(wish) => leasing.desk.gone(wish),
            LeaseCommand::Unwanted(leases) => self.give_back(&leases),
            LeaseCommand::Find { task, reply } => self.find_lease(task, reply, until, now),
            LeaseCommand::Told(token, message) => self.handle_told(token, message, until, now),
        }
    }

    /// Refuses the requests of workers that are to drain, by the registers of the queues.
    pub(super) fn refuse_drained(&mut self) {
        let Self { leasing: Some(leasing), queues, .. } = self else { return };
        let documents = || queues.iter().map(|queue| queue.core.register().documents());
        // Usually nobody is drained, and there may be very many requests.
        if documents().all(|documents| documents.of(DocumentKind::Drain).next().is_none()) {
            return;
        }
        let is_drained = |worker: &WorkerIdentity| {
            let name = DocumentName::drain_of_lessee(worker);
            documents().any(|documents| documents.get(&name).is_some())
        };
        leasing.desk.refuse_drained(is_drained);
    }

    /// Lets waiting tasks go, when a request for tasks arrives.
    fn wake(&mut self) {
        self.set_free_slots();
        self.without_credit.extend(self.lanes.keys());
    }

    /// Grants the lease to the request that it is bound to, once its attendant has begun.
    fn grant(&mut self, (id, task, epoch): LeaseKey, lease: Lease) {
        let Some(leasing) = &mut self.leasing else { return };
        // The log must not contain the lease token: its bearer may report an outcome.
        tracing::debug!(%task, %epoch, attempt = lease.attempt, "lease granted");
        leasing.desk.grant((id, task), lease);
    }

    /// Gives back leases that were granted here and whose worker has not got them.
    fn give_back(&mut self, leases: &[LeaseToken]) {
        for LeaseToken { task, epoch, .. } in leases {
            if let Some(id) = self.lane_that_knows(*task)
                && let Some(leasing) = &mut self.leasing
            {
                leasing.desk.end_unwanted((id, *task, *epoch));
            }
        }
    }
}

/// A lease time as a claim or a renewal carries it.
pub(super) fn lease_ms(time: Duration) -> LeaseMs {
    u32::try_from(time.as_millis()).ok().and_then(LeaseMs::new).unwrap_or(LeaseMs::MAX)
}
