//! The session's machine against the embedded broker's core: seeds with everything in them, and a cut at every byte.
//!
//! `LONGHAUL_SESSION_SEEDS` asks for more seeds, `LONGHAUL_SESSION_SEED` for one.

#![allow(clippy::print_stdout, reason = "the figures are for whoever runs it by hand")]

use integration_tests::session::{Direction, Figures, Plan, run};
use std::env::var;
use std::panic::catch_unwind;

/// Failed histories that are named.
const FAILURES_MAX: usize = 8;

/// Runs histories; those that fail are named together.
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
    let count = var("LONGHAUL_SESSION_SEEDS").map_or(300, |it| it.parse().unwrap());
    let seeds = one.map_or(0..count, |seed| seed..seed + 1);
    let figures = run_all(seeds.map(Plan::rough));
    println!("{figures:#?}");
    // Histories in which nothing happens would prove nothing.
    assert!(one.is_some() || figures.unknown_stored > 0 && figures.delivered > 10 * count);
}

#[test]
fn a_seed_leads_to_one_history() {
    for seed in 0..5 {
        assert_eq!(run(Plan::rough(seed)), run(Plan::rough(seed)), "seed {seed}");
    }
}

/// A connection that ends behind any byte, on either side. `LONGHAUL_SESSION_CUTS=all` tries each of some 55,000 places, and not only
/// one in seven.
#[test]
fn a_cut_at_any_byte_breaks_no_promise() {
    let step = if var("LONGHAUL_SESSION_CUTS").is_ok_and(|it| it == "all") { 1 } else { 7 };
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
