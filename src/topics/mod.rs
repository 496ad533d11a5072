//! The topics that belong to a task topic: their names, how they are made, and whether they are as the protocol needs them.
//!
//! Nothing here runs while tasks run: [`setup`] once, [`check`] before a worker starts, if its client knows the admin API
//! ([`ClientBuilder::admin_url`](crate::ClientBuilder::admin_url)), and whenever an operator asks. Both talk to
//! Pulsar's admin API over HTTP, because its binary protocol neither shows nor sets a topic's policies. All but the names needs the
//! feature `admin`, which is on by default and brings the HTTP client.

#[cfg(feature = "admin")]
mod admin;
#[cfg(feature = "admin")]
mod calls;
#[cfg(feature = "admin")]
mod check;
#[cfg(feature = "admin")]
mod compaction;
#[cfg(feature = "admin")]
mod http;
mod levels;
#[cfg(feature = "admin")]
mod listing;
mod names;
#[cfg(feature = "admin")]
mod observe;
#[cfg(feature = "admin")]
mod policy;
#[cfg(feature = "admin")]
mod quota;
#[cfg(feature = "admin")]
mod removal;
#[cfg(feature = "admin")]
mod rules;
#[cfg(feature = "admin")]
mod settings;
#[cfg(feature = "admin")]
mod setup;
#[cfg(feature = "admin")]
mod traits;

#[cfg(feature = "admin")]
pub use admin::{Admin, FAILOVER_TIME_MAX};
#[cfg(all(feature = "admin", feature = "internals"))]
#[doc(hidden)]
pub use calls::AdminCalls;
#[cfg(feature = "admin")]
pub use check::{Finding, FindingKind, Severity, check};
#[cfg(feature = "admin")]
pub(crate) use check::{StartCheck, check_for_start};
#[cfg(feature = "admin")]
pub use compaction::{CompactionState, CompactionStatus, compact, compactions};
#[cfg(feature = "admin")]
pub use http::{AdminError, AdminErrorKind, AdminOptions};
pub use levels::Priority;
#[cfg(feature = "admin")]
pub(crate) use levels::like;
#[cfg(feature = "admin")]
pub use levels::setup_levels;
#[cfg(feature = "admin")]
pub use listing::queues;
pub use names::{
    DEAD_LETTER_SUBSCRIPTION, DEFAULT_SUBSCRIPTION, TOPIC_NAME_BYTES_MAX, TopicNameError,
    TopicNames, TopicOverrides,
};
#[cfg(feature = "admin")]
pub use policy::Policy;
#[cfg(feature = "admin")]
pub use quota::{QuotaAction, QuotaKind};
#[cfg(feature = "admin")]
pub use removal::remove;
#[cfg(feature = "admin")]
pub use settings::{
    HistoryRetention, LEDGER_RETENTION_MAX, PARTITIONS_MAX, TopicSettings, TopicSettingsError,
};
#[cfg(feature = "admin")]
pub use setup::{SetupError, SetupReport, Step, dry_run, setup};
