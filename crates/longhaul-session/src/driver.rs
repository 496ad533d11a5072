//! The task that owns a connection: it moves bytes between the machine and the socket, and results
//! to those who wait.
//!
//! What waits here is bounded by what the machine's callers may have under way: publishers by their
//! room in bytes, consumers by their permits, to which the machine holds the broker, questions by
//! their number. So the channel of calls needs no bound of its own, and nobody who has something to
//! say ever waits for a slow broker while holding something else up.

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

/// Calls that are taken at once.
const CALLS_AT_ONCE_MAX: usize = 1_024;
/// What is read at once, at most, but for large frames.
const READ_BYTES: usize = 64 * 1024;
/// By these a frame says how long it is.
const FRAME_HEAD_BYTES: usize = 4;
/// How long what is under way when the last user leaves may take: publishes to be stored, acks to
/// be taken.
const FAREWELL_TIME_MAX: Duration = Duration::from_secs(10);

/// Who waits for an answer.
#[derive(Debug)]
pub(super) enum ResponseChannel {
    /// Somebody with a question.
    Question(oneshot::Sender<Result<BrokerResponse, TransportError>>),
    /// Somebody who opens a producer; it learns here when the producer is over.
    Producer(oneshot::Sender<Result<BrokerResponse, TransportError>>, EndSignal),
    /// Somebody who opens a consumer, and takes its deliveries.
    Consumer(
        oneshot::Sender<Result<BrokerResponse, TransportError>>,
        mpsc::UnboundedSender<ConsumerDelivery>,
    ),
    /// Somebody with an ack.
    Ack(OnAck),
}

/// Who waits for a receipt, and the room that the message takes until then.
#[derive(Debug)]
pub(super) struct Unanswered {
    pub(super) on_receipt: OnReceipt,
    pub(super) _room: PublisherPermit,
}

/// What a consumer is told.
#[derive(Debug)]
pub(super) enum ConsumerDelivery {
    /// The messages of an entry.
    Entry(Vec<Message>),
    /// It is over.
    Over(TransportError),
}

pub(super) type ConnectionCallSender =
    mpsc::UnboundedSender<ConnectionCall<ResponseChannel, Unanswered>>;
type DriverMachine = ConnectionMachine<ResponseChannel, Unanswered>;

/// A channel without a bound of its own. What goes through one is bounded by what its users may
/// have under way: see the module's documentation.
#[expect(clippy::disallowed_methods, reason = "permits, room and the number of questions bound it")]
pub(super) fn unbounded<T>() -> (mpsc::UnboundedSender<T>, mpsc::UnboundedReceiver<T>) {
    mpsc::unbounded_channel()
}

/// How something ended, known to all who hold a piece of it. The first cause is the true one.
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

/// What a driver has to do with, beside its wire.
#[derive(Debug)]
pub(super) struct ConnectionContext {
    pub(super) clock: Clock,
    pub(super) credentials: Credentials,
    /// Of these, what the broker has been shown last.
    pub(super) shown: Option<Bytes>,
    /// The other end of the wire.
    pub(super) endpoint: Endpoint,
    /// That is a proxy.
    pub(super) proxied: bool,
    /// Where topics go.
    pub(super) detours: Arc<Detours>,
    pub(super) tracker: TaskTracker,
}

/// A step of the driver's loop.
enum DriverStep {
    Read(io::Result<usize>),
    /// Whether nothing is left to be written.
    Wrote(io::Result<bool>),
    Calls(usize),
    Credentials(Result<Option<Bytes>, TransportError>),
    Due,
}

impl ConnectionDriver {
    /// A driver for a wire that is connected, and where to call it. `opened` is told when the
    /// broker has taken us in, or why not.
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

    /// Works until the connection ends, or nobody uses it any more.
    pub(super) async fn run(mut self) {
        self.work().await;
        let gone = error::unreachable(&self.address, "the connection was closed");
        self.machine.fail(gone);
        // What was called meanwhile is answered too. Not by `try_recv`: that overlooks a call which
        // is just being made.
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
        // Who is at the other end learns of it by the end of the stream; an error changes nothing.
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
            // Not only when the alarm rings: while there is always something to read it would never
            // be heard.
            self.machine.tick(now);
            // What was opened and nobody waits for any more is closed here, which is written next.
            self.pass_on();
            self.machine.transmit(&mut outbox, now);
            self.pass_on();
            // Nothing is due any more when it has ended.
            let Some(due) = self.machine.timeout() else { return };
            if !used {
                let until = *leaving.get_or_insert(now + FAREWELL_TIME_MAX);
                let done = outbox.is_empty() && flushed && self.machine.is_quiet();
                if done || now >= until {
                    return;
                }
            }
            alarm.set(leaving.map_or(due, |until| until.min(due)), now);
            // For the rest of a frame that has begun the decoder has made room, to the byte.
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
                            tracing::warn!(address = %self.address, %cause, "no fresh credentials for the broker");
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
            // Whoever opened us may have given up; then we end with the last handle, which is gone
            // already.
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

    /// Tells everybody what happened.
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
            // A handle that is gone has said so, and the consumer is about to be closed.
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

    /// Gets fresh credentials: a token's file is read again, and an issuer asked for another token
    /// than the broker has seen.
    fn refresh(&self) {
        let ConnectionContext { credentials, shown, tracker, .. } = &self.around;
        let (credentials, shown) = (credentials.clone(), shown.clone());
        let fresh = self.fresh.clone();
        tracker.spawn(async move {
            credentials.forget(shown.as_ref()).await;
            // A connection that has ended wants none any more.
            drop(fresh.try_send(credentials.data().await));
        });
    }
}

/// Writes a part of what waits, or lets the stream pass on what it holds back. Says whether nothing
/// is left. May be dropped.
async fn push(writer: &mut WriteHalf<Wire>, outbox: &mut BytesMut) -> io::Result<bool> {
    if outbox.is_empty() {
        writer.flush().await.map(|()| true)
    } else {
        writer.write_buf(outbox).await.map(|_| false)
    }
}

/// A timer that is rarely set: what is due moves on with every frame, and is looked at when it
/// would have been due.
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
