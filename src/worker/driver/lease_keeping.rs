//! Leases that others have granted: how they stand, taking them over when this worker is asked about them, and ending those that have been silent for too
//! long.

use super::lane::{Lane, TaskPayload};
use super::lanes::LaneId;
use super::leasing::{LOOK_MAX, Leasing};
use super::{Driver, Event};
use crate::lease::{LeaseToken, LeaseView, ReportError};
use crate::protocol::fold::Phase;
use crate::protocol::key::Epoch;
use crate::protocol::moment::Moment;
use crate::protocol::retry::Failure;
use crate::task::{TaskId, TaskOutcome, TaskState, text};
use crate::transport::Message;
use crate::worker::execution::Ending;
use crate::worker::leasing::{Asked, LeaseEvent, LeaseKey, Reply};
use std::time::{Duration, UNIX_EPOCH};

/// Messages of tasks whose leases are over that are read at once.
const ENDING_AT_ONCE_MAX: usize = 64;

/// How often it is looked at again whether a view is complete.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// How a lease stands, as the ledger is known here.
pub(super) enum Standing {
    /// It runs.
    Runs(LaneId),
    /// It does not, for good.
    Not(ReportError),
    /// The view may be behind.
    Unknown,
    /// The same lease has brought the task to its end.
    Succeeded,
}

impl Driver {
    pub(super) fn find_lease(
        &mut self,
        task: TaskId,
        reply: Reply<Option<LeaseView>>,
        until: Moment,
        now: Moment,
    ) {
        let found = self.lane_that_knows(task).and_then(|id| {
            let lane = self.lanes.get(&id)?;
            let (epoch, owner, lease_ms) = lane.core.machine().lease(task)?;
            let lease_time = Duration::from_millis(u64::from(lease_ms.get()));
            let left = lane.core.lease_left(task, now).unwrap_or(lease_time);
            let wall = UNIX_EPOCH + Duration::from_millis(self.env.clock.wall_ms());
            Some(LeaseView {
                token: LeaseToken { task, epoch, owner },
                worker: lane.holder(task).to_string(),
                attempt: lane.core.machine().fold(task).attempt,
                lease_time,
                expires_at: wall + left,
            })
        });
        let unknown = found.is_none() && self.lane_that_knows(task).is_none();
        if unknown && !self.has_looked(task, until, now) {
            return self.ask_again(Asked::Find { task, reply }, until);
        }
        // Nobody may wait any more.
        drop(reply.send(Ok(found)));
    }

    /// How a lease stands.
    pub(super) fn standing(&mut self, token: &LeaseToken, until: Moment, now: Moment) -> Standing {
        let LeaseToken { task, epoch, owner } = *token;
        let Some(id) = self.lane_that_knows(task) else {
            let error = ReportError::NotFound;
            return if self.has_looked(task, until, now) {
                Standing::Not(error)
            } else {
                Standing::Unknown
            };
        };
        let Some(lane) = self.lanes.get(&id) else { return Standing::Unknown };
        let machine = lane.core.machine();
        let fold = machine.fold(task);
        if !machine.is_ready() || fold.epoch < epoch && !fold.phase.is_terminal() {
            return if self.has_looked(task, until, now) {
                Standing::Not(ReportError::NotFound)
            } else {
                Standing::Unknown
            };
        }
        if fold.is_run_by(epoch, owner) && machine.lease(task).is_some() {
            return Standing::Runs(id);
        }
        let same = (fold.epoch, fold.owner) == (epoch, owner);
        match fold.phase {
            Phase::Completed if same => Standing::Succeeded,
            _ if fold.epoch == epoch && fold.owner != owner && !fold.phase.is_terminal() => {
                Standing::Not(ReportError::NotOwner)
            }
            Phase::New
            | Phase::Running
            | Phase::Retry
            | Phase::Completed
            | Phase::Final
            | Phase::Cancelled
            | Phase::Expired
            | Phase::Sealed => Standing::Not(error_of(fold.phase, fold.epoch, epoch)),
        }
    }

    /// The lane that knows the task. Topics of one queue have ledgers of their own, so that ids of tasks are apart.
    fn lane_that_knows(&self, task: TaskId) -> Option<LaneId> {
        let mut lanes = self.lanes.range(..);
        let knows = |lane: &Lane| {
            lane.partition() == task.partition && lane.core.machine().fold(task).phase != Phase::New
        };
        lanes.find(|(_, lane)| knows(lane)).map(|(id, _)| *id)
    }

    /// Whether the view of all lanes of the task's partition is complete since it was asked, or the time is over; else one more heartbeat tells.
    fn has_looked(&mut self, task: TaskId, until: Moment, now: Moment) -> bool {
        let asked_at = until - LOOK_MAX;
        let mut looked = true;
        let ids: Vec<LaneId> = self.lanes.keys().collect();
        for id in ids {
            let Some(lane) = self.lanes.get_mut(&id) else { continue };
            if lane.partition() == task.partition
                && lane.core.view_at().is_none_or(|at| at < asked_at)
            {
                looked = false;
                lane.core.look_up(asked_at, now);
            }
        }
        looked || now >= until
    }

    pub(super) fn ask_again(&mut self, asked: Asked, until: Moment) {
        self.pending.push(Box::pin(async move {
            tokio::time::sleep(LOOK_EVERY).await;
            Event::Lease(LeaseEvent::AskedAgain(asked, until))
        }));
    }

    /// Nobody here looks after this lease: reads its task, and takes it over.
    pub(super) fn begin_attending(&mut self, key: LeaseKey, asked: Asked) {
        let (id, task, _) = key;
        let Some(leasing) = &mut self.leasing else { return };
        leasing.attending.entry(key).or_default().push(asked);
        if let Some(lane) = self.lanes.get_mut(&id) {
            lane.core.read_leased(task);
        }
    }

    /// Whether this worker is asked about the lease of a task that it does not look after.
    pub(super) fn is_asked_about(&self, id: LaneId, task: TaskId) -> bool {
        let asked = |leasing: &Leasing| {
            leasing.attending.keys().any(|(lane, of, _)| (*lane, *of) == (id, task))
        };
        self.leasing.as_ref().is_some_and(asked)
    }

    /// The message of a task was read, or is gone, about whose lease this worker is asked.
    pub(super) fn attend_lease(&mut self, id: LaneId, task: TaskId, payload: Option<TaskPayload>) {
        let Some(leasing) = &mut self.leasing else { return };
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let epoch = lane.core.machine().fold(task).epoch;
        let asked: Vec<Asked> = leasing
            .attending
            .extract_if(|(lane, of, _), _| (*lane, *of) == (id, task))
            .flat_map(|(_, asked)| asked)
            .collect();
        lane.payloads.insert(task, payload.unwrap_or_default());
        lane.core.handle_leased_read(task);
        self.perform_effects();
        let key = (id, task, epoch);
        let attended = self.leasing.as_ref().is_some_and(|it| it.attends(&key));
        for asked in asked {
            match asked.token() {
                Some(token) if attended && token.epoch == epoch => self.tell_attendant(key, asked),
                Some(_) | None => asked.refuse(ReportError::Unavailable),
            }
        }
    }

    /// A lease has been silent for too long, and it is this worker's turn to end it. Its message says how often the task is tried.
    pub(super) fn handle_lease_over(&mut self, id: LaneId, task: TaskId, epoch: Epoch) {
        let key = (id, task, epoch);
        if self.ending.len() >= ENDING_AT_ONCE_MAX || self.ending.contains(&key) {
            return;
        }
        let Some(lane) = self.lanes.get(&id) else { return };
        self.ending.insert(key);
        let read = self.env.fetch_at_last(lane.topics.task.clone(), task.position());
        self.pending.push(Box::pin(async move {
            let message = Box::new(read.await);
            Event::Lease(LeaseEvent::Over { key, message })
        }));
    }

    pub(super) fn end_lease(&mut self, key: LeaseKey, message: Option<Message>) {
        let (id, task, epoch) = key;
        self.ending.remove(&key);
        let (sample, wall_ms) = (self.env.rng.u32(..), self.env.clock.wall_ms());
        let at_once = self.leasing.as_ref().is_some_and(|it| it.terms.expired_at_once);
        let defaults = self.defaults_of(id);
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let Some((at, _, lease_ms)) = lane.core.machine().lease(task) else { return };
        if at != epoch {
            return;
        }
        let mut payload = message.map(TaskPayload::from).unwrap_or_default();
        payload.complete_terms(defaults.as_deref());
        let fold = lane.core.machine().fold(task);
        let lease_time = Duration::from_millis(u64::from(lease_ms.get()));
        let ending = if fold.cancel {
            Ending::Cancelled
        } else {
            let failure =
                if at_once { Failure::RetryAfter(Duration::ZERO) } else { Failure::Retry };
            Ending::Failed(failure, text::lease_expired(&lane.holder(task), lease_time))
        };
        let terms = payload.terms.as_deref();
        let (outcome, body) =
            self.config.judge(ending, (&lane.topics.name, fold.attempt), terms, sample, wall_ms);
        let Some(outcome) = outcome else { return };
        tracing::warn!(event = "lease_expired", %task, %epoch, attempt = fold.attempt, worker = %lane.holder(task), "lease expired: nothing was heard of it for too long");
        lane.outcome_bodies.insert(task, (epoch, body));
        if !lane.core.handle_lease_over(task, epoch, outcome) {
            lane.forget_outcome(task);
        }
    }

    /// A drain begins: leases are in the log, and others look after them.
    pub(super) fn let_go_of_leases(&mut self, now: Moment) {
        if self.leasing.is_none() {
            return;
        }
        let running: Vec<_> = self
            .lanes
            .range(..)
            .flat_map(|(id, lane)| lane.running.keys().map(|key| (*id, *key)))
            .collect();
        for (id, (task, epoch)) in running {
            if let Some(lane) = self.lanes.get_mut(&id) {
                lane.core.let_go_of_lease(task, epoch, now);
            }
        }
    }
}

pub(super) fn error_of(phase: Phase, current: Epoch, epoch: Epoch) -> ReportError {
    let ended = |outcome| ReportError::Ended { state: TaskState::Failed, outcome: Some(outcome) };
    match phase {
        Phase::Completed | Phase::Sealed => {
            ReportError::Ended { state: TaskState::Completed, outcome: None }
        }
        Phase::Final => ended(TaskOutcome::Final),
        Phase::Cancelled => ended(TaskOutcome::Cancelled),
        Phase::Expired => ended(TaskOutcome::Expired),
        Phase::New | Phase::Running | Phase::Retry if current > epoch => {
            ReportError::StaleLease { current: current.0 }
        }
        Phase::New | Phase::Running | Phase::Retry => ReportError::Expired,
    }
}
