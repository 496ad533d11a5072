//! The names of the topics that belong to a task topic, and of the levels of a queue.

mod levels;
mod names;

pub use crate::task::Priority;
pub use names::{
    DEAD_LETTER_SUBSCRIPTION, DEFAULT_SUBSCRIPTION, TOPIC_NAME_BYTES_MAX, TopicNameError,
    TopicNames, TopicOverrides, TopicParts, check_subscription,
};
