//! Links the files of a data directory into a folder of it, for a check while a broker uses it.
//!
//! Full segments and compacted views are never written again, so a hard link suffices: the broker
//! does not reuse a file that has other names. The two newest segments are copied whole, and may end
//! with a part of an unfinished group, as after a crash: a start tolerates that.

use super::{RescueError, RescueReport, UNFINISHED, check_links, inventory, missing_segments};
use crate::log::{
    FileStorage, INVENTORY, ReadOnlyStorage, Storage as _, index_name, new_file, new_folder,
    segment_name, segment_numbers, unless_missing, write_inventory,
};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// A change of the broker may look like damage; then the check starts again.
const ATTEMPTS: u32 = 5;
/// Beginning of the name of the folder for links. The process id follows.
const FOLDER: &str = "check-";

/// Checks a directory that a broker uses. It checks again while there is damage: a concurrent change
/// of the broker looks like damage, and is gone in a later attempt. Damage that is found twice stays.
pub(super) fn check_used(directory: &Path) -> Result<RescueReport, RescueError> {
    if directory.join(UNFINISHED).is_file() {
        return Err(RescueError::Unfinished { path: directory.to_owned() });
    }
    let attempt = || check_links(directory, link(directory)?.path());
    let mut report = attempt()?;
    for _ in 1..ATTEMPTS {
        if report.is_sound() {
            break;
        }
        let former = std::mem::replace(&mut report, attempt()?);
        if report.has_damage_of(&former) {
            break;
        }
    }
    Ok(report)
}

/// Links the files of a directory into a folder of it. Only the two newest segments are copied.
fn link(directory: &Path) -> Result<LinkFolder, RescueError> {
    remove_stale(directory).ok();
    let folder = LinkFolder::new(directory)?;
    take(directory, folder.path())?;
    Ok(folder)
}

/// As `link`, of a directory that no broker uses: with the inventory that it has.
pub(super) fn link_unused(directory: &Path) -> Result<LinkFolder, RescueError> {
    let folder = link(directory)?;
    let (from, to) = (directory.join(INVENTORY), folder.path().join(INVENTORY));
    let copied = fs::remove_file(&to).and_then(|()| unless_missing(fs::copy(&from, &to)));
    copied.map_err(|source| failed("write", &to, source))?;
    Ok(folder)
}

fn failed(what: &str, path: &Path, source: io::Error) -> RescueError {
    RescueError::Io { what: format!("{what} {}", path.display()), source }
}

/// A folder of the data directory for the links. It is removed at the end.
pub(super) struct LinkFolder(PathBuf);

impl LinkFolder {
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    fn new(directory: &Path) -> Result<Self, RescueError> {
        let folder = directory.join(format!("{FOLDER}{}", std::process::id()));
        new_folder(&folder).map_err(|source| failed("make", &folder, source))?;
        Ok(Self(folder))
    }
}

impl Drop for LinkFolder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

/// Removes the folders that killed processes have left: their links would keep segments on the disk.
pub(crate) fn remove_stale(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(FOLDER)?.parse().ok());
        let Some(pid) = pid.and_then(Pid::from_raw) else { continue };
        // In a container each process is the first, and this one has made no folder yet.
        let is_own = pid == rustix::process::getpid();
        if is_own || test_kill_process(pid) == Err(Errno::SRCH) {
            // One that somebody else has made must not keep the others.
            fs::remove_dir_all(entry.path()).ok();
        }
    }
    Ok(())
}

/// Links the files of a data directory, and copies the two newest segments.
fn take(directory: &Path, new: &Path) -> Result<(), RescueError> {
    let read = |source| failed("read", directory, source);
    let made = |source| failed("write", new, source);
    let from = ReadOnlyStorage::new(directory).map_err(read)?;
    let to = FileStorage::new(new).map_err(made)?;
    // Copied before the log: the log may be longer than these files say, but not shorter.
    unless_missing(fs::copy(directory.join("confirmed"), new.join("confirmed"))).map_err(made)?;
    unless_missing(fs::copy(directory.join("checkpoint"), new.join("checkpoint"))).map_err(made)?;
    link_views(directory, new).map_err(made)?;
    let listed = inventory(directory)?;
    let numbers = segment_numbers(&from).map_err(read)?;
    let full = numbers.len().saturating_sub(2);
    let mut taken = Vec::new();
    for (index, &number) in numbers.iter().enumerate() {
        let name = segment_name(number);
        let path = new.join(&name);
        let done = if index >= full {
            copy_segment(&from, &name, &path)
        } else {
            fs::hard_link(directory.join(&name), &path)
        };
        // A removed segment was no longer needed; the newest segment says so.
        if unless_missing(done).map_err(made)?.is_none() {
            continue;
        }
        taken.push(number);
        if index < full {
            // The index may not exist yet: a start works without it.
            let index = index_name(number);
            let (from, to) = (directory.join(&index), new.join(&index));
            unless_missing(fs::hard_link(&from, &to)).map_err(made)?;
        }
    }
    // The newest segment may name a view that was created after the first look.
    link_views(directory, new).map_err(made)?;
    // The broker has removed what it no longer lists. What it lists and nobody found is missing.
    taken.extend(missing_segments(directory, &listed, &taken)?);
    taken.sort_unstable();
    write_inventory(&to, &taken).map_err(made)
}

/// Copies a segment that the broker may be writing. Unreadable blocks become zeros.
fn copy_segment(from: &ReadOnlyStorage, name: &str, to: &Path) -> io::Result<()> {
    let file = from.open(name)?;
    let mut bytes = vec![0; usize::try_from(file.len()?).map_err(io::Error::other)?];
    file.read_at(&mut bytes, 0)?;
    new_file(to)?.write_all(&bytes)
}

fn link_views(directory: &Path, new: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory.join("compact"))? {
        let entry = entry?;
        let to = new.join("compact").join(entry.file_name());
        if entry.path().extension().is_some_and(|extension| extension == "seg")
            && !to.try_exists()?
        {
            unless_missing(fs::hard_link(entry.path(), &to))?;
        }
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::log::{LogOptions, RecordHead, RecordKind, Stepped, Storage};
    use crate::state::change::{ChangeRecord, CreateTopic, OpenLedger, StateChange, TopicEnd};
    use crate::state::entry::EntryHead;
    use bytes::Bytes;
    use longhaul_wire::messages::MessageMetadata;
    use longhaul_wire::payload::Payload;
    use prost::Message as _;
    use std::sync::Arc;

    const ENTRIES: u64 = 60;

    /// The changes that begin the log.
    fn changes() -> [StateChange; 2] {
        let name = "persistent://public/default/t".to_owned();
        let create: StateChange = CreateTopic { topic: 0, name, created_at: 1 }.into();
        [create, OpenLedger { topic: 0, ledger: 0, first: 0 }.into()]
    }

    /// A checkpoint of the state at the end of the log.
    pub(in crate::rescue) fn image() -> [Bytes; 1] {
        let end: StateChange = TopicEnd { topic: 0, end: ENTRIES }.into();
        let records = changes().into_iter().chain([end]);
        let records = records.flat_map(|change| {
            ChangeRecord { change: Some(change) }.encode_length_delimited_to_vec()
        });
        [records.collect()]
    }

    /// A data directory with some segments.
    pub(in crate::rescue) fn fill(data: &Path) -> Stepped {
        let storage: Arc<dyn Storage> = Arc::new(FileStorage::new(data).unwrap());
        let options = LogOptions {
            segment_bytes_first: 64 * 1024,
            segment_bytes_max: 64 * 1024,
            body_bytes_max: 20_000,
            ..LogOptions::default()
        };
        let mut log = Stepped::open(storage, options, &mut |_| Ok(())).unwrap();
        for change in changes() {
            let head = RecordHead { kind: RecordKind::Change, topic: 0, ledger: 0, entry: 0 };
            let body = ChangeRecord { change: Some(change) }.encode_to_vec();
            log.composer.append(head, &[&body]).unwrap();
        }
        let mut body = Vec::new();
        EntryHead::default().encode(&mut body);
        body.extend_from_slice(Payload::new(&MessageMetadata::default(), &[7; 10_000]).bytes());
        for entry in 0..ENTRIES {
            let head = RecordHead { kind: RecordKind::Entry, topic: 0, ledger: 0, entry };
            log.composer.append(head, &[&body]).unwrap();
            let group = log.composer.take().unwrap();
            log.write(&group).unwrap();
            log.prepare();
        }
        log
    }

    #[test]
    fn the_folder_of_a_killed_process_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path();
        fill(data);
        fs::create_dir(data.join(format!("{FOLDER}999999999"))).unwrap();
        let report = check_used(data).unwrap();
        assert!(report.is_sound(), "{report}");
        assert_eq!(report.messages(), ENTRIES);
        let left: Vec<_> = fs::read_dir(data).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(!left.iter().any(|path| path.to_string_lossy().contains(FOLDER)), "{left:?}");
    }

    /// The newest segment is copied while the broker writes it.
    #[test]
    fn the_rest_of_an_unfinished_group_is_no_damage() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path();
        fill(data);
        let numbers = segment_numbers(&ReadOnlyStorage::new(data).unwrap()).unwrap();
        let newest = data.join(segment_name(*numbers.last().unwrap()));
        let mut bytes = fs::read(&newest).unwrap();
        let end = bytes.iter().rposition(|&byte| byte != 0).unwrap();
        bytes[end - 100..=end].fill(1);
        fs::write(&newest, bytes).unwrap();
        let report = check_used(data).unwrap();
        assert!(report.is_sound(), "{report}");
        assert_eq!(report.messages(), ENTRIES - 1);
    }
}
