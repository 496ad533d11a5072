//! A queue between the driver and the services around it. Putting something in never waits, so the
//! driver cannot be held up by a slow broker; what bounds the queue is how much the driver has
//! under way: slots, heartbeats, and what `intake.rs` lets it hold.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

/// Beyond this something is wrong: the newest item is refused.
const ITEMS_MAX: usize = 1_000_000;

pub(super) struct Mailbox<T>(Arc<MailboxState<T>>);

struct MailboxState<T> {
    items: Mutex<VecDeque<T>>,
    arrived: Notify,
}

impl<T> Clone for Mailbox<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Mailbox<T> {
    pub(super) fn new() -> Self {
        Self(Arc::new(MailboxState { items: Mutex::new(VecDeque::new()), arrived: Notify::new() }))
    }

    /// Puts an item at the end.
    pub(super) fn put(&self, item: T) {
        let mut items = self.items();
        if items.len() < ITEMS_MAX {
            items.push_back(item);
            drop(items);
            self.0.arrived.notify_one();
        }
    }

    /// Puts an item in the place of all that is queued: a question that is not answered yet is of
    /// no use beside a newer one.
    pub(super) fn put_alone(&self, item: T) {
        self.clear();
        self.put(item);
    }

    /// Takes the first item; waits for one. May be dropped and called again.
    pub(super) async fn take(&self) -> T {
        loop {
            if let Some(item) = self.pop() {
                return item;
            }
            self.0.arrived.notified().await;
        }
    }

    /// Takes the first item, if there is one.
    pub(super) fn pop(&self) -> Option<T> {
        self.items().pop_front()
    }

    /// Waits until there is an item.
    pub(super) async fn arrived(&self) {
        while self.items().is_empty() {
            self.0.arrived.notified().await;
        }
    }

    /// Drops what is queued and for which this does not hold.
    pub(super) fn retain(&self, keep: impl FnMut(&T) -> bool) {
        self.items().retain(keep);
    }

    /// Drops what is queued.
    pub(super) fn clear(&self) {
        let dropped = std::mem::take(&mut *self.items());
        drop(dropped);
    }

    fn items(&self) -> std::sync::MutexGuard<'_, VecDeque<T>> {
        self.0.items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
