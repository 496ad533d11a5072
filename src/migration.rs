//! The part of the library that only `longhaul migrate` uses. It may change in any release.

pub use crate::client::{LedgerNotes, NextSubmitted};
pub use longhaul_core::protocol::register::{KeyKind, KeyName, QueueTask};
pub use longhaul_core::protocol::waits::WaitsFor;
pub use longhaul_core::task::text::{
    AFTER, AFTER_FAILED, CHECKPOINT, COPY_OF, DEDUPE_KEY, DELAY, EXPIRES_AT, IDEMPOTENCY_KEY,
    OVERWRITE, SCHEDULED_AT,
};
