//! The task that owns a connection: it moves bytes between the machine and the socket, and results
//! to their callers.
//!
//! The limits of the machine's callers bound every queue here: publishers by their room in bytes,
//! consumers by their permits, which the machine enforces against the broker, and questions by
//! their number. So the channel of calls needs no limit of its own, and no caller waits for a slow
//! broker while it blocks others.

use super::credentials::Credentials;
use super::detours::{Detour, Detours};
use super::dial::{Wire, foreign, greeting_failed, hung_up};
use super::error;
use super::machine::ConnectionMachine;
use super::machine::call::{BrokerResponse, ConnectionCall, ConnectionEvent};
use super::options::Endpoint;
use super::publisher::PublisherPermit;
use bytes::{Bytes, BytesMut};
use longhaul_transport::clock::Clock;
use longhaul_transport::{Message, OnAck, OnReceipt, TransportError, TransportErrorKind};
use longhaul_types::moment::Moment;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Sleep, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Calls that are processed in one step.
const CALLS_AT_ONCE_MAX: usize = 1_024;
/// Bytes that one read returns at most, except for large frames.
const READ_BYTES: usize = 64 * 1024;
/// Bytes that hold the length of a frame.
const FRAME_HEAD_BYTES: usize = 4;
/// Longest time to finish publishes and acks in flight after the last user has left.
const FAREWELL_TIME_MAX: Duration = Duration::from_secs(10);

/// The receiver of an answer.
#[derive(Debug)]
pub(super) enum ResponseChannel {
    /// A question.
    Question(oneshot::Sender<Result<BrokerResponse, TransportError>>),
    /// Opening a producer; also receives the end of the producer.
    Producer(oneshot::Sender<Result<BrokerResponse, TransportError>>, EndSignal),
    /// Opening a consumer; also receives its deliveries.
    Consumer(
        oneshot::Sender<Result<BrokerResponse, TransportError>>,
        mpsc::UnboundedSender<ConsumerDelivery>,
    ),
    /// An ack.
    Ack(OnAck),
}

/// The receiver of a receipt, and the room that the message occupies until then.
#[derive(Debug)]
pub(super) struct Unanswered {
    pub(super) on_receipt: OnReceipt,
    pub(super) _room: PublisherPermit,
}

/// Delivery to a consumer.
#[derive(Debug)]
pub(super) enum ConsumerDelivery {
    /// The messages of an entry.
    Entry(Vec<Message>),
    /// The topic was terminated, and nothing is left in it.
    Drained(TransportError),
    /// The consumer is over.
    Over(TransportError),
}

pub(super) type ConnectionCallSender =
    mpsc::UnboundedSender<ConnectionCall<ResponseChannel, Unanswered>>;
type DriverMachine = ConnectionMachine<ResponseChannel, Unanswered>;

/// A channel without a limit of its own. The limits of its users bound it: see the module's
/// documentation.
#[expect(clippy::disallowed_methods, reason = "permits, room and the number of questions bound it")]
pub(super) fn unbounded<T>() -> (mpsc::UnboundedSender<T>, mpsc::UnboundedReceiver<T>) {
    mpsc::unbounded_channel()
}

/// The end of a connection, producer or consumer, shared by all its parts. The first cause is kept.
#[derive(Clone, Debug, Default)]
pub(super) struct EndSignal {
    ended: CancellationToken,
    cause: Arc<OnceLock<TransportError>>,
}

impl EndSignal {
    pub(super) fn set(&self, cause: TransportError) {
        drop(self.cause.set(cause));
        self.ended.cancel();
    }

    pub(super) fn get(&self) -> Option<&TransportError> {
        self.cause.get()
    }

    /// Waits for the end.
    pub(super) async fn wait(&self) {
        self.ended.cancelled().await;
    }
}

/// See the module's documentation.
pub(super) struct ConnectionDriver {
    machine: DriverMachine,
    reader: ReadHalf<Wire>,
    writer: WriteHalf<Wire>,
    calls: mpsc::UnboundedReceiver<ConnectionCall<ResponseChannel, Unanswered>>,
    around: ConnectionContext,
    fresh: mpsc::Sender<Result<Option<Bytes>, TransportError>>,
    refreshed: mpsc::Receiver<Result<Option<Bytes>, TransportError>>,
    deliveries: HashMap<u64, mpsc::UnboundedSender<ConsumerDelivery>>,
    producers: HashMap<u64, EndSignal>,
    opened: Option<oneshot::Sender<Result<(), TransportError>>>,
    end: EndSignal,
    address: Arc<str>,
}

/// State of a driver besides its stream.
#[derive(Debug)]
pub(super) struct ConnectionContext {
    pub(super) clock: Clock,
    pub(super) credentials: Credentials,
    /// The credentials that the broker has been shown last.
    pub(super) shown: Option<Bytes>,
    /// The other end of the wire.
    pub(super) endpoint: Endpoint,
    /// Whether `endpoint` is a proxy.
    pub(super) proxied: bool,
    /// New places of moved topics.
    pub(super) detours: Arc<Detours>,
    pub(super) tracker: TaskTracker,
}

/// A step of the driver's loop.
enum DriverStep {
    Read(io::Result<usize>),
    /// Whether nothing is left to write.
    Wrote(io::Result<bool>),
    Calls(usize),
    Credentials(Result<Option<Bytes>, TransportError>),
    Due,
}

impl ConnectionDriver {
    /// Creates a driver for a connected stream, and the handle to call it. `opened` receives
    /// whether the broker has accepted the connection, or why not.
    pub(super) fn new(
        machine: DriverMachine,
        wire: Wire,
        around: ConnectionContext,
        opened: oneshot::Sender<Result<(), TransportError>>,
    ) -> (Self, ConnectionCallSender, EndSignal) {
        let (reader, writer) = tokio::io::split(wire);
        let (sender, calls) = unbounded();
        let (fresh, refreshed) = mpsc::channel(1);
        let end = EndSignal::default();
        let driver = Self {
            machine,
            reader,
            writer,
            calls,
            fresh,
            refreshed,
            deliveries: HashMap::new(),
            producers: HashMap::new(),
            opened: Some(opened),
            end: end.clone(),
            address: around.endpoint.to_string().into(),
            around,
        };
        (driver, sender, end)
    }

    /// Runs until the connection ends or has no users.
    pub(super) async fn run(mut self) {
        self.work().await;
        let gone = error::unreachable(&self.address, "the connection was closed");
        self.machine.fail(gone);
        // Calls that arrived meanwhile are answered too. `recv` and not `try_recv`, which overlooks
        // a call that is being sent.
        self.calls.close();
        while let Some(call) = self.calls.recv().await {
            self.machine.handle(call, self.around.clock.now());
        }
        self.pass_on();
        if let Some(cause) = self.machine.end() {
            if cause.kind == TransportErrorKind::Unauthorized {
                self.around.credentials.forget(self.around.shown.as_ref()).await;
            }
            tracing::debug!(address = %self.address, %cause, "connection over");
            self.end.set(cause.clone());
            if let Some(opened) = self.opened.take() {
                drop(opened.send(Err(cause.clone())));
            }
        }
        // The end of the stream informs the other end; an error changes nothing.
        drop(timeout(FAREWELL_TIME_MAX, self.writer.shutdown()).await);
    }

    async fn work(&mut self) {
        let mut inbox = BytesMut::with_capacity(READ_BYTES);
        let mut outbox = BytesMut::new();
        let mut batch = Vec::with_capacity(CALLS_AT_ONCE_MAX);
        let (mut flushed, mut used) = (true, true);
        let mut leaving: Option<Moment> = None;
        let mut alarm = DueTimer::new();
        loop {
            let now = self.around.clock.now();
            // In every round, and not only when the timer fires: with constant input it never
            // would.
            self.machine.tick(now);
            // Closes what was opened for callers that have left; the commands are written next.
            self.pass_on();
            self.machine.transmit(&mut outbox, now);
            self.pass_on();
            // After its end, the machine has no deadline.
            let Some(due) = self.machine.timeout() else { return };
            if !used {
                let until = *leaving.get_or_insert(now + FAREWELL_TIME_MAX);
                let done = outbox.is_empty() && flushed && self.machine.is_quiet();
                if done || now >= until {
                    return;
                }
            }
            alarm.set(leaving.map_or(due, |until| until.min(due)), now);
            // For the rest of a frame the decoder has already reserved the exact room.
            if inbox.len() < FRAME_HEAD_BYTES {
                inbox.reserve(READ_BYTES / 4);
            }
            let step = tokio::select! {
                biased;
                count = self.calls.recv_many(&mut batch, CALLS_AT_ONCE_MAX), if used => DriverStep::Calls(count),
                result = push(&mut self.writer, &mut outbox), if !outbox.is_empty() || !flushed => DriverStep::Wrote(result),
                result = self.reader.read_buf(&mut inbox) => DriverStep::Read(result),
                Some(data) = self.refreshed.recv() => DriverStep::Credentials(data),
                () = alarm.rings() => DriverStep::Due,
            };
            let now = self.around.clock.now();
            match step {
                DriverStep::Calls(0) => used = false,
                DriverStep::Calls(_) => {
                    for call in batch.drain(..) {
                        self.machine.handle(call, now);
                    }
                }
                DriverStep::Wrote(Ok(clean)) => flushed = clean,
                DriverStep::Read(Ok(0)) => return self.hung_up(),
                DriverStep::Read(Ok(_)) => self.read(&mut inbox, now),
                DriverStep::Wrote(Err(cause)) | DriverStep::Read(Err(cause)) => {
                    return self.broken(&cause);
                }
                DriverStep::Credentials(data) => {
                    match &data {
                        Ok(data) => self.around.shown.clone_from(data),
                        Err(cause) => {
                            tracing::warn!(address = %self.address, %cause, "cannot refresh the credentials for the broker");
                        }
                    }
                    let data = data.map(|data| data.map(Into::into));
                    self.machine.handle(ConnectionCall::Credentials(data), now);
                }
                DriverStep::Due => {}
            }
        }
    }

    fn read(&mut self, inbox: &mut BytesMut, now: Moment) {
        if !self.machine.is_open()
            && let Some(cause) = foreign(inbox)
        {
            return self.machine.fail(error::refused(&self.address, cause));
        }
        self.machine.receive(inbox, now);
        if self.machine.is_open()
            && let Some(opened) = self.opened.take()
        {
            // If the caller that opened the connection has given up, its handle is gone and the
            // driver ends.
            drop(opened.send(Ok(())));
        }
    }

    fn hung_up(&mut self) {
        let cause = if self.machine.is_open() {
            error::unreachable(&self.address, "the broker closed the connection")
        } else {
            hung_up(&self.around.endpoint)
        };
        self.machine.fail(cause);
    }

    fn broken(&mut self, cause: &io::Error) {
        let cause = if self.machine.is_open() {
            error::unreachable(&self.address, cause)
        } else {
            greeting_failed(&self.around.endpoint, cause)
        };
        self.machine.fail(cause);
    }

    /// Passes events on to their receivers.
    fn pass_on(&mut self) {
        while let Some(event) = self.machine.poll_event() {
            match event {
                ConnectionEvent::Published(Unanswered { on_receipt, _room }, result) => {
                    on_receipt.tell(result);
                }
                ConnectionEvent::Delivered { consumer, messages } => {
                    self.tell(consumer, ConsumerDelivery::Entry(messages))
                }
                ConnectionEvent::Answered(waiter, result) => self.answer(waiter, result),
                ConnectionEvent::ConsumerDrained(id, cause) => {
                    self.tell(id, ConsumerDelivery::Drained(cause))
                }
                ConnectionEvent::ConsumerEnded(id, cause) => {
                    self.tell(id, ConsumerDelivery::Over(cause));
                    self.deliveries.remove(&id);
                }
                ConnectionEvent::ProducerEnded(id, cause) => {
                    if let Some(end) = self.producers.remove(&id) {
                        end.set(cause);
                    }
                }
                ConnectionEvent::Moved(moved) => {
                    let ConnectionContext { endpoint, proxied, detours, clock, .. } = &self.around;
                    let detour = Detour { moved, by: endpoint.clone(), proxied: *proxied };
                    detours.note(detour, clock.now());
                }
                ConnectionEvent::Challenged => self.refresh(),
            }
        }
    }

    fn tell(&self, consumer: u64, delivery: ConsumerDelivery) {
        if let Some(sink) = self.deliveries.get(&consumer) {
            // If the handle is gone, the close of the consumer is already under way.
            drop(sink.send(delivery));
        }
    }

    fn answer(&mut self, waiter: ResponseChannel, result: Result<BrokerResponse, TransportError>) {
        match waiter {
            ResponseChannel::Ack(on_ack) => on_ack.tell(result.map(drop)),
            ResponseChannel::Question(asker) => drop(asker.send(result)),
            ResponseChannel::Producer(asker, end) => {
                let opened = match &result {
                    Ok(BrokerResponse::Producer { id, .. }) => Some(*id),
                    _ => None,
                };
                if let Some(id) = opened {
                    self.producers.insert(id, end);
                }
                if asker.send(result).is_err()
                    && let Some(id) = opened
                {
                    self.machine.handle(ConnectionCall::CloseProducer(id), self.around.clock.now());
                }
            }
            ResponseChannel::Consumer(asker, sink) => {
                let opened = match &result {
                    Ok(BrokerResponse::Consumer(id)) => Some(*id),
                    _ => None,
                };
                if let Some(id) = opened {
                    self.deliveries.insert(id, sink);
                }
                if asker.send(result).is_err()
                    && let Some(id) = opened
                {
                    self.machine.handle(ConnectionCall::CloseConsumer(id), self.around.clock.now());
                }
            }
        }
    }

    /// Gets fresh credentials: reads the token file again, or asks the issuer for a token that the
    /// broker has not seen.
    fn refresh(&self) {
        let ConnectionContext { credentials, shown, tracker, .. } = &self.around;
        let (credentials, shown) = (credentials.clone(), shown.clone());
        let fresh = self.fresh.clone();
        tracker.spawn(async move {
            credentials.forget(shown.as_ref()).await;
            // A connection that has ended ignores them.
            drop(fresh.try_send(credentials.data().await));
        });
    }
}

/// Writes a part of the outbox, or flushes the stream. Returns whether nothing is left. Cancel
/// safe.
async fn push(writer: &mut WriteHalf<Wire>, outbox: &mut BytesMut) -> io::Result<bool> {
    if outbox.is_empty() {
        writer.flush().await.map(|()| true)
    } else {
        writer.write_buf(outbox).await.map(|_| false)
    }
}

/// A timer that is rarely reset: the deadline moves with every frame, and the timer checks it at
/// the time of the old one.
struct DueTimer {
    sleep: std::pin::Pin<Box<Sleep>>,
    at: Option<Moment>,
}

impl DueTimer {
    fn new() -> Self {
        Self { sleep: Box::pin(sleep(Duration::ZERO)), at: None }
    }

    fn set(&mut self, due: Moment, now: Moment) {
        if self.at.is_none_or(|at| due < at) {
            self.at = Some(due);
            self.sleep = Box::pin(sleep(due.since(now)));
        }
    }

    async fn rings(&mut self) {
        self.sleep.as_mut().await;
        self.at = None;
    }
}

#[cfg(test)]
mod tests;
