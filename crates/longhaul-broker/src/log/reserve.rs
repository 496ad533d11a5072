//! A file that holds room for the next checkpoint. Nothing is given back on a full disk without one, and others may take the last byte.

use super::background::complain;
use super::error::{OpenError, is_passing};
use super::shared::{Shared, make_file};
use std::io;
use std::sync::atomic::Ordering;

/// The name of the file. Its bytes have no meaning.
pub(super) const NAME: &str = "reserve";

/// Sees to it that there is one, if so much as is left is enough for it and for a segment. A new one is made only when the checkpoint has grown.
pub(super) fn keep(shared: &Shared, left: u64) {
    let first = shared.options.segment_bytes_first;
    // The checkpoint before stays until the next one is whole, and that one may be larger.
    let last = shared.checkpoint_bytes.load(Ordering::Relaxed);
    let size = u32::try_from(last.saturating_mul(2)).unwrap_or(u32::MAX).max(first / 4);
    let there = shared.reserved.load(Ordering::Relaxed);
    let suffices = there >= u64::from(first / 4) && there >= last.saturating_add(last / 4);
    if suffices || left < u64::from(size) + u64::from(first) {
        return;
    }
    match make_file(&*shared.storage, NAME, size) {
        Ok(_) => shared.reserved.store(u64::from(size), Ordering::Relaxed),
        Err(error) => {
            shared.reserved.store(0, Ordering::Relaxed);
            if !is_passing(&error) {
                complain(shared, "could not make", NAME, &error);
            }
        }
    }
}

/// Gives its room back. Says whether there was any.
pub(super) fn give_up(shared: &Shared) -> bool {
    shared.reserved.swap(0, Ordering::Relaxed) > 0 && shared.storage.remove(NAME).is_ok()
}

/// Notes the one of the process before.
pub(super) fn adopt(shared: &Shared) -> Result<(), OpenError> {
    let io =
        |source| OpenError::Io { what: format!("open {}", shared.storage.describe(NAME)), source };
    let file = match shared.storage.open(NAME) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io(error)),
    };
    shared.reserved.store(file.len().map_err(io)?, Ordering::Relaxed);
    Ok(())
}
