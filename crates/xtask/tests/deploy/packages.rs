//! The packages that are published: what cargo would refuse only while it publishes, and what readers of a registry miss.

use super::{read, top};
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Command;

/// A registry refuses more than 10 MB. A package of ours has a tenth of that, and none of it is data.
const PACKAGE_BYTES_MAX: u64 = 6 * 1024 * 1024;
const FILE_BYTES_MAX: u64 = 300 * 1024;

fn cargo(arguments: &[&str]) -> String {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo).args(arguments).current_dir(top()).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().map(|all| all.iter().filter_map(Value::as_str).collect()).unwrap_or_default()
}

fn published() -> Vec<Value> {
    let metadata: Value = serde_json::from_str(&cargo(&[
        "metadata",
        "--no-deps",
        "--locked",
        "--format-version",
        "1",
    ]))
    .unwrap();
    let mut packages = metadata["packages"].as_array().unwrap().clone();
    // `publish = false` is an empty list of registries.
    packages.retain(|package| package["publish"].is_null());
    packages
}

/// The links of a page to files beside it, those by reference included.
fn relative_links(page: &str) -> Vec<&str> {
    let inline = page.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let named =
        page.lines().filter(|line| line.starts_with('[')).filter_map(|line| line.split_once("]: "));
    let all = inline.chain(named.map(|(_, target)| target.trim()));
    all.filter(|target| !target.starts_with("http") && !target.starts_with('#')).collect()
}

#[test]
fn each_published_package_says_what_it_is_and_has_its_licence() {
    let packages = published();
    let names: BTreeSet<_> =
        packages.iter().map(|package| package["name"].as_str().unwrap()).collect();
    assert_eq!(names.len(), 8, "{names:?}");
    for package in &packages {
        let name = package["name"].as_str().unwrap();
        let description = package["description"].as_str().unwrap_or_default();
        assert!((20..200).contains(&description.len()), "{name}: {description}");
        assert_eq!(package["license"], "Apache-2.0", "{name}");
        assert!(package["rust_version"].is_string(), "{name}");
        assert!((1..=5).contains(&texts(&package["keywords"]).len()), "{name}");
        assert!(texts(&package["keywords"]).iter().all(|keyword| keyword.len() <= 20), "{name}");
        assert!((1..=5).contains(&texts(&package["categories"]).len()), "{name}");
        assert_eq!(package["readme"], "README.md", "{name}");
        // What is needed by path must be had from the registry by version: cargo leaves the path out. Those for tests may go.
        for dependency in package["dependencies"].as_array().unwrap() {
            if dependency["path"].is_string() && dependency["kind"] != "dev" {
                assert!(
                    names.contains(dependency["name"].as_str().unwrap()),
                    "{name} needs {}",
                    dependency["name"]
                );
                assert_ne!(dependency["req"], "*", "{name} needs any {}", dependency["name"]);
            }
        }
        let manifest = package["manifest_path"].as_str().unwrap();
        let folder = manifest.trim_end_matches("/Cargo.toml");
        let files =
            cargo(&["package", "--list", "--allow-dirty", "--offline", "--quiet", "-p", name]);
        let files: BTreeSet<_> = files.lines().collect();
        for needed in ["LICENSE", "README.md", "Cargo.toml", "Cargo.lock"] {
            assert!(files.contains(needed), "{name} has no {needed}");
        }
        let licence = std::fs::read_to_string(format!("{folder}/LICENSE")).unwrap();
        assert_eq!(licence, read("LICENSE"), "{name}");
        let size = |file: &&str| {
            std::fs::metadata(format!("{folder}/{file}")).map_or(0, |entry| entry.len())
        };
        let large: Vec<_> = files.iter().filter(|file| size(file) > FILE_BYTES_MAX).collect();
        assert!(large.is_empty(), "{name}: {large:?}");
        assert!(files.iter().map(size).sum::<u64>() < PACKAGE_BYTES_MAX, "{name}");
        let stray: Vec<_> = files
            .iter()
            .filter(|file| {
                file.starts_with(".ci")
                    || file.starts_with(".github")
                    || file.starts_with("packaging")
                    || file.ends_with(".log")
            })
            .collect();
        assert!(stray.is_empty(), "{name}: {stray:?}");
        let page = std::fs::read_to_string(format!("{folder}/README.md")).unwrap();
        // A registry shows the page without the repository, whose address nobody has said yet.
        let dead: Vec<_> = relative_links(&page)
            .into_iter()
            .map(|target| target.split('#').next().unwrap())
            .filter(|target| !files.contains(target))
            .collect();
        assert!(
            dead.is_empty(),
            "{name}: its README names {dead:?}, which the package does not have"
        );
    }
}

/// docs.rs builds the default features alone, unless it is told.
#[test]
fn the_pages_of_the_library_have_all_its_features() {
    let packages = published();
    let library = packages.iter().find(|package| package["name"] == "longhaul").unwrap();
    let features: BTreeSet<_> =
        library["features"].as_object().unwrap().keys().map(String::as_str).collect();
    let shown: BTreeSet<_> =
        texts(&library["metadata"]["docs"]["rs"]["features"]).into_iter().collect();
    let missing: Vec<_> = features.difference(&shown).copied().collect();
    assert_eq!(missing, ["default", "internals"]);
}
