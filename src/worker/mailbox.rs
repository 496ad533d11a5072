//! A queue between the driver and the services around it. Putting an item in never waits, so a slow
//! broker cannot hold up the driver. The driver's own limits bound the queue: slots, heartbeats,
//! and the load that `intake.rs` allows.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

/// Maximum number of items: beyond it the newest item is refused, because something is wrong.
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

impl<T> std::fmt::Debug for Mailbox<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Mailbox")
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

    /// Replaces all queued items by this one: an unanswered question is useless beside a newer one.
    pub(super) fn put_alone(&self, item: T) {
        self.clear();
        self.put(item);
    }

    /// Takes the first item; waits for one. Cancel-safe.
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

    /// Takes all items that are there.
    pub(super) fn take_all(&self) -> VecDeque<T> {
        std::mem::take(&mut *self.items())
    }

    /// Waits until there is an item.
    pub(super) async fn arrived(&self) {
        while self.items().is_empty() {
            self.0.arrived.notified().await;
        }
    }

    /// Keeps only the queued items for which `keep` returns true.
    pub(super) fn retain(&self, keep: impl FnMut(&T) -> bool) {
        self.items().retain(keep);
    }

    /// Drops all queued items.
    pub(super) fn clear(&self) {
        drop(self.take_all());
    }

    fn items(&self) -> std::sync::MutexGuard<'_, VecDeque<T>> {
        self.0.items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
