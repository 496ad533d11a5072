//! What a start does: it replays the checkpoint and the records, and decides about a damaged end;
//! and what others read of a directory.

pub(in crate::log) mod checkpoint;
pub(in crate::log) mod confirmed;
pub(in crate::log) mod follower;
pub(in crate::log) mod inventory;
pub(in crate::log) mod recovery;
pub(in crate::log) mod survey;
