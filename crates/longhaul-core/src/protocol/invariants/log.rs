//! Checks the invariants on a ledger and its metadata topic: used by chaos tests, by the audits at
//! the end of tests, and by `Queue::verify`.
//!
//! The ledger is read first, in log order, and then the metadata topic. Nothing is judged that the
//! remaining logs cannot prove: if the first entries of a task were swept, it is unknown which of
//! the others were accepted.

use super::{
    AFTER, Breach, CANCEL, COMPACTION, DUE, KEYS, OUTCOME, OWNER, START, VIEW, Violation, sealing,
    showing,
};
use crate::protocol::entry::{Claim, ClaimKind, Done, Entry};
use crate::protocol::entry_set::EntrySet;
use crate::protocol::fold::{Phase, TaskFold, Verdict};
use crate::protocol::key::{Epoch, Key, OnceKey, OwnerId};
use crate::protocol::waits::{DependencyName, WaitsFor};
use crate::task::{Position, TaskId};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// Remembers every published key, for C-02. Keys that are shared on purpose do not count, nor do
/// tombstones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeysUsed(BTreeSet<Key>);

impl KeysUsed {
    /// Handles the next publish of any writer.
    pub fn published(&mut self, entry: &Entry) -> Option<Violation> {
        let key = match (entry, entry.key()) {
            (Entry::Tombstone(_) | Entry::Renewal(_), _) => return None,
            (_, key @ (Key::Once(_) | Key::Seal(_))) => key,
            (_, Key::Cancel(_) | Key::Heartbeat(_) | Key::Config(_)) => return None,
        };
        let what = "a write-once key was used again";
        (!self.0.insert(key)).then_some(Violation { id: KEYS, what, task: entry.task() })
    }
}

/// An entry that breaks an invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryViolation {
    /// The invariant and the step.
    pub violation: Violation,
    /// Position of the entry.
    pub at: EntryLocation,
    /// Figures, if there are any.
    pub detail: String,
}

/// A place in one of the logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EntryLocation {
    /// On the ledger.
    Ledger(Position),
    /// On the metadata topic.
    Metadata(Position),
}

/// The facts in an entry of the metadata topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataEntry {
    /// The task.
    pub task: TaskId,
    /// Its epoch, if the entry has one. Entries of other implementations have none, and are not
    /// judged.
    pub epoch: Option<Epoch>,
    /// The publisher.
    pub owner: Option<OwnerId>,
    /// The phase shown.
    pub phase: Phase,
    /// Number of attempts.
    pub attempts: u32,
    /// Time of the task's first claim, in ms since the epoch.
    pub created_ms: u64,
    /// The [`fingerprint`] of the result or, for a failure, of its reason.
    pub body: u64,
}

/// A hash of a body: two different ones have the same hash once in 2^64.
#[must_use]
pub fn fingerprint(body: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    body.hash(&mut hasher);
    hasher.finish()
}

/// The state of the tasks as a reader of the compacted ledger computes it.
#[derive(Clone, Debug, Default)]
pub struct CompactedFolds {
    /// The last entry read.
    horizon: Option<Position>,
    folds: BTreeMap<TaskId, TaskFold>,
    sealed: EntrySet,
}

impl CompactedFolds {
    /// Handles the next entry of the compacted view.
    pub fn read(&mut self, at: Position, entry: &Entry) {
        self.horizon = self.horizon.max(Some(at));
        if let Entry::Seal(seal) = entry {
            self.sealed.extend(&seal.entries);
        }
        if let Some(task) = entry.task() {
            self.folds.entry(task).or_default().apply(entry);
        }
    }
}

/// Judges the logs of a partition. See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct LogJudge {
    keys: KeysUsed,
    tasks: BTreeMap<TaskId, TaskTrace>,
    sealed: EntrySet,
    /// To compare with the log when it was read as far.
    compacted: Option<CompactedFolds>,
    /// The heartbeat interval on the ledger: no clock is further ahead or behind than that.
    heartbeat: Option<Duration>,
    /// Number of metadata entries that came after one of a higher epoch.
    late: usize,
    findings: Vec<EntryViolation>,
}

/// The logs' record of a task.
#[derive(Clone, Debug, Default)]
struct TaskTrace {
    fold: TaskFold,
    /// Entries before the first one read are gone, and no claim with a base replaces them.
    has_gap: bool,
    /// Some of its entries come from before the beginning of the log, where others may be gone.
    is_kept: bool,
    cancelled: bool,
    /// Its dependencies.
    waits: Option<WaitsFor>,
    /// The accepted owner of each epoch, and whether a cancel had been requested before.
    owners: Vec<(Epoch, OwnerId, bool)>,
    /// The epoch that ended it, and the fingerprint of its body.
    end: Option<(Epoch, u64)>,
    created_ms: Option<u64>,
    /// The last entry shown, `None` for a tombstone; below, the highest epoch shown.
    last_shown: Option<(Position, Option<MetadataEntry>)>,
    highest_shown: Epoch,
}

impl TaskTrace {
    /// Whether the log covers this epoch, accepted or not.
    fn tells_of(&self, epoch: Epoch) -> bool {
        let first = self.owners.first();
        !self.has_gap && first.is_none_or(|(first, ..)| epoch >= *first || *first == Epoch(1))
    }

    fn accepted(&self, epoch: Epoch) -> Option<(OwnerId, bool)> {
        let found = self.owners.iter().find(|(accepted, ..)| *accepted == epoch);
        found.map(|(_, owner, cancelled)| (*owner, *cancelled))
    }
}

impl LogJudge {
    /// A judge that also compares the compacted ledger with the log.
    #[must_use]
    pub fn comparing(compacted: CompactedFolds) -> Self {
        Self { compacted: Some(compacted), ..Self::default() }
    }

    /// Handles an entry from before the beginning of the log: compaction has kept it, and others
    /// beside it may be gone.
    pub fn read_kept(&mut self, at: Position, entry: &Entry, body: &[u8], published_ms: u64) {
        if let Some(task) = entry.task() {
            let compacted = self.compacted.as_ref();
            let sealed =
                compacted.is_some_and(|compacted| compacted.sealed.get(task.entry_id()).is_some());
            let followed = self.tasks.entry(task).or_default();
            followed.is_kept = true;
            if sealed {
                // Some of its keys may be gone.
                followed.has_gap = true;
                return;
            }
        }
        self.read(at, entry, body, published_ms);
    }

    /// Handles the next entry of the ledger, with the content of its body and its publish time.
    /// Returns the verdict of the fold.
    pub fn read(
        &mut self,
        at: Position,
        entry: &Entry,
        body: &[u8],
        published_ms: u64,
    ) -> Option<Verdict> {
        if self.compacted.as_ref().is_some_and(|compacted| Some(at) > compacted.horizon) {
            self.compare();
        }
        if let Some(violation) = self.keys.published(entry) {
            self.find(violation, EntryLocation::Ledger(at), String::new());
        }
        match entry {
            Entry::Seal(seal) => {
                self.seal(at, &seal.entries);
                None
            }
            Entry::Config(config) => {
                self.heartbeat = Some(config.heartbeat);
                None
            }
            Entry::Heartbeat(_) | Entry::Tombstone(_) => None,
            Entry::Claim(_)
            | Entry::Done(_)
            | Entry::Cancel(_)
            | Entry::Checkpoint(_)
            | Entry::Renewal(_) => {
                let task = entry.task()?;
                Some(self.fold(task, at, entry, body, published_ms))
            }
        }
    }

    fn fold(
        &mut self,
        task: TaskId,
        at: Position,
        entry: &Entry,
        body: &[u8],
        published_ms: u64,
    ) -> Verdict {
        let slack = self.heartbeat;
        let followed = self.tasks.entry(task).or_default();
        let before = followed.fold;
        let is_first = |claim: &Claim| claim.key.epoch == Epoch(1) || claim.base.is_some();
        let begins = matches!(entry, Entry::Claim(claim) if is_first(claim))
            || matches!(entry, Entry::Cancel(_));
        if matches!(entry, Entry::Claim(claim) if claim.base.is_some()) {
            followed.has_gap = false;
        } else {
            followed.has_gap |= before.epoch == Epoch(0) && !begins;
        }
        let verdict = followed.fold.apply(entry);
        let accepted = verdict == Verdict::Accepted;
        let waited = followed.waits.take_if(|_| accepted && !matches!(entry, Entry::Cancel(_)));
        if accepted && followed.fold.is_parked() && !matches!(entry, Entry::Cancel(_)) {
            followed.waits = WaitsFor::of_content(body);
        }
        let mut broken = None;
        match (entry, verdict) {
            (Entry::Claim(claim), Verdict::Accepted) => {
                let Claim { key, kind, .. } = claim;
                if *kind == ClaimKind::Run {
                    followed.owners.push((key.epoch, key.owner, followed.cancelled));
                    broken = early(&before, published_ms, slack);
                } else if kind.closes() {
                    followed.end = Some((key.epoch, fingerprint(body)));
                }
            }
            (Entry::Cancel(_), _) => followed.cancelled = true,
            (Entry::Done(Done { key, .. }) | Entry::Checkpoint(key), _) => {
                if verdict == Verdict::Accepted && followed.fold.phase.is_terminal() {
                    followed.end = Some((key.epoch, fingerprint(body)));
                }
                broken = never_owned(followed, key);
            }
            _ => {}
        }
        if let Some((Breach { id, what }, detail)) = broken {
            self.find(Violation { id, what, task: Some(task) }, EntryLocation::Ledger(at), detail);
        }
        let runs = matches!(entry, Entry::Claim(claim) if matches!(claim.kind, ClaimKind::Run | ClaimKind::Offer(_)));
        if let Some(first) = waited.filter(|_| runs).and_then(|waited| self.not_over(&waited)) {
            let what = "a task is claimed before one that it waits for is over";
            let violation = Violation { id: AFTER, what, task: Some(task) };
            self.find(violation, EntryLocation::Ledger(at), format!("task {first}"));
        }
        verdict
    }

    /// C-24: an awaited task that this log shows to be open. Tasks of other partitions are on other
    /// logs, and the log does not show whether an unclaimed task exists.
    fn not_over(&self, waited: &WaitsFor) -> Option<TaskId> {
        let ids = waited.names.iter().filter_map(|name| match name {
            DependencyName::Task(id) => Some(*id),
            DependencyName::Key(_) => None,
        });
        let is_open = |id: &TaskId| {
            let known =
                self.tasks.get(id).filter(|task| !task.has_gap && task.fold.epoch != Epoch(0));
            let open = known.is_some_and(|task| !task.fold.phase.is_terminal());
            open && self.sealed.get(id.entry_id()).is_none()
        };
        ids.into_iter().find(is_open)
    }

    /// C-18: the log must show that the tasks of a seal have ended.
    fn seal(&mut self, at: Position, entries: &EntrySet) {
        let mut early = Vec::new();
        for range in entries.ranges() {
            for (task, followed) in self.tasks.range(range.tasks()) {
                let sealed = self.sealed.get(task.entry_id()).is_some();
                if !followed.has_gap && !sealed {
                    early.extend(sealing(followed.fold.phase).err().map(|breach| (*task, breach)));
                }
            }
        }
        for (task, Breach { id, what }) in early {
            self.find(
                Violation { id, what, task: Some(task) },
                EntryLocation::Ledger(at),
                String::new(),
            );
        }
        self.sealed.extend(entries);
    }

    /// C-01: a reader of the compacted view computes the same state as a reader of the log, except
    /// for sealed tasks.
    fn compare(&mut self) {
        let Some(compacted) = self.compacted.take() else { return };
        let Some(horizon) = compacted.horizon else { return };
        let tasks: BTreeSet<TaskId> =
            self.tasks.keys().chain(compacted.folds.keys()).copied().collect();
        for task in tasks {
            let is_sealed = compacted.sealed.get(task.entry_id()).is_some();
            let log = self.tasks.get(&task).cloned().unwrap_or_default();
            // A compaction keeps only the last of several cancel requests for a task. It may be
            // after the position read.
            let bare = |fold: TaskFold| TaskFold { cancel: false, ..fold };
            let left = bare(compacted.folds.get(&task).copied().unwrap_or_default());
            if !is_sealed && !log.has_gap && left != bare(log.fold) {
                let what = "the compacted ledger makes something else of the task";
                let violation = Violation { id: COMPACTION, what, task: Some(task) };
                let detail = format!("{left:?} is left of {:?}", log.fold);
                self.find(violation, EntryLocation::Ledger(horizon), detail);
            }
        }
    }

    /// Handles the next entry of the metadata topic, after the ledger was read.
    pub fn shown(&mut self, at: Position, entry: &MetadataEntry) {
        self.compare();
        let MetadataEntry { task, epoch, created_ms, .. } = *entry;
        let sealed = self.sealed.get(task.entry_id()).is_some();
        let followed = self.tasks.entry(task).or_default();
        followed.last_shown = Some((at, Some(*entry)));
        let Some(epoch) = epoch else { return };
        let changed = *followed.created_ms.get_or_insert(created_ms) != created_ms;
        let late = epoch < followed.highest_shown;
        followed.highest_shown = followed.highest_shown.max(epoch);
        self.late += usize::from(late);
        // Nothing is left of a sealed task, or its earlier entries are unknown.
        let is_told = followed.fold.epoch != Epoch(0) || !sealed;
        let broken =
            if is_told && followed.tells_of(epoch) { shown_wrong(followed, entry) } else { None };
        let place = EntryLocation::Metadata(at);
        if changed {
            self.find(
                Violation { id: VIEW, what: CREATED_CHANGED, task: Some(task) },
                place,
                String::new(),
            );
        }
        if let Some((Breach { id, what }, detail)) = broken {
            self.find(Violation { id, what, task: Some(task) }, place, detail);
        }
    }

    /// Handles the removal of a task's entry.
    pub fn evicted(&mut self, at: Position, task: TaskId) {
        let followed = self.tasks.entry(task).or_default();
        followed.last_shown = Some((at, None));
        followed.created_ms = None;
    }

    /// Number of metadata entries that came after one of a higher epoch.
    #[must_use]
    pub const fn late(&self) -> usize {
        self.late
    }

    /// Number of tasks in the logs.
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.tasks.len()
    }

    /// All findings, after everything was read.
    #[must_use]
    pub fn finish(mut self) -> Vec<EntryViolation> {
        self.compare();
        self.findings
    }

    fn find(&mut self, violation: Violation, at: EntryLocation, detail: String) {
        self.findings.push(EntryViolation { violation, at, detail });
    }
}

/// Finding: entries of a task differ in `created`.
pub const CREATED_CHANGED: &str = "the time at which the task was claimed first has changed";

/// Finding: an end is shown that is not on the ledger.
pub const VIEW_AHEAD: &str = "the view shows an end that the ledger does not have";

type Broken = Option<(Breach, String)>;

/// C-23: a claim of a task whose next attempt is not due. The clocks of the claimer and of the one
/// before may differ by up to one heartbeat interval.
fn early(before: &TaskFold, published_ms: u64, slack: Option<Duration>) -> Broken {
    let slack_ms = u64::try_from(slack?.as_millis()).unwrap_or(u64::MAX);
    let due_ms = before.next_attempt.at_ms;
    let is_early = before.phase == Phase::Retry && published_ms.saturating_add(slack_ms) < due_ms;
    let detail = || format!("claimed at {published_ms}, due at {due_ms}");
    let what = "a failed task is claimed before its next attempt is due";
    is_early.then(|| (Breach { id: DUE, what }, detail()))
}

/// C-22: an outcome or a checkpoint of an epoch that its owner never had.
fn never_owned(followed: &TaskTrace, key: &OnceKey) -> Broken {
    let owns = followed.accepted(key.epoch).is_some_and(|(owner, _)| owner == key.owner);
    let what = "an outcome is published of an epoch that is not the worker's own";
    (followed.tells_of(key.epoch) && !followed.is_kept && !owns)
        .then(|| (Breach { id: OUTCOME, what }, format!("epoch {} by {}", key.epoch, key.owner)))
}

/// Checks a metadata entry against the ledger: C-03, C-04, C-10, C-11.
fn shown_wrong(followed: &TaskTrace, entry: &MetadataEntry) -> Broken {
    let epoch = entry.epoch?;
    let broken = |id, what, detail| Some((Breach { id, what }, detail));
    if entry.phase.is_terminal() {
        let end = followed.end.map(|(epoch, _)| epoch);
        if end != Some(epoch) || showing(&followed.fold, entry.phase).is_err() {
            let detail = format!("{:?} in epoch {epoch}, ended in {end:?}", entry.phase);
            return broken(VIEW, VIEW_AHEAD, detail);
        }
        return None;
    }
    if entry.phase != Phase::Running {
        return None;
    }
    let detail = format!("epoch {epoch}, attempt {}", entry.attempts);
    match (followed.accepted(epoch), entry.owner) {
        (None, _) if followed.is_kept => None,
        (None, _) => {
            broken(START, "a task is shown as running in an epoch that nobody had", detail)
        }
        (Some((owner, _)), Some(other)) if owner != other => {
            broken(OWNER, "an epoch is shown as running by another owner", detail)
        }
        (Some((_, true)), _) => broken(CANCEL, "a cancelled task starts", detail),
        _ => None,
    }
}

/// Checks for the project's own tests, which know all tasks and when everything is at rest.
impl LogJudge {
    /// Registers a submitted task: a seal that names it must find its end on the ledger.
    pub fn submitted(&mut self, task: TaskId) {
        self.tasks.entry(task).or_default();
    }

    /// Checks at rest that the last metadata entry of each ended task shows its end. Returns a
    /// description of each that does not.
    #[must_use]
    pub fn unshown(&self) -> Vec<(TaskId, String)> {
        let differs = self.tasks.iter().filter_map(|(task, followed)| {
            let (epoch, body) = followed.end?;
            let how = match &followed.last_shown {
                None => "nothing is shown".to_owned(),
                Some((_, None)) => "a tombstone is last".to_owned(),
                Some((_, Some(shown))) => difference(shown, &followed.fold, epoch, body)?,
            };
            Some((*task, how))
        });
        differs.collect()
    }

    /// Findings since the last call.
    pub fn take_findings(&mut self) -> Vec<EntryViolation> {
        self.compare();
        std::mem::take(&mut self.findings)
    }
}
/// How the last entry of a task differs from the ledger; `None` if it does not.
fn difference(shown: &MetadataEntry, fold: &TaskFold, epoch: Epoch, body: u64) -> Option<String> {
    if shown.epoch != Some(epoch) {
        let shown = shown.epoch.map(|epoch| epoch.0);
        return Some(format!("epoch {shown:?} is shown, {epoch} ended it"));
    }
    let (phase, ended) = (shown.phase, fold.phase);
    if let Err(breach) = super::showing_end(fold, phase, true) {
        return Some(format!("{phase:?} is shown, the ledger says {ended:?}: {}", breach.what));
    }
    if shown.attempts != fold.attempt {
        let (attempts, expected) = (shown.attempts, fold.attempt);
        return Some(format!("{attempts} attempts are shown, the ledger says {expected}"));
    }
    (shown.body != body).then(|| "another result is shown".to_owned())
}

#[cfg(test)]
mod tests;
