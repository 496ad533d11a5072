//! Every fenced block of the documentation is judged by a test, or says why not: the rules are in `crates/xtask/src/snippets`.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};
use xtask::snippets::{Package, Repository, blocks, faults, tests};

/// Folders that hold nothing of ours.
const SKIPPED: [&str; 5] = [".git", ".venv", "corpus", "node_modules", "target"];

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The files below a folder with this ending, by their paths from the top.
fn files(folder: &Path, path: &str, ending: &str, found: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{path}{name}");
        if entry.file_type()?.is_dir() && !SKIPPED.contains(&name.as_str()) {
            files(&entry.path(), &format!("{path}/"), ending, found)?;
        } else if name.ends_with(ending) {
            found.push(path);
        }
    }
    Ok(())
}

/// The pages that documentation of crates includes, by the attributes of their sources.
fn compiled() -> Result<Vec<String>> {
    let mut sources = Vec::new();
    files(&top(), "", ".rs", &mut sources)?;
    let mut pages = Vec::new();
    for source in sources.iter().filter(|path| !path.starts_with("crates/xtask/")) {
        let text = fs::read_to_string(top().join(source))?;
        let folder = source.rsplit_once('/').map_or("", |(folder, _)| folder);
        for include in text.split("doc = include_str!(\"").skip(1) {
            let (page, _) = include.split_once('"').context("an end of the path")?;
            let mut parts: Vec<_> = folder.split('/').filter(|part| !part.is_empty()).collect();
            for part in page.split('/') {
                if part == ".." {
                    parts.pop();
                } else {
                    parts.push(part);
                }
            }
            pages.push(parts.join("/"));
        }
    }
    Ok(pages)
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Described>,
}

#[derive(Deserialize)]
struct Described {
    name: String,
    version: String,
    manifest_path: PathBuf,
    features: serde_json::Map<String, serde_json::Value>,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

fn packages() -> Result<Vec<Package>> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let metadata = ["metadata", "--no-deps", "--format-version", "1"];
    let output = Command::new(cargo).args(metadata).current_dir(top()).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Metadata = serde_json::from_slice(&output.stdout)?;
    let top = top().canonicalize()?;
    let package = |described: Described| {
        let folder = described.manifest_path.parent().context("a folder")?.canonicalize()?;
        Ok(Package {
            name: described.name,
            version: described.version,
            folder: folder.strip_prefix(&top)?.to_string_lossy().into_owned(),
            features: described.features.into_iter().map(|(name, _)| name).collect(),
            targets: described.targets.into_iter().map(|target| target.name).collect(),
        })
    };
    metadata.packages.into_iter().map(package).collect()
}

#[test]
fn every_block_is_judged_by_a_test_or_says_why_not() -> Result<()> {
    let mut pages = Vec::new();
    files(&top(), "", ".md", &mut pages)?;
    let text = |path: String| {
        let text = fs::read_to_string(top().join(&path)).with_context(|| path.clone())?;
        Ok((path, text))
    };
    let paths: BTreeSet<_> = tests().map(str::to_owned).collect();
    let repository = Repository {
        pages: pages.into_iter().map(text).collect::<Result<_>>()?,
        tests: paths.into_iter().map(text).collect::<Result<_>>()?,
        compiled: compiled()?,
        packages: packages()?,
    };
    let count: usize = repository.pages.values().map(|text| blocks(text).len()).sum();
    ensure!(count > 80, "the pages have {count} blocks");
    let faults = faults(&repository);
    ensure!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    Ok(())
}
