//! Commands with the minimum that a client must send. Scripts fill in the rest.

use longhaul_wire::batch::BatchBuilder;
use longhaul_wire::messages::{
    AckType, Command, CommandAck, CommandCloseConsumer, CommandCloseProducer, CommandFlow,
    CommandProducer, CommandRedeliverUnacknowledgedMessages, CommandSend, CommandSubscribe,
    InitialPosition, MessageIdData, MessageMetadata, SingleMessageMetadata, SubType,
};
use longhaul_wire::payload::Payload;

pub(crate) const EARLIEST: MessageIdData = MessageIdData::EARLIEST;
pub(crate) const LATEST: MessageIdData = MessageIdData::LATEST;

/// Producer and request share a number.
pub(crate) fn producer(topic: &str, id: u64) -> CommandProducer {
    CommandProducer {
        topic: topic.to_owned(),
        producer_id: id,
        request_id: id,
        ..CommandProducer::default()
    }
}

/// Consumer and request share a number. Durable, and from the first message.
pub(crate) fn subscribe(topic: &str, id: u64, sub_type: SubType) -> CommandSubscribe {
    CommandSubscribe {
        topic: topic.to_owned(),
        subscription: "sub".to_owned(),
        sub_type: sub_type as i32,
        consumer_id: id,
        request_id: id,
        consumer_name: Some(format!("consumer-{id}")),
        initial_position: Some(InitialPosition::Earliest as i32),
        ..CommandSubscribe::default()
    }
}

/// A reader. Like those of all clients it names no initial position.
pub(crate) fn reader(topic: &str, id: u64, start: MessageIdData) -> CommandSubscribe {
    CommandSubscribe {
        subscription: "reader-oracle".to_owned(),
        durable: Some(false),
        start_message_id: Some(start),
        initial_position: None,
        ..subscribe(topic, id, SubType::Exclusive)
    }
}

pub(crate) const fn flow(consumer_id: u64, message_permits: u32) -> CommandFlow {
    CommandFlow { consumer_id, message_permits }
}

pub(crate) fn ack(consumer_id: u64, ids: Vec<MessageIdData>) -> CommandAck {
    CommandAck {
        consumer_id,
        ack_type: AckType::Individual as i32,
        message_id: ids,
        ..CommandAck::default()
    }
}

pub(crate) const fn redeliver(
    consumer_id: u64,
    message_ids: Vec<MessageIdData>,
) -> CommandRedeliverUnacknowledgedMessages {
    CommandRedeliverUnacknowledgedMessages { consumer_id, message_ids, consumer_epoch: None }
}

pub(crate) const fn close_producer(producer_id: u64, request_id: u64) -> CommandCloseProducer {
    CommandCloseProducer::new(producer_id, request_id)
}

pub(crate) const fn close_consumer(consumer_id: u64, request_id: u64) -> CommandCloseConsumer {
    CommandCloseConsumer::new(consumer_id, request_id)
}

pub(crate) fn metadata(sequence_id: u64) -> MessageMetadata {
    MessageMetadata {
        producer_name: "oracle".to_owned(),
        sequence_id,
        publish_time: 1_000_000 + sequence_id * 1000,
        ..MessageMetadata::default()
    }
}

/// A message whose body is its number.
pub(crate) fn plain(producer_id: u64, sequence_id: u64) -> (Command, Payload) {
    let body = sequence_id.to_string();
    (send(producer_id, sequence_id), Payload::new(&metadata(sequence_id), body.as_bytes()))
}

pub(crate) fn send(producer_id: u64, sequence_id: u64) -> Command {
    CommandSend { producer_id, sequence_id, num_messages: Some(1), ..CommandSend::default() }.into()
}

/// A message with a key.
pub(crate) fn keyed(
    producer_id: u64,
    sequence_id: u64,
    key: &str,
    body: &str,
) -> (Command, Payload) {
    let metadata = MessageMetadata { partition_key: Some(key.to_owned()), ..metadata(sequence_id) };
    (send(producer_id, sequence_id), Payload::new(&metadata, body.as_bytes()))
}

/// One of a batch: key, body; without a body it is a tombstone.
pub(crate) type Slot<'a> = (Option<&'a str>, Option<&'a str>);

pub(crate) fn batch(producer_id: u64, sequence_id: u64, slots: &[Slot<'_>]) -> (Command, Payload) {
    batch_with(producer_id, sequence_id, slots, None)
}

/// A batch whose own metadata has a key.
pub(crate) fn batch_with(
    producer_id: u64,
    sequence_id: u64,
    slots: &[Slot<'_>],
    key: Option<&str>,
) -> (Command, Payload) {
    let mut builder = BatchBuilder::default();
    for (key, body) in slots {
        let single = SingleMessageMetadata {
            partition_key: key.map(str::to_owned),
            null_value: body.is_none().then_some(true),
            ..SingleMessageMetadata::default()
        };
        builder.push(single, body.unwrap_or_default().as_bytes());
    }
    let count = i32::try_from(slots.len()).unwrap();
    let size = u32::try_from(builder.size()).unwrap();
    let metadata = MessageMetadata {
        num_messages_in_batch: Some(count),
        uncompressed_size: Some(size),
        partition_key: key.map(str::to_owned),
        ..metadata(sequence_id)
    };
    let command = CommandSend {
        producer_id,
        sequence_id,
        num_messages: Some(count),
        ..CommandSend::default()
    };
    (command.into(), Payload::new(&metadata, &builder.finish()))
}
