//! A sitting: one measurement in rounds on one broker, a peer's command in turn with it, medians as
//! a table for people, and all of it as JSON.

use crate::meter::Figures;
use crate::peer;
use crate::stage::Stage;
use crate::table::{medians, table};
use anyhow::{Context, Result};
use clap::Args;
use integration_tests::say;
use serde_json::{Map, Value, json};
use std::io::Write;
use std::path::PathBuf;

/// A line of a table: what it is about, and its figures.
pub(crate) type Row = (String, Figures);
/// A line with the figures of all rounds.
pub(crate) type Side = (String, Vec<Figures>);

/// What all measurements may be told.
#[derive(Args, Clone, Debug)]
pub(crate) struct Sitting {
    /// `embedded`, `maven` (Java 17 and Maven are needed; the first time 235 MB are fetched),
    /// `maven-tuned`, `docker`, or the service URL of a broker that runs.
    #[arg(long, env = "LONGHAUL_TEST_BROKER", default_value = "embedded", value_name = "BROKER")]
    broker: String,
    /// Admin URL that belongs to a service URL.
    #[arg(
        long,
        env = "LONGHAUL_TEST_ADMIN",
        default_value = "http://127.0.0.1:8080",
        value_name = "URL"
    )]
    admin: String,
    /// How often it is measured: 3 times, or once where it takes minutes.
    #[arg(long)]
    rounds: Option<usize>,
    /// Measures another task queue, too: a shell command that is run after each of our rounds. Of
    /// what it prints these are taken, each as it stands last: `123/s`, `p50 1.2 ms` (p90, p99,
    /// max), `VmHWM 12.3 MiB`. A client of our broker finds it by PULSAR_SERVICE_URL or PULSAR_URL.
    #[arg(long, value_name = "COMMAND")]
    peer: Option<String>,
    /// Writes the figures of all rounds to a file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Runs workers under a command, such as `perf record -g -o worker.data`.
    #[arg(long, value_name = "COMMAND")]
    pub(crate) under: Option<String>,
}

impl Sitting {
    /// Measures one line of figures in three rounds, unless another number was asked for.
    pub(crate) async fn run(
        &self,
        name: &str,
        measure: impl AsyncFn(&Stage) -> Result<Figures>,
    ) -> Result<()> {
        let rows = async |stage: &Stage| Ok(vec![("longhaul".to_owned(), measure(stage).await?)]);
        self.run_rows(name, 3, rows).await
    }

    /// Measures so many rounds, unless another number was asked for, and prints what was found.
    pub(crate) async fn run_rows(
        &self,
        name: &str,
        rounds: usize,
        measure: impl AsyncFn(&Stage) -> Result<Vec<Row>>,
    ) -> Result<()> {
        let stage = Stage::open(&self.broker, &self.admin).await?;
        let (mut ours, mut theirs): (Vec<Side>, Vec<Side>) = (Vec::new(), Vec::new());
        for round in 1..=self.rounds.unwrap_or(rounds) {
            let rows = measure(&stage).await.with_context(|| format!("round {round}"))?;
            note(&mut ours, rows, round);
            if let Some(command) = &self.peer {
                let figures = peer::run(command, stage.service_url())
                    .await
                    .with_context(|| command.clone())?;
                note(&mut theirs, vec![("peer".to_owned(), figures)], round);
            }
        }
        stage.close().await?;
        let machine = machine();
        let mut sides = ours;
        if let (Some((_, ours)), Some((name, theirs))) = (sides.first(), theirs.into_iter().next())
        {
            let ratio = ratio(ours, &theirs);
            sides.push((name, theirs));
            sides.push(("ratio of the medians".to_owned(), vec![ratio]));
        }
        let title = format!("{name} on {} ({machine})", self.broker);
        writeln!(std::io::stdout(), "{}", table(&title, &sides))?;
        if let Some(path) = &self.json {
            let text = serde_json::to_string_pretty(&self.as_json(name, &machine, &sides))?;
            std::fs::write(path, text + "\n").with_context(|| path.display().to_string())?;
        }
        Ok(())
    }

    fn as_json(&self, name: &str, machine: &str, sides: &[Side]) -> Value {
        let side = |(name, rounds): &Side| {
            let medians = object(&medians(rounds));
            let rounds: Vec<Value> = rounds.iter().map(object).collect();
            json!({ "name": name, "medians": medians, "rounds": rounds })
        };
        let command: Vec<String> = std::env::args().skip(1).collect();
        json!({
            "measured": name,
            "command": command.join(" "),
            "broker": self.broker,
            "peer": self.peer,
            "machine": machine,
            "sides": sides.iter().map(side).collect::<Vec<Value>>(),
        })
    }
}

/// Adds the lines of a round to those of the rounds before, and tells them.
fn note(sides: &mut Vec<Side>, rows: Vec<Row>, round: usize) {
    for (name, figures) in rows {
        say(&format!("round {round}, {name}: {}", line(&figures)));
        match sides.iter_mut().find(|(it, _)| *it == name) {
            Some((_, rounds)) => rounds.push(figures),
            None => sides.push((name, vec![figures])),
        }
    }
}

/// Ours as multiples of theirs, of what both have.
fn ratio(ours: &[Figures], theirs: &[Figures]) -> Figures {
    let (ours, theirs) = (medians(ours), medians(theirs));
    let both = ours.0.iter().filter_map(|(name, value)| Some((name, value / theirs.get(name)?)));
    Figures(both.map(|(name, ratio)| (name.clone(), ratio)).collect())
}

/// What was measured on, as far as speed depends on it.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = memory.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = kib.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    let gib = kib.unwrap_or_default() / 1024.0 / 1024.0;
    format!("{cores} cores, {gib:.0} GiB")
}

fn object(figures: &Figures) -> Value {
    let pairs = figures.0.iter().map(|(name, value)| (name.clone(), json!(value)));
    Value::Object(pairs.collect::<Map<_, _>>())
}

fn line(figures: &Figures) -> String {
    let words = figures.0.iter().map(|(name, value)| format!("{name} {value:.1}"));
    words.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_put_together_by_name_and_compared_by_their_medians() {
        let row = |name: &str, value| {
            let figures = vec![("tasks/s".to_owned(), value), (format!("{name}'s own"), 1.0)];
            (name.to_owned(), Figures(figures))
        };
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for (round, (a, b)) in [(300.0, 50.0), (100.0, 100.0), (200.0, 900.0)].iter().enumerate() {
            note(&mut ours, vec![row("longhaul", *a)], round);
            note(&mut theirs, vec![row("peer", *b)], round);
        }
        assert_eq!((ours.len(), ours[0].1.len()), (1, 3));
        assert_eq!(ratio(&ours[0].1, &theirs[0].1).0, [("tasks/s".to_owned(), 2.0)]);
    }
}
