//! Nothing in the project depends on where it was written: no developer's folders, no registry by name.
//!
//! Why: a path of one machine works nowhere else, and a registry's name defeats the mirrors that users configure.

use super::check_lines;
use crate::tidy::{Tree, Violation};

/// Folders that exist on one machine only. Written in two parts, so that this file passes its own rule.
const FOLDERS: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("/Us", "ers/"),
    concat!("C:\\Us", "ers\\"),
];

/// Public registries, in two parts for the same reason.
const HOSTS: &[&str] = &[
    concat!("crates", ".io"),
    concat!("repo.maven", ".apache.org"),
    concat!("repo1.maven", ".org"),
    concat!("npmjs", ".org"),
    concat!("pypi", ".org"),
    concat!("pythonhosted", ".org"),
    concat!("proxy.golang", ".org"),
    concat!("docker", ".io"),
    concat!("ghcr", ".io"),
    concat!("quay", ".io"),
];

/// Parts of a host name that speak of a mirror or a private registry.
const LABELS: &[&str] = &["artifactory", "goproxy", "mirror", "mirrors", "nexus", "registry"];

/// How cargo itself names the default registry in the lock file, whatever mirror it was read from.
const LOCK_SOURCE: &str = concat!("registry+https://github.com/rust-lang/crates", ".io-index");

/// Finds paths of a developer's machine.
#[must_use]
pub fn check_paths(tree: &Tree) -> Vec<Violation> {
    check_lines(tree, "paths", |_, line| {
        let folder = FOLDERS.iter().find(|folder| has_absolute(line, folder))?;
        Some(format!("names `{folder}`, a folder of one machine"))
    })
}

/// Finds names of registry hosts.
#[must_use]
pub fn check_hosts(tree: &Tree) -> Vec<Violation> {
    check_lines(tree, "hosts", |file, line| {
        let line = if file.path.ends_with("Cargo.lock") {
            line.replace(LOCK_SOURCE, "")
        } else {
            line.to_owned()
        };
        let host = HOSTS.iter().find(|host| has_host(&line, host)).map(|host| (*host).to_owned());
        let host = host.or_else(|| registry_in_url(&line))?;
        Some(format!("names the registry host `{host}`: leave the choice to the user's settings"))
    })
}

/// Whether the line holds the folder at the start of a path: `src/home/` is not absolute.
fn has_absolute(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line.get(..at).unwrap_or_default();
        !before.ends_with(|c: char| c.is_alphanumeric() || "_-.~*})".contains(c))
    })
}

fn has_host(line: &str, host: &str) -> bool {
    line.match_indices(host).any(|(at, _)| {
        let before = line.get(..at).unwrap_or_default();
        let after = line.get(at + host.len()..).unwrap_or_default();
        !before.ends_with(|c: char| c.is_alphanumeric() || c == '-')
            && !after.starts_with(char::is_alphanumeric)
    })
}

fn registry_in_url(line: &str) -> Option<String> {
    line.split("://").skip(1).find_map(|rest| {
        let is_part = |c: char| c.is_alphanumeric() || "-.@".contains(c);
        let host: String = rest.chars().take_while(|c| is_part(*c)).collect();
        let suspect = host.split(['.', '-', '@']).any(|label| LABELS.contains(&label));
        suspect.then_some(host)
    })
}

#[cfg(test)]
mod tests {
    use super::super::lines_found;
    use super::*;

    #[track_caller]
    fn check_text(rule: fn(&Tree) -> Vec<Violation>, path: &str, line: &str, caught: bool) {
        let expected: &[usize] = if caught { &[2] } else { &[] };
        assert_eq!(lines_found(rule, path, &format!("a\n{line}\nb\n")), expected, "{line}");
    }

    #[test]
    fn folders_of_a_machine_are_caught() {
        for folder in FOLDERS {
            check_text(check_paths, "docs/a.md", &format!("see {folder}a"), true);
            check_text(check_paths, "src/a.rs", &format!("let a = \"{folder}a\";"), true);
            check_text(check_paths, "a.toml", &format!("a = 'file://{folder}a'"), true);
        }
    }

    #[test]
    fn relative_folders_pass() {
        for line in
            ["src/work/a", "./home/a", "$HOME/a", "${base}/work/a", "/homely/a", "/workers/a"]
        {
            check_text(check_paths, "docs/a.md", line, false);
        }
    }

    #[test]
    fn registries_are_caught() {
        for host in HOSTS {
            check_text(check_hosts, "a.xml", &format!("<url>https://{host}/a</url>"), true);
            check_text(check_hosts, "README.md", &format!("index.{host}, and more"), true);
        }
        for label in LABELS {
            check_text(check_hosts, "a.toml", &format!("a = 'https://{label}.example/a'"), true);
            check_text(check_hosts, "a.toml", &format!("http://me@a.{label}-1.example:80"), true);
        }
    }

    #[test]
    fn other_hosts_pass() {
        for line in [
            "https://pulsar.apache.org/docs",
            "http://maven.apache.org/POM/4.0.0",
            "https://github.com/a/registry",
            "image: apachepulsar/pulsar:4.0.7",
        ] {
            check_text(check_hosts, "a.yaml", line, false);
        }
    }

    #[test]
    fn the_lock_file_names_the_default_registry_only() {
        let default = format!("source = \"{LOCK_SOURCE}\"");
        check_text(check_hosts, "Cargo.lock", &default, false);
        check_text(check_hosts, "a.toml", &default, true);
        let mirror = concat!("source = \"registry+https://mir", "ror.example/index\"");
        check_text(check_hosts, "Cargo.lock", mirror, true);
    }
}
