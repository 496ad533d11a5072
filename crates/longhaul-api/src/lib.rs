//! The vocabulary of longhaul's HTTP API: names, and the bodies of requests and answers. The gateway,
//! the dashboard and the program share it, and the OpenAPI document is made from it.
//!
//! Pure data: no clock, no I/O, no async. Internal to longhaul: it may change at any time.

#![expect(
    missing_docs,
    reason = "the OpenAPI document has these texts: a text that repeats a name helps nobody"
)]

pub mod action;
pub mod dead;
pub mod history;
mod names;
pub mod new_task;
pub mod queue;
pub mod schedule;
pub mod settings;
pub mod task;
pub mod topics;
pub mod values;
pub mod worker;

pub use longhaul_core::task::Priority;
pub use longhaul_core::webhook;
pub use names::{QueueLevel, QueueName, QueueNameError, TaskName, TaskNameError};
