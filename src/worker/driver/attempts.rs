//! Starts and ends attempts.

use super::checkpoints::Checkpoints;
use super::effects::released;
use super::lane::{RunningAttempt, TaskPayload};
use super::lanes::LaneId;
use super::telling::AttemptLog;
use super::{Environment, WorkerDriver};
use crate::clock::Clock;
use crate::config::WorkerConfig;
use crate::telemetry::{self, spans};
use crate::transport::{Position, TopicPartition};
use crate::worker::blocking::Threads;
use crate::worker::budget::Deadline;
use crate::worker::execution::{Attempt, AttemptEnd, Ending, Halt, attend, ending_of_panic};
use crate::worker::processor::AttemptContext;
use crate::worker::reports::{AttemptReports, ReportListener, SilenceLimit};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use longhaul_core::ledger;
use longhaul_core::metadata::entry::OutcomeBody;
use longhaul_core::protocol::entry::Outcome;
use longhaul_core::protocol::key::Epoch;
use longhaul_core::protocol::retry::{outcome_of_failure, outcome_of_waiting};
use longhaul_core::task::terms::Terms;
use longhaul_core::task::{Failure, FailureCause, TaskId, text};
use std::any::Any;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

impl Environment {
    /// Reads a checkpoint, retrying for as long as the attempt may begin. An attempt that started
    /// without it after one failed read would repeat finished work.
    fn read_checkpoint(
        &mut self,
        ledger: TopicPartition,
        at: Position,
    ) -> BoxFuture<'static, Option<Bytes>> {
        let read = self.fetch_at_last(ledger, at);
        read.map(|message| message.and_then(|message| ledger::content(&message))).boxed()
    }
}

type Panic = Box<dyn Any + Send>;

/// Takes the checkpoint that a task was submitted with from its properties: processors see it as a
/// checkpoint alone, and programs get no variable of that size.
fn first_checkpoint(task: TaskId, properties: &mut BTreeMap<String, String>) -> Option<Bytes> {
    let text = properties.remove(text::CHECKPOINT)?;
    let read =
        STANDARD.decode(&text).ok().filter(|bytes| bytes.len() <= text::CHECKPOINT_BYTES_MAX);
    if read.is_none() {
        tracing::warn!(%task, bytes = text.len(), "the property CHECKPOINT is ignored: it is not base64, or above 64 KiB");
    }
    read.map(Bytes::from)
}

impl WorkerDriver {
    /// Starts an attempt, or the attendant of a lease that another worker granted (`fresh` false).
    pub(super) fn start(
        &mut self,
        id: LaneId,
        task_id: TaskId,
        (epoch, attempt): (Epoch, u32),
        fresh: bool,
    ) {
        let attendant = self.attendant((id, task_id, epoch), fresh);
        let now = self.env.clock.now();
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let task = lane.core.machine().task(task_id);
        let created_ms = task.as_deref().map(|task| task.created_ms).unwrap_or_default();
        let found = task.and_then(|task| task.checkpoint.as_deref().copied());
        let Some(payload) = lane.payloads.get(task_id).cloned() else {
            tracing::error!(task = %task_id, %epoch, "the payload is missing: the attempt is given back. This is a bug");
            lane.core.handle_payload_missing(task_id, epoch, now);
            return;
        };
        let TaskPayload { bytes, mut properties, terms, undecodable, facts } = payload;
        if let Some(terms) = terms.as_deref().filter(|_| attempt == 1) {
            self.config.tell_problems(task_id, terms);
        }
        lane.measure_start(attempt, facts.published_ms, self.env.clock);
        let (halt, halted) = oneshot::channel();
        // A lease has its lease time instead of a budget.
        let watched = terms.as_deref().filter(|_| self.leasing.is_none());
        let reports = self.env.reports((id, task_id, epoch), watched);
        let (clock, look_every) = (self.env.clock, self.config.heartbeat);
        let checkpoints = Checkpoints::new(Arc::clone(&reports));
        let used = if fresh { Duration::ZERO } else { lane.leased_for(task_id, clock.wall_ms()) };
        let (deadline, ends_task) = self.config.deadline(terms.as_deref(), created_ms, used, clock);
        let told = AttemptLog { topic: &lane.topics.task, id: task_id, epoch, attempt };
        let span = told.span(&lane.topics.subscription, &properties);
        let kept = spans::keep(&span);
        let running = RunningAttempt {
            halt: Some(halt),
            attempt,
            fresh,
            payload_bytes: bytes.len(),
            started_at: now,
            checkpoints,
            span: spans::keep(&span),
            terms,
        };
        lane.running_bytes += bytes.len();
        lane.running.insert((task_id, epoch), running);
        let shown_bytes = if lane.is_shown(bytes.len()) { bytes.len() } else { 0 };
        lane.metadata.running.started((task_id, epoch), shown_bytes, now);
        if fresh {
            told.starts(lane.core.machine().task(task_id).as_deref(), &self.stats);
            telemetry::taken(&lane.topics.task.topic, bytes.len());
        }
        let begin_by =
            Deadline::Clock { clock, at: lane.core.begin_by(task_id, epoch), look_every };
        let read = found.map(|(at, _)| self.env.read_checkpoint(lane.topics.ledger.clone(), at));
        let topic = Arc::clone(&lane.topics.name);
        let (task, predecessors) = (task_id, self.predecessors(id, task_id));
        let shared = AttemptContext {
            topic,
            task,
            epoch,
            attempt,
            last_checkpoint: first_checkpoint(task_id, &mut properties).filter(|_| read.is_none()),
            properties,
            predecessors,
            cancelled: CancellationToken::new(),
            deadline,
            reports,
            threads: Threads::default(),
        };
        let (payload, config) = (undecodable.map_or(Ok(bytes), Err), Arc::clone(&self.config));
        let attempt =
            Attempt { shared, payload, read, span, begin_by, ends_task, config, halt: halted };
        let processor = attendant.unwrap_or_else(|| Arc::clone(&self.processor));
        let bodies = self.env.bodies.clone();
        let run = AssertUnwindSafe(attend(processor, attempt, bodies, self.env.gate.clone()));
        // The end must be reported in any case, because the attempt occupies a slot.
        let run = run.catch_unwind().map(move |ended| (id, end_of(ended, (task_id, epoch), kept)));
        self.attempts.spawn(self.env.gate.wrap(run));
    }

    pub(super) fn halt(&mut self, id: LaneId, task: TaskId, epoch: Epoch, why: Halt) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        if let Some(running) = lane.running.get_mut(&(task, epoch))
            && let Some(halt) = running.halt.take()
        {
            // An attempt that has just ended no longer listens.
            let _listens = halt.send(why).is_ok();
        }
    }

    /// All running attempts and their lanes.
    pub(super) fn running_attempts(&self) -> Vec<(LaneId, (TaskId, Epoch))> {
        let all = self.lanes.range(..);
        all.flat_map(|(id, lane)| lane.running.keys().map(|key| (*id, *key))).collect()
    }

    /// Gives back all running attempts, at the deadline of a drain.
    pub(super) fn release_running(&mut self) {
        for (id, (task, epoch)) in self.running_attempts() {
            self.halt(id, task, epoch, Halt::Released);
        }
    }

    pub(super) fn handle_attempt_end(&mut self, id: LaneId, ended: AttemptEnd) {
        let now = self.env.clock.now();
        let AttemptEnd { task, epoch, ending, stuck } = ended;
        self.forget_attendant((id, task, epoch));
        // The attempt may have been cancelled before the lease was granted: the request for a lease
        // waits for another task.
        self.unbind_claim(id, task);
        let wall_ms = self.env.clock.wall_ms();
        let sample = self.env.rng.u32(..);
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let Some(running) = lane.running.remove(&(task, epoch)) else { return };
        lane.running_bytes -= running.payload_bytes;
        lane.metadata.running.ended((task, epoch));
        let took = now.since(running.started_at);
        // The attempt may have failed before it learned of the cancel, or have begun at another
        // gateway.
        let cancelled =
            matches!(ending, Ending::Failed(..)) && lane.core.machine().fold(task).cancel;
        let ending = if cancelled { Ending::Cancelled } else { ending };
        telemetry::attempted(&lane.topics.task.topic, ending.in_a_word(), took);
        let begun = ending != Ending::NotBegun;
        let given_back = ending == Ending::Released;
        let terms = running.terms.as_deref();
        let attempts = (running.attempt, lane.core.machine().max_attempts(task));
        let (outcome, body) = self.config.judge(ending, attempts, terms, (sample, wall_ms));
        if !begun && !running.fresh {
            tracing::warn!(%task, %epoch, "cannot read the checkpoint of a lease: leaving the lease to other workers");
            lane.core.let_go_of_lease(task, epoch, now);
        } else if !begun {
            tracing::warn!(%task, %epoch, "the checkpoint was not read, or the process was frozen, for a heartbeat interval: the attempt is given back");
            lane.core.handle_not_begun(task, epoch, now);
        } else if let Some(outcome) = outcome {
            let (topic, attempt) = (&lane.topics.task, running.attempt);
            let reason = lane.plain_reason(task, &body, wall_ms);
            let holder = lane.holder(task);
            let told = AttemptLog { topic, id: task, epoch, attempt };
            told.ends(outcome, &reason, took, Some(&*holder).filter(|name| !name.is_empty()));
            self.stats.took(took);
            if lane.core.machine().awaits_end(task, epoch) {
                let parks = matches!(outcome, Outcome::Released(next) if next.is_parked());
                let shown = given_back || parks || !matches!(outcome, Outcome::Released(_));
                lane.keep_ended((task, epoch), &running, (outcome, body), shown);
            }
            lane.core.handle_finished(task, epoch, outcome);
            if !lane.is_shown(running.payload_bytes) {
                // A large payload would stay until the outcome and the metadata entry are stored,
                // while the next task already has the slot.
                lane.core.handle_payload_spent(task);
            }
        }
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        match stuck {
            None => lane.core.handle_processor_gone(task, epoch, now),
            Some(stuck) => {
                let killed = running.checkpoints.reports.is_killed();
                self.record_stuck((id, task, epoch), stuck, killed);
            }
        }
    }
}

impl Environment {
    /// The channel for reports of this attempt, with the limit on time without a report.
    fn reports(
        &self,
        (lane, id, epoch): (LaneId, TaskId, Epoch),
        terms: Option<&Terms>,
    ) -> Arc<AttemptReports> {
        let listener = ReportListener::Driver { lane, id, epoch, driver: self.answers.clone() };
        let (clock, look_every) = (self.clock, self.heartbeat);
        let limit = terms.and_then(|terms| terms.no_progress_timeout);
        let silence = limit.map(|limit| SilenceLimit { clock, limit, look_every });
        Arc::new(AttemptReports::new(listener).watched(silence))
    }
}

/// The end of an attempt, including a panic outside its processor.
fn end_of(
    ended: Result<AttemptEnd, Panic>,
    at: (TaskId, Epoch),
    span: spans::OpenSpan,
) -> AttemptEnd {
    let ended = ended.unwrap_or_else(|panic| {
        let (task, epoch) = at;
        AttemptEnd { task, epoch, ending: ending_of_panic(&*panic), stuck: None }
    });
    spans::ended(span, ended.ending.in_a_word(), ended.ending.failure());
    ended
}

impl WorkerConfig {
    /// When the budget of an attempt ends, `used` having been spent already; and whether the budget
    /// of the task (first claimed at `created_ms`, wall clock) ends then, too.
    fn deadline(
        &self,
        terms: Option<&Terms>,
        created_ms: u64,
        used: Duration,
        clock: Clock,
    ) -> (Option<Deadline>, bool) {
        let limit = self.limit(terms).map(|limit| limit.saturating_sub(used));
        let total = terms.and_then(|terms| terms.max_total_duration).map(|total| {
            let used_ms = clock.wall_ms().saturating_sub(created_ms);
            total.saturating_sub(Duration::from_millis(used_ms))
        });
        let left = limit.into_iter().chain(total).min();
        let look_every = self.heartbeat;
        let at = |left| Deadline::Clock { clock, at: clock.now() + left, look_every };
        let deadline = left.map(at);
        (deadline, total.is_some() && left == total)
    }

    /// The outcome of attempt number `attempt` of at most `max`, and its body; `None` if the
    /// attempt needs no outcome.
    pub(super) fn judge(
        &self,
        ending: Ending,
        (attempt, max): (u32, u32),
        terms: Option<&Terms>,
        (sample, wall_ms): (u32, u64),
    ) -> (Option<Outcome>, OutcomeBody) {
        match ending {
            Ending::Completed(bytes) => (Some(Outcome::Completed), OutcomeBody::Result(bytes)),
            Ending::Failed(failure, why) => {
                let own = terms.and_then(|terms| terms.pauses.as_ref());
                let policy = own.unwrap_or(&self.backoff);
                let outcome = outcome_of_failure(failure, attempt, max, policy, sample, wall_ms);
                (Some(outcome), OutcomeBody::Failure(why))
            }
            Ending::After(list) => (Some(outcome_of_waiting(wall_ms)), OutcomeBody::WaitsFor(list)),
            Ending::Cancelled => {
                (Some(Outcome::Cancelled), OutcomeBody::Failure(Failure::cancelled()))
            }
            Ending::Fenced | Ending::NotBegun => (None, OutcomeBody::Result(Bytes::new())),
            Ending::Released => {
                let why = Failure::new(FailureCause::GivenBack, text::GIVEN_BACK);
                (Some(released()), OutcomeBody::Failure(why))
            }
        }
    }
}
