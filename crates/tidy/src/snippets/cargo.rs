//! What blocks say of the packages of the workspace: dependencies of a manifest, and command lines
//! of cargo.

use std::collections::BTreeSet;
use toml::{Table, Value};

/// Commands of cargo that the documentation names.
const COMMANDS: [&str; 10] =
    ["bench", "build", "cyclonedx", "deny", "install", "model", "pulsar", "run", "sim", "test"];

/// A package of the workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Package {
    /// Its name.
    pub(super) name: String,
    /// Its version.
    pub(super) version: String,
    /// Its folder, from the top.
    pub(super) folder: String,
    /// Its features.
    pub(super) features: BTreeSet<String>,
    /// Its examples, benchmarks, tests and programs.
    pub(super) targets: BTreeSet<String>,
}

/// Whether dependencies on packages of the workspace can be had as a manifest asks for them.
pub(super) fn manifest(packages: &[Package], text: &str) -> Result<(), String> {
    let manifest: Table = toml::from_str(text).map_err(|error| error.to_string())?;
    let mut count = 0;
    for section in ["dependencies", "dev-dependencies"] {
        let Some(dependencies) = manifest.get(section) else { continue };
        for (name, wish) in dependencies.as_table().ok_or("dependencies are no table")? {
            count += 1;
            if let Some(package) = packages.iter().find(|package| package.name == *name) {
                fits(package, wish)?;
            }
        }
    }
    if count == 0 { Err("no test reads it, and it has no dependencies".into()) } else { Ok(()) }
}

fn fits(package: &Package, wish: &Value) -> Result<(), String> {
    let version = wish.as_str().or_else(|| wish.get("version").and_then(Value::as_str));
    let version = version.ok_or_else(|| format!("{} has no version", package.name))?;
    if package.version != version && !package.version.starts_with(&format!("{version}.")) {
        return Err(format!("{} is {}, and not {version}", package.name, package.version));
    }
    let features = wish.get("features").and_then(Value::as_array);
    let mut named = features.into_iter().flatten().filter_map(Value::as_str);
    named.try_for_each(|feature| has_feature(package, feature))
}

fn has_feature(package: &Package, feature: &str) -> Result<(), String> {
    if package.features.contains(feature) {
        return Ok(());
    }
    Err(format!("{} has no feature `{feature}`", package.name))
}

/// Whether a command line of cargo, without its first word, names what is there. What is behind `
/// -- ` belongs to the program that is run.
pub(super) fn command(packages: &[Package], words: &[&str]) -> Result<(), String> {
    let words: Vec<_> = words.iter().copied().take_while(|word| *word != "--").collect();
    let name = words.first().copied().unwrap_or_default();
    if !COMMANDS.contains(&name) {
        return Err(format!("`cargo {name}` is not known here"));
    }
    let values = |options: &[&str]| -> Vec<&str> {
        let pairs = words.windows(2).filter_map(|pair| match pair {
            [option, value] if options.contains(option) => Some(*value),
            _ => None,
        });
        pairs.collect()
    };
    let mut chosen = Vec::new();
    for name in values(&["-p", "--package"]) {
        let found = packages.iter().find(|package| package.name == name);
        chosen.push(found.ok_or_else(|| format!("there is no package `{name}`"))?);
    }
    for path in values(&["--path"]) {
        let found = packages.iter().find(|package| package.folder == path);
        chosen.push(found.ok_or_else(|| format!("there is no package in `{path}`"))?);
    }
    // Without a package the one at the top is meant, or all of them.
    let meant = |package: &&Package| match chosen.as_slice() {
        [] => package.folder.is_empty() || words.contains(&"--workspace"),
        chosen => chosen.contains(package),
    };
    for target in values(&["--example", "--bench", "--test", "--bin"]) {
        if !packages.iter().filter(meant).any(|package| package.targets.contains(target)) {
            return Err(format!("there is no `{target}`"));
        }
    }
    for feature in values(&["--features"]).iter().flat_map(|list| list.split(',')) {
        packages.iter().filter(meant).try_for_each(|package| has_feature(package, feature))?;
    }
    Ok(())
}
