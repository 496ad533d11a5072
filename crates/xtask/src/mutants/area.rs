//! The areas of the code that faults are planted into, and the tests that judge them.

use super::messages::Binary;

/// A part of the code whose faults the same tests are to catch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// What the command line calls it.
    pub name: &'static str,
    /// Its files, and the folders of which all files belong to it.
    pub paths: &'static [&'static str],
    /// Who judges, in this order, until one fails.
    pub judges: &'static [Judge],
}

/// Tests in one binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judge {
    /// The package.
    pub package: &'static str,
    /// The name of the target; that of the package's library is the package's with `_`.
    pub target: &'static str,
    /// Tests that take longer than so many seconds are not asked: one fault must not cost minutes.
    pub seconds_max: u64,
}

const fn judge(package: &'static str, target: &'static str, seconds_max: u64) -> Judge {
    Judge { package, target, seconds_max }
}

const LIBRARY: Judge = judge("longhaul", "longhaul", 30);
const WIRE: Judge = judge("longhaul-wire", "longhaul_wire", 30);
const CORPUS: Judge = judge("longhaul-wire", "corpus", 30);
const RECORDINGS: Judge = judge("longhaul-wire", "recordings", 30);
const BROKER: Judge = judge("longhaul-broker", "longhaul_broker", 30);
const SERVER: Judge = judge("longhaul-broker", "server", 10);
const PURE: Judge = judge("integration-tests", "pure", 8);
/// With a broker in the same process: the last to be asked. Nobody else sees what is done with sockets.
const BROKERS: Judge = judge("integration-tests", "brokers", 6);

/// All areas.
pub const AREAS: &[Area] = &[
    Area::library("protocol", &["src/protocol/", "crates/longhaul-transport/src/moment.rs"]),
    Area::library("machine", &["src/worker/machine/"]),
    Area::library("partition", &["src/worker/partition/"]),
    Area::library("metadata", &["src/worker/metadata/"]),
    Area::library(
        "worker-session",
        &["src/supervise/", "src/worker/session.rs", "src/worker/session/publishing.rs"],
    ),
    Area::library("session", &["src/transport/session/"]),
    Area {
        name: "wire",
        paths: &["crates/longhaul-wire/src/"],
        judges: &[WIRE, CORPUS, RECORDINGS, BROKER, LIBRARY, PURE, BROKERS],
    },
    Area {
        name: "broker",
        paths: &["crates/longhaul-broker/src/machine/", "crates/longhaul-broker/src/state/"],
        judges: &[BROKER, SERVER, PURE, LIBRARY, BROKERS],
    },
];

/// Limits for the suites that try seeds: one fault costs seconds.
pub const SETTINGS: &[(&str, &str)] = &[
    ("LONGHAUL_SESSION_SCRIPTS", "1000"),
    ("LONGHAUL_SESSION_SEEDS", "20"),
    ("LONGHAUL_SIMULATION_SEEDS", "60"),
    ("LONGHAUL_SIM_RUNS", "20"),
    ("LONGHAUL_TEST_BROKER", "embedded"),
    ("PROPTEST_CASES", "64"),
];

impl Judge {
    /// Whether the tests start programs of the project.
    #[must_use]
    pub fn starts_programs(&self) -> bool {
        *self == BROKERS
    }

    /// Whether the tests are those inside the library of their package.
    #[must_use]
    pub fn is_library(&self) -> bool {
        self.target == self.package.replace('-', "_")
    }

    /// Whether this is the binary.
    #[must_use]
    pub fn is(&self, binary: &Binary) -> bool {
        (self.package, self.target) == (binary.package.as_str(), binary.target.as_str())
    }
}

impl Area {
    const fn library(name: &'static str, paths: &'static [&'static str]) -> Self {
        Self { name, paths, judges: &[LIBRARY, PURE, BROKERS] }
    }

    /// Finds an area by its name.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        AREAS.iter().find(|area| area.name == name)
    }

    /// The area of a file.
    #[must_use]
    pub fn of(path: &str) -> Option<&'static Self> {
        AREAS.iter().find(|area| area.paths.iter().any(|part| path.starts_with(part)))
    }
}

/// The folder of the crate that a file of an area belongs to, with `/` behind it if it is not the top.
#[must_use]
pub fn crate_of(path: &str) -> &str {
    path.find("src/").and_then(|at| path.get(..at)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_belongs_to_one_area_at_most() {
        let area = |path| Area::of(path).map(|area| area.name);
        assert_eq!(area("src/protocol/fold.rs"), Some("protocol"));
        assert_eq!(area("src/worker/session.rs"), Some("worker-session"));
        assert_eq!(area("src/transport/session/machine/mod.rs"), Some("session"));
        assert_eq!(area("crates/longhaul-broker/src/state/mod.rs"), Some("broker"));
        assert_eq!(area("src/worker/driver/mod.rs"), None);
    }

    #[test]
    fn a_file_belongs_to_its_crate() {
        assert_eq!(crate_of("src/protocol/fold.rs"), "");
        assert_eq!(crate_of("crates/longhaul-wire/src/lib.rs"), "crates/longhaul-wire/");
    }
}
