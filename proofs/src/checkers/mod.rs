//! The conditions that every run must meet: a pure judgement over the whole ledger, the whole
//! metadata topic, and the workers' records of the attempts that they really ran.
//!
//! The rules are the library's invariants, each with its number
//! (`longhaul_core::protocol::invariants`). They are applied to a fold of the checkers' own
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

/// The data of a finished run.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The tasks on the task topic.
    pub tasks: Vec<TaskId>,
    /// The ledger, uncompacted, in log order.
    pub ledger: Vec<LedgerEntry>,
    /// The entries that a reader of the compacted ledger gets; `None` if it was not read.
    pub compacted: Option<Compacted>,
    /// The metadata topic, uncompacted, in log order.
    pub view: Vec<ViewEntry>,
    /// The attempts that the workers ran.
    pub runs: Vec<Run>,
    /// Maximum attempts of a task.
    pub max_attempts: u32,
    /// Number of messages that the subscription has not acknowledged.
    pub backlog: u64,
}

/// A message of the ledger.
#[derive(Clone, Debug)]
pub struct LedgerEntry {
    /// Its position.
    pub position: Position,
    /// Its key.
    pub key: String,
    /// The entry, or why it cannot be read.
    pub entry: Result<Entry, String>,
    /// Its body.
    pub body: Bytes,
    /// Publish time, by its producer's wall clock.
    pub publish_time_ms: u64,
}

/// A message of the metadata topic.
#[derive(Clone, Debug)]
pub struct ViewEntry {
    /// Its position.
    pub position: Position,
    /// Its key.
    pub key: String,
    /// The epoch of the entry.
    pub epoch: Option<u32>,
    /// The publisher.
    pub owner: Option<OwnerId>,
    /// The entry; `None` for a tombstone or an unreadable one.
    pub metadata: Option<TaskMetadata>,
    /// Publish time, by its producer's wall clock.
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
    /// When it ended or was dropped; `None` if it died with its process.
    pub ended_us: Option<u64>,
}

/// A violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// An invariant that is checked on a state or on the task's history.
    Broken(ids::Violation),
    /// The task never ended.
    Lost(TaskId),
    /// A task on the ledger is not on the task topic.
    Unheard(TaskId),
    /// The library's fold and the checker's differ after the entry at this position.
    FoldsDiffer(TaskId, Position),
    /// The compacted ledger gives the task another state.
    CompactionDiffers(TaskId, String),
    /// The compacted ledger lacks this entry, the last one of its key.
    CompactionLost(Position),
    /// A message of the ledger is no entry.
    Malformed(Position, String),
    /// The last entry on the metadata topic differs from the ledger.
    ViewDiffers(TaskId, String),
    /// The metadata topic showed an end that the ledger never had.
    ViewAhead(TaskId, u32),
    /// `created` of a task changed.
    CreatedChanged(TaskId),
    /// Messages of the subscription were never acknowledged.
    Backlog(u64),
}

impl Violation {
    /// The invariant's number.
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

/// The violation of an invariant by a task.
const fn broken(Breach { id, what }: Breach, task: TaskId) -> Violation {
    Violation::Broken(ids::Violation { id, what, task: Some(task) })
}

/// The findings of the checkers, and some figures.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Seals on the ledger.
    pub seals: usize,
    /// Empty if there are no violations.
    pub violations: Vec<Violation>,
    /// Tasks that completed.
    pub completed: usize,
    /// Tasks that ended otherwise.
    pub failed: usize,
    /// Accepted claims that run an attempt.
    pub claims: usize,
    /// Accepted claims beyond the first of their task, after neither a failure nor a release: an
    /// owner fell silent.
    pub takeovers: usize,
    /// Claims that ran with a base.
    pub bases: usize,
    /// Attempts given back.
    pub released: usize,
    /// The highest attempt of any task.
    pub attempt_max: u32,
    /// The highest epoch of any task.
    pub epoch_max: u32,
    /// Ledger entries without effect, by reason.
    pub ignored: BTreeMap<String, usize>,
    /// Number of entries that compaction removed from the ledger's view, if it was read.
    pub compacted_away: Option<usize>,
    /// Entries on the metadata topic that came after one of a higher epoch: a zombie's.
    pub late_on_view: usize,
    /// Pairs of attempts of one task that ran at the same time.
    pub overlaps: usize,
    /// The final state of each task.
    pub folds: BTreeMap<TaskId, TaskFold>,
}

/// Judges a history.
#[must_use]
pub fn check(history: &History) -> Report {
    check_by(history, TaskFold::apply)
}

/// Judges by any fold, so that tests can use a broken one.
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
