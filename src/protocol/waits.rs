//! What a parked task waits for: other tasks of its topic that must be over before it begins.
//!
//! A parked task is in phase RETRY like any other that waits, but is due when the named tasks are over instead of at a time. The list is the
//! body of the RELEASED that parks the task, so it lasts as long as that state does: through compaction, seals of other tasks, and bases,
//! which take the keys of earlier epochs only.

use super::entry::{After, ClaimKind, Done, NextAttempt, Outcome};
use crate::task::TaskId;
use std::collections::BTreeSet;
use std::fmt::Write;

/// So many tasks may be named.
pub const NAMED_MAX: usize = 1_000;

/// The longest list, in bytes: that of so many of the longest ids fits.
const BYTES_MAX: usize = 80 * NAMED_MAX;

/// What follows when a named task is over without a result: it failed for good, was cancelled or expired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AfterFailed {
    /// The task fails for good, too.
    #[default]
    Fail,
    /// The task is cancelled.
    Skip,
    /// The task runs all the same.
    Run,
}

/// See the module's documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct WaitsFor {
    /// The named tasks, each once.
    pub tasks: BTreeSet<TaskId>,
    /// What follows when one of them has no result.
    pub failed: AfterFailed,
}

/// What a worker knows of a named task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Named {
    /// It is not over, as far as is known.
    Open,
    /// It has its result.
    Completed,
    /// It is over without a result, or may be: a seal says of a batch only that some tasks of it are.
    Failed,
    /// It can be no task of this topic.
    Foreign,
}

/// How it stands with what a task waits for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// Not all of it is over.
    Waits,
    /// The task may begin.
    Over,
    /// The task never begins: this claim closes it, for this reason.
    Closes(ClaimKind, String),
}

/// A list cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WaitsError {
    /// A name is not the id of a task.
    #[error("`{0}` is not the id of a task")]
    Id(String),
    /// There are too many names.
    #[error("more than {NAMED_MAX} tasks are named")]
    TooMany,
    /// The policy is none of the three.
    #[error("`{0}` is none of `fail`, `skip` and `run`")]
    Policy(String),
}

impl Done {
    /// Whether the task waits for others from now on: the body says for which.
    #[must_use]
    pub const fn parks(&self) -> bool {
        matches!(self.outcome, Outcome::Released(NextAttempt { after: After::Others, .. }))
    }
}

impl AfterFailed {
    /// Its word in properties and bodies.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Fail => "fail",
            Self::Skip => "skip",
            Self::Run => "run",
        }
    }

    fn read(word: &str) -> Result<Self, WaitsError> {
        let mut all = [Self::Fail, Self::Skip, Self::Run].into_iter();
        all.find(|policy| policy.word() == word)
            .ok_or_else(|| WaitsError::Policy(word.chars().take(20).collect()))
    }
}

impl WaitsFor {
    /// Reads the ids, with commas between them, and the word of the policy.
    ///
    /// # Errors
    /// When they are something else.
    pub fn read(ids: &str, failed: Option<&str>) -> Result<Self, WaitsError> {
        if ids.len() > BYTES_MAX {
            return Err(WaitsError::TooMany);
        }
        let failed = failed.map(AfterFailed::read).transpose()?.unwrap_or_default();
        let names = ids.split(',').map(str::trim).filter(|name| !name.is_empty());
        let id = |name: &str| {
            let wrong = || WaitsError::Id(name.chars().take(80).collect());
            name.parse().map_err(|_| wrong())
        };
        let tasks = names.map(id).collect::<Result<BTreeSet<TaskId>, _>>()?;
        if tasks.len() > NAMED_MAX {
            return Err(WaitsError::TooMany);
        }
        Ok(Self { tasks, failed })
    }

    /// The ids, with commas between them.
    #[must_use]
    pub fn ids(&self) -> String {
        let mut text = String::new();
        for id in &self.tasks {
            let comma = if text.is_empty() { "" } else { "," };
            let _infallible = write!(text, "{comma}{id}");
        }
        text
    }

    /// The content of the body of the RELEASED that parks the task: the word of the policy, a space, and the ids.
    #[must_use]
    pub fn content(&self) -> String {
        format!("{} {}", self.failed.word(), self.ids())
    }

    /// Reads what [`WaitsFor::content`] has written; `None` if it is something else.
    #[must_use]
    pub fn of_content(content: &[u8]) -> Option<Self> {
        let (failed, ids) = std::str::from_utf8(content).ok()?.split_once(' ')?;
        Self::read(ids, Some(failed)).ok()
    }

    /// How it stands, by what is known of each named task. A failure is not told before the others are over: who cancels one of them
    /// would see a group end while it runs.
    #[must_use]
    pub fn standing(&self, known: impl Fn(TaskId) -> Named) -> Standing {
        let (mut waits, mut failed) = (false, None);
        for id in &self.tasks {
            match known(*id) {
                Named::Open => waits = true,
                Named::Completed => {}
                Named::Failed => failed = failed.or(Some(*id)),
                Named::Foreign => {
                    let reason = format!("AFTER names {id}, which is no task of this topic");
                    return Standing::Closes(ClaimKind::Final, reason);
                }
            }
        }
        match (self.failed, failed) {
            _ if waits => Standing::Waits,
            (AfterFailed::Run, _) | (_, None) => Standing::Over,
            (AfterFailed::Fail, Some(id)) => Standing::Closes(
                ClaimKind::Final,
                format!("Task {id}, which had to be over first, has no result"),
            ),
            (AfterFailed::Skip, Some(id)) => Standing::Closes(
                ClaimKind::Cancelled,
                format!("Skipped: task {id}, which had to be over first, has no result"),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn id(entry: u64) -> TaskId {
        TaskId { ledger: 1, entry, partition: 0, batch_index: None }
    }

    fn waits(failed: AfterFailed) -> WaitsFor {
        WaitsFor { tasks: [id(1), id(2)].into(), failed }
    }

    #[test]
    fn a_list_is_read_as_it_was_written() {
        for failed in [AfterFailed::Fail, AfterFailed::Skip, AfterFailed::Run] {
            let list = waits(failed);
            assert_eq!(WaitsFor::of_content(list.content().as_bytes()), Some(list.clone()));
            assert_eq!(WaitsFor::read(" 1:2:0, 1:1:0,1:2:0,", Some(failed.word())), Ok(list));
        }
        let nothing = WaitsFor::default();
        assert_eq!(WaitsFor::of_content(nothing.content().as_bytes()), Some(nothing));
        for wrong in [&b""[..], b"fail", b"perhaps 1:2:0", b"fail x", b"\xff "] {
            assert_eq!(WaitsFor::of_content(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_list_has_a_limit() {
        let ids = |count: u64| (0..count).map(|entry| id(entry).to_string()).collect::<Vec<_>>();
        assert_eq!(WaitsFor::read(&ids(1_000).join(","), None).map(|it| it.tasks.len()), Ok(1_000));
        assert_eq!(WaitsFor::read(&ids(1_001).join(","), None), Err(WaitsError::TooMany));
        let long = TaskId {
            ledger: u64::MAX,
            entry: u64::MAX,
            partition: i32::MAX,
            batch_index: Some(u32::MAX),
        };
        assert!(long.to_string().len() < BYTES_MAX / NAMED_MAX);
    }

    #[test]
    fn a_task_begins_when_all_are_over_and_the_policy_lets_it() {
        use AfterFailed::{Fail, Run, Skip};
        use Named::{Completed, Failed, Foreign, Open};
        let standing = |failed, first, second| {
            let standing = waits(failed).standing(|it| if it == id(1) { first } else { second });
            match standing {
                Standing::Closes(kind, reason) => {
                    assert!(reason.contains("1:2:0"), "{reason}");
                    Standing::Closes(kind, String::new())
                }
                open @ (Standing::Waits | Standing::Over) => open,
            }
        };
        let closes = |kind| Standing::Closes(kind, String::new());
        for failed in [Fail, Skip, Run] {
            assert_eq!(standing(failed, Completed, Completed), Standing::Over);
            assert_eq!(standing(failed, Completed, Open), Standing::Waits);
            assert_eq!(standing(failed, Open, Failed), Standing::Waits);
            assert_eq!(standing(failed, Open, Foreign), closes(ClaimKind::Final));
        }
        assert_eq!(standing(Fail, Completed, Failed), closes(ClaimKind::Final));
        assert_eq!(standing(Skip, Completed, Failed), closes(ClaimKind::Cancelled));
        assert_eq!(standing(Run, Failed, Failed), Standing::Over);
        assert_eq!(WaitsFor::default().standing(|_| Open), Standing::Over);
    }
}
