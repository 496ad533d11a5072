//! The vocabulary of longhaul's HTTP API, which the gateway, the dashboard and the program share.
//!
//! Pure data: no clock, no I/O, no async. Internal to longhaul: it may change at any time.

mod names;

pub use longhaul_core::task::Priority;
pub use names::{QueueLevel, QueueName, QueueNameError, TaskName, TaskNameError};
