//! The client of Pulsar's admin API: creates the topics of a task topic and checks whether they
//! meet the protocol's needs.
//!
//! No task waits for anything here: [`setup`] runs once, [`check`] before a worker starts and on
//! request. A gateway lists its queues with [`queues`] every 30 s, and shows their topics with
//! [`inspect`]. All use HTTP, because Pulsar's binary protocol neither shows nor sets the policies
//! of a topic. Internal to longhaul: `longhaul::topics` re-exports the parts that users need.

mod admin;
mod backup;
mod calls;
mod check;
mod compaction;
mod http;
mod inspect;
mod levels;
mod listing;
mod observe;
mod policy;
mod quota;
mod removal;
mod rules;
mod settings;
mod setup;
mod traits;

pub use admin::{Admin, FAILOVER_TIME_MAX};
pub use backup::{BackupPassReport, BackupPassRequest};
pub use check::{FindingKind, Severity, TopicFinding, check};
pub use check::{StartCheck, check_for_start};
pub use compaction::{CompactionState, CompactionStatus, compact, compactions};
pub use http::{AdminError, AdminErrorKind, AdminOptions};
pub use inspect::{TopicReport, TopicStorage, inspect};
pub use levels::like;
pub use levels::setup_levels;
pub use listing::queues;
pub use policy::Policy;
pub use quota::{QuotaAction, QuotaKind};
pub use removal::remove;
pub use settings::{
    HistoryRetention, LEDGER_RETENTION_MAX, PARTITIONS_MAX, TopicSettings, TopicSettingsError,
};
pub use setup::{SetupError, SetupReport, SetupStep, dry_run, setup};
