//! Bytes change on the disk while the broker runs: consumers get the entries after an unreadable
//! one.

use super::volume::{KIB, TOPIC, Volume};
use crate::state::BrokerSubscription;
use crate::state::entries::EntrySlot;
use std::collections::BTreeSet;

const SEEDS: u64 = 200;
/// Maximum number of damaged entries.
const ROTTEN_MAX: usize = 4;
/// Number of requests of the consumer for everything. Each covers a hundred entries.
const ROUNDS: usize = 20;

/// One damaged byte closed the consumer, and again whenever it came back, with all intact messages
/// after the damage.
#[test]
fn consumers_get_what_lies_behind_a_byte_that_rots() {
    let set_aside: usize = (0..SEEDS).map(|seed| history(seed).told.len()).sum();
    assert!(set_aside > 200, "{set_aside} entries were set aside");
}

pub(super) fn goes_on_behind_what_rots(seed: u64) {
    drop(history(seed));
}

fn history(seed: u64) -> Volume {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut volume = Volume::new(16_000 * KIB);
    for _ in 0..random.usize(1..4) {
        let (messages, bytes) = (random.usize(1..80), random.usize(1..9_500));
        volume.burst(&mut random, messages, bytes);
        volume.pass();
        if random.bool() {
            volume.acknowledge_if(|| random.bool());
            // Unacknowledged deliveries are repeated.
            volume.held.clear();
            volume.come_back();
        }
    }
    let rotten = rot(&volume, &mut random);
    for _ in 0..ROUNDS {
        volume.pass();
        volume.acknowledge();
    }
    let open: BTreeSet<u64> = open(&volume).into_iter().map(|(ordinal, _)| ordinal).collect();
    assert!(open.is_subset(&rotten), "seed {seed}: {open:?} are not acknowledged, {rotten:?} rot");
    let told = &volume.told;
    assert_eq!(told.len(), open.len(), "seed {seed}: {open:?} of {rotten:?}: {told:?}");
    volume
}

/// Changes a byte of some unacknowledged entries. Returns their ordinals.
fn rot(volume: &Volume, random: &mut fastrand::Rng) -> BTreeSet<u64> {
    let open = open(volume);
    let mut rotten = BTreeSet::new();
    for _ in 0..random.usize(1..=ROTTEN_MAX) {
        let Some((ordinal, slot)) = random.choice(&open) else { break };
        if rotten.insert(*ordinal) {
            let name = format!("log/{:010}.seg", slot.location.segment);
            let at = slot.location.offset + random.u32(0..slot.location.size);
            volume.storage.rot(&name, at as usize, 1 << random.u8(0..8));
        }
    }
    rotten
}

/// The unacknowledged entries.
fn open(volume: &Volume) -> Vec<(u64, EntrySlot)> {
    let state = volume.node.machine.state();
    let Some(topic) = state.topic_id(TOPIC).and_then(|id| state.topic(id)) else { return vec![] };
    let is_open = |ordinal: u64| {
        let mut all = topic.durable();
        all.any(|subscription: &BrokerSubscription| !subscription.cursor.is_acked(ordinal))
    };
    topic.entries.iter().filter(|(ordinal, _)| is_open(*ordinal)).collect()
}
