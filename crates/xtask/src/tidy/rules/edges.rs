//! Which package may use which.
//!
//! Why: the layers hold only as long as no manifest bridges them. The gateway speaks to any Pulsar, so it must not know
//! the broker; the broker knows topics and bytes, so it must not know tasks.

use crate::tidy::Violation;

/// A member of the workspace.
#[derive(Clone, Debug)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its manifest, from the top of the work tree.
    pub manifest: String,
    /// The packages that it depends on, for whatever purpose.
    pub dependencies: Vec<String>,
}

/// The members of the workspace, each with what it may use of the packages that this rule watches: the members
/// themselves, and the client crate.
const ALLOWED: &[(&str, &[&str])] = &[
    ("longhaul-wire", &[]),
    ("longhaul-transport", &[]),
    // Serves tests only: those of this project, and with the feature `testing` those of users.
    ("longhaul-memory", &["longhaul-transport"]),
    // Its examples start a broker; that the library itself knows none is said by the rule about crate names.
    (
        "longhaul",
        &["longhaul-broker", "longhaul-memory", "longhaul-transport", "longhaul-wire", CLIENT],
    ),
    ("longhaul-http", &[]),
    ("longhaul-broker", &["longhaul-http", "longhaul-wire"]),
    // Its pages are made of the gateway's public routes, and of nothing else.
    ("longhaul-ui", &[]),
    ("longhaul-server", &["longhaul", "longhaul-http", "longhaul-ui"]),
    ("longhaul-cli", &["longhaul", "longhaul-broker", "longhaul-server", "longhaul-wire"]),
    (
        "integration-tests",
        &[
            "longhaul",
            "longhaul-broker",
            "longhaul-cli",
            "longhaul-memory",
            "longhaul-server",
            "longhaul-transport",
            "longhaul-wire",
            CLIENT,
        ],
    ),
    (
        "bench",
        &[
            "integration-tests",
            "longhaul",
            "longhaul-broker",
            "longhaul-server",
            "longhaul-transport",
            "longhaul-wire",
            CLIENT,
        ],
    ),
    ("xtask", &[]),
];

/// The third-party client, which the library hides and the suites use as any user's producer would.
const CLIENT: &str = "pulsar";

/// Finds dependencies between packages that the layers do not allow, and packages without a place in them.
#[must_use]
pub fn check(packages: &[Package]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for package in packages {
        let mut complain = |message: String| {
            let path = package.manifest.clone();
            violations.push(Violation { path, line: 0, rule: "edges", message });
        };
        let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == package.name) else {
            complain(format!("`{}` has no place in the layers: list it", package.name));
            continue;
        };
        for used in &package.dependencies {
            // A package may depend on itself: that is how its tests switch on a feature.
            let watched = used == CLIENT || ALLOWED.iter().any(|(name, _)| name == used);
            if watched && *used != package.name && !allowed.contains(&used.as_str()) {
                complain(format!("`{}` must not depend on `{used}`", package.name));
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_package(name: &str, dependencies: &[&str], expected: &[&str]) {
        let dependencies = dependencies.iter().map(|name| (*name).to_owned()).collect();
        let package = Package { name: name.into(), manifest: "a/Cargo.toml".into(), dependencies };
        let messages: Vec<_> = check(&[package]).into_iter().map(|found| found.message).collect();
        assert_eq!(messages, expected);
    }

    #[test]
    fn the_layers_pass() {
        for (name, allowed) in ALLOWED {
            let mut dependencies = allowed.to_vec();
            dependencies.extend(["tokio", *name]);
            check_package(name, &dependencies, &[]);
        }
    }

    #[test]
    fn a_bridge_between_layers_is_caught() {
        for (name, used) in [
            ("longhaul", "integration-tests"),
            ("longhaul-wire", "longhaul"),
            ("longhaul-broker", "longhaul"),
            ("longhaul-broker", "pulsar"),
            ("longhaul-broker", "longhaul-memory"),
            ("longhaul-transport", "longhaul-memory"),
            ("longhaul-server", "longhaul-broker"),
            ("longhaul-cli", "pulsar"),
            ("integration-tests", "xtask"),
            ("xtask", "longhaul"),
        ] {
            let message = format!("`{name}` must not depend on `{used}`");
            check_package(name, &["serde", used], &[&message]);
        }
    }

    #[test]
    fn a_package_without_a_place_is_caught() {
        check_package(
            "longhaul-extra",
            &[],
            &["`longhaul-extra` has no place in the layers: list it"],
        );
    }
}
