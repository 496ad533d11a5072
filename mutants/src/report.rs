//! What is told in the end, and what of it is accepted.

use crate::ACCEPTED;
use anyhow::bail;
use std::collections::BTreeMap;
use std::fmt;

/// A mutant that no test noticed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Survivor {
    /// Its name, without its place in the file.
    pub name: String,
    /// Where to look, from 1.
    pub line: usize,
}

impl fmt::Display for Survivor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (line {})", self.name, self.line)
    }
}

/// What became of the faults of an area.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// How many made a test fail.
    pub caught: usize,
    /// How many made a test run for too long. They count as caught, which on a busy machine may be
    /// wrong.
    pub timeouts: usize,
    /// How many the compiler refused.
    pub unviable: usize,
    /// Those that no test noticed.
    pub missed: Vec<Survivor>,
}

/// Survivors that are accepted, with the reason for each.
///
/// A line that begins with `#` is a reason; the lines behind it, as the command prints them but
/// without the place, are the faults that it is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accepted(BTreeMap<String, String>);

impl Accepted {
    /// Reads the list.
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

/// What is told in the end. The score is the share of what was caught or took too long, in
/// hundredths, of all that the compiler took.
#[derive(Clone, Debug, Default)]
pub struct Report {
    areas: Vec<(&'static str, Found, usize)>,
    survivors: Vec<Survivor>,
}

impl Report {
    /// Adds what was found in an area.
    pub fn add(&mut self, area: &'static str, found: Found, accepted: &Accepted) {
        let is_accepted = |fault: &&Survivor| accepted.0.contains_key(&fault.name);
        let count = found.missed.iter().filter(is_accepted).count();
        let rest = found.missed.iter().filter(|fault| !is_accepted(fault));
        self.survivors.extend(rest.cloned());
        self.areas.push((area, found, count));
    }

    /// Whether nothing survived that is not accepted.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

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
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(ACCEPTED);
        let accepted = Accepted::parse(&std::fs::read_to_string(path).unwrap()).unwrap();
        for fault in accepted.0.keys() {
            let file = fault.split(':').next().unwrap();
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
            assert!(path.try_exists().unwrap(), "{fault}");
        }
    }

    #[test]
    fn what_survives_without_a_reason_fails_and_is_named() {
        let accepted = Accepted::parse("# Equal.\nsrc/a.rs: x\n").unwrap();
        let found = |missed: &[&str]| Found {
            caught: 16,
            timeouts: 2,
            unviable: 3,
            missed: missed.iter().map(|it| Survivor { name: (*it).to_owned(), line: 7 }).collect(),
        };
        let mut report = Report::default();
        report.add("wire", found(&["src/a.rs: x"]), &accepted);
        assert!(report.is_clean());
        report.add("wire", found(&["src/a.rs: x", "src/a.rs: y"]), &accepted);
        assert!(!report.is_clean());
        let expected = "\
survived: src/a.rs: y (line 7)
area               caught  timeout   missed accepted  refused    score
wire                   16        2        1        1        3     94.7
wire                   16        2        2        1        3     90.0
";
        assert_eq!(report.to_string(), expected);
    }
}
