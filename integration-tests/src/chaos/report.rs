//! The report of a scenario, as a line for people or as JSON.

use super::Options;
use longhaul_core::protocol::invariants::REFUSED;
use proofs::checkers::{Report, Violation};
use serde_json::{Map, Value, json};
use std::fmt;
use std::ops::Range;
use std::time::Duration;

/// The most violations printed; the rest is counted.
const SHOWN_MAX: usize = 10;

/// The result of a scenario.
#[derive(Clone, Debug)]
pub struct Row {
    /// Name of the scenario.
    pub scenario: String,
    /// Its seed.
    pub seed: u64,
    /// Figures by name.
    pub figures: Vec<(String, Value)>,
    /// The violations; empty if all is well.
    pub violations: Vec<String>,
}

impl Row {
    pub(super) fn new(scenario: &str, options: &Options) -> Self {
        let scenario = scenario.to_owned();
        let mut row = Self { scenario, seed: options.seed, figures: vec![], violations: vec![] };
        if options.no_deduplication {
            row.figure("deduplication", "off");
        }
        row
    }

    pub(super) fn figure(&mut self, name: &str, value: impl Into<Value>) {
        self.figures.push((name.to_owned(), value.into()));
    }

    /// Adds a violation if a count is below the minimum that makes the run conclusive.
    pub(super) fn floor<N: Copy + PartialOrd + fmt::Display>(
        &mut self,
        what: &str,
        count: N,
        least: N,
    ) {
        if count < least {
            let nothing = format!("{what}: {count}, not {least}: the run proves nothing");
            self.violations.push(nothing);
        }
    }

    /// A figure; 0 if it is not a number.
    pub(super) fn count(&self, name: &str) -> u64 {
        let figure = self.figures.iter().find(|(other, _)| other == name);
        figure.and_then(|(_, value)| value.as_u64()).unwrap_or_default()
    }

    /// Adds the minimum, median and maximum of some milliseconds, and their count.
    pub(super) fn spread(&mut self, name: &str, mut values: Vec<u64>) {
        values.sort_unstable();
        let at = |part: usize| values.get((values.len().saturating_sub(1)) * part / 100).copied();
        let [min, p50, max] = [at(0), at(50), at(100)].map(Option::unwrap_or_default);
        self.figure(name, format!("{min}/{p50}/{max} ms (n={})", values.len()));
    }

    /// As [`spread`](Self::spread), and adds a violation for each value outside the promised time.
    pub(super) fn within(&mut self, name: &str, values: Vec<u64>, promised: Range<Duration>) {
        let kept = |value: &u64| promised.contains(&Duration::from_millis(*value));
        let broken = values.iter().filter(|value| !kept(value));
        let broken = broken.map(|value| format!("{name}: {value} ms, not within {promised:?}"));
        self.violations.extend(broken);
        if values.is_empty() {
            self.violations.push(format!("{name}: no value: the run proves nothing"));
        }
        self.spread(name, values);
    }

    /// Adds the findings of the checkers.
    pub(super) fn judged(&mut self, report: &Report) {
        self.figure("completed", report.completed);
        if report.failed > 0 {
            self.figure("failed", report.failed);
        }
        self.figure("takeovers", report.takeovers);
        self.figure("attempt_max", report.attempt_max);
        if !report.ignored.is_empty() {
            self.figure("ignored", format!("{:?}", report.ignored));
        }
        if report.late_on_view > 0 {
            self.figure("late_on_view", report.late_on_view);
        }
        if report.overlaps > 0 {
            self.figure("overlaps", report.overlaps);
        }
        self.figure("compacted_away", report.compacted_away);
        // A short run of other scenarios ends before a second heartbeat, so there may be nothing to
        // remove.
        if self.scenario == "compactions" && report.compacted_away.unwrap_or_default() == 0 {
            // Compaction always removes all but the last heartbeat of a worker.
            self.violations
                .push("compaction has removed nothing: the run proves nothing".to_owned());
        }
        // Pulsar 4.0.7 can lose compacted data while its brokers die and topics move (apache/pulsar
        // issues 21074 and 25118). No reader can repair that.
        let is_pulsars = |violation: &&Violation| {
            self.scenario == "cluster" && matches!(violation, Violation::CompactionLost(_))
        };
        let (lost, ours): (Vec<_>, Vec<_>) = report.violations.iter().partition(is_pulsars);
        self.violations.extend(ours.into_iter().map(Violation::to_string));
        if !lost.is_empty() {
            self.figure("lost_by_compaction", lost.len());
        }
    }

    /// Adds steps that workers refused because of an invariant: each is a bug that their guard
    /// would hide.
    pub(super) fn refused(&mut self, logs: &str) {
        let lines = logs.lines().filter(|line| line.contains(REFUSED));
        self.violations.extend(lines.map(|line| line.trim().to_owned()));
    }

    /// As a JSON object.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let figures: Map<String, Value> = self.figures.iter().cloned().collect();
        json!({ "scenario": self.scenario, "seed": self.seed, "figures": figures, "violations": self.violations })
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.violations.is_empty() { "ok" } else { "VIOLATED" };
        write!(f, "| {} | seed {} | {verdict} |", self.scenario, self.seed)?;
        for (name, value) in &self.figures {
            match value.as_str() {
                Some(text) => write!(f, " {name} {text};")?,
                None => write!(f, " {name} {value};")?,
            }
        }
        f.write_str(" |")?;
        for violation in self.violations.iter().take(SHOWN_MAX) {
            write!(f, "\n  {violation}")?;
        }
        match self.violations.len().checked_sub(SHOWN_MAX) {
            Some(more) if more > 0 => write!(f, "\n  and {more} more"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Earlier, a takeover that took minutes was a figure that nobody compared with the promise.
    #[test]
    fn a_time_outside_of_the_promised_one_is_a_violation() {
        let promised = Duration::from_secs(1)..Duration::from_secs(3);
        let mut row = Row::new("kill-owner", &Options::default());
        row.within("takeover", vec![1_000, 2_999], promised.clone());
        assert!(row.violations.is_empty(), "{row}");
        row.within("takeover", vec![999, 2_000, 3_000], promised.clone());
        assert_eq!(row.violations.len(), 2, "{row}");
        row.within("takeover", Vec::new(), promised);
        assert!(row.violations[2].ends_with("proves nothing"), "{row}");
    }

    #[test]
    fn a_refused_step_in_a_log_is_a_violation() {
        let mut row = Row::new("kills", &Options::default());
        row.refused("  INFO ledger read: working\n");
        assert!(row.violations.is_empty());
        row.refused(&format!("  INFO ready\n ERROR longhaul: {REFUSED}: invariant=C-06\n"));
        assert!(row.violations.len() == 1 && row.violations[0].ends_with("C-06"), "{row}");
    }
}
