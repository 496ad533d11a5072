//! Measures the log over a temporary directory:
//! `cargo bench -p longhaul-broker --features testing --bench log`.
//!
//! The next group is composed while the previous one is being written, as in the broker. `TMPDIR`
//! selects the disk.

use anyhow::{Context, Result};
use longhaul_broker::internals::log::{
    self, FileStorage, LogOptions, RecordHead, RecordKind, RecoveredLog, ReplayedItem, WriteError,
};
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

/// Duration of each measurement.
const CELL: Duration = Duration::from_secs(2);
/// Records of the replay.
const REPLAYED: u64 = 1_000_000;

fn main() -> Result<()> {
    print("records per group | body | records/s | syncs/s | MB/s | ms per group p50 | p99 | most");
    for body in [100, 4096] {
        for group in [1, 100, 1000] {
            let directory = tempfile::tempdir()?;
            let mut opened = open(directory.path(), &mut 0)?;
            let (mut waits, seconds) = append(&mut opened, group, body, |_, spent| spent < CELL)?;
            waits.sort();
            let groups = waits.len() as u64;
            let at = |part: usize| {
                let wait = waits.get((waits.len() * part / 100).min(waits.len() - 1));
                wait.copied().unwrap_or_default().as_secs_f64() * 1e3
            };
            let (records, bytes) = (groups * group, groups * group * body as u64);
            print(format_args!(
                "{group} | {body} B | {:.0} | {:.0} | {:.0} | {:.2} | {:.2} | {:.2}",
                records as f64 / seconds,
                groups as f64 / seconds,
                bytes as f64 / seconds / 1e6,
                at(50),
                at(99),
                at(100)
            ));
        }
    }
    replay()
}

fn replay() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut opened = open(directory.path(), &mut 0)?;
    append(&mut opened, 1000, 100, |groups, _| groups < REPLAYED / 1000)?;
    let segments = opened.log.status().segments.len();
    opened.log.close();
    for _ in 0..3 {
        let (start, mut bytes) = (now(), 0);
        let opened = open(directory.path(), &mut bytes)?;
        let seconds = (now() - start).as_secs_f64();
        let records = opened.records;
        print(format_args!(
            "replay of {records} records of 100 B ({bytes} B of bodies, {segments} segments): {seconds:.3} s"
        ));
    }
    Ok(())
}

fn open(path: &Path, bytes: &mut usize) -> Result<RecoveredLog> {
    let storage = Arc::new(FileStorage::new(path)?);
    let opened = log::open(storage, LogOptions::default(), &mut |replayed| {
        if let ReplayedItem::Record { body, .. } = replayed {
            *bytes += body.len();
        }
        Ok(())
    })?;
    Ok(opened)
}

/// Writes groups while the number of groups and the elapsed time allow it. Returns the time of each
/// group from its submission to its callback, and the total time in seconds.
fn append(
    opened: &mut RecoveredLog,
    records: u64,
    body: usize,
    more: impl Fn(u64, Duration) -> bool,
) -> Result<(Vec<Duration>, f64)> {
    let body = vec![0x5a; body];
    let mut in_flight: Option<Receiver<_>> = None;
    let (start, mut groups, mut waits) = (now(), 0, Vec::new());
    while more(groups, now() - start) {
        for entry in 0..records {
            let head = RecordHead { kind: RecordKind::Entry, topic: 1, ledger: groups, entry };
            opened.composer.append(head, &[&body])?;
        }
        if let Some(done) = in_flight.take() {
            waits.push(written(&done)?);
        }
        let group = opened.composer.take().context("a group without records")?;
        let (done, outcome) = sync_channel(1);
        let submitted = now();
        let done = move |result| drop(done.send((result, now() - submitted)));
        opened.log.submit(group, Box::new(done));
        in_flight = Some(outcome);
        groups += 1;
    }
    if let Some(done) = in_flight {
        waits.push(written(&done)?);
    }
    Ok((waits, (now() - start).as_secs_f64()))
}

/// Waits for a group, and returns how long it took.
fn written(outcome: &Receiver<(Result<(), WriteError>, Duration)>) -> Result<Duration> {
    let (result, took) = outcome.recv()?;
    result?;
    Ok(took)
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::print_stdout, reason = "a measurement prints its figures")]
fn print(line: impl Display) {
    println!("{line}");
}
