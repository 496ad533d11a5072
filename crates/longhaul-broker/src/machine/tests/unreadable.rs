//! An entry that the disk does not give back is left out, counted and named, and acknowledged by nobody.

use super::support::{id, shared};
use super::*;
use crate::log::ReadError;
use crate::machine::unreadable::Unreadable;
use crate::state::entries::Position;
use longhaul_wire::messages::AckType::Individual;
use longhaul_wire::messages::CommandRedeliverUnacknowledgedMessages;

/// What is said of entry `entry` of the first topic, which consumer `consumer` of connection 1 was to get.
fn unreadable(rig: &Rig, consumer: u64, entry: u64) -> Unreadable {
    let place = rig.topic().entries.get(entry).unwrap().place;
    Unreadable {
        consumer: Some(ConsumerKey { conn: 1, id: consumer }),
        topic: None,
        position: Position { ledger: 0, entry },
        place: Some(place),
        cause: ReadError::Damaged { file: "log/0000000001.seg".to_owned(), offset: 4711 },
    }
}

/// Six entries of which each of the last ones has a segment for itself. Consumer 5 has seen them.
fn rig() -> Rig {
    let mut rig = Rig::new();
    rig.produce(1, 1, AccessMode::Shared).unwrap();
    rig.subscribe(1, 5, shared);
    (0..6).for_each(|_| drop(rig.publish(1, 1, &[7; 3000])));
    rig
}

fn permits(rig: &mut Rig, consumer: u64) -> i64 {
    let key = ConsumerKey { conn: 1, id: consumer };
    let (topic, subscription) = rig.machine.place_of(key).unwrap();
    rig.machine.dispatcher(topic, subscription).unwrap().consumer_mut(key).unwrap().permits
}

#[test]
fn it_is_named_and_counted_once_and_the_consumer_has_its_permits_back() {
    let mut rig = rig();
    let before = permits(&mut rig, 5);
    let it = unreadable(&rig, 5, 2);
    let told = rig.machine.set_aside(&it).unwrap();
    for word in ["0:2", TOPIC, "log/0000000001.seg", "4711"] {
        assert!(told.contains(word), "{word}: {told}");
    }
    assert_eq!(permits(&mut rig, 5), before + 1);
    assert_eq!(rig.machine.set_aside(&it), None, "another consumer came upon it, too");
    assert_eq!(permits(&mut rig, 5), before + 1);
    assert_eq!((rig.machine.totals.unreadable, rig.machine.live[&0].figures.unreadable), (1, 1));
    let ids = rig.delivered(&CommandRedeliverUnacknowledgedMessages {
        consumer_id: 5,
        ..Default::default()
    });
    assert_eq!(ids, [0, 1, 3, 4, 5], "and never again");
}

/// The cursor does not pass it, and yet it keeps nothing on disk.
#[test]
fn nothing_acknowledges_it_and_it_keeps_nothing() {
    let mut rig = rig();
    let it = unreadable(&rig, 5, 0);
    rig.machine.set_aside(&it).unwrap();
    rig.ack(5, Individual, (1..5).map(id).collect());
    assert_eq!((rig.cursor().mark(), rig.cursor().is_acked(0)), (0, false));
    assert_eq!(rig.cursor().open_between(0, 6), 2, "0 and 5 are its backlog");
    rig.pass(1_000);
    assert_eq!(rig.topic().entries.first(), 5, "all behind it was trimmed");
    assert_eq!(rig.cursor().open_between(5, 6), 1);
    let needed: Vec<u32> = rig.machine.state.live().keys().copied().collect();
    assert_eq!(needed, [rig.topic().entries.get(5).unwrap().place.segment]);
}

#[test]
fn an_exclusive_consumer_goes_on_behind_it() {
    let mut rig = Rig::new();
    rig.produce(1, 1, AccessMode::Shared).unwrap();
    rig.subscribe(1, 5, |_| {});
    (0..3).for_each(|_| drop(rig.publish(1, 1, b"x")));
    let before = permits(&mut rig, 5);
    let it = unreadable(&rig, 5, 1);
    rig.machine.set_aside(&it).unwrap();
    assert_eq!(permits(&mut rig, 5), before + 1);
    let ids = rig.delivered(&CommandRedeliverUnacknowledgedMessages {
        consumer_id: 5,
        ..Default::default()
    });
    assert_eq!(ids, [0, 2]);
}

/// While an entry could not be read where it was, its copy was written elsewhere.
#[test]
fn an_entry_that_was_copied_meanwhile_is_delivered_from_there() {
    let mut rig = rig();
    let it = unreadable(&rig, 5, 2);
    let elsewhere = rig.topic().entries.get(3).unwrap().place;
    rig.machine.state.relocate(0, 2, Some(elsewhere));
    assert_eq!(rig.machine.set_aside(&it), None);
    assert_eq!(rig.machine.totals.unreadable, 0);
    assert_eq!(rig.ids(), [2]);
}

/// A disk that gives nothing back at all does not make the topics forget everything.
#[test]
fn there_is_an_end_to_it() {
    let mut rig = rig();
    rig.machine.totals.unreadable = 10_000;
    let it = unreadable(&rig, 5, 2);
    assert!(rig.machine.set_aside(&it).unwrap().contains("is not set aside"));
    assert!(rig.topic().entries.get(2).unwrap().is_here());
}

impl Rig {
    /// The entries that are delivered after a command.
    fn delivered(&mut self, command: &CommandRedeliverUnacknowledgedMessages) -> Vec<u64> {
        let effects = self.ask(1, command.clone());
        delivered(&effects)
    }

    /// The entries that are delivered now.
    fn ids(&mut self) -> Vec<u64> {
        delivered(&self.settle())
    }
}

fn delivered(effects: &[Effect]) -> Vec<u64> {
    let one = |it: &Effect| match it {
        Effect::Deliver { command, .. } => Some(command.message_id.entry_id),
        _ => None,
    };
    effects.iter().filter_map(one).collect()
}
