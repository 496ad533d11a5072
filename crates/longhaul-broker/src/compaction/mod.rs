//! Compaction: the last message of every key, in a separate file.
//!
//! [`plan`] decides which messages survive and uses no files; [`run`] reads, asks the plan, and
//! writes. Both pass over the entries twice, in order: first to find the last message of each key,
//! then to copy. While it runs, a compaction uses about 100 bytes of memory per live key. `chunks`
//! keeps the chunks of a message together.

mod chunks;
pub(crate) mod plan;
pub(crate) mod rebuild;
pub(crate) mod run;
pub(crate) mod views;

use crate::state::entries::EntryCopy;

/// Input of a compaction.
#[derive(Clone, Debug)]
pub struct CompactionJob {
    /// The topic.
    pub topic: u32,
    /// Its name.
    pub name: String,
    /// Name of the file to be written.
    pub file: String,
    /// The previous compacted view, if there is one.
    pub previous: Option<String>,
    /// The first entry that is not compacted.
    pub horizon: u64,
    /// Most bytes of the new view, by the limit of the disk.
    pub bytes_max: Option<u64>,
    /// The entries since the previous compaction.
    pub entries: EntryCopy,
}
