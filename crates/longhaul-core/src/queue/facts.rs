//! The properties of a task's message on which the queue decides.

use super::dependencies::AfterList;
use crate::protocol::register::{KeyKind, KeyName};
use crate::protocol::waits::WaitsFor;
use crate::task::text;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The facts in a task's message that concern the queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskFacts {
    /// The idempotency key or, without one, the dedupe key. An invalid key is ignored.
    pub key: Option<KeyName>,
    /// Whether the task replaces the holder of its dedupe key.
    pub overwrites: bool,
    /// The tasks that must be over first, or why the property cannot be read.
    pub after: Option<AfterList>,
}

impl TaskFacts {
    /// Reads the properties of a message.
    #[must_use]
    pub fn read(properties: &BTreeMap<String, String>) -> Self {
        let of = |kind, property: &str| KeyName::new(kind, properties.get(property)?.as_str()).ok();
        let idempotency = of(KeyKind::Idempotency, text::IDEMPOTENCY_KEY);
        let key = idempotency.or_else(|| of(KeyKind::Dedupe, text::DEDUPE_KEY));
        let asks = properties.get(text::OVERWRITE).is_some_and(|value| value == "true");
        let overwrites = asks && key.as_ref().is_some_and(|key| key.kind() == KeyKind::Dedupe);
        let after = properties.get(text::AFTER).map(|names| {
            let failed = properties.get(text::AFTER_FAILED).map(String::as_str);
            WaitsFor::read(names, failed).map(Arc::new)
        });
        Self { key, overwrites, after }
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

/// The limit key of a task. An invalid key is ignored.
#[must_use]
pub fn limit_key_of(properties: &BTreeMap<String, String>) -> Option<&str> {
    let key = properties.get(text::LIMIT_KEY)?;
    text::is_limit_key(key).then_some(key.as_str())
}
