//! Which package may use which. The gateway serves any Pulsar, so it must not use the embedded
//! broker; the broker stores topics and bytes, so it must not know tasks.

use crate::tree::{assert_none, packages};
use serde_json::Value;

/// The third-party client: only workspaces of their own use it.
const CLIENT: &str = "pulsar";

/// The packages of the workspace, each with what it may use of them and of the client.
const ALLOWED: &[(&str, &str)] = &[
    ("longhaul-types", ""),
    ("longhaul-wire", ""),
    ("longhaul-transport", "longhaul-types"),
    ("longhaul-core", "longhaul-types"),
    // For tests only: those of this project, and with the feature `testing` those of users.
    ("longhaul-memory", "longhaul-transport"),
    ("longhaul-session", "longhaul-memory longhaul-transport longhaul-types longhaul-wire"),
    ("longhaul-admin", "longhaul-core longhaul-session longhaul-transport longhaul-types"),
    // The broker is for its examples.
    (
        "longhaul",
        "longhaul-admin longhaul-broker longhaul-core longhaul-memory longhaul-session \
         longhaul-transport longhaul-types",
    ),
    ("longhaul-backup", "longhaul-broker"),
    ("longhaul-broker", "longhaul-http longhaul-wire"),
    ("longhaul-api", "longhaul-core"),
    ("longhaul-ui", "longhaul-api"),
    ("longhaul-http", ""),
    ("longhaul-server", "longhaul longhaul-api longhaul-http longhaul-ui"),
    (
        "longhaul-cli",
        "longhaul longhaul-api longhaul-backup longhaul-broker longhaul-server longhaul-wire",
    ),
    (
        "proofs",
        "longhaul longhaul-broker longhaul-core longhaul-memory longhaul-session \
         longhaul-transport longhaul-wire",
    ),
    (
        "integration-tests",
        "longhaul longhaul-broker longhaul-cli longhaul-core longhaul-server longhaul-session \
         longhaul-transport longhaul-wire proofs",
    ),
    ("conformance", "longhaul longhaul-broker longhaul-server"),
    ("tidy", ""),
];

fn violations(packages: &[Value]) -> Vec<String> {
    let mut violations = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap();
        let Some((_, allowed)) = ALLOWED.iter().find(|(listed, _)| *listed == name) else {
            violations.push(format!("`{name}` is not listed in crates/tidy/src/edges.rs"));
            continue;
        };
        let used = package["dependencies"].as_array().unwrap().iter();
        for used in used.map(|dependency| dependency["name"].as_str().unwrap()) {
            let is_watched = used == CLIENT || ALLOWED.iter().any(|(listed, _)| *listed == used);
            // A package depends on itself to give its tests a feature.
            if is_watched && used != name && !allowed.split(' ').any(|it| it == used) {
                violations.push(format!("`{name}` must not depend on `{used}`"));
            }
        }
    }
    violations
}

#[test]
fn packages_use_only_those_below_them() {
    let packages = packages();
    assert_eq!(packages.len(), ALLOWED.len(), "a package is listed that is not there");
    assert_none(&violations(&packages));
}

#[test]
fn planted_edges_are_found() {
    let package = |name: &str, used: &str| {
        let uses = |name: &str| serde_json::json!({ "name": name });
        serde_json::json!({ "name": name, "dependencies": [uses("serde"), uses(name), uses(used)] })
    };
    for (name, used) in [
        ("longhaul", "integration-tests"),
        ("longhaul-broker", "longhaul"),
        ("longhaul-broker", CLIENT),
        ("longhaul-server", "longhaul-broker"),
    ] {
        let expected = format!("`{name}` must not depend on `{used}`");
        assert_eq!(violations(&[package(name, used)]), [expected]);
    }
    assert!(violations(&[package("longhaul-extra", "serde")])[0].contains("is not listed"));
    assert_none(&violations(&[package("longhaul-server", "longhaul")]));
}
