//! The task protocol of longhaul and the state machines that implement it.
//!
//! - [`task`]: the public parts of a task: its id, its state, its entry on the metadata topic.
//! - [`protocol`]: entries of the ledger and the register, and the fold that interprets them.
//! - [`machine`]: the actions of one worker on the tasks of a partition; [`partition`] drives it.
//! - [`queue`]: everything that concerns several tasks of a queue: keys, limits, dependencies,
//!   schedules.
//! - [`metadata`]: what the metadata topic shows, and when.
//! - [`topics`]: the names of the topics of a queue.
//! - [`settings`] and [`schedule`]: settings of a queue, and tasks at fixed times.
//! - [`webhook`]: the calls at the end of tasks.
//!
//! Pure: events and times go in, effects come out. There is no clock, no I/O, no async and no
//! logging, so that model, simulation and production run the same code. Internal to longhaul: it
//! may change at any time; `longhaul` re-exports the parts that users need.

pub mod agenda;
pub mod facts;
pub mod lease;
pub mod ledger;
pub mod machine;
pub mod metadata;
pub mod partition;
pub mod protocol;
pub mod queue;
pub mod register;
#[cfg(feature = "schedules")]
pub mod schedule;
pub mod settings;
pub mod task;
pub mod topics;
pub mod wanted;
pub mod webhook;
