//! Defects planted in the broker's own state, which the simulation must detect.

use super::world::SimulatedWorld;
use super::{crowd, rotten, scattered, slow, volume};
use crate::machine::BrokerMachine;
use std::panic::catch_unwind;

/// Plants a defect. Returns whether it was possible.
type Defect = fn(&mut BrokerMachine) -> bool;

impl SimulatedWorld {
    /// Runs a history in which a defect appears. Returns whether one was planted.
    fn run_with(seed: u64, defect: Defect) -> bool {
        let mut world = Self::new(seed);
        world.live();
        let is_planted = !world.node.is_dead && defect(&mut world.node.machine);
        for _ in 0..4 {
            world.live();
            world.pump();
        }
        is_planted
    }
}

/// Numbers of seeds in which the defect was planted, was found, and was found by one of the
/// broker's own invariants.
fn found(defect: Defect) -> (u32, u32, u32) {
    let (mut planted, mut found, mut named) = (0, 0, 0);
    for seed in 0..60 {
        match catch_unwind(|| SimulatedWorld::run_with(seed, defect)) {
            Ok(is_planted) => planted += u32::from(is_planted),
            Err(cause) => {
                let text = cause.downcast_ref::<String>();
                (planted, found) = (planted + 1, found + 1);
                named += u32::from(text.is_some_and(|text| text.contains("broken invariants")));
            }
        }
    }
    (planted, found, named)
}

#[test]
fn defects_in_the_state_are_found() {
    let defects: [(&str, Defect); 4] = [
        ("an entry is shown before its time", BrokerMachine::plant_readable),
        ("a topic is not served", BrokerMachine::plant_unserved),
        ("consumers lose their subscription", BrokerMachine::plant_detached),
        ("the bytes of segments are not counted", BrokerMachine::plant_uncounted),
    ];
    for (what, defect) in defects {
        let (planted, found, named) = found(defect);
        let is_found = planted >= 20 && found * 4 >= planted * 3 && named > 0;
        assert!(is_found, "{what}: {found} of {planted}, {named} by an invariant");
    }
    assert_eq!(found(|_| true).1, 0, "nothing is found where nothing is wrong");
}

/// A history that panics on an error.
type SeededHistory = fn(u64);

/// Histories that must fail with a defect: a single failure may be a coincidence.
const FAILURES_MIN: usize = 3;

/// Histories that find a defect that the broker once had, or might get. Each entry has the patch in
/// `planted/` that causes the defect, and the number of histories in which some must fail.
const ONCE: [(&str, SeededHistory, u64); 19] = [
    ("clock", world, 600),
    ("checked", world, 600),
    ("inventory", world, 600),
    ("confirmed", world, 600),
    ("descriptors", world, 600),
    ("backoff", world, 600),
    ("compaction-reads", scattered::reads_what_was_moved, 100),
    ("chunks", world, 600),
    ("superseded-chunks", world, 600),
    ("failed-compaction", world, 600),
    ("frame-limit", world, 600),
    ("image", world, 600),
    ("unreadable", rotten::goes_on_behind_what_rots, 200),
    ("slow-readers", slow::learns_what_is_removed, 200),
    ("small-segments", volume::takes_publishes_again, 200),
    ("reserve", volume::has_room_for_a_checkpoint, 200),
    ("checkpoint", volume::gives_back_after_a_start, 200),
    ("early-rounds", volume::keeps_up_with_acknowledgements, 200),
    ("connections", crowd::goes_on_beside_a_crowd, 200),
];

fn world(seed: u64) {
    drop(SimulatedWorld::run(seed));
}

/// The first failing histories, up to the required number.
fn failures(history: SeededHistory, histories: u64) -> Vec<u64> {
    let fails = |seed: &u64| catch_unwind(|| history(*seed)).is_err();
    (0..histories).filter(fails).take(FAILURES_MIN).collect()
}

/// `planted/run` applies patches, passes their names in `LONGHAUL_PLANTED` and runs this test.
#[test]
#[ignore = "only where planted/run has brought a defect back"]
fn a_defect_that_was_brought_back_is_found() {
    let planted = std::env::var("LONGHAUL_PLANTED").expect("planted/run names the patches");
    let row = ONCE.iter().find(|(patches, ..)| *patches == planted);
    let (_, history, histories) = row.unwrap_or_else(|| panic!("{planted} has no histories"));
    let found = failures(*history, *histories);
    let is_found = found.len() == FAILURES_MIN;
    assert!(is_found, "with {planted} only {found:?} of {histories} histories fail");
}
