//! The client libraries belong to this version of the gateway: their types are those of its OpenAPI document, and their version is the workspace's.

use anyhow::{Context, ensure};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use xtask::client_types;

fn top() -> anyhow::Result<PathBuf> {
    Ok(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?)
}

fn text(path: &str) -> anyhow::Result<String> {
    fs::read_to_string(top()?.join(path)).with_context(|| path.to_owned())
}

#[test]
fn types_are_those_of_the_document() -> anyhow::Result<()> {
    for (path, expected) in client_types::files(&top()?)? {
        let found = text(path)?;
        let differs = found.lines().zip(expected.lines()).find(|(found, wanted)| found != wanted);
        ensure!(
            found == expected,
            "{path} is not what the document gives; first difference: {differs:?}. `cargo xtask client-types` writes it"
        );
    }
    Ok(())
}

#[test]
fn versions_and_licences_are_those_of_the_workspace() -> anyhow::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let python = text("clients/python/pyproject.toml")?;
    ensure!(python.contains(&format!("\nversion = \"{version}\"\n")), "pyproject.toml");
    let node: Value = serde_json::from_str(&text("clients/typescript/package.json")?)?;
    ensure!(node.get("version").and_then(Value::as_str) == Some(version), "package.json");
    let sources = [
        ("clients/python/longhaul/__init__.py", format!("\n__version__ = \"{version}\"\n")),
        ("clients/typescript/src/version.ts", format!("export const VERSION = \"{version}\";")),
    ];
    for (path, line) in sources {
        ensure!(text(path)?.contains(&line), "{path} does not have {line}");
    }
    let licence = text("LICENSE")?;
    for folder in ["clients/python", "clients/typescript"] {
        ensure!(text(&format!("{folder}/LICENSE"))? == licence, "{folder}/LICENSE is another one");
    }
    Ok(())
}
