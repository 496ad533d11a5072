//! The services behind the commands: one back end, the gateway's API, for a gateway at an address
//! and for a broker.
//!
//! [`gateway`] asks, and the other files say how people read the answers, which are those of
//! `longhaul_api`. [`topics`] sets up, checks and compacts the topics of a queue on the broker: the
//! routes of a gateway for topics do and show less.

pub(crate) mod gateway;
pub(crate) mod letters;
pub(crate) mod queues;
pub(crate) mod schedules;
pub(crate) mod tasks;
pub(crate) mod topics;
pub(crate) mod workers;

use crate::exit::{Code, CommandFailure};

/// The error for a queue that does not exist.
pub(crate) fn no_queue(queue: &str) -> CommandFailure {
    CommandFailure::not_found(format!("there is no queue `{queue}`")).help(format!(
        "create it with `longhaul queue create {queue}`, or start its first worker; `longhaul \
         queue list` lists the existing queues"
    ))
}

/// The error for a task of a priority on a queue without topics for priorities: it would wait for
/// ever.
fn no_levels(queue: &str) -> CommandFailure {
    let what =
        format!("the queue `{queue}` has no topics for priorities: the task would never run");
    CommandFailure::new(Code::Conflict, what).help(format!(
        "create them with `longhaul queue create {queue} --levels`, and run workers that serve \
         them, such as `longhaul worker run --levels`, or a gateway"
    ))
}

/// A topic without the default tenant and namespace.
pub(crate) fn short_topic(topic: &str) -> &str {
    topic.strip_prefix("persistent://public/default/").unwrap_or(topic)
}
