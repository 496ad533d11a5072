//! The client of Pulsar's admin API: how the topics of a task topic are made, and whether they are
//! as the protocol needs them.
//!
//! Nothing here runs while tasks run: [`setup`] once, [`check`] before a worker starts, and
//! whenever an operator asks. Both talk HTTP, because Pulsar's binary protocol neither shows nor
//! sets the policies of a topic. Internal to longhaul: what users need of it, `longhaul::topics`
//! gives them.

mod admin;
mod calls;
mod check;
mod compaction;
mod http;
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
pub use calls::AdminCalls;
pub use check::{FindingKind, Severity, TopicFinding, check};
pub use check::{StartCheck, check_for_start};
pub use compaction::{CompactionState, CompactionStatus, compact, compactions};
pub use http::{AdminError, AdminErrorKind, AdminOptions};
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
