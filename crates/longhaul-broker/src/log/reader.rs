//! Reads records back, from any thread.

use super::error::ReadError;
use super::record::{self, HEAD_BYTES, Head, Mark, Parsed, Place, RECORD_OVERHEAD};
use super::scanner::Scanner;
use super::segment;
use super::shared::{Segment, Shared};
use bytes::Bytes;
use std::io;
use std::sync::Arc;

/// Records that lie no further apart are read at once: marks and small records of other topics cost less than another read.
const GAP_BYTES_MAX: u32 = 4096;
/// Bytes that are read at once, unless one record is larger.
const READ_BYTES_MAX: u32 = 4 * 1024 * 1024;

/// Reads records. Clones are cheap.
#[derive(Clone, Debug)]
pub struct Reader {
    shared: Arc<Shared>,
}

impl Reader {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// The body of a record that is written. Blocks for the disk, and verifies the checksum.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read(&self, place: Place) -> Result<Bytes, ReadError> {
        let segment = self.segment(place.segment)?;
        let bytes = self.read_range(&segment, place.offset, place.end())?;
        self.body(&segment, place, place.offset, &bytes)
    }

    /// The bodies of several records, in the same order. Neighbours cost one read, and share their memory.
    #[must_use]
    pub fn read_many(&self, places: &[Place]) -> Vec<Result<Bytes, ReadError>> {
        let mut out = Vec::with_capacity(places.len());
        for run in places.chunk_by(|one, two| near(*one, *two)) {
            let mut rest = run;
            while let Some(first) = rest.first() {
                let fits = |place: &&Place| place.end() - first.offset <= READ_BYTES_MAX;
                let count = rest.iter().take_while(fits).count().max(1);
                let (now, later) = rest.split_at(count);
                self.read_run(now, &mut out);
                rest = later;
            }
        }
        out
    }

    /// The records of a segment, from the first to the last that is durable.
    #[must_use]
    pub fn scan(&self, segment: u32) -> Scan {
        let end = self.shared.durable();
        let scanner = self.segment(segment).map(|it| {
            let limit = if segment == end.segment { end.offset } else { it.header.size };
            Scanner::new(Arc::clone(&it.file), it.seed, limit)
        });
        let sealed = segment != end.segment;
        Scan { shared: Arc::clone(&self.shared), segment, scanner: Some(scanner), sealed }
    }

    /// Reads neighbours at once.
    fn read_run(&self, run: &[Place], out: &mut Vec<Result<Bytes, ReadError>>) {
        let (Some(first), Some(last)) = (run.first(), run.last()) else { return };
        let read = self.segment(first.segment).and_then(|segment| {
            Ok((self.read_range(&segment, first.offset, last.end())?, segment))
        });
        match read {
            Ok((bytes, segment)) => out
                .extend(run.iter().map(|&place| self.body(&segment, place, first.offset, &bytes))),
            // One record's fault must not be the fault of all.
            Err(_) if run.len() > 1 => out.extend(run.iter().map(|&place| self.read(place))),
            Err(error) => out.push(Err(error)),
        }
    }

    fn segment(&self, number: u32) -> Result<Arc<Segment>, ReadError> {
        self.shared.segment(number).ok_or(ReadError::Gone { segment: number })
    }

    fn read_range(&self, segment: &Segment, from: u32, to: u32) -> Result<Bytes, ReadError> {
        if from >= to || to > segment.header.size {
            return Err(self.damaged(segment.header.number, from));
        }
        let mut bytes = vec![0; (to - from) as usize];
        let read = segment.file.read_at(&mut bytes, u64::from(from));
        read.map_err(|error| failed(&self.shared, segment.header.number, from, &error))?;
        Ok(Bytes::from(bytes))
    }

    /// Verifies a record within bytes that begin at an offset of the segment.
    fn body(
        &self,
        segment: &Segment,
        place: Place,
        from: u32,
        bytes: &Bytes,
    ) -> Result<Bytes, ReadError> {
        let start = (place.offset - from) as usize;
        let end = start + place.size as usize;
        let whole = bytes.get(start..end).unwrap_or_default();
        match record::parse(record::start(segment.seed, place.offset), whole) {
            Some(Parsed::Record(..)) => Ok(bytes.slice(start + HEAD_BYTES..end)),
            Some(Parsed::Mark(_)) | None => Err(self.damaged(place.segment, place.offset)),
        }
    }

    fn damaged(&self, segment: u32, offset: u32) -> ReadError {
        damaged(&self.shared, segment, offset)
    }
}

/// Whether the second record may be read along with the first.
fn near(one: Place, two: Place) -> bool {
    one.segment == two.segment
        && two.offset >= one.end()
        && two.offset - one.end() <= GAP_BYTES_MAX
        && two.size >= RECORD_OVERHEAD
}

fn damaged(shared: &Shared, segment: u32, offset: u32) -> ReadError {
    let file = shared.storage.describe(&segment::name(segment));
    ReadError::Damaged { file, offset: u64::from(offset) }
}

fn failed(shared: &Shared, segment: u32, offset: u32, error: &io::Error) -> ReadError {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return damaged(shared, segment, offset);
    }
    let file = shared.storage.describe(&segment::name(segment));
    ReadError::Io { file, offset: u64::from(offset), reason: error.to_string() }
}

/// The records of a segment in order. Ends behind the first error.
#[derive(Debug)]
pub struct Scan {
    shared: Arc<Shared>,
    segment: u32,
    /// What reads the records; `None` behind the last.
    scanner: Option<Result<Scanner, ReadError>>,
    /// Whether the segment must end with a seal.
    sealed: bool,
}

impl Iterator for Scan {
    type Item = Result<(Head, Place), ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut scanner = match self.scanner.take()? {
            Ok(scanner) => scanner,
            Err(error) => return Some(Err(error)),
        };
        loop {
            let (offset, limit) = (scanner.offset(), scanner.limit());
            let head = match scanner.next() {
                Ok(Some((_, Parsed::Record(head, _)))) => head,
                Ok(Some((_, Parsed::Mark(Mark::Group { .. })))) => continue,
                Ok(Some((_, Parsed::Mark(Mark::Seal { .. })))) => return None,
                Ok(None) if !self.sealed && offset == limit => return None,
                Ok(None) => return Some(Err(damaged(&self.shared, self.segment, offset))),
                Err(error) => {
                    return Some(Err(failed(&self.shared, self.segment, offset, &error)));
                }
            };
            let size = scanner.offset() - offset;
            self.scanner = Some(Ok(scanner));
            return Some(Ok((head, Place { segment: self.segment, offset, size })));
        }
    }
}
