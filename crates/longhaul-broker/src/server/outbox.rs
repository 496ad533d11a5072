//! The outgoing queue of a connection.

use super::messages::Stored;
use bytes::Bytes;
use longhaul_wire::messages::CommandMessage;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Queued bytes above which a connection is not read from: a client that takes no answers may send
/// no further requests.
const QUEUED_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A piece of the output.
#[derive(Debug)]
pub(super) enum OutboxChunk {
    /// Ready bytes. `credit` is the number that the machine counts for the deliveries in them.
    Ready {
        /// The bytes.
        bytes: Bytes,
        /// Bytes of deliveries.
        credit: u64,
    },
    /// A message that must be read first.
    Stored {
        /// The command before the message.
        command: CommandMessage,
        /// The message.
        stored: Stored,
        /// Bytes of deliveries.
        credit: u64,
    },
}

/// The queue from the driver, which never waits, to a connection.
#[derive(Debug)]
pub(super) struct Outbox {
    queue: Mutex<OutboxQueue>,
    /// Signals new output, or the end of the connection.
    filled: Notify,
    /// Signals that output was sent.
    drained: Notify,
    /// Bytes of sent deliveries after which the driver is told.
    tell_after: u64,
}

#[derive(Debug, Default)]
struct OutboxQueue {
    chunks: VecDeque<OutboxChunk>,
    bytes: usize,
    is_closing: bool,
    /// Bytes of sent deliveries that the driver does not know yet.
    sent: u64,
}

/// Output to send now.
#[derive(Debug)]
pub(super) struct OutboxBatch {
    pub(super) chunks: VecDeque<OutboxChunk>,
    /// Whether nothing will follow.
    pub(super) is_last: bool,
}

impl Outbox {
    /// An empty queue. The driver is told of sent deliveries once they reach this many bytes; it
    /// asks for the rest.
    pub(super) fn new(tell_after: u64) -> Self {
        let queue = Mutex::default();
        Self { queue, filled: Notify::new(), drained: Notify::new(), tell_after }
    }

    fn lock(&self) -> MutexGuard<'_, OutboxQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a piece. Returns the bytes of deliveries that were sent since the last time.
    pub(super) fn push(&self, chunk: OutboxChunk) -> u64 {
        let mut queue = self.lock();
        if let OutboxChunk::Ready { bytes, .. } = &chunk {
            queue.bytes += bytes.len();
        }
        queue.chunks.push_back(chunk);
        let sent = std::mem::take(&mut queue.sent);
        drop(queue);
        self.filled.notify_one();
        sent
    }

    /// Bytes of deliveries that were sent since the last time.
    pub(super) fn take_sent(&self) -> u64 {
        std::mem::take(&mut self.lock().sent)
    }

    /// Ends the connection after everything was sent.
    pub(super) fn close(&self) {
        self.lock().is_closing = true;
        self.filled.notify_one();
        self.drained.notify_one();
    }

    /// Waits for output.
    pub(super) async fn next(&self) -> OutboxBatch {
        loop {
            {
                let mut queue = self.lock();
                if !queue.chunks.is_empty() || queue.is_closing {
                    let chunks = std::mem::take(&mut queue.chunks);
                    return OutboxBatch { chunks, is_last: queue.is_closing };
                }
            }
            self.filled.notified().await;
        }
    }

    /// Notes that these bytes of ready pieces and of deliveries were sent. Returns whether the
    /// driver must be told.
    pub(super) fn sent(&self, bytes: usize, credit: u64) -> bool {
        let mut queue = self.lock();
        let had_room = queue.bytes <= QUEUED_BYTES_MAX;
        queue.bytes = queue.bytes.saturating_sub(bytes);
        let before = queue.sent;
        queue.sent += credit;
        let tell = before < self.tell_after && queue.sent >= self.tell_after;
        drop(queue);
        if !had_room {
            self.drained.notify_one();
        }
        tell
    }

    /// Waits until the client has taken enough of its answers. Returns whether the connection
    /// continues.
    pub(super) async fn room(&self) -> bool {
        loop {
            {
                let queue = self.lock();
                if queue.is_closing {
                    return false;
                }
                if queue.bytes <= QUEUED_BYTES_MAX {
                    return true;
                }
            }
            self.drained.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(size: usize) -> OutboxChunk {
        OutboxChunk::Ready { bytes: Bytes::from(vec![0; size]), credit: 0 }
    }

    /// Each sent delivery woke the driver, only to free room that nobody waited for.
    #[test]
    fn the_driver_is_told_of_much_and_asks_for_the_rest() {
        let outbox = Outbox::new(100);
        assert!(!outbox.sent(10, 40) && !outbox.sent(10, 59));
        assert!(outbox.sent(10, 1), "a hundred bytes");
        assert!(!outbox.sent(10, 500), "it is told already");
        assert_eq!((outbox.take_sent(), outbox.take_sent()), (600, 0));
        assert!(!outbox.sent(1, 99));
        assert_eq!(outbox.push(ready(1)), 99, "whoever has more to send learns it by the way");
        assert!(!outbox.sent(1, 99) && outbox.sent(1, 1));
    }

    #[tokio::test]
    async fn a_connection_that_takes_nothing_is_not_read_from_until_it_does() {
        let outbox = Outbox::new(1);
        outbox.push(ready(QUEUED_BYTES_MAX));
        assert!(outbox.room().await, "exactly full");
        outbox.push(ready(1));
        let freed = async {
            assert_eq!(outbox.next().await.chunks.len(), 2);
            outbox.sent(1, 0);
        };
        assert!(tokio::join!(outbox.room(), freed).0);
        outbox.close();
        assert!(!outbox.room().await && outbox.next().await.is_last);
    }
}
