//! The files of the data directory, the room for them, and the work that no append waits for.

pub(in crate::log) mod background;
pub(in crate::log) mod reserve;
pub(in crate::log) mod room;
pub(in crate::log) mod storage;
pub(in crate::log) mod usage;
