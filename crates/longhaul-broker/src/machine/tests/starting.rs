//! A restarted broker: what is restored, and what is not.

use super::support::{id, open, sent};
use super::*;
use crate::log::Facts;
use crate::state::entries::EntryPosition;
use crate::state::entry::EntryHead;
use longhaul_wire::messages::AckType::Individual;

/// A machine that continues from another one's recorded state.
fn restarted(rig: &Rig) -> Rig {
    let mut state = BrokerState::default();
    for change in rig.machine.state.snapshot() {
        state.apply(&change).unwrap();
    }
    for (topic, kept) in rig.machine.state.topics() {
        for (ordinal, slot) in kept.entries.iter() {
            let position = kept.entries.position_of(ordinal).unwrap();
            let facts = Facts {
                publish_time: slot.publish_time,
                batch: slot.is_batch().then(|| slot.messages()),
                ..Facts::default()
            };
            let head = EntryHead { facts, sequence: None };
            state.restore(topic, position, slot.location, &head);
        }
    }
    let Rig { machine, log, now } = Rig::new();
    let BrokerMachine { composer, settings, .. } = machine;
    let known = (composer, log.status());
    let machine = BrokerMachine::new(settings, None, state, known, HashMap::new(), now);
    let mut rig = Rig { machine, log, now };
    rig.machine.opened(1, String::new());
    rig.ask(1, CommandConnect::default());
    rig
}

#[test]
fn a_subscription_goes_on_where_it_was() {
    let mut before = Rig::new();
    before.produce(1, 1, AccessMode::Shared).unwrap();
    (0..3).for_each(|_| drop(before.publish(1, 1, b"x")));
    before.batch(3);
    before.subscribe(1, 5, |command| command.sub_type = 1);
    before.ack(5, Individual, vec![id(1), open(3, &[0b101])]);
    let mut rig = restarted(&before);
    assert_eq!(rig.subscribe(1, 5, |command| command.sub_type = 1), [0, 2, 3]);
    assert_eq!(rig.cursor(), before.cursor());
    assert_eq!(rig.topic().bytes, before.topic().bytes);
    assert_eq!(rig.machine.state.live(), before.machine.state.live());
}

/// Entries that were being written when the broker ended may be lost, although their ids were
/// assigned: those ids are not assigned again.
#[test]
fn each_start_begins_a_ledger() {
    let mut before = Rig::new();
    before.produce(1, 1, AccessMode::Shared).unwrap();
    before.publish(1, 1, b"x");
    let mut rig = restarted(&before);
    rig.produce(1, 1, AccessMode::Shared).unwrap();
    for entry in [0, 1] {
        let effects = rig.publish(1, 1, b"x");
        let given = sent(&effects, |command| match command {
            Command::SendReceipt(receipt) => receipt.message_id.clone(),
            _ => None,
        });
        assert_eq!((given[0].1.ledger_id, given[0].1.entry_id), (1, entry));
    }
    let ids: Vec<EntryPosition> =
        (0..3).map(|ordinal| rig.topic().entries.position_of(ordinal).unwrap()).collect();
    let at = |ledger, entry| EntryPosition { ledger, entry };
    assert_eq!(ids, [at(0, 0), at(1, 0), at(1, 1)]);
}

/// The caller can see how much waits for the disk.
#[test]
fn what_is_composed_waits() {
    let mut rig = Rig::with_producer();
    assert_eq!((rig.machine.pending_bytes(), rig.machine.waiting()), (0, 0));
    let records = rig.machine.totals.records;
    (0..3).for_each(|_| drop(rig.send(1, &[7; 100], |_, _| {})));
    assert_eq!(rig.machine.totals.records, records + 3);
    assert!(rig.machine.pending_bytes() > 300);
    assert_eq!(rig.machine.waiting(), 3);
    rig.settle();
    assert_eq!((rig.machine.pending_bytes(), rig.machine.waiting()), (0, 0));
    rig.set(|policies| policies.message_ttl_s = Some(5));
    assert_eq!(rig.machine.totals.records, records + 4);
}
