//! Matches answers to requests.

#![expect(clippy::wildcard_enum_match_arm, reason = "the others have none")]

use longhaul_wire::messages::Command;

/// Id of the request that this command answers.
pub(super) fn answer_to(command: &Command) -> Option<u64> {
    match command {
        Command::Success(success) => Some(success.request_id),
        Command::Error(error) => Some(error.request_id),
        Command::ProducerSuccess(success) => Some(success.request_id),
        Command::PartitionedMetadataResponse(metadata) => Some(metadata.request_id),
        Command::LookupResponse(lookup) => Some(lookup.request_id),
        Command::ConsumerStatsResponse(stats) => Some(stats.request_id),
        Command::GetLastMessageIdResponse(last) => Some(last.request_id),
        Command::GetTopicsOfNamespaceResponse(topics) => Some(topics.request_id),
        Command::WatchTopicListSuccess(success) => Some(success.request_id),
        Command::GetSchemaResponse(schema) => Some(schema.request_id),
        Command::GetOrCreateSchemaResponse(schema) => Some(schema.request_id),
        Command::AckResponse(ack) => ack.request_id,
        _ => None,
    }
}

/// Id of a request that must be answered.
pub(super) fn request_id_of(command: &Command) -> Option<u64> {
    Some(match command {
        Command::Subscribe(subscribe) => subscribe.request_id,
        Command::Producer(producer) => producer.request_id,
        Command::Unsubscribe(unsubscribe) => unsubscribe.request_id,
        Command::CloseProducer(close) => close.request_id,
        Command::CloseConsumer(close) => close.request_id,
        Command::PartitionedMetadata(metadata) => metadata.request_id,
        Command::Lookup(lookup) => lookup.request_id,
        Command::ConsumerStats(stats) => stats.request_id,
        Command::Seek(seek) => seek.request_id,
        Command::GetLastMessageId(last) => last.request_id,
        Command::GetTopicsOfNamespace(topics) => topics.request_id,
        Command::GetSchema(schema) => schema.request_id,
        Command::GetOrCreateSchema(schema) => schema.request_id,
        Command::NewTxn(transaction) | Command::EndTxn(transaction) => transaction.request_id,
        Command::WatchTopicList(watch) => watch.request_id,
        Command::WatchTopicListClose(close) => close.request_id,
        Command::Ack(ack) => return ack.request_id,
        _ => return None,
    })
}
