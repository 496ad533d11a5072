//! The partition of the next task: round robin, or by a key. The number of partitions is looked up
//! again every minute.
//!
//! One service per task topic looks the number up for all callers, and keeps the last known number
//! when a later lookup fails.

use super::folded::{FoldProgress, FoldedTopics, Folding};
use super::logs::Logs;
use crate::clock::Clock;
use crate::supervise::{count, recount};
use crate::transport::TransportError;
use std::sync::Arc;

/// The task topics that a client has submitted to.
#[derive(Debug)]
pub(super) struct Routes {
    logs: Logs,
    /// The number of partitions of each topic, and the turn of its next task.
    routes: FoldedTopics<u32, Option<u32>>,
}

impl Routes {
    pub(super) fn new(logs: Logs) -> Self {
        Self { logs, routes: FoldedTopics::default() }
    }

    /// The partition for the next task; -1 on an unpartitioned topic.
    pub(super) async fn next(&self, topic: &str) -> Result<i32, TransportError> {
        let take_turn = |turn: &mut u32| {
            let taken = *turn;
            *turn = turn.wrapping_add(1);
            taken
        };
        self.partition(topic, take_turn).await
    }

    /// The partition for tasks with this key; -1 on an unpartitioned topic. It is the one that
    /// Pulsar's Java client chooses by default for messages with that key.
    pub(super) async fn of_key(&self, topic: &str, key: &str) -> Result<i32, TransportError> {
        self.partition(topic, |_| java_hash(key)).await
    }

    async fn partition(
        &self,
        topic: &str,
        number: impl FnOnce(&mut u32) -> u32,
    ) -> Result<i32, TransportError> {
        let look = |folding| look(self.logs.clone(), topic.to_owned(), folding);
        let route = self.routes.of(topic, look);
        let Some(count) = route.read(topic).await? else { return Ok(-1) };
        let number = number(&mut route.lock());
        Ok(i32::try_from(number % count.max(1)).unwrap_or_default())
    }
}

/// The lookup service. It ends when the first lookup fails, so that the next caller starts it
/// again.
async fn look(logs: Logs, topic: String, folding: Folding<u32, Option<u32>>) {
    let monitor = logs.monitor();
    match count(&logs.transport, &topic).await {
        Ok(first) => folding.tell(FoldProgress::To(first)),
        Err(error) => return folding.tell(FoldProgress::Failed(error)),
    }
    loop {
        let (transport, topics) = (Arc::clone(&logs.transport), [topic.clone()]);
        let [again] = recount(transport, Clock::System, topics, Some(&monitor)).await;
        folding.tell(FoldProgress::To(again));
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
