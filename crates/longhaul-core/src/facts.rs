//! What a task's message says about it, read once for each delivery and each read of the payload.
//! Partition and queue decide by it. Pure.

use crate::protocol::hash::NameHash;
use crate::protocol::limits::Limits;
use crate::protocol::offer::TaskType;
use crate::protocol::register::{KeyKind, KeyName};
use crate::protocol::waits::{WaitsError, WaitsFor};
use crate::task::terms::{Terms, millis};
use crate::task::text;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The tasks that a task waits for, or why its list cannot be read.
pub type AfterList = Result<Arc<WaitsFor>, WaitsError>;

/// See the module's documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskFacts {
    /// Number of tasks in the message's batch, if it came in one.
    pub batch_size: Option<u32>,
    /// When the message was published, in ms since the epoch.
    pub published_ms: u64,
    /// The earliest time at which the task needs attention, in ms since the epoch. `None`: at once.
    pub waits_until_ms: Option<u64>,
    /// The limits that apply to the task as a whole.
    pub limits: Limits,
    /// The order key. Only queues with an order use it.
    pub order_key: Option<NameHash>,
    /// The task type.
    pub task_type: Option<TaskType>,
    /// The key under which the queue limits how many tasks run. An invalid key is ignored.
    pub limit_key: Option<Box<str>>,
    /// The idempotency key or, without one, the dedupe key. An invalid key is ignored.
    pub key: Option<KeyName>,
    /// Whether the task replaces the holder of its dedupe key.
    pub overwrites: bool,
    /// The tasks that must be over first.
    pub after: Option<AfterList>,
}

impl TaskFacts {
    /// Reads the properties of a message.
    #[must_use]
    pub fn read(properties: &BTreeMap<String, String>) -> Self {
        let get = |property: &str| properties.get(property).map(String::as_str);
        let of = |kind, property: &str| KeyName::new(kind, get(property)?).ok();
        let idempotency = of(KeyKind::Idempotency, text::IDEMPOTENCY_KEY);
        let key = idempotency.or_else(|| of(KeyKind::Dedupe, text::DEDUPE_KEY));
        let is_dedupe = key.as_ref().is_some_and(|key| key.kind() == KeyKind::Dedupe);
        let after = get(text::AFTER)
            .map(|names| WaitsFor::read(names, get(text::AFTER_FAILED)).map(Arc::new));
        Self {
            task_type: Some(TaskType::of(get(text::TASK_TYPE))),
            limit_key: get(text::LIMIT_KEY).filter(|key| text::is_limit_key(key)).map(Box::from),
            overwrites: is_dedupe && get(text::OVERWRITE) == Some("true"),
            key,
            after,
            ..Self::default()
        }
    }

    /// Since when the task is ready, in ms since the epoch: a start before its publish time means
    /// that time, so that it overtakes no earlier task.
    #[must_use]
    pub fn ready_ms(&self) -> u64 {
        self.waits_until_ms.map_or(self.published_ms, |at_ms| at_ms.max(self.published_ms))
    }

    /// Adds the terms of the task, completed by the defaults of the queue.
    pub fn set_terms(&mut self, terms: &Terms) {
        self.waits_until_ms = terms.waits_until_ms();
        self.limits = Limits {
            max_attempts: terms.max_attempts,
            total_ms: terms.max_total_duration.map(millis),
            expires_at_ms: terms.expires_at_ms,
        };
    }

    /// Why the message's property [`text::OVERWRITE`] cannot be used.
    #[must_use]
    pub fn overwrite_problem(&self, properties: &BTreeMap<String, String>) -> Option<&'static str> {
        match properties.get(text::OVERWRITE)?.as_str() {
            "false" => None,
            "true" if self.overwrites => None,
            "true" => Some("the task has no dedupe key, or an idempotency key as well"),
            _ => Some("it is neither `true` nor `false`"),
        }
    }
}
