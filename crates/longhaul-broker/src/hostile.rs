//! Arbitrary client input: no panic, an answer or a closed connection for each request, and bounded
//! memory.
//!
//! These are plain functions. Every test run calls them with the stored corpus and some thousand
//! random inputs.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a new command is one that has no answer until it is listed"
)]

mod answers;
pub(crate) mod calls;

use crate::kit;
use crate::log::{LogOptions, SimulatedStorage, Stepped};
use crate::machine::effect::{ClientRequest, MachineEffect};
use crate::machine::{BrokerMachine, MachineSettings};
use crate::server::requests::{REQUESTS_MAX, requests, verified};
use crate::state::BrokerState;
use crate::state::replay::replay;
use answers::{answer_to, request_id_of};
use bytes::BytesMut;
use fastrand::Rng;
use longhaul_wire::frame;
use longhaul_wire::messages::{
    Command, CommandAck, CommandAckResponse, CommandCloseConsumer, CommandCloseProducer,
    CommandConnect, CommandConsumerStats, CommandFlow, CommandGetLastMessageId,
    CommandGetOrCreateSchema, CommandGetSchema, CommandGetTopicsOfNamespace, CommandLookupTopic,
    CommandPartitionedTopicMetadata, CommandPing, CommandPong, CommandProducer,
    CommandRedeliverUnacknowledgedMessages, CommandSeek, CommandSend, CommandSubscribe,
    CommandUnsubscribe, CommandWatchTopicList, CommandWatchTopicListClose, MessageIdData,
    MessageMetadata, OtherRequest, Schema,
};
use longhaul_wire::payload::Payload;
use std::collections::BTreeSet;
use std::sync::Arc;

const MESSAGE_BYTES_MAX: usize = 64 * 1024;
/// Bytes: requests that change little must not make the log or the answers much larger than
/// themselves.
const ANSWER_BYTES_MAX: usize = 256 * 1024;

fn options() -> LogOptions {
    LogOptions {
        segment_bytes_first: 16 * 1024,
        segment_bytes_max: 1024 * 1024,
        body_bytes_max: 1024 * 1024,
        salt: 1,
        facts: Some(crate::state::entry::EntryHead::facts),
    }
}

/// A machine with a log that never fails.
struct HostileRig {
    machine: BrokerMachine,
    log: Stepped,
    storage: SimulatedStorage,
    up: u64,
    next_ticket: u64,
    /// Answered calls.
    replies: BTreeSet<u64>,
    closed: BTreeSet<u64>,
    answered: Vec<(u64, u64)>,
}

impl HostileRig {
    fn new() -> Self {
        let storage = SimulatedStorage::new(1);
        let settings = MachineSettings {
            message_bytes_max: MESSAGE_BYTES_MAX,
            handles_per_connection: 50,
            recent_bytes: 10_000,
            window_bytes: 10_000,
            topic_defaults: crate::defaults::of_task_topics(),
            checkpoint_bytes: 100_000,
            ..kit::settings()
        };
        let (machine, log) = kit::machine(settings, &options(), &storage, None);
        let (closed, replies) = (BTreeSet::new(), BTreeSet::new());
        Self { machine, log, storage, up: 0, next_ticket: 0, replies, closed, answered: Vec::new() }
    }

    /// Starts another broker on the log: its state must equal the first one's.
    fn restarts(mut self) {
        self.settle();
        let before = self.machine.state();
        let mut after = BrokerState::default();
        drop(self.log);
        let opened = Stepped::open(Arc::new(self.storage.clone()), options(), &mut |replayed| {
            replay(&mut after, replayed)
        });
        opened.unwrap_or_else(|error| panic!("what was refused is in the log: {error}"));
        assert_eq!(after.described(), before.described(), "another state after a restart");
    }

    /// Sends a request, writes its records, and collects the answers.
    fn ask(&mut self, conn: u64, request: ClientRequest) {
        self.machine.request(conn, request);
        self.settle();
    }

    /// Writes all pending records.
    fn settle(&mut self) {
        kit::settle(&mut self.machine, &mut self.log);
        let (mut bytes, mut pinged) = (0, Vec::new());
        for effect in self.machine.take_effects() {
            match effect {
                MachineEffect::Send(conn, command) => {
                    let mut out = BytesMut::new();
                    self.answered.extend(answer_to(&command).map(|request_id| (conn, request_id)));
                    pinged.extend(matches!(command, Command::Ping(_)).then_some(conn));
                    frame::encode(command, &mut out);
                    bytes += out.len();
                }
                MachineEffect::Close(conn) => drop(self.closed.insert(conn)),
                MachineEffect::Deliver { conn, bytes, .. } => {
                    self.machine.written(conn, bytes.into())
                }
                MachineEffect::Reply(ticket) => drop(self.replies.insert(ticket)),
                _ => {}
            }
        }
        assert!(bytes <= ANSWER_BYTES_MAX, "{bytes} bytes of answers to one request");
        for conn in pinged {
            // Holders of places answer pings.
            self.ask(conn, ClientRequest::Command(CommandPong {}.into()));
        }
    }

    fn open(&mut self, conn: u64, is_connected: bool) {
        self.closed.remove(&conn);
        self.machine.opened(conn, "/hostile".to_owned());
        if is_connected {
            let connect = CommandConnect { protocol_version: Some(21), ..Default::default() };
            self.ask(conn, ClientRequest::Command(connect.into()));
        }
    }
}

/// Sends bytes, before CONNECT or after it.
pub(crate) fn bytes(input: &[u8], is_connected: bool) {
    let mut rig = HostileRig::new();
    rig.open(1, is_connected);
    let (mut buffer, mut connected) = (BytesMut::from(input), is_connected);
    let mut is_broken = false;
    loop {
        let parsed = requests(&mut buffer, &mut connected, MESSAGE_BYTES_MAX, REQUESTS_MAX);
        is_broken |= parsed.is_broken;
        parsed.requests.into_iter().for_each(|request| rig.ask(1, request));
        if !parsed.has_more {
            break;
        }
    }
    assert!(!is_broken || rig.closed.contains(&1), "garbage ends a connection");
    rig.machine.closed(1);
    rig.restarts();
}

/// Sends valid commands with arbitrary fields.
pub(crate) fn commands(seed: u64) {
    let mut random = Rng::with_seed(seed);
    let mut rig = HostileRig::new();
    for conn in 0..3 {
        rig.open(conn, true);
    }
    for _ in 0..random.usize(1..60) {
        let conn = random.u64(0..3);
        if rig.closed.contains(&conn) {
            rig.machine.closed(conn);
            rig.open(conn, true);
        }
        if random.u8(0..4) == 0 {
            calls::any_call(&mut rig, &mut random);
        }
        let command = any_command(&mut random);
        let request_id = request_id_of(&command);
        let shown = format!("seed {seed}: {command:?}");
        rig.answered.clear();
        if let Command::Send(send) = command {
            rig.ask(conn, ClientRequest::Publish(send, verified(any_payload(&mut random))));
        } else {
            rig.ask(conn, ClientRequest::Command(command));
        }
        if let Some(request_id) = request_id {
            let is_answered = rig.answered.contains(&(conn, request_id));
            assert!(is_answered || rig.closed.contains(&conn), "no answer to {shown}");
        }
        if random.u8(0..20) == 0 {
            rig.up += random.u64(0..100_000);
            rig.machine.set_time(1_700_000_000_000 + random.u64(0..100_000), rig.up);
            rig.machine.tick();
            rig.settle();
        }
    }
    for conn in 0..3 {
        rig.machine.closed(conn);
        rig.settle();
    }
    rig.restarts();
}

/// A small number, so that ids coincide, or one at the edges.
fn number(random: &mut Rng) -> u64 {
    let edges = [0, 1, i64::MAX.cast_unsigned(), u64::MAX - 1, u64::MAX, u64::from(u32::MAX)];
    match random.u8(0..8) {
        0 => *random.choice(edges.iter()).unwrap(),
        1 => random.u64(..),
        _ => random.u64(0..3),
    }
}

fn small(random: &mut Rng) -> i32 {
    match random.u8(0..8) {
        0 => random.i32(..),
        _ => random.i32(-1..5),
    }
}

fn some<T>(random: &mut Rng, make: impl FnOnce(&mut Rng) -> T) -> Option<T> {
    if random.bool() { Some(make(random)) } else { None }
}

fn topic(random: &mut Rng) -> String {
    let hostile = [
        "",
        ".",
        "..",
        "a/../b",
        "persistent://public/default/..",
        "a\u{0}b",
        "a\nb",
        "\u{202e}x",
        "persistent://nobody/default/x",
        "persistent://public/nowhere/x",
        "non-persistent://a/b/c",
        "x-partition-4294967295",
        "x-partition--1",
        "http://a",
        "persistent://public/default/\\..\\x",
    ];
    match random.u8(0..6) {
        0 => (*random.choice(hostile.iter()).unwrap()).to_owned(),
        1 => "x".repeat(random.usize(0..400)),
        2 => "tasks-ledger".to_owned(),
        _ => format!("t{}", random.u8(0..2)),
    }
}

fn id(random: &mut Rng) -> MessageIdData {
    MessageIdData {
        ledger_id: number(random),
        entry_id: number(random),
        partition: some(random, small),
        batch_index: some(random, small),
        ack_set: (0..random.usize(0..4)).map(|_| number(random).cast_signed()).collect(),
        batch_size: some(random, small),
        first_chunk_message_id: None,
    }
}

fn schema(random: &mut Rng) -> Schema {
    let schema_data = random.u8(..).to_string().repeat(random.usize(0..20)).into();
    Schema { name: topic(random), schema_data, r#type: small(random), properties: Vec::new() }
}

fn any_payload(random: &mut Rng) -> Payload {
    let metadata = MessageMetadata {
        producer_name: topic(random),
        sequence_id: number(random),
        publish_time: number(random),
        partition_key: some(random, topic),
        compression: some(random, small),
        uncompressed_size: some(random, |random| random.u32(..)),
        num_messages_in_batch: some(random, small),
        deliver_at_time: some(random, |random| number(random).cast_signed()),
        num_chunks_from_msg: some(random, small),
        chunk_id: some(random, small),
        ..MessageMetadata::default()
    };
    let body = vec![random.u8(..); random.usize(0..200)];
    Payload::new(&metadata, &body)
}

fn any_command(random: &mut Rng) -> Command {
    let (request_id, handle) = (number(random), number(random));
    match random.u8(0..26) {
        0..=2 => any_subscribe(random),
        3..=4 => CommandProducer {
            topic: topic(random),
            producer_id: handle,
            request_id,
            producer_name: some(random, topic),
            epoch: some(random, number),
            user_provided_producer_name: some(random, Rng::bool),
            producer_access_mode: some(random, small),
            topic_epoch: some(random, number),
            schema: some(random, schema),
            ..CommandProducer::default()
        }
        .into(),
        5..=9 => CommandSend {
            producer_id: handle,
            sequence_id: number(random),
            num_messages: some(random, small),
            highest_sequence_id: some(random, number),
            ..CommandSend::default()
        }
        .into(),
        10..=12 => CommandAck {
            consumer_id: handle,
            ack_type: small(random),
            message_id: (0..random.usize(0..5)).map(|_| id(random)).collect(),
            request_id: some(random, number),
            txnid_most_bits: (random.u8(0..20) == 0).then_some(1),
            ..CommandAck::default()
        }
        .into(),
        13 => {
            let message_permits = *random.choice([0, 1, 10, u32::MAX].iter()).unwrap();
            CommandFlow { consumer_id: handle, message_permits }.into()
        }
        14 => CommandRedeliverUnacknowledgedMessages {
            consumer_id: handle,
            message_ids: (0..random.usize(0..4)).map(|_| id(random)).collect(),
            consumer_epoch: some(random, number),
        }
        .into(),
        15 => CommandSeek {
            consumer_id: handle,
            request_id,
            message_id: some(random, id),
            message_publish_time: some(random, number),
        }
        .into(),
        16 => CommandCloseProducer::new(handle, request_id).into(),
        17 => CommandCloseConsumer::new(handle, request_id).into(),
        18 => {
            CommandUnsubscribe { consumer_id: handle, request_id, force: some(random, Rng::bool) }
                .into()
        }
        _ => any_question(random, request_id, handle),
    }
}

fn any_subscribe(random: &mut Rng) -> Command {
    CommandSubscribe {
        topic: topic(random),
        subscription: random
            .choice(["", "s", "s", "t"].iter())
            .map(|name| (*name).to_owned())
            .unwrap(),
        sub_type: small(random),
        consumer_id: number(random),
        request_id: number(random),
        consumer_name: some(random, topic),
        priority_level: some(random, small),
        durable: some(random, Rng::bool),
        start_message_id: some(random, id),
        read_compacted: some(random, Rng::bool),
        schema: some(random, schema),
        initial_position: some(random, small),
        force_topic_creation: some(random, Rng::bool),
        start_message_rollback_duration_sec: some(random, number),
        ..CommandSubscribe::default()
    }
    .into()
}

fn any_question(random: &mut Rng, request_id: u64, handle: u64) -> Command {
    match random.u8(0..14) {
        0 => CommandPartitionedTopicMetadata {
            topic: topic(random),
            request_id,
            metadata_auto_creation_enabled: some(random, Rng::bool),
            ..CommandPartitionedTopicMetadata::default()
        }
        .into(),
        1 => {
            CommandLookupTopic { topic: topic(random), request_id, ..CommandLookupTopic::default() }
                .into()
        }
        2 => CommandConsumerStats { request_id, consumer_id: handle }.into(),
        3 => CommandGetLastMessageId { consumer_id: handle, request_id }.into(),
        4 => CommandGetTopicsOfNamespace {
            request_id,
            namespace: random.choice(["public/default", "..", ""]).unwrap().to_owned(),
            mode: some(random, small),
            ..CommandGetTopicsOfNamespace::default()
        }
        .into(),
        5 => CommandGetSchema {
            request_id,
            topic: topic(random),
            schema_version: some(random, |random| {
                vec![random.u8(0..3); random.usize(0..12)].into()
            }),
        }
        .into(),
        6 => CommandGetOrCreateSchema { request_id, topic: topic(random), schema: schema(random) }
            .into(),
        7 => Command::NewTxn(OtherRequest { request_id }),
        8 => Command::EndTxn(OtherRequest { request_id }),
        9 => CommandWatchTopicList {
            request_id,
            watcher_id: handle,
            namespace: random.choice(["public/default", "..", ""]).unwrap().to_owned(),
            topics_pattern: random
                .choice([".*", "", "(", "persistent://a/b/c"])
                .unwrap()
                .to_owned(),
            topics_hash: some(random, |_| "00000000".to_owned()),
        }
        .into(),
        12 => CommandWatchTopicListClose { request_id, watcher_id: handle }.into(),
        10 => CommandConnect { protocol_version: some(random, small), ..Default::default() }.into(),
        11 => CommandAckResponse { consumer_id: handle, ..CommandAckResponse::default() }.into(),
        _ => CommandPing {}.into(),
    }
}

#[test]
fn random_commands_are_answered() {
    let count = std::env::var("LONGHAUL_FUZZ_INPUTS").map_or(3000, |text| text.parse().unwrap());
    (0..count).for_each(commands);
}

#[test]
fn random_bytes_are_answered() {
    let mut random = Rng::with_seed(7);
    for _ in 0..2000 {
        let mut stream = BytesMut::new();
        for _ in 0..random.usize(1..6) {
            match any_command(&mut random) {
                Command::Send(send) => {
                    frame::encode_with(send, &any_payload(&mut random), &mut stream);
                }
                command => frame::encode(command, &mut stream),
            }
        }
        for _ in 0..random.usize(0..6) {
            let at = random.usize(0..stream.len());
            stream[at] = random.u8(..);
        }
        stream.truncate(random.usize(0..=stream.len()));
        bytes(&stream, random.bool());
    }
}

/// Inputs that once caused failures, and similar ones.
#[test]
fn the_stored_corpus_is_answered() {
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut count = 0;
    for file in std::fs::read_dir(corpus).unwrap() {
        let input = std::fs::read(file.unwrap().path()).unwrap();
        [false, true].into_iter().for_each(|is_connected| bytes(&input, is_connected));
        count += 1;
    }
    assert!(count > 0, "the corpus is there");
}
