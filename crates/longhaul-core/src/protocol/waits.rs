//! The dependencies of a parked task: other tasks of its topic that must be over before it begins.
//!
//! A parked task is in phase RETRY like any other that waits, but is due when the named tasks are
//! over instead of at a time. The list is the body of the entry that parks the task (a claim
//! PARKED, or the RELEASED of an attempt that ends so). It lasts as long as that state: through
//! compaction, seals of other tasks, and bases, which remove only the keys of earlier epochs.
//!
//! A name is the id of a task, or `key:` and the key that its submitter chose. In the key, `%`, `,`
//! and blanks are written as `%` and two hexadecimal digits for each byte.

use super::entry::{AttemptCause, ClaimKind, Done, NextAttempt, Outcome};
use super::register::{KeyKind, KeyName, Keys};
use crate::task::{Priority, TaskId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt::{self, Write};
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of named tasks.
pub const NAMED_MAX: usize = 1_000;

/// Maximum length of a list, in bytes: enough for that many of the longest ids.
const BYTES_MAX: usize = 80 * NAMED_MAX;

/// Prefix of a name that is a key.
const KEY: &str = "key:";

/// How long a parked task waits for a key that no task has taken. After that the key counts as a
/// task without a result.
pub const KEY_WAIT_MAX: Duration = Duration::from_secs(24 * 3600);

/// The consequence if a named task ends without a result: it failed for good, was cancelled or
/// expired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AfterFailed {
    /// The task fails for good, too.
    #[default]
    Fail,
    /// The task is cancelled.
    Skip,
    /// The task runs anyway.
    Run,
}

/// Names a task that another one waits for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DependencyName {
    /// By its id.
    Task(TaskId),
    /// By its idempotency key or, if no task has it, its dedupe key.
    Key(Arc<str>),
}

/// The dependencies of a task. See the module's documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct WaitsFor {
    /// The named tasks, each once.
    pub names: BTreeSet<DependencyName>,
    /// The consequence if one of them has no result.
    pub failed: AfterFailed,
}

/// A worker's knowledge of a named task.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NamedTaskState {
    /// It is not over, as far as known.
    Open,
    /// It has its result.
    Completed,
    /// It is over without a result, or may be: the seal of a batch may tell only that some of its
    /// tasks are.
    Failed,
    /// No message has its id, and the ledger does not know it.
    Unknown,
    /// No task has taken the key in time.
    Unbound,
    /// It waits for the task itself, through these tasks.
    Circle(Arc<str>),
    /// It cannot be a task of this topic.
    Foreign,
}

/// The state of a task's dependencies.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DependencyState {
    /// Not all of them are over.
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
    /// A name is not a key.
    #[error("`{0}` is not a key of 1 to 256 bytes")]
    Key(String),
    /// There are too many names.
    #[error(
        "more than {NAMED_MAX} tasks are named, or their names have more than {BYTES_MAX} bytes"
    )]
    TooMany,
    /// The entry that parks a task has no list.
    #[error("the entry that parks the task does not say what it waits for")]
    Body,
    /// The policy is none of the three.
    #[error("`{0}` is not `fail`, `skip` or `run`")]
    Policy(String),
}

impl ClaimKind {
    /// Whether such a claim ends the task.
    #[must_use]
    pub const fn closes(self) -> bool {
        match self {
            Self::Run | Self::Park | Self::Offer(_) => false,
            Self::Final | Self::Cancelled | Self::Expired => true,
        }
    }
}

impl Done {
    /// Whether the task waits for others from now on, which the body names.
    #[must_use]
    pub const fn parks(&self) -> bool {
        matches!(self.outcome, Outcome::Released(NextAttempt { after: AttemptCause::Others, .. }))
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

impl DependencyName {
    /// Reads the form that `Display` writes.
    ///
    /// # Errors
    /// If it is neither the id of a task nor a key.
    pub fn read(text: &str) -> Result<Self, WaitsError> {
        let begin = |max| text.chars().take(max).collect();
        match text.strip_prefix(KEY) {
            Some(key) => {
                let key = unescaped(key).ok_or_else(|| WaitsError::Key(begin(80)))?;
                let name = Self::Key(key.into());
                name.keys().map(|_| name.clone()).ok_or_else(|| WaitsError::Key(begin(80)))
            }
            None => text.parse().map(Self::Task).map_err(|_| WaitsError::Id(begin(80))),
        }
    }

    /// The possible keys, in order of precedence; `None` if it is an id, or an invalid key.
    #[must_use]
    pub fn keys(&self) -> Option<[KeyName; 2]> {
        let Self::Key(text) = self else { return None };
        let of = |kind| KeyName::new(kind, &**text).ok();
        Some([of(KeyKind::Idempotency)?, of(KeyKind::Dedupe)?])
    }

    /// The task of this level that has taken the key, or took it last; `Some(None)`: a task of
    /// another level.
    #[must_use]
    pub fn holder(&self, level: Priority, keys: &Keys) -> Option<Option<TaskId>> {
        let holder = self.keys()?.iter().find_map(|name| keys.last_holder(name))?;
        Some((level == holder.level).then_some(holder.id))
    }
}

impl From<TaskId> for DependencyName {
    fn from(id: TaskId) -> Self {
        Self::Task(id)
    }
}

impl fmt::Display for DependencyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Key(text) = self else {
            let Self::Task(id) = self else { return Ok(()) };
            return id.fmt(f);
        };
        f.write_str(KEY)?;
        for letter in text.chars() {
            if letter == '%' || letter == ',' || letter.is_whitespace() || letter.is_control() {
                let mut bytes = [0; 4];
                letter
                    .encode_utf8(&mut bytes)
                    .bytes()
                    .try_for_each(|byte| write!(f, "%{byte:02X}"))?;
            } else {
                f.write_char(letter)?;
            }
        }
        Ok(())
    }
}

fn unescaped(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first == b'%' {
            let (digits, behind) = rest.split_at_checked(2)?;
            bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            rest = behind;
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes).ok()
}

impl WaitsFor {
    /// Reads the names, separated by commas, and the word of the policy.
    ///
    /// # Errors
    /// If they have another form.
    pub fn read(names: &str, failed: Option<&str>) -> Result<Self, WaitsError> {
        if names.len() > BYTES_MAX {
            return Err(WaitsError::TooMany);
        }
        let failed = failed.map(AfterFailed::read).transpose()?.unwrap_or_default();
        let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
        let names =
            names.map(DependencyName::read).collect::<Result<BTreeSet<DependencyName>, _>>()?;
        if names.len() > NAMED_MAX {
            return Err(WaitsError::TooMany);
        }
        Ok(Self { names, failed })
    }

    /// The list of these tasks.
    #[must_use]
    pub fn of(tasks: impl IntoIterator<Item = TaskId>, failed: AfterFailed) -> Self {
        Self { names: tasks.into_iter().map(DependencyName::Task).collect(), failed }
    }

    /// The names, separated by commas.
    ///
    /// # Errors
    /// If there are more than a list may have.
    pub fn text(&self) -> Result<String, WaitsError> {
        let text = self.written();
        let fits = self.names.len() <= NAMED_MAX && text.len() <= BYTES_MAX;
        if fits { Ok(text) } else { Err(WaitsError::TooMany) }
    }

    fn written(&self) -> String {
        let mut text = String::new();
        for name in &self.names {
            let comma = if text.is_empty() { "" } else { "," };
            let _infallible = write!(text, "{comma}{name}");
        }
        text
    }

    /// The content of the body of the entry that parks the task: the word of the policy, a space,
    /// and the names.
    #[must_use]
    pub fn content(&self) -> String {
        format!("{} {}", self.failed.word(), self.written())
    }

    /// Reads the form that [`WaitsFor::content`] writes; `None` if it has another form.
    #[must_use]
    pub fn of_content(content: &[u8]) -> Option<Self> {
        let (failed, names) = std::str::from_utf8(content).ok()?.split_once(' ')?;
        Self::read(names, Some(failed)).ok()
    }

    /// The state of the dependencies, given the knowledge of each named task. A failure is reported
    /// only after the others are over: otherwise cancelling one of them would end a group while it
    /// runs.
    #[must_use]
    pub fn standing(&self, known: impl Fn(&DependencyName) -> NamedTaskState) -> DependencyState {
        let (mut waits, mut failed) = (false, None);
        for name in &self.names {
            match known(name) {
                NamedTaskState::Open => waits = true,
                NamedTaskState::Completed => {}
                NamedTaskState::Foreign => {
                    let reason = format!("AFTER names {name}, which is no task of this topic");
                    return DependencyState::Closes(ClaimKind::Final, reason);
                }
                without @ (NamedTaskState::Failed
                | NamedTaskState::Unknown
                | NamedTaskState::Unbound
                | NamedTaskState::Circle(_)) => {
                    failed = failed.or_else(|| Some(why(name, &without)))
                }
            }
        }
        match (self.failed, failed) {
            _ if waits => DependencyState::Waits,
            (AfterFailed::Run, _) | (_, None) => DependencyState::Over,
            (AfterFailed::Fail, Some(why)) => {
                DependencyState::Closes(ClaimKind::Final, format!("Task {why}"))
            }
            (AfterFailed::Skip, Some(why)) => {
                DependencyState::Closes(ClaimKind::Cancelled, format!("Skipped: task {why}"))
            }
        }
    }
}

/// Why a named task counts as one without a result.
fn why(name: &DependencyName, known: &NamedTaskState) -> String {
    let first = format!("{name}, which had to be over first,");
    match known {
        NamedTaskState::Unknown => {
            format!("{first} does not exist: no message of the topic has its id")
        }
        NamedTaskState::Unbound => {
            let hours = KEY_WAIT_MAX.as_secs() / 3_600;
            format!("{first} does not exist: no task has taken its key in {hours} hours")
        }
        NamedTaskState::Circle(by) => format!("{first} waits for this one itself: {by}"),
        NamedTaskState::Open
        | NamedTaskState::Completed
        | NamedTaskState::Failed
        | NamedTaskState::Foreign => {
            format!("{first} has no result")
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
        WaitsFor::of([id(1), id(2)], failed)
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
    fn a_key_is_read_as_it_was_written() {
        let key = |text: &str| WaitsFor {
            names: [DependencyName::Task(id(1)), DependencyName::Key(text.into())].into(),
            failed: AfterFailed::Run,
        };
        let longest = ",".repeat(256);
        for text in ["order-4711", "a,b %", "\u{a0}Öl\n", "key:1:2:0", &longest] {
            let list = key(text);
            assert_eq!(WaitsFor::of_content(list.content().as_bytes()), Some(list), "{text}");
        }
        assert_eq!(key("a,b").text().unwrap(), "1:1:0,key:a%2Cb");
        for wrong in ["key:", "key:%2", "key:%zz", "key:%ff"] {
            assert!(matches!(WaitsFor::read(wrong, None), Err(WaitsError::Key(_))), "{wrong}");
        }
    }

    #[test]
    fn a_list_has_a_limit() {
        let ids = |count: u64| (0..count).map(|entry| id(entry).to_string()).collect::<Vec<_>>();
        assert_eq!(
            WaitsFor::read(&ids(1_000).join(","), None).map(|waits| waits.names.len()),
            Ok(1_000)
        );
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
        use NamedTaskState::{Circle, Completed, Failed, Foreign, Open, Unbound, Unknown};
        let standing = |failed, first: NamedTaskState, second: NamedTaskState| {
            let is_first = |name: &DependencyName| *name == DependencyName::Task(id(1));
            let known =
                |name: &DependencyName| if is_first(name) { first.clone() } else { second.clone() };
            let standing = waits(failed).standing(known);
            match standing {
                DependencyState::Closes(kind, reason) => {
                    assert!(reason.contains("1:2:0"), "{reason}");
                    DependencyState::Closes(kind, String::new())
                }
                open @ (DependencyState::Waits | DependencyState::Over) => open,
            }
        };
        let closes = |kind| DependencyState::Closes(kind, String::new());
        for failed in [Fail, Skip, Run] {
            assert_eq!(standing(failed, Completed, Completed), DependencyState::Over);
            assert_eq!(standing(failed, Completed, Open), DependencyState::Waits);
            assert_eq!(standing(failed, Open, Failed), DependencyState::Waits);
            assert_eq!(standing(failed, Open, Foreign), closes(ClaimKind::Final));
        }
        for without in [Failed, Unknown, Unbound, Circle("1:2:0 -> 1:2:0".into())] {
            assert_eq!(standing(Fail, Completed, without.clone()), closes(ClaimKind::Final));
            assert_eq!(standing(Skip, Completed, without), closes(ClaimKind::Cancelled));
        }
        assert_eq!(standing(Run, Failed, Failed), DependencyState::Over);
        assert_eq!(WaitsFor::default().standing(|_| Open), DependencyState::Over);
    }
}
