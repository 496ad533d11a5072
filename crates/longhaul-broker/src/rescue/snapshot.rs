//! Copies a data directory while a broker uses it.
//!
//! Full segments and compacted views are never written again, so a hard link suffices: the broker
//! does not reuse a file that has other names. The two newest segments are copied up to their last
//! complete record.

use super::{FILES, RescueError, RescueReport, check, make_empty, require_log, unread};
use crate::log::{
    FileStorage, ReadOnlyStorage, index_name, new_file, segment_name, segment_numbers,
    sound_prefix, write_inventory,
};
use ring::digest::{Context, SHA256};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read, Write as _};
use std::path::{Path, PathBuf};

/// The file list with checksums, in the format of `sha256sum -c`.
const LIST: &str = "SHA256SUMS";
/// The broker may remove a needed file during a copy; then the copy starts again.
const ATTEMPTS: u32 = 5;
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
    let source = ReadOnlyStorage::new(directory).map_err(|source| unread(directory, source))?;
    require_log(directory, &source)?;
    make_empty(directory, new)?;
    let mut attempt = 1;
    loop {
        take(directory, new)?;
        let mut report = check(new)?;
        if !report.indices.is_empty() {
            // A start rebuilds the indices.
            for index in &report.indices {
                fs::remove_file(index).map_err(|source| failed("remove", index, source))?;
            }
            report = check(new)?;
        }
        // A concurrent change of the broker looks like damage and is gone in the next attempt.
        if report.is_sound() || attempt == ATTEMPTS {
            list(new).map_err(|source| failed("write the list of", new, source))?;
            return Ok(report);
        }
        attempt += 1;
        clear(new).map_err(|source| failed("clear", new, source))?;
    }
}

fn failed(what: &str, path: &Path, source: io::Error) -> RescueError {
    RescueError::Io { what: format!("{what} {}", path.display()), source }
}

/// Makes one attempt.
fn take(directory: &Path, new: &Path) -> Result<(), RescueError> {
    let read = |source| failed("read", directory, source);
    let made = |source| failed("write", new, source);
    let from = ReadOnlyStorage::new(directory).map_err(read)?;
    let to = FileStorage::new(new).map_err(made)?;
    // Copied before the log: the log may be longer than these files say, but not shorter.
    unless_gone(copy(&directory.join("confirmed"), &new.join("confirmed"))).map_err(made)?;
    unless_gone(copy(&directory.join("checkpoint"), &new.join("checkpoint"))).map_err(made)?;
    link_views(directory, new).map_err(made)?;
    let numbers = segment_numbers(&from).map_err(read)?;
    let full = numbers.len().saturating_sub(2);
    let mut taken = Vec::new();
    for (place, &number) in numbers.iter().enumerate() {
        let name = segment_name(number);
        let path = new.join(&name);
        if place < full {
            // A removed segment was no longer needed; the newest segment says so.
            if unless_gone(link(&directory.join(&name), &path)).map_err(made)? {
                taken.push(number);
                // The index may not exist yet: a start works without it.
                let index = index_name(number);
                unless_gone(link(&directory.join(&index), &new.join(&index))).map_err(made)?;
            }
            continue;
        }
        let bytes = sound_prefix(&from, number)
            .map_err(|source| RescueError::Read { path: directory.to_owned(), source })?;
        new_file(&path)
            .and_then(|mut file| file.write_all(&bytes).and_then(|()| file.sync_all()))
            .map_err(made)?;
        taken.push(number);
    }
    // The newest segment may name a view that was created after the first look.
    link_views(directory, new).map_err(made)?;
    write_inventory(&to, &taken).map_err(made)?;
    for folder in ["log", "compact", ""] {
        File::open(new.join(folder)).and_then(|file| file.sync_all()).map_err(made)?;
    }
    Ok(())
}

/// Whether the file existed: files that the broker removes meanwhile are not an error.
fn unless_gone(done: io::Result<()>) -> io::Result<bool> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        done => done.map(|()| true),
    }
}

fn link_views(directory: &Path, new: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory.join("compact"))? {
        let entry = entry?;
        let to = new.join("compact").join(entry.file_name());
        if entry.path().extension().is_some_and(|extension| extension == "seg")
            && !to.try_exists()?
        {
            unless_gone(link(&entry.path(), &to))?;
        }
    }
    Ok(())
}

/// A hard link, or a copy where links are not possible.
fn link(from: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => copy(from, to),
        done => done,
    }
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
        unless_gone(fs::remove_file(new.join(name)))?;
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
