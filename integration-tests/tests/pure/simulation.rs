//! Whole workers on a seeded broker: see `integration_tests::simulation`.
//!
//! `LONGHAUL_SIM_SEED=N LONGHAUL_SIM_RUNS=K` runs K seeds from N on; `cargo xtask sim --seed N` does that.

use integration_tests::simulation::{Report, Setting, run};
use longhaul::protocol::invariants::RESEND;
use std::sync::atomic::{AtomicU64, Ordering};

/// Seeds of a plain test run.
const RUNS: u64 = 1_000;

fn from_env(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn check(seed: u64) -> Result<Report, String> {
    let report = run(&Setting::of(seed));
    if report.violations.is_empty() {
        return Ok(report);
    }
    let violations = report.violations.join("\n  ");
    let mut told = format!("seed {seed} (replay: cargo xtask sim --seed {seed}):\n  {violations}");
    if from_env("LONGHAUL_SIM_SEED") == Some(seed) {
        let path = std::env::temp_dir().join(format!("longhaul-sim-{seed}.txt"));
        match std::fs::write(&path, report.history) {
            Ok(()) => told.push_str(&format!("\n  its history: {}", path.display())),
            Err(error) => told.push_str(&format!("\n  its history could not be written: {error}")),
        }
    }
    Err(told)
}

#[test]
fn every_seed_ends_well() {
    let first = from_env("LONGHAUL_SIM_SEED").unwrap_or(0);
    let runs = from_env("LONGHAUL_SIM_RUNS").unwrap_or(if first > 0 { 1 } else { RUNS });
    let next = AtomicU64::new(first);
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let failures: Vec<String> = std::thread::scope(|scope| {
        let work = || {
            let mut failures = Vec::new();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= first + runs || failures.len() > 3 {
                    return failures;
                }
                failures.extend(check(seed).err());
            }
        };
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        running.into_iter().flat_map(|thread| thread.join().expect("a run panicked")).collect()
    });
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn one_seed_gives_one_history() {
    for seed in [1, 2, 3, 5, 7, 11] {
        let (first, second) = (run(&Setting::of(seed)), run(&Setting::of(seed)));
        if first.history != second.history {
            let differs = first.history.lines().zip(second.history.lines()).find(|(a, b)| a != b);
            panic!("seed {seed} gave two histories; they part at {differs:?}");
        }
    }
    let other = run(&Setting::of(13)).history;
    assert_ne!(other, run(&Setting::of(17)).history);
}

/// The checks can fail. A client that resends stores a write-once key twice, unless the broker drops the copy.
#[test]
fn a_ledger_without_deduplication_is_noticed() {
    let found = (0..200)
        .flat_map(|seed| run(&Setting { deduplication: false, ..Setting::of(seed) }).violations);
    let (keys, rest): (Vec<_>, Vec<_>) = found.partition(|what| what.starts_with("C-02"));
    assert!(!keys.is_empty(), "{RESEND}: nobody noticed; found {rest:?}");
}

#[test]
fn quiet_runs_start_every_task_and_no_more() {
    let report = run(&Setting { tasks: 5, workers: 2, kills: false, ..Setting::of(4) });
    assert_eq!(report.violations, Vec::<String>::new());
    assert!(report.starts >= 5, "{} attempts", report.starts);
}
