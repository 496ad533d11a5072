//! Work that no append waits for: the next segment, the removal of old ones, checkpoints. One step
//! per job, without a thread.

use crate::log::disk::reserve;
use crate::log::disk::room::size_within;
use crate::log::error::{WriteError, is_full, is_passing, unless_missing};
use crate::log::indices::index::{self, Builder, FactsOf};
use crate::log::recover::checkpoint;
use crate::log::recover::confirmed;
use crate::log::recover::inventory;
use crate::log::segments::record::{LogPosition, RecordKind};
use crate::log::segments::segment::{self, FOLDER, SPARE, SPARE_NEW};
use crate::log::segments::tail::SegmentTail;
use crate::log::segments::walk::{Stopped, walk};
use crate::log::shared::{Segment, SharedLogState, Spare, lock, make_file};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Records that a segment has begun, and creates the next spare if there is none.
pub(in crate::log) fn prepare(shared: &SharedLogState) {
    // Before `spare` is locked, because the writer waits for that lock.
    if shared.newest().is_some_and(|newest| shared.is_unlisted(newest.header.number))
        && let Err(error) = write_inventory(shared, &BTreeSet::new())
        && !is_full(&error)
    {
        complain(shared, "could not write", inventory::NAME, &error);
    }
    let mut spare = lock(&shared.spare);
    let left = shared.measure(&spare);
    // The reserve gets its room before segments get theirs, but is created after the spare, which
    // the writer needs next.
    let lacks = reserve::lacks(shared, left);
    shared.reserve_grows.store(lacks > 0, Ordering::Relaxed);
    let left = left.saturating_sub(lacks);
    let was_full = shared.room.is_full();
    if spare.is_some() {
        shared.room.set_full(false);
        return;
    }
    match make_spare(shared, left) {
        Ok(made) => {
            shared.measure(&spare);
            shared.room.set_spare(made.size);
            *spare = Some(made);
            shared.room.set_full(false);
        }
        Err(error) => {
            shared.room.set_full(is_passing(&error));
            // It is tried again each second.
            if !was_full {
                complain(shared, "could not prepare", SPARE, &error);
            }
        }
    }
}

/// Creates the next segment, as large as there is room for.
fn make_spare(shared: &SharedLogState, left: u64) -> io::Result<Spare> {
    let storage = &*shared.storage;
    let (wanted, first) =
        (shared.wanted.load(Ordering::Relaxed), shared.options.segment_bytes_first);
    let mut size = size_within(&shared.options, wanted, left).ok_or(io::ErrorKind::StorageFull)?;
    loop {
        let made = make_file(storage, SPARE_NEW, size).and_then(|file| {
            storage.rename(SPARE_NEW, SPARE)?;
            storage.sync_dir(FOLDER)?;
            Ok(Spare { file, size })
        });
        match made {
            // The system may report more room than it has, or a quota may be smaller.
            Err(error) if is_full(&error) && size > first => size = (size / 2).max(first),
            made => return made,
        }
    }
}

/// Builds the index of one sealed segment. Returns false if there is none left to build.
pub(in crate::log) fn index(shared: &SharedLogState) -> bool {
    let (Some(without), Some(facts)) = (shared.without_index(), shared.options.facts) else {
        return false;
    };
    let number = *without.start();
    // The segment may have been removed meanwhile.
    let Some(segment) = shared.segment(number) else {
        lock(&shared.unindexed).remove(&number);
        return true;
    };
    let Some(bytes) = make_index(shared, &segment, facts) else {
        // The next start, or a check, reports the damage.
        lock(&shared.unindexed).remove(&number);
        return true;
    };
    let first = u64::from(shared.options.segment_bytes_first);
    let left = shared.measure(&lock(&shared.spare));
    let written = if left < 2 * first + bytes.len() as u64 {
        Err(io::ErrorKind::StorageFull.into())
    } else {
        index::write(&*shared.storage, number, &bytes)
    };
    match written {
        Ok(()) => {
            lock(&shared.unindexed).remove(&number);
        }
        Err(error) => {
            shared.indices_wait.store(true, Ordering::Relaxed);
            // A missing index costs nothing: the next start reads the segment.
            if !is_passing(&error) {
                complain(shared, "could not write", &index::name(number), &error);
            }
        }
    }
    true
}

/// The index of a segment; `None` if the segment is damaged.
fn make_index(shared: &SharedLogState, segment: &Segment, facts: FactsOf) -> Option<Vec<u8>> {
    let mut builder = Builder::default();
    let walked = walk(segment, |head, location, body| {
        if head.kind == RecordKind::Entry {
            builder.add(head, location, facts(body).ok_or(location.offset)?);
        }
        Ok(())
    });
    let offset = match walked {
        Ok(SegmentTail { end, seal: Some(group), .. }) => {
            return Some(builder.finish(&segment.header, end, group));
        }
        Ok(tail) => tail.end,
        Err(Stopped::By(offset)) => offset,
        Err(Stopped::Io(error)) => {
            complain(shared, "could not read", &segment::name(segment.header.number), &error);
            return None;
        }
    };
    tracing::warn!(
        file = shared.storage.describe(&segment::name(segment.header.number)),
        offset,
        "a segment of the log is damaged and cannot be indexed: check the disk, then stop the broker and run `longhaul broker check`"
    );
    None
}

/// Removes segments. One of the right size becomes the spare, if nobody reads it.
pub(in crate::log) fn remove(shared: &SharedLogState, numbers: &[u32]) {
    // Without a checkpoint every record is needed; after the checkpoint, every change.
    let Some(checkpoint) = shared.checkpoint() else { return };
    let is_old = |number| number < checkpoint.segment && numbers.contains(&number);
    let old: BTreeSet<u32> = shared.numbers(is_old).into_iter().collect();
    if old.is_empty() {
        return;
    }
    if let Err(error) = strike_off(shared, &old) {
        return complain(shared, "could not write", inventory::NAME, &error);
    }
    for number in old {
        let Some(segment) = shared.forget(number) else { continue };
        if let Err(error) = remove_one(shared, segment) {
            complain(shared, "could not remove", &segment::name(number), &error);
        }
        remove_index(shared, number);
    }
    if let Err(error) = shared.storage.sync_dir(FOLDER) {
        complain(shared, "could not sync", FOLDER, &error);
    }
    shared.measure(&lock(&shared.spare));
    shared.indices_wait.store(false, Ordering::Relaxed);
    if shared.room.is_full() {
        prepare(shared);
    }
}

/// Removes these segments from the inventory. On a full disk, where the removal makes room, the
/// whole inventory is removed instead.
fn strike_off(shared: &SharedLogState, gone: &BTreeSet<u32>) -> io::Result<()> {
    match write_inventory(shared, gone) {
        Err(error) if is_full(&error) => {
            shared.listed.store(0, Ordering::Relaxed);
            inventory::remove(&*shared.storage)
        }
        written => written,
    }
}

/// Writes the inventory without the removed segments.
fn write_inventory(shared: &SharedLogState, gone: &BTreeSet<u32>) -> io::Result<()> {
    let numbers = shared.numbers(|number| !gone.contains(&number));
    // If there is no room, the next checkpoint or removal writes it.
    shared.listed.store(numbers.last().copied().unwrap_or(0), Ordering::Relaxed);
    inventory::write(&*shared.storage, &numbers)
}

/// Removes the index of a segment. If that fails, the next start removes it.
fn remove_index(shared: &SharedLogState, number: u32) {
    lock(&shared.unindexed).remove(&number);
    if let Err(error) = unless_missing(shared.storage.remove(&index::name(number))) {
        complain(shared, "could not remove", &index::name(number), &error);
    }
}

fn remove_one(shared: &SharedLogState, segment: Arc<Segment>) -> io::Result<()> {
    let name = segment::name(segment.header.number);
    let mut spare = lock(&shared.spare);
    let size = segment.header.size;
    let free = shared.measure(&spare).saturating_add(u64::from(size));
    let wanted = shared.wanted.load(Ordering::Relaxed);
    let fits = size_within(&shared.options, wanted, free) == Some(size);
    match Arc::into_inner(segment).filter(|_| fits && spare.is_none()) {
        Some(segment) => {
            shared.storage.rename(&name, SPARE)?;
            // Before the file is overwritten: a crash must not restore the old name with a new
            // header.
            shared.storage.sync_dir(FOLDER)?;
            // Checked only now: copies are not made of the spare. A restored segment may end behind
            // its last record, and a full disk has no room to make it longer.
            if segment.file.has_other_names()? || segment.file.len()? != u64::from(size) {
                return shared.storage.remove(SPARE);
            }
            *spare = Some(Spare { file: segment.file, size });
            shared.room.set_spare(size);
            shared.room.set_full(false);
            Ok(())
        }
        None => shared.storage.remove(&name),
    }
}

/// Replaces the checkpoint.
pub(in crate::log) fn checkpoint(
    shared: &SharedLogState,
    at: LogPosition,
    image: &[Bytes],
) -> Result<(), WriteError> {
    let mut written = write_checkpoint(shared, at, image);
    if written.as_ref().is_err_and(is_full) && reserve::give_up(shared) {
        written = write_checkpoint(shared, at, image);
    }
    written.map_err(|error| WriteError::Checkpoint {
        file: shared.storage.describe(checkpoint::NAME),
        reason: error.to_string(),
    })?;
    shared.set_checkpoint(at);
    Ok(())
}

fn write_checkpoint(shared: &SharedLogState, at: LogPosition, image: &[Bytes]) -> io::Result<()> {
    // After the new position, a gap in the numbers reveals a missing segment. Needed segments
    // before it must be listed.
    write_inventory(shared, &BTreeSet::new())?;
    checkpoint::write(&*shared.storage, at, image)?;
    let bytes = image.iter().map(|one| one.len() as u64).sum();
    shared.checkpoint_bytes.store(bytes, Ordering::Relaxed);
    Ok(())
}

/// Notes how far the log is confirmed. The log is idle, so nothing waits for this.
pub(in crate::log) fn record_confirmed(shared: &SharedLogState) {
    let at = shared.durable();
    // If it cannot be noted, it is tried again when there is more to note.
    shared.set_noted(at);
    if let Err(error) = lock(&shared.confirmed).note(&*shared.storage, at)
        && !is_passing(&error)
    {
        complain(shared, "could not write", confirmed::NAME, &error);
    }
}

pub(in crate::log) fn complain(shared: &SharedLogState, what: &str, name: &str, error: &io::Error) {
    tracing::warn!(file = shared.storage.describe(name), %error, "{what}");
}
