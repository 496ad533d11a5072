//! The embedded broker against Apache Pulsar 4.0.7: the same scripts of raw commands, and the
//! answers of each broker.
//!
//! Pulsar's answers are kept in `pulsar-4.0.7.txt`, so that the comparison needs no Pulsar. Where
//! the environment names one, its answers are compared with the record, too;
//! `LONGHAUL_ORACLE_RECORD=1` writes the record anew instead. `differences.rs` lists the intended
//! differences with their reasons. `clients.rs` does the same with the stock clients of other
//! languages, and `frames.rs` puts the wire crate between both. `LONGHAUL_ORACLE_ONLY=seek` plays
//! only the scripts with that in their names.
//!
//! The tested broker is one that is started here, or the one named by `LONGHAUL_ORACLE_BROKER`
//! (`pulsar://…`) and `LONGHAUL_ORACLE_ADMIN` (`http://…`).

mod anew;
mod challenge;
mod clients;
mod commands;
mod connection;
mod diff;
mod differences;
mod frames;
mod proxy;
#[path = "../../../../crates/longhaul-wire/tests/recorded/recording.rs"]
mod recording;
mod scenarios;
mod show;
mod stage;

use anyhow::{Context, Result, ensure};
use differences::{Difference, WANTED};
use futures::StreamExt;
use integration_tests::sandbox::Sandbox;
use integration_tests::skip;
use longhaul_broker::{Broker, BrokerConfig};
use stage::{Stage, Watched};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;

/// Traces by the names of scripts.
type Traces = BTreeMap<String, Vec<String>>;

/// The environment variable that selects scripts, for work on one of them.
const ONLY: &str = "LONGHAUL_ORACLE_ONLY";
/// The environment variable by which the record is written anew.
const RECORD: &str = "LONGHAUL_ORACLE_RECORD";
/// Two Pulsars at once are too slow: the scripts would take their delays for silence.
static PULSAR: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
/// Record of the scripts of raw commands.
const RAW: &str = "pulsar-4.0.7";
/// How often scripts are played again that Pulsar answers otherwise than recorded.
const REPLAYS: usize = 2;
/// The number of scripts that play at the same time. They mostly wait to see that nothing comes.
const AT_ONCE: usize = 16;

#[tokio::test]
async fn pulsar_answers_as_recorded() -> Result<()> {
    if Sandbox::pulsar_kind()?.is_none() {
        skip(
            "LONGHAUL_TEST_BROKER names no Pulsar whose answers could be compared with the record",
        );
        return Ok(());
    }
    let _alone = PULSAR.lock().await;
    let Some(sandbox) = Sandbox::from_env().await? else { return Ok(()) };
    let (url, admin) = (sandbox.service_url(), sandbox.admin().url());
    let mut traces = play(url, admin, selected).await;
    let replays = if std::env::var(RECORD).is_ok() { 0 } else { REPLAYS };
    for _ in 0..replays {
        // A busy Pulsar sends some frames after the next answer. What it does differently, it does
        // each time.
        let record = recorded(RAW)?;
        let differs = |name: &str| selected(name) && traces.get(name) != record.get(name);
        let again = play(url, admin, differs).await;
        traces.extend(again);
    }
    record_or_compare(RAW, &traces)
}

#[tokio::test]
async fn ours_answers_as_pulsar_does() -> Result<()> {
    let url = std::env::var("LONGHAUL_ORACLE_BROKER");
    let admin = std::env::var("LONGHAUL_ORACLE_ADMIN");
    if let (Ok(url), Ok(admin)) = (url, admin) {
        return compare(&recorded(RAW)?, &play(&url, &admin, selected).await, WANTED);
    }
    let broker = Broker::start(BrokerConfig::default())?;
    let admin = broker.admin_url().context("no admin interface")?;
    let traces = play(broker.service_url(), &admin, selected).await;
    broker.shutdown()?;
    compare(&recorded(RAW)?, &traces, WANTED)
}

/// Compares Pulsar's traces with the recorded ones, or records them.
fn record_or_compare(name: &str, traces: &Traces) -> Result<()> {
    if std::env::var(RECORD).is_err() {
        return compare(&recorded(name)?, traces, &[]);
    }
    ensure!(std::env::var(ONLY).is_err(), "a record has all scripts");
    let text = write(traces);
    ensure!(!text.contains(stage::FAILED), "a record has no failures:\n{text}");
    Ok(std::fs::write(record_path(name), text)?)
}

#[test]
fn a_difference_is_found_unless_it_is_wanted() {
    let traces = |lines: &[&str]| {
        let lines = lines.iter().map(|line| (*line).to_owned()).collect();
        Traces::from([("a".to_owned(), lines)])
    };
    let (theirs, ours) = (traces(&["x", "y", "z"]), traces(&["x", "w", "z"]));
    let wanted = [Difference { script: "a", theirs: "y", ours: "w", why: "test" }];
    assert!(compare(&theirs, &theirs, &[]).is_ok());
    assert!(compare(&theirs, &ours, &[]).is_err());
    assert!(compare(&theirs, &ours, &wanted).is_ok());
    assert!(compare(&theirs, &theirs, &wanted).is_err(), "a difference that is gone");
    assert!(compare(&theirs, &Traces::new(), &[]).is_err());
    assert!(compare(&Traces::new(), &ours, &[]).is_err(), "a script that is not in the record");
    assert_eq!(read(&write(&theirs)), theirs);
}

async fn play(url: &str, admin: &str, is_played: impl Fn(&str) -> bool) -> Traces {
    let run = format!("{:016x}", RandomState::new().hash_one("oracle"));
    let watched = Watched { url: url.to_owned(), admin: admin.to_owned(), run };
    let scripts = scenarios::all().into_iter().filter(|(name, _)| is_played(name));
    let played = scripts.map(|(name, script)| {
        let watched = watched.clone();
        async move {
            let mut stage = Stage::new(watched, name);
            if let Err(error) = script(&mut stage).await {
                stage.fail(&error);
            }
            (name.to_owned(), stage.finish())
        }
    });
    futures::stream::iter(played).buffer_unordered(AT_ONCE).collect().await
}

/// Whether a script is to be played: all of them, unless the environment selects a part of its
/// name.
fn selected(name: &str) -> bool {
    std::env::var(ONLY).map_or(true, |only| name.contains(&only))
}

/// Fails with all differences that are not intended, and with intended ones that are missing.
fn compare(theirs: &Traces, ours: &Traces, wanted: &[Difference]) -> Result<()> {
    let reports = theirs.iter().map(|(script, theirs)| differences(script, theirs, ours, wanted));
    let mut report: String = reports.collect();
    for script in ours.keys().filter(|script| !theirs.contains_key(*script)) {
        report += &format!("\n== {script}: not in the record\n");
    }
    ensure!(report.is_empty(), "{report}");
    Ok(())
}

fn differences(script: &str, theirs: &[String], ours: &Traces, wanted: &[Difference]) -> String {
    let mut report = String::new();
    let none = Vec::new();
    let mut text = lines(ours.get(script).unwrap_or(&none));
    for difference in wanted.iter().filter(|wanted| wanted.script == script) {
        let (from, to) = (block(difference.ours), block(difference.theirs));
        if text.contains(&from) {
            text = text.replacen(&from, &to, 1);
        } else {
            report += &format!("\n== {script}: wanted, but not there: {}\n", difference.ours);
        }
    }
    let theirs = lines(theirs);
    if text != theirs {
        report += &format!("\n== {script} (- as recorded, + now)\n{}", diff::show(&theirs, &text));
    }
    report
}

#[expect(clippy::print_stderr, reason = "a test says what it lets pass")]
fn tell(text: &str) {
    eprintln!("oracle: {text}");
}

/// Each line with its end, after an end, so that only whole lines are found.
fn lines(lines: &[String]) -> String {
    lines.iter().fold("\n".to_owned(), |text, line| text + line + "\n")
}

fn block(text: &str) -> String {
    if text.is_empty() { "\n".to_owned() } else { format!("\n{text}\n") }
}

fn record_path(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/brokers/oracle"))
        .join(format!("{name}.txt"))
}

fn recorded(name: &str) -> Result<Traces> {
    let mut traces = read(&std::fs::read_to_string(record_path(name))?);
    traces.retain(|name, _| selected(name));
    Ok(traces)
}

fn write(traces: &Traces) -> String {
    let shown = traces.iter().map(|(script, lines)| format!("== {script}\n{}\n", lines.join("\n")));
    shown.collect()
}

fn read(text: &str) -> Traces {
    let parts = text.split("== ").filter_map(|part| part.split_once('\n'));
    let lines = |body: &str| body.lines().map(str::to_owned).collect();
    parts.map(|(script, body)| (script.to_owned(), lines(body))).collect()
}
