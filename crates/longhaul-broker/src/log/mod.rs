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

mod compacted;
mod disk;
mod error;
mod handle;
mod indices;
mod options;
mod recover;
mod segments;
mod shared;
#[cfg(test)]
pub(crate) mod spoiled;
mod status;
#[cfg(any(test, feature = "testing"))]
mod stepped;
mod times;

#[cfg(test)]
mod tests;

pub use compacted::scan::scan_compacted;
pub use compacted::{CompactedEntry, CompactedFile, CompactedWriter};
pub use disk::storage::{
    FileStorage, LockError, ReadOnlyStorage, Storage, StorageLock, new_file, new_folder,
};
#[cfg(any(test, feature = "testing"))]
pub use disk::storage::{SimulatedStorage, StorageFile, Surprise};
pub use disk::usage::Usage;
pub(crate) use error::unless_missing;
pub use error::{AppendError, CompactedError, LogReadError, OpenError, UnknownFormat, WriteError};
pub use handle::{BrokerLog, WriteCallback, open};
pub use indices::index::{Facts, Indexed, LedgerRun, name as index_name};
pub use options::LogOptions;
pub use recover::checkpoint::{segment_of as checkpoint_segment, verify as verify_checkpoint};
pub use recover::follower::{
    SegmentFollower, SegmentLink, SegmentPiece, segment_link, segment_numbers,
};
pub use recover::inventory::{
    NAME as INVENTORY, encode as encode_inventory, listed as listed_segments,
    write as write_inventory,
};
pub use recover::recovery::{ReplayedItem, verify};
pub use recover::survey::{Cost, LogFinding, LogSurvey, survey};
pub use segments::composer::{Composer, RecordGroup};
pub use segments::reader::{PinnedRecord, RecordReader};
pub use segments::record::{LogPosition, RecordHead, RecordKind, RecordLocation};
pub use segments::segment::name as segment_name;
pub use status::LogStatus;
#[cfg(any(test, feature = "testing"))]
pub use stepped::Stepped;
pub use times::{DurationHistogram, TIME_BOUNDS};
#[cfg(feature = "testing")]
pub use {
    recover::recovery::{Apply, RecoveredLog, Truncated},
    segments::record::RECORD_OVERHEAD,
};
