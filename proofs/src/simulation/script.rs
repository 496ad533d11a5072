//! Scripts of tasks. Each is drawn at the submit, so that it is known how the task must end.

use super::ledger::Fate;
use crate::checkers::fold::End;
use bytes::Bytes;
use longhaul::{TaskContext, TaskError, TaskId, TaskProcessor, Text};
use longhaul_core::protocol::retry::RetryPolicy;
use longhaul_transport::clock::{Clock, as_millis};
use longhaul_transport::moment::Moment;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How an attempt ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Fail,
    FailFor(Duration),
    Panic,
    Fatal,
}

/// The behaviour of a task.
#[derive(Clone, Debug, Default)]
pub(super) struct Script {
    /// The duration of each attempt.
    pub(super) works: Duration,
    /// How the first attempts end; the one after them succeeds.
    pub(super) steps: Vec<Step>,
    /// The number of runs that are snoozed before anything else happens.
    pub(super) snoozes: u32,
    /// The duration of each snooze.
    pub(super) snooze: Duration,
    /// Checkpoints of each attempt. Every other one is empty.
    pub(super) checkpoints: u32,
    /// The time budget of each attempt.
    pub(super) budget: Option<Duration>,
    /// The task's own number of attempts.
    pub(super) attempts: Option<u32>,
    /// The delay of its start after the submit.
    pub(super) delay: Option<Duration>,
    /// The time after the submit at which it expires.
    pub(super) expires: Option<Duration>,
    /// The tasks that it waits for, however they end.
    pub(super) after: BTreeSet<TaskId>,
    /// Whether the payload is not valid text.
    pub(super) broken: bool,
    /// Whether even the bytes of the payload cannot be read.
    pub(super) damaged: bool,
}

impl Script {
    pub(super) fn draw(rng: &mut fastrand::Rng) -> Self {
        let works = if rng.bool() { rng.u64(..3_000) } else { rng.u64(..60_000) };
        let steps = (0..rng.u8(..10).saturating_sub(6)).map(|_| match rng.u8(..8) {
            0 => Step::Fatal,
            1 => Step::Panic,
            2 => Step::FailFor(Duration::from_millis(rng.u64(..30_000))),
            _ => Step::Fail,
        });
        // Derived from a number already drawn, so that the other draws of each seed stay the same.
        let attempts = (works % 4 == 0).then_some(1 + u32::from(works % 28 > 8) * 5);
        let delay = (works % 7 == 1).then(|| Duration::from_millis(works % 40_000));
        let expires = (works % 9 == 2).then(|| Duration::from_millis(1_000 + works % 50_000));
        let steps = steps.collect();
        let mut script = Self { steps, attempts, delay, expires, ..Self::default() };
        script.works = Duration::from_millis(works);
        match rng.u8(..12) {
            0 => {
                script.broken = true;
                script.damaged = rng.bool();
            }
            1 | 2 => {
                script.snoozes = rng.u32(1..=2);
                script.snooze = Duration::from_millis(rng.u64(..10_000));
                if rng.u8(..4) == 0 {
                    // So many snoozes that its older keys leave the ledger while it lives.
                    script.snoozes = rng.u32(10..=25);
                    script.snooze /= 5;
                    script.works /= 30;
                    script.checkpoints = u32::from(rng.bool());
                }
            }
            3 => script.budget = Some(Duration::from_millis(rng.u64(500..30_000))),
            4..7 => script.checkpoints = rng.u32(1..=3),
            _ => {}
        }
        script
    }

    /// The properties of the task's message for a submit at this wall-clock time.
    pub(super) fn properties(&self, wall_ms: u64) -> BTreeMap<String, String> {
        let text = |it: Duration| format!("PT{}.{:03}S", it.as_secs(), it.subsec_millis());
        let expires = self.expires.map(|it| (wall_ms + as_millis(it)).to_string());
        let names: Vec<_> = self.after.iter().map(ToString::to_string).collect();
        let after = (!names.is_empty()).then(|| names.join(","));
        let all = [
            ("AFTER_FAILED", after.is_some().then(|| "run".to_owned())),
            ("AFTER", after),
            ("MAX_TASK_DURATION", self.budget.map(text)),
            ("MAX_ATTEMPTS", self.attempts.map(|it| it.to_string())),
            ("DELAY", self.delay.map(text)),
            ("EXPIRES_AT", expires),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }

    /// Its number of attempts, with workers whose default is `by_default`.
    pub(super) fn max_attempts(&self, by_default: u32) -> u32 {
        self.attempts.unwrap_or(by_default)
    }

    /// How the task ends without faults and cancels.
    pub(super) fn fate(&self, by_default: u32) -> Fate {
        let max_attempts = self.max_attempts(by_default);
        let all_fail = self.budget.is_some_and(|budget| budget < self.length());
        let fatal = self.steps.iter().position(|step| *step == Step::Fatal);
        let failures = u32::try_from(fatal.unwrap_or(self.steps.len())).unwrap_or(u32::MAX);
        match () {
            () if self.damaged => Fate { end: End::Final, attempts: 1 },
            // A worker of another version might be able to read it.
            () if self.broken => Fate { end: End::Final, attempts: max_attempts },
            () if all_fail => Fate { end: End::Final, attempts: max_attempts },
            () if failures >= max_attempts => Fate { end: End::Final, attempts: max_attempts },
            () if fatal.is_some() => Fate { end: End::Final, attempts: failures + 1 },
            () => Fate { end: End::Completed, attempts: failures + 1 },
        }
    }

    /// Whether an attempt sets the delay of the next one itself.
    pub(super) fn chooses_delay(&self, attempt: u32) -> bool {
        let step = self.steps.get((attempt as usize).saturating_sub(1));
        !self.broken && matches!(step, Some(Step::FailFor(_)))
    }

    /// The shortest and longest wait after an attempt that does not set the delay itself.
    pub(super) fn backoff(&self, attempt: u32) -> (Duration, Duration) {
        let policy = RetryPolicy::default();
        if self.broken {
            (policy.max / 2, policy.max)
        } else {
            (Duration::ZERO, policy.ceiling(attempt))
        }
    }

    /// Whether the budget is close to the duration of an attempt, so that either result is
    /// possible.
    pub(super) fn is_close(&self) -> bool {
        let near = |budget: Duration| budget.abs_diff(self.length()) < Duration::from_secs(6);
        self.budget.is_some_and(near)
    }

    /// The duration of an attempt.
    const fn length(&self) -> Duration {
        self.works
    }

    /// The longest time for all attempts and the waits between them, without waits for a slot.
    pub(super) fn longest(&self, by_default: u32) -> Duration {
        let max_attempts = self.max_attempts(by_default);
        // A checkpoint waits until a second has passed since the last one.
        let attempt = self.works + Duration::from_millis(1_100) * (self.checkpoints + 1);
        let between = |attempt: u32| match self.steps.get(attempt as usize - 1) {
            Some(Step::FailFor(delay)) if !self.broken => *delay,
            _ => self.backoff(attempt).1,
        };
        let attempts: Duration = (1..=max_attempts).map(|it| attempt + between(it)).sum();
        attempts + (attempt + self.snooze) * self.snoozes + self.delay.unwrap_or_default()
    }
}

/// A start of a processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Start {
    pub(super) task: TaskId,
    pub(super) epoch: u32,
    pub(super) attempt: u32,
    pub(super) at: Moment,
    /// The checkpoint that it found.
    pub(super) checkpoint: Option<Bytes>,
}

/// The end of a processor that was not stopped.
#[derive(Clone, Debug)]
pub(super) struct Returned {
    pub(super) task: TaskId,
    pub(super) epoch: u32,
    pub(super) at: Moment,
}

/// The scripts of all tasks, and the deeds of the processors of all workers.
#[derive(Clone, Debug, Default)]
pub(super) struct Deeds(Arc<Mutex<Done>>);

#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) scripts: Vec<Script>,
    pub(super) starts: Vec<Start>,
    pub(super) returned: Vec<Returned>,
    pub(super) snoozed: BTreeMap<TaskId, u32>,
}

impl Deeds {
    /// The tasks with a running processor.
    pub(super) fn running(&self) -> Vec<TaskId> {
        let done = self.lock();
        let over = |it: &&Start| {
            done.returned.iter().any(|end| end.task == it.task && end.epoch == it.epoch)
        };
        let mut running: Vec<TaskId> =
            done.starts.iter().filter(|start| !over(start)).map(|it| it.task).collect();
        running.dedup();
        running
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Done> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A processor that follows the script.
pub(super) struct Actor {
    pub(super) deeds: Deeds,
    pub(super) clock: Clock,
}

impl Actor {
    /// Notes a start. Returns the script, and whether the run is snoozed.
    fn start(&self, number: usize, context: &TaskContext) -> (Script, bool) {
        let (task, epoch) = (context.task_id(), context.fencing_token().epoch);
        let checkpoint = context.last_checkpoint().cloned();
        let mut done = self.deeds.lock();
        let at = self.clock.now();
        done.starts.push(Start { task, epoch, attempt: context.attempt(), at, checkpoint });
        let script = done.scripts.get(number).cloned().unwrap_or_default();
        let snoozed = done.snoozed.entry(task).or_default();
        let snoozes = *snoozed < script.snoozes;
        *snoozed += u32::from(snoozes);
        (script, snoozes)
    }
}

impl TaskProcessor for Actor {
    type Task = Text;
    type Output = Text;

    async fn process(&self, task: Text, context: TaskContext) -> Result<Text, TaskError> {
        let number: usize = task.0.parse()?;
        let (script, snoozes) = self.start(number, &context);
        let token = context.fencing_token();
        for step in 0..script.checkpoints {
            tokio::time::sleep(script.works / (script.checkpoints + 1)).await;
            context.progress(u64::from(step), u64::from(script.checkpoints), "on the way");
            let bytes =
                if step % 2 == 0 { format!("{}.{step}", token.epoch) } else { String::new() };
            // Without a ledger the checkpoint fails, and the work goes on.
            context.checkpoint(bytes).await.ok();
        }
        tokio::time::sleep(script.works / (script.checkpoints + 1)).await;
        let (task, epoch, at) = (token.task, token.epoch, self.clock.now());
        self.deeds.lock().returned.push(Returned { task, epoch, at });
        if snoozes {
            return Err(TaskError::snooze(script.snooze));
        }
        match script.steps.get(context.attempt() as usize - 1) {
            None => Ok(Text(result(token.task, token.epoch))),
            Some(Step::Fail) => Err(TaskError::retry("as told")),
            Some(Step::FailFor(delay)) => Err(TaskError::retry_after(*delay, "as told")),
            Some(Step::Fatal) => Err(TaskError::fatal("as told")),
            // Without the panic hook, which would print each panic.
            Some(Step::Panic) => std::panic::resume_unwind(Box::new("as told")),
        }
    }
}

/// The result of a task that succeeds.
pub(super) fn result(task: TaskId, epoch: u32) -> String {
    format!("{task} {epoch}")
}
