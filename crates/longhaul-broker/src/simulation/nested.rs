//! Operators set policies with about the maximum nesting: the broker must start again.

use super::volume::{KIB, TOPIC, Volume};
use crate::hostile::calls;
use fastrand::Rng;

const SEEDS: u64 = 50;

/// A policy with 125 levels of nesting was recorded, and no start could read the log any more.
#[test]
fn the_broker_starts_again_whatever_is_nested_in_a_policy() {
    (0..SEEDS).for_each(starts_again);
}

pub(super) fn starts_again(seed: u64) {
    let mut random = Rng::with_seed(seed);
    let mut volume = Volume::new(4000 * KIB);
    for ticket in 0..random.u64(1..12) {
        let body = calls::nested(&mut random);
        volume.call(ticket, "POST", &format!("{}/dispatchRate", path()), body.as_bytes());
        if random.u8(0..4) == 0 {
            volume = volume.restart(random.bool());
        }
    }
    volume.restart(random.bool());
}

/// Path of the topic in the admin interface.
fn path() -> String {
    format!("/admin/v2/{}", TOPIC.replace("://", "/"))
}
