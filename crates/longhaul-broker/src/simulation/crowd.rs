//! Idle sockets take all file descriptors that they get; the log must continue.

use super::volume::{KIB, Volume};
use crate::log::Storage;
use crate::server::descriptors::{ConnectionClass, DescriptorBudget};
use fastrand::Rng;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

const SEEDS: u64 = 50;
/// Connections that the broker's settings allow: more than there are descriptors.
const CLIENTS: usize = 10_000;
const ADMIN: usize = 512;

/// A process with a limit on open files.
struct IdleSockets {
    limit: usize,
    room: DescriptorBudget,
    sockets: Vec<OwnedSemaphorePermit>,
}

impl IdleSockets {
    fn new(random: &mut Rng, volume: &Volume) -> Self {
        let limits: [fn() -> usize; 3] = [|| 256, || 400, || 1024];
        let limit = *random.choice(limits.iter()).unwrap();
        let room =
            DescriptorBudget::limited(limit, Arc::new(volume.storage.clone()), CLIENTS, ADMIN);
        Self { limit: limit(), room, sockets: Vec::new() }
    }

    fn has_descriptors(&self, volume: &Volume) -> bool {
        self.sockets.len() + volume.storage.open_files() < self.limit
    }

    /// Opens as many connections as are admitted. The system needs a descriptor for each.
    fn come(&mut self, random: &mut Rng, volume: &Volume) {
        let door =
            if random.u8(0..4) == 0 { ConnectionClass::Admin } else { ConnectionClass::Clients };
        while self.has_descriptors(volume) {
            let Ok(socket) = self.room.enter(door) else { return };
            self.sockets.push(socket);
        }
    }

    fn some_go(&mut self, random: &mut Rng) {
        self.sockets.retain(|_| random.u8(0..4) > 0);
    }
}

/// With the usual limit of 1,024 descriptors, 1,100 idle sockets, which need no token, ended the
/// broker at its next segment.
#[test]
fn the_log_goes_on_beside_sockets_that_say_nothing() {
    (0..SEEDS).for_each(goes_on_beside_a_crowd);
}

pub(super) fn goes_on_beside_a_crowd(seed: u64) {
    let mut random = Rng::with_seed(seed);
    let mut volume = Volume::new(64_000 * KIB);
    let mut crowd = IdleSockets::new(&mut random, &volume);
    let bytes = random.usize(2000..9_500);
    let mut most = 0;
    for _ in 0..random.usize(20..100) {
        match random.u8(0..8) {
            0..=2 => crowd.come(&mut random, &volume),
            3 => crowd.some_go(&mut random),
            4 => volume.pass(),
            _ => {
                for _ in 0..random.usize(1..40) {
                    volume.storage.set_exhausted(!crowd.has_descriptors(&volume));
                    let (sockets, files) = (crowd.sockets.len(), volume.storage.open_files());
                    let what = format!("{sockets} sockets and {files} files of {}", crowd.limit);
                    assert!(volume.publish(bytes), "seed {seed}: {what}: a publish is refused");
                }
            }
        }
        most = most.max(crowd.sockets.len());
    }
    assert!(most * 5 >= crowd.limit, "seed {seed}: only {most} sockets were let in");
}
