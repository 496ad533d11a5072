//! Copies and changes data directories.

use std::fs;
use std::path::{Path, PathBuf};

/// Copies the files of a broker, except those that it may be creating.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        // Each of them may be gone before it is read.
        if name.starts_with("spare") || Path::new(&name).extension().is_some_and(|of| of == "tmp") {
            continue;
        }
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// All files with their content.
pub(crate) fn digest(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(digest(&path));
        } else {
            files.push((path.clone(), fs::read(&path).unwrap()));
        }
    }
    files.sort();
    files
}

/// The file of a segment.
pub(crate) fn segment(data: &Path, number: u32) -> PathBuf {
    data.join(format!("log/{number:010}.seg"))
}

/// Changes the bytes of a file.
pub(crate) fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}
