//! Whole workers on a seeded broker: see `proofs::simulation`.
//!
//! `LONGHAUL_SIM_SEED=N LONGHAUL_SIM_RUNS=K cargo sim` runs K seeds from N on.

use longhaul_core::protocol::invariants::{ORDER, RESEND, START, TERMINAL};
use proofs::simulation::{Course, Forgetting, Order, Report, Setting, Totals, run};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Seeds of a long test run, as in CI; a short one has a quarter.
const RUNS: u64 = 600;

fn from_env(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn check(seed: u64) -> Result<Report, String> {
    let report = run(&Setting::of(seed));
    if report.violations.is_empty() {
        return Ok(report);
    }
    let violations = report.violations.join("\n  ");
    let mut told = format!(
        "seed {seed} (replay: LONGHAUL_SIM_SEED={seed} LONGHAUL_SIM_RUNS=1 cargo sim):\n  {violations}"
    );
    if from_env("LONGHAUL_SIM_SEED") == Some(seed) {
        let path = std::env::temp_dir().join(format!("longhaul-sim-{seed}.txt"));
        match std::fs::write(&path, report.history) {
            Ok(()) => told.push_str(&format!("\n  its history: {}", path.display())),
            Err(error) => told.push_str(&format!("\n  its history could not be written: {error}")),
        }
    }
    Err(told)
}

/// Minimum counts in a run of at least 600 seeds: a run in which nothing happens proves nothing.
/// About half of the numbers counted when this was written.
const FLOORS: [(&str, usize); 30] = [
    ("takeovers", 150),
    ("measured", 20),
    ("self_fences", 500),
    ("sealed", 900),
    ("superseded", 1_000),
    ("shown_no_more", 900),
    ("repairs", 7),
    ("compactions", 2_000),
    ("trims", 300),
    ("redeliveries", 2_500),
    ("releases", 400),
    ("checkpoints", 1_200),
    ("resumed", 200),
    ("cancelled", 100),
    ("failed", 350),
    ("expired", 100),
    ("delayed", 70),
    ("waited", 500),
    ("long_backoffs", 150),
    ("retries_adopted", 25),
    ("late_claims", 7),
    ("stopped", 250),
    ("kept_outcomes", 70),
    ("missed", 12),
    ("standstills", 20),
    ("topic_outages", 200),
    ("partitions_gained", 50),
    ("order_pairs", 3_000),
    ("order_troubled", 1_000),
    ("order_exempt", 10),
];

#[test]
#[expect(clippy::print_stdout, reason = "whoever looks wants to know what has happened")]
fn every_seed_ends_well() {
    let first = from_env("LONGHAUL_SIM_SEED").unwrap_or(0);
    let runs = from_env("LONGHAUL_SIM_RUNS").unwrap_or_else(|| match first {
        0 => proofs::shorter(RUNS),
        _ => 1,
    });
    // A few failures suffice, and a run that fails may take long.
    let (next, failed) = (AtomicU64::new(first), AtomicUsize::new(0));
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let (totals, failures) = std::thread::scope(|scope| {
        let work = || {
            let (mut totals, mut failures) = (Totals::default(), Vec::new());
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= first + runs || failed.load(Ordering::Relaxed) > 3 {
                    return (totals, failures);
                }
                match check(seed) {
                    Ok(report) => totals += report.totals,
                    Err(told) => {
                        failed.fetch_add(1, Ordering::Relaxed);
                        failures.push(told);
                    }
                }
            }
        };
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let (mut totals, mut failures) = (Totals::default(), Vec::new());
        for thread in running {
            let (counted, failed) = thread.join().expect("a run panicked");
            totals += counted;
            failures.extend(failed);
        }
        (totals, failures)
    });
    println!("{totals}");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    if runs >= RUNS {
        let counters = totals.counters();
        for (name, floor) in FLOORS {
            let count = counters.iter().find(|(other, _)| *other == name).map(|(_, count)| *count);
            assert!(count >= Some(floor), "{count:?} {name}, at least {floor}: {totals}");
        }
        assert!(200 * totals.at_once <= totals.takeovers, "workers do not take turns: {totals}");
    }
}

#[test]
fn one_seed_gives_one_history() {
    for seed in [3, 7, 11] {
        let (first, second) = (run(&Setting::of(seed)), run(&Setting::of(seed)));
        if first.history != second.history {
            let differs = first.history.lines().zip(second.history.lines()).find(|(a, b)| a != b);
            panic!("seed {seed} gave two histories; they part at {differs:?}");
        }
    }
    let other = run(&Setting::of(13)).history;
    assert_ne!(other, run(&Setting::of(17)).history);
}

/// Proof that the checks can fail: a client that resends stores a write-once key twice, unless the
/// broker drops the copy.
#[test]
fn a_ledger_without_deduplication_is_noticed() {
    let mut found = (0..200)
        .flat_map(|seed| run(&Setting { deduplication: false, ..Setting::of(seed) }).violations);
    assert!(found.any(|what| what.starts_with("C-02")), "{RESEND}: nobody noticed");
}

/// Proof that the checks of order can fail, and soon: on a worker that runs the tasks of a key as
/// they come, without other faults; and on a broker that deals the tasks of a key to any consumer,
/// so that each worker keeps an order of its own.
#[test]
fn an_order_that_is_not_kept_is_found() {
    let ordered = (0..160).filter(|seed| Setting::of(*seed).order == Order::Keys);
    let ordered: Vec<u64> = ordered.collect();
    assert_eq!(ordered.len(), 40);
    // Where the broker deals a key to any worker, the claims show which tasks have begun. That
    // keeps the order in most cases, so more seeds are needed.
    for (order, seeds) in [(Order::Unsaid, 20), (Order::DealtToAny, 40)] {
        let finds = |seed: &&u64| {
            let report = run(&Setting { order, ..Setting::of(**seed) });
            let (found, rest): (Vec<_>, Vec<_>) =
                report.violations.into_iter().partition(|what| what.starts_with(ORDER));
            assert!(rest.is_empty(), "{order:?}, seed {seed}: {rest:?}");
            !found.is_empty()
        };
        let found = ordered.iter().take(seeds).filter(finds).count();
        assert!(found >= 10, "{order:?}: found by {found} of {seeds} seeds");
    }
}

/// Compactions that forget a part of the ledger, as those of real Pulsar do, have nothing run
/// twice as long as one worker runs that knows more. That the check can fail: they have where no
/// worker ran meanwhile.
#[test]
fn what_compactions_have_forgotten_is_not_run_again() {
    let with = |seed, forgetting| {
        let course = Course::Crashes;
        let setting = Setting { forgetting, workers: 3, ..Setting::of(5 * seed + 1) };
        assert_eq!(setting.course, course);
        run(&setting)
    };
    let mut reread = 0;
    for seed in 0..proofs::shorter(60) {
        let Report { violations, totals, .. } = with(seed, Forgetting::Anytime);
        assert_eq!(violations, Vec::<String>::new(), "seed {seed}");
        reread += totals.views_lost;
    }
    let found = (0..6).filter(|seed| {
        let started = |what: &String| what.starts_with(START) || what.starts_with(TERMINAL);
        with(*seed, Forgetting::Unseen).violations.iter().any(started)
    });
    assert!(reread > 50, "{reread} reads of the log: too few views were wrong");
    assert!(found.count() > 3, "nobody noticed what nobody knew");
}

/// The number of attempts in a calm seed is known: none is lost, and there is none too many.
#[test]
fn calm_runs_take_nothing_over() {
    for seed in (0..100).filter(|seed| Setting::of(*seed).course == Course::Calm) {
        let Report { violations, totals, .. } = run(&Setting::of(seed));
        assert_eq!(violations, Vec::<String>::new(), "seed {seed}");
        assert_eq!(
            (totals.takeovers, totals.self_fences, totals.repairs),
            (0, 0, 0),
            "seed {seed}"
        );
        assert!(totals.starts > 0 || totals.cancelled > 0 || totals.failed > 0, "seed {seed}");
    }
}
