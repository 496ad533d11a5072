//! Recovers a log after a restart: replays the checkpoint and every record, and repairs the end of
//! the newest segment.
//!
//! Nothing is changed on disk before everything was read and found intact.

use crate::log::disk::reserve;
use crate::log::disk::storage::{LockError, Storage, StorageLock};
use crate::log::error::{FormatFault, OpenError, unless_missing};
use crate::log::handle::BrokerLog;
use crate::log::indices::Indices;
use crate::log::indices::index::{self, LedgerRun};
use crate::log::options::LogOptions;
use crate::log::recover::checkpoint::{self, Checkpoint};
use crate::log::recover::confirmed::{self, Confirmed};
use crate::log::recover::inventory;
use crate::log::segments::composer::Composer;
use crate::log::segments::reader::RecordReader;
use crate::log::segments::record::{LogPosition, RECORD_OVERHEAD, RecordHead, RecordLocation};
use crate::log::segments::segment::{self, FOLDER, HEADER_BYTES, SPARE, SegmentHeader};
use crate::log::segments::tail::SegmentTail;
use crate::log::segments::walk::{Stopped, walk};
use crate::log::segments::writer::LogWriter;
use crate::log::shared::{BeginError, Segment, SharedLogState, Spare, lock};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Replayed items: first the pieces of the checkpoint, if there is one, then every record in order.
#[derive(Clone, Copy, Debug)]
pub enum ReplayedItem<'a> {
    /// One piece, in the order in which the pieces were passed to [`BrokerLog::checkpoint`].
    Checkpoint(&'a [u8]),
    /// A record.
    Record {
        /// Its head.
        head: RecordHead,
        /// Its location.
        location: RecordLocation,
        /// Its body.
        body: &'a [u8],
        /// Whether the checkpoint covers the record: only entries are needed then.
        before_checkpoint: bool,
    },
    /// Entries that the checkpoint covers, from the index of their segment. Entries of one ledger
    /// come in the order of the log.
    Entries(LedgerRun<'a>),
}

/// An unconfirmed group that was being written when the process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Truncated {
    /// The file.
    pub file: String,
    /// Offset after the last complete record.
    pub offset: u64,
    /// Bytes of the group that are lost.
    pub bytes: u64,
}

/// An open log.
#[derive(Debug)]
pub struct RecoveredLog {
    /// Continues after the last record.
    pub composer: Composer,
    /// Writes and reads.
    pub log: BrokerLog,
    /// The unfinished group that was dropped, if there was one.
    pub truncated: Option<Truncated>,
    /// Number of replayed records.
    pub records: u64,
}

/// Receives all replayed items.
pub type Apply<'a> = &'a mut dyn FnMut(ReplayedItem<'_>) -> Result<(), String>;

/// An open log without its threads.
#[derive(Debug)]
pub(in crate::log) struct Parts {
    pub(in crate::log) composer: Composer,
    pub(in crate::log) writer: LogWriter,
    pub(in crate::log) reader: RecordReader,
    pub(in crate::log) lock: Box<dyn StorageLock>,
    pub(in crate::log) truncated: Option<Truncated>,
    pub(in crate::log) records: u64,
}

/// Opens a log, without starting its threads.
pub(in crate::log) fn recover(
    storage: Arc<dyn Storage>,
    options: LogOptions,
    apply: Apply<'_>,
) -> Result<Parts, OpenError> {
    options.validate().map_err(OpenError::Options)?;
    let directory_lock = take_lock(&*storage)?;
    let sound = read(&*storage, apply)?;
    let Sound { files, segments, tail, at, confirmed, records, unindexed } = sound;
    let mut truncated = None;
    if let (Some(tail), Some(newest)) = (&tail, segments.values().next_back()) {
        let name = segment::name(newest.header.number);
        let repaired =
            tail.repair(newest).and_then(|bytes| storage.sync_dir(FOLDER).map(|()| bytes));
        let bytes =
            repaired.map_err(|source| failed(&*storage, "repair the end of", &name, source))?;
        let (file, offset) = (storage.describe(&name), u64::from(tail.end));
        truncated = (bytes > 0).then_some(Truncated { file, offset, bytes });
    }
    let shared = Arc::new(SharedLogState::new(storage, options.clone(), segments, at));
    tidy(&shared, &files)?;
    *lock(&shared.unindexed) = unindexed;
    *lock(&shared.confirmed) = confirmed;
    let newest = match shared.newest() {
        Some(newest) => newest,
        None => first_segment(&shared)?,
    };
    let header = newest.header;
    let (end, group) = tail.map_or((HEADER_BYTES, header.group), |tail| (tail.end, tail.group + 1));
    shared.set_durable(LogPosition { segment: header.number, offset: end });
    shared.wanted.store(options.size_after(header.size), Ordering::Relaxed);
    adopt_spare(&shared, &files)?;
    reserve::adopt(&shared)?;
    Ok(Parts {
        composer: Composer::new(options, Arc::clone(&shared.room), header, end, group),
        reader: RecordReader::new(Arc::clone(&shared)),
        writer: LogWriter::new(shared, newest, group),
        lock: directory_lock,
        truncated,
        records,
    })
}

/// A log that was read and found intact.
struct Sound {
    files: Vec<String>,
    segments: BTreeMap<u32, Arc<Segment>>,
    /// The end of the newest segment.
    tail: Option<SegmentTail>,
    /// The position of the checkpoint.
    at: Option<LogPosition>,
    confirmed: Confirmed,
    records: u64,
    /// Segments that need an index.
    unindexed: BTreeSet<u32>,
}

/// Reads everything, without changes.
fn read(storage: &dyn Storage, apply: Apply<'_>) -> Result<Sound, OpenError> {
    let files = storage.list(FOLDER).map_err(|source| failed(storage, "list", FOLDER, source))?;
    let checkpoint = Checkpoint::open(storage, false)?;
    let segments = open_segments(storage, &files)?;
    check_complete(storage, &segments, checkpoint.as_ref())?;
    check_inventory(storage, &segments)?;
    if checkpoint.is_some() && inventory::is_missing(storage) {
        tracing::warn!(
            file = storage.describe(inventory::NAME),
            "there is no inventory of the segments: this start cannot notice a missing segment before the checkpoint. A full disk may have left no room for it; if somebody removed it, check for other missing files"
        );
    }
    let indices = Indices::new(storage);
    let mut replay = Replay { storage, checkpoint, apply, records: 0, indices };
    replay.pieces()?;
    let tail = replay.segments(&segments)?;
    let sealed = segments.keys().copied().take(segments.len().saturating_sub(1));
    let unindexed = replay.indices.left_to_make(sealed);
    let (at, records) = (replay.checkpoint.map(|checkpoint| checkpoint.at), replay.records);
    if let (Some(tail), Some(newest)) = (&tail, segments.values().next_back()) {
        tail.check(newest, &storage.describe(&segment::name(newest.header.number)))?;
    }
    let confirmed = Confirmed::read(storage)?;
    check_confirmed(storage, &segments, tail.as_ref(), &confirmed)?;
    Ok(Sound { files, segments, tail, at, confirmed, records, unindexed })
}

/// Checks whether a start would accept a log.
///
/// # Errors
/// The errors of a start.
pub fn verify(storage: &dyn Storage, apply: Apply<'_>) -> Result<(), OpenError> {
    read(storage, apply).map(drop)
}

fn take_lock(storage: &dyn Storage) -> Result<Box<dyn StorageLock>, OpenError> {
    storage.lock().map_err(|error| match error {
        LockError::Held(pid) => OpenError::Locked { directory: storage.describe(""), pid },
        LockError::Io(source) => failed(storage, "lock", "", source),
    })
}

/// Opens the segments and reads their headers. A header is durable before its file gets the name of
/// a segment, so every header is complete.
fn open_segments(
    storage: &dyn Storage,
    files: &[String],
) -> Result<BTreeMap<u32, Arc<Segment>>, OpenError> {
    let mut segments = BTreeMap::new();
    for number in files.iter().filter_map(|file| segment::number_of(file)) {
        let name = segment::name(number);
        let io = |source| failed(storage, "read", &name, source);
        let damaged = |what| Err(damaged(storage, number, 0, what));
        let file = storage.open(&name).map_err(io)?;
        let header = match SegmentHeader::read(&*file).map_err(io)? {
            Ok(header) => header,
            Err(FormatFault::Damaged) => return damaged("this is not the header of a segment"),
            Err(FormatFault::Version(version)) => {
                return Err(OpenError::Version { file: storage.describe(&name), version });
            }
        };
        if header.number != number || header.size < HEADER_BYTES + RECORD_OVERHEAD {
            return damaged("the header is that of another segment");
        }
        segments.insert(number, Arc::new(Segment::new(header, file)));
    }
    Ok(segments)
}

/// Refuses a log with a missing segment. Only segments entirely before the checkpoint are ever
/// removed.
fn check_complete(
    storage: &dyn Storage,
    segments: &BTreeMap<u32, Arc<Segment>>,
    checkpoint: Option<&Checkpoint>,
) -> Result<(), OpenError> {
    let newest = segments.keys().next_back().copied();
    let needed_from = checkpoint.map(|checkpoint| checkpoint.at.segment);
    let needed_from = needed_from.or_else(|| newest.map(|_| 1));
    let missing = needed_from.and_then(|from| {
        let to = newest.unwrap_or_default().max(from);
        (from..=to).find(|number| !segments.contains_key(number))
    });
    match missing {
        Some(number) => Err(OpenError::Missing { file: storage.describe(&segment::name(number)) }),
        None => Ok(()),
    }
}

/// Refuses a log that lacks a segment of its inventory. All other segments have been checked.
fn check_inventory(
    storage: &dyn Storage,
    segments: &BTreeMap<u32, Arc<Segment>>,
) -> Result<(), OpenError> {
    let listed = inventory::read(storage)?.unwrap_or_default();
    match listed.into_iter().find(|number| !segments.contains_key(number)) {
        Some(number) => Err(OpenError::NotRemoved {
            file: storage.describe(&segment::name(number)),
            inventory: storage.describe(inventory::NAME),
        }),
        None => Ok(()),
    }
}

/// Refuses a log that ends before the position that was noted as confirmed: the missing part was
/// not an unfinished group.
fn check_confirmed(
    storage: &dyn Storage,
    segments: &BTreeMap<u32, Arc<Segment>>,
    tail: Option<&SegmentTail>,
    confirmed: &Confirmed,
) -> Result<(), OpenError> {
    let Some(at) = confirmed.at() else { return Ok(()) };
    let newest = segments.keys().next_back().copied().unwrap_or(0);
    if newest < at.segment {
        return Err(OpenError::Missing { file: storage.describe(&segment::name(at.segment)) });
    }
    match tail.filter(|tail| newest == at.segment && tail.end < at.offset) {
        Some(tail) => {
            let what = format!(
                "the log ends here, but {} says that the disk had confirmed it up to offset {}",
                storage.describe(confirmed::NAME),
                at.offset
            );
            Err(damaged(storage, newest, tail.end, &what))
        }
        None => Ok(()),
    }
}

/// Passes everything to the caller, in order.
struct Replay<'a> {
    storage: &'a dyn Storage,
    checkpoint: Option<Checkpoint>,
    apply: Apply<'a>,
    records: u64,
    indices: Indices<'a>,
}

impl Replay<'_> {
    fn pieces(&mut self) -> Result<(), OpenError> {
        let Some(checkpoint) = &self.checkpoint else { return Ok(()) };
        checkpoint.pieces(|offset, piece| {
            (self.apply)(ReplayedItem::Checkpoint(piece?)).map_err(|reason| {
                let file = checkpoint.path().to_owned();
                OpenError::Apply { file, offset, reason }
            })
        })
    }

    /// Replays all segments and returns the end of the newest.
    fn segments(
        &mut self,
        segments: &BTreeMap<u32, Arc<Segment>>,
    ) -> Result<Option<SegmentTail>, OpenError> {
        let mut last: Option<(u32, SegmentTail)> = None;
        for (number, segment) in segments {
            let header = segment.header;
            if let Some((before, tail)) = last {
                self.check_sealed(before, &tail, (before + 1 == *number).then_some(&header))?;
            }
            let next = number.checked_add(1).and_then(|next| segments.get(&next));
            let next = next.map(|next| &next.header);
            let at = self.checkpoint.as_ref().map(|checkpoint| checkpoint.at);
            // Only the entries are needed of records that the checkpoint covers.
            let indexed = match at.filter(|at| *number < at.segment) {
                Some(_) => self.indices.replay(segment, next, self.apply)?,
                None => None,
            };
            let tail = match indexed {
                Some((tail, records)) => {
                    self.records += records;
                    tail
                }
                None => self.segment(segment)?,
            };
            if at.is_some_and(|at| at.segment == *number && tail.end < at.offset) {
                let what = "the log ends before the position of its checkpoint";
                return Err(damaged(self.storage, *number, tail.end, what));
            }
            last = Some((*number, tail));
        }
        Ok(last.map(|(_, tail)| tail))
    }

    /// Checks that a segment other than the newest ends with a seal, where its successor says that
    /// it ends.
    fn check_sealed(
        &self,
        number: u32,
        tail: &SegmentTail,
        next: Option<&SegmentHeader>,
    ) -> Result<(), OpenError> {
        let Some(sealed) = tail.seal else {
            let what = "there is no record of this segment here, but the segment continues";
            return Err(damaged(self.storage, number, tail.end, what));
        };
        let agrees = |next: &SegmentHeader| {
            next.previous == number
                && next.previous_end == tail.end + RECORD_OVERHEAD
                && next.group == sealed
        };
        if next.is_some_and(|next| !agrees(next)) {
            let what = "the segment ends here, but the next one says otherwise";
            return Err(damaged(self.storage, number, tail.end, what));
        }
        Ok(())
    }

    /// Replays a segment up to its seal, or up to the first invalid record.
    fn segment(&mut self, segment: &Segment) -> Result<SegmentTail, OpenError> {
        let name = segment::name(segment.header.number);
        let at = self.checkpoint.as_ref().map(|checkpoint| checkpoint.at);
        let Self { storage, apply, records, .. } = self;
        let walked = walk(segment, |head, location, body| {
            let before_checkpoint = at.is_some_and(|at| location.start() < at);
            let record = ReplayedItem::Record { head, location, body, before_checkpoint };
            *records += 1;
            apply(record).map_err(|reason| {
                let file = storage.describe(&name);
                OpenError::Apply { file, offset: u64::from(location.offset), reason }
            })
        });
        walked.map_err(|stopped| match stopped {
            Stopped::Io(source) => failed(self.storage, "read", &name, source),
            Stopped::By(error) => error,
        })
    }
}

/// Removes the leftovers of an interrupted step.
fn tidy(shared: &SharedLogState, files: &[String]) -> Result<(), OpenError> {
    let storage = &*shared.storage;
    for name in [segment::SPARE_NEW, segment::SEGMENT_NEW, index::NAME_NEW] {
        if files.iter().any(|file| name.strip_prefix("log/") == Some(file)) {
            storage.remove(name).map_err(|source| failed(storage, "remove", name, source))?;
        }
    }
    // An index of a removed segment, or of one that may still be written, is useless.
    let newest = shared.newest().map_or(0, |newest| newest.header.number);
    for number in files.iter().filter_map(|file| index::number_of(file)) {
        if number >= newest || shared.segment(number).is_none() {
            let name = index::name(number);
            storage.remove(&name).map_err(|source| failed(storage, "remove", &name, source))?;
        }
    }
    let compacted =
        storage.list("compact").map_err(|error| failed(storage, "list", "compact", error))?;
    for file in compacted.iter().filter(|file| file.ends_with(".tmp")) {
        let name = format!("compact/{file}");
        storage.remove(&name).map_err(|source| failed(storage, "remove", &name, source))?;
    }
    for name in [checkpoint::NAME_NEW, inventory::NAME_NEW, confirmed::NAME_NEW] {
        let removed = unless_missing(storage.remove(name));
        removed.map_err(|source| failed(storage, "remove", name, source))?;
    }
    // The previous process may have renamed a checkpoint and ended before the sync of the name.
    storage.sync_dir("").map_err(|source| failed(storage, "sync", "", source))
}

fn first_segment(shared: &SharedLogState) -> Result<Arc<Segment>, OpenError> {
    let (size, salt) = (shared.options.segment_bytes_first, shared.options.salt);
    let header = SegmentHeader { number: 1, size, previous: 0, previous_end: 0, group: 1, salt };
    let name = segment::name(1);
    shared.begin_segment(header).map_err(|error| match error {
        BeginError::Full(error) => failed(&*shared.storage, "make", &name, error),
        BeginError::Failed(what, source) => {
            let file = shared.storage.describe(&name);
            OpenError::Io { what: format!("make {what} in {file}"), source }
        }
    })
}

/// Keeps the spare of the previous process, if it is neither larger than the next segment should
/// be, nor too small. Its content does not matter.
fn adopt_spare(shared: &SharedLogState, files: &[String]) -> Result<(), OpenError> {
    if !files.iter().any(|file| SPARE.strip_prefix("log/") == Some(file)) {
        return Ok(());
    }
    let io = |what, source| failed(&*shared.storage, what, SPARE, source);
    let file = unless_missing(shared.storage.open(SPARE)).map_err(|error| io("open", error))?;
    // The first segment may have used it.
    let Some(file) = file else { return Ok(()) };
    let wanted = shared.wanted.load(Ordering::Relaxed);
    let sizes = shared.options.segment_bytes_first.min(wanted)..=wanted;
    let size = u32::try_from(file.len().map_err(|error| io("read", error))?);
    let is_ours = !file.has_other_names().map_err(|error| io("read", error))?;
    if let Some(size) = size.ok().filter(|size| sizes.contains(size) && is_ours) {
        *lock(&shared.spare) = Some(Spare { file, size });
        shared.room.set_spare(size);
        return Ok(());
    }
    shared.storage.remove(SPARE).map_err(|error| io("remove", error))
}

fn failed(storage: &dyn Storage, what: &str, name: &str, source: io::Error) -> OpenError {
    OpenError::Io { what: format!("{what} {}", storage.describe(name)), source }
}

fn damaged(storage: &dyn Storage, number: u32, offset: u32, what: &str) -> OpenError {
    let file = storage.describe(&segment::name(number));
    OpenError::Damaged { file, offset: u64::from(offset), what: what.to_owned() }
}
