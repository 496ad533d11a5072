//! What we ask of the broker that owns a topic.

use super::connection::{Connection, Key};
use super::dial::command;
use crate::clock::Clock;
use crate::task::{EntryId, Position};
use crate::transport::TransportError;
use crate::transport::pulsar::{error, message};
use pulsar::message::{Metadata, Payload};
use pulsar::proto::command_ack::AckType;
use pulsar::proto::command_subscribe::{InitialPosition, SubType};
use pulsar::proto::{
    CommandAck, CommandCloseConsumer, CommandCloseProducer, CommandGetLastMessageId,
    CommandGetLastMessageIdResponse, CommandProducer, CommandSend, CommandSubscribe, MessageIdData,
    base_command::Type,
};
use std::collections::HashMap;
use tokio::sync::Mutex as AsyncMutex;

/// Tombstones sent before their receipts are awaited.
const TOMBSTONES_IN_FLIGHT_MAX: usize = 500;

/// A connection to the broker that owns one topic.
#[derive(Debug)]
pub(in crate::transport::pulsar) struct TopicSession {
    connection: Connection,
    topic: String,
    /// The service URL and the topic, for errors.
    address: String,
    /// Consumers that never ask for messages, by subscription.
    permitless: AsyncMutex<HashMap<String, u64>>,
}

impl TopicSession {
    pub(super) fn new(connection: Connection, topic: &str, address: String) -> Self {
        let permitless = AsyncMutex::default();
        Self { connection, topic: topic.to_owned(), address, permitless }
    }

    pub(super) fn is_alive(&self) -> bool {
        self.connection.is_alive()
    }

    /// Resolves when the connection is lost or the broker ends our session on the topic, as it does when the topic moves.
    pub(in crate::transport::pulsar) async fn ended(&self) -> TransportError {
        self.connection.ended().await
    }

    /// A consumer on a durable Shared subscription that never gives the broker a permit and so is never given a message. On
    /// a Shared subscription any consumer may acknowledge any entry by its id.
    pub(in crate::transport::pulsar) async fn permitless_consumer(
        &self,
        subscription: &str,
    ) -> Result<u64, TransportError> {
        let mut known = self.permitless.lock().await;
        if let Some(id) = known.get(subscription) {
            return Ok(*id);
        }
        let subscribe = CommandSubscribe {
            subscription: subscription.to_owned(),
            sub_type: SubType::Shared as i32,
            durable: Some(true),
            initial_position: Some(InitialPosition::Earliest as i32),
            ..CommandSubscribe::default()
        };
        let id = self.subscribe(subscribe).await?;
        known.insert(subscription.to_owned(), id);
        Ok(id)
    }

    /// Acknowledges whole entries and waits for the broker's word.
    pub(in crate::transport::pulsar) async fn ack(
        &self,
        consumer_id: u64,
        entries: &[EntryId],
    ) -> Result<(), TransportError> {
        let request_id = self.connection.next_id();
        let ack = CommandAck {
            consumer_id,
            ack_type: AckType::Individual as i32,
            message_id: entries.iter().map(id_of).collect(),
            request_id: Some(request_id),
            ..CommandAck::default()
        };
        let command = command(Type::Ack, |c| c.ack = Some(ack));
        let answer = self.connection.request(request_id, command).await?;
        match answer.ack_response.and_then(|answer| Some((answer.error?, answer.message))) {
            Some((code, text)) => {
                Err(error::server(&self.address, code, &text.unwrap_or_default()))
            }
            None => Ok(()),
        }
    }

    /// The mark-delete position of a subscription; see [`crate::transport::Transport::mark_delete_position`].
    pub(in crate::transport::pulsar) async fn mark_delete_position(
        &self,
        subscription: &str,
    ) -> Result<Option<EntryId>, TransportError> {
        let consumer_id = self.permitless_consumer(subscription).await?;
        let answer = self.last_message_id(consumer_id).await?;
        Ok(answer.consumer_mark_delete_position.and_then(|id| mark_delete(&id)))
    }

    /// The last message of the log, or of its compacted view.
    pub(in crate::transport::pulsar) async fn last_position(
        &self,
        compacted: bool,
    ) -> Result<Option<Position>, TransportError> {
        let subscribe = CommandSubscribe {
            subscription: format!("longhaul-last-{:016x}", fastrand::u64(..)),
            sub_type: SubType::Exclusive as i32,
            durable: Some(false),
            read_compacted: Some(compacted),
            initial_position: Some(InitialPosition::Latest as i32),
            ..CommandSubscribe::default()
        };
        let consumer_id = self.subscribe(subscribe).await?;
        let answer = self.last_message_id(consumer_id).await?;
        self.close_consumer(consumer_id).await?;
        let id = answer.last_message_id;
        let exists = id.ledger_id != u64::MAX && id.entry_id != u64::MAX;
        Ok(exists.then(|| message::position(&id, true)))
    }

    /// Publishes tombstones; see [`crate::transport::Transport::tombstone`].
    pub(in crate::transport::pulsar) async fn tombstone(
        &self,
        keys: Vec<String>,
    ) -> Result<(), TransportError> {
        let (producer_id, producer_name) = self.open_producer().await?;
        let mut sequence_ids = 0_u64..;
        for chunk in keys.chunks(TOMBSTONES_IN_FLIGHT_MAX) {
            let mut receipts = Vec::with_capacity(chunk.len());
            for (key, sequence_id) in chunk.iter().zip(&mut sequence_ids) {
                let (send, payload) = tombstone(producer_id, &producer_name, sequence_id, key);
                let key = Key::Send { producer_id, sequence_id };
                let command = command(Type::Send, |c| c.send = Some(send));
                receipts.push(self.connection.begin(key, command, Some(payload)).await?);
            }
            for receipt in receipts {
                receipt.wait().await?;
            }
        }
        self.close_producer(producer_id).await
    }

    async fn subscribe(&self, subscribe: CommandSubscribe) -> Result<u64, TransportError> {
        let (consumer_id, request_id) = (self.connection.next_id(), self.connection.next_id());
        let subscribe =
            CommandSubscribe { topic: self.topic.clone(), consumer_id, request_id, ..subscribe };
        let command = command(Type::Subscribe, |c| c.subscribe = Some(subscribe));
        self.connection.request(request_id, command).await?;
        Ok(consumer_id)
    }

    async fn last_message_id(
        &self,
        consumer_id: u64,
    ) -> Result<CommandGetLastMessageIdResponse, TransportError> {
        let request_id = self.connection.next_id();
        let command = command(Type::GetLastMessageId, |c| {
            c.get_last_message_id = Some(CommandGetLastMessageId { consumer_id, request_id })
        });
        let answer = self.connection.request(request_id, command).await?;
        let unexpected = || error::refused(&self.address, "an unexpected answer");
        answer.get_last_message_id_response.ok_or_else(unexpected)
    }

    async fn close_consumer(&self, consumer_id: u64) -> Result<(), TransportError> {
        let request_id = self.connection.next_id();
        let command = command(Type::CloseConsumer, |c| {
            c.close_consumer = Some(CommandCloseConsumer { consumer_id, request_id })
        });
        self.connection.request(request_id, command).await.map(drop)
    }

    /// Returns the producer's id and the name that the broker gave it.
    async fn open_producer(&self) -> Result<(u64, String), TransportError> {
        let (producer_id, request_id) = (self.connection.next_id(), self.connection.next_id());
        let producer = CommandProducer {
            topic: self.topic.clone(),
            producer_id,
            request_id,
            ..CommandProducer::default()
        };
        let command = command(Type::Producer, |c| c.producer = Some(producer));
        let answer = self.connection.request(request_id, command).await?.producer_success;
        let answer = answer.ok_or_else(|| error::refused(&self.address, "an unexpected answer"))?;
        Ok((producer_id, answer.producer_name))
    }

    async fn close_producer(&self, producer_id: u64) -> Result<(), TransportError> {
        let request_id = self.connection.next_id();
        let command = command(Type::CloseProducer, |c| {
            c.close_producer = Some(CommandCloseProducer { producer_id, request_id })
        });
        self.connection.request(request_id, command).await.map(drop)
    }
}

fn id_of(entry: &EntryId) -> MessageIdData {
    MessageIdData { ledger_id: entry.ledger, entry_id: entry.entry, ..MessageIdData::default() }
}

/// Readers look at `null_value`, compaction of the brokers of 2025 looks at `uncompressed_size`: both must be there.
fn tombstone(
    producer_id: u64,
    producer_name: &str,
    sequence_id: u64,
    key: &str,
) -> (CommandSend, Payload) {
    let send = CommandSend {
        producer_id,
        sequence_id,
        num_messages: Some(1),
        highest_sequence_id: Some(sequence_id),
        ..CommandSend::default()
    };
    let metadata = Metadata {
        producer_name: producer_name.to_owned(),
        sequence_id,
        publish_time: Clock::System.wall_ms(),
        partition_key: Some(key.to_owned()),
        replicate_to: vec![super::super::LOCAL_ONLY.to_owned()],
        null_value: Some(true),
        uncompressed_size: Some(0),
        ..Metadata::default()
    };
    (send, Payload { metadata, data: Vec::new() })
}

/// The broker says "just before the first entry of ledger L" as `(L, -1)`: then all earlier ledgers are acknowledged, and the
/// last conceivable entry of ledger L - 1 says the same in ids that exist.
fn mark_delete(id: &MessageIdData) -> Option<EntryId> {
    if id.ledger_id == u64::MAX {
        None
    } else if id.entry_id == u64::MAX {
        id.ledger_id.checked_sub(1).map(|ledger| EntryId { ledger, entry: u64::MAX })
    } else {
        Some(EntryId { ledger: id.ledger_id, entry: id.entry_id })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tombstone_is_null_to_readers_and_to_compaction() {
        let (send, payload) = tombstone(7, "standalone-0-1", 3, "key");
        assert_eq!((send.sequence_id, send.highest_sequence_id), (3, Some(3)));
        let metadata = payload.metadata;
        assert_eq!((metadata.sequence_id, metadata.producer_name.as_str()), (3, "standalone-0-1"));
        assert_eq!((metadata.null_value, metadata.uncompressed_size), (Some(true), Some(0)));
        assert_eq!((metadata.compression, metadata.num_messages_in_batch), (None, None));
        assert_eq!(metadata.partition_key.as_deref(), Some("key"));
        assert!(payload.data.is_empty());
    }

    #[test]
    fn a_mark_delete_position_before_a_ledger_covers_the_earlier_ones() {
        let check = |ledger_id, entry_id, expected| {
            let id = MessageIdData { ledger_id, entry_id, ..MessageIdData::default() };
            assert_eq!(mark_delete(&id), expected);
        };
        check(5, 3, Some(EntryId { ledger: 5, entry: 3 }));
        check(5, u64::MAX, Some(EntryId { ledger: 4, entry: u64::MAX }));
        check(0, u64::MAX, None);
        check(u64::MAX, u64::MAX, None);
    }
}
