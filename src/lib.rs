//! longhaul: long-running tasks on Apache Pulsar.

#![cfg_attr(
    not(feature = "testing"),
    allow(unreachable_pub, reason = "the feature `testing` makes the inner modules public")
)]

#[cfg(not(feature = "testing"))]
mod clock;
#[cfg(not(feature = "testing"))]
mod gate;
#[cfg(not(feature = "testing"))]
mod protocol;
mod task;
#[cfg(not(feature = "testing"))]
mod transport;
#[cfg(not(feature = "testing"))]
mod worker;

pub use task::{
    EntryId, Position, Progress, TaskId, TaskIdError, TaskMetadata, TaskOutcome, TaskState,
};

// What the project's own tests may reach. Not a stable interface.
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod clock;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod gate;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod protocol;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod transport;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod worker;
