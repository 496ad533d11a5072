//! The answers of the gateways to callers: everything known of a run without reading the log.

use anyhow::{Context, Result};
use longhaul::TaskId;
use serde_json::Value;

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answered {
    /// It took effect.
    Counts,
    /// 409 with this code: it had no effect.
    Refused(String),
    /// Unknown: no answer came, or one that says so.
    Unknown,
    /// It was not received: there was no connection.
    Unheard,
}

/// A request, once per sending.
#[derive(Clone, Debug)]
pub(super) struct Try {
    pub(super) sent_ms: u64,
    pub(super) answered_ms: u64,
    pub(super) answered: Answered,
}

/// A worker's plan for a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Plan {
    Succeed,
    Fail,
    /// It is silent until its lease has ended, and then reports a success.
    Hang,
}

impl Plan {
    /// Draws a plan: out of 100 tasks 60 succeed, 20 fail and 20 hang.
    pub(super) fn draw(rng: &mut fastrand::Rng) -> Self {
        match rng.u8(..100) {
            0..20 => Self::Fail,
            20..40 => Self::Hang,
            _ => Self::Succeed,
        }
    }
}

/// A lease granted to a worker, and its reports.
#[derive(Clone, Debug)]
pub(super) struct Leased {
    pub(super) worker: String,
    pub(super) task: TaskId,
    pub(super) epoch: u32,
    pub(super) attempt: u32,
    pub(super) max_attempts: u32,
    /// When it was requested and granted.
    pub(super) asked_ms: u64,
    pub(super) granted_ms: u64,
    pub(super) plan: Plan,
    /// Keep-alives.
    pub(super) kept: Vec<Try>,
    /// The same report, until its result is known. An accepted success may be repeated.
    pub(super) tries: Vec<Try>,
}

impl Leased {
    /// The failure reason in the worker's report, unique per lease.
    pub(super) fn reason(task: TaskId, epoch: u32) -> String {
        format!("no luck with {task} in epoch {epoch}")
    }

    /// The last answer to its report; `None` without a report.
    pub(super) fn answered(&self) -> Option<&Answered> {
        self.tries.last().map(|last| &last.answered)
    }

    /// Whether a report may have taken effect without an answer.
    pub(super) fn may_count(&self) -> bool {
        self.tries.iter().any(|it| it.answered == Answered::Unknown)
    }
}

/// A task submitted under a key, once per sending.
#[derive(Clone, Debug, Default)]
pub(super) struct Submitted {
    pub(super) key: String,
    pub(super) tries: Vec<Try>,
    /// The ids in the answers.
    pub(super) ids: Vec<TaskId>,
}

/// A look at a task while others worked, with its answer.
#[derive(Clone, Debug)]
pub(super) struct Look {
    pub(super) task: TaskId,
    pub(super) gateway: usize,
    pub(super) sent_ms: u64,
    pub(super) answered_ms: u64,
    /// `None` if the gateway does not know the task.
    pub(super) status: Option<String>,
}

/// A task as a gateway shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) status: String,
    pub(super) attempts: u32,
}

impl Shown {
    pub(super) fn read(task: &Value) -> Result<Self> {
        let status = task.get("status").and_then(Value::as_str).context(task.to_string())?;
        let attempts = task.get("attempts").and_then(Value::as_u64);
        let attempts = attempts.with_context(|| task.to_string())?.try_into()?;
        Ok(Self { status: status.to_owned(), attempts })
    }

    /// Whether this attempt has ended. What a gateway shows may be older than the attempt.
    pub(super) fn is_over(&self, attempt: u32) -> bool {
        let runs = ["claimed", "running"].contains(&self.status.as_str());
        self.attempts > attempt || self.attempts == attempt && !runs
    }
}
