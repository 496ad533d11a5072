//! Tests the session's machine against the embedded broker's core, with random histories and with a
//! cut at every byte. Also tests it against a broker that follows no rule: the checks of the fuzz
//! target `session`, on random scripts and on the fuzzer's findings.
//!
//! `LONGHAUL_SESSION_SEEDS` sets the number of seeds, `LONGHAUL_SESSION_SEED` selects one;
//! `LONGHAUL_SESSION_SCRIPTS` sets the number of scripts, `LONGHAUL_SESSION_SCRIPT` selects one. By
//! default there are fewer of both than in the long form, `LONGHAUL_TEST_LONG=1`.

#![allow(clippy::print_stdout, reason = "the figures are for whoever runs it by hand")]
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "what is checked of a script may fail as tests do"
)]

#[path = "../../../fuzz/src/corpus.rs"]
#[expect(dead_code, unreachable_pub, reason = "the other half stores what was found")]
mod corpus;
#[path = "../../../fuzz/src/session/mod.rs"]
#[expect(unreachable_pub, reason = "the fuzz target is another crate")]
mod hostile;

use proofs::session::{Direction, Figures, Plan, run};
use proofs::{is_long, shorter};
use std::env::var;
use std::panic::catch_unwind;
use std::path::Path;

/// The most failed histories that are listed.
const FAILURES_MAX: usize = 8;

/// Runs histories, and lists those that fail.
#[track_caller]
fn run_all(plans: impl IntoIterator<Item = Plan>) -> Figures {
    let (mut figures, mut failed) = (Figures::default(), Vec::new());
    for plan in plans {
        match catch_unwind(|| run(plan)) {
            Ok(more) => figures.add(&more),
            Err(_) if failed.len() < FAILURES_MAX => failed.push(plan),
            Err(_) => break,
        }
    }
    assert!(failed.is_empty(), "failed: {failed:#?}");
    figures
}

#[test]
fn every_promise_holds_on_any_network() {
    let one = var("LONGHAUL_SESSION_SEED").ok().map(|it| it.parse::<u64>().unwrap());
    let count =
        var("LONGHAUL_SESSION_SEEDS").map_or_else(|_| shorter(300), |it| it.parse().unwrap());
    let seeds = one.map_or(0..count, |seed| seed..seed + 1);
    let figures = run_all(seeds.map(Plan::rough));
    println!("{figures:#?}");
    // Histories in which nothing happens would prove nothing.
    let much = figures.delivered > 10 * count;
    assert!(one.is_some() || much && figures.unknown_stored > 0 && figures.not_stored > 0);
    assert!(one.is_some() || figures.compactions > count && figures.compacted_out > count);
}

#[test]
fn a_seed_leads_to_one_history() {
    for seed in 0..5 {
        assert_eq!(run(Plan::rough(seed)), run(Plan::rough(seed)), "seed {seed}");
    }
}

/// A connection that ends after any byte, in either direction. `LONGHAUL_SESSION_CUTS=all` tries
/// each of about 55,000 places, the long form one in 7, and the short form one in 67.
#[test]
fn a_cut_at_any_byte_breaks_no_promise() {
    let step = match var("LONGHAUL_SESSION_CUTS") {
        Ok(all) if all == "all" => 1,
        _ if is_long() => 7,
        _ => 67,
    };
    let seed = 1;
    let (up, down) = run(Plan::cut(seed, None)).first_connection;
    println!("{up} bytes up, {down} down");
    assert!(up.min(down) > 2_000 && up + down < 64 * 1024);
    let cuts = |direction, bytes| {
        (0..=bytes).step_by(step).map(move |at| Plan::cut(seed, Some((direction, at))))
    };
    let figures = run_all(cuts(Direction::Up, up).chain(cuts(Direction::Down, down)));
    println!("{figures:#?}");
    assert!(figures.unknown > 0);
}

/// A script of random bytes.
fn script(seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let count = random.usize(20..500);
    (0..count).map(|_| random.u8(..)).collect()
}

#[test]
fn no_broker_makes_the_machine_break_a_promise() {
    let one = var("LONGHAUL_SESSION_SCRIPT").ok().map(|it| it.parse::<u64>().unwrap());
    let count =
        var("LONGHAUL_SESSION_SCRIPTS").map_or_else(|_| shorter(20_000), |it| it.parse().unwrap());
    let seeds = one.map_or(0..count, |seed| seed..seed + 1);
    let mut failed = Vec::new();
    for seed in seeds {
        if catch_unwind(|| hostile::session(&script(seed))).is_err() {
            failed.push(seed);
        }
        assert!(failed.len() < FAILURES_MAX, "failed: {failed:?}");
    }
    assert!(failed.is_empty(), "failed: {failed:?}");
}

#[test]
fn what_the_fuzzer_has_found_breaks_no_promise() {
    let stored = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/session.corpus");
    let found = corpus::unpack(&std::fs::read(stored).unwrap()).unwrap();
    assert!(!found.is_empty(), "the inputs are there");
    found.iter().for_each(|input| hostile::session(input));
}
