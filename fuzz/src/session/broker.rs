//! What a broker says that keeps to no rule: well-formed commands with any fields, many of which name what is really under way, so
//! that scripts get far; and bytes that are none.

use super::bench::Bench;
use super::model::Kind;
use super::script::Script;
use bytes::{BufMut, BytesMut};
use longhaul_wire::batch::BatchBuilder;
use longhaul_wire::frame;
use longhaul_wire::messages::{
    Command, CommandAckResponse, CommandActiveConsumerChange, CommandAuthChallenge,
    CommandCloseConsumer, CommandCloseProducer, CommandConnected, CommandConsumerStatsResponse,
    CommandError, CommandFlow, CommandGetLastMessageIdResponse, CommandLookupTopicResponse,
    CommandMessage, CommandPartitionedTopicMetadataResponse, CommandPing, CommandPong,
    CommandProducerSuccess, CommandReachedEndOfTopic, CommandSend, CommandSendError,
    CommandSendReceipt, CommandSuccess, CommandTopicMigrated, EncryptionKeys, MessageIdData,
    MessageMetadata, ServerError, SingleMessageMetadata,
};

/// Where the broker's entries lie.
const LEDGER: u64 = 7;

/// A frame without a message.
pub(super) fn plain(command: impl Into<Command>) -> Vec<u8> {
    let mut out = BytesMut::new();
    frame::encode(command, &mut out);
    out.to_vec()
}

pub(super) fn ping() -> Vec<u8> {
    plain(CommandPing {})
}

/// What is said next.
pub(super) fn say(script: &mut Script<'_>, bench: &Bench) -> Option<Vec<u8>> {
    Some(match script.below(24) {
        0..=5 => {
            let (request, kind) = outstanding(script, bench)?;
            plain(answer(script, kind, request))
        }
        6 => {
            let request_id = request_id(script, bench);
            let error = script.one([1, 3, 6, 11, 22, -1, 99]);
            plain(CommandError { request_id, error, message: script.text() })
        }
        7 => {
            let request = request_id(script, bench);
            let kinds =
                [Kind::Partitions, Kind::Lookup, Kind::Last(0), Kind::Stats(0), Kind::Close];
            let kinds = [&kinds[..], &[Kind::Producer(0), Kind::Ack(0)]].concat();
            let kind = script.pick(&kinds)?;
            plain(answer(script, kind, request))
        }
        8..=10 => receipt(script, bench),
        11 => {
            let producer_id = producer(script, bench);
            let sequence_id = sequence(script, bench, producer_id);
            let known = [ServerError::NotAllowedError, ServerError::ChecksumError];
            let error = script.one([known[0] as i32, known[0] as i32, known[1] as i32, -7]);
            plain(CommandSendError { producer_id, sequence_id, error, message: script.text() })
        }
        12..=16 => message(script, bench),
        17 => {
            let request_id = script.number();
            let (plain_url, tls_url) = (url(script), url(script));
            match script.below(4) {
                0 => plain(CommandCloseProducer {
                    assigned_broker_service_url: plain_url,
                    assigned_broker_service_url_tls: tls_url,
                    ..CommandCloseProducer::new(producer(script, bench), request_id)
                }),
                1 | 2 => plain(CommandCloseConsumer {
                    assigned_broker_service_url: plain_url,
                    assigned_broker_service_url_tls: tls_url,
                    ..CommandCloseConsumer::new(consumer(script, bench), request_id)
                }),
                _ => {
                    let is_producer = script.chance(2);
                    let id =
                        if is_producer { producer(script, bench) } else { consumer(script, bench) };
                    plain(CommandTopicMigrated {
                        resource_id: id,
                        resource_type: if is_producer { 0 } else { script.one([1, 1, 7]) },
                        broker_service_url: plain_url,
                        broker_service_url_tls: tls_url,
                    })
                }
            }
        }
        18 => plain(CommandPing {}),
        19 => plain(CommandPong {}),
        20 => plain(CommandConnected {
            server_version: script.text(),
            protocol_version: script.one([Some(21), Some(19), Some(17), Some(16), None]),
            max_message_size: script.one([None, Some(150), Some(1_000), Some(0), Some(-1)]),
            feature_flags: None,
        }),
        21 => plain(CommandAuthChallenge::default()),
        22 => other(script, bench),
        _ => noise(script),
    })
}

fn outstanding(script: &mut Script<'_>, bench: &Bench) -> Option<(u64, Kind)> {
    let requests: Vec<(u64, Kind)> =
        bench.model.requests.iter().map(|(id, request)| (*id, request.kind)).collect();
    script.pick(&requests)
}

/// Mostly one that is under way.
fn request_id(script: &mut Script<'_>, bench: &Bench) -> u64 {
    let under_way = outstanding(script, bench).filter(|_| !script.chance(4));
    under_way.map_or_else(|| script.number(), |(id, _)| id)
}

fn producer(script: &mut Script<'_>, bench: &Bench) -> u64 {
    let known: Vec<u64> = bench.model.producers.keys().copied().collect();
    script.pick(&known).filter(|_| !script.chance(16)).unwrap_or_else(|| script.number())
}

fn consumer(script: &mut Script<'_>, bench: &Bench) -> u64 {
    let known: Vec<u64> = bench.model.consumers.keys().copied().collect();
    script.pick(&known).filter(|_| !script.chance(16)).unwrap_or_else(|| script.number())
}

/// Mostly that of an entry that waits for its receipt.
fn sequence(script: &mut Script<'_>, bench: &Bench, producer: u64) -> u64 {
    let waiting = bench.model.producers.get(&producer).map(|it| &it.in_flight);
    let waiting: Vec<u64> = waiting.into_iter().flatten().map(|it| it.sequence).collect();
    script.pick(&waiting).filter(|_| !script.chance(8)).unwrap_or_else(|| script.number())
}

fn receipt(script: &mut Script<'_>, bench: &Bench) -> Vec<u8> {
    let producer_id = producer(script, bench);
    let first = bench.model.producers.get(&producer_id).and_then(|it| it.in_flight.front());
    let sequence_id = match first {
        Some(entry) if !script.chance(16) => entry.sequence,
        _ => script.number(),
    };
    let message_id = (!script.chance(16)).then(|| MessageIdData::new(LEDGER, script.number()));
    plain(CommandSendReceipt { producer_id, sequence_id, message_id, highest_sequence_id: None })
}

/// An address, most often none; now and then one that is too long to be one.
fn url(script: &mut Script<'_>) -> Option<String> {
    match script.below(8) {
        0 => Some(script.text()),
        1 => Some("pulsar://there:6650".to_owned()),
        2 => Some("x".repeat(1_024 + script.below(2))),
        _ => None,
    }
}

/// What answers a question of this kind, or refuses it.
fn answer(script: &mut Script<'_>, kind: Kind, request_id: u64) -> Command {
    let is_refused = script.chance(8);
    let last = Some(script.signed());
    match kind {
        Kind::Partitions => CommandPartitionedTopicMetadataResponse {
            partitions: Some(u32::from(script.byte())),
            request_id,
            response: Some(i32::from(is_refused)),
            error: is_refused.then_some(6),
            message: None,
        }
        .into(),
        Kind::Lookup => CommandLookupTopicResponse {
            broker_service_url: Some(script.text()),
            response: script.one([Some(0), Some(1), Some(1), Some(2), None]),
            request_id,
            authoritative: Some(script.chance(2)),
            ..CommandLookupTopicResponse::default()
        }
        .into(),
        Kind::Producer(_) => CommandProducerSuccess {
            request_id,
            producer_name: script.text(),
            last_sequence_id: script.one([Some(-1), Some(-1), None, last]),
            ..CommandProducerSuccess::default()
        }
        .into(),
        Kind::Last(_) => CommandGetLastMessageIdResponse {
            last_message_id: MessageIdData {
                batch_index: script.one([None, Some(-1), Some(3)]),
                ..MessageIdData::new(script.number(), script.number())
            },
            request_id,
            consumer_mark_delete_position: script
                .chance(2)
                .then(|| MessageIdData::new(script.number(), script.number())),
        }
        .into(),
        Kind::Stats(_) => CommandConsumerStatsResponse {
            request_id,
            error_code: is_refused.then_some(6),
            msg_backlog: Some(script.number()),
            available_permits: Some(script.number()),
            ..CommandConsumerStatsResponse::default()
        }
        .into(),
        Kind::Ack(consumer_id) => CommandAckResponse {
            consumer_id,
            request_id: Some(request_id),
            error: is_refused.then_some(6),
            ..CommandAckResponse::default()
        }
        .into(),
        Kind::Consumer(_) | Kind::Close => CommandSuccess { request_id, schema: None }.into(),
    }
}

/// A delivery: a message alone, a batch, or something that claims to be one or the other.
fn message(script: &mut Script<'_>, bench: &Bench) -> Vec<u8> {
    let entry = MessageIdData::new(LEDGER, script.number());
    let mut command = CommandMessage {
        consumer_id: consumer(script, bench),
        message_id: entry,
        redelivery_count: script.one([None, Some(0), Some(2), Some(3), Some(u32::MAX)]),
        ack_set: Vec::new(),
        consumer_epoch: None,
    };
    let mut metadata = MessageMetadata { publish_time: script.number(), ..Default::default() };
    let count = script.below(12);
    let mut body = script.bytes(count).to_vec();
    let shape = script.byte();
    if shape & 3 != 0 {
        let mut batch = BatchBuilder::default();
        for _ in 0..count {
            let compacted_out = script.chance(6).then_some(true);
            let single = SingleMessageMetadata { compacted_out, ..Default::default() };
            batch.push(single, &body);
        }
        body = batch.finish().to_vec();
        metadata.num_messages_in_batch = i32::try_from(count).ok();
    }
    if shape & 4 != 0 && script.chance(2) {
        command.ack_set = (0..=script.below(3)).map(|_| script.signed()).collect();
    }
    match shape >> 3 {
        0 => body.truncate(script.below(64)),
        1 => {
            metadata.num_messages_in_batch =
                script.one([-1, 0, 30, 999, 1_000, 1_001, 5_000, 100_000, 200_000, i32::MAX]).into()
        }
        2 => {
            metadata.compression =
                script.one([Some(0), Some(1), Some(2), Some(3), Some(4), Some(9)])
        }
        3 => metadata.encryption_keys = vec![EncryptionKeys::default()],
        4 => metadata.num_chunks_from_msg = script.one([Some(-1), Some(1), Some(2)]),
        5 => metadata.uncompressed_size = Some(u32::from(script.byte())),
        _ => {}
    }
    let mut out = BytesMut::new();
    frame::encode_message(command, &metadata, &body, &mut out);
    if shape >> 3 == 6 {
        // Behind the sizes, where a frame is still one; in front of them it is noise.
        let at = out.len().saturating_sub(1 + script.below(40));
        if let Some(byte) = out.get_mut(at) {
            *byte ^= 1 << (script.byte() % 8);
        }
    }
    out.to_vec()
}

/// What has no answer, and what only clients say.
fn other(script: &mut Script<'_>, bench: &Bench) -> Vec<u8> {
    let consumer_id = consumer(script, bench);
    match script.below(6) {
        0 => plain(CommandActiveConsumerChange { consumer_id, is_active: Some(true) }),
        1 => plain(CommandReachedEndOfTopic { consumer_id }),
        2 => plain(CommandFlow { consumer_id, message_permits: 1 }),
        3 => plain(CommandMessage { consumer_id, ..CommandMessage::default() }),
        4 => plain(CommandSend { producer_id: consumer_id, ..CommandSend::default() }),
        _ => plain(CommandAckResponse { consumer_id, ..CommandAckResponse::default() }),
    }
}

/// A command of any bytes behind sizes that are right.
fn noise(script: &mut Script<'_>) -> Vec<u8> {
    let command_size = script.below(48);
    let command = script.bytes(command_size);
    let payload_size = script.one([0, 0, 4, 16, 30]);
    let payload = script.bytes(payload_size);
    let sizes = [4 + command.len() + payload.len(), command.len()];
    let mut out = BytesMut::new();
    for size in sizes {
        out.put_u32(u32::try_from(size).expect("small"));
    }
    out.put_slice(command);
    out.put_slice(payload);
    out.to_vec()
}
