//! Reads records from any thread.

use crate::log::error::LogReadError;
use crate::log::segments::record::{
    self, HEAD_BYTES, ParsedRecord, RECORD_OVERHEAD, RecordLocation,
};
use crate::log::segments::segment;
use crate::log::shared::{Segment, SharedLogState};
use bytes::Bytes;
use std::io;
use std::sync::Arc;

/// Records with at most this distance are read together: reading marks and small records of other
/// topics costs less than another read.
const GAP_BYTES_MAX: u32 = 4096;
/// Bytes per read, unless one record is larger.
const READ_BYTES_MAX: u32 = 4 * 1024 * 1024;

/// A record that stays readable even if its segment is removed.
#[derive(Clone, Debug)]
pub struct PinnedRecord {
    segment: Arc<Segment>,
    location: RecordLocation,
}

impl PinnedRecord {
    /// Location of the record.
    #[must_use]
    pub const fn location(&self) -> RecordLocation {
        self.location
    }

    /// Size of the whole record in bytes.
    #[must_use]
    pub const fn size(&self) -> u32 {
        self.location.size
    }
}

/// Reads records. Clones are cheap.
#[derive(Clone, Debug)]
pub struct RecordReader {
    pub(in crate::log) shared: Arc<SharedLogState>,
}

impl RecordReader {
    pub(in crate::log) fn new(shared: Arc<SharedLogState>) -> Self {
        Self { shared }
    }

    /// The body of a written record. Blocks for the disk, and verifies the checksum.
    ///
    /// # Errors
    /// See [`LogReadError`].
    pub fn read(&self, location: RecordLocation) -> Result<Bytes, LogReadError> {
        self.read_one(&self.hold(location)?)
    }

    /// Keeps a record readable: its segment may be removed meanwhile, but its file is not reused.
    ///
    /// # Errors
    /// [`LogReadError::Gone`].
    pub fn hold(&self, location: RecordLocation) -> Result<PinnedRecord, LogReadError> {
        let segment = self.shared.segment(location.segment);
        let segment = segment.ok_or(LogReadError::Gone { segment: location.segment })?;
        Ok(PinnedRecord { segment, location })
    }

    fn read_one(&self, held: &PinnedRecord) -> Result<Bytes, LogReadError> {
        let (segment, location) = (&held.segment, held.location);
        let bytes = self.read_range(segment, location.offset, location.end())?;
        self.body(segment, location, location.offset, &bytes)
    }

    /// The bodies of several records, in the same order. Adjacent records cost one read and share
    /// its memory.
    #[must_use]
    pub fn read_many(&self, locations: &[RecordLocation]) -> Vec<Result<Bytes, LogReadError>> {
        let held: Vec<_> = locations.iter().map(|&location| self.hold(location)).collect();
        let mut read =
            self.read_held(held.iter().filter_map(|held| held.as_ref().ok())).into_iter();
        let gone = |location: &RecordLocation| LogReadError::Gone { segment: location.segment };
        let outcomes = held.iter().zip(locations).map(|(held, location)| match held {
            Ok(_) => read.next().unwrap_or_else(|| Err(gone(location))),
            Err(error) => Err(error.clone()),
        });
        outcomes.collect()
    }

    /// Like [`RecordReader::read_many`], for records that are held.
    #[must_use]
    pub fn read_held<'a>(
        &self,
        held: impl IntoIterator<Item = &'a PinnedRecord>,
    ) -> Vec<Result<Bytes, LogReadError>> {
        let held: Vec<&PinnedRecord> = held.into_iter().collect();
        let mut out = Vec::with_capacity(held.len());
        runs(&held).for_each(|run| self.read_run(run, &mut out));
        out
    }

    /// Like [`RecordReader::read_held`], but only if the operating system has all of them in
    /// memory, so that it never waits for the disk. Also `None` if one of them has an error;
    /// [`RecordReader::read_held`] returns it.
    #[must_use]
    pub fn read_cached<'a>(
        &self,
        held: impl IntoIterator<Item = &'a PinnedRecord>,
    ) -> Option<Vec<Bytes>> {
        let held: Vec<&PinnedRecord> = held.into_iter().collect();
        let mut out = Vec::with_capacity(held.len());
        for run in runs(&held) {
            let (first, last) = (run.first()?, run.last()?);
            let (segment, from, to) = (&first.segment, first.location.offset, last.location.end());
            if from >= to || to > segment.header.size {
                return None;
            }
            let mut bytes = vec![0; (to - from) as usize];
            if !segment.file.read_cached_at(&mut bytes, u64::from(from)).ok()? {
                return None;
            }
            let bytes = Bytes::from(bytes);
            for entry in run {
                out.push(self.body(segment, entry.location, from, &bytes).ok()?);
            }
        }
        Some(out)
    }

    /// Reads adjacent records together.
    fn read_run(&self, run: &[&PinnedRecord], out: &mut Vec<Result<Bytes, LogReadError>>) {
        let (Some(first), Some(last)) = (run.first(), run.last()) else { return };
        let (segment, from) = (&first.segment, first.location.offset);
        match self.read_range(segment, from, last.location.end()) {
            Ok(bytes) => {
                out.extend(run.iter().map(|entry| self.body(segment, entry.location, from, &bytes)))
            }
            // An error in one record must not affect the others.
            Err(_) if run.len() > 1 => out.extend(run.iter().map(|entry| self.read_one(entry))),
            Err(error) => out.push(Err(error)),
        }
    }

    fn read_range(&self, segment: &Segment, from: u32, to: u32) -> Result<Bytes, LogReadError> {
        if from >= to || to > segment.header.size {
            return Err(self.damaged(segment.header.number, from));
        }
        let mut bytes = vec![0; (to - from) as usize];
        let read = segment.file.read_at(&mut bytes, u64::from(from));
        read.map_err(|error| self.failed(segment.header.number, from, &error))?;
        Ok(Bytes::from(bytes))
    }

    /// Verifies a record within bytes that start at an offset of the segment.
    fn body(
        &self,
        segment: &Segment,
        location: RecordLocation,
        from: u32,
        bytes: &Bytes,
    ) -> Result<Bytes, LogReadError> {
        let start = (location.offset - from) as usize;
        let end = start + location.size as usize;
        let whole = bytes.get(start..end).unwrap_or_default();
        match record::parse(record::start(segment.seed, location.offset), whole) {
            Some(ParsedRecord::Record(..)) => Ok(bytes.slice(start + HEAD_BYTES..end)),
            Some(ParsedRecord::Mark(_)) | None => {
                Err(self.damaged(location.segment, location.offset))
            }
        }
    }

    fn damaged(&self, segment: u32, offset: u32) -> LogReadError {
        let file = self.shared.storage.describe(&segment::name(segment));
        LogReadError::Damaged { file, offset: u64::from(offset) }
    }

    fn failed(&self, segment: u32, offset: u32, error: &io::Error) -> LogReadError {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return self.damaged(segment, offset);
        }
        let file = self.shared.storage.describe(&segment::name(segment));
        LogReadError::Io { file, offset: u64::from(offset), reason: error.to_string() }
    }
}

/// Groups of records that are read together.
fn runs<'a, 'h>(held: &'a [&'h PinnedRecord]) -> impl Iterator<Item = &'a [&'h PinnedRecord]> {
    let mut rest = held;
    std::iter::from_fn(move || {
        let first = rest.first()?;
        let fits = |pair: &[&PinnedRecord]| {
            let [one, two] = pair else { return false };
            near(one.location, two.location)
                && two.location.end() - first.location.offset <= READ_BYTES_MAX
        };
        let count = 1 + rest.windows(2).take_while(|pair| fits(pair)).count();
        let (now, later) = rest.split_at_checked(count)?;
        rest = later;
        Some(now)
    })
}

/// Whether the second record may be read together with the first.
fn near(one: RecordLocation, two: RecordLocation) -> bool {
    one.segment == two.segment
        && two.offset >= one.end()
        && two.offset - one.end() <= GAP_BYTES_MAX
        && two.size >= RECORD_OVERHEAD
}
