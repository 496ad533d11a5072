//! The topics that belong to a task topic: their names, how they are made, and whether they are as the protocol needs them.
//!
//! Nothing here runs while tasks run: [`setup`] once, [`check`] before a worker starts, if its client knows the admin API
//! ([`ClientBuilder::admin_url`](crate::ClientBuilder::admin_url)), and whenever an operator asks. Both talk to
//! Pulsar's admin API over HTTP, because its binary protocol neither shows nor sets a topic's policies.

mod admin;
mod check;
mod http;
mod names;
mod observe;
mod policy;
mod rules;
mod settings;
mod setup;
mod traits;

pub use admin::{Admin, Compaction, CompactionStatus, FAILOVER_TIME_MAX};
pub use check::{Finding, FindingKind, Severity, check};
pub(crate) use check::{StartCheck, check_for_start};
pub use http::{AdminError, AdminErrorKind, AdminOptions};
pub use names::{
    DEAD_LETTER_SUBSCRIPTION, DEFAULT_SUBSCRIPTION, TOPIC_NAME_BYTES_MAX, TopicNameError,
    TopicNames, TopicOverrides,
};
pub use policy::Policy;
pub use settings::{
    HistoryRetention, LEDGER_RETENTION_MAX, PARTITIONS_MAX, TopicSettings, TopicSettingsError,
};
pub use setup::{SetupError, SetupReport, Step, dry_run, setup};
