//! A compaction that waits while the entries that it reads are moved to other segments.

use super::world::{SimulatedWorld, TOPICS};
use crate::machine::BrokerMachine;
use crate::machine::dispatcher::DispatchMode;

const SEEDS: u64 = 100;
const COMPACTED: &str = TOPICS[0];
const BULK: &str = TOPICS[2];

/// The cleaner removed the segments that a compaction was still to read. On a busy broker, 697 of
/// 1,000 compactions failed.
#[test]
fn a_compaction_reads_entries_that_were_moved() {
    let moved: u64 = (0..SEEDS).map(history).sum();
    assert!(moved > SEEDS / 4, "{moved} compactions of moved entries");
}

pub(super) fn reads_what_was_moved(seed: u64) {
    history(seed);
}

/// Returns the number of compactions that have read an entry where it no longer is.
fn history(seed: u64) -> u64 {
    // Every fourth seed has large messages.
    let mut world = SimulatedWorld::new(4 * seed);
    let (writer, bulk) = (world.connect(), world.connect());
    world.produce_to(writer, COMPACTED);
    world.produce_to(bulk, BULK);
    world.subscribe_as(bulk, BULK, "s0", DispatchMode::Shared, true, false, None);
    world.pump();
    let mut moved = 0;
    for _ in 0..world.random.usize(200..600) {
        match world.random.u8(0..32) {
            0 => world.publish(writer),
            1..=12 => world.publish(bulk),
            13 => world.topic_call(COMPACTED, BrokerMachine::start_compaction, |_| {}),
            14..=16 => world.tidy_up(),
            17..=19 => world.copy(),
            20..=22 => world.node.write_checkpoint(),
            23 if world.random.u8(0..4) == 0 => {
                moved += u64::from(world.has_moved());
                world.compact(true);
            }
            _ => world.write(),
        }
    }
    world.pump();
    world.compact(true);
    world.drain();
    moved
}

impl SimulatedWorld {
    /// Whether an entry of the compaction that waits has been moved since it began.
    fn has_moved(&self) -> bool {
        let Some(job) = self.node.compactions.front() else { return false };
        let Some(topic) = self.node.machine.state().topic(job.topic) else { return false };
        job.entries.iter().any(|(ordinal, _, location)| {
            topic.entries.get(ordinal).is_some_and(|slot| slot.location != location)
        })
    }
}
