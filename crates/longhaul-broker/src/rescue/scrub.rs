//! Reads what rests in a data directory while a broker uses it.

use super::{RescueError, follow, inventory, missing_segments, refused, segments, unread};
use crate::log::{
    CompactedError, CompactedFile, OpenError, ReadOnlyStorage, Storage as _, segment_name,
    verify_checkpoint,
};
use std::io;
use std::path::{Path, PathBuf};

/// Bytes that are read at once.
const STEP_BYTES: u32 = 1024 * 1024;

/// Reads the checkpoint, the compacted views, and all segments but the two newest, which the broker
/// writes, and returns the files that are missing or do not match their checksums. It needs little
/// memory, unlike [`check`](super::check()), which tells what the damage costs. `go_on` is called with the number
/// of bytes that were just read, and ends the scrub with `false`.
///
/// # Errors
/// The directory cannot be read.
pub fn scrub(
    directory: &Path,
    mut go_on: impl FnMut(u64) -> bool,
) -> Result<Vec<PathBuf>, RescueError> {
    let listed = inventory(directory)?;
    let numbers = segments(directory)?;
    let missing = missing_segments(directory, &listed, &numbers)?;
    let missing = missing.into_iter().map(|number| directory.join(segment_name(number)));
    let mut damaged: Vec<PathBuf> = missing.collect();
    for &number in numbers.iter().rev().skip(2) {
        let Some(is_sound) = is_sound(directory, number, &mut go_on)? else { return Ok(damaged) };
        // The broker may have removed it meanwhile, and use its file for another one.
        let path = directory.join(segment_name(number));
        if !is_sound && path.try_exists().unwrap_or(true) {
            damaged.push(path);
        }
    }
    let storage = ReadOnlyStorage::new(directory).map_err(|source| unread(directory, source))?;
    match verify_checkpoint(&storage) {
        Err(OpenError::Damaged { file, .. }) => damaged.push(file.into()),
        verified => verified.map_err(|source| refused(directory, source))?,
    }
    let views = storage.list("compact").map_err(|source| unread(directory, source))?;
    for name in views.iter().filter(|name| name.ends_with(".seg")) {
        let name = format!("compact/{name}");
        let sound = is_sound_view(directory, &storage, &name, &mut go_on)?;
        let Some(is_sound) = sound else { return Ok(damaged) };
        if !is_sound {
            damaged.push(directory.join(name));
        }
    }
    Ok(damaged)
}

/// Whether a view matches its checksums, or is gone; `None` if the scrub ends.
fn is_sound_view(
    directory: &Path,
    storage: &ReadOnlyStorage,
    name: &str,
    go_on: &mut impl FnMut(u64) -> bool,
) -> Result<Option<bool>, RescueError> {
    let view = match CompactedFile::open(storage, name) {
        Ok(view) => view,
        Err(CompactedError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Ok(Some(true));
        }
        Err(CompactedError::Io { source, .. }) => return Err(unread(directory, source)),
        Err(_) => return Ok(Some(false)),
    };
    let mut bytes = 0;
    for slot in view.slots().iter() {
        if view.read(slot).is_err() {
            return Ok(Some(false));
        }
        bytes += slot.size;
        if bytes >= STEP_BYTES && !go_on(std::mem::take(&mut bytes).into()) {
            return Ok(None);
        }
    }
    Ok(go_on(bytes.into()).then_some(true))
}

/// Whether a segment has nothing but records up to its seal, or is gone; `None` if the scrub ends.
fn is_sound(
    directory: &Path,
    number: u32,
    go_on: &mut impl FnMut(u64) -> bool,
) -> Result<Option<bool>, RescueError> {
    let mut segment = match follow(directory, number, true) {
        Ok(Some(segment)) => segment,
        Ok(None) => return Ok(Some(true)),
        // The header is damaged.
        Err(RescueError::Read { source: OpenError::Damaged { .. }, .. }) => return Ok(Some(false)),
        Err(error) => return Err(error),
    };
    loop {
        let piece = segment.next(STEP_BYTES, true).map_err(|source| unread(directory, source))?;
        let Some(piece) = piece else { return Ok(Some(true)) };
        if !piece.is_sound {
            return Ok(Some(false));
        }
        if !go_on(piece.bytes.len() as u64) {
            return Ok(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{CompactedWriter, FileStorage};
    use crate::rescue::linked::check_used;
    use crate::rescue::linked::tests::{fill, image};
    use std::fs;
    use std::sync::Arc;

    /// Changes the first byte of a file, or the one in its middle.
    fn spoil(path: &Path, is_first: bool) {
        let mut bytes = fs::read(path).unwrap();
        let at = if is_first { 0 } else { bytes.len() / 2 };
        bytes[at] ^= 1;
        fs::write(path, bytes).unwrap();
    }

    /// A segment that somebody had removed was missing in no report: not in that of the scrub, and
    /// not in that of a check of the running broker.
    #[test]
    fn a_segment_that_is_missing_is_damage() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path();
        let mut log = fill(data);
        log.checkpoint(log.composer.end(), &image()).unwrap();
        assert!(check_used(data).unwrap().is_sound());
        assert_eq!(scrub(data, |_| true).unwrap(), Vec::<PathBuf>::new());
        let missing = data.join(segment_name(3));
        fs::remove_file(&missing).unwrap();
        assert_eq!(scrub(data, |_| true).unwrap(), [missing]);
        let report = check_used(data).unwrap();
        assert!(!report.is_sound() && report.to_string().contains("the file is missing"));
        // The broker has removed this one.
        log.remove(&[2]);
        assert!(!data.join(segment_name(2)).try_exists().unwrap());
        assert_eq!(scrub(data, |_| true).unwrap().len(), 1);
    }

    #[test]
    fn a_scrub_names_each_file_that_is_damaged_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path();
        fill(data);
        let storage = Arc::new(FileStorage::new(data).unwrap());
        for name in ["compact/0-1.seg", "compact/0-2.seg"] {
            let mut view =
                CompactedWriter::create(Arc::<FileStorage>::clone(&storage), name).unwrap();
            (0..50).for_each(|entry| view.append(entry, 0, entry, 1, &[7; 1000]).unwrap());
            view.finish().unwrap();
        }
        let mut read = 0;
        let count = |bytes: u64| {
            read += bytes;
            true
        };
        assert_eq!(scrub(data, count).unwrap(), Vec::<PathBuf>::new());
        assert!(read > 500_000, "{read} bytes");
        let damaged = ["log/0000000003.seg", "log/0000000005.seg", "compact/0-2.seg"]
            .map(|name| data.join(name));
        assert_eq!(damaged[0], data.join(segment_name(3)));
        spoil(&damaged[0], true);
        spoil(&damaged[1], false);
        spoil(&damaged[2], false);
        fs::write(data.join("checkpoint"), "no checkpoint").unwrap();
        let mut found = scrub(data, |_| true).unwrap();
        found.sort();
        let mut expected = damaged.to_vec();
        expected.push(data.join("checkpoint"));
        expected.sort();
        assert_eq!(found, expected);
        assert_eq!(scrub(data, |_| false).unwrap(), Vec::<PathBuf>::new(), "it ends at once");
    }
}
