//! The wire crate against the third-party client: each reads what the other writes.

use anyhow::{Context, Result, ensure};
use bytes::BytesMut;
use longhaul_wire::frame;
use pulsar::message::{Codec, Message as Frame, Metadata, Payload};
use pulsar::proto::base_command::Type;
use pulsar::proto::{
    BaseCommand, CommandAck, CommandAckResponse, CommandConnect, CommandConnected, CommandError,
    CommandGetLastMessageIdResponse, CommandGetOrCreateSchema, CommandLookupTopicResponse,
    CommandMessage, CommandPartitionedTopicMetadataResponse, CommandPing, CommandProducer,
    CommandProducerSuccess, CommandSeek, CommandSend, CommandSendReceipt, CommandSubscribe,
    KeyValue, MessageIdData, Schema,
};
use tokio_util::codec::{Decoder, Encoder};

const LIMIT: usize = 1024 * 1024;

fn command(r#type: Type, fill: impl FnOnce(&mut BaseCommand)) -> BaseCommand {
    let mut command = BaseCommand { r#type: r#type as i32, ..BaseCommand::default() };
    fill(&mut command);
    command
}

fn id() -> MessageIdData {
    MessageIdData {
        ledger_id: u64::MAX,
        entry_id: 7,
        partition: Some(-1),
        batch_index: Some(3),
        ack_set: vec![-3, 1],
        batch_size: Some(70),
        first_chunk_message_id: Some(Box::new(MessageIdData::default())),
    }
}

fn schema() -> Schema {
    Schema {
        name: "s".to_owned(),
        schema_data: b"{}".to_vec(),
        r#type: 2,
        properties: vec![KeyValue { key: "a".to_owned(), value: "b".to_owned() }],
    }
}

/// Commands of a producer, and before.
fn publishing() -> Vec<BaseCommand> {
    vec![
        command(Type::Ping, |it| it.ping = Some(CommandPing {})),
        command(Type::Connect, |it| {
            it.connect = Some(CommandConnect {
                client_version: "c".to_owned(),
                auth_method_name: Some("token".to_owned()),
                auth_data: Some(b"secret".to_vec()),
                protocol_version: Some(21),
                proxy_to_broker_url: Some("broker:1".to_owned()),
                ..CommandConnect::default()
            });
        }),
        command(Type::Connected, |it| {
            it.connected = Some(CommandConnected {
                server_version: "s".to_owned(),
                protocol_version: Some(21),
                max_message_size: Some(5),
            });
        }),
        command(Type::PartitionedMetadataResponse, |it| {
            it.partition_metadata_response = Some(CommandPartitionedTopicMetadataResponse {
                partitions: Some(0),
                request_id: 1,
                response: Some(0),
                ..CommandPartitionedTopicMetadataResponse::default()
            });
        }),
        command(Type::LookupResponse, |it| {
            it.lookup_topic_response = Some(CommandLookupTopicResponse {
                broker_service_url: Some("pulsar://b".to_owned()),
                response: Some(1),
                request_id: 2,
                proxy_through_service_url: Some(true),
                ..CommandLookupTopicResponse::default()
            });
        }),
        command(Type::Producer, |it| {
            it.producer = Some(CommandProducer {
                topic: "t".to_owned(),
                producer_id: 1,
                request_id: 2,
                schema: Some(schema()),
                epoch: Some(3),
                ..CommandProducer::default()
            });
        }),
        command(Type::ProducerSuccess, |it| {
            it.producer_success = Some(CommandProducerSuccess {
                request_id: 2,
                producer_name: "p".to_owned(),
                last_sequence_id: Some(-1),
                schema_version: Some(Vec::new()),
                ..CommandProducerSuccess::default()
            });
        }),
        command(Type::SendReceipt, |it| {
            it.send_receipt = Some(CommandSendReceipt {
                producer_id: 1,
                sequence_id: 2,
                message_id: Some(id()),
                highest_sequence_id: Some(u64::MAX),
            });
        }),
    ]
}

/// Commands of a consumer, and the rest.
fn consuming() -> Vec<BaseCommand> {
    vec![
        command(Type::Subscribe, |it| {
            it.subscribe = Some(CommandSubscribe {
                topic: "t".to_owned(),
                subscription: "s".to_owned(),
                sub_type: 1,
                durable: Some(false),
                start_message_id: Some(id()),
                read_compacted: Some(true),
                initial_position: Some(1),
                metadata: vec![KeyValue { key: "k".to_owned(), value: "v".to_owned() }],
                ..CommandSubscribe::default()
            });
        }),
        command(Type::Ack, |it| {
            it.ack = Some(CommandAck {
                consumer_id: 1,
                ack_type: 1,
                message_id: vec![id(), id()],
                validation_error: Some(2),
                request_id: Some(9),
                ..CommandAck::default()
            });
        }),
        command(Type::AckResponse, |it| {
            it.ack_response = Some(CommandAckResponse {
                consumer_id: 1,
                error: Some(22),
                message: Some("no".to_owned()),
                request_id: Some(9),
                ..CommandAckResponse::default()
            });
        }),
        command(Type::Seek, |it| {
            it.seek = Some(CommandSeek {
                consumer_id: 1,
                request_id: 2,
                message_id: None,
                message_publish_time: Some(3),
            });
        }),
        command(Type::GetLastMessageIdResponse, |it| {
            it.get_last_message_id_response = Some(CommandGetLastMessageIdResponse {
                last_message_id: id(),
                request_id: 1,
                consumer_mark_delete_position: Some(id()),
            });
        }),
        command(Type::GetOrCreateSchema, |it| {
            it.get_or_create_schema = Some(CommandGetOrCreateSchema {
                request_id: 1,
                topic: "t".to_owned(),
                schema: schema(),
            });
        }),
        command(Type::Error, |it| {
            it.error =
                Some(CommandError { request_id: u64::MAX, error: 3, message: "x".to_owned() });
        }),
    ]
}

/// Decodes what the third-party crate writes, encodes it again, and lets the crate decode that.
fn there_and_back(sent: Frame) -> Result<Frame> {
    let mut bytes = BytesMut::new();
    Codec.encode(sent, &mut bytes)?;
    let frame = frame::decode(&mut bytes, LIMIT)?.context("not a whole frame")?;
    ensure!(bytes.is_empty(), "{} bytes are left", bytes.len());
    let mut back = BytesMut::new();
    match &frame.payload {
        None => frame::encode(frame.command, &mut back),
        Some(payload) => {
            payload.verify()?;
            frame::encode_with(frame.command, payload, &mut back);
        }
    }
    Codec.decode(&mut back)?.context("not a whole frame for the crate")
}

#[test]
fn commands_of_the_crate_come_back_as_they_were() -> Result<()> {
    for command in publishing().into_iter().chain(consuming()) {
        let back = there_and_back(Frame { command: command.clone(), payload: None })?;
        ensure!(back.command == command, "{:?}\n{command:?}", back.command);
        ensure!(back.payload.is_none());
    }
    Ok(())
}

#[test]
fn messages_of_the_crate_come_back_as_they_were() -> Result<()> {
    let metadata = Metadata {
        producer_name: "p".to_owned(),
        sequence_id: 1,
        publish_time: 2,
        partition_key: Some("k".to_owned()),
        num_messages_in_batch: Some(1),
        null_value: Some(true),
        uncompressed_size: Some(0),
        deliver_at_time: Some(-5),
        ..Metadata::default()
    };
    let send = command(Type::Send, |it| {
        it.send = Some(CommandSend { producer_id: 1, sequence_id: 2, ..CommandSend::default() });
    });
    let message = command(Type::Message, |it| {
        it.message = Some(CommandMessage {
            consumer_id: 1,
            message_id: id(),
            redelivery_count: Some(2),
            ack_set: vec![13],
            consumer_epoch: None,
        });
    });
    for command in [send, message] {
        for data in [Vec::new(), b"body".to_vec()] {
            let payload = Some(Payload { metadata: metadata.clone(), data: data.clone() });
            let back = there_and_back(Frame { command: command.clone(), payload })?;
            ensure!(back.command == command, "{:?}", back.command);
            let payload = back.payload.context("no payload")?;
            ensure!(payload.metadata == metadata && payload.data == data, "{payload:?}");
        }
    }
    Ok(())
}
