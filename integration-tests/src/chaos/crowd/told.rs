//! What the callers of gateways were answered: all that is known of a run without looking into the
//! log.

use longhaul::TaskId;
use std::ops::RangeInclusive;

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answered {
    /// It was done.
    Counts,
    /// 409, with this code: it has no effect.
    Refused(String),
    /// It may have been done or not: no answer came, or one that says so.
    Unknown,
    /// Nobody has got it: there was no connection.
    Unheard,
}

/// A request, as often as it was sent.
#[derive(Clone, Debug)]
pub(super) struct Try {
    pub(super) sent_ms: u64,
    pub(super) answered_ms: u64,
    pub(super) answered: Answered,
}

/// What a worker does with a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Plan {
    Succeed,
    Fail,
    /// It is silent until its lease must have ended, and reports a success then.
    Hang,
}

impl Plan {
    /// Of 100 tasks 60 succeed, 20 fail and 20 hang.
    pub(super) fn draw(rng: &mut fastrand::Rng) -> Self {
        match rng.u8(..100) {
            0..20 => Self::Fail,
            20..40 => Self::Hang,
            _ => Self::Succeed,
        }
    }
}

/// A lease that a worker was given, and what it has reported.
#[derive(Clone, Debug)]
pub(super) struct Leased {
    pub(super) worker: String,
    pub(super) task: TaskId,
    pub(super) epoch: u32,
    pub(super) attempt: u32,
    pub(super) max_attempts: u32,
    /// When it was asked for, and granted.
    pub(super) asked_ms: u64,
    pub(super) granted_ms: u64,
    pub(super) plan: Plan,
    /// Keep-alives.
    pub(super) kept: Vec<Try>,
    /// The same report, until somebody has said what becomes of it. A success may be told again
    /// when it was accepted.
    pub(super) tries: Vec<Try>,
}

impl Leased {
    /// Why a lease has failed, if its worker says so: no other lease says the same.
    pub(super) fn reason(task: TaskId, epoch: u32) -> String {
        format!("no luck with {task} in epoch {epoch}")
    }

    /// What is known of its report in the end; `None` if there is none.
    pub(super) fn answered(&self) -> Option<&Answered> {
        self.tries.last().map(|last| &last.answered)
    }

    /// Whether the worker had the lease at a time of this span.
    pub(super) fn was_there_in(&self, span: &RangeInclusive<u64>) -> bool {
        let until_ms = self.tries.last().map_or(u64::MAX, |last| last.answered_ms);
        self.granted_ms <= *span.end() && until_ms >= *span.start()
    }

    /// Whether any of the reports may have been done although that was not answered.
    pub(super) fn may_count(&self) -> bool {
        self.tries.iter().any(|it| it.answered == Answered::Unknown)
    }
}

/// A task that was submitted under a key, as often as it took.
#[derive(Clone, Debug, Default)]
pub(super) struct Submitted {
    pub(super) key: String,
    pub(super) tries: Vec<Try>,
    /// The ids that were answered.
    pub(super) ids: Vec<TaskId>,
}

/// A look at a task while others worked, through a gateway that answered.
#[derive(Clone, Debug)]
pub(super) struct Look {
    pub(super) task: TaskId,
    pub(super) gateway: usize,
    pub(super) sent_ms: u64,
    pub(super) answered_ms: u64,
    /// `None`: the gateway does not know the task.
    pub(super) status: Option<String>,
}

/// A task, as the gateways show it in the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) status: String,
    pub(super) attempts: u64,
}
