//! longhaul: long-running tasks on Apache Pulsar.

#![cfg_attr(
    not(feature = "testing"),
    allow(unreachable_pub, reason = "the feature `testing` makes the inner modules public")
)]

mod task;
#[cfg(not(feature = "testing"))]
mod transport;

pub mod topics;

pub use task::{EntryId, Position, TaskId, TaskIdError};

// What the project's own tests may reach. Not a stable interface.
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod transport;
