//! Creates a new data directory from the readable data of a damaged one.

use super::reading::{self, SalvageReading, numbers_after};
use super::report::RescueReport;
use super::{RescueError, UNFINISHED, make_outside, open_any, refused, views};
use crate::compaction::rebuild;
use crate::compaction::run::next_chunk;
use crate::log::{
    self, BrokerLog, Composer, FileStorage, LogOptions, RecordHead, RecordKind, RecordLocation,
    ReplayedItem, Storage, WriteError,
};
use crate::state::PIECE_BYTES;
use crate::state::change::{ChangeRecord, StateChange};
use crate::state::entries::EntryPosition;
use crate::state::entry::EntryHead;
use prost::Message as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

/// Bytes per write.
const GROUP_BYTES: usize = 4 * 1024 * 1024;
/// Larger than every message that a broker accepts.
const BODY_BYTES_MAX: u32 = 1 << 30;

/// Creates a new data directory from everything that is readable in a damaged one, which is not
/// changed. Messages keep their ids, and no new message gets the id of a lost one. It may be one of
/// a restore that has not ended.
///
/// # Errors
/// See [`RescueError`].
pub fn salvage(directory: &Path, new: &Path) -> Result<RescueReport, RescueError> {
    let (storage, _lock) = open_any(directory)?;
    make_outside(directory, new)?;
    let mut read = reading::read(&storage).map_err(|source| refused(directory, source))?;
    if storage.open(UNFINISHED).is_ok() {
        read.apply(numbers_after(&read.state));
    }
    let damaged = views::check(&read.state, &*storage);
    let damaged = damaged.map_err(|source| refused(directory, source))?;
    let mut report = RescueReport::new(directory, &read, &damaged);
    let io = |source| RescueError::Io { what: format!("make {}", new.display()), source };
    let to: Arc<dyn Storage> = Arc::new(FileStorage::new(new).map_err(io)?);
    let unreadable = write(&mut read, &to).map_err(|source| match source {
        Failed::Open(source) => refused(new, source),
        Failed::Write(source) => RescueError::Write { path: new.to_owned(), source },
    })?;
    for (position, topic) in unreadable {
        let EntryPosition { ledger, entry } = position;
        report.note(format!(
            "Message {ledger}:{entry} of {topic} could be read once and not again: it is lost."
        ));
    }
    for (id, topic) in read.state.topics() {
        let Some(view) = &topic.compacted else { continue };
        let left = rebuild::look(&*storage, topic, view);
        let file = rebuild::write(&left, id, topic, view, &read.reader, &to);
        let file =
            file.map_err(|reason| RescueError::View { topic: topic.name.to_string(), reason })?;
        if !left.is_complete {
            report.note(format!(
                "The compacted view of {} has {} messages. Its other messages, which the log no longer has, are lost: readers of the view do not see them, and may see earlier messages of the same keys.",
                topic.name,
                file.slots().len()
            ));
        }
    }
    report.made = Some(new.to_owned());
    Ok(report)
}

pub(super) enum Failed {
    Open(log::OpenError),
    Write(WriteError),
}

/// Appends a change of the state to the log of a directory.
pub(super) fn append(to: &Arc<dyn Storage>, change: StateChange) -> Result<(), Failed> {
    let (mut composer, log) = open_log(to)?;
    let head = RecordHead { kind: RecordKind::Change, topic: 0, ledger: 0, entry: 0 };
    let body = ChangeRecord { change: Some(change) }.encode_to_vec();
    // No change is too large for a record of this size.
    composer.append(head, &[&body]).map_err(|_| Failed::Write(WriteError::Closed))?;
    submit(&mut composer, &log).map_err(Failed::Write)
}

fn open_log(to: &Arc<dyn Storage>) -> Result<(Composer, BrokerLog), Failed> {
    let options = LogOptions {
        body_bytes_max: BODY_BYTES_MAX,
        facts: Some(EntryHead::facts),
        ..LogOptions::default()
    };
    let opened = log::open(Arc::clone(to), options, &mut |_: ReplayedItem<'_>| Ok(()));
    opened.map(|opened| (opened.composer, opened.log)).map_err(Failed::Open)
}

/// Writes the entries, and a checkpoint with the state. Returns the entries that could no longer be
/// read, with their topics.
fn write(
    read: &mut SalvageReading,
    to: &Arc<dyn Storage>,
) -> Result<Vec<(EntryPosition, String)>, Failed> {
    let (mut composer, log) = open_log(to)?;
    let mut entries: Vec<(RecordLocation, u32, EntryPosition)> = Vec::new();
    for (id, topic) in read.state.topics() {
        entries.extend(topic.entries.iter().filter_map(|(ordinal, slot)| {
            Some((slot.location, id, topic.entries.position_of(ordinal)?))
        }));
    }
    // In the order of the log, as they were published.
    entries.sort_unstable_by_key(|(location, ..)| location.start());
    let mut unreadable = Vec::new();
    let mut entries = entries.into_iter().peekable();
    loop {
        let chunk = next_chunk(&mut entries, |(location, ..)| location.size);
        if chunk.is_empty() {
            break;
        }
        let locations: Vec<RecordLocation> = chunk.iter().map(|(location, ..)| *location).collect();
        for ((_, topic, position), body) in chunk.iter().zip(read.reader.read_many(&locations)) {
            let EntryPosition { ledger, entry } = *position;
            let head = RecordHead { kind: RecordKind::Entry, topic: *topic, ledger, entry };
            let appended = body.ok().and_then(|body| composer.append(head, &[&body]).ok());
            if appended.is_none() {
                let name = read.state.topic(*topic).map_or("", |kept| kept.name.as_str());
                unreadable.push((*position, name.to_owned()));
            }
            if composer.pending_bytes() >= GROUP_BYTES {
                submit(&mut composer, &log).map_err(Failed::Write)?;
            }
        }
    }
    submit(&mut composer, &log).map_err(Failed::Write)?;
    let (done, result) = sync_channel(1);
    let done = Box::new(move |outcome| drop(done.send(outcome)));
    log.checkpoint(composer.end(), read.state.image(PIECE_BYTES), done);
    result.recv().unwrap_or(Err(WriteError::Closed)).map_err(Failed::Write)?;
    Ok(unreadable)
}

fn submit(composer: &mut Composer, log: &BrokerLog) -> Result<(), WriteError> {
    let Some(group) = composer.take() else { return Ok(()) };
    let (done, result) = sync_channel(1);
    log.submit(group, Box::new(move |outcome| drop(done.send(outcome))));
    result.recv().unwrap_or(Err(WriteError::Closed))
}
