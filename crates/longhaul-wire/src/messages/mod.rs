//! Commands and metadata. Names, numbers and types are those of Pulsar's `PulsarApi.proto`; that
//! file and Pulsar's protocol documentation define their meaning. Transaction commands are known
//! only by number, so that they can be refused.

#![expect(missing_docs, reason = "Pulsar's own names, documented where they come from")]

mod base;
mod connect;
mod consumer;
mod error;
mod key_value;
mod lookup;
mod metadata;
mod producer;
mod schema;

pub use base::{BaseCommand, Command, OtherRequest};
pub use connect::{
    AuthData, CommandAuthChallenge, CommandAuthResponse, CommandConnect, CommandConnected,
    CommandPing, CommandPong, FeatureFlags,
};
pub use consumer::{
    AckType, CommandAck, CommandAckResponse, CommandActiveConsumerChange, CommandCloseConsumer,
    CommandConsumerStats, CommandConsumerStatsResponse, CommandFlow, CommandGetLastMessageId,
    CommandGetLastMessageIdResponse, CommandMessage, CommandReachedEndOfTopic,
    CommandRedeliverUnacknowledgedMessages, CommandSeek, CommandSubscribe, CommandUnsubscribe,
    InitialPosition, IntRange, KeySharedMeta, KeySharedMode, SubType,
};
pub use error::{CommandError, CommandSuccess, ErrorCode, ServerError};
pub use key_value::KeyValue;
pub use lookup::{
    CommandGetTopicsOfNamespace, CommandGetTopicsOfNamespaceResponse, CommandLookupTopic,
    CommandLookupTopicResponse, CommandPartitionedTopicMetadata,
    CommandPartitionedTopicMetadataResponse, CommandTopicMigrated, CommandWatchTopicList,
    CommandWatchTopicListClose, CommandWatchTopicListSuccess, CommandWatchTopicUpdate, LookupType,
    MetadataType, ResourceType, TopicsMode,
};
pub use metadata::{
    CompressionType, EncryptionKeys, KeyLongValue, MessageIdData, MessageMetadata,
    SingleMessageMetadata,
};
pub use producer::{
    AccessMode, CommandCloseProducer, CommandProducer, CommandProducerSuccess, CommandSend,
    CommandSendError, CommandSendReceipt,
};
pub use schema::{
    CommandGetOrCreateSchema, CommandGetOrCreateSchemaResponse, CommandGetSchema,
    CommandGetSchemaResponse, Schema, SchemaType,
};
