//! One connection: decodes requests and sends answers.

use super::alarm::Alarm;
use super::driver::{BrokerEvent, BrokerEventSender};
use super::messages::Messages;
use super::outbox::{Outbox, OutboxChunk, SentOutput};
use super::requests::{REQUESTS_MAX, decoded_bytes, requests};
use super::unfinished::{PartialMessageBudget, Unfinished, late};
use crate::clock;
use crate::config::BrokerConfig;
use bytes::{Buf, Bytes, BytesMut};
use longhaul_wire::frame;
use longhaul_wire::messages::CommandPing;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

/// Minimum and maximum size of a connection's read buffer. Thousands of idle connections must be
/// cheap.
const READ_BYTES_MIN: usize = 2 * 1024;
const READ_BYTES_MAX: usize = 256 * 1024;
/// Bytes per read of stored messages.
const FETCH_BYTES: u64 = 1024 * 1024;
/// Parts of a client's input that may be on their way to the driver: the current one and the next.
const PARTS_UNDER_WAY: u32 = 2;
/// Memory limit for the queued requests of all connections, counted in units.
const QUEUE_UNIT_BYTES: usize = 1024;
const QUEUE_UNITS_MAX: u32 = 32 * 1024;
/// Pieces per system call.
const SLICES_MAX: usize = 32;
/// A client that takes no data for this time is disconnected.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// Settings and shared limits of a connection.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    pub(super) message_bytes_max: usize,
    pub(super) keep_alive: Duration,
    pub(super) handshake_timeout: Duration,
    /// Room for queued requests of all connections.
    pub(super) queue: Arc<Semaphore>,
    /// Room for incomplete messages of all connections.
    pub(super) unfinished: Arc<PartialMessageBudget>,
    /// Bytes of queued answers of all connections.
    pub(super) answers: Arc<AtomicUsize>,
    /// Bytes of sent deliveries after which the driver is told.
    pub(super) tell_after: u64,
}

impl Rules {
    pub(super) fn new(config: &BrokerConfig) -> Self {
        Self {
            message_bytes_max: config.message_bytes_max,
            keep_alive: config.keep_alive,
            handshake_timeout: config.handshake_timeout,
            queue: Self::queue(),
            unfinished: PartialMessageBudget::new(),
            answers: Arc::default(),
            tell_after: Self::tell_after(config.window_bytes),
        }
    }

    /// Room for queued requests.
    pub(super) fn queue() -> Arc<Semaphore> {
        Arc::new(Semaphore::new(QUEUE_UNITS_MAX as usize))
    }

    /// A quarter of the window: the driver is told rarely, and long before the window is full.
    pub(super) const fn tell_after(window_bytes: u64) -> u64 {
        let quarter = window_bytes / 4;
        if quarter > FETCH_BYTES { FETCH_BYTES } else { quarter + 1 }
    }
}

/// Room that requests take until they are answered or wait for the disk.
#[derive(Debug)]
pub(super) struct RequestPermit {
    _part: OwnedSemaphorePermit,
    _queued: OwnedSemaphorePermit,
}

/// The receiving half of a connection.
#[derive(Debug)]
pub(super) enum Incoming {
    /// Unencrypted.
    Plain(OwnedReadHalf),
    /// Encrypted.
    Tls(ReadHalf<TlsStream<TcpStream>>),
}

impl Incoming {
    async fn read(&mut self, buffer: &mut BytesMut) -> io::Result<usize> {
        match self {
            Self::Plain(half) => {
                let count = half.read_buf(buffer).await?;
                // A client with Nagle's algorithm sends its next command only after this one is
                // acknowledged. The flag does not last. If it cannot be set, the client waits about
                // 40 ms.
                #[cfg(target_os = "linux")]
                rustix::net::sockopt::set_tcp_quickack(half.as_ref(), true).ok();
                Ok(count)
            }
            Self::Tls(half) => half.read_buf(buffer).await,
        }
    }
}

/// Serves a connection until one side ends it.
pub(super) async fn serve(
    id: u64,
    incoming: Incoming,
    outgoing: impl AsyncWrite + Unpin,
    outbox: Arc<Outbox>,
    events: BrokerEventSender,
    messages: Messages,
    rules: Rules,
) {
    let reading = read(id, incoming, &outbox, &events, &rules);
    let writing = write(id, outgoing, &outbox, &events, &messages);
    // The first half to end closes the connection: a client that ends its output gets no more
    // input.
    tokio::select! {
        why = reading => {
            if let Err(error) = why {
                tracing::debug!(conn = id, %error, "connection ended");
            }
        }
        why = writing => {
            if let Err(error) = why {
                tracing::debug!(conn = id, %error, "connection ended");
            }
        }
        () = outbox.overfull() => {
            let error = late("the client does not read its answers");
            tracing::debug!(conn = id, %error, "connection ended");
        }
    }
    // Ignored if the driver has ended.
    events.send(BrokerEvent::Closed(id)).await.ok();
}

async fn read(
    id: u64,
    mut incoming: Incoming,
    outbox: &Outbox,
    events: &BrokerEventSender,
    rules: &Rules,
) -> io::Result<()> {
    let mut buffer = BytesMut::new();
    let mut size = READ_BYTES_MIN;
    let mut is_connected = false;
    let under_way = Arc::new(Semaphore::new(PARTS_UNDER_WAY as usize));
    let mut asked = false;
    let mut alarm = Alarm::new();
    let mut unfinished = Unfinished::new(Arc::clone(&rules.unfinished));
    let mut deadline = clock::monotonic() + rules.handshake_timeout;
    loop {
        let began = clock::monotonic();
        if !outbox.room().await {
            // The writing side ends the connection after its remaining output.
            return std::future::pending().await;
        }
        unfinished.stood_still(clock::monotonic().duration_since(began));
        let look_at = unfinished.wait(&buffer).await?;
        buffer.reserve(size);
        alarm.set(look_at.map_or(deadline, |at| at.min(deadline)));
        let count = tokio::select! {
            biased;
            count = incoming.read(&mut buffer) => Some(count?),
            () = alarm.rings() => None,
        };
        let Some(count) = count else {
            let now = clock::monotonic();
            unfinished.look(now)?;
            if now < deadline {
                continue;
            }
            if !is_connected || asked {
                return Err(late("the client is silent"));
            }
            (asked, deadline) = (true, now + rules.keep_alive);
            let mut ping = BytesMut::new();
            frame::encode(CommandPing {}, &mut ping);
            let bytes = ping.freeze();
            let credit = outbox.push(OutboxChunk::Ready { bytes, answers: 0, credit: 0 });
            // The driver must be told, whichever task notices it.
            if outbox.sent(SentOutput { credit, ..SentOutput::default() }) {
                events.send(BrokerEvent::Written(id)).await.ok();
            }
            continue;
        };
        if count == 0 {
            return Ok(());
        }
        asked = false;
        let received = clock::monotonic();
        // As much as the client sends at a time, with room to grow.
        size =
            if count >= size { (size * 2).min(READ_BYTES_MAX) } else { size.max(READ_BYTES_MIN) };
        let parsing =
            Parsing { is_connected: &mut is_connected, unfinished: &mut unfinished, received };
        if !hand_on(id, &mut buffer, parsing, outbox, events, rules, &under_way).await {
            // The writing side ends the connection after its remaining output.
            return std::future::pending().await;
        }
        if is_connected {
            deadline = clock::monotonic() + rules.keep_alive;
        }
        if buffer.is_empty() && size > READ_BYTES_MIN && count < size / 4 {
            size /= 2;
            buffer = BytesMut::new();
        }
    }
}

/// Parser state of a connection.
struct Parsing<'a> {
    is_connected: &'a mut bool,
    unfinished: &'a mut Unfinished,
    received: Instant,
}

/// Passes decoded requests on in parts, as the driver processes them and the client takes its
/// answers. Returns whether the connection continues.
async fn hand_on(
    id: u64,
    buffer: &mut BytesMut,
    parsing: Parsing<'_>,
    outbox: &Outbox,
    events: &BrokerEventSender,
    rules: &Rules,
    under_way: &Arc<Semaphore>,
) -> bool {
    loop {
        let limit = if *parsing.is_connected { rules.message_bytes_max } else { 0 };
        let Some(bytes) = decoded_bytes(buffer, limit) else {
            // Decodes nothing, and makes room in the buffer for the rest of the frame.
            requests(buffer, parsing.is_connected, rules.message_bytes_max, 1);
            return true;
        };
        // The message is whole: it is no longer one that others wait behind.
        parsing.unfinished.done();
        let Ok(mut part) = Arc::clone(under_way).acquire_owned().await else { return false };
        if !outbox.room().await {
            return false;
        }
        let units = u32::try_from(bytes / QUEUE_UNIT_BYTES + 1).unwrap_or(u32::MAX);
        let units = units.min(QUEUE_UNITS_MAX);
        // Before the requests are decoded, because they may take much more memory then.
        let Ok(queued) = Arc::clone(&rules.queue).acquire_many_owned(units).await else {
            return false;
        };
        let received = parsing.received;
        let parsed = requests(buffer, parsing.is_connected, rules.message_bytes_max, REQUESTS_MAX);
        if parsed.is_heavy {
            // A request with a large answer waits until everything before it is answered, and later
            // requests wait for its answer.
            let others = Arc::clone(under_way).acquire_many_owned(PARTS_UNDER_WAY - 1).await;
            let Ok(others) = others else { return false };
            part.merge(others);
        }
        let ticket = RequestPermit { _part: part, _queued: queued };
        if events.send(BrokerEvent::Requests(id, parsed.requests, received, ticket)).await.is_err()
            || parsed.is_broken
        {
            return false;
        }
        if !parsed.has_more {
            return true;
        }
    }
}

async fn write(
    id: u64,
    mut outgoing: impl AsyncWrite + Unpin,
    outbox: &Outbox,
    events: &BrokerEventSender,
    messages: &Messages,
) -> io::Result<()> {
    loop {
        let mut batch = outbox.next().await;
        let mut pieces = Pieces::default();
        while let Some(chunk) = batch.chunks.pop_front() {
            match chunk {
                OutboxChunk::Ready { bytes, answers, credit } => {
                    pieces.push(bytes, answers, credit);
                }
                OutboxChunk::Stored { command, stored: first, mut credit } => {
                    // Ready pieces need not wait for the disk.
                    pieces.send(id, &mut outgoing, outbox, events).await?;
                    let mut stored = vec![(command, first)];
                    while credit < FETCH_BYTES {
                        let Some(OutboxChunk::Stored { .. }) = batch.chunks.front() else { break };
                        let Some(OutboxChunk::Stored { command, stored: next, credit: more }) =
                            batch.chunks.pop_front()
                        else {
                            break;
                        };
                        stored.push((command, next));
                        credit += more;
                    }
                    let read = messages.read(id, stored).await?;
                    if !read.unreadable.is_empty() {
                        events.send(BrokerEvent::Unreadable(read.unreadable)).await.ok();
                    }
                    read.frames.into_iter().for_each(|bytes| pieces.push_stored(bytes));
                    pieces.sum.credit += credit;
                }
            }
            if pieces.len() >= FETCH_BYTES {
                pieces.send(id, &mut outgoing, outbox, events).await?;
            }
        }
        pieces.send(id, &mut outgoing, outbox, events).await?;
        outgoing.flush().await?;
        if batch.is_last {
            outgoing.shutdown().await.ok();
            return Ok(());
        }
    }
}

/// Pieces that are sent with one system call, if the system accepts them.
#[derive(Debug, Default)]
struct Pieces {
    bytes: VecDeque<Bytes>,
    /// What the outbox counts.
    sum: SentOutput,
    /// Bytes that the outbox does not count.
    stored: usize,
}

impl Pieces {
    fn push(&mut self, bytes: Bytes, answers: usize, credit: u64) {
        self.sum.ready += bytes.len();
        self.sum.answers += answers;
        self.sum.credit += credit;
        self.bytes.push_back(bytes);
    }

    fn push_stored(&mut self, bytes: Bytes) {
        self.stored += bytes.len();
        self.bytes.push_back(bytes);
    }

    const fn len(&self) -> u64 {
        (self.sum.ready + self.stored) as u64
    }

    /// Sends all pieces. A client may be slow, as long as it takes some data.
    async fn send(
        &mut self,
        id: u64,
        outgoing: &mut (impl AsyncWrite + Unpin),
        outbox: &Outbox,
        events: &BrokerEventSender,
    ) -> io::Result<()> {
        while !self.bytes.is_empty() {
            let stuck = |_| late("the client reads nothing");
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let pieces = slices.iter_mut().zip(&self.bytes);
            let count = pieces.map(|(slice, bytes)| *slice = IoSlice::new(bytes)).count();
            let slices = slices.get(..count).unwrap_or_default();
            let sent = timeout(WRITE_TIMEOUT, outgoing.write_vectored(slices));
            let sent = sent.await.map_err(stuck)??;
            if sent == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.advance(sent);
        }
        self.stored = 0;
        if outbox.sent(std::mem::take(&mut self.sum)) {
            events.send(BrokerEvent::Written(id)).await.ok();
        }
        Ok(())
    }

    /// Removes this many bytes from the front.
    fn advance(&mut self, mut count: usize) {
        while let Some(first) = self.bytes.front_mut() {
            if count < first.len() {
                return first.advance(count);
            }
            count -= first.len();
            self.bytes.pop_front();
        }
    }
}

/// Splits a connection.
pub(super) fn split(stream: TcpStream) -> (Incoming, impl AsyncWrite + Unpin) {
    let (read, write) = stream.into_split();
    (Incoming::Plain(read), write)
}

/// Splits an encrypted connection.
pub(super) fn split_tls(stream: TlsStream<TcpStream>) -> (Incoming, impl AsyncWrite + Unpin) {
    let (read, write) = tokio::io::split(stream);
    (Incoming::Tls(read), write)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::effect::ClientRequest;
    use longhaul_wire::messages::{CommandAck, MessageIdData};
    use std::pin::pin;

    fn rules() -> Rules {
        Rules {
            message_bytes_max: frame::MESSAGE_BYTES_MAX_DEFAULT,
            keep_alive: Duration::from_secs(30),
            handshake_timeout: Duration::from_secs(10),
            queue: Rules::queue(),
            unfinished: PartialMessageBudget::new(),
            answers: Arc::default(),
            tell_after: 1,
        }
    }

    /// An ACK of empty ids.
    fn ack(count: usize) -> BytesMut {
        let mut buffer = BytesMut::new();
        let message_id = vec![MessageIdData::default(); count];
        frame::encode(CommandAck { message_id, ..CommandAck::default() }, &mut buffer);
        buffer
    }

    /// Regression: requests were decoded before they waited for room. An ACK of 5 MB with empty ids
    /// took 193 MB, and 16 connections 1.3 GB.
    #[tokio::test]
    async fn requests_are_decoded_when_there_is_room_for_them() {
        let rules = rules();
        let (events, mut received) = tokio::sync::mpsc::channel(8);
        let (outbox, under_way) = (Outbox::new(1, Arc::default()), Arc::new(Semaphore::new(2)));
        let mut unfinished = Unfinished::new(Arc::clone(&rules.unfinished));
        let mut buffer = ack(1000);
        let size = buffer.len();
        let taken = Arc::clone(&rules.queue).acquire_many_owned(QUEUE_UNITS_MAX - 10).await;
        let mut is_connected = true;
        let received_at = clock::monotonic();
        let parsing = Parsing {
            is_connected: &mut is_connected,
            unfinished: &mut unfinished,
            received: received_at,
        };
        {
            let hand_on = hand_on(1, &mut buffer, parsing, &outbox, &events, &rules, &under_way);
            assert!(timeout(Duration::ZERO, pin!(hand_on)).await.is_err(), "there is no room");
        }
        assert_eq!(buffer.len(), size, "it was not decoded");
        drop(taken);
        let parsing = Parsing {
            is_connected: &mut is_connected,
            unfinished: &mut unfinished,
            received: received_at,
        };
        assert!(hand_on(1, &mut buffer, parsing, &outbox, &events, &rules, &under_way).await);
        let event = received.recv().await.unwrap();
        let BrokerEvent::Requests(1, requests, ..) = event else { panic!("no requests") };
        assert_eq!(requests.len(), 1);
        // An ACK above the limit of a command ends the connection.
        let mut buffer = ack(600_000);
        let parsing = Parsing {
            is_connected: &mut is_connected,
            unfinished: &mut unfinished,
            received: received_at,
        };
        assert!(!hand_on(1, &mut buffer, parsing, &outbox, &events, &rules, &under_way).await);
        let event = received.recv().await.unwrap();
        let BrokerEvent::Requests(_, requests, ..) = event else { panic!("no requests") };
        assert!(matches!(&requests[..], [ClientRequest::Garbage(_)]), "{requests:?}");
    }

    /// Regression: a client that takes nothing got updates of its watchers of topics without end.
    #[tokio::test]
    async fn a_client_that_takes_no_answers_is_disconnected() {
        let options = crate::log::LogOptions::default();
        let storage = crate::log::SimulatedStorage::new(1);
        let (_, log) = crate::kit::machine(crate::kit::settings(), &options, &storage, None);
        let messages = Messages::new(log.reader(), std::collections::HashMap::new());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (incoming, outgoing) = split(listener.accept().await.unwrap().0);
        let (events, mut received) = tokio::sync::mpsc::channel(8);
        let outbox = Arc::new(Outbox::new(1, Arc::default()));
        let size = 8 * 1024 * 1024;
        for _ in 0..10 {
            let bytes = Bytes::from(vec![0; size]);
            outbox.push(OutboxChunk::Ready { bytes, answers: size, credit: 0 });
        }
        let served = serve(1, incoming, outgoing, outbox, events, messages, rules());
        timeout(Duration::from_secs(20), served).await.expect("it is served on");
        assert!(matches!(received.recv().await, Some(BrokerEvent::Closed(1))));
        // Not all of it was sent.
        let mut taken = Vec::new();
        client.read_to_end(&mut taken).await.ok();
        assert!(taken.len() < 10 * size, "{}", taken.len());
    }
}
