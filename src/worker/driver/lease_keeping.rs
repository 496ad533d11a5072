//! Leases that other workers granted: looks up their state, takes them over on a request about
//! them, and ends those that were silent for too long.

use super::lane::{PartitionDriver, TaskPayload};
use super::lanes::LaneId;
use super::leasing::{LOOK_MAX, Leasing};
use super::telling::AttemptLog;
use super::{WorkerDriver, WorkerEvent};
use crate::lease::{LeaseToken, LeaseView, ReportError};
use crate::telemetry;
use crate::transport::Message;
use crate::worker::execution::Ending;
use crate::worker::leasing::{
    HolderMessage, LeaseCommand, LeaseEvent, LeaseKey, LeaseNotice, Reply,
};
use crate::worker::task_error::TaskError;
use longhaul_core::lease::LeaseState;
use longhaul_core::protocol::entry::lease_time;
use longhaul_core::protocol::fold::Phase;
use longhaul_core::protocol::key::Epoch;
use longhaul_core::protocol::moment::Moment;
use longhaul_core::task::{TaskId, text};
use std::time::{Duration, UNIX_EPOCH};

/// Maximum number of tasks per partition whose messages are read at once because their leases are
/// over. While the broker is away no read ends.
const ENDING_AT_ONCE_MAX: usize = 64;

/// Interval between checks whether a view is complete.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// State of a lease as far as this worker knows.
pub(super) enum LeaseLookup {
    /// The lease runs on this lane.
    Runs(LaneId),
    /// The lease does not run and never will again.
    Not(ReportError),
    /// The view may be behind.
    Behind,
    /// The task has succeeded under this lease.
    Succeeded,
}

/// Result of checking whether a view is complete.
enum Looked {
    Whole,
    NotYet,
    /// The log did not answer in time.
    InVain,
}

impl WorkerDriver {
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
            let lease_time = lease_time(lease_ms);
            let left = lane.core.lease_left(task, now).unwrap_or(lease_time);
            let wall = UNIX_EPOCH + Duration::from_millis(self.env.clock.wall_ms());
            Some(LeaseView {
                token: LeaseToken { task, epoch, owner },
                worker: lane.holder(task).to_string(),
                by_name: lane.is_by_name(task),
                attempt: lane.core.machine().fold(task).attempt,
                lease_time,
                expires_at: wall + left,
            })
        });
        let unknown = found.is_none() && self.lane_that_knows(task).is_none();
        let looked = if unknown { self.look(task, until, now) } else { Looked::Whole };
        let found = match looked {
            Looked::NotYet => return self.ask_again(LeaseCommand::Find { task, reply }, until),
            Looked::Whole => Ok(found),
            Looked::InVain => Err(ReportError::Unavailable),
        };
        // The requester may have gone.
        drop(reply.send(found));
    }

    /// Looks up the state of a lease. A lease that was silent for too long counts as over, even
    /// before its end is in the log.
    pub(super) fn standing(
        &mut self,
        token: &LeaseToken,
        until: Moment,
        now: Moment,
    ) -> LeaseLookup {
        let LeaseToken { task, epoch, owner } = *token;
        let lane = self.lane_that_knows(task).and_then(|id| Some((id, self.lanes.get(&id)?)));
        let standing = lane.map(|(id, lane)| {
            let standing = LeaseState::of(lane.core.machine(), task, (epoch, owner));
            (standing, id, lane.core.is_lease_over(task))
        });
        match standing {
            Some((LeaseState::Runs, _, true)) => LeaseLookup::Not(ReportError::Expired),
            Some((LeaseState::Runs, id, false)) => LeaseLookup::Runs(id),
            Some((LeaseState::Not(error), ..)) => LeaseLookup::Not(error),
            Some((LeaseState::Succeeded, ..)) => LeaseLookup::Succeeded,
            Some((LeaseState::Behind, ..)) | None => match self.look(task, until, now) {
                Looked::Whole => LeaseLookup::Not(ReportError::NotFound),
                Looked::NotYet => LeaseLookup::Behind,
                Looked::InVain => LeaseLookup::Not(ReportError::Unavailable),
            },
        }
    }

    /// The lane that knows the task. Topics of one queue have separate ledgers, so their task ids
    /// differ.
    pub(super) fn lane_that_knows(&self, task: TaskId) -> Option<LaneId> {
        let mut lanes = self.lanes.range(..);
        let knows = |lane: &PartitionDriver| {
            lane.partition() == task.partition && lane.core.machine().fold(task).phase != Phase::New
        };
        lanes.find(|(_, lane)| knows(lane)).map(|(id, _)| *id)
    }

    /// Checks whether the views of all lanes of the task's partition are complete since the
    /// request. If not, sends one more heartbeat to find out.
    fn look(&mut self, task: TaskId, until: Moment, now: Moment) -> Looked {
        let asked_at = until - LOOK_MAX;
        let mut looked = Looked::Whole;
        let ids: Vec<LaneId> = self.lanes.keys().collect();
        for id in ids {
            let Some(lane) = self.lanes.get_mut(&id) else { continue };
            if lane.partition() == task.partition
                && lane.core.view_at().is_none_or(|at| at < asked_at)
            {
                looked = if now < until { Looked::NotYet } else { Looked::InVain };
                lane.core.look_up(asked_at, now);
            }
        }
        looked
    }

    pub(super) fn ask_again(&mut self, asked: LeaseCommand, until: Moment) {
        self.later(LOOK_EVERY, WorkerEvent::Lease(LeaseEvent::AskedAgain(asked, until)));
    }

    /// Takes over a lease without an attendant here: reads its task first. Repeats the request if
    /// the lease cannot be taken over now, because it may be about to end.
    pub(super) fn begin_attending(
        &mut self,
        (id, task): (LaneId, TaskId),
        (token, message): (LeaseToken, HolderMessage),
        until: Moment,
        now: Moment,
    ) {
        let Some(leasing) = &mut self.leasing else { return };
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        if lane.core.may_attend(task) {
            leasing.attending.entry((id, task)).or_default().push((token, message));
            lane.core.read_leased(task);
        } else if now < until {
            self.ask_again(LeaseCommand::Told(token, message), until);
        } else {
            message.refuse(ReportError::Unavailable);
        }
    }

    /// Whether a request concerns the lease of a task that has no attendant here.
    pub(super) fn is_asked_about(&self, id: LaneId, task: TaskId) -> bool {
        let asked = |leasing: &Leasing| leasing.attending.contains_key(&(id, task));
        self.leasing.as_ref().is_some_and(asked)
    }

    /// Starts an attendant for a lease that a request concerns, after its task's message was read
    /// or found to be gone.
    pub(super) fn attend_lease(&mut self, id: LaneId, task: TaskId, payload: Option<TaskPayload>) {
        let Some(leasing) = &mut self.leasing else { return };
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let epoch = lane.core.machine().fold(task).epoch;
        let asked = leasing.attending.remove(&(id, task)).unwrap_or_default();
        let found = payload.is_some();
        if let Some(payload) = payload {
            lane.payloads.insert(task, payload);
        }
        lane.core.handle_leased_read(task, found, self.env.clock.now());
        self.perform_effects();
        let key = (id, task, epoch);
        let attended = self.attends(&key);
        for (token, message) in asked {
            if attended && token.epoch == epoch {
                self.tell_attendant(key, &token, message);
            } else {
                message.refuse(ReportError::Unavailable);
            }
        }
    }

    /// Ends a lease that was silent for too long; this worker is the one to do it. Reads the
    /// message first for the task's maximum of attempts.
    pub(super) fn handle_lease_over(&mut self, id: LaneId, task: TaskId, epoch: Epoch) {
        let key = (id, task, epoch);
        if let Some(leasing) = &mut self.leasing
            && let Some(attendant) = leasing.desk.attendants.get(&key)
        {
            if leasing.confirmations.awaits(&key) {
                return leasing.miss(key);
            }
            // An attendant that does not listen has ended by itself.
            return drop(attendant.try_send(LeaseNotice::Silent));
        }
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        if !lane.ending.contains(&(task, epoch)) {
            lane.ending_next.insert((task, epoch));
        }
        self.read_next_over(id);
    }

    /// Reads the messages of the next tasks whose leases are over.
    fn read_next_over(&mut self, id: LaneId) {
        while let Some(lane) = self.lanes.get_mut(&id)
            && lane.ending.len() < ENDING_AT_ONCE_MAX
            && let Some((task, epoch)) = lane.ending_next.pop_first()
        {
            if !lane.core.is_lease_over(task) {
                continue;
            }
            lane.ending.insert((task, epoch));
            let topic = lane.topics.task.clone();
            self.read_at_last(topic, task.position(), move |message| {
                let (key, message) = ((id, task, epoch), Box::new(message));
                WorkerEvent::Lease(LeaseEvent::Over { key, message })
            });
        }
    }

    pub(super) fn handle_lease_read(&mut self, key: LeaseKey, message: Option<Message>) {
        let (id, task, epoch) = key;
        if let Some(lane) = self.lanes.get_mut(&id) {
            lane.ending.remove(&(task, epoch));
        }
        self.end_lease(key, message);
        self.read_next_over(id);
    }

    fn end_lease(&mut self, key: LeaseKey, message: Option<Message>) {
        let (id, task, epoch) = key;
        let (sample, wall_ms) = (self.env.rng.u32(..), self.env.clock.wall_ms());
        let at_once = self.leasing.as_ref().is_some_and(|leasing| leasing.terms.expired_at_once);
        let defaults = self.defaults_of(id);
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let Some((at, _, lease_ms)) = lane.core.machine().lease(task) else { return };
        if at != epoch {
            return;
        }
        let mut payload = message.map(TaskPayload::from).unwrap_or_default();
        payload.complete_terms(defaults.as_deref());
        let fold = lane.core.machine().fold(task);
        let lease_time = lease_time(lease_ms);
        let ending = if fold.cancel {
            Ending::Cancelled
        } else {
            let reason = text::lease_expired(&lane.holder(task), lease_time);
            Ending::of_error(TaskError::lost(at_once.then_some(Duration::ZERO), reason))
        };
        let word = ending.in_a_word();
        let terms = payload.terms.as_deref();
        let attempts = (fold.attempt, lane.core.machine().max_attempts(task));
        let (outcome, body) = self.config.judge(ending, attempts, terms, (sample, wall_ms));
        let Some(outcome) = outcome else { return };
        let (job_id, lease_id, worker) = (task, epoch.0, lane.holder(task));
        let reason = lane.plain_reason(task, &body, wall_ms).into_owned();
        let took = lane.leased_for(task, wall_ms);
        lane.keep_body((task, epoch), body);
        if !lane.core.handle_lease_over(task, epoch, outcome) {
            lane.ended_attempts.remove(task);
            return;
        }
        tracing::warn!(event = "lease_expired", %task, %epoch, attempt = fold.attempt, %worker, %job_id, lease_id, worker_id = &*worker, "lease expired: no keep-alive in time");
        let (topic, attempt) = (&lane.topics.task, fold.attempt);
        let told = AttemptLog { topic, id: task, epoch, attempt };
        telemetry::attempted(&topic.topic, word, took);
        told.ends(outcome, &reason, took, Some(&worker));
    }

    /// Lets go of all leases in a drain: they are in the log, and other workers look after them. But
    /// leases that no worker has are given back, so what was said of leases before comes first.
    pub(super) fn let_go_of_leases(&mut self, now: Moment) {
        if self.leasing.is_none() {
            return;
        }
        for event in self.env.answers.take_all() {
            self.handle(event);
            self.perform_effects();
        }
        for (id, (task, epoch)) in self.running_attempts() {
            // A lease that is being given back has no attendant any more: its end is awaited.
            if self.attends(&(id, task, epoch))
                && let Some(lane) = self.lanes.get_mut(&id)
            {
                lane.core.let_go_of_lease(task, epoch, now);
            }
        }
    }
}
