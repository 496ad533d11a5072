//! The task protocol of longhaul and the state machines that keep it.
//!
//! - [`task`]: what a task is to everybody: its id, its state, its entry on the metadata topic.
//! - [`protocol`]: entries of the ledger and the register, and the fold that decides what they
//!   mean.
//! - [`machine`]: what one worker may do about the tasks of a partition; [`partition`] drives it.
//! - [`queue`]: what concerns several tasks of a queue: keys, limits, dependencies, schedules.
//! - [`metadata`]: what is shown on the metadata topic, and when.
//! - [`topics`]: the names of the topics of a queue.
//! - [`settings`] and [`schedule`]: what people set of a queue, and tasks at fixed times.
//!
//! Pure: events and times go in, effects come out. There is no clock, no I/O, no async and no
//! logging, so that model, simulation and production run the same code. Internal to longhaul: it
//! may change on any day, and what users need of it, `longhaul` itself gives them.

pub mod agenda;
pub mod lease;
pub mod ledger;
pub mod legacy;
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
