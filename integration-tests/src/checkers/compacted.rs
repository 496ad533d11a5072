//! C-01: what compaction has left of a ledger makes of each task what the whole ledger makes of it.

use super::fold::State;
use super::{History, LedgerEntry, Violation};
use bytes::Bytes;
use longhaul::protocol::entry::Entry;
use longhaul::{EntryId, TaskId};
use std::collections::{BTreeMap, BTreeSet};

/// The compacted view of the ledger, read before the whole of it.
#[derive(Clone, Debug)]
pub struct Compacted {
    /// The last entry that there was when the compaction began: all up to it has been compacted.
    pub horizon: EntryId,
    /// What a reader of the view gets, in log order.
    pub ledger: Vec<LedgerEntry>,
}

/// What a reader makes of a task: its state, whether its end was asked for, and the body of the last entry that counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Made {
    state: State,
    cancelled: bool,
    body: Bytes,
}

pub(super) fn check(history: &History, compacted: &Compacted) -> Vec<Violation> {
    let retired = retired(&history.ledger);
    let mut expected = fold(&history.ledger, compacted.horizon);
    let mut found = fold(&compacted.ledger, compacted.horizon);
    expected.retain(|task, _| !retired.contains(task));
    found.retain(|task, _| !retired.contains(task));
    let tasks: BTreeSet<TaskId> = expected.keys().chain(found.keys()).copied().collect();
    let differs = tasks.into_iter().filter(|task| expected.get(task) != found.get(task));
    let told = differs.map(|task| {
        let show =
            |made: Option<&Made>| made.map_or_else(|| "nothing".to_owned(), |it| format!("{it:?}"));
        let (expected, found) = (show(expected.get(&task)), show(found.get(&task)));
        Violation::CompactionDiffers(task, format!("{found} is left of {expected}"))
    });
    told.collect()
}

/// How many entries of the ledger compaction has taken out of the view, up to its horizon.
pub(super) fn removed(history: &History, compacted: &Compacted) -> usize {
    let count = |entries: &[LedgerEntry]| until(entries, compacted.horizon).count();
    count(&history.ledger).saturating_sub(count(&compacted.ledger))
}

/// Tasks whose keys were taken away on purpose: what is left of them proves nothing.
fn retired(whole: &[LedgerEntry]) -> BTreeSet<TaskId> {
    let tombstone = |message: &LedgerEntry| match &message.entry {
        Ok(entry @ Entry::Tombstone(_)) => entry.task(),
        Ok(_) | Err(_) => None,
    };
    whole.iter().filter_map(tombstone).collect()
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
    // Of several requests for the same end only the last is kept, and that may lie behind the horizon.
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
