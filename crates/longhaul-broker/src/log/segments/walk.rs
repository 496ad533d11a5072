//! Iterates over the records of one segment, as far as they are intact.

use crate::log::segments::record::{LogMark, ParsedRecord, RecordHead, RecordLocation};
use crate::log::segments::scanner::Scanner;
use crate::log::segments::tail::SegmentTail;
use crate::log::shared::Segment;
use std::io;
use std::sync::Arc;

/// Why a walk has ended early.
#[derive(Debug)]
pub(in crate::log) enum Stopped<E> {
    /// The operating system refused.
    Io(io::Error),
    /// The callback stopped the walk.
    By(E),
}

/// Passes on the records of a segment up to its seal, or up to the first invalid record. Returns
/// the end of the segment.
pub(in crate::log) fn walk<E>(
    segment: &Segment,
    mut each: impl FnMut(RecordHead, RecordLocation, &[u8]) -> Result<(), E>,
) -> Result<SegmentTail, Stopped<E>> {
    let length = segment.file.len().map_err(Stopped::Io)?;
    let limit = u32::try_from(length).map_or(segment.header.size, |length| {
        // A copy may have lost zeros at the end. Anything else that is missing is reported as
        // damage.
        length.min(segment.header.size)
    });
    let mut scanner = Scanner::new(Arc::clone(&segment.file), segment.seed, limit);
    let mut tail = SegmentTail::new(&segment.header);
    while let Some((offset, parsed)) = scanner.next().map_err(Stopped::Io)? {
        match parsed {
            ParsedRecord::Mark(LogMark::Seal { group, .. }) => {
                tail.seal = tail.may_seal(group).then_some(group);
                break;
            }
            ParsedRecord::Mark(LogMark::Group { group, bytes }) => {
                if !tail.begin(group, offset, bytes) {
                    break;
                }
            }
            ParsedRecord::Record(head, body) => {
                let Some(size) = tail.record_size(body) else { break };
                let location = RecordLocation { segment: segment.header.number, offset, size };
                each(head, location, body).map_err(Stopped::By)?;
            }
        }
        tail.end = scanner.offset();
    }
    Ok(tail)
}
