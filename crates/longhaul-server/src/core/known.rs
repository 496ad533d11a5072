//! The existing queues, as last reported by the admin API.
//!
//! Every request checks that its queue exists. The answer is cached, and refreshed by one request
//! at a time. While the admin API is unavailable, the last answer stays valid: tasks can be
//! submitted as long as the broker accepts them.

use super::QueueName;
use crate::clock::{self, Stopwatch};
use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

/// How long an answer is valid without a refresh.
const FRESH_MAX: Duration = Duration::from_secs(60);

/// The minimum interval between queries for queues that the admin API has reported before.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// The most queues that are kept when one of them is found by its name.
const FOUND_MAX: usize = 10_000;

/// The cached queues.
#[derive(Debug, Default)]
pub(super) struct KnownQueues {
    queues: RwLock<HashMap<QueueName, KnownQueue>>,
    /// Held during a query; contains the start of the last one.
    pub(super) asking: tokio::sync::Mutex<LastAdminQuery>,
}

/// The last query to the admin API.
#[derive(Debug, Default)]
pub(super) struct LastAdminQuery {
    at: Option<Stopwatch>,
    /// The query had no answer.
    pub(super) failed: bool,
}

#[derive(Clone, Copy, Debug)]
struct KnownQueue {
    at: Stopwatch,
    has_levels: bool,
}

impl LastAdminQuery {
    /// Whether a request that came at this time should query the admin API; `is_told` if the API
    /// has reported its queue before. If so, records the query. A request that came before the last
    /// query uses that answer. So a queue created elsewhere is found at once, and concurrent
    /// requests send one query.
    pub(super) fn may_ask(&mut self, came: Stopwatch, is_told: bool) -> bool {
        let rests = |at: Stopwatch| is_told && at.read() < ASK_EVERY;
        let may = self.at.is_none_or(|at| at.read() > came.read() && !rests(at));
        if may {
            *self = Self { at: Some(clock::stopwatch()), failed: false };
        }
        may
    }
}

impl KnownQueues {
    /// Whether a queue has levels, if a recent answer exists.
    pub(super) fn fresh(&self, queue: &QueueName) -> Option<bool> {
        let queues = self.queues.read().unwrap_or_else(PoisonError::into_inner);
        queues.get(queue).filter(|seen| seen.at.read() < FRESH_MAX).map(|seen| seen.has_levels)
    }

    /// Whether a queue has levels, by the last answer.
    pub(super) fn last(&self, queue: &QueueName) -> Option<bool> {
        let queues = self.queues.read().unwrap_or_else(PoisonError::into_inner);
        queues.get(queue).map(|seen| seen.has_levels)
    }

    /// Replaces the cached queues by these.
    pub(super) fn told(&self, all: impl IntoIterator<Item = (QueueName, bool)>) {
        let at = clock::stopwatch();
        let seen = |(queue, has_levels)| (queue, KnownQueue { at, has_levels });
        let all = all.into_iter().map(seen).collect();
        *self.queues.write().unwrap_or_else(PoisonError::into_inner) = all;
    }

    /// Adds a queue that the broker has.
    pub(super) fn found(&self, queue: &QueueName, has_levels: bool) {
        let mut queues = self.queues.write().unwrap_or_else(PoisonError::into_inner);
        if queues.len() >= FOUND_MAX {
            queues.clear();
        }
        queues.insert(queue.clone(), KnownQueue { at: clock::stopwatch(), has_levels });
    }

    /// Removes a queue that the broker does not have.
    pub(super) fn lost(&self, queue: &QueueName) {
        self.queues.write().unwrap_or_else(PoisonError::into_inner).remove(queue);
    }

    /// Forgets a queue that was created, changed or deleted: the next request queries the admin
    /// API.
    pub(super) async fn forget(&self, queue: &QueueName) {
        self.lost(queue);
        *self.asking.lock().await = LastAdminQuery::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> QueueName {
        QueueName::parse(text).unwrap()
    }

    #[tokio::test]
    async fn what_was_told_counts_until_it_is_told_otherwise() {
        let known = KnownQueues::default();
        assert_eq!((known.fresh(&name("a")), known.last(&name("a"))), (None, None));
        known.told([(name("a"), true), (name("b"), false)]);
        assert_eq!((known.fresh(&name("a")), known.last(&name("b"))), (Some(true), Some(false)));
        known.told([(name("b"), true)]);
        assert_eq!((known.last(&name("a")), known.fresh(&name("b"))), (None, Some(true)));
        known.forget(&name("b")).await;
        assert_eq!(known.last(&name("b")), None);
    }

    #[tokio::test]
    async fn the_admin_api_is_asked_once_for_all_who_came_before_and_at_once_after_a_change() {
        let known = KnownQueues::default();
        let came = clock::stopwatch();
        tokio::time::sleep(Duration::from_millis(2)).await;
        assert!(known.asking.lock().await.may_ask(came, false));
        assert!(!known.asking.lock().await.may_ask(came, false), "who came before has that answer");
        tokio::time::sleep(Duration::from_millis(2)).await;
        let later = clock::stopwatch();
        assert!(!known.asking.lock().await.may_ask(later, true), "it was told, and asked just now");
        assert!(known.asking.lock().await.may_ask(later, false), "it may have been made meanwhile");
        known.forget(&name("a")).await;
        assert!(known.asking.lock().await.may_ask(came, true));
    }

    #[test]
    fn queues_that_are_found_by_name_do_not_add_up() {
        let known = KnownQueues::default();
        for number in 0..=FOUND_MAX {
            known.found(&name(&format!("q{number}")), true);
        }
        assert_eq!(known.last(&name(&format!("q{FOUND_MAX}"))), Some(true));
        assert!(known.queues.read().unwrap().len() <= FOUND_MAX);
    }
}
