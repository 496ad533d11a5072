//! The log: every entry and every change of state, in one sequence of records shared by all topics.
//!
//! The broker's machine appends records to a [`Composer`], which needs no disk: it assigns a
//! location to each record and encodes it. When the writer is idle, the driver takes the composed
//! records as one [`RecordGroup`] and submits it to the [`BrokerLog`]: one write, one sync, then
//! the callback. A [`RecordReader`] reads records; [`open`] replays them after a restart.
//!
//! Invariants, which `docs/storage.md` explains together with the bytes on disk:
//! - A group is reported as written only after the disk confirmed its sync, and no later group is
//!   written before that.
//! - A failed sync is never retried: the log is closed for writes, and reads go on.
//! - Recovery drops only records that no callback has confirmed. It refuses any other damage, with
//!   file and offset.

mod aging;
mod background;
mod blocks;
mod checkpoint;
mod compacted;
mod compacted_scan;
mod composer;
mod confirmed;
mod error;
mod follower;
mod handle;
mod index;
mod indices;
mod inventory;
mod options;
mod prefix;
mod reader;
mod record;
mod recovery;
mod report;
mod reserve;
mod room;
#[cfg(test)]
mod scan;
mod scanner;
mod segment;
mod shared;
#[cfg(test)]
pub(crate) mod spoiled;
#[cfg(any(test, feature = "testing"))]
mod stepped;
mod storage;
mod survey;
mod tail;
mod times;
mod usage;
mod walk;
mod writer;

#[cfg(test)]
mod tests;

pub use compacted::{CompactedFile, CompactedSlot, CompactedWriter};
pub use compacted_scan::scan_compacted;
pub use composer::{Composer, RecordGroup};
pub use error::{AppendError, CompactedError, LogReadError, OpenError, WriteError};
pub(crate) use follower::PrefixPiece;
pub use follower::{SegmentLink, SegmentPrefix, checkpoint_segment, segment_link};
pub use handle::{BrokerLog, WriteCallback, open};
pub use index::{Facts, Indexed, LedgerRun};
pub use options::LogOptions;
pub use prefix::{
    index_name, listed_segments, segment_name, segment_numbers, sound_prefix, write_inventory,
};
pub use reader::{PinnedRecord, RecordReader};
pub use record::{LogPosition, RecordHead, RecordKind, RecordLocation};
pub use recovery::{ReplayedItem, verify};
pub use report::LogStatus;
#[cfg(any(test, feature = "testing"))]
pub use stepped::Stepped;
pub use storage::{
    FileStorage, LockError, ReadOnlyStorage, Storage, StorageLock, new_file, new_folder,
};
#[cfg(any(test, feature = "testing"))]
pub use storage::{SimulatedStorage, StorageFile, Surprise};
pub use survey::{Cost, LogFinding, LogSurvey, survey};
pub use times::{DurationHistogram, TIME_BOUNDS};
pub use usage::Usage;
#[cfg(feature = "testing")]
pub use {
    record::RECORD_OVERHEAD,
    recovery::{Apply, RecoveredLog, Truncated},
};
