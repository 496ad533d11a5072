//! What is known of mutants from earlier runs: a file that verdicts are appended to, so that a run
//! which was interrupted goes on.
//!
//! Caught stays caught as long as the function is as it was. What was missed is asked again as soon
//! as any source has changed, for tests may have been added.

use anyhow::Context;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// What became of a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// This test failed.
    Caught(String),
    /// The tests took too long.
    TimedOut,
    /// All tests passed, or none reaches it.
    Missed,
    /// The compiler refuses it.
    Refused,
}

impl Verdict {
    /// What it is called.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Caught(_) => "caught",
            Self::TimedOut => "timeout",
            Self::Missed => "missed",
            Self::Refused => "refused",
        }
    }
}

/// A file of verdicts.
#[derive(Debug)]
pub struct Results {
    known: BTreeMap<(String, u64), Verdict>,
    sources: u64,
    file: File,
}

impl Results {
    /// Opens the file. `sources` changes with any source of the project.
    pub fn open(path: &Path, sources: u64) -> anyhow::Result<Self> {
        let text = if path.try_exists()? { std::fs::read_to_string(path)? } else { String::new() };
        let known = text.lines().filter_map(|line| read(line, sources)).collect();
        let file = File::options().create(true).append(true).open(path);
        let file = file.with_context(|| path.display().to_string())?;
        Ok(Self { known, sources, file })
    }

    /// What is known of a mutant.
    pub fn get(&self, name: &str, fingerprint: u64) -> Option<&Verdict> {
        self.known.get(&(name.to_owned(), fingerprint))
    }

    /// Keeps a verdict.
    pub fn put(&mut self, name: &str, fingerprint: u64, verdict: Verdict) -> anyhow::Result<()> {
        let detail = match &verdict {
            Verdict::Caught(test) => test.clone(),
            Verdict::Missed => format!("{:016x}", self.sources),
            Verdict::TimedOut | Verdict::Refused => String::new(),
        };
        let word = verdict.word();
        writeln!(self.file, "{word}\t{fingerprint:016x}\t{name}\t{detail}")?;
        self.known.insert((name.to_owned(), fingerprint), verdict);
        Ok(())
    }
}

fn read(line: &str, sources: u64) -> Option<((String, u64), Verdict)> {
    let mut parts = line.split('\t');
    let (word, fingerprint) = (parts.next()?, parts.next()?);
    let (name, detail) = (parts.next()?, parts.next()?);
    let verdict = match word {
        "caught" => Verdict::Caught(detail.to_owned()),
        "timeout" => Verdict::TimedOut,
        "missed" if detail == format!("{sources:016x}") => Verdict::Missed,
        "refused" => Verdict::Refused,
        _ => return None,
    };
    Some(((name.to_owned(), u64::from_str_radix(fingerprint, 16).ok()?), verdict))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caught_holds_for_a_function_and_missed_for_all_sources() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results");
        let mut results = Results::open(&path, 1).unwrap();
        results.put("a: x in f", 5, Verdict::Caught("t".to_owned())).unwrap();
        results.put("a: y in f", 5, Verdict::Missed).unwrap();
        assert_eq!(results.get("a: y in f", 5), Some(&Verdict::Missed));
        let same = Results::open(&path, 1).unwrap();
        assert_eq!(same.known, results.known);
        let other = Results::open(&path, 2).unwrap();
        assert_eq!(other.get("a: x in f", 5), Some(&Verdict::Caught("t".to_owned())));
        assert_eq!(other.get("a: x in f", 6), None);
        assert_eq!(other.get("a: y in f", 5), None);
    }
}
