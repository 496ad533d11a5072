//! The records of a segment, for tests that check all of them.

use crate::log::segments::reader::RecordReader;
use crate::log::segments::record::{RecordHead, RecordLocation};
use crate::log::segments::walk::walk;

impl RecordReader {
    /// The records of a segment, in order.
    pub(crate) fn scan(&self, segment: u32) -> Vec<(RecordHead, RecordLocation)> {
        let mut records = Vec::new();
        let walked = self.shared.segment(segment).map(|segment| {
            walk::<()>(&segment, |head, location, _| {
                records.push((head, location));
                Ok(())
            })
        });
        assert!(matches!(walked, Some(Ok(_))), "segment {segment}: {walked:?}");
        records
    }
}
