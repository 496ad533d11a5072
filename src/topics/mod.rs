//! The topics that belong to a task topic: their names, and what they are made for.

mod names;
mod settings;

pub use names::{
    DEFAULT_SUBSCRIPTION, TOPIC_NAME_BYTES_MAX, TopicNameError, TopicNames, TopicOverrides,
};
pub use settings::{LEDGER_RETENTION_MAX, PARTITIONS_MAX, TopicSettings, TopicSettingsError};
