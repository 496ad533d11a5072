//! The topics that belong to a task topic: their names, their setup, and the check of their
//! settings against the protocol.
//!
//! No task waits for anything here. Call [`setup`] once. If the client has an admin API
//! ([`ClientBuilder::admin_url`](crate::ClientBuilder::admin_url)), workers call [`check`] before
//! they start; operators may call it at any time. A gateway lists its queues with [`queues`] every
//! 30 s, and shows their topics with [`inspect`]. Everything but the names needs the feature
//! `admin`, which is on by default and brings the HTTP client.

#[cfg(feature = "admin")]
pub use longhaul_admin::{
    Admin, AdminError, AdminErrorKind, AdminOptions, CompactionState, CompactionStatus,
    FAILOVER_TIME_MAX, FindingKind, HistoryRetention, LEDGER_RETENTION_MAX, PARTITIONS_MAX, Policy,
    QuotaAction, QuotaKind, SetupError, SetupReport, SetupStep, Severity, TopicFinding,
    TopicReport, TopicSettings, TopicSettingsError, TopicStorage, check, compact, compactions,
    dry_run, inspect, queues, remove, setup, setup_levels,
};
#[cfg(feature = "admin")]
pub(crate) use longhaul_admin::{StartCheck, check_for_start, like};
pub use longhaul_core::topics::{
    DEAD_LETTER_SUBSCRIPTION, DEFAULT_SUBSCRIPTION, Priority, TOPIC_NAME_BYTES_MAX, TopicNameError,
    TopicNames, TopicOverrides,
};
