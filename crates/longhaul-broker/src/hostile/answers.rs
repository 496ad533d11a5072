//! Which answer belongs to which request.

#![expect(clippy::wildcard_enum_match_arm, reason = "the others have none")]

use longhaul_wire::messages::Command;

/// The number of the request that this answers.
pub(super) fn answer_to(command: &Command) -> Option<u64> {
    match command {
        Command::Success(it) => Some(it.request_id),
        Command::Error(it) => Some(it.request_id),
        Command::ProducerSuccess(it) => Some(it.request_id),
        Command::PartitionedMetadataResponse(it) => Some(it.request_id),
        Command::LookupResponse(it) => Some(it.request_id),
        Command::ConsumerStatsResponse(it) => Some(it.request_id),
        Command::GetLastMessageIdResponse(it) => Some(it.request_id),
        Command::GetTopicsOfNamespaceResponse(it) => Some(it.request_id),
        Command::WatchTopicListSuccess(it) => Some(it.request_id),
        Command::GetSchemaResponse(it) => Some(it.request_id),
        Command::GetOrCreateSchemaResponse(it) => Some(it.request_id),
        Command::AckResponse(it) => it.request_id,
        _ => None,
    }
}

/// The number of a request that must be answered.
pub(super) fn request_id_of(command: &Command) -> Option<u64> {
    Some(match command {
        Command::Subscribe(it) => it.request_id,
        Command::Producer(it) => it.request_id,
        Command::Unsubscribe(it) => it.request_id,
        Command::CloseProducer(it) => it.request_id,
        Command::CloseConsumer(it) => it.request_id,
        Command::PartitionedMetadata(it) => it.request_id,
        Command::Lookup(it) => it.request_id,
        Command::ConsumerStats(it) => it.request_id,
        Command::Seek(it) => it.request_id,
        Command::GetLastMessageId(it) => it.request_id,
        Command::GetTopicsOfNamespace(it) => it.request_id,
        Command::GetSchema(it) => it.request_id,
        Command::GetOrCreateSchema(it) => it.request_id,
        Command::NewTxn(it) | Command::EndTxn(it) => it.request_id,
        Command::WatchTopicList(it) => it.request_id,
        Command::WatchTopicListClose(it) => it.request_id,
        Command::Ack(it) => return it.request_id,
        _ => return None,
    })
}
