//! C-01: the compacted ledger gives each task the same state as the whole ledger. If compaction has
//! lost the last entry of a key, only that loss is reported for its task.

use super::fold::State;
use super::{History, LedgerEntry, Violation};
use bytes::Bytes;
use longhaul::{EntryId, Position, TaskId};
use longhaul_core::protocol::entry::Entry;
use longhaul_core::protocol::entry_set::EntrySet;
use std::collections::{BTreeMap, BTreeSet};

/// The compacted view of the ledger, read before the whole of it.
#[derive(Clone, Debug)]
pub struct Compacted {
    /// The last entry at the beginning of the compaction: everything up to it was compacted.
    pub horizon: EntryId,
    /// The entries that a reader of the view gets, in log order.
    pub ledger: Vec<LedgerEntry>,
}

/// The state that a reader computes for a task, whether a cancel was requested, and the body of the
/// last entry that counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Made {
    state: State,
    cancelled: bool,
    body: Bytes,
}

pub(super) fn check(history: &History, compacted: &Compacted) -> Vec<Violation> {
    let sealed = sealed(&compacted.ledger);
    let lost = lost(history, compacted, &sealed);
    let spoiled: BTreeSet<TaskId> =
        lost.iter().filter_map(|message| message.entry.as_ref().ok()?.task()).collect();
    let expected = fold(&history.ledger, compacted.horizon);
    let found = fold(&compacted.ledger, compacted.horizon);
    let tasks: BTreeSet<TaskId> = expected.keys().chain(found.keys()).copied().collect();
    let tasks = tasks.difference(&spoiled).copied();
    let same = |task: &TaskId| {
        match sealed.get(task.entry_id()) {
            // Some or all of its keys may be gone. A seal is valid only for a task that has ended.
            Some(_) => expected.get(task).is_some_and(|made| made.state.end().is_some()),
            None => expected.get(task) == found.get(task),
        }
    };
    let differs = tasks.filter(|task| !same(task));
    let told = differs.map(|task| {
        let show =
            |made: Option<&Made>| made.map_or_else(|| "nothing".to_owned(), |it| format!("{it:?}"));
        let (expected, found) = (show(expected.get(&task)), show(found.get(&task)));
        Violation::CompactionDiffers(task, format!("{found} is left of {expected}"))
    });
    let lost = lost.iter().map(|message| Violation::CompactionLost(message.position));
    lost.chain(told).collect()
}

/// The last entries of their keys, up to the horizon, that are missing from the view: this is not
/// compaction, whatever the keys mean. Those of sealed tasks may be gone.
fn lost<'a>(
    history: &'a History,
    compacted: &Compacted,
    sealed: &EntrySet,
) -> Vec<&'a LedgerEntry> {
    let is_sealed =
        |entry: &Entry| entry.task().is_some_and(|task| sealed.get(task.entry_id()).is_some());
    let last: BTreeMap<&str, &LedgerEntry> =
        history.ledger.iter().map(|message| (message.key.as_str(), message)).collect();
    let shown: BTreeSet<Position> = compacted.ledger.iter().map(|it| it.position).collect();
    let mut lost: Vec<&LedgerEntry> = last.into_values().collect();
    lost.retain(|message| {
        message.position.entry_id() <= compacted.horizon
            && !message.key.is_empty()
            && !matches!(message.entry, Ok(Entry::Tombstone(_)))
            && !message.entry.as_ref().is_ok_and(is_sealed)
            && !shown.contains(&message.position)
    });
    lost.sort_by_key(|message| message.position);
    lost
}

/// The entries sealed by the seals that a reader of the view gets, before the horizon or behind it.
fn sealed(view: &[LedgerEntry]) -> EntrySet {
    let mut all = EntrySet::default();
    for message in view {
        if let Ok(Entry::Seal(seal)) = &message.entry {
            all.extend(&seal.entries);
        }
    }
    all
}

/// Number of ledger entries that compaction has removed from the view, up to its horizon.
pub(super) fn removed(history: &History, compacted: &Compacted) -> usize {
    let count = |entries: &[LedgerEntry]| until(entries, compacted.horizon).count();
    count(&history.ledger).saturating_sub(count(&compacted.ledger))
}

fn until(entries: &[LedgerEntry], horizon: EntryId) -> impl Iterator<Item = &LedgerEntry> {
    entries.iter().take_while(move |message| message.position.entry_id() <= horizon)
}

fn fold(entries: &[LedgerEntry], horizon: EntryId) -> BTreeMap<TaskId, Made> {
    let mut tasks: BTreeMap<TaskId, Made> = BTreeMap::new();
    for message in until(entries, horizon) {
        let Ok(entry) = &message.entry else { continue };
        let Some(task) = entry.task().filter(|_| !matches!(entry, Entry::Tombstone(_))) else {
            continue;
        };
        let made = tasks.entry(task).or_default();
        let counts = made.state.take(entry);
        if matches!(entry, Entry::Cancel(_)) {
            made.cancelled = true;
        } else if counts {
            made.body = message.body.clone();
        }
    }
    // A compaction keeps only the last of several cancel requests for a task. It may be after the
    // horizon.
    let later = entries.iter().filter(|message| message.position.entry_id() > horizon);
    for message in later {
        if let Ok(Entry::Cancel(task)) = &message.entry
            && let Some(made) = tasks.get_mut(task)
        {
            made.cancelled = true;
        }
    }
    tasks
}
