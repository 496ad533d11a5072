//! Writes the types of the client libraries from the gateway's OpenAPI document.
//!
//! `cargo xtask client-types` writes them; a test compares what lies there with what the document gives. It needs no network, and no tool of another
//! language. Only what this document uses is understood: anything else is an error, and never a type that is too wide.

mod python;
mod schema;
mod typescript;

pub use python::python;
pub use schema::{Field, Kind, Shape, Type, read};
pub use typescript::typescript;

use anyhow::Context;
use std::fs;
use std::path::Path;

/// Where the document is, from the top of the project.
pub const DOCUMENT: &str = "crates/longhaul-server/openapi.json";

/// A file, from the top of the project, and what it holds.
pub type Written = (&'static str, String);

/// The files that follow from the document.
///
/// # Errors
/// The document cannot be read, or has something that is not understood here.
pub fn files(top: &Path) -> anyhow::Result<[Written; 2]> {
    let text = fs::read_to_string(top.join(DOCUMENT)).context(DOCUMENT)?;
    let types = read(&serde_json::from_str(&text)?)?;
    Ok([
        ("clients/python/longhaul/types.py", python(&types)?),
        ("clients/typescript/src/types.ts", typescript(&types)),
    ])
}

/// Writes the files.
///
/// # Errors
/// As [`files`], or a file cannot be written.
pub fn write(top: &Path) -> anyhow::Result<()> {
    for (path, text) in files(top)? {
        fs::write(top.join(path), text).context(path)?;
    }
    Ok(())
}

/// Lines of a comment, each at most so long, as far as words allow it.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![];
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}
