//! Applies the tidy rules to the work tree.
//!
//! A failure prints one line for each violation. What cannot be fixed is listed, with its reason, in
//! `crates/xtask/src/tidy/exceptions.rs`.

use anyhow::{Context, ensure};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};
use xtask::tidy::rules::edges::{self, Package};
use xtask::tidy::{self, Tree, Violation};

/// Folders, by name, that hold nothing of ours: build results, caches and git's own files.
const SKIPPED_FOLDERS: &[&str] =
    &[".cache", ".git", ".venv", "__pycache__", "node_modules", "target"];

#[test]
fn files_are_tidy() -> anyhow::Result<()> {
    let tree = read_tree()?;
    // An empty tree would pass every rule.
    ensure!(tree.get("src/lib.rs").is_some() && tree.get("Cargo.toml").is_some(), "wrong folder");
    assert_none(&tidy::check(&tree));
    Ok(())
}

#[test]
fn packages_keep_to_their_layers() -> anyhow::Result<()> {
    let packages = read_packages()?;
    ensure!(packages.iter().any(|package| package.name == "longhaul"), "no package `longhaul`");
    assert_none(&edges::check(&packages));
    Ok(())
}

/// The README is also the documentation of the crate, from where its paths led nowhere.
#[test]
fn pages_that_the_readme_names_are_found_from_the_documentation_too() -> anyhow::Result<()> {
    let tree = read_tree()?;
    let file = |path: &str| tree.get(path).with_context(|| format!("no file {path}"));
    let (readme, crate_docs) = (&file("README.md")?.text, &file("src/lib.rs")?.text);
    ensure!(!readme.contains("](docs/"), "name it as `[text][docs/page.md]`");
    let labels = readme.split("[docs/").skip(1).filter_map(|it| it.split(']').next());
    let mut count = 0;
    for label in labels {
        let page = label.split('#').next().unwrap_or_default();
        file(&format!("docs/{page}"))?;
        let here = format!("\n[docs/{label}]: docs/{label}\n");
        ensure!(readme.contains(&here), "the README does not end with {here}");
        let source = "https://docs.rs/crate/longhaul/latest/source/docs";
        let there = format!("\n//! [docs/{label}]: {source}/{page}\n");
        ensure!(crate_docs.contains(&there), "src/lib.rs lacks {there}");
        count += 1;
    }
    ensure!(count > 0, "the README names no page");
    Ok(())
}

#[track_caller]
fn assert_none(violations: &[Violation]) {
    let list: Vec<String> = violations.iter().map(ToString::to_string).collect();
    assert!(list.is_empty(), "{} violations:\n{}", list.len(), list.join("\n"));
}

fn top() -> anyhow::Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).map(Path::to_path_buf).context("xtask lies two folders deep")
}

fn read_tree() -> anyhow::Result<Tree> {
    let top = top()?;
    let mut files = Vec::new();
    let mut folders = vec![top.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = entry.path();
            let kind = entry.file_type()?;
            // In a linked work tree `.git` is a file.
            if SKIPPED_FOLDERS.contains(&name.as_str()) || name.ends_with(".log") {
                continue;
            } else if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file()
                && let Ok(text) = String::from_utf8(fs::read(&path)?)
            {
                files.push((relative(&top, &path)?, text));
            }
        }
    }
    Ok(Tree::new(files))
}

fn relative(top: &Path, path: &Path) -> anyhow::Result<String> {
    let parts = path.strip_prefix(top)?.components();
    let parts: Vec<_> = parts.map(|part| part.as_os_str().to_string_lossy()).collect();
    Ok(parts.join("/"))
}

fn read_packages() -> anyhow::Result<Vec<Package>> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let top = top()?;
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(&top)
        .output()
        .context("cargo metadata did not start")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo metadata failed: {complaint}");
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    list(&metadata, "packages")?
        .iter()
        .map(|package| {
            let manifest = PathBuf::from(text(package, "manifest_path")?);
            let dependencies = list(package, "dependencies")?;
            let dependencies = dependencies.iter().map(|used| text(used, "name"));
            Ok(Package {
                name: text(package, "name")?,
                manifest: relative(&top.canonicalize()?, &manifest.canonicalize()?)?,
                dependencies: dependencies.collect::<anyhow::Result<_>>()?,
            })
        })
        .collect()
}

fn list<'a>(value: &'a Value, name: &str) -> anyhow::Result<&'a Vec<Value>> {
    value.get(name).and_then(Value::as_array).with_context(|| format!("no list `{name}`"))
}

fn text(value: &Value, name: &str) -> anyhow::Result<String> {
    let text = value.get(name).and_then(Value::as_str);
    text.map(str::to_owned).with_context(|| format!("no text `{name}`"))
}
