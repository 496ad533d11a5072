//! Mutation tests: cargo-mutants plants faults into the pure code, one at a time, and the tests must fail for each.
//!
//! The code is divided into areas ([`AREAS`]), each with the tests that are to catch its faults. There are thousands of faults,
//! and each is built: a whole run takes most of a day, a shard of it minutes. What survives and why that is right is listed in
//! `crates/xtask/mutants-accepted.txt` ([`Accepted`]); anything else that survives fails the command.

use anyhow::{Context, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

/// Where cargo-mutants writes what it found, a folder for each area.
pub const OUTPUT: &str = "target/mutants";
/// Where the copies that it makes of the project are built: dependencies are built once, and not for every run.
pub const BUILD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/mutants/build");
/// The list of survivors that are accepted.
pub const ACCEPTED: &str = "crates/xtask/mutants-accepted.txt";

/// Statuses of cargo-mutants after a run to its end: all were caught, some were missed, some took too long.
const ENDED: [i32; 3] = [0, 2, 3];

/// A part of the code whose faults the same tests are to catch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// What the command line calls it.
    pub name: &'static str,
    package: &'static str,
    files: &'static [&'static str],
    /// Without it the tests do not reach the code.
    testing: bool,
}

/// All areas.
pub const AREAS: &[Area] = &[
    Area::library("protocol", &["src/protocol/**"]),
    Area::library("machine", &["src/worker/machine/**"]),
    Area::library("partition", &["src/worker/partition/**"]),
    Area::library("worker-session", &["src/worker/session.rs"]),
    Area::library("session", &["src/transport/session/**"]),
    Area {
        name: "wire",
        package: "longhaul-wire",
        files: &["crates/longhaul-wire/src/**"],
        testing: false,
    },
    Area {
        name: "broker",
        package: "longhaul-broker",
        files: &["crates/longhaul-broker/src/machine/**", "crates/longhaul-broker/src/state/**"],
        testing: true,
    },
];

impl Area {
    const fn library(name: &'static str, files: &'static [&'static str]) -> Self {
        Self { name, package: "longhaul", files, testing: true }
    }

    /// Finds an area by its name.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        AREAS.iter().find(|area| area.name == name)
    }

    /// The arguments of cargo for one shard of the area.
    #[must_use]
    pub fn arguments(&self, shard: Shard) -> Vec<String> {
        let mut arguments = vec!["mutants".to_owned(), format!("--package={}", self.package)];
        arguments.extend(self.files.iter().map(|file| format!("--file={file}")));
        if self.testing {
            arguments.push("--features=testing".to_owned());
        }
        // The library declares its inner modules twice, with and without the feature `testing`, and cargo-mutants lists the
        // faults of both, one list behind the other. They are the same: the first half is enough.
        let lists = if self.package == "longhaul" { 2 } else { 1 };
        arguments.push(format!("--shard={}/{}", shard.index, shard.count * lists));
        let fixed = ["--sharding=slice", "--no-shuffle", "--baseline=skip", "--timeout=120"];
        arguments.extend(fixed.map(str::to_owned));
        arguments.push("--cargo-test-arg=--lib".to_owned());
        // What is built once for each fault is built fast.
        for setting in ["opt-level=0", "incremental=true", "debug=0"] {
            arguments.push("--cargo-arg=--config".to_owned());
            arguments.push(format!("--cargo-arg=profile.dev.package.{}.{setting}", self.package));
        }
        arguments.push(format!("--output={}", self.output()));
        arguments
    }

    fn output(&self) -> String {
        format!("{OUTPUT}/{}", self.name)
    }

    /// Reads what cargo-mutants found, which ended with this status.
    ///
    /// # Errors
    ///
    /// It did not come to an end, or has left nothing to read.
    pub fn found(&self, root: &Path, status: Option<i32>) -> anyhow::Result<Found> {
        if !status.is_some_and(|status| ENDED.contains(&status)) {
            bail!("cargo mutants has failed; `cargo install cargo-mutants --locked` installs it");
        }
        let folder = root.join(self.output()).join("mutants.out");
        let read = |name: &str| {
            let path = folder.join(name);
            let text = std::fs::read_to_string(&path);
            let text = text.with_context(|| path.display().to_string())?;
            anyhow::Ok(text.lines().map(without_place).collect::<Vec<_>>())
        };
        Ok(Found {
            caught: read("caught.txt")?.len(),
            timeouts: read("timeout.txt")?.len(),
            unviable: read("unviable.txt")?.len(),
            missed: read("missed.txt")?,
        })
    }
}

/// A part of all faults of an area: the one of this index, from 0, of so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Which.
    pub index: u32,
    /// Of how many; never 0.
    pub count: u32,
}

impl Shard {
    /// All of it.
    pub const WHOLE: Self = Self { index: 0, count: 1 };

    /// Reads `index/count`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (index, count) = text.split_once('/')?;
        let shard = Self { index: index.parse().ok()?, count: count.parse().ok()? };
        (shard.index < shard.count && shard.count <= 1000).then_some(shard)
    }
}

/// What became of the faults of an area.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// How many made a test fail.
    pub caught: usize,
    /// How many made a test run for too long. They count as caught, which on a busy machine may be wrong.
    pub timeouts: usize,
    /// How many the compiler refused.
    pub unviable: usize,
    /// Those that no test noticed, without their places in the file.
    pub missed: Vec<String>,
}

/// Survivors that are accepted, with the reason for each.
///
/// A line that begins with `#` is a reason; the lines behind it, as cargo-mutants prints them but without line and column, are
/// the faults that it is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accepted(BTreeMap<String, String>);

impl Accepted {
    /// Reads the list.
    ///
    /// # Errors
    ///
    /// Names a fault that has no reason, or is listed twice.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let mut accepted = BTreeMap::new();
        let (mut reason, mut is_open) = (String::new(), false);
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            if let Some(part) = line.strip_prefix('#') {
                if !std::mem::replace(&mut is_open, true) {
                    reason.clear();
                }
                reason = format!("{reason} {}", part.trim()).trim().to_owned();
                continue;
            }
            is_open = false;
            if reason.is_empty() {
                bail!("{ACCEPTED}: no reason stands before `{line}`");
            }
            if accepted.insert(line.to_owned(), reason.clone()).is_some() {
                bail!("{ACCEPTED}: `{line}` is listed twice");
            }
        }
        Ok(Self(accepted))
    }
}

/// What is told in the end. The score is the share of what was caught or took too long, in hundredths, of all that the compiler took.
#[derive(Clone, Debug, Default)]
pub struct Report {
    areas: Vec<(&'static str, Found, usize)>,
    survivors: BTreeSet<String>,
}

impl Report {
    /// Adds what was found in an area.
    pub fn add(&mut self, area: &Area, found: Found, accepted: &Accepted) {
        let is_accepted = |fault: &&String| accepted.0.contains_key(*fault);
        let count = found.missed.iter().filter(is_accepted).count();
        let rest = found.missed.iter().filter(|fault| !is_accepted(fault));
        self.survivors.extend(rest.cloned());
        self.areas.push((area.name, found, count));
    }

    /// Whether nothing survived that is not accepted.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.survivors.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for survivor in &self.survivors {
            writeln!(f, "survived: {survivor}")?;
        }
        let columns = ["caught", "timeout", "missed", "accepted", "refused", "score"];
        writeln!(f, "{:<16}{}", "area", columns.map(|it| format!("{it:>9}")).concat())?;
        for (area, found, accepted) in &self.areas {
            let Found { caught, timeouts, unviable, missed } = found;
            let (noticed, missed) = (caught + timeouts, missed.len());
            let share = (noticed * 1000).checked_div(noticed + missed).unwrap_or(1000);
            let figures = [*caught, *timeouts, missed, *accepted, *unviable];
            let figures = figures.map(|it| format!("{it:>9}")).concat();
            writeln!(f, "{area:<16}{figures}{:>7}.{}", share / 10, share % 10)?;
        }
        Ok(())
    }
}

/// `path:line:column: fault` as `path: fault`: places move with every change.
fn without_place(line: &str) -> String {
    let mut parts = line.splitn(4, ':');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(path), Some(_), Some(_), Some(fault)) => format!("{path}:{fault}"),
        _ => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_has_an_index_below_its_count() {
        assert_eq!(Shard::parse("1/3"), Some(Shard { index: 1, count: 3 }));
        for wrong in ["", "1", "3/3", "0/0", "-1/2", "1/x", "0/1001"] {
            assert_eq!(Shard::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_library_is_searched_once_though_its_modules_are_declared_twice() {
        let shard = Shard { index: 1, count: 3 };
        let arguments = |name| Area::find(name).unwrap().arguments(shard).join(" ");
        assert!(
            arguments("protocol")
                .contains("--file=src/protocol/** --features=testing --shard=1/6 ")
        );
        assert!(arguments("wire").contains("--file=crates/longhaul-wire/src/** --shard=1/3 "));
        assert!(
            arguments("broker")
                .contains("--config --cargo-arg=profile.dev.package.longhaul-broker.opt-level=0")
        );
    }

    #[test]
    fn a_survivor_is_known_by_its_fault_and_not_by_its_place() {
        let line = "src/a.rs:1:2: replace rank -> u64 with 0";
        assert_eq!(without_place(line), "src/a.rs: replace rank -> u64 with 0");
        let turbofish = "src/a.rs:1:2: replace f -> A::B with Default::default()";
        assert_eq!(without_place(turbofish), "src/a.rs: replace f -> A::B with Default::default()");
    }

    #[test]
    fn what_is_accepted_has_a_reason() {
        let accepted = Accepted::parse("# It is\n# equal.\na: b\nc: d\n\n# Slow.\ne: f\n").unwrap();
        let reasons: Vec<_> = accepted.0.values().map(String::as_str).collect();
        assert_eq!(reasons, ["It is equal.", "It is equal.", "Slow."]);
        assert!(Accepted::parse("a: b\n").is_err());
        assert!(Accepted::parse("# It is.\na: b\na: b\n").is_err());
    }

    #[test]
    fn the_list_of_the_project_can_be_read() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(ACCEPTED);
        let accepted = Accepted::parse(&std::fs::read_to_string(path).unwrap()).unwrap();
        for fault in accepted.0.keys() {
            let file = fault.split(':').next().unwrap();
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
            assert!(path.try_exists().unwrap(), "{fault}");
        }
    }

    #[test]
    fn what_survives_without_a_reason_fails_and_is_named() {
        let accepted = Accepted::parse("# Equal.\nsrc/a.rs: x\n").unwrap();
        let area = Area::find("wire").unwrap();
        let found = |missed: &[&str]| Found {
            caught: 16,
            timeouts: 2,
            unviable: 3,
            missed: missed.iter().map(|it| (*it).to_owned()).collect(),
        };
        let mut report = Report::default();
        report.add(area, found(&["src/a.rs: x"]), &accepted);
        assert!(report.is_clean());
        report.add(area, found(&["src/a.rs: x", "src/a.rs: y"]), &accepted);
        assert!(!report.is_clean());
        let expected = "\
survived: src/a.rs: y
area               caught  timeout   missed accepted  refused    score
wire                   16        2        1        1        3     94.7
wire                   16        2        2        1        3     90.0
";
        assert_eq!(report.to_string(), expected);
    }

    #[test]
    fn a_run_that_did_not_end_has_found_nothing() {
        let area = Area::find("wire").unwrap();
        for status in [Some(1), Some(4), None] {
            assert!(area.found(Path::new("."), status).is_err());
        }
    }
}
