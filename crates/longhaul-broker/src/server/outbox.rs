//! What a connection still has to send.

use super::messages::Stored;
use bytes::Bytes;
use longhaul_wire::messages::CommandMessage;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Bytes beyond which a connection is not read from: whoever takes no answers gets no more questions in.
const QUEUED_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A piece of what is to be sent.
#[derive(Debug)]
pub(super) enum Chunk {
    /// As it is. `credit` is what the machine counts for the deliveries in it.
    Ready {
        /// The bytes.
        bytes: Bytes,
        /// Bytes of deliveries.
        credit: u64,
    },
    /// A message that has to be read first.
    Stored {
        /// The command in front of it.
        command: CommandMessage,
        /// The message.
        stored: Stored,
        /// Bytes of deliveries.
        credit: u64,
    },
}

/// The queue between the driver, which never waits, and a connection.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    queue: Mutex<Queue>,
    /// Something was queued, or the connection is to end.
    filled: Notify,
    /// Something was sent.
    drained: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    chunks: VecDeque<Chunk>,
    bytes: usize,
    is_closing: bool,
}

/// What is to be sent now.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) chunks: VecDeque<Chunk>,
    /// Nothing will follow.
    pub(super) is_last: bool,
}

impl Outbox {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a piece.
    pub(super) fn push(&self, chunk: Chunk) {
        let mut queue = self.lock();
        if let Chunk::Ready { bytes, .. } = &chunk {
            queue.bytes += bytes.len();
        }
        queue.chunks.push_back(chunk);
        drop(queue);
        self.filled.notify_one();
    }

    /// Ends the connection when everything is sent.
    pub(super) fn close(&self) {
        self.lock().is_closing = true;
        self.filled.notify_one();
        self.drained.notify_one();
    }

    /// Waits for something to send.
    pub(super) async fn next(&self) -> Batch {
        loop {
            {
                let mut queue = self.lock();
                if !queue.chunks.is_empty() || queue.is_closing {
                    let chunks = std::mem::take(&mut queue.chunks);
                    return Batch { chunks, is_last: queue.is_closing };
                }
            }
            self.filled.notified().await;
        }
    }

    /// Notes that so many bytes of ready pieces were sent.
    pub(super) fn sent(&self, bytes: usize) {
        let mut queue = self.lock();
        queue.bytes = queue.bytes.saturating_sub(bytes);
        drop(queue);
        self.drained.notify_one();
    }

    /// Waits until the client has taken enough of its answers. Says whether the connection goes on.
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
