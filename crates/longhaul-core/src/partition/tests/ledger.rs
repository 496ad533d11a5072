//! The settings in the ledger, and reading a ledger again.

use super::solo::{Solo, claimed, effects, land, live};
use super::*;

fn config(version: u32, heartbeat: Duration) -> LedgerConfig {
    LedgerConfig { version, heartbeat, ..LedgerConfig::default() }
}

#[test]
fn a_worker_whose_settings_are_not_those_of_the_ledger_is_refused_once() {
    let ours = config(1, LedgerConfig::default().heartbeat);
    let (mut core, now) = live();
    land(&mut core, 1, Entry::Config(ours.clone()), now);
    assert_eq!(effects(&mut core), [], "it is what everybody has");
    land(&mut core, 2, Entry::Config(config(1, 2 * H)), now);
    let first = PartitionEffect::Do(Action::Publish(Entry::Config(ours)));
    assert_eq!(effects(&mut core), [first], "the first of a version must be what compaction keeps");
    land(&mut core, 3, Entry::Config(config(0, 2 * H)), now);
    assert_eq!(effects(&mut core), [], "older settings do not count");
    land(&mut core, 4, Entry::Config(config(2, 2 * H)), now);
    assert!(matches!(effects(&mut core).as_slice(), [PartitionEffect::Refused(_)]));
    land(&mut core, 5, Entry::Config(config(2, 2 * H)), now);
    assert_eq!(effects(&mut core), [], "nothing new");
}

/// A worker that reads the ledger for the first time knows no later settings yet.
#[test]
fn nothing_is_published_about_settings_before_the_ledger_was_read() {
    let Solo { mut core, now, .. } = Solo::fresh(2);
    let ours = LedgerConfig::default();
    land(&mut core, 1, Entry::Config(ours.clone()), now);
    land(&mut core, 2, Entry::Config(LedgerConfig { heartbeat: 2 * H, ..ours }), now);
    assert_eq!(effects(&mut core), []);
}

#[test]
fn a_fence_frees_what_was_claimed_and_forgets_what_was_read() {
    let (mut core, now) = live();
    let mut slots = Slots::new(2);
    core.handle_delivery(TASK, &TaskFacts::default(), now);
    core.run(now, &mut slots);
    assert_eq!((slots.free(), core.open_entries()), (1, 1));
    core.handle_ledger_deleted();
    core.run(now, &mut slots);
    assert_eq!((slots.free(), core.open_entries(), core.waiting()), (2, 0, 0));
    // Entries read before the driver began anew are void.
    land(&mut core, 9, claimed(TASK), now);
    assert_eq!(core.machine().task(TASK), None);
    assert!(effects(&mut core).contains(&PartitionEffect::Fenced));
    land(&mut core, 1, claimed(TASK), now);
    assert!(core.machine().task(TASK).is_some());
}
