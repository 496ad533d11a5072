//! Reads what a damaged log still has. Recovery refuses a log at the first damage; a survey
//! continues after it, reports each damage, and changes nothing.
//!
//! Only the checksum decides whether bytes are a record. After damage, the next record is searched
//! byte by byte: the checksum covers the seed of the segment and the offset, so no other bytes
//! match it.

use crate::log::disk::storage::{Storage, StorageFile};
use crate::log::error::{FormatFault, OpenError};
use crate::log::indices::index::{self, Builder, FactsOf, Index, Unusable};
use crate::log::options::LogOptions;
use crate::log::recover::checkpoint::Checkpoint;
use crate::log::recover::confirmed::{self, Confirmed};
use crate::log::recover::follower::segment_numbers;
use crate::log::recover::inventory;
use crate::log::recover::recovery::ReplayedItem;
use crate::log::segments::reader::RecordReader;
use crate::log::segments::record::{
    self, LogMark, LogPosition, ParsedRecord, RECORD_OVERHEAD, RecordHead, RecordKind,
    RecordLocation,
};
use crate::log::segments::segment::{self, FOLDER, HEADER_BYTES, SegmentHeader};
use crate::log::segments::tail::SegmentTail;
use crate::log::shared::{Segment, SharedLogState};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Damage in the log.
#[derive(Clone, Debug)]
pub struct LogFinding {
    /// The file.
    pub file: String,
    /// Offset in the file.
    pub offset: u64,
    /// The damage.
    pub what: String,
    /// The loss.
    pub cost: Cost,
}

/// The loss caused by a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Nothing that does not exist elsewhere.
    Nothing,
    /// One entry. The damaged record's head is not verified.
    Entry(RecordHead),
    /// Entries in this many bytes of a segment.
    Entries(u64),
    /// Entries and changes of state in this many bytes of a segment.
    Anything(u64),
    /// A part or all of the state in the checkpoint.
    State,
}

impl Cost {
    /// Whether changes of state may be lost, not only entries.
    #[must_use]
    pub const fn is_state(self) -> bool {
        matches!(self, Self::Anything(_) | Self::State)
    }
}

/// Result of a survey.
#[derive(Debug)]
pub struct LogSurvey {
    /// The findings, in the order in which they were found.
    pub findings: Vec<LogFinding>,
    /// Whether the inventory is missing, so that missing segments cannot be noticed.
    pub lacks_inventory: bool,
    /// Reader for the records that were passed on.
    pub reader: RecordReader,
}

/// Receives everything that is readable: pieces of the checkpoint, then records.
pub type Take<'a> = &'a mut dyn FnMut(ReplayedItem<'_>) -> Result<(), String>;

/// Reads everything that is readable. An item that `take` cannot apply is a finding too.
///
/// # Errors
/// A later version has written the log, or the folder cannot be listed.
pub fn survey(
    storage: &Arc<dyn Storage>,
    facts: FactsOf,
    take: Take<'_>,
) -> Result<LogSurvey, OpenError> {
    let mut surveyor = Surveyor {
        storage: &**storage,
        facts,
        findings: Vec::new(),
        checkpoint: None,
        confirmed: None,
        take,
    };
    surveyor.checkpoint()?;
    surveyor.confirmed()?;
    let segments = surveyor.open_segments()?;
    surveyor.missing(&segments)?;
    let newest = segments.keys().next_back().copied();
    for (number, segment) in &segments {
        let next = segments.get(&(number + 1)).map(|next| next.header);
        surveyor.segment(segment, Some(*number) == newest, next)?;
    }
    let Surveyor { findings, checkpoint, .. } = surveyor;
    let lacks_inventory = checkpoint.is_some() && inventory::is_missing(&**storage);
    let shared = SharedLogState::new(Arc::clone(storage), LogOptions::default(), segments, None);
    Ok(LogSurvey { findings, lacks_inventory, reader: RecordReader::new(Arc::new(shared)) })
}

struct Surveyor<'a> {
    storage: &'a dyn Storage,
    facts: FactsOf,
    findings: Vec<LogFinding>,
    checkpoint: Option<Checkpoint>,
    /// The log was confirmed at least up to this position.
    confirmed: Option<LogPosition>,
    take: Take<'a>,
}

/// A segment in memory.
struct SegmentImage {
    seed: u32,
    bytes: Vec<u8>,
}

impl SegmentImage {
    /// The record at this offset, and its size.
    fn at(&self, offset: u32) -> Option<(u32, ParsedRecord<'_>)> {
        let rest = self.bytes.get(offset as usize..)?;
        let size = record::size_of(rest)?;
        let whole = rest.get(..size as usize)?;
        Some((size, record::parse(record::start(self.seed, offset), whole)?))
    }

    /// Offset of the next record after invalid bytes.
    fn next_after(&self, offset: u32) -> Option<u32> {
        let end = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        // The stored size is usually intact.
        let stated = self.bytes.get(offset as usize..).and_then(record::size_of);
        let stated = stated.and_then(|size| offset.checked_add(size));
        stated
            .filter(|&next| self.at(next).is_some())
            .or_else(|| (offset + 1..end).find(|&next| self.at(next).is_some()))
    }

    /// The head of a damaged record, if it may be an entry that ends at `next`.
    fn entry_at(&self, offset: u32, next: u32) -> Option<RecordHead> {
        let bytes = self.bytes.get(offset as usize..next as usize)?;
        (record::size_of(bytes)? as usize == bytes.len()).then_some(())?;
        record::unverified_head(bytes).filter(|head| head.kind == RecordKind::Entry)
    }
}

impl Surveyor<'_> {
    fn find(&mut self, name: &str, offset: u64, what: impl Into<String>, cost: Cost) {
        let (file, what) = (self.storage.describe(name), what.into());
        self.findings.push(LogFinding { file, offset, what, cost });
    }

    fn checkpoint(&mut self) -> Result<(), OpenError> {
        let checkpoint = match Checkpoint::open(self.storage, true) {
            Ok(checkpoint) => checkpoint,
            Err(error @ OpenError::Version { .. }) => return Err(error),
            Err(error) => {
                let name = crate::log::recover::checkpoint::NAME;
                self.find(name, 0, without_advice(&error), Cost::State);
                return Ok(());
            }
        };
        let Some(checkpoint) = checkpoint else { return Ok(()) };
        let mut bad = Vec::new();
        let take = &mut *self.take;
        checkpoint.pieces(|offset, piece| {
            let taken = match piece {
                Ok(piece) => take(ReplayedItem::Checkpoint(piece)),
                Err(_) => Err("a piece of the checkpoint does not match its checksum".to_owned()),
            };
            bad.extend(taken.err().map(|reason| (offset, reason)));
            Ok(())
        })?;
        for (offset, what) in bad {
            self.find(crate::log::recover::checkpoint::NAME, offset, what, Cost::State);
        }
        self.checkpoint = Some(checkpoint);
        Ok(())
    }

    fn confirmed(&mut self) -> Result<(), OpenError> {
        match Confirmed::read(self.storage) {
            Ok(confirmed) => self.confirmed = confirmed.at(),
            Err(error @ OpenError::Version { .. }) => return Err(error),
            Err(error) => {
                self.find(confirmed::NAME, 0, without_advice(&error), Cost::Nothing);
            }
        }
        Ok(())
    }

    fn at(&self) -> Option<LogPosition> {
        self.checkpoint.as_ref().map(|checkpoint| checkpoint.at)
    }

    /// Opens the segments, including those with a damaged header: their records reveal the seed.
    fn open_segments(&mut self) -> Result<BTreeMap<u32, Arc<Segment>>, OpenError> {
        let numbers = segment_numbers(self.storage).map_err(|source| OpenError::Io {
            what: format!("list {}", self.storage.describe(FOLDER)),
            source,
        })?;
        let (mut sound, mut broken) = (BTreeMap::new(), Vec::new());
        for number in numbers {
            let name = segment::name(number);
            let file = match self.storage.open(&name) {
                Ok(file) => file,
                Err(error) => {
                    self.find(
                        &name,
                        0,
                        format!("it cannot be opened: {error}"),
                        self.cost_of(number, 0, 0),
                    );
                    continue;
                }
            };
            match SegmentHeader::read(&*file) {
                Ok(Ok(header)) if header.number == number => {
                    sound.insert(number, Arc::new(Segment::new(header, file)));
                }
                Ok(Err(FormatFault::Version(version))) => {
                    return Err(OpenError::Version { file: self.storage.describe(&name), version });
                }
                Ok(Ok(_) | Err(FormatFault::Damaged)) | Err(_) => broken.push((number, file)),
            }
        }
        let salts: BTreeSet<u64> = sound.values().map(|segment| segment.header.salt).collect();
        for (number, file) in broken {
            let found = salts.iter().find_map(|&salt| with_salt(number, &file, salt));
            let name = segment::name(number);
            let what = "the header of the segment is damaged";
            match found {
                Some(segment) => {
                    self.find(&name, 0, what, Cost::Nothing);
                    sound.insert(number, Arc::new(segment));
                }
                None => {
                    let bytes = file.len().unwrap_or_default();
                    self.find(&name, 0, what, self.cost_of(number, 0, bytes));
                }
            }
        }
        Ok(sound)
    }

    /// The confirmed end of a segment, if it is after this offset.
    fn confirmed_behind(&self, segment: u32, offset: u32) -> Option<u32> {
        let ends = [self.at(), self.confirmed].into_iter().flatten();
        ends.filter(|at| at.segment == segment && offset < at.offset).map(|at| at.offset).max()
    }

    /// The loss if these bytes of a segment are damaged, by their position.
    fn cost_of(&self, segment: u32, offset: u32, bytes: u64) -> Cost {
        match self.at() {
            Some(at) if (LogPosition { segment, offset }) < at => Cost::Entries(bytes),
            Some(_) | None => Cost::Anything(bytes),
        }
    }

    /// Reports missing segments.
    fn missing(&mut self, segments: &BTreeMap<u32, Arc<Segment>>) -> Result<(), OpenError> {
        let from = self.at().map_or(1, |at| at.segment);
        let newest = segments.keys().next_back().copied().unwrap_or(0);
        let least = if self.checkpoint.is_some() { from } else { 0 };
        let least = least.max(self.confirmed.map_or(0, |at| at.segment));
        let needed: BTreeSet<u32> = (from..=newest.max(least)).collect();
        let listed = match inventory::read(self.storage) {
            Ok(Some(listed)) => listed,
            Ok(None) if self.storage.open(inventory::NAME).is_ok() => {
                let what = "the inventory of the segments is damaged";
                self.find(inventory::NAME, 0, what, Cost::Nothing);
                BTreeSet::new()
            }
            Ok(None) => BTreeSet::new(),
            Err(error @ OpenError::Version { .. }) => return Err(error),
            Err(error) => {
                self.find(inventory::NAME, 0, without_advice(&error), Cost::Nothing);
                BTreeSet::new()
            }
        };
        let named: BTreeSet<String> =
            self.findings.iter().map(|finding| finding.file.clone()).collect();
        for number in needed.union(&listed).filter(|number| !segments.contains_key(number)) {
            let name = segment::name(*number);
            // A segment that exists and cannot be opened is already reported.
            if !named.contains(&self.storage.describe(&name)) {
                self.find(&name, 0, "the file is missing", self.cost_of(*number, 0, 0));
            }
        }
        Ok(())
    }

    /// Passes on the records of a segment.
    fn segment(
        &mut self,
        segment: &Segment,
        is_newest: bool,
        next: Option<SegmentHeader>,
    ) -> Result<(), OpenError> {
        let (number, name) = (segment.header.number, segment::name(segment.header.number));
        let length = segment.file.len().unwrap_or_default().min(u64::from(segment.header.size));
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        if let Err(error) = segment.file.read_at(&mut bytes, 0) {
            self.find(
                &name,
                0,
                format!("it cannot be read: {error}"),
                self.cost_of(number, 0, length),
            );
            return Ok(());
        }
        let scan = SegmentImage { seed: segment.seed, bytes };
        let mut builder = Builder::default();
        let mut tail = SegmentTail::new(&segment.header);
        let (mut is_whole, mut is_sound) = (true, true);
        loop {
            let offset = tail.end;
            match scan.at(offset) {
                Some((_, ParsedRecord::Mark(LogMark::Seal { group, .. }))) => {
                    tail.seal = Some(group);
                    break;
                }
                Some((size, ParsedRecord::Mark(LogMark::Group { group, bytes }))) => {
                    if !tail.begin(group, offset, bytes) {
                        if is_whole {
                            let what = format!("group {group} follows group {}", tail.group);
                            self.find(&name, offset.into(), what, self.cost_of(number, offset, 0));
                        }
                        (is_whole, is_sound) = (true, false);
                        (tail.group, tail.chunk) = (group, Some((offset, bytes)));
                    }
                    tail.end = offset + size;
                }
                Some((size, ParsedRecord::Record(head, body))) => {
                    let location = RecordLocation { segment: number, offset, size };
                    self.record(&name, head, location, body, &mut builder);
                    tail.end = offset + size;
                }
                None => {
                    let confirmed = self.confirmed_behind(number, offset).filter(|_| is_newest);
                    if is_newest && confirmed.is_none() && tail.check(segment, &name).is_ok() {
                        // The rest of an unconfirmed group.
                        break;
                    }
                    (is_whole, is_sound) = (false, false);
                    let next = scan.next_after(offset);
                    let length = u32::try_from(length).unwrap_or(u32::MAX);
                    let to = next.or(confirmed).unwrap_or(length);
                    let entry = next.and_then(|next| scan.entry_at(offset, next));
                    let lost = self.cost_of(number, offset, u64::from(to.saturating_sub(offset)));
                    let cost = entry.map_or(lost, Cost::Entry);
                    let what = format!("there is no record in {} bytes", to.saturating_sub(offset));
                    self.find(&name, offset.into(), what, cost);
                    let Some(next) = next else { return Ok(()) };
                    tail.end = next;
                }
            }
        }
        if let Some(group) = tail.seal.filter(|_| is_sound && !is_newest) {
            self.index(segment, next, &builder.finish(&segment.header, tail.end, group));
        }
        let agrees = |next: SegmentHeader| {
            next.previous != number || next.previous_end == tail.end + RECORD_OVERHEAD
        };
        if is_whole && !is_newest && tail.seal.is_some() && !next.is_none_or(agrees) {
            let what = "the segment ends here, but the next one says otherwise";
            self.find(&name, tail.end.into(), what, self.cost_of(number, tail.end, 0));
        }
        Ok(())
    }

    /// Compares the index of a segment, if any, with the expected one. A bad index costs nothing: a
    /// start builds another.
    fn index(&mut self, segment: &Segment, next: Option<SegmentHeader>, expected: &[u8]) {
        let what = match Index::read(self.storage, segment, next.as_ref()) {
            Ok(index) if index.is(expected) => return,
            Err(Unusable::Missing) => return,
            Ok(_) => "the index does not match the content of the segment".to_owned(),
            Err(Unusable::Unfit(what)) => format!("the index of the segment is damaged: {what}"),
        };
        self.find(&index::name(segment.header.number), 0, what, Cost::Nothing);
    }

    fn record(
        &mut self,
        name: &str,
        head: RecordHead,
        location: RecordLocation,
        body: &[u8],
        builder: &mut Builder,
    ) {
        if head.kind == RecordKind::Entry {
            builder.add(head, location, (self.facts)(body).unwrap_or_default());
        }
        let before_checkpoint = self.at().is_some_and(|at| location.start() < at);
        let record = ReplayedItem::Record { head, location, body, before_checkpoint };
        if let Err(reason) = (self.take)(record) {
            let cost = match head.kind {
                RecordKind::Entry => Cost::Entry(head),
                RecordKind::Change => Cost::Anything(u64::from(location.size)),
            };
            self.find(
                name,
                location.offset.into(),
                format!("a record cannot be applied: {reason}"),
                cost,
            );
        }
    }
}

/// A segment whose header is lost, if the seed of its first record matches this salt.
fn with_salt(number: u32, file: &Arc<dyn StorageFile>, salt: u64) -> Option<Segment> {
    let size = u32::try_from(file.len().ok()?).ok()?;
    let unknown = SegmentHeader { number, size, previous: 0, previous_end: 0, group: 1, salt };
    let mut bytes = vec![0; RECORD_OVERHEAD as usize];
    file.read_at(&mut bytes, u64::from(HEADER_BYTES)).ok()?;
    match record::parse(record::start(unknown.seed(), HEADER_BYTES), &bytes)? {
        ParsedRecord::Mark(mark) => {
            let header = SegmentHeader { group: mark.group(), ..unknown };
            Some(Segment::new(header, Arc::clone(file)))
        }
        ParsedRecord::Record(..) => None,
    }
}

/// The text of an error without its advice, which is given once at the end.
fn without_advice(error: &OpenError) -> String {
    match error {
        OpenError::Damaged { what, .. } => what.clone(),
        OpenError::Io { what, source } => format!("could not {what}: {source}"),
        other @ (OpenError::Locked { .. }
        | OpenError::Missing { .. }
        | OpenError::NotRemoved { .. }
        | OpenError::Version { .. }
        | OpenError::Options(_)
        | OpenError::Apply { .. }) => other.to_string(),
    }
}
