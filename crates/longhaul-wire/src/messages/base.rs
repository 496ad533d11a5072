//! The envelope of all commands.
//!
//! Pulsar declares it as a number and one optional field for each command, of which exactly one is
//! set. On the wire that equals a `oneof`, and the number of a command is the number of its field.

use super::{
    CommandAck, CommandAckResponse, CommandActiveConsumerChange, CommandAuthChallenge,
    CommandAuthResponse, CommandCloseConsumer, CommandCloseProducer, CommandConnect,
    CommandConnected, CommandConsumerStats, CommandConsumerStatsResponse, CommandError,
    CommandFlow, CommandGetLastMessageId, CommandGetLastMessageIdResponse,
    CommandGetOrCreateSchema, CommandGetOrCreateSchemaResponse, CommandGetSchema,
    CommandGetSchemaResponse, CommandGetTopicsOfNamespace, CommandGetTopicsOfNamespaceResponse,
    CommandLookupTopic, CommandLookupTopicResponse, CommandMessage,
    CommandPartitionedTopicMetadata, CommandPartitionedTopicMetadataResponse, CommandPing,
    CommandPong, CommandProducer, CommandProducerSuccess, CommandReachedEndOfTopic,
    CommandRedeliverUnacknowledgedMessages, CommandSeek, CommandSend, CommandSendError,
    CommandSendReceipt, CommandSubscribe, CommandSuccess, CommandTopicMigrated, CommandUnsubscribe,
    CommandWatchTopicList, CommandWatchTopicListClose, CommandWatchTopicListSuccess,
    CommandWatchTopicUpdate,
};

#[derive(Clone, PartialEq, prost::Message)]
pub struct BaseCommand {
    #[prost(int32, required, tag = "1")]
    pub r#type: i32,
    #[prost(
        oneof = "Command",
        tags = "2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 50, 52, 54, 56, 58, 60, 62, 64, 65, 66, 67, 68"
    )]
    pub command: Option<Command>,
}

/// A request that this crate only reads far enough to answer it with an error.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct OtherRequest {
    #[prost(uint64, required, tag = "1")]
    pub request_id: u64,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Command {
    #[prost(message, boxed, tag = "2")]
    Connect(Box<CommandConnect>),
    #[prost(message, tag = "3")]
    Connected(CommandConnected),
    #[prost(message, boxed, tag = "4")]
    Subscribe(Box<CommandSubscribe>),
    #[prost(message, boxed, tag = "5")]
    Producer(Box<CommandProducer>),
    #[prost(message, tag = "6")]
    Send(CommandSend),
    #[prost(message, tag = "7")]
    SendReceipt(CommandSendReceipt),
    #[prost(message, tag = "8")]
    SendError(CommandSendError),
    #[prost(message, tag = "9")]
    Message(CommandMessage),
    #[prost(message, tag = "10")]
    Ack(CommandAck),
    #[prost(message, tag = "11")]
    Flow(CommandFlow),
    #[prost(message, tag = "12")]
    Unsubscribe(CommandUnsubscribe),
    #[prost(message, boxed, tag = "13")]
    Success(Box<CommandSuccess>),
    #[prost(message, tag = "14")]
    Error(CommandError),
    #[prost(message, tag = "15")]
    CloseProducer(CommandCloseProducer),
    #[prost(message, tag = "16")]
    CloseConsumer(CommandCloseConsumer),
    #[prost(message, boxed, tag = "17")]
    ProducerSuccess(Box<CommandProducerSuccess>),
    #[prost(message, tag = "18")]
    Ping(CommandPing),
    #[prost(message, tag = "19")]
    Pong(CommandPong),
    #[prost(message, tag = "20")]
    Redeliver(CommandRedeliverUnacknowledgedMessages),
    #[prost(message, boxed, tag = "21")]
    PartitionedMetadata(Box<CommandPartitionedTopicMetadata>),
    #[prost(message, tag = "22")]
    PartitionedMetadataResponse(CommandPartitionedTopicMetadataResponse),
    #[prost(message, boxed, tag = "23")]
    Lookup(Box<CommandLookupTopic>),
    #[prost(message, boxed, tag = "24")]
    LookupResponse(Box<CommandLookupTopicResponse>),
    #[prost(message, tag = "25")]
    ConsumerStats(CommandConsumerStats),
    #[prost(message, boxed, tag = "26")]
    ConsumerStatsResponse(Box<CommandConsumerStatsResponse>),
    #[prost(message, tag = "27")]
    ReachedEndOfTopic(CommandReachedEndOfTopic),
    #[prost(message, boxed, tag = "28")]
    Seek(Box<CommandSeek>),
    #[prost(message, tag = "29")]
    GetLastMessageId(CommandGetLastMessageId),
    #[prost(message, boxed, tag = "30")]
    GetLastMessageIdResponse(Box<CommandGetLastMessageIdResponse>),
    #[prost(message, tag = "31")]
    ActiveConsumerChange(CommandActiveConsumerChange),
    #[prost(message, boxed, tag = "32")]
    GetTopicsOfNamespace(Box<CommandGetTopicsOfNamespace>),
    #[prost(message, boxed, tag = "33")]
    GetTopicsOfNamespaceResponse(Box<CommandGetTopicsOfNamespaceResponse>),
    #[prost(message, tag = "34")]
    GetSchema(CommandGetSchema),
    #[prost(message, boxed, tag = "35")]
    GetSchemaResponse(Box<CommandGetSchemaResponse>),
    #[prost(message, boxed, tag = "36")]
    AuthChallenge(Box<CommandAuthChallenge>),
    #[prost(message, boxed, tag = "37")]
    AuthResponse(Box<CommandAuthResponse>),
    #[prost(message, tag = "38")]
    AckResponse(CommandAckResponse),
    #[prost(message, boxed, tag = "39")]
    GetOrCreateSchema(Box<CommandGetOrCreateSchema>),
    #[prost(message, tag = "40")]
    GetOrCreateSchemaResponse(CommandGetOrCreateSchemaResponse),
    #[prost(message, tag = "50")]
    NewTxn(OtherRequest),
    #[prost(message, tag = "52")]
    AddPartitionToTxn(OtherRequest),
    #[prost(message, tag = "54")]
    AddSubscriptionToTxn(OtherRequest),
    #[prost(message, tag = "56")]
    EndTxn(OtherRequest),
    #[prost(message, tag = "58")]
    EndTxnOnPartition(OtherRequest),
    #[prost(message, tag = "60")]
    EndTxnOnSubscription(OtherRequest),
    #[prost(message, tag = "62")]
    TcClientConnect(OtherRequest),
    #[prost(message, boxed, tag = "64")]
    WatchTopicList(Box<CommandWatchTopicList>),
    #[prost(message, boxed, tag = "65")]
    WatchTopicListSuccess(Box<CommandWatchTopicListSuccess>),
    #[prost(message, boxed, tag = "66")]
    WatchTopicUpdate(Box<CommandWatchTopicUpdate>),
    #[prost(message, tag = "67")]
    WatchTopicListClose(CommandWatchTopicListClose),
    #[prost(message, boxed, tag = "68")]
    TopicMigrated(Box<CommandTopicMigrated>),
}

impl Command {
    /// Number of the command.
    #[must_use]
    pub const fn number(&self) -> i32 {
        match self {
            Self::Connect(_) => 2,
            Self::Connected(_) => 3,
            Self::Subscribe(_) => 4,
            Self::Producer(_) => 5,
            Self::Send(_) => 6,
            Self::SendReceipt(_) => 7,
            Self::SendError(_) => 8,
            Self::Message(_) => 9,
            Self::Ack(_) => 10,
            Self::Flow(_) => 11,
            Self::Unsubscribe(_) => 12,
            Self::Success(_) => 13,
            Self::Error(_) => 14,
            Self::CloseProducer(_) => 15,
            Self::CloseConsumer(_) => 16,
            Self::ProducerSuccess(_) => 17,
            Self::Ping(_) => 18,
            Self::Pong(_) => 19,
            Self::Redeliver(_) => 20,
            Self::PartitionedMetadata(_) => 21,
            Self::PartitionedMetadataResponse(_) => 22,
            Self::Lookup(_) => 23,
            Self::LookupResponse(_) => 24,
            Self::ConsumerStats(_) => 25,
            Self::ConsumerStatsResponse(_) => 26,
            Self::ReachedEndOfTopic(_) => 27,
            Self::Seek(_) => 28,
            Self::GetLastMessageId(_) => 29,
            Self::GetLastMessageIdResponse(_) => 30,
            Self::ActiveConsumerChange(_) => 31,
            Self::GetTopicsOfNamespace(_) => 32,
            Self::GetTopicsOfNamespaceResponse(_) => 33,
            Self::GetSchema(_) => 34,
            Self::GetSchemaResponse(_) => 35,
            Self::AuthChallenge(_) => 36,
            Self::AuthResponse(_) => 37,
            Self::AckResponse(_) => 38,
            Self::GetOrCreateSchema(_) => 39,
            Self::GetOrCreateSchemaResponse(_) => 40,
            Self::NewTxn(_) => 50,
            Self::AddPartitionToTxn(_) => 52,
            Self::AddSubscriptionToTxn(_) => 54,
            Self::EndTxn(_) => 56,
            Self::EndTxnOnPartition(_) => 58,
            Self::EndTxnOnSubscription(_) => 60,
            Self::TcClientConnect(_) => 62,
            Self::WatchTopicList(_) => 64,
            Self::WatchTopicListSuccess(_) => 65,
            Self::WatchTopicUpdate(_) => 66,
            Self::WatchTopicListClose(_) => 67,
            Self::TopicMigrated(_) => 68,
        }
    }
}

impl From<Command> for BaseCommand {
    fn from(command: Command) -> Self {
        Self { r#type: command.number(), command: Some(command) }
    }
}

/// Conversions from each command's message to the enum.
macro_rules! from_message {
    ($($variant:ident($message:ty)),* $(,)?) => {$(
        impl From<$message> for Command {
            fn from(message: $message) -> Self {
                Self::$variant(message.into())
            }
        }
    )*};
}

from_message! {
    Connect(CommandConnect),
    Connected(CommandConnected),
    Subscribe(CommandSubscribe),
    Producer(CommandProducer),
    Send(CommandSend),
    SendReceipt(CommandSendReceipt),
    SendError(CommandSendError),
    Message(CommandMessage),
    Ack(CommandAck),
    Flow(CommandFlow),
    Unsubscribe(CommandUnsubscribe),
    Success(CommandSuccess),
    Error(CommandError),
    CloseProducer(CommandCloseProducer),
    CloseConsumer(CommandCloseConsumer),
    ProducerSuccess(CommandProducerSuccess),
    Ping(CommandPing),
    Pong(CommandPong),
    Redeliver(CommandRedeliverUnacknowledgedMessages),
    PartitionedMetadata(CommandPartitionedTopicMetadata),
    PartitionedMetadataResponse(CommandPartitionedTopicMetadataResponse),
    Lookup(CommandLookupTopic),
    LookupResponse(CommandLookupTopicResponse),
    ConsumerStats(CommandConsumerStats),
    ConsumerStatsResponse(CommandConsumerStatsResponse),
    ReachedEndOfTopic(CommandReachedEndOfTopic),
    Seek(CommandSeek),
    GetLastMessageId(CommandGetLastMessageId),
    GetLastMessageIdResponse(CommandGetLastMessageIdResponse),
    ActiveConsumerChange(CommandActiveConsumerChange),
    GetTopicsOfNamespace(CommandGetTopicsOfNamespace),
    GetTopicsOfNamespaceResponse(CommandGetTopicsOfNamespaceResponse),
    GetSchema(CommandGetSchema),
    GetSchemaResponse(CommandGetSchemaResponse),
    AuthChallenge(CommandAuthChallenge),
    AuthResponse(CommandAuthResponse),
    AckResponse(CommandAckResponse),
    GetOrCreateSchema(CommandGetOrCreateSchema),
    GetOrCreateSchemaResponse(CommandGetOrCreateSchemaResponse),
    TopicMigrated(CommandTopicMigrated),
    WatchTopicList(CommandWatchTopicList),
    WatchTopicListSuccess(CommandWatchTopicListSuccess),
    WatchTopicUpdate(CommandWatchTopicUpdate),
    WatchTopicListClose(CommandWatchTopicListClose),
}
