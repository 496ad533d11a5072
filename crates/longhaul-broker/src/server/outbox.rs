//! The outgoing queue of a connection.

use super::messages::Stored;
use bytes::Bytes;
use longhaul_wire::messages::CommandMessage;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Queued bytes above which a connection is not read from: a client that takes no answers may send
/// no further requests.
const QUEUED_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Bytes of queued answers over all connections above which a connection is not read from whose own
/// are more than [`ANSWER_BYTES_SHARE`]. Deliveries do not count, because permits and the window
/// limit them: the acknowledgements of a consumer are read however slowly it takes its messages.
const ANSWER_BYTES_MAX: usize = 128 * 1024 * 1024;
/// Bytes of queued answers above which a connection is closed. A client that is not read from still
/// gets the updates of its watchers of topics, for which it need not ask again. The largest answer
/// does not count: a list of many topics may be larger.
const OWN_ANSWER_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Some thousand receipts.
const ANSWER_BYTES_SHARE: usize = 64 * 1024;

/// A piece of the output.
#[derive(Debug)]
pub(super) enum OutboxChunk {
    /// Ready bytes. `credit` is the number that the machine counts for the deliveries in them.
    Ready {
        /// The bytes.
        bytes: Bytes,
        /// How many of them are answers.
        answers: usize,
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
    /// Signals that output was sent for which the reading side waits.
    drained: Notify,
    /// Signals that the client leaves too many answers unread.
    overfull: Notify,
    /// Bytes of queued answers of all connections.
    all_answers: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct OutboxQueue {
    chunks: VecDeque<OutboxChunk>,
    bytes: usize,
    /// How many of the bytes are answers.
    answers: usize,
    /// Answers of the largest piece since there were none.
    largest: usize,
    /// Whether the reading side waits for room.
    is_waited_for: bool,
    is_closing: bool,
    /// Bytes of sent deliveries that the driver does not know yet.
    sent: u64,
    /// How many there are when it is told.
    tell_after: u64,
}

/// Output to send now.
#[derive(Debug)]
pub(super) struct OutboxBatch {
    pub(super) chunks: VecDeque<OutboxChunk>,
    /// Whether nothing will follow.
    pub(super) is_last: bool,
}

/// Bytes that were sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SentOutput {
    /// Bytes of ready pieces.
    pub(super) ready: usize,
    /// How many of these are answers.
    pub(super) answers: usize,
    /// Bytes of deliveries.
    pub(super) credit: u64,
}

impl Outbox {
    /// An empty queue. The driver is told of sent deliveries once they reach this many bytes; it
    /// asks for the rest.
    pub(super) fn new(tell_after: u64, all_answers: Arc<AtomicUsize>) -> Self {
        Self {
            queue: Mutex::new(OutboxQueue { tell_after, ..OutboxQueue::default() }),
            filled: Notify::new(),
            drained: Notify::new(),
            overfull: Notify::new(),
            all_answers,
        }
    }

    fn lock(&self) -> MutexGuard<'_, OutboxQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a piece. Returns the bytes of deliveries that were sent since the last time.
    pub(super) fn push(&self, chunk: OutboxChunk) -> u64 {
        let mut queue = self.lock();
        if let OutboxChunk::Ready { bytes, answers, .. } = &chunk {
            queue.bytes += bytes.len();
            queue.answers += answers;
            queue.largest = queue.largest.max(*answers);
            self.all_answers.fetch_add(*answers, Ordering::Relaxed);
        }
        queue.chunks.push_back(chunk);
        let sent = std::mem::take(&mut queue.sent);
        let is_overfull = queue.answers.saturating_sub(queue.largest) > OWN_ANSWER_BYTES_MAX;
        drop(queue);
        if is_overfull {
            self.overfull.notify_one();
        }
        self.filled.notify_one();
        sent
    }

    /// Sets the bytes of sent deliveries after which the driver is told. It asks for those that were
    /// sent so far.
    pub(super) fn tell_after(&self, bytes: u64) {
        self.lock().tell_after = bytes;
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

    /// Notes what was sent. Returns whether the driver must be told.
    pub(super) fn sent(&self, output: SentOutput) -> bool {
        let mut queue = self.lock();
        queue.bytes = queue.bytes.saturating_sub(output.ready);
        queue.answers = queue.answers.saturating_sub(output.answers);
        if queue.answers == 0 {
            queue.largest = 0;
        }
        let before = queue.sent;
        queue.sent += output.credit;
        let tell = before < queue.tell_after && queue.sent >= queue.tell_after;
        let is_waited_for = std::mem::take(&mut queue.is_waited_for);
        drop(queue);
        self.all_answers.fetch_sub(output.answers, Ordering::Relaxed);
        if is_waited_for {
            self.drained.notify_one();
        }
        tell
    }

    /// Waits until the client leaves so many answers unread that its connection must be closed.
    pub(super) async fn overfull(&self) {
        self.overfull.notified().await;
    }

    /// Waits until the client has taken enough of its answers. Returns whether the connection
    /// continues.
    pub(super) async fn room(&self) -> bool {
        loop {
            {
                let mut queue = self.lock();
                if queue.is_closing {
                    return false;
                }
                let has_share = queue.answers <= ANSWER_BYTES_SHARE
                    || self.all_answers.load(Ordering::Relaxed) <= ANSWER_BYTES_MAX;
                if queue.bytes <= QUEUED_BYTES_MAX && has_share {
                    return true;
                }
                queue.is_waited_for = true;
            }
            self.drained.notified().await;
        }
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        let queue = self.queue.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.all_answers.fetch_sub(queue.answers, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Waker};

    fn ready(size: usize) -> OutboxChunk {
        OutboxChunk::Ready { bytes: Bytes::from(vec![0; size]), answers: size, credit: 0 }
    }

    fn delivery(size: usize) -> OutboxChunk {
        OutboxChunk::Ready { bytes: Bytes::from(vec![0; size]), answers: 0, credit: size as u64 }
    }

    fn credit(credit: u64) -> SentOutput {
        SentOutput { credit, ..SentOutput::default() }
    }

    /// Each sent delivery woke the driver, only to free room that nobody waited for.
    #[test]
    fn the_driver_is_told_of_much_and_asks_for_the_rest() {
        let outbox = Outbox::new(100, Arc::default());
        assert!(!outbox.sent(credit(40)) && !outbox.sent(credit(59)));
        assert!(outbox.sent(credit(1)), "a hundred bytes");
        assert!(!outbox.sent(credit(500)), "it is told already");
        assert_eq!((outbox.take_sent(), outbox.take_sent()), (600, 0));
        assert!(!outbox.sent(credit(99)));
        assert_eq!(outbox.push(ready(1)), 99, "whoever has more to send learns it by the way");
        assert!(!outbox.sent(credit(99)) && outbox.sent(credit(1)));
    }

    #[tokio::test]
    async fn a_connection_that_takes_nothing_is_not_read_from_until_it_does() {
        let outbox = Outbox::new(1, Arc::default());
        outbox.push(ready(QUEUED_BYTES_MAX));
        assert!(outbox.room().await, "exactly full");
        outbox.push(ready(1));
        let freed = async {
            assert_eq!(outbox.next().await.chunks.len(), 2);
            outbox.sent(SentOutput { ready: 1, answers: 1, credit: 0 });
        };
        assert!(tokio::join!(outbox.room(), freed).0);
        outbox.close();
        assert!(!outbox.room().await && outbox.next().await.is_last);
    }

    /// Regression: nothing limited the answers of all connections together. The first limit counted
    /// deliveries, too, and then the acknowledgements of slow consumers were not read any more.
    #[test]
    fn answers_that_nobody_takes_stop_those_who_ask_and_not_those_who_acknowledge() {
        let all = Arc::new(AtomicUsize::new(0));
        let new = || Outbox::new(1, Arc::clone(&all));
        let has_room = |outbox: &Outbox| {
            pin!(outbox.room()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
        };
        let takes_nothing: Vec<_> = (0..9).map(|_| new()).collect();
        for outbox in &takes_nothing {
            outbox.push(ready(QUEUED_BYTES_MAX));
        }
        assert!(!takes_nothing.iter().any(has_room), "none of them is over its own limit");
        let (slow_consumer, asks) = (new(), new());
        slow_consumer.push(delivery(QUEUED_BYTES_MAX));
        assert!(has_room(&slow_consumer), "its acknowledgements are read");
        asks.push(ready(ANSWER_BYTES_SHARE));
        assert!(has_room(&asks));
        asks.push(ready(1));
        assert!(!has_room(&asks), "it has to take its answers first");
        asks.sent(SentOutput { ready: 1, answers: 1, credit: 0 });
        assert!(has_room(&asks));
        // They are disconnected with what they have not taken.
        drop(takes_nothing);
        assert_eq!(all.load(Ordering::Relaxed), ANSWER_BYTES_SHARE);
        asks.push(ready(1));
        assert!(has_room(&asks));
    }

    /// Regression: a connection that was not read from got updates of its watchers of topics without
    /// end.
    #[test]
    fn a_connection_with_too_many_unread_answers_is_closed() {
        let is_overfull = |outbox: &Outbox| {
            pin!(outbox.overfull()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
        };
        let outbox = Outbox::new(1, Arc::default());
        outbox.push(ready(3 * OWN_ANSWER_BYTES_MAX));
        outbox.push(delivery(OWN_ANSWER_BYTES_MAX));
        outbox.push(ready(OWN_ANSWER_BYTES_MAX));
        assert!(!is_overfull(&outbox), "one answer may be large, and deliveries do not count");
        outbox.push(ready(1));
        assert!(is_overfull(&outbox));
        let outbox = Outbox::new(1, Arc::default());
        outbox.push(ready(OWN_ANSWER_BYTES_MAX));
        let (ready_bytes, answers) = (OWN_ANSWER_BYTES_MAX, OWN_ANSWER_BYTES_MAX);
        outbox.sent(SentOutput { ready: ready_bytes, answers, credit: 0 });
        for _ in 0..4 {
            outbox.push(ready(OWN_ANSWER_BYTES_MAX / 4));
        }
        assert!(!is_overfull(&outbox));
        outbox.push(ready(OWN_ANSWER_BYTES_MAX / 4));
        assert!(!is_overfull(&outbox), "the largest one does not count");
        outbox.push(ready(1));
        assert!(is_overfull(&outbox), "the one that was sent counts no more");
    }
}
