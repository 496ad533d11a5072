//! A client crate is named in one place of the library only.
//!
//! Why: what stands behind the transport seam can then be replaced without a search through the code, and none of its
//! types can reach a public signature by accident.

use super::violation;
use crate::tidy::text::{CodePath, code_paths};
use crate::tidy::{File, Tree, Violation, is_module, lies_under};

/// Crates, each with the module of the library that alone may name it.
const OWNERS: &[(&str, &str)] = &[
    ("pulsar", "src/transport/pulsar"),
    ("longhaul_wire", "src/transport/session"),
    ("longhaul_broker", "examples"),
];

/// Finds files of the library that name a crate they must not.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (file, source) in tree.rust_files().filter(|(file, _)| lies_under(&file.path, "src")) {
        // Tests are read as well: they too would have to change with the crate.
        let paths = code_paths(&source.code);
        for (name, owner) in OWNERS {
            if is_module(&file.path, owner) || lies_under(&file.path, owner) {
                continue;
            }
            violations.extend(check_file(file, &paths, name, owner));
        }
    }
    violations
}

fn check_file(file: &File, paths: &[CodePath], name: &str, owner: &str) -> Vec<Violation> {
    let is_module_here = paths.iter().any(|path| binds_module(path, name));
    paths
        .iter()
        .filter(|path| names_crate(path, name, is_module_here))
        .map(|path| {
            let message = format!("names the crate `{name}`: only {owner} does");
            violation(file, path.line, "crate-names", message)
        })
        .collect()
}

/// Whether the file has a module of its own under the crate's name: `mod pulsar`, or `use super::pulsar`.
fn binds_module(path: &CodePath, name: &str) -> bool {
    match path.segments.as_slice() {
        [only] => only == name && path.before == "mod",
        [first, .., last] => first != name && last == name,
        [] => false,
    }
}

fn names_crate(path: &CodePath, name: &str, is_module_here: bool) -> bool {
    if path.segments.first().is_none_or(|first| first != name) {
        return false;
    }
    let imported = path.before == "use" || path.before == "crate";
    let named = path.segments.len() > 1 || imported;
    path.rooted || (named && !is_module_here)
}

#[cfg(test)]
mod tests {
    use super::super::lines_found;
    use super::*;

    #[track_caller]
    fn check_code(path: &str, code: &str, caught: bool) {
        let expected: &[usize] = if caught { &[1] } else { &[] };
        assert_eq!(lines_found(check, path, code), expected, "{path}: {code}");
    }

    #[test]
    fn naming_the_crate_is_caught() {
        for code in [
            "use pulsar::Consumer;",
            "use pulsar;",
            "use pulsar as client;",
            "use {std::fmt, pulsar::Consumer};",
            "extern crate pulsar;",
            "fn a(b: pulsar::Error) {}",
            "pub use ::pulsar::Error;",
            "mod pulsar; use ::pulsar::Error;",
            "#[cfg(test)] mod tests { use pulsar::Consumer; }",
            "use longhaul_wire::Frame;",
        ] {
            check_code("src/worker/supervisor.rs", code, true);
        }
    }

    #[test]
    fn naming_the_module_passes() {
        for code in [
            "pub mod pulsar;",
            "mod pulsar; fn a() { pulsar::connect() }",
            "use super::pulsar;",
            "use crate::transport::pulsar::Broker;",
            "use crate::transport::{Transport, pulsar::Broker};",
            "use crate::transport::{Transport, pulsar}; fn a() { pulsar::connect() }",
            "let pulsar = self.pulsar; // pulsar::Error",
            "let url = \"pulsar://localhost\";",
        ] {
            check_code("src/worker/supervisor.rs", code, false);
        }
    }

    #[test]
    fn the_owner_may_name_its_crate_and_no_other() {
        for path in ["src/transport/pulsar.rs", "src/transport/pulsar/sender.rs"] {
            check_code(path, "use pulsar::Consumer;", false);
            check_code(path, "use longhaul_wire::Frame;", true);
        }
        check_code("src/transport/session/mod.rs", "use longhaul_wire::Frame;", false);
        check_code("src/transport/pulsar_like.rs", "use pulsar::Consumer;", true);
        check_code("integration-tests/src/oracle.rs", "use pulsar::Consumer;", false);
    }
}
