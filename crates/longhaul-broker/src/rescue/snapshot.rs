//! Copies a data directory while a broker uses it.
//!
//! Full segments and compacted views are never written again, so a hard link suffices: the broker
//! does not reuse a file that has other names. The two newest segments are copied whole, and may end
//! with a part of an unfinished group, as after a crash: a start tolerates that.

use super::{
    FILES, RescueError, RescueReport, UNFINISHED, check_within, make_empty, require_log, unread,
};
use crate::log::{
    FileStorage, INVENTORY, ReadOnlyStorage, Storage as _, index_name, new_file, new_folder,
    segment_name, segment_numbers, unless_missing, write_inventory,
};
use ring::digest::{Context, SHA256};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read, Write as _};
use std::path::{Path, PathBuf};

/// The file list with checksums, in the format of `sha256sum -c`.
const LIST: &str = "SHA256SUMS";
/// The broker may remove a needed file during a copy; then the copy starts again.
const ATTEMPTS: u32 = 5;
/// Beginning of the name of the folder for links. The process id follows.
const STAGING: &str = "snapshot-";
/// Bytes per read.
const WINDOW_BYTES: usize = 1024 * 1024;

/// Creates the directory `new` with everything that was confirmed before the call, and a list of
/// its files with checksums. A broker may use `directory` meanwhile. The copy is checked before
/// this returns: if the report names damage, `directory` is damaged too, and the copy has
/// everything readable in it.
///
/// # Errors
/// See [`RescueError`]. Damage is not an error.
pub fn snapshot(directory: &Path, new: &Path) -> Result<RescueReport, RescueError> {
    let link = |from: &Path, to: &Path| fs::hard_link(from, to);
    snapshot_by(directory, new, Means { link: &link, copy: &copy })
}

/// How files get to the new directory.
#[derive(Clone, Copy)]
struct Means<'a> {
    link: &'a dyn Fn(&Path, &Path) -> io::Result<()>,
    copy: &'a dyn Fn(&Path, &Path) -> io::Result<()>,
}

impl Means<'_> {
    /// A hard link, or a copy where links are not possible.
    fn link_or_copy(&self, from: &Path, to: &Path) -> io::Result<()> {
        match (self.link)(from, to) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => (self.copy)(from, to),
            done => done,
        }
    }
}

fn snapshot_by(directory: &Path, new: &Path, by: Means<'_>) -> Result<RescueReport, RescueError> {
    let source = ReadOnlyStorage::new(directory).map_err(|source| unread(directory, source))?;
    require_log(directory, &source)?;
    make_empty(directory, new)?;
    remove_stale(directory).ok();
    let mut is_taken = false;
    let report = settled(|| {
        if std::mem::replace(&mut is_taken, true) {
            clear(new).map_err(|source| failed("clear", new, source))?;
        }
        take_or_stage(directory, new, by)?;
        let report = check_within(new, new)?;
        if report.indices.is_empty() {
            return Ok(report);
        }
        // A start rebuilds the indices.
        for index in &report.indices {
            fs::remove_file(index).map_err(|source| failed("remove", index, source))?;
        }
        check_within(new, new)
    })?;
    list(new).map_err(|source| failed("write the list of", new, source))?;
    Ok(report)
}

/// Checks again while there is damage: a concurrent change of the broker looks like damage, and is
/// gone in a later attempt. Damage that is found twice stays.
fn settled(
    mut attempt: impl FnMut() -> Result<RescueReport, RescueError>,
) -> Result<RescueReport, RescueError> {
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

/// Checks a directory that a broker uses.
pub(super) fn check_used(directory: &Path) -> Result<RescueReport, RescueError> {
    if directory.join(UNFINISHED).is_file() {
        return Err(RescueError::Unfinished { path: directory.to_owned() });
    }
    settled(|| check_within(directory, linked(directory)?.path()))
}

/// Links the files of a directory into a folder of it. Only the two newest segments are copied.
fn linked(directory: &Path) -> Result<Staging, RescueError> {
    remove_stale(directory).ok();
    let link = |from: &Path, to: &Path| fs::hard_link(from, to);
    let staging = Staging::new(directory)?;
    take(directory, &staging.0, Means { link: &link, copy: &link })?;
    Ok(staging)
}

/// As `linked`, of a directory that no broker uses: with the inventory that it has.
pub(super) fn staged(directory: &Path) -> Result<Staging, RescueError> {
    let staging = linked(directory)?;
    let (from, to) = (directory.join(INVENTORY), staging.0.join(INVENTORY));
    let copied = fs::remove_file(&to).and_then(|()| unless_missing(copy(&from, &to)));
    copied.map_err(|source| failed("write", &to, source))?;
    Ok(staging)
}

fn failed(what: &str, path: &Path, source: io::Error) -> RescueError {
    RescueError::Io { what: format!("{what} {}", path.display()), source }
}

/// Makes one attempt. On another file system, where links are not possible, a copy takes long, and a
/// busy broker removes segments meanwhile. So the files are linked into a folder of the directory
/// first, where they stay, and copied from there.
fn take_or_stage(directory: &Path, new: &Path, by: Means<'_>) -> Result<(), RescueError> {
    // Without room for the two newest segments, which are no links, it is copied at once.
    let staging = Staging::needed(directory, new, by)
        .filter(|staging| take(directory, &staging.0, by).is_ok());
    let Some(staging) = staging else { return take(directory, new, by) };
    copy_all(&staging.0, new, by).map_err(|source| failed("write", new, source))
}

/// A folder of the data directory for the links. It is removed at the end.
pub(super) struct Staging(PathBuf);

impl Staging {
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    fn new(directory: &Path) -> Result<Self, RescueError> {
        let folder = directory.join(format!("{STAGING}{}", std::process::id()));
        new_folder(&folder).map_err(|source| failed("make", &folder, source))?;
        Ok(Self(folder))
    }

    /// Creates the folder if files cannot be linked from one directory to the other. There is none
    /// without permission to write to the data directory, or if its file system has no links.
    fn needed(directory: &Path, new: &Path, by: Means<'_>) -> Option<Self> {
        let number = segment_numbers(&ReadOnlyStorage::new(directory).ok()?).ok()?.pop()?;
        let segment = directory.join(segment_name(number));
        let links_to = |folder: &Path| {
            let probe = folder.join("probe");
            (by.link)(&segment, &probe).and_then(|()| fs::remove_file(&probe)).is_ok()
        };
        if links_to(new) {
            return None;
        }
        let staging = Self::new(directory).ok()?;
        links_to(&staging.0).then_some(staging)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

/// Removes the folders that killed processes have left: their links would keep segments on the disk.
pub(crate) fn remove_stale(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(STAGING)?.parse().ok());
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

/// Copies the files of a data directory that nobody changes.
fn copy_all(from: &Path, new: &Path, by: Means<'_>) -> io::Result<()> {
    FileStorage::new(new)?;
    for folder in ["log", "compact", ""] {
        for entry in fs::read_dir(from.join(folder))? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                (by.copy)(&entry.path(), &new.join(folder).join(entry.file_name()))?;
            }
        }
        File::open(new.join(folder))?.sync_all()?;
    }
    Ok(())
}

/// Copies or links the files of a data directory.
fn take(directory: &Path, new: &Path, by: Means<'_>) -> Result<(), RescueError> {
    let read = |source| failed("read", directory, source);
    let made = |source| failed("write", new, source);
    let from = ReadOnlyStorage::new(directory).map_err(read)?;
    let to = FileStorage::new(new).map_err(made)?;
    // Copied before the log: the log may be longer than these files say, but not shorter.
    unless_missing(copy(&directory.join("confirmed"), &new.join("confirmed"))).map_err(made)?;
    unless_missing(copy(&directory.join("checkpoint"), &new.join("checkpoint"))).map_err(made)?;
    link_views(directory, new, by).map_err(made)?;
    let numbers = segment_numbers(&from).map_err(read)?;
    let full = numbers.len().saturating_sub(2);
    let mut taken = Vec::new();
    for (index, &number) in numbers.iter().enumerate() {
        let name = segment_name(number);
        let path = new.join(&name);
        let done = if index >= full {
            copy_segment(&from, &name, &path)
        } else {
            by.link_or_copy(&directory.join(&name), &path)
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
            unless_missing(by.link_or_copy(&from, &to)).map_err(made)?;
        }
    }
    // The newest segment may name a view that was created after the first look.
    link_views(directory, new, by).map_err(made)?;
    write_inventory(&to, &taken).map_err(made)?;
    for folder in ["log", "compact", ""] {
        File::open(new.join(folder)).and_then(|file| file.sync_all()).map_err(made)?;
    }
    Ok(())
}

/// Copies a segment that the broker may be writing. Unreadable blocks become zeros.
fn copy_segment(from: &ReadOnlyStorage, name: &str, to: &Path) -> io::Result<()> {
    let file = from.open(name)?;
    let mut bytes = vec![0; usize::try_from(file.len()?).map_err(io::Error::other)?];
    file.read_at(&mut bytes, 0)?;
    let mut copy = new_file(to)?;
    copy.write_all(&bytes)?;
    copy.sync_all()
}

fn link_views(directory: &Path, new: &Path, by: Means<'_>) -> io::Result<()> {
    for entry in fs::read_dir(directory.join("compact"))? {
        let entry = entry?;
        let to = new.join("compact").join(entry.file_name());
        if entry.path().extension().is_some_and(|extension| extension == "seg")
            && !to.try_exists()?
        {
            unless_missing(by.link_or_copy(&entry.path(), &to))?;
        }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::copy(from, to)?;
    File::open(to)?.sync_all()
}

/// Empties the directory. The originals of linked files remain.
fn clear(new: &Path) -> io::Result<()> {
    fs::remove_dir_all(new.join("log"))?;
    fs::remove_dir_all(new.join("compact"))?;
    for name in FILES {
        unless_missing(fs::remove_file(new.join(name)))?;
    }
    Ok(())
}

/// Writes the file list with checksums.
fn list(new: &Path) -> io::Result<()> {
    let mut names: Vec<PathBuf> = FILES.map(PathBuf::from).to_vec();
    for folder in ["log", "compact"] {
        for entry in fs::read_dir(new.join(folder))? {
            names.push(Path::new(folder).join(entry?.file_name()));
        }
    }
    names.retain(|name| new.join(name).is_file());
    names.sort();
    let mut text = String::new();
    for name in names {
        let sum = sum(&new.join(&name))?;
        for byte in sum.as_ref() {
            write!(text, "{byte:02x}").map_err(io::Error::other)?;
        }
        writeln!(text, "  {}", name.display()).map_err(io::Error::other)?;
    }
    let mut file = new_file(&new.join(LIST))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    File::open(new)?.sync_all()
}

fn sum(path: &Path) -> io::Result<ring::digest::Digest> {
    let mut file = File::open(path)?;
    let mut context = Context::new(&SHA256);
    let mut window = vec![0; WINDOW_BYTES];
    loop {
        let count = file.read(&mut window)?;
        if count == 0 {
            return Ok(context.finish());
        }
        context.update(window.get(..count).unwrap_or_default());
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::log::{LogOptions, RecordHead, RecordKind, Stepped, Storage};
    use crate::state::change::{ChangeRecord, CreateTopic, OpenLedger, StateChange};
    use crate::state::entry::EntryHead;
    use longhaul_wire::messages::MessageMetadata;
    use longhaul_wire::payload::Payload;
    use prost::Message as _;
    use std::sync::Arc;

    const ENTRIES: u64 = 60;

    /// A data directory with some segments.
    pub(in crate::rescue) fn fill(data: &Path) {
        let storage: Arc<dyn Storage> = Arc::new(FileStorage::new(data).unwrap());
        let options = LogOptions {
            segment_bytes_first: 64 * 1024,
            segment_bytes_max: 64 * 1024,
            body_bytes_max: 20_000,
            ..LogOptions::default()
        };
        let mut log = Stepped::open(storage, options, &mut |_| Ok(())).unwrap();
        let name = "persistent://public/default/t".to_owned();
        let create: StateChange =
            CreateTopic { topic: 0, name, created_at: 1 }.into();
        for change in [create, OpenLedger { topic: 0, ledger: 0, first: 0 }.into()] {
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
    }

    /// Regression: on another file system the files were copied one by one. A busy broker removed
    /// segments meanwhile, in each of the attempts, and the copy was taken for damaged.
    #[test]
    fn a_copy_on_another_file_system_has_what_the_broker_removes_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let (data, new) = (folder.path().join("data"), folder.path().join("new"));
        fill(&data);
        let link = |from: &Path, to: &Path| {
            if to.starts_with(&new) {
                return Err(io::ErrorKind::CrossesDevices.into());
            }
            fs::hard_link(from, to)
        };
        let copy = |from: &Path, to: &Path| {
            fs::remove_file(data.join(segment_name(2))).ok();
            copy(from, to)
        };
        // The folder of a killed process.
        fs::create_dir(data.join(format!("{STAGING}999999999"))).unwrap();
        let report = snapshot_by(&data, &new, Means { link: &link, copy: &copy }).unwrap();
        assert!(report.is_sound(), "{report}");
        assert_eq!(report.messages(), ENTRIES);
        let left: Vec<_> =
            fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(!left.iter().any(|path| path.to_string_lossy().contains(STAGING)), "{left:?}");
    }

    /// The newest segment is copied while the broker writes it.
    #[test]
    fn the_rest_of_an_unfinished_group_is_no_damage() {
        let folder = tempfile::tempdir().unwrap();
        let (data, new) = (folder.path().join("data"), folder.path().join("new"));
        fill(&data);
        let numbers = segment_numbers(&ReadOnlyStorage::new(&data).unwrap()).unwrap();
        let newest = data.join(segment_name(*numbers.last().unwrap()));
        let mut bytes = fs::read(&newest).unwrap();
        let end = bytes.iter().rposition(|&byte| byte != 0).unwrap();
        bytes[end - 100..=end].fill(1);
        fs::write(&newest, bytes).unwrap();
        let report = snapshot(&data, &new).unwrap();
        assert!(report.is_sound(), "{report}");
        assert_eq!(report.messages(), ENTRIES - 1);
    }
}
