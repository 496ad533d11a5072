//! A sitting: one measurement in rounds on one broker, its medians as a table for people, and all of it as JSON.

use crate::meter::Figures;
use crate::stage::Stage;
use crate::table::{medians, table};
use anyhow::{Context, Result};
use clap::Args;
use integration_tests::say;
use serde_json::{Map, Value, json};
use std::io::Write;
use std::path::PathBuf;

/// What all measurements may be told.
#[derive(Args, Clone, Debug)]
pub(crate) struct Sitting {
    /// `embedded`, `maven` (Java 17 and Maven are needed; the first time 235 MB are fetched), `maven-tuned`, `docker`, or the service URL
    /// of a broker that runs.
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
    /// How often it is measured.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Writes the figures of all rounds to a file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Runs workers under a command, such as `perf record -g -o worker.data`.
    #[arg(long, value_name = "COMMAND")]
    pub(crate) under: Option<String>,
}

impl Sitting {
    /// Measures, and prints what was found.
    pub(crate) async fn run(
        &self,
        name: &str,
        measure: impl AsyncFn(&Stage) -> Result<Figures>,
    ) -> Result<()> {
        let stage = Stage::open(&self.broker, &self.admin).await?;
        let mut ours = Vec::new();
        for round in 1..=self.rounds {
            let figures = measure(&stage).await.with_context(|| format!("round {round}"))?;
            say(&format!("{name}, round {round}: {}", line(&figures)));
            ours.push(figures);
        }
        stage.close().await?;
        let sides = [("longhaul".to_owned(), ours)];
        let title = format!("{name} on {}", self.broker);
        writeln!(std::io::stdout(), "{}", table(&title, &sides))?;
        if let Some(path) = &self.json {
            let text = serde_json::to_string_pretty(&self.as_json(name, &sides))?;
            std::fs::write(path, text + "\n").with_context(|| path.display().to_string())?;
        }
        Ok(())
    }

    fn as_json(&self, name: &str, sides: &[(String, Vec<Figures>)]) -> Value {
        let side = |(name, rounds): &(String, Vec<Figures>)| {
            let medians = object(&medians(rounds));
            let rounds: Vec<Value> = rounds.iter().map(object).collect();
            json!({ "name": name, "medians": medians, "rounds": rounds })
        };
        let command: Vec<String> = std::env::args().skip(1).collect();
        json!({
            "measured": name,
            "command": command.join(" "),
            "broker": self.broker,
            "sides": sides.iter().map(side).collect::<Vec<Value>>(),
        })
    }
}

fn object(figures: &Figures) -> Value {
    let pairs = figures.0.iter().map(|(name, value)| (name.clone(), json!(value)));
    Value::Object(pairs.collect::<Map<_, _>>())
}

fn line(figures: &Figures) -> String {
    let words = figures.0.iter().map(|(name, value)| format!("{name} {value:.1}"));
    words.collect::<Vec<_>>().join(", ")
}
