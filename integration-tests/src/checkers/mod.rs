//! What must hold of a run, whatever was done to it: a pure judgement over the whole ledger, the whole metadata topic, and
//! what the workers wrote down of the attempts they really ran.

mod compacted;
pub(crate) mod fold;
mod ledger;
mod runs;
mod view;

pub use compacted::Compacted;

use bytes::Bytes;
use longhaul::protocol::entry::Entry;
use longhaul::protocol::fold::{TaskFold, Verdict};
use longhaul::{Position, TaskId, TaskMetadata};
use std::collections::BTreeMap;
use std::fmt;

/// Everything that a run has left behind.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The tasks on the task topic.
    pub tasks: Vec<TaskId>,
    /// The ledger, uncompacted, in log order.
    pub ledger: Vec<LedgerEntry>,
    /// What a reader of the compacted ledger gets; `None` if nobody looked.
    pub compacted: Option<Compacted>,
    /// The metadata topic, uncompacted, in log order.
    pub view: Vec<ViewEntry>,
    /// What the workers ran.
    pub runs: Vec<Run>,
    /// Attempts that a task has.
    pub attempts_max: u32,
    /// Messages that the subscription has not acknowledged.
    pub backlog: u64,
}

/// A message of the ledger.
#[derive(Clone, Debug)]
pub struct LedgerEntry {
    /// Where it lies.
    pub position: Position,
    /// Its key.
    pub key: String,
    /// What it says, or why nothing can be made of it.
    pub entry: Result<Entry, String>,
    /// Its body.
    pub body: Bytes,
    /// When it was published, by its producer's wall clock.
    pub publish_time_ms: u64,
}

/// A message of the metadata topic.
#[derive(Clone, Debug)]
pub struct ViewEntry {
    /// Where it lies.
    pub position: Position,
    /// Its key.
    pub key: String,
    /// The epoch it speaks of.
    pub epoch: Option<u32>,
    /// What it says; `None` for a tombstone or what cannot be read.
    pub metadata: Option<TaskMetadata>,
    /// When it was published, by its producer's wall clock.
    pub publish_time_ms: u64,
}

/// An attempt that a worker process really ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Name of the process.
    pub worker: String,
    /// The task.
    pub task: TaskId,
    /// Epoch of the claim.
    pub epoch: u32,
    /// The attempt.
    pub attempt: u32,
    /// When its processor began, by the wall clock, in microseconds.
    pub started_us: u64,
    /// When it was told to stop.
    pub cancelled_us: Option<u64>,
    /// When it ended or was dropped; `None` when it died with its process.
    pub ended_us: Option<u64>,
}

/// What must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// The task never ended.
    Lost(TaskId),
    /// The task ended more than once.
    EndedTwice(TaskId),
    /// A task is in the ledger that is not on the task topic.
    Unheard(TaskId),
    /// A write-once key was used again.
    KeyTwice(String),
    /// The ledger went back, or two claims of one epoch were accepted.
    Backwards(TaskId, u32),
    /// An accepted claim has an attempt above the limit.
    TooManyAttempts(TaskId, u32),
    /// The library's fold and the checker's differ after the entry at this position.
    FoldsDiffer(TaskId, Position),
    /// The compacted ledger makes something else of the task.
    CompactionDiffers(TaskId, String),
    /// A message of the ledger is no entry.
    Malformed(Position, String),
    /// An epoch was run more than once.
    RunTwice(TaskId, u32),
    /// An attempt was run that no accepted claim stands for.
    RunWithoutClaim(TaskId, u32),
    /// An attempt number was run again although it had not been given back.
    AttemptTwice(TaskId, u32),
    /// A processor was started after its task had ended, by the position of its claim.
    RunAfterEnd(TaskId, u32),
    /// A seal names a task that had not ended.
    SealedTooEarly(TaskId),
    /// The last entry on the metadata topic is not what the ledger says.
    ViewDiffers(TaskId, String),
    /// The metadata topic showed an end that the ledger never had.
    ViewAhead(TaskId, u32),
    /// `created` of a task changed.
    CreatedChanged(TaskId),
    /// Messages of the subscription were never acknowledged.
    Backlog(u64),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// What the checkers found, and a few figures by the way.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Seals on the ledger.
    pub seals: usize,
    /// Empty if all is well.
    pub violations: Vec<Violation>,
    /// Tasks that completed.
    pub completed: usize,
    /// Tasks that ended otherwise.
    pub failed: usize,
    /// Accepted claims that run an attempt.
    pub claims: usize,
    /// Accepted claims beyond the first of their task, after neither a failure nor a release: somebody fell silent.
    pub takeovers: usize,
    /// Attempts given back.
    pub released: usize,
    /// The highest attempt of any task.
    pub attempt_max: u32,
    /// The highest epoch of any task.
    pub epoch_max: u32,
    /// Ledger entries that changed nothing, by reason.
    pub ignored: BTreeMap<String, usize>,
    /// Entries that compaction took out of the ledger's view, if anybody looked.
    pub compacted_away: Option<usize>,
    /// Entries on the metadata topic that came after one of a higher epoch: a zombie's.
    pub late_on_view: usize,
    /// Pairs of attempts of one task that ran at the same time.
    pub overlaps: usize,
    /// How each task stands in the end.
    pub folds: BTreeMap<TaskId, TaskFold>,
}

/// Judges a history.
#[must_use]
pub fn check(history: &History) -> Report {
    check_by(history, TaskFold::apply)
}

/// Judges by any fold, so that tests can plant a broken one.
fn check_by(history: &History, fold: impl Fn(&mut TaskFold, &Entry) -> Verdict) -> Report {
    let mut report = Report::default();
    let accepted = ledger::check(history, fold, &mut report);
    runs::check(history, &accepted, &mut report);
    view::check(history, &accepted, &mut report);
    if let Some(compacted) = &history.compacted {
        report.violations.extend(compacted::check(history, compacted));
        report.compacted_away = Some(compacted::removed(history, compacted));
    }
    if history.backlog > 0 {
        report.violations.push(Violation::Backlog(history.backlog));
    }
    report
}

/// What the ledger accepted.
#[derive(Debug, Default)]
struct Accepted {
    /// Attempt of each epoch that runs one.
    attempts: BTreeMap<(TaskId, u32), u32>,
    /// Epochs that were given back.
    released: Vec<(TaskId, u32)>,
    /// Epoch, and body of the entry, that ended each task.
    ends: BTreeMap<TaskId, (u32, Bytes)>,
}

#[cfg(test)]
mod table;
#[cfg(test)]
mod tests;
