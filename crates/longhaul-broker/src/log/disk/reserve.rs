//! A file that reserves space for the next checkpoint. Without a checkpoint, nothing frees space on
//! a full disk, and other programs may take the last byte.
//!
//! The file grows in small steps that nobody waits for; work for the writer runs between them.

use crate::log::disk::background::complain;
use crate::log::error::{OpenError, is_passing, unless_missing};
use crate::log::shared::{SYNC_BYTES, SharedLogState, fill, lock};
use std::io;
use std::sync::atomic::Ordering;

/// Name of the file. Its content is meaningless.
pub(in crate::log) const NAME: &str = "reserve";

/// Bytes that the file still needs, given the free bytes `left`; 0 if they do not suffice for the
/// file and a segment.
pub(in crate::log) fn lacks(shared: &SharedLogState, left: u64) -> u64 {
    let lacks = missing(shared);
    let first = u64::from(shared.options.segment_bytes_first);
    if left < lacks.saturating_add(first) { 0 } else { lacks }
}

/// Bytes that the file still needs.
pub(in crate::log) fn missing(shared: &SharedLogState) -> u64 {
    let first = u64::from(shared.options.segment_bytes_first);
    // The previous checkpoint is kept until the next one is complete, and the next one may be
    // larger.
    let last = shared.checkpoint_bytes.load(Ordering::Relaxed);
    let size = last.saturating_mul(2).max(first / 4);
    size.saturating_sub(shared.reserved.load(Ordering::Relaxed))
}

/// Lets it grow by a few MiB at most, if it is to. What fails is tried again when the next segment
/// is prepared, or a second later.
pub(in crate::log) fn grow(shared: &SharedLogState) {
    let left = shared.measure(&lock(&shared.spare));
    let lacks = lacks(shared, left);
    let there = shared.reserved.load(Ordering::Relaxed);
    shared.reserve_grows.store(lacks > SYNC_BYTES, Ordering::Relaxed);
    if lacks == 0 {
        return;
    }
    if let Err(error) = extend(shared, there, there + lacks.min(SYNC_BYTES)) {
        shared.reserve_grows.store(false, Ordering::Relaxed);
        // The existing part is kept, unless somebody removed the file.
        if there == 0 || error.kind() == io::ErrorKind::NotFound {
            give_up(shared);
        }
        if !is_passing(&error) {
            complain(shared, "could not make", NAME, &error);
        }
    }
    shared.measure(&lock(&shared.spare));
}

/// Creates or extends the file up to this size.
fn extend(shared: &SharedLogState, from: u64, to: u64) -> io::Result<()> {
    let file = if from == 0 { shared.storage.create(NAME) } else { shared.storage.open(NAME) }?;
    fill(&*file, from, to)?;
    shared.reserved.store(to, Ordering::Relaxed);
    Ok(())
}

/// Frees the space of the file. Returns whether there was any.
pub(in crate::log) fn give_up(shared: &SharedLogState) -> bool {
    let was_there = shared.reserved.swap(0, Ordering::Relaxed) > 0;
    shared.storage.remove(NAME).is_ok() && was_there
}

/// Takes over the file of the previous process.
pub(in crate::log) fn adopt(shared: &SharedLogState) -> Result<(), OpenError> {
    let io =
        |source| OpenError::Io { what: format!("open {}", shared.storage.describe(NAME)), source };
    let file = unless_missing(shared.storage.open(NAME)).map_err(io)?;
    let Some(file) = file else { return Ok(()) };
    shared.reserved.store(file.len().map_err(io)?, Ordering::Relaxed);
    Ok(())
}
