//! The views for people. The metadata topic agrees with the ledger before a task is acknowledged
//! and when all is over. It shows the end of a task once, unless the first entry may be lost, and
//! removes nothing early. A task that failed for good has a dead letter.

use super::SUBSCRIPTION;
use super::checks::{Book, Evidence, at};
use super::ledger::{Stored, Story};
use super::setting::Course;
use crate::checkers::fold::End;
use longhaul::{EntryId, TaskId, TaskMetadata, TaskOutcome, TaskState};
use longhaul_core::protocol::invariants as ids;
use longhaul_core::protocol::key::OwnerId;
use longhaul_memory::Happening;
use longhaul_transport::Message;
use longhaul_transport::moment::Moment;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// The time to read the parts of an entry while the broker is sound.
const READS: Duration = Duration::from_millis(100);

/// An entry on the metadata topic.
struct Shown {
    stored: Stored,
    /// The entry. `None`: a tombstone.
    what: Option<(TaskMetadata, Option<u32>)>,
}

/// The entries by task, in log order.
fn shown(evidence: &Evidence<'_>, book: &Book) -> BTreeMap<TaskId, Vec<Shown>> {
    let mut shown: BTreeMap<TaskId, Vec<Shown>> = BTreeMap::new();
    for (message, stored) in entries(evidence, book, &evidence.names.metadata, &evidence.partitions)
    {
        let Some(task) = message.key.as_deref().and_then(|key| key.parse().ok()) else { continue };
        let epoch = message.properties.get("epoch").and_then(|epoch| epoch.parse().ok());
        let metadata = serde_json::from_slice(&message.payload).ok().filter(|_| !message.null);
        let what = metadata.map(|metadata| (metadata, epoch));
        shown.entry(task).or_default().push(Shown { stored, what });
    }
    shown
}

/// All messages of a topic, with their times and writers.
fn entries(
    evidence: &Evidence<'_>,
    book: &Book,
    topic: &str,
    partitions: &[i32],
) -> Vec<(Message, Stored)> {
    let mut all = Vec::new();
    for partition in partitions {
        let place = at(topic, *partition);
        let name: Arc<str> = Arc::from(place.to_string());
        let stored = |message: &Message| {
            book.times.get(&(Arc::clone(&name), message.position.entry_id())).cloned()
        };
        let log = evidence.broker.full_log(&place);
        all.extend(log.into_iter().filter_map(|message| {
            let stored = stored(&message)?;
            Some((message, stored))
        }));
    }
    all
}

/// Whether an entry shows how the task ended.
fn says(shown: &Shown, story: &Story) -> bool {
    let (Some((metadata, shown_epoch)), Some((_, epoch, body)), Some(end)) =
        (&shown.what, &story.ended, story.state.end())
    else {
        return false;
    };
    let expected = match end {
        End::Completed => (TaskState::Completed, None),
        End::Final => (TaskState::Failed, Some(TaskOutcome::Final)),
        End::Cancelled => (TaskState::Failed, Some(TaskOutcome::Cancelled)),
        End::Expired => (TaskState::Failed, Some(TaskOutcome::Expired)),
    };
    let text = match end {
        End::Completed => metadata.result.as_deref().unwrap_or_default(),
        End::Final | End::Cancelled | End::Expired => {
            metadata.failure_reason.as_deref().unwrap_or_default().as_bytes()
        }
    };
    (metadata.state, metadata.outcome) == expected
        && (metadata.attempts == story.state.attempt || story.miscounted)
        && *shown_epoch == Some(*epoch)
        && text == body
}

/// Whether the metadata topic is right about an ended task: the last entry shows the end, or a
/// tombstone follows one that did.
fn is_in_order(evidence: &Evidence<'_>, entries: &[Shown], story: &Story) -> bool {
    let said = entries.iter().any(|it| says(it, story));
    match entries.last() {
        // An entry that lands after the ledger has forgotten the task stays: the ledger retention
        // is far longer than a publish takes.
        Some(last) if story.sealed.is_some_and(|sealed| last.stored.at > sealed) => said,
        Some(Shown { what: None, .. }) => said && evidence.setting.brisk,
        Some(last) => says(last, story) && !evidence.setting.brisk,
        None => false,
    }
}

/// Whether the metadata topic shows how each task ended and, where the retention is short, has
/// removed it.
pub(super) fn agrees(evidence: &Evidence<'_>, book: &Book) -> bool {
    let shown = shown(evidence, book);
    book.stories.iter().all(|(id, story)| {
        shown.get(id).is_some_and(|entries| is_in_order(evidence, entries, story))
    })
}

pub(super) fn check(evidence: &Evidence<'_>, book: &Book, found: &mut Vec<String>) {
    let shown = shown(evidence, book);
    let letters = letters(evidence, book);
    let acks = acks(evidence);
    let none = Vec::new();
    for (id, story) in &book.stories {
        let entries = shown.get(id).unwrap_or(&none);
        let mut wrong = |number: &str, what: &str| {
            let last = entries.last().map(|last| &last.what);
            let fate = story.fate();
            found
                .push(format!("{number}: task {id}: {what}; ledger {fate:?}, last shown {last:?}"));
        };
        let ended = story.ended.as_ref().map(|(at, ..)| *at);
        for entry in entries {
            if entry.is_terminal()
                && !story.miscounted
                && (ended.is_none_or(|ended| ended > entry.stored.at) || !says(entry, story))
            {
                let shown = entry.what.as_ref().map(|(metadata, _)| {
                    (metadata.state, &metadata.result, &metadata.failure_reason, metadata.attempts)
                });
                let what = format!("an end was shown that the ledger does not have: {shown:?}");
                wrong(ids::VIEW, &what);
            }
        }
        if ended.is_some() && !is_in_order(evidence, entries, story) {
            wrong(ids::VIEW, "the metadata topic is not in order");
        }
        if let Some(what) = shown_too_often(evidence, book, entries, story) {
            wrong(ids::VIEW, &what);
        }
        if let Some(what) = removed_too_soon(evidence, entries) {
            wrong(ids::VIEW, &what);
        }
        let letter = letters.get(id);
        let fails = story.state.end() == Some(End::Final);
        if letter.is_some() && !fails {
            wrong(ids::DEAD_LETTER, "it has a dead letter");
        }
        let told = entries.iter().find(|entry| says(entry, story)).filter(|_| fails);
        if told.is_some_and(|told| letter.is_none_or(|letter| *letter > told.stored.at)) {
            wrong(ids::DEAD_LETTER, "its end was shown before its dead letter was stored");
        }
        let name: Arc<str> = Arc::from(at(&evidence.names.task, id.partition).to_string());
        let Some(acked) = acks.get(&(name, id.entry_id())) else { continue };
        if ended.is_none_or(|ended| ended > *acked) {
            wrong(ids::ACK, "acknowledged before its end");
        }
        if !entries.iter().any(|entry| entry.stored.at <= *acked && says(entry, story)) {
            wrong(ids::VIEW, "acknowledged before its end was shown");
        }
        if fails && letter.is_none_or(|letter| letter > acked) {
            wrong(ids::DEAD_LETTER, "acknowledged before its dead letter was stored");
        }
    }
}

impl Shown {
    fn is_terminal(&self) -> bool {
        self.what.as_ref().is_some_and(|(metadata, _)| metadata.is_terminal())
    }
}

/// Checks that the end of a task is shown once, unless the first entry may be lost: the worker that
/// ended the task had been silent for 2 heartbeat intervals, or it has fenced itself and does not
/// know what it showed before. Applies where the broker is sound, so that every entry is stored and
/// reaches all readers.
fn shown_too_often(
    evidence: &Evidence<'_>,
    book: &Book,
    entries: &[Shown],
    story: &Story,
) -> Option<String> {
    let setting = evidence.setting;
    if !matches!(setting.course, Course::Calm | Course::Crashes) {
        return None;
    }
    let again = entries.windows(2).find(|pair| pair.iter().all(Shown::is_terminal))?;
    let [first, again] = again else { return None };
    let owner = story.state.owner;
    let heard = book.owners.values().filter_map(|owners| owners.get(&owner)).flat_map(|it| &it.1);
    // The body and the payload are read before the end is shown again. A sign of life of the owner
    // in between comes too late.
    let before = again.stored.sent;
    let last = heard.copied().filter(|at| *at + READS <= before).max().unwrap_or_default();
    // The owner's clock and the reader's clock may each be fast by 2 %.
    let silence = before.since(last).mul_f64(1.05);
    let (one, other) = (&first.stored.by, &again.stored.by);
    let is_silent = silence >= 2 * setting.heartbeat;
    let may_be_lost = setting.course == Course::Crashes
        && (is_silent || one == other && has_fenced_itself(book, owner, one, before));
    (!may_be_lost).then(|| {
        format!("its end was shown twice, by {one} and by {other}, {silence:?} after its owner was heard")
    })
}

/// Whether this process, whose owner id this was, has shown a sign of life under another one before.
fn has_fenced_itself(book: &Book, owner: OwnerId, process: &Arc<str>, before: Moment) -> bool {
    book.owners.values().filter(|owners| owners.contains_key(&owner)).any(|owners| {
        let mut others = owners.iter().filter(|(id, _)| **id != owner);
        others.any(|(_, (name, heard))| name == process && heard.iter().any(|at| *at < before))
    })
}

/// Checks that a task leaves the metadata topic only after its retention, counted from the writing
/// of its entry, which may have been in flight for long. Does not apply with wrong wall clocks: two
/// workers that are ahead confirm each other.
fn removed_too_soon(evidence: &Evidence<'_>, entries: &[Shown]) -> Option<String> {
    if evidence.setting.skewed {
        return None;
    }
    // Stamps are in whole milliseconds.
    let retention = evidence.setting.retention.mul_f64(0.99);
    let first = entries.iter().find(|entry| entry.is_terminal())?;
    let gone = |entry: &&Shown| entry.what.is_none() && entry.stored.at > first.stored.at;
    let removed = entries.iter().find(gone)?;
    let (metadata, _) = first.what.as_ref()?;
    let stood = removed.stored.at.since(evidence.at_ms(metadata.last_updated));
    (stood < retention).then(|| format!("its end left the metadata topic after {stood:?}"))
}

/// The time when the first dead letter of each task was stored.
fn letters(evidence: &Evidence<'_>, book: &Book) -> BTreeMap<TaskId, Moment> {
    let mut letters = BTreeMap::new();
    for (message, stored) in entries(evidence, book, &evidence.names.dead_letters, &[-1]) {
        if let Some(task) = message.key.as_deref().and_then(|key| key.parse().ok()) {
            letters.entry(task).or_insert(stored.at);
        }
    }
    letters
}

/// The time of the first ack of each entry of the task topic.
fn acks(evidence: &Evidence<'_>) -> BTreeMap<(Arc<str>, EntryId), Moment> {
    let mut acks = BTreeMap::new();
    evidence.broker.with_history(|history| {
        for event in history.events() {
            if let Happening::Acked { partition, entry, subscription, .. } = &event.what
                && **subscription == *SUBSCRIPTION
            {
                acks.entry((Arc::clone(partition), *entry)).or_insert(event.at);
            }
        }
    });
    acks
}

/// The number of tasks that have left the metadata topic.
pub(super) fn gone(evidence: &Evidence<'_>) -> usize {
    let mut gone = BTreeSet::new();
    for partition in &evidence.partitions {
        let log = evidence.broker.full_log(&at(&evidence.names.metadata, *partition));
        gone.extend(log.into_iter().filter(|message| message.null).filter_map(|it| it.key));
    }
    gone.len()
}
