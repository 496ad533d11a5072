//! The areas of the code that faults are planted into, and the tests that judge them.

use crate::messages::Binary;

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
const CORE: Judge = judge("longhaul-core", "longhaul_core", 30);
const SESSION: Judge = judge("longhaul-session", "longhaul_session", 30);
const WIRE: Judge = judge("longhaul-wire", "longhaul_wire", 30);
const CORPUS: Judge = judge("longhaul-wire", "corpus", 30);
const RECORDINGS: Judge = judge("longhaul-wire", "recordings", 30);
const BROKER: Judge = judge("longhaul-broker", "longhaul_broker", 30);
const SERVER: Judge = judge("longhaul-broker", "server", 10);
const PURE: Judge = judge("proofs", "pure", 8);
/// With a broker in the same process: the last to be asked. Nobody else sees what is done with
/// sockets.
const BROKERS: Judge = judge("integration-tests", "brokers", 6);

/// All areas.
pub const AREAS: &[Area] = &[
    Area::core(
        "protocol",
        &["crates/longhaul-core/src/protocol/", "crates/longhaul-types/src/moment.rs"],
    ),
    Area::core("machine", &["crates/longhaul-core/src/machine/"]),
    Area::core("partition", &["crates/longhaul-core/src/partition/"]),
    Area::core("metadata", &["crates/longhaul-core/src/metadata/"]),
    Area {
        name: "worker-session",
        paths: &["src/supervise/", "src/worker/session.rs", "src/worker/session/publishing.rs"],
        judges: &[LIBRARY, PURE, BROKERS],
    },
    Area {
        name: "session",
        paths: &["crates/longhaul-session/src/"],
        judges: &[SESSION, PURE, BROKERS],
    },
    Area {
        name: "wire",
        paths: &["crates/longhaul-wire/src/"],
        judges: &[WIRE, CORPUS, RECORDINGS, BROKER, SESSION, PURE, BROKERS],
    },
    Area {
        name: "broker",
        paths: &["crates/longhaul-broker/src/machine/", "crates/longhaul-broker/src/state/"],
        judges: &[BROKER, SERVER, PURE, BROKERS],
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
    pub fn starts_programs(&self) -> bool {
        *self == BROKERS
    }

    /// Whether the tests are those inside the library of their package.
    pub fn is_library(&self) -> bool {
        self.target == self.package.replace('-', "_")
    }

    /// Whether this is the binary.
    pub fn is(&self, binary: &Binary) -> bool {
        (self.package, self.target) == (binary.package.as_str(), binary.target.as_str())
    }
}

impl Area {
    const fn core(name: &'static str, paths: &'static [&'static str]) -> Self {
        Self { name, paths, judges: &[CORE, LIBRARY, PURE, BROKERS] }
    }

    /// The area of a file.
    pub fn of(path: &str) -> Option<&'static Self> {
        AREAS.iter().find(|area| area.paths.iter().any(|part| path.starts_with(part)))
    }
}

/// The folder of the crate that a file of an area belongs to, with `/` behind it if it is not the
/// top.
pub fn crate_of(path: &str) -> &str {
    path.find("src/").and_then(|at| path.get(..at)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_belongs_to_one_area_at_most() {
        let area = |path| Area::of(path).map(|area| area.name);
        assert_eq!(area("crates/longhaul-core/src/protocol/fold.rs"), Some("protocol"));
        assert_eq!(area("src/worker/session.rs"), Some("worker-session"));
        assert_eq!(area("crates/longhaul-session/src/machine/mod.rs"), Some("session"));
        assert_eq!(area("crates/longhaul-broker/src/state/mod.rs"), Some("broker"));
        assert_eq!(area("src/worker/driver/mod.rs"), None);
    }

    #[test]
    fn a_file_belongs_to_its_crate() {
        assert_eq!(crate_of("src/supervise/mod.rs"), "");
        assert_eq!(crate_of("crates/longhaul-wire/src/lib.rs"), "crates/longhaul-wire/");
    }
}
