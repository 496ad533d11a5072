//! What the fuzz targets check, and what they start from.
//!
//! The targets themselves, in `targets/`, are a line each. What they check is in modules of stable Rust without the fuzzer, so
//! that ordinary tests include them by path and run the stored corpus in every test run. A target for another part of the project
//! is a module beside [`wire`] and [`session`], a file in `targets/` and an entry in `Cargo.toml`.

pub mod corpus;
pub mod session;
pub mod wire;

#[path = "../../crates/longhaul-wire/tests/recorded/recording.rs"]
#[expect(dead_code, reason = "recordings are made elsewhere")]
mod recording;

use std::io;
use std::path::Path;

/// Where the inputs are that earlier runs have found.
pub const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus");

/// Inputs to start from: the frames of all recordings, and what earlier runs have found.
///
/// # Errors
/// The recordings or the stored corpus cannot be read.
pub fn inputs(target: &str) -> io::Result<Vec<Vec<u8>>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/longhaul-wire/tests/recorded");
    let mut frames = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|it| it == "frames") {
            let recording = recording::Recording::unpack(&std::fs::read(path)?)?;
            frames.extend(recording.frames().iter().map(|(_, bytes)| bytes.clone()));
        }
    }
    let mut inputs = corpus::seeds(target, &frames);
    let stored = Path::new(FOLDER).join(format!("{target}.corpus"));
    if stored.try_exists()? {
        inputs.extend(corpus::unpack(&std::fs::read(stored)?)?);
    }
    Ok(inputs)
}
