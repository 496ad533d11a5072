//! Iterates over the records of a segment, for tests that check all of them.

use crate::log::error::LogReadError;
use crate::log::segments::reader::{RecordReader, damaged, failed};
use crate::log::segments::record::{LogMark, ParsedRecord, RecordHead, RecordLocation};
use crate::log::segments::scanner::Scanner;
use crate::log::shared::{Segment, SharedLogState};
use std::sync::Arc;

impl RecordReader {
    /// The records of a segment, up to the last durable one.
    pub(crate) fn scan(&self, segment: u32) -> SegmentScan {
        let end = self.shared.durable();
        let scanner = self.segment(segment).map(|found| {
            let limit = if segment == end.segment { end.offset } else { found.header.size };
            Scanner::new(Arc::clone(&found.file), found.seed, limit)
        });
        let sealed = segment != end.segment;
        SegmentScan { shared: Arc::clone(&self.shared), segment, scanner: Some(scanner), sealed }
    }

    fn segment(&self, number: u32) -> Result<Arc<Segment>, LogReadError> {
        self.shared.segment(number).ok_or(LogReadError::Gone { segment: number })
    }
}

/// The records of a segment in order. Ends after the first error.
#[derive(Debug)]
pub(crate) struct SegmentScan {
    shared: Arc<SharedLogState>,
    segment: u32,
    /// Reads the records; `None` after the last.
    scanner: Option<Result<Scanner, LogReadError>>,
    /// Whether the segment must end with a seal.
    sealed: bool,
}

impl Iterator for SegmentScan {
    type Item = Result<(RecordHead, RecordLocation), LogReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut scanner = match self.scanner.take()? {
            Ok(scanner) => scanner,
            Err(error) => return Some(Err(error)),
        };
        loop {
            let (offset, limit) = (scanner.offset(), scanner.limit());
            let head = match scanner.next() {
                Ok(Some((_, ParsedRecord::Record(head, _)))) => head,
                Ok(Some((_, ParsedRecord::Mark(LogMark::Group { .. })))) => continue,
                Ok(Some((_, ParsedRecord::Mark(LogMark::Seal { .. })))) => return None,
                Ok(None) if !self.sealed && offset == limit => return None,
                Ok(None) => return Some(Err(damaged(&self.shared, self.segment, offset))),
                Err(error) => {
                    return Some(Err(failed(&self.shared, self.segment, offset, &error)));
                }
            };
            let size = scanner.offset() - offset;
            self.scanner = Some(Ok(scanner));
            return Some(Ok((head, RecordLocation { segment: self.segment, offset, size })));
        }
    }
}
