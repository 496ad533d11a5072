//! Compaction: the last message of every key, in a file of its own.
//!
//! [`plan`] decides what survives, and knows no files; [`run`] reads, asks it, and writes. Both go
//! through the entries twice, in order: first to learn which message is the last of its key, then
//! to copy. Memory: some 100 bytes for each key that is alive, while it runs.

pub(crate) mod plan;
pub(crate) mod rebuild;
pub(crate) mod run;
pub(crate) mod views;
