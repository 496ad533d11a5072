//! Limits of a task as a whole: its own maximum of attempts, a budget over all of them, and a time
//! after which none begins.
//!
//! The task's message sets them, and only its readers know them. So each claim that runs the task
//! repeats them for workers that claim after its owner has died, or close the task without the
//! payload. They do not affect whether a claim is accepted.

use super::entry::{AttemptCause, ClaimKind};
use super::fold::{Phase, TaskFold};

/// Limits of a task; the workers' settings replace missing ones. See the module's documentation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Maximum number of attempts.
    pub max_attempts: Option<u32>,
    /// Budget over all attempts and pauses, in ms from the task's first claim. A claim FINAL
    /// carries it if it is the reason for closing the task.
    pub total_ms: Option<u64>,
    /// No attempt begins after this wall-clock time, in ms since the epoch.
    pub expires_at_ms: Option<u64>,
}

impl Limits {
    /// A task without limits of its own.
    pub const NONE: Self = Self { max_attempts: None, total_ms: None, expires_at_ms: None };

    /// Whether there are no limits.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        matches!(self, Self { max_attempts: None, total_ms: None, expires_at_ms: None })
    }

    /// The wall-clock time, in ms, from which such a task is closed instead of run, and the kind of
    /// claim. `created_ms` is the time of its first claim.
    ///
    /// A task that has begun does not expire: neither a running one, nor one that continues after a
    /// drain has given it back.
    #[must_use]
    pub fn closes_at(&self, fold: &TaskFold, created_ms: u64) -> Option<(u64, ClaimKind)> {
        let begun = match fold.phase {
            Phase::New => false,
            Phase::Retry => fold.next_attempt.after == AttemptCause::Drain,
            Phase::Running
            | Phase::Completed
            | Phase::Final
            | Phase::Cancelled
            | Phase::Expired
            | Phase::Sealed => true,
        };
        // A task that was only offered has not begun to use its budget.
        let claimed = fold.phase != Phase::New && !(fold.is_offered() && created_ms == 0);
        let expires = self.expires_at_ms.filter(|_| !begun).map(|at| (at, ClaimKind::Expired));
        let used_up = |total: u64| (created_ms.saturating_add(total), ClaimKind::Final);
        let total = self.total_ms.filter(|_| claimed).map(used_up);
        [expires, total].into_iter().flatten().min_by_key(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::NextAttempt;
    use super::*;

    fn closes(limits: Limits, phase: Phase, after: AttemptCause) -> Option<(u64, ClaimKind)> {
        let next_attempt = NextAttempt { after, ..NextAttempt::default() };
        limits.closes_at(&TaskFold { phase, next_attempt, ..TaskFold::default() }, 1_000)
    }

    #[test]
    fn a_task_without_limits_is_never_closed_by_them() {
        assert!(Limits::NONE.is_none());
        for phase in [Phase::New, Phase::Running, Phase::Retry] {
            assert_eq!(closes(Limits::NONE, phase, AttemptCause::Other), None);
        }
    }

    #[test]
    fn what_has_begun_does_not_expire() {
        let limits = Limits { expires_at_ms: Some(7_000), ..Limits::NONE };
        let expires = Some((7_000, ClaimKind::Expired));
        assert!(!limits.is_none());
        assert_eq!(closes(limits, Phase::New, AttemptCause::Other), expires);
        assert_eq!(closes(limits, Phase::Retry, AttemptCause::Other), expires);
        assert_eq!(closes(limits, Phase::Retry, AttemptCause::Drain), None);
        assert_eq!(closes(limits, Phase::Running, AttemptCause::Other), None);
    }

    #[test]
    fn a_total_budget_counts_from_the_first_claim_and_the_earlier_limit_closes() {
        let limits = Limits { total_ms: Some(500), ..Limits::NONE };
        let used_up = Some((1_500, ClaimKind::Final));
        assert_eq!(closes(limits, Phase::New, AttemptCause::Other), None);
        assert_eq!(closes(limits, Phase::Running, AttemptCause::Other), used_up);
        assert_eq!(closes(limits, Phase::Retry, AttemptCause::Drain), used_up);
        let both = |at| Limits { expires_at_ms: Some(at), ..limits };
        assert_eq!(
            closes(both(1_400), Phase::Retry, AttemptCause::Other),
            Some((1_400, ClaimKind::Expired))
        );
        assert_eq!(closes(both(1_600), Phase::Retry, AttemptCause::Other), used_up);
    }
}
