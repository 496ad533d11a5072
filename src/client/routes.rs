//! The partition of the next task: round robin, or by a key. The number of partitions is looked up
//! again every minute.
//!
//! One service per task topic looks the number up for all callers, and keeps the last known number
//! when a later lookup fails.

use super::logs::Logs;
use super::service::BackgroundTasks;
use crate::clock::Clock;
use crate::supervise::{count, no_answer, recount};
use crate::transport::TransportError;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

/// The task topics that a client has submitted to.
#[derive(Debug)]
pub(super) struct Routes {
    logs: Logs,
    routes: Mutex<HashMap<String, TopicRoute>>,
    tasks: BackgroundTasks,
}

#[derive(Clone, Debug)]
struct TopicRoute {
    count: watch::Receiver<PartitionLookup>,
    turn: Arc<AtomicU32>,
}

#[derive(Clone, Debug)]
enum PartitionLookup {
    NotYet,
    Known(Option<u32>),
    Failed(TransportError),
}

impl TopicRoute {
    /// Whether the lookup service runs.
    fn is_alive(&self) -> bool {
        self.count.has_changed().is_ok()
    }
}

impl Routes {
    pub(super) fn new(logs: Logs) -> Self {
        Self { logs, routes: Mutex::default(), tasks: BackgroundTasks::default() }
    }

    /// The partition for the next task; -1 on an unpartitioned topic.
    pub(super) async fn next(&self, topic: &str) -> Result<i32, TransportError> {
        self.partition(topic, |turn| turn.fetch_add(1, Ordering::Relaxed)).await
    }

    /// The partition for tasks with this key; -1 on an unpartitioned topic. It is the one that
    /// Pulsar's Java client chooses by default for messages with that key.
    pub(super) async fn of_key(&self, topic: &str, key: &str) -> Result<i32, TransportError> {
        self.partition(topic, |_| java_hash(key)).await
    }

    async fn partition(
        &self,
        topic: &str,
        number: impl FnOnce(&AtomicU32) -> u32,
    ) -> Result<i32, TransportError> {
        let TopicRoute { mut count, turn } = self.route(topic);
        // The service sets a value before it ends, unless its runtime is gone.
        let known = count.wait_for(|count| !matches!(count, PartitionLookup::NotYet)).await;
        match known.as_deref() {
            Ok(PartitionLookup::Known(None)) => Ok(-1),
            Ok(PartitionLookup::Known(Some(count))) => {
                Ok(i32::try_from(number(&turn) % (*count).max(1)).unwrap_or_default())
            }
            Ok(PartitionLookup::Failed(error)) => Err(error.clone()),
            Ok(PartitionLookup::NotYet) | Err(_) => Err(no_answer(topic)),
        }
    }

    fn route(&self, topic: &str) -> TopicRoute {
        let mut routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(route) = routes.get(topic).filter(|route| route.is_alive()) {
            return route.clone();
        }
        let (sender, count) = watch::channel(PartitionLookup::NotYet);
        self.tasks.spawn(look(self.logs.clone(), topic.to_owned(), sender));
        let route = TopicRoute { count, turn: Arc::default() };
        routes.insert(topic.to_owned(), route.clone());
        route
    }
}

/// The lookup service. It ends when the first lookup fails, so that the next caller starts it
/// again.
async fn look(logs: Logs, topic: String, known: watch::Sender<PartitionLookup>) {
    let monitor = logs.monitor();
    match count(&logs.transport, &topic).await {
        Ok(first) => known.send_replace(PartitionLookup::Known(first)),
        Err(error) => {
            known.send_replace(PartitionLookup::Failed(error));
            return;
        }
    };
    loop {
        let (transport, topics) = (Arc::clone(&logs.transport), [topic.clone()]);
        let [again] = recount(transport, Clock::System, topics, Some(&monitor)).await;
        known.send_replace(PartitionLookup::Known(again));
    }
}

/// Pulsar's `JavaStringHash`, the default hash for routing by message key: Java's `String.hashCode`
/// without its sign bit.
fn java_hash(key: &str) -> u32 {
    let hash = |hash: u32, unit| hash.wrapping_mul(31).wrapping_add(u32::from(unit));
    key.encode_utf16().fold(0, hash) & 0x7fff_ffff
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected values follow the definition of `String.hashCode` in Java's documentation, by
    /// hand for the short keys.
    #[test]
    fn keys_are_hashed_as_java_does() {
        // 'k' is 107; "ab" is 97 * 31 + 98; "polygenelubricants" is known to have the hash -2^31.
        for (key, hash) in [("", 0), ("k", 107), ("ab", 3_105), ("polygenelubricants", 0)] {
            assert_eq!(java_hash(key), hash, "{key}");
        }
        // Two units of UTF-16: 0xd83d * 31 + 0xde00.
        assert_eq!(java_hash("\u{1f600}"), 0xd83d * 31 + 0xde00);
    }
}
