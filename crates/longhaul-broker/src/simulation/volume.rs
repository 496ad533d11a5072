//! Small volumes that are filled and drained: a drained volume accepts publishes again, without
//! help and without a restart.
//!
//! Segments and volumes have 1/64 of their default sizes: a volume of 320 KiB stands for 20 MiB.

use super::node::SimulatedBroker;
use crate::kit;
use crate::log::{LogOptions, SimulatedStorage, Storage};
use crate::machine::dispatcher::ConsumerKey;
use crate::machine::effect::{ClientRequest, MachineEffect, MessageSource};
use crate::machine::unreadable::Unreadable;
use crate::server::requests::verified;
use crate::state::entries::EntryPosition;
use crate::state::entry::EntryHead;
use longhaul_wire::messages::{
    Command, CommandAck, CommandCloseProducer, CommandConnect, CommandFlow, CommandProducer,
    CommandSend, CommandSubscribe, MessageIdData, MessageMetadata,
};
use longhaul_wire::payload::Payload;

pub(super) const KIB: u64 = 1024;
pub(super) const TOPIC: &str = "persistent://public/default/volume";
const CONN: u64 = 1;
const START: u64 = 1_700_000_000_000;
const SEEDS: u64 = 200;
/// Seconds within which the broker must have made room.
const PATIENCE: u64 = 30;

fn options() -> LogOptions {
    LogOptions {
        segment_bytes_first: 64 * 1024,
        segment_bytes_max: 1024 * 1024,
        body_bytes_max: 20_000,
        salt: 7,
        facts: Some(EntryHead::facts),
    }
}

/// A broker on a volume of a few segments, with a producer and a consumer.
pub(super) struct Volume {
    pub(super) storage: SimulatedStorage,
    pub(super) node: SimulatedBroker,
    up: u64,
    /// Delivered and unacknowledged messages.
    pub(super) held: Vec<MessageIdData>,
    producer: u64,
    produces: bool,
    /// Warnings to the operator about unreadable entries.
    pub(super) told: Vec<String>,
}

impl Volume {
    pub(super) fn new(bytes: u64) -> Self {
        let storage = SimulatedStorage::new(1);
        storage.set_bytes_max(Some(bytes));
        Self::open(storage, 0)
    }

    fn open(storage: SimulatedStorage, up: u64) -> Self {
        let mut volume = Self::reopen(storage, up);
        volume.subscribe();
        volume
    }

    fn subscribe(&mut self) {
        let subscribe = CommandSubscribe {
            topic: TOPIC.to_owned(),
            subscription: "s".to_owned(),
            sub_type: 1,
            consumer_id: 1,
            initial_position: Some(1),
            ..CommandSubscribe::default()
        };
        self.ask(ClientRequest::Command(subscribe.into()));
    }

    /// Starts on an existing disk, without a consumer.
    fn reopen(storage: SimulatedStorage, up: u64) -> Self {
        let node = SimulatedBroker::open_with(&storage, options(), START + up, false).unwrap().0;
        let (held, told) = (Vec::new(), Vec::new());
        let mut volume = Self { storage, node, up, held, producer: 1, produces: false, told };
        volume.connect();
        volume
    }

    fn connect(&mut self) {
        self.node.machine.opened(CONN, "/volume".to_owned());
        let connect = CommandConnect { protocol_version: Some(21), ..CommandConnect::default() };
        self.ask(ClientRequest::Command(connect.into()));
    }

    /// Performs all pending work without advancing the time.
    fn step(&mut self) -> Vec<MachineEffect> {
        let (node, mut is_cut_off) = (&mut self.node, false);
        node.machine.set_time(START + self.up, self.up);
        node.machine.tick();
        node.machine.dispatch();
        node.submit();
        node.write();
        assert!(!node.is_dead, "the log is closed for writes");
        node.copy();
        let effects = node.machine.take_effects();
        for effect in &effects {
            match effect {
                MachineEffect::Checkpoint { at, image } => node.set_checkpoint(*at, image.clone()),
                MachineEffect::RemoveSegments(segments) => node.remove_segments(segments),
                MachineEffect::Copy(survivors) => node.copies.push_back(survivors.clone()),
                MachineEffect::Close(CONN) => is_cut_off = true,
                // Later deliveries do not reach the closed client.
                MachineEffect::Deliver { .. } if is_cut_off => {}
                MachineEffect::Deliver { command, source, bytes, .. } => {
                    let id = &command.message_id;
                    node.machine.written(CONN, u64::from(*bytes));
                    let Err(cause) = node.read(&node.pin(source.clone())) else {
                        self.held.push(id.clone());
                        continue;
                    };
                    let MessageSource::Log(location) = source else { panic!("{cause}") };
                    self.told.extend(node.machine.withhold(&Unreadable {
                        consumer: ConsumerKey { conn: CONN, id: command.consumer_id },
                        position: EntryPosition { ledger: id.ledger_id, entry: id.entry_id },
                        location: Some(*location),
                        cause,
                    }));
                }
                _ => {}
            }
        }
        if is_cut_off {
            self.come_back();
        }
        effects
    }

    /// The disconnected client reconnects.
    pub(super) fn come_back(&mut self) {
        self.node.machine.closed(CONN);
        (self.producer, self.produces) = (self.producer + 1, false);
        self.connect();
        self.subscribe();
    }

    fn ask(&mut self, request: ClientRequest) -> Vec<MachineEffect> {
        self.node.machine.request(CONN, request);
        let mut effects = self.step();
        for _ in 0..3 {
            effects.extend(self.step());
        }
        effects
    }

    /// Advances the time by a second, with background work.
    pub(super) fn pass(&mut self) {
        self.up += 1000;
        self.keep_up();
    }

    /// Performs background work without advancing the time.
    fn keep_up(&mut self) {
        self.node.look();
        for _ in 0..3 {
            self.step();
            self.node.write_checkpoint();
        }
    }

    /// Advances the time by a second, without completing a checkpoint.
    fn pass_without_checkpoint(&mut self) {
        self.up += 1000;
        self.node.look();
        (0..3).for_each(|_| drop(self.step()));
    }

    /// Publishes. Returns whether there was room.
    pub(super) fn publish(&mut self, bytes: usize) -> bool {
        let producer_id = self.producer;
        if !self.produces {
            let topic = TOPIC.to_owned();
            let producer = CommandProducer { topic, producer_id, ..CommandProducer::default() };
            self.ask(ClientRequest::Command(producer.into()));
        }
        let metadata = MessageMetadata { publish_time: START, ..MessageMetadata::default() };
        let message = verified(Payload::new(&metadata, &vec![1; bytes]));
        let send = CommandSend { producer_id, ..CommandSend::default() };
        let effects = self.ask(ClientRequest::Publish(send, message));
        self.node.log.prepare();
        let is_receipt = |effect: &MachineEffect| {
            matches!(effect, MachineEffect::Send(_, Command::SendReceipt(_)))
        };
        let is_stored = effects.iter().any(is_receipt);
        // A producer with a refused message has ended. One without an answer waits for the disk,
        // and may have been refused itself.
        self.produces = is_stored;
        if !is_stored {
            self.producer += 1;
            self.ask(ClientRequest::Command(CommandCloseProducer::new(producer_id, 1).into()));
        }
        is_stored
    }

    /// Publishes several messages at once, interleaved with the background and the writer, and then
    /// completes everything that can be completed.
    pub(super) fn burst(&mut self, random: &mut fastrand::Rng, messages: usize, bytes: usize) {
        let producer_id = self.producer;
        let topic = TOPIC.to_owned();
        let producer = CommandProducer { topic, producer_id, ..CommandProducer::default() };
        self.ask(ClientRequest::Command(producer.into()));
        for _ in 0..messages {
            let metadata = MessageMetadata { publish_time: START, ..MessageMetadata::default() };
            let message = verified(Payload::new(&metadata, &vec![1; bytes]));
            let send = CommandSend { producer_id, ..CommandSend::default() };
            self.node.machine.request(CONN, ClientRequest::Publish(send, message));
            match random.u8(0..24) {
                0 => drop(self.step()),
                1 => self.node.log.prepare(),
                2 => self.node.submit(),
                _ => {}
            }
        }
        for _ in 0..3 {
            self.step();
            self.node.log.prepare();
        }
        let close = CommandCloseProducer::new(producer_id, 1);
        self.ask(ClientRequest::Command(close.into()));
        (self.producer, self.produces) = (producer_id + 1, false);
    }

    /// Ends the process or the machine, and starts the broker again.
    pub(super) fn restart(self, is_power_cut: bool) -> Self {
        let (storage, up) = self.end(is_power_cut);
        Self::open(storage, up)
    }

    /// Kills the process, and starts the broker again without a consumer.
    fn restart_alone(self) -> Self {
        let (storage, up) = self.end(false);
        Self::reopen(storage, up)
    }

    fn end(self, is_power_cut: bool) -> (SimulatedStorage, u64) {
        let Self { storage, node, up, .. } = self;
        if is_power_cut {
            storage.crash()
        } else {
            storage.kill()
        }
        drop(node);
        (storage, up)
    }

    /// Publishes until there is no room for some time. Returns the stored amount.
    fn fill(&mut self, bytes: usize) -> u64 {
        let (mut stored, mut refused) = (0, 0);
        while refused < PATIENCE {
            if self.publish(bytes) {
                stored += bytes as u64;
            } else {
                refused += 1;
                self.pass();
            }
        }
        stored
    }

    /// Acknowledges everything, one message at a time, over several seconds.
    fn drain(&mut self) {
        self.pass();
        while self.acknowledge() {
            self.pass();
        }
    }

    /// Like `drain`, but skips one message in `every`.
    fn drain_but(&mut self, every: usize) {
        let mut count = 0;
        self.pass();
        while self.acknowledge_if(|| {
            count += 1;
            count % every > 0
        }) {
            self.pass();
        }
    }

    /// Acknowledges the next delivery. Returns whether there was one.
    pub(super) fn acknowledge(&mut self) -> bool {
        self.acknowledge_if(|| true)
    }

    pub(super) fn acknowledge_if(&mut self, mut wanted: impl FnMut() -> bool) -> bool {
        let flow = CommandFlow { consumer_id: 1, message_permits: 100 };
        self.ask(ClientRequest::Command(flow.into()));
        let held = std::mem::take(&mut self.held);
        for id in held.iter().filter(|_| wanted()) {
            let message_id = vec![id.clone()];
            let ack = CommandAck { consumer_id: 1, message_id, ..CommandAck::default() };
            self.ask(ClientRequest::Command(ack.into()));
        }
        !held.is_empty()
    }

    fn has_room_soon(&mut self, bytes: usize) -> bool {
        (0..PATIENCE).any(|_| {
            self.pass();
            self.publish(bytes)
        })
    }
}

/// The size of the next segment only ever doubled: drained, half-empty volumes had no room for it
/// and refused publishes for ever.
#[test]
fn a_small_volume_that_is_drained_takes_publishes_again() {
    for (size, least) in [(320 * KIB, 90 * KIB), (1000 * KIB, 650 * KIB)] {
        for bytes in [700, 3000, 9000] {
            let mut volume = Volume::new(size);
            for round in 0..4 {
                let stored = volume.fill(bytes);
                let what = format!("{size} bytes, messages of {bytes}, round {round}");
                assert!(stored >= least, "{what}: {stored} were stored");
                volume.drain();
                assert!(volume.has_room_soon(bytes), "{what}: no room");
            }
        }
    }
}

/// Acknowledgements came faster than rounds. They used up their reserve, a group of them waited for
/// a segment that could not be created, and everything that frees space waited behind that group,
/// for ever.
#[test]
fn acknowledgements_that_come_faster_than_rounds_make_room() {
    (0..10).for_each(keeps_up_with_acknowledgements);
}

/// Drains a full volume without advancing the time, and checks that it has room again.
pub(super) fn keeps_up_with_acknowledgements(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let (size, bytes) = (random.u64(4_500..9_000) * KIB, random.usize(300..1_500));
    let mut volume = Volume::new(size);
    while volume.publish(bytes) {}
    (0..PATIENCE).for_each(|_| volume.pass());
    let (mut acknowledged, before) = (0, volume.up);
    while volume.acknowledge_if(|| {
        acknowledged += 1;
        true
    }) {
        volume.keep_up();
    }
    assert_eq!(volume.up, before, "there was no time for a round");
    assert!(acknowledged > 2_000, "{acknowledged}");
    let what = format!("{size} bytes, messages of {bytes}, {acknowledged} acknowledged");
    assert!(volume.has_room_soon(bytes), "{what}: no room");
}

/// The broker was drained and killed before it could write a checkpoint. After the start it had no
/// checkpoint, waited for a record before it wrote one, and refused the records that came: unneeded
/// data stayed on the full disk.
#[test]
fn a_volume_that_was_drained_without_a_checkpoint_takes_publishes_after_a_start() {
    let mut volume = Volume::new(4800 * KIB);
    assert!(volume.fill(9000) >= 3000 * KIB);
    while volume.acknowledge() {}
    assert!(volume.node.log.status().segments.len() > 5, "no checkpoint was written");
    let mut volume = volume.restart_alone();
    assert!(volume.has_room_soon(9000));
    assert!(volume.node.log.status().segments.len() < 5, "{:?}", volume.node.log.status().segments);
}

/// Like the previous test, on volumes of any size, and with repeated kills before the first
/// checkpoint, so that a start has nothing to log. The messages are large, so their
/// acknowledgements find room although nothing is freed meanwhile.
#[test]
fn what_was_drained_before_a_start_is_given_back_by_it() {
    (0..20).for_each(gives_back_after_a_start);
}

pub(super) fn gives_back_after_a_start(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let (size, bytes) = (random.u64(2000..6000) * KIB, random.usize(6000..9_500));
    let mut volume = Volume::new(size);
    while volume.publish(bytes) {}
    while volume.acknowledge() {}
    for _ in 0..random.u8(1..4) {
        volume.pass_without_checkpoint();
        assert_eq!(volume.node.log.status().checkpoint, None);
        volume = volume.restart_alone();
    }
    let before = volume.node.log.status().segments;
    let what = format!("seed {seed}: {size} bytes, messages of {bytes}, {before:?}");
    assert!(
        volume.has_room_soon(bytes),
        "{what}: no room: {:?}",
        volume.node.log.status().segments
    );
}

/// Other programs fill the volume to the last byte while everything is acknowledged: there was no
/// room for the checkpoint that frees the space.
#[test]
fn there_is_room_for_a_checkpoint_on_a_volume_without_any() {
    (0..20).for_each(has_room_for_a_checkpoint);
}

pub(super) fn has_room_for_a_checkpoint(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let (size, bytes) = (random.u64(2000..6000) * KIB, random.usize(2000..9_500));
    let mut volume = Volume::new(size);
    while volume.publish(bytes) {}
    let free = volume.storage.free_bytes().unwrap();
    volume.storage.set_bytes_max(Some(size - free));
    volume.drain();
    let what = format!("seed {seed}: {size} bytes, messages of {bytes}");
    assert!(volume.node.log.status().checkpoint.is_some(), "{what}: no checkpoint");
    assert!(
        volume.has_room_soon(bytes),
        "{what}: no room: {:?}",
        volume.node.log.status().segments
    );
}

/// Any history: bursts of any size, restarts, and other programs that use the space and free it.
#[test]
fn a_volume_that_is_drained_takes_publishes_again_whatever_happened_before() {
    (0..kit::seeds(SEEDS)).for_each(takes_publishes_again);
}

pub(super) fn takes_publishes_again(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let size = random.u64(320..2000) * KIB;
    let mut volume = Volume::new(size);
    for _ in 0..random.usize(4..40) {
        match random.u8(0..12) {
            0..=4 => {
                let (messages, bytes) = (random.usize(1..300), random.usize(1..9_500));
                volume.burst(&mut random, messages, bytes);
            }
            5 => drop(volume.fill(random.usize(500..9_500))),
            6 => volume.drain(),
            7 => volume.storage.set_bytes_max(Some(random.u64(0..size))),
            8 => volume.storage.set_bytes_max(Some(size)),
            9 => volume = volume.restart(random.bool()),
            _ => (0..random.usize(1..8)).for_each(|_| volume.pass()),
        }
    }
    volume.storage.set_bytes_max(Some(size));
    volume.pass();
    volume.drain();
    let segments = volume.node.log.status().segments;
    assert!(volume.has_room_soon(1000), "seed {seed}: {size} bytes, {segments:?}");
}

/// Everything is acknowledged except one small entry in about each segment. Copies of these entries
/// found no room, and only the copies could make some.
#[test]
fn a_volume_that_is_drained_but_for_an_entry_in_each_segment_takes_publishes_again() {
    let mut stuck = Vec::new();
    // The short form takes the first three: large volumes take long to fill.
    let sizes = [320, 1000, 2500, 450, 640, 1600, 4800, 16000];
    let count = if kit::is_long() { sizes.len() } else { 3 };
    for size in sizes.into_iter().take(count) {
        for bytes in [100, 300, 1500, 5000] {
            for (entries, restarts) in [(1, false), (1, true), (3, false)] {
                let mut volume = Volume::new(size * KIB);
                volume.fill(bytes);
                volume.drain_but((64 * 1024 / (bytes + 100) / entries).max(4));
                let mut volume = if restarts { volume.restart(false) } else { volume };
                // Segments are checked every five seconds.
                if !(0..2).any(|_| volume.has_room_soon(bytes)) {
                    let segments = volume.node.log.status().segments;
                    stuck.push((size, bytes, entries, restarts, segments));
                }
            }
        }
    }
    assert!(stuck.is_empty(), "KiB, bytes, entries in a segment, restarts: {stuck:?}");
}
