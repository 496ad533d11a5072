//! Segments: their files, the records in them, and who writes and reads these.

pub(in crate::log) mod blocks;
pub(in crate::log) mod composer;
pub(in crate::log) mod reader;
pub(in crate::log) mod record;
#[cfg(test)]
pub(in crate::log) mod scan;
pub(in crate::log) mod scanner;
pub(in crate::log) mod segment;
pub(in crate::log) mod tail;
pub(in crate::log) mod walk;
pub(in crate::log) mod writer;
