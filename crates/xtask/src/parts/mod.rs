//! The parts that the program is made of: a list of them as CycloneDX has it (SBOM), and whether each may be there by `.deny.toml`.
//!
//! What is decided is decided by pure functions, from what `cargo metadata` says and from that file. Known advisories need a database that changes daily; they are left to `cargo deny`, which
//! reads the same file.

mod licence;
mod rules;

pub use licence::is_allowed;
pub use rules::{Rules, faults};

use crate::steps::{cargo, forget_xtask};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// The package whose program is delivered.
pub const PROGRAM: &str = "longhaul-cli";

/// What the list of parts is printed for.
pub const TARGET: &str = "x86_64-unknown-linux-gnu";

/// A package that something of ours is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its name in the registry.
    pub name: String,
    /// Its version.
    pub version: String,
    /// What it says that its licence is, as an SPDX expression.
    pub licence: Option<String>,
    /// Where it comes from; none for a package of this repository.
    pub source: Option<String>,
    /// The packages that it needs for its own build, by their places in the list.
    pub needs: BTreeSet<usize>,
}

/// Asks cargo for the packages of the repository in this folder, as they are for a target.
///
/// # Errors
///
/// If cargo fails.
pub fn known(top: &Path, target: &str) -> Result<Vec<Part>> {
    let mut command = Command::new(cargo());
    command.args(["metadata", "--locked", "--format-version", "1", "--filter-platform", target]);
    forget_xtask(&mut command);
    let output = command.current_dir(top).output().context("cargo metadata did not start")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo metadata failed: {complaint}");
    parts(&serde_json::from_slice(&output.stdout)?)
}

/// All packages of `cargo metadata` in the order of their names, with those that tests alone need.
///
/// # Errors
///
/// If that is not what `cargo metadata --format-version 1` prints.
pub fn parts(metadata: &Value) -> Result<Vec<Part>> {
    let text = |value: &Value, name: &str| value.get(name)?.as_str().map(str::to_owned);
    let list = |value: &Value, name: &str| {
        value.get(name).and_then(Value::as_array).cloned().with_context(|| format!("no {name}"))
    };
    let mut packages = Vec::new();
    for package in list(metadata, "packages")? {
        let id = text(&package, "id").context("a package without an id")?;
        let part = Part {
            name: text(&package, "name").context("a package without a name")?,
            version: text(&package, "version").context("a package without a version")?,
            licence: text(&package, "license"),
            source: text(&package, "source"),
            needs: BTreeSet::new(),
        };
        packages.push((id, part));
    }
    packages.sort_by(|(_, one), (_, other)| {
        (&one.name, &one.version).cmp(&(&other.name, &other.version))
    });
    let places: BTreeMap<_, _> =
        packages.iter().enumerate().map(|(at, (id, _))| (id.clone(), at)).collect();
    let mut parts: Vec<Part> = packages.into_iter().map(|(_, part)| part).collect();
    let resolve = metadata.get("resolve").context("no resolve")?;
    for node in list(resolve, "nodes")? {
        let place = |value: &Value, name: &str| places.get(&text(value, name)?).copied();
        let of = place(&node, "id").context("a node that is no package")?;
        for needed in list(&node, "deps")? {
            let kinds = list(&needed, "dep_kinds")?;
            let is_for_tests =
                kinds.iter().all(|kind| text(kind, "kind").as_deref() == Some("dev"));
            let needed = place(&needed, "pkg").context("a dependency that is no package")?;
            if let (Some(part), false) = (parts.get_mut(of), is_for_tests) {
                part.needs.insert(needed);
            }
        }
    }
    Ok(parts)
}

/// The places of what a package is built from, its own first place included.
#[must_use]
pub fn below(parts: &[Part], name: &str) -> BTreeSet<usize> {
    let mut open: Vec<_> = parts.iter().position(|part| part.name == name).into_iter().collect();
    let mut found = BTreeSet::new();
    while let Some(at) = open.pop() {
        if found.insert(at) {
            open.extend(parts.get(at).into_iter().flat_map(|part| &part.needs));
        }
    }
    found
}

/// The sums of `Cargo.lock`, by name and version.
fn sums(lock: &str) -> Result<BTreeMap<(String, String), String>> {
    let lock: toml::Table = lock.parse().context("Cargo.lock")?;
    let packages = lock.get("package").and_then(toml::Value::as_array).context("no packages")?;
    let text = |package: &toml::Value, name: &str| {
        package.get(name).and_then(toml::Value::as_str).map(str::to_owned)
    };
    let sum = |package: &toml::Value| {
        Some(((text(package, "name")?, text(package, "version")?), text(package, "checksum")?))
    };
    Ok(packages.iter().filter_map(sum).collect())
}

/// The list of the parts of the program, as CycloneDX 1.5 has it. The same sources make the same bytes: it has no date and no number of its own.
///
/// # Errors
///
/// If the program is no package, or `Cargo.lock` cannot be read.
pub fn bill(parts: &[Part], lock: &str) -> Result<Value> {
    let sums = sums(lock)?;
    let reference = |part: &Part| format!("pkg:cargo/{}@{}", part.name, part.version);
    let below = below(parts, PROGRAM);
    let component = |part: &Part, kind: &str| {
        let licences =
            part.licence.as_ref().map(|it| json!([{ "expression": it.replace('/', " OR ") }]));
        let sum = sums.get(&(part.name.clone(), part.version.clone()));
        let sums = sum.map(|sum| json!([{ "alg": "SHA-256", "content": sum }]));
        let fields = [
            ("type", Some(json!(kind))),
            ("bom-ref", Some(json!(reference(part)))),
            ("name", Some(json!(part.name))),
            ("version", Some(json!(part.version))),
            ("purl", Some(json!(reference(part)))),
            ("licenses", licences),
            ("hashes", sums),
        ];
        let known = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        Value::Object(known.collect())
    };
    let program = parts.iter().find(|part| part.name == PROGRAM).context("no program")?;
    let chosen: Vec<_> = below.iter().filter_map(|at| parts.get(*at)).collect();
    let others = chosen.iter().filter(|part| part.name != PROGRAM);
    let components: Vec<_> = others.map(|part| component(part, "library")).collect();
    let names = |part: &Part| {
        let needed = part.needs.iter().filter_map(|at| parts.get(*at));
        needed.map(reference).collect::<Vec<_>>()
    };
    let dependencies: Vec<_> = chosen
        .iter()
        .map(|part| json!({ "ref": reference(part), "dependsOn": names(part) }))
        .collect();
    Ok(json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": component(program, "application") },
        "components": components,
        "dependencies": dependencies,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The program needs a library of the registry, and a test of it needs another.
    fn metadata() -> Value {
        let package = |name: &str, source: Option<&str>| json!({ "id": format!("id {name}"), "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0", "source": source });
        let dependency = |name: &str, kind: Value| json!({ "pkg": format!("id {name}"), "dep_kinds": [{ "kind": kind }] });
        json!({
            "packages": [package("zebra", Some("registry")), package(PROGRAM, None), package("ant", Some("registry"))],
            "resolve": { "nodes": [
                { "id": format!("id {PROGRAM}"), "deps": [dependency("zebra", Value::Null), dependency("ant", json!("dev"))] },
                { "id": "id zebra", "deps": [] },
                { "id": "id ant", "deps": [] },
            ] },
        })
    }

    #[test]
    fn what_tests_alone_need_is_no_part_of_the_program() {
        let parts = parts(&metadata()).unwrap();
        let names: Vec<_> = parts.iter().map(|part| part.name.as_str()).collect();
        assert_eq!(names, ["ant", PROGRAM, "zebra"]);
        assert_eq!(below(&parts, PROGRAM), BTreeSet::from([1, 2]));
        let lock = "[[package]]\nname = \"zebra\"\nversion = \"1.0.0\"\nchecksum = \"0a\"\n";
        let bill = bill(&parts, lock).unwrap();
        assert_eq!(bill["metadata"]["component"]["name"], PROGRAM);
        let zebra = json!([{
            "type": "library",
            "bom-ref": "pkg:cargo/zebra@1.0.0",
            "name": "zebra",
            "version": "1.0.0",
            "purl": "pkg:cargo/zebra@1.0.0",
            "licenses": [{ "expression": "MIT OR Apache-2.0" }],
            "hashes": [{ "alg": "SHA-256", "content": "0a" }],
        }]);
        assert_eq!(bill["components"], zebra);
        assert_eq!(bill["dependencies"][0]["dependsOn"], json!(["pkg:cargo/zebra@1.0.0"]));
    }
}
