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
