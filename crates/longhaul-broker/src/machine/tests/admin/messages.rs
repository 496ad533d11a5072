//! Single messages.

use super::*;
use crate::admin::values::{AdminPosition, StoredEntryLocation};
use crate::state::entries::TopicEntries;

/// A rig with three entries on disk, of which `s` has acknowledged the first.
fn rig() -> Rig {
    let mut rig = Rig::with_producer();
    rig.fill(1, 1, 3);
    rig.create_subscription("t", "s", SubscriptionStart::Earliest);
    let call = on_subscription(|machine, name, subscription| machine.skip(name, subscription, 1));
    assert_eq!(rig.answer(subscription("t", "s", call)), DONE);
    rig
}

/// Number of the entry that is read, from its location in the log.
fn reads(rig: &mut Rig, ask: Ask<StoredEntryLocation>) -> u64 {
    let StoredEntryLocation { position, location } = rig.answer(ask).unwrap();
    let entries: &TopicEntries = &rig.kept("t").entries;
    let found = entries.iter().find(|(_, slot)| slot.location == location).unwrap().0;
    assert_eq!((position.ledger, position.entry), (0, found.cast_signed()));
    found
}

fn at(ledger: i64, entry: i64) -> OnTopic<StoredEntryLocation> {
    on_topic(move |machine, name| machine.find_message(name, AdminPosition { ledger, entry }))
}

/// A request for entry -1, the end of an empty topic, returned entry 0.
#[test]
fn a_message_is_read_by_its_id() {
    let mut rig = rig();
    for (entry, number) in [(0, 0), (1, 1), (2, 2)] {
        assert_eq!(reads(&mut rig, topic("t", at(0, entry))), number);
    }
    for (ledger, entry) in [(0, 3), (1, 0), (0, i64::MAX), (0, -1), (-1, -1)] {
        rig.refuses(topic("t", at(ledger, entry)), 404, "Message not found");
    }
    rig.refuses(topic("none", at(0, 0)), 404, "not found");
    rig.machine.change(crate::state::change::Trim { topic: 0, first: 2 }).unwrap();
    rig.settle();
    rig.refuses(topic("t", at(0, 1)), 404, "Message not found");
    assert_eq!(reads(&mut rig, topic("t", at(0, 2))), 2);
}

#[test]
fn a_message_is_looked_at_before_it_is_consumed() {
    let mut rig = rig();
    let peek = |nth| {
        subscription("t", "s", move |machine, name, subscription| {
            machine.find_nth_open(name, subscription, nth)
        })
    };
    assert_eq!(reads(&mut rig, peek(1)), 1, "the first that is open");
    assert_eq!(reads(&mut rig, peek(2)), 2);
    for nth in [0, 3, u64::MAX] {
        rig.refuses(peek(nth), 404, "Message not found");
    }
    let none = subscription("t", "none", |machine, name, subscription| {
        machine.find_nth_open(name, subscription, 1)
    });
    rig.refuses(none, 404, "Message not found");
}

/// A message that is not on disk yet is not shown.
#[test]
fn a_message_is_read_when_it_is_on_disk() {
    let mut rig = rig();
    let message = verified(Payload::new(&MessageMetadata::default(), b"x"));
    let send = CommandSend { producer_id: 1, ..CommandSend::default() };
    rig.machine.request(1, ClientRequest::Publish(send, message));
    let found = rig.machine.call(TICKET, topic("t", at(0, 3)));
    assert!(matches!(found, Err(AdminCallError::NotFound(_))), "{found:?}");
    rig.settle();
    assert_eq!(reads(&mut rig, topic("t", at(0, 3))), 3);
}

#[test]
fn the_last_message_is_the_last_on_disk() {
    let mut rig = Rig::new();
    let last = |rig: &mut Rig| {
        let last = rig.answer(topic("t", |machine, name| machine.last_position(name))).unwrap();
        (last.ledger, last.entry)
    };
    rig.create("t");
    assert_eq!(last(&mut rig), (0, -1), "before the first");
    rig.produce(1, 1, AccessMode::Shared).unwrap();
    rig.fill(1, 1, 2);
    assert_eq!(last(&mut rig), (0, 1));
    rig.call(BrokerMachine::unload_topic);
    rig.produce(1, 1, AccessMode::Shared).unwrap();
    rig.fill(1, 1, 1);
    assert_eq!(last(&mut rig), (1, 0));
}

#[test]
fn messages_are_counted_from_both_ends() {
    let mut rig = rig();
    let nth =
        |from_last, nth| on_topic(move |machine, name| machine.find_nth(name, from_last, nth));
    for (from_last, number, found) in [(false, 1, 0), (false, 3, 2), (true, 1, 2), (true, 3, 0)] {
        assert_eq!(reads(&mut rig, topic("t", nth(from_last, number))), found);
    }
    for from_last in [false, true] {
        rig.refuses(topic("t", nth(from_last, 4)), 404, "Message not found");
        rig.refuses(topic("none", nth(from_last, 1)), 404, "not found");
    }
}
