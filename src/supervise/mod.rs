//! Keeps sessions with the broker open, for workers and clients alike.
//!
//! A session works until its first error; then another one is opened after a pause. Every error is
//! returned: the next call gets the next session, so that each caller decides whether and for how
//! long to continue.
//!
//! - [`SessionSupervisor`]: opens sessions of any kind, and waits between them as long as they
//!   fail.
//! - [`KeptFollower`] continues behind the last message that it has read, [`KeptPublisher`] with
//!   the next message.
//! - [`WholeFollower`] reads a topic to its end first, and reports when it is there.
//! - [`count`] and [`recount`]: the number of partitions of topics.
//! - [`Connections`]: whether all sessions of a worker are open; each outage is logged once.

mod backoff;
mod connections;
mod follower;
mod landmark;
mod partitions;
mod publisher;
mod service;
mod whole;

#[cfg(test)]
pub(crate) use backoff::BACKOFF_MAX;
pub(crate) use backoff::Backoff;
pub use connections::ConnectionState;
pub(crate) use connections::{Connections, Monitor};
pub(crate) use follower::KeptFollower;
pub(crate) use landmark::Landmark;
pub(crate) use partitions::{count, recount};
pub(crate) use publisher::KeptPublisher;
pub(crate) use service::{DeletionWatch, SessionSupervisor, no_answer, persistently};
pub(crate) use whole::{TopicReadEvent, WholeFollower};
