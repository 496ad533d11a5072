//! A reader of the compacted view that is behind when compactions end: it must learn that a value
//! which it has seen was removed or replaced.

use super::world::{SimulatedWorld, TOPICS};
use crate::machine::BrokerMachine;
use crate::machine::dispatcher::DispatchMode;
use longhaul_wire::messages::MessageIdData;

const SEEDS: u64 = 200;
const TOPIC: &str = TOPICS[0];

/// A compaction removed a value and its tombstone while a reader of the view had read the value
/// and not yet the tombstone: the reader kept the value for ever.
#[test]
fn a_slow_reader_learns_what_compaction_removes() {
    let (mut behind, mut trimmed) = (0, 0);
    for seed in 0..SEEDS {
        let world = history(seed);
        behind += world.1;
        trimmed += u64::from(world.0.model.topics.values().any(|topic| topic.first > 0));
    }
    assert!(behind > SEEDS && trimmed > SEEDS / 10, "{behind} compactions, {trimmed} trims");
}

pub(super) fn learns_what_is_removed(seed: u64) {
    drop(history(seed));
}

/// Returns the number of compactions that ended while a reader was behind.
fn history(seed: u64) -> (SimulatedWorld, u64) {
    let mut world = SimulatedWorld::new(seed);
    let (writer, reader) = (world.connect(), world.connect());
    world.produce_to(writer, TOPIC);
    let earliest =
        MessageIdData { ledger_id: u64::MAX, entry_id: u64::MAX, ..MessageIdData::default() };
    let mut follow = |name: &str, is_durable, reads_compacted| {
        let kind = DispatchMode::Exclusive;
        let start = Some(earliest.clone());
        world.subscribe_as(reader, TOPIC, name, kind, is_durable, reads_compacted, start)
    };
    follow("s0", true, false);
    let readers = [follow("kept", true, true), follow("reader", false, true)];
    world.pump();
    let mut behind = 0;
    for _ in 0..world.random.usize(50..300) {
        let one = *world.random.choice(&readers).unwrap();
        match world.random.u8(0..16) {
            0..=4 => world.publish(writer),
            5..=6 => {
                let permits = world.random.u32(1..4);
                world.grant(reader, one, permits);
            }
            7..=10 => world.advance(reader),
            11 => {
                world.topic_call(TOPIC, BrokerMachine::start_compaction, |_| {});
                world.compact(true);
                behind += u64::from(world.is_behind(reader, one));
            }
            12 => world.ack(reader),
            13 => world.tidy_up(),
            14 => world.nack(reader),
            _ => world.last_id(reader),
        }
    }
    readers.into_iter().for_each(|one| world.grant(reader, one, 10_000));
    world.pump();
    world.drain();
    (world, behind)
}

impl SimulatedWorld {
    /// Writes, delivers, and sends.
    fn advance(&mut self, conn: u64) {
        self.write();
        self.dispatch();
        self.send_one(conn);
    }

    /// Whether the reader has yet to read entries before the horizon of the compacted view.
    fn is_behind(&self, conn: u64, reader: u64) -> bool {
        let reader = &self.conns[&conn].consumers[&reader];
        let topic = &self.model.topics[&reader.topic];
        reader.last.is_some_and(|last| last + 1 < topic.horizon())
    }
}
