//! The topics that belong to a task topic: their names, and what they are made for.

mod admin;
mod http;
mod names;
mod policy;
mod settings;

pub use admin::{Admin, Compaction, CompactionStatus};
pub use http::{AdminError, AdminErrorKind, AdminOptions};
pub use names::{
    DEFAULT_SUBSCRIPTION, TOPIC_NAME_BYTES_MAX, TopicNameError, TopicNames, TopicOverrides,
};
pub use policy::Policy;
pub use settings::{LEDGER_RETENTION_MAX, PARTITIONS_MAX, TopicSettings, TopicSettingsError};
