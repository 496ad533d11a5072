//! Two features at a time: see `proofs::pairs`. One seed of each pair, or four in the long form.
//!
//! `LONGHAUL_PAIRS_SEED=N LONGHAUL_PAIRS_RUNS=K cargo test -p proofs --test pure pairs` runs K
//! seeds of each pair from N on. `LONGHAUL_PAIRS_OF=Lease,Limit` restricts the run to pairs with
//! these features, or to exactly these features if there are more than two. It also writes the
//! histories that fail to files.

use proofs::pairs::{Feature, Pair, Report, features, pairs, run};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Minimum counts in a run of at least one seed of each pair. About half of the numbers counted
/// when this was written.
const FLOORS: [(&str, usize); 15] = [
    ("answered with another task", 15),
    ("batches", 30),
    ("cancelled", 70),
    ("deleted", 40),
    ("released", 50),
    ("drained", 40),
    ("killed", 40),
    ("kept alive", 750),
    ("duplicates", 350),
    ("told of the same task", 350),
    ("paused", 100),
    ("checkpoints", 800),
    ("compacted", 180),
    ("broken", 50),
    ("fenced", 60),
];

/// Histories that found a defect that the first seeds do not find:
///
/// - a request waited for the lease of a cancelled task,
/// - a queue with limits, order and delays stood still,
/// - a worker took tasks over before it had read the limits and the pause of its queue,
/// - workers never claimed tasks with all tickets because a task without a ticket was before them,
/// - compaction removed the tombstone of a ticket before its own writer read it.
const FOUND: [(u64, &[Feature]); 6] = [
    (116, &[Feature::Lease, Feature::Cancel]),
    (15, &[Feature::Limit, Feature::Order, Feature::Delay]),
    (5_111, &[Feature::Drain, Feature::Pause, Feature::Limit]),
    (5_055, &[Feature::Kill, Feature::Narrow, Feature::Level]),
    (5_387, &[Feature::Kill, Feature::Narrow, Feature::Level]),
    (50_087, &[Feature::Narrow, Feature::Broker, Feature::Compact]),
];

fn from_env(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The requested features. Empty: all pairs.
fn asked_for() -> Vec<Feature> {
    let names = std::env::var("LONGHAUL_PAIRS_OF").unwrap_or_default();
    let named = |name: &str| {
        let feature = Feature::ALL.into_iter().find(|it| format!("{it:?}") == name);
        feature.unwrap_or_else(|| panic!("LONGHAUL_PAIRS_OF: no feature is called {name:?}"))
    };
    names.split(',').filter(|name| !name.is_empty()).map(named).collect()
}

/// The requested histories of this seed.
fn of_seed(seed: u64, asked_for: &[Feature]) -> Vec<(u64, Vec<Feature>)> {
    if asked_for.len() > 2 {
        return vec![(seed, asked_for.to_vec())];
    }
    let is_one = |pair: &Pair| asked_for.iter().all(|feature| pair.contains(feature));
    pairs().into_iter().filter(is_one).map(|pair| (seed, features(seed, pair))).collect()
}

#[test]
#[expect(clippy::print_stdout, reason = "whoever looks wants to know what has happened")]
fn what_users_are_promised_holds_for_every_two_features() {
    let (first, runs) = (from_env("LONGHAUL_PAIRS_SEED"), from_env("LONGHAUL_PAIRS_RUNS"));
    let first = first.unwrap_or(0);
    let seeds = first..first + runs.unwrap_or_else(|| proofs::shorter(4));
    let asked_for = asked_for();
    let mut all: Vec<(u64, Vec<Feature>)> =
        seeds.flat_map(|seed| of_seed(seed, &asked_for)).collect();
    if asked_for.is_empty() {
        all.extend(FOUND.map(|(seed, features)| (seed, features.to_vec())));
    }
    let (next, found) = (AtomicUsize::new(0), Mutex::new((Vec::new(), BTreeMap::new())));
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((seed, features)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let report = std::panic::catch_unwind(|| run(*seed, features.clone()));
                    let report = report.unwrap_or_else(|_| Report {
                        violations: vec![format!("{features:?} seed {seed}: panicked")],
                        ..Report::default()
                    });
                    let mut found = found.lock().unwrap();
                    if !report.history.is_empty() && !asked_for.is_empty() {
                        let path = std::env::temp_dir().join(format!("longhaul-pairs-{seed}.txt"));
                        let written = std::fs::write(&path, report.history);
                        found.0.push(format!("its history: {} ({written:?})", path.display()));
                    }
                    found.0.extend(report.violations);
                    for (what, count) in report.counts {
                        *found.1.entry(what).or_insert(0) += count;
                    }
                }
            });
        }
    });
    let (violations, counts) = found.into_inner().unwrap();
    println!("{} histories: {counts:?}", all.len());
    assert!(violations.is_empty(), "{}", violations.join("\n"));
    if asked_for.is_empty() {
        for (what, floor) in FLOORS {
            let count = counts.get(what).copied().unwrap_or_default();
            assert!(count >= floor, "{what}: only {count}, not {floor}: nothing was tried");
        }
    }
}
