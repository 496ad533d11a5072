//! Lookups: the broker of a topic, its number of partitions, and the topics of a namespace.

#[derive(Clone, PartialEq, prost::Message)]
pub struct CommandPartitionedTopicMetadata {
    #[prost(string, required, tag = "1")]
    pub topic: String,
    #[prost(uint64, required, tag = "2")]
    pub request_id: u64,
    #[prost(string, optional, tag = "3")]
    pub original_principal: Option<String>,
    #[prost(string, optional, tag = "4")]
    pub original_auth_data: Option<String>,
    #[prost(string, optional, tag = "5")]
    pub original_auth_method: Option<String>,
    #[prost(bool, optional, tag = "6", default = "true")]
    pub metadata_auto_creation_enabled: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum MetadataType {
    Success = 0,
    Failed = 1,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CommandPartitionedTopicMetadataResponse {
    #[prost(uint32, optional, tag = "1")]
    pub partitions: Option<u32>,
    #[prost(uint64, required, tag = "2")]
    pub request_id: u64,
    #[prost(enumeration = "MetadataType", optional, tag = "3")]
    pub response: Option<i32>,
    #[prost(enumeration = "super::ServerError", optional, tag = "4")]
    pub error: Option<i32>,
    #[prost(string, optional, tag = "5")]
    pub message: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CommandLookupTopic {
    #[prost(string, required, tag = "1")]
    pub topic: String,
    #[prost(uint64, required, tag = "2")]
    pub request_id: u64,
    #[prost(bool, optional, tag = "3")]
    pub authoritative: Option<bool>,
    #[prost(string, optional, tag = "4")]
    pub original_principal: Option<String>,
    #[prost(string, optional, tag = "5")]
    pub original_auth_data: Option<String>,
    #[prost(string, optional, tag = "6")]
    pub original_auth_method: Option<String>,
    #[prost(string, optional, tag = "7")]
    pub advertised_listener_name: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum LookupType {
    Redirect = 0,
    Connect = 1,
    Failed = 2,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CommandLookupTopicResponse {
    #[prost(string, optional, tag = "1")]
    pub broker_service_url: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub broker_service_url_tls: Option<String>,
    #[prost(enumeration = "LookupType", optional, tag = "3")]
    pub response: Option<i32>,
    #[prost(uint64, required, tag = "4")]
    pub request_id: u64,
    #[prost(bool, optional, tag = "5")]
    pub authoritative: Option<bool>,
    #[prost(enumeration = "super::ServerError", optional, tag = "6")]
    pub error: Option<i32>,
    #[prost(string, optional, tag = "7")]
    pub message: Option<String>,
    #[prost(bool, optional, tag = "8")]
    pub proxy_through_service_url: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum TopicsMode {
    Persistent = 0,
    NonPersistent = 1,
    All = 2,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CommandGetTopicsOfNamespace {
    #[prost(uint64, required, tag = "1")]
    pub request_id: u64,
    #[prost(string, required, tag = "2")]
    pub namespace: String,
    #[prost(enumeration = "TopicsMode", optional, tag = "3")]
    pub mode: Option<i32>,
    #[prost(string, optional, tag = "4")]
    pub topics_pattern: Option<String>,
    #[prost(string, optional, tag = "5")]
    pub topics_hash: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CommandGetTopicsOfNamespaceResponse {
    #[prost(uint64, required, tag = "1")]
    pub request_id: u64,
    #[prost(string, repeated, tag = "2")]
    pub topics: Vec<String>,
    #[prost(bool, optional, tag = "3")]
    pub filtered: Option<bool>,
    #[prost(string, optional, tag = "4")]
    pub topics_hash: Option<String>,
    #[prost(bool, optional, tag = "5", default = "true")]
    pub changed: Option<bool>,
}

/// Subscribes to changes of the topics of a namespace that match a pattern.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CommandWatchTopicList {
    #[prost(uint64, required, tag = "1")]
    pub request_id: u64,
    #[prost(uint64, required, tag = "2")]
    pub watcher_id: u64,
    #[prost(string, required, tag = "3")]
    pub namespace: String,
    #[prost(string, required, tag = "4")]
    pub topics_pattern: String,
    /// Hash of the topics that the client knows.
    #[prost(string, optional, tag = "5")]
    pub topics_hash: Option<String>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CommandWatchTopicListSuccess {
    #[prost(uint64, required, tag = "1")]
    pub request_id: u64,
    #[prost(uint64, required, tag = "2")]
    pub watcher_id: u64,
    /// Empty when the hash says that the client knows them.
    #[prost(string, repeated, tag = "3")]
    pub topic: Vec<String>,
    #[prost(string, required, tag = "4")]
    pub topics_hash: String,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CommandWatchTopicUpdate {
    #[prost(uint64, required, tag = "1")]
    pub watcher_id: u64,
    #[prost(string, repeated, tag = "2")]
    pub new_topics: Vec<String>,
    #[prost(string, repeated, tag = "3")]
    pub deleted_topics: Vec<String>,
    #[prost(string, required, tag = "4")]
    pub topics_hash: String,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct CommandWatchTopicListClose {
    #[prost(uint64, required, tag = "1")]
    pub request_id: u64,
    #[prost(uint64, required, tag = "2")]
    pub watcher_id: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ResourceType {
    Producer = 0,
    Consumer = 1,
}

/// The topic of a producer or consumer has moved to another cluster.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CommandTopicMigrated {
    #[prost(uint64, required, tag = "1")]
    pub resource_id: u64,
    #[prost(enumeration = "ResourceType", required, tag = "2")]
    pub resource_type: i32,
    #[prost(string, optional, tag = "3")]
    pub broker_service_url: Option<String>,
    #[prost(string, optional, tag = "4")]
    pub broker_service_url_tls: Option<String>,
}
