//! `corpus unpack TARGET FOLDER` writes the inputs that a target starts from; `corpus pack TARGET FOLDER` stores those of a folder
//! that are not made of recordings anyhow.

use longhaul_fuzz::{FOLDER, corpus, inputs};
use std::error::Error;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

/// Larger ones say little and slow every test run.
const INPUT_BYTES_MAX: u64 = 2048;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["unpack", target, folder] => unpack(target, Path::new(folder)),
        ["pack", target, folder] => pack(target, Path::new(folder)),
        _ => Err("corpus unpack|pack TARGET FOLDER".into()),
    }
}

fn unpack(target: &str, folder: &Path) -> Result<(), Box<dyn Error>> {
    std::fs::create_dir_all(folder)?;
    for input in inputs(target)? {
        let mut hasher = DefaultHasher::new();
        input.hash(&mut hasher);
        std::fs::write(folder.join(format!("{:016x}", hasher.finish())), input)?;
    }
    Ok(())
}

fn pack(target: &str, folder: &Path) -> Result<(), Box<dyn Error>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.metadata()?.len() <= INPUT_BYTES_MAX {
            found.push(std::fs::read(entry.path())?);
        }
    }
    // Neighbours are alike, which the compression needs.
    found.sort();
    std::fs::create_dir_all(FOLDER)?;
    std::fs::write(Path::new(FOLDER).join(format!("{target}.corpus")), corpus::pack(&found)?)?;
    Ok(())
}
