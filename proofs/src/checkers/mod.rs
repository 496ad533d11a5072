//! What must hold of a run, whatever was done to it: a pure judgement over the whole ledger, the
//! whole metadata topic, and what the workers wrote down of the attempts they really ran.
//!
//! The rules are the library's invariants, each under its number
//! (`longhaul_core::protocol::invariants`). What they are asked of is a fold of the checkers' own
//! (`fold.rs`), so that no mistake of the library's fold can hide.

mod compacted;
pub mod fold;
mod ledger;
mod logs;
pub mod order;
mod overlaps;

pub use compacted::Compacted;

use bytes::Bytes;
use longhaul::{Position, TaskId, TaskMetadata};
use longhaul_core::protocol::entry::Entry;
use longhaul_core::protocol::fold::{TaskFold, Verdict};
use longhaul_core::protocol::invariants::{self as ids, Breach};
use longhaul_core::protocol::key::OwnerId;
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
    pub max_attempts: u32,
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
    /// Who published it.
    pub owner: Option<OwnerId>,
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
    /// An invariant that one look or the task's history can judge does not hold.
    Broken(ids::Violation),
    /// The task never ended.
    Lost(TaskId),
    /// A task is in the ledger that is not on the task topic.
    Unheard(TaskId),
    /// The library's fold and the checker's differ after the entry at this position.
    FoldsDiffer(TaskId, Position),
    /// The compacted ledger makes something else of the task.
    CompactionDiffers(TaskId, String),
    /// The compacted ledger lacks this entry, the last one of its key.
    CompactionLost(Position),
    /// A message of the ledger is no entry.
    Malformed(Position, String),
    /// The last entry on the metadata topic is not what the ledger says.
    ViewDiffers(TaskId, String),
    /// The metadata topic showed an end that the ledger never had.
    ViewAhead(TaskId, u32),
    /// `created` of a task changed.
    CreatedChanged(TaskId),
    /// Messages of the subscription were never acknowledged.
    Backlog(u64),
}

impl Violation {
    /// The number of the invariant.
    #[must_use]
    pub const fn id(&self) -> &'static str {
        match self {
            Self::Broken(violation) => violation.id,
            Self::Lost(_) | Self::Backlog(_) => ids::PROGRESS,
            Self::Unheard(_) | Self::Malformed(..) => ids::KEYS,
            Self::FoldsDiffer(..) => ids::FOLLOWERS,
            Self::CompactionDiffers(..) | Self::CompactionLost(_) => ids::COMPACTION,
            Self::ViewDiffers(..) | Self::ViewAhead(..) | Self::CreatedChanged(_) => ids::VIEW,
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Broken(violation) = self {
            return violation.fmt(f);
        }
        write!(f, "{}: {self:?}", self.id())
    }
}

/// What an invariant says of a task.
const fn broken(Breach { id, what }: Breach, task: TaskId) -> Violation {
    Violation::Broken(ids::Violation { id, what, task: Some(task) })
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
    /// Accepted claims beyond the first of their task, after neither a failure nor a release:
    /// somebody fell silent.
    pub takeovers: usize,
    /// Claims that ran with a base.
    pub bases: usize,
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
    ledger::check(history, fold, &mut report);
    report.overlaps = overlaps::count(&history.runs);
    logs::check(history, &mut report);
    if let Some(compacted) = &history.compacted {
        report.violations.extend(compacted::check(history, compacted));
        report.compacted_away = Some(compacted::removed(history, compacted));
    }
    if history.backlog > 0 {
        report.violations.push(Violation::Backlog(history.backlog));
    }
    report
}

#[cfg(test)]
mod table;
#[cfg(test)]
mod tests;
