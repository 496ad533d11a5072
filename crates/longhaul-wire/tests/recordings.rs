//! Frames that stock clients and Apache Pulsar sent: every frame is decoded, and encoding it again
//! gives the same bytes.
//!
//! `recorded/README.md` describes how the recordings were made.

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "helpers of tests may fail as tests do, and look only at some commands"
)]

#[path = "recorded/recording.rs"]
#[expect(dead_code, reason = "the other half records")]
mod recording;

use bytes::{Bytes, BytesMut};
use longhaul_wire::batch::{BatchBuilder, Single, Singles};
use longhaul_wire::compression;
use longhaul_wire::frame::{self, Frame};
use longhaul_wire::messages::{
    AckType, Command, CompressionType, ErrorCode, MessageMetadata, SchemaType, SubType,
};
use recording::{MESSAGE_BYTES_MAX, Recording, Side};
use std::collections::{BTreeMap, BTreeSet};

/// Commands that are encoded differently than received, and why.
const KNOWN_IN_PART: &[(&str, &str)] = &[];

/// Text that the programs of all clients send with each kind of compression: alone, and in a batch
/// with a digit appended.
const COMPRESSED: &str = "compress me ";
const COMPRESSED_COUNT: usize = 1000;
/// Text that they send in chunks.
const CHUNKED: &str = "0123456789";
const CHUNKED_COUNT: usize = 250_000;

/// A frame and its origin.
struct Recorded {
    file: String,
    side: Side,
    bytes: Bytes,
    frame: Frame,
}

impl Recorded {
    fn name(&self) -> String {
        let shown = format!("{:?}", self.frame.command);
        shown.split('(').next().unwrap().to_owned()
    }
}

fn recorded() -> Vec<Recorded> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/recorded");
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|it| it != "frames") {
            continue;
        }
        let file = path.file_stem().unwrap().to_string_lossy().into_owned();
        let recording = Recording::unpack(&std::fs::read(&path).unwrap()).unwrap();
        for (side, bytes) in recording.frames() {
            let mut buffer = BytesMut::from(&bytes[..]);
            let frame = frame::decode(&mut buffer, MESSAGE_BYTES_MAX);
            let frame = frame.unwrap_or_else(|error| panic!("{file}: {error}: {bytes:?}"));
            assert!(buffer.is_empty(), "{file}: something is left of {bytes:?}");
            let frame = frame.unwrap();
            all.push(Recorded { file: file.clone(), side: *side, bytes: bytes.clone(), frame });
        }
    }
    all
}

/// The messages of all frames: metadata, and the decompressed body.
fn messages<'a>(recorded: &'a [Recorded]) -> Vec<(&'a Recorded, MessageMetadata, Bytes)> {
    let message = |it: &'a Recorded| {
        let payload = it.frame.payload.as_ref()?;
        Some((it, payload.metadata().unwrap(), payload.body()))
    };
    recorded.iter().filter_map(message).collect()
}

#[test]
fn each_frame_is_written_as_it_came() {
    let mut differing = BTreeSet::new();
    for it in recorded() {
        let mut out = BytesMut::new();
        match &it.frame.payload {
            None => frame::encode(it.frame.command.clone(), &mut out),
            Some(payload) => {
                payload.verify().unwrap();
                let metadata = payload.metadata().unwrap();
                frame::encode_message(
                    it.frame.command.clone(),
                    &metadata,
                    &payload.body(),
                    &mut out,
                );
            }
        }
        if out != it.bytes {
            let name = it.name();
            let is_known = KNOWN_IN_PART.iter().any(|(known, _)| *known == name);
            assert!(is_known, "{}:\n{:?}\n{out:?}", it.file, it.bytes);
            differing.insert(name);
        }
    }
    let listed = KNOWN_IN_PART.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(differing, listed, "a difference that is gone is no longer listed");
}

#[test]
fn each_body_comes_back_unpacked_and_packed_again() {
    for (it, metadata, body) in messages(&recorded()) {
        let Recorded { file, .. } = it;
        if metadata.num_chunks_from_msg.is_some() {
            continue;
        }
        let (kind, unpacked) = unpack(&metadata, &body);
        if kind != CompressionType::None {
            assert_eq!(metadata.uncompressed_size, u32::try_from(unpacked.len()).ok(), "{file}");
        }
        if let Some(count) = metadata.num_messages_in_batch {
            let mut batch = BatchBuilder::default();
            for Single { metadata, body } in singles(&unpacked, count) {
                batch.push(metadata, &body);
            }
            assert_eq!((batch.bytes(), batch.size()), (&unpacked[..], unpacked.len()), "{file}");
        }
        let packed = compression::pack(kind, &unpacked).unwrap();
        let size = u32::try_from(unpacked.len()).unwrap();
        assert_eq!(compression::unpack(kind, &packed, size, MESSAGE_BYTES_MAX), Ok(unpacked));
    }
}

#[test]
fn each_compression_has_what_was_sent() {
    let text = COMPRESSED.repeat(COMPRESSED_COUNT);
    let mut found: BTreeMap<(String, Side), BTreeSet<(i32, bool)>> = BTreeMap::new();
    for (it, metadata, body) in messages(&recorded()) {
        let (kind, unpacked) = unpack(&metadata, &body);
        let values = match metadata.num_messages_in_batch {
            None => vec![unpacked],
            Some(count) => singles(&unpacked, count).map(|it| it.body).collect(),
        };
        let is_text = |value: &Bytes| match value.strip_prefix(text.as_bytes()) {
            Some(rest) => rest.is_empty() || matches!(rest, [b'0'..=b'2']),
            None => false,
        };
        if values.iter().all(is_text) {
            let is_batch = metadata.num_messages_in_batch.is_some();
            let found = found.entry((it.file.clone(), it.side)).or_default();
            found.insert((kind as i32, is_batch));
        }
    }
    let all = (0..5).flat_map(|kind| [(kind, false), (kind, true)]).collect();
    assert_eq!(found.len(), 3 * 2 * 2, "three clients, two brokers, both sides: {found:?}");
    for (place, kinds) in found {
        assert_eq!(kinds, all, "{place:?}");
    }
}

#[test]
fn chunks_make_up_what_was_sent() {
    let mut large: BTreeMap<_, BTreeMap<i32, Bytes>> = BTreeMap::new();
    for (it, metadata, body) in messages(&recorded()) {
        let Some(uuid) = metadata.uuid else { continue };
        let chunks = metadata.num_chunks_from_msg.unwrap();
        assert_eq!(metadata.total_chunk_msg_size, Some(2_500_000), "{}", it.file);
        let place = (it.file.clone(), it.side, uuid, chunks);
        large.entry(place).or_default().insert(metadata.chunk_id.unwrap(), body);
    }
    assert_eq!(large.len(), 3 * 2 * 2, "three clients, two brokers, both sides");
    for ((file, side, _, count), chunks) in large {
        assert_eq!(usize::try_from(count).unwrap(), chunks.len(), "{file} {side:?}");
        let whole: Vec<u8> = chunks.into_values().flatten().collect();
        assert!(whole == CHUNKED.repeat(CHUNKED_COUNT).as_bytes(), "{file} {side:?}");
    }
}

/// Checks that the recordings cover the important cases.
#[test]
fn what_matters_was_recorded() {
    let mut found = BTreeSet::new();
    for it in recorded() {
        let (side, name) = (it.side, it.name());
        found.extend(details(&it.frame).into_iter().map(|detail| format!("{side:?} {detail}")));
        found.insert(format!("{side:?} {name}"));
    }
    let missing: Vec<_> = NEEDED.lines().filter(|it| !found.contains(it.trim())).collect();
    assert!(missing.is_empty(), "{missing:?} in {found:#?}");
}

const NEEDED: &str = "\
Client Connect
Client PartitionedMetadata
Client Lookup
Client Producer
Client Producer with schema Json
Client Producer with schema String
Client Send
Client Send tombstone
Client Subscribe
Client Subscribe Exclusive
Client Subscribe Shared
Client Subscribe Failover
Client Subscribe KeyShared
Client Flow
Client Ack Individual
Client Ack Cumulative
Client Ack with ack_set
Client Ack with receipt
Client Redeliver of all
Client Redeliver of some
Client Seek
Client GetLastMessageId
Client GetSchema
Client GetTopicsOfNamespace
Client Unsubscribe
Client CloseProducer
Client CloseConsumer
Client Pong
Client WatchTopicList
Broker Connected
Broker AuthChallenge
Broker PartitionedMetadataResponse
Broker LookupResponse
Broker ProducerSuccess
Broker SendReceipt
Broker SendError ChecksumError
Broker Success
Broker Message
Broker Message redelivered
Broker Message tombstone
Broker AckResponse
Broker ActiveConsumerChange
Broker GetLastMessageIdResponse
Broker GetLastMessageIdResponse of nothing
Broker ConsumerStatsResponse
Broker GetSchemaResponse
Broker GetOrCreateSchemaResponse
Broker GetTopicsOfNamespaceResponse
Broker CloseProducer
Broker CloseConsumer
Broker Ping
Broker Pong
Broker Error ConsumerBusy
Broker Error ProducerBusy
Broker Error ProducerFenced
Broker Error NotAllowedError";

fn details(frame: &Frame) -> Vec<String> {
    let mut details = Vec::new();
    let mut add = |detail: String| details.push(detail);
    match &frame.command {
        Command::Producer(it) => {
            let kind = it.schema.as_ref().and_then(|it| SchemaType::try_from(it.r#type).ok());
            kind.into_iter().for_each(|kind| add(format!("Producer with schema {kind:?}")));
        }
        Command::Subscribe(it) => {
            add(format!("Subscribe {:?}", SubType::try_from(it.sub_type).unwrap()));
        }
        Command::Ack(it) => {
            add(format!("Ack {:?}", AckType::try_from(it.ack_type).unwrap()));
            if it.message_id.iter().any(|id| !id.ack_set.is_empty()) {
                add("Ack with ack_set".to_owned());
            }
            it.request_id.into_iter().for_each(|_| add("Ack with receipt".to_owned()));
        }
        Command::Redeliver(it) => {
            let which = if it.message_ids.is_empty() { "all" } else { "some" };
            add(format!("Redeliver of {which}"));
        }
        Command::Message(it) if it.redelivery_count.is_some_and(|count| count > 0) => {
            add("Message redelivered".to_owned());
        }
        Command::GetLastMessageIdResponse(it) if it.last_message_id.is_none() => {
            add("GetLastMessageIdResponse of nothing".to_owned());
        }
        Command::Error(it) => add(format!("Error {}", ErrorCode::from(it.error))),
        Command::SendError(it) => add(format!("SendError {}", ErrorCode::from(it.error))),
        _ => {}
    }
    let metadata = frame.payload.as_ref().and_then(|payload| payload.metadata().ok());
    if metadata.is_some_and(|it| it.null_value == Some(true)) {
        let name = if matches!(frame.command, Command::Send(_)) { "Send" } else { "Message" };
        details.push(format!("{name} tombstone"));
    }
    details
}

#[track_caller]
fn unpack(metadata: &MessageMetadata, body: &Bytes) -> (CompressionType, Bytes) {
    let kind = compression::kind(metadata.compression).unwrap();
    let size = metadata.uncompressed_size.unwrap_or_default();
    (kind, compression::unpack(kind, body, size, MESSAGE_BYTES_MAX).unwrap())
}

fn singles(unpacked: &Bytes, count: i32) -> impl Iterator<Item = Single> {
    Singles::new(unpacked.clone(), usize::try_from(count).unwrap()).map(Result::unwrap)
}
