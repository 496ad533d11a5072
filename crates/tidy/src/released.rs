//! Published packages have one version, one licence, and the metadata that a registry asks for.

use crate::tree::{packages, read, texts};
use std::collections::BTreeSet;

#[test]
fn client_packages_have_the_version_and_the_licence_of_the_workspace() {
    let version = env!("CARGO_PKG_VERSION");
    for (path, line) in [
        ("clients/python/pyproject.toml", format!("\nversion = \"{version}\"\n")),
        ("clients/python/longhaul/__init__.py", format!("\n__version__ = \"{version}\"\n")),
        ("clients/typescript/package.json", format!("\n  \"version\": \"{version}\",\n")),
        ("clients/typescript/src/version.ts", format!("export const VERSION = \"{version}\";")),
        ("clients/go/client.go", format!("\nconst Version = \"{version}\"\n")),
        ("clients/junit/pom.xml", format!("\n  <version>{version}</version>\n")),
        ("clients/junit/README.md", format!("\n  <version>{version}</version>\n")),
    ] {
        assert!(read(path).contains(&line), "{path} does not have {line}");
    }
    for folder in ["clients/python", "clients/typescript", "clients/go", "clients/junit"] {
        assert_eq!(read(&format!("{folder}/LICENSE")), read("LICENSE"), "{folder}");
    }
}

/// A registry refuses a package only when it is published. docs.rs builds the default features
/// alone unless the manifest says more.
#[test]
fn published_packages_have_what_a_registry_asks_for() {
    let mut packages = packages();
    // `publish = false` is an empty list of registries.
    packages.retain(|package| package["publish"].is_null());
    let names: BTreeSet<_> = packages.iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert!(names.contains("longhaul") && names.len() > 5, "{names:?}");
    for package in &packages {
        let name = package["name"].as_str().unwrap();
        let description = package["description"].as_str().unwrap_or_default();
        assert!((20..200).contains(&description.len()), "{name}: {description}");
        assert_eq!(package["license"], "Apache-2.0", "{name}");
        for list in ["keywords", "categories"] {
            let words = texts(&package[list]);
            assert!((1..=5).contains(&words.len()), "{name}: {words:?}");
            assert!(words.iter().all(|word| list == "categories" || word.len() <= 20), "{words:?}");
        }
        for used in package["dependencies"].as_array().unwrap() {
            if used["path"].is_string() && used["kind"] != "dev" {
                assert!(names.contains(used["name"].as_str().unwrap()), "{name}: {used}");
            }
        }
        let manifest = package["manifest_path"].as_str().unwrap();
        let beside = |file| std::fs::read_to_string(manifest.replace("Cargo.toml", file)).unwrap();
        assert_eq!(beside("LICENSE"), read("LICENSE"), "{name}");
        // A registry shows the page without the rest of the repository.
        let readme = beside("README.md");
        assert!(!readme.contains("](../") && !readme.contains("]: ../"), "{name}");
        let features = package["features"].as_object().unwrap().keys().map(String::as_str);
        let shown = texts(&package["metadata"]["docs"]["rs"]["features"]);
        let missing: Vec<_> = features.filter(|feature| !shown.contains(feature)).collect();
        assert!(name != "longhaul" || missing == ["default"], "{missing:?}");
    }
}
