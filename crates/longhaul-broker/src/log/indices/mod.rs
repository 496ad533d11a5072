//! Uses the indices of segments at a start, and determines which ones must be built.

pub(in crate::log) mod aging;
pub(in crate::log) mod index;

use super::error::OpenError;
use super::shared::Segment;
use crate::log::disk::storage::Storage;
use crate::log::recover::recovery::{Apply, ReplayedItem};
use crate::log::segments::segment::SegmentHeader;
use crate::log::segments::tail::SegmentTail;
use index::{Index, Unusable};
use std::collections::BTreeSet;

/// The indices of a log that is being opened.
pub(super) struct Indices<'a> {
    storage: &'a dyn Storage,
    /// Segments that had to be read because they had no index.
    missing: Vec<u32>,
    /// Segments whose index was used.
    used: BTreeSet<u32>,
}

impl<'a> Indices<'a> {
    pub(super) fn new(storage: &'a dyn Storage) -> Self {
        Self { storage, missing: Vec::new(), used: BTreeSet::new() }
    }

    /// Passes on the entries of a segment from its index. Returns where the segment ends and how
    /// many there were; `None` if the segment must be read.
    pub(super) fn replay(
        &mut self,
        segment: &Segment,
        next: Option<&SegmentHeader>,
        apply: Apply<'_>,
    ) -> Result<Option<(SegmentTail, u64)>, OpenError> {
        let number = segment.header.number;
        let index = match Index::read(self.storage, segment, next) {
            Ok(index) => index,
            Err(Unusable::Missing) => {
                self.missing.push(number);
                return Ok(None);
            }
            Err(Unusable::Unfit(what)) => {
                self.give_up(number, &what);
                return Ok(None);
            }
        };
        let count = index.runs(|run| {
            apply(ReplayedItem::Entries(run)).map_err(|reason| {
                let file = self.storage.describe(&index::name(number));
                OpenError::Apply { file, offset: 0, reason }
            })
        })?;
        let Some(count) = count else {
            // Entries that were already passed on come again from the segment, without effect.
            self.give_up(number, "its content is inconsistent");
            return Ok(None);
        };
        self.used.insert(number);
        let (end, group) = (index.end, index.group);
        Ok(Some((SegmentTail { end, group, chunk: None, seal: Some(group) }, count)))
    }

    fn give_up(&self, number: u32, what: &str) {
        tracing::warn!(
            file = self.storage.describe(&index::name(number)),
            what,
            "the index of a segment does not match it: the segment is read in full instead, and the index is rebuilt. Check the disk"
        );
    }

    /// The sealed segments that were read and therefore need an index. A wrong index is only
    /// noticed when it is used.
    pub(super) fn left_to_make(&self, sealed: impl Iterator<Item = u32>) -> BTreeSet<u32> {
        if let Some(first) = self.missing.first() {
            // After an update this may be all of them.
            tracing::info!(
                segments = self.missing.len(),
                first,
                "segments of the log have no index yet: they were read in full, and their indices are built now. This is normal after a stop under load and after an update"
            );
        }
        sealed.filter(|number| !self.used.contains(number)).collect()
    }
}
