//! Defects that are planted in the broker's own state: a simulation that did not find them would prove little.

use super::world::World;
use super::{crowd, nested, rotten, volume};
use crate::cures::{Cure, without};
use crate::machine::Machine;
use std::panic::catch_unwind;

/// A defect, and whether it could be planted.
type Defect = fn(&mut Machine) -> bool;

impl World {
    /// A history in which a defect appears at some time. Says whether one was planted.
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

/// In how many seeds a defect was planted, was found, and was found by an invariant of the broker itself.
fn found(defect: Defect) -> (u32, u32, u32) {
    let (mut planted, mut found, mut named) = (0, 0, 0);
    for seed in 0..60 {
        match catch_unwind(|| World::run_with(seed, defect)) {
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
        ("an entry is shown before its time", Machine::plant_readable),
        ("a topic is not served", Machine::plant_unserved),
        ("consumers lose their subscription", Machine::plant_detached),
        ("the bytes of segments are not counted", Machine::plant_uncounted),
    ];
    for (what, defect) in defects {
        let (planted, found, named) = found(defect);
        let is_found = planted >= 20 && found * 4 >= planted * 3 && named > 0;
        assert!(is_found, "{what}: {found} of {planted}, {named} by an invariant");
    }
    assert_eq!(found(|_| true).1, 0, "nothing is found where nothing is wrong");
}

/// A history, which panics where something is not as it must be.
type History = fn(u64);

/// So many histories must fail without a cure: one alone may be a coincidence.
const FAILURES_MIN: usize = 3;

/// Those of the first histories that fail without some cures, until there are enough.
fn failures_without(cures: &'static [Cure], history: History, histories: u64) -> Vec<u64> {
    let fails = |seed: &u64| without(cures, || catch_unwind(|| history(*seed)).is_err());
    (0..histories).filter(fails).take(FAILURES_MIN).collect()
}

/// Each defect that the broker once had, and that a cure keeps away, is found when that cure is taken out: in a few of so many histories.
#[test]
fn the_lack_of_each_cure_is_found() {
    let world: History = |seed| drop(World::run(seed));
    let rows: [(&'static [Cure], History, u64); 13] = [
        (&[Cure::Clock], world, 600),
        (&[Cure::Checked], world, 600),
        (&[Cure::Inventory], world, 600),
        (&[Cure::Confirmed], world, 600),
        (&[Cure::Descriptors], world, 600),
        (&[Cure::Backoff], world, 600),
        (&[Cure::Unreadable], rotten::goes_on_behind_what_rots, 200),
        (&[Cure::SmallSegments], volume::takes_publishes_again, 200),
        (&[Cure::Reserve], volume::has_room_for_a_checkpoint, 200),
        (&[Cure::Checkpoint], volume::gives_back_after_a_start, 200),
        (&[Cure::EarlyRounds], volume::keeps_up_with_acknowledgements, 200),
        (&[Cure::Connections], crowd::goes_on_beside_a_crowd, 200),
        // Each of the two is enough.
        (&[Cure::Nested, Cure::Checked], nested::starts_again, 200),
    ];
    for (cures, history, histories) in rows {
        let found = failures_without(cures, history, histories);
        let is_found = found.len() == FAILURES_MIN;
        assert!(is_found, "without {cures:?} only {found:?} of {histories} histories fail");
    }
}

/// A change is recorded only when it applies, and one that a start could not read does not: what is nested too deep is refused by that, too.
#[test]
fn either_of_two_cures_keeps_what_is_nested_deep_from_the_log() {
    let alone: [&'static [Cure]; 2] = [&[Cure::Nested], &[Cure::Checked]];
    for cures in alone {
        assert_eq!(failures_without(cures, nested::starts_again, 50), [0; 0], "{cures:?}");
    }
}
