//! A driver in simulated time, connected by a pipe with a small buffer.

use super::super::consumer::SessionConsumer;
use super::super::fake_driver::{message, soon};
use super::super::link::ConnectionHandle;
use super::super::machine::call::{
    BrokerRequest, ConsumerOptions, LookupQuestion, ProducerOptions, Publication, SubscriptionSpec,
};
use super::super::machine::{ConnectionTimeouts, Greeting};
use super::super::options::endpoints;
use super::super::publisher::SessionPublisher;
use super::*;
use futures::FutureExt;
use longhaul_transport::{Batching, Consumer, Outgoing, PublishError, Publisher, Receipt};
use longhaul_wire::frame;
use longhaul_wire::messages::{
    Command, CommandAuthChallenge, CommandCloseConsumer, CommandCloseProducer, CommandConnected,
    CommandMessage, CommandPing, CommandProducerSuccess, CommandSendReceipt, CommandSuccess,
    MessageIdData, MessageMetadata,
};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, BufWriter, DuplexStream, ReadBuf, duplex};
use tokio::task::JoinSet;

/// Capacity of the pipe: less than a frame, so that every frame takes several writes.
const PIPE_BYTES: usize = 32;
const SECOND: Duration = Duration::from_secs(1);
/// The broker's message size limit.
const MESSAGE_BYTES_MAX: i32 = 1_000;

/// The broker, controlled by a test.
struct Broker {
    stream: DuplexStream,
    inbox: BytesMut,
}

impl Broker {
    async fn says(&mut self, command: impl Into<Command>) {
        let mut bytes = BytesMut::new();
        frame::encode(command, &mut bytes);
        self.stream.write_all(&bytes).await.unwrap();
    }

    /// The next command; `None` at the end of the stream.
    async fn hears_or_ends(&mut self) -> Option<Command> {
        loop {
            if let Some(frame) = frame::decode(&mut self.inbox, 1 << 20).unwrap() {
                return Some(frame.command);
            }
            if soon(self.stream.read_buf(&mut self.inbox)).await.unwrap() == 0 {
                return None;
            }
        }
    }

    async fn hears(&mut self) -> Command {
        self.hears_or_ends().await.expect("it hangs up")
    }

    async fn takes_in(&mut self) {
        assert!(matches!(self.hears().await, Command::Connect(_)));
        let connected = CommandConnected {
            protocol_version: Some(21),
            max_message_size: Some(MESSAGE_BYTES_MAX),
            ..CommandConnected::default()
        };
        self.says(connected).await;
    }

    /// Opens the requested consumer.
    async fn opens_consumer(&mut self) -> u64 {
        let Command::Subscribe(asked) = self.hears().await else { panic!("no SUBSCRIBE") };
        self.says(CommandSuccess { request_id: asked.request_id, schema: None }).await;
        asked.consumer_id
    }

    /// Opens the requested producer.
    async fn opens_producer(&mut self) -> u64 {
        let Command::Producer(asked) = self.hears().await else { panic!("no PRODUCER") };
        let (request_id, producer_name) = (asked.request_id, "name".to_owned());
        let opened = CommandProducerSuccess {
            request_id,
            producer_name,
            ..CommandProducerSuccess::default()
        };
        self.says(opened).await;
        asked.producer_id
    }
}

/// A running driver, with its broker and its user.
struct Bench {
    broker: Broker,
    link: Arc<ConnectionHandle>,
    opened: oneshot::Receiver<Result<(), TransportError>>,
    over: EndSignal,
    detours: Arc<Detours>,
    clock: Clock,
    _driver: JoinSet<()>,
}

impl Bench {
    fn new(wrap: impl FnOnce(DuplexStream) -> Wire, times: ConnectionTimeouts) -> Self {
        let (stream, wire) = duplex(PIPE_BYTES);
        let clock = longhaul_memory::simulated_clock(0);
        let detours = Arc::<Detours>::default();
        let around = ConnectionContext {
            clock,
            credentials: Credentials::token("token"),
            shown: None,
            endpoint: endpoints("pulsar://here:1").unwrap().swap_remove(0),
            proxied: true,
            detours: Arc::clone(&detours),
            tracker: TaskTracker::new(),
        };
        let greeting = Greeting { times, auth_method: "token", ..Greeting::default() };
        let machine = ConnectionMachine::new("here".into(), greeting, clock.now());
        let (sender, opened) = oneshot::channel();
        let (driver, calls, over) = ConnectionDriver::new(machine, wrap(wire), around, sender);
        let mut running = JoinSet::new();
        running.spawn(driver.run());
        let link = Arc::new(ConnectionHandle::new(calls, over.clone(), "here".into()));
        let broker = Broker { stream, inbox: BytesMut::new() };
        Self { broker, link, opened, over, detours, clock, _driver: running }
    }

    fn plain() -> Self {
        Self::new(|wire| Box::new(wire), ConnectionTimeouts::default())
    }

    /// Lets the broker accept the connection.
    async fn open(mut self) -> Self {
        self.broker.takes_in().await;
        soon(&mut self.opened).await.unwrap().unwrap();
        self
    }

    /// Waits for the end of the connection, and returns its cause.
    async fn end(&self) -> TransportError {
        soon(self.over.wait()).await;
        self.link.cause()
    }

    async fn consumer(&mut self) -> (SessionConsumer, u64) {
        let opening = SessionConsumer::open(Arc::clone(&self.link), consumer_options());
        let (consumer, id) = tokio::join!(soon(opening), self.broker.opens_consumer());
        (consumer.unwrap(), id)
    }

    async fn publisher(&mut self) -> (SessionPublisher, u64) {
        let opening = SessionPublisher::open(Arc::clone(&self.link), producer_options());
        let (publisher, id) = tokio::join!(soon(opening), self.broker.opens_producer());
        (publisher.unwrap(), id)
    }
}

fn consumer_options() -> ConsumerOptions {
    let subscription = SubscriptionSpec::Shared { name: "group".to_owned() };
    ConsumerOptions { topic: "t".to_owned(), subscription }
}

fn producer_options() -> ProducerOptions {
    let (topic, batching) = ("t".to_owned(), Batching::Off);
    ProducerOptions { topic, batching, schema: None }
}

/// Publishes without the checks of a publisher.
fn publish(link: &ConnectionHandle, producer: u64, message: Outgoing) -> Receipt {
    let (on_receipt, stored) = OnReceipt::awaited();
    let publication = Publication { message, publish_time_ms: 0 };
    let token = Unanswered { on_receipt, _room: PublisherPermit::default() };
    link.call(ConnectionCall::Publish { producer, publication, token });
    stored
}

/// A stream that reports a reset instead of its end.
struct Breaking(DuplexStream);

impl AsyncRead for Breaking {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.0).poll_read(context, buffer))?;
        let is_over = buffer.filled().len() == before;
        Poll::Ready(if is_over { Err(io::ErrorKind::ConnectionReset.into()) } else { Ok(()) })
    }
}

impl AsyncWrite for Breaking {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

/// The error reaches the caller that opened the connection, and callers that only hold it.
#[tokio::test(start_paused = true)]
async fn what_is_no_broker_is_named_before_it_has_taken_us_in() {
    let mut bench = Bench::plain();
    bench.broker.hears().await;
    bench.broker.stream.write_all(b"HTTP/1.1 400 Bad Request\r\n").await.unwrap();
    let refused = soon(&mut bench.opened).await.unwrap().unwrap_err();
    assert_eq!(refused.kind, TransportErrorKind::Refused);
    assert!(refused.cause.contains("HTTP server"), "{refused}");
    assert_eq!(bench.end().await.cause, refused.cause);
    // Later it is a broker that violates the protocol.
    let mut bench = Bench::plain().open().await;
    bench.broker.stream.write_all(b"HTTP/1.1 400 Bad Request\r\n").await.unwrap();
    let cause = bench.end().await.cause;
    assert!(cause.starts_with("not understood"), "{cause}");
}

/// A broker that closes the connection during the handshake has a different reason than one that
/// goes down later.
#[tokio::test(start_paused = true)]
async fn a_connection_that_breaks_says_at_what() {
    type Wrap = fn(DuplexStream) -> Wire;
    let (plain, breaking): (Wrap, Wrap) = (|it| Box::new(it), |it| Box::new(Breaking(it)));
    for (wrap, is_open, words) in [
        (plain, false, "closed at the greeting"),
        (breaking, false, "closed at the greeting"),
        (plain, true, "the broker closed the connection"),
        (breaking, true, "connection reset"),
    ] {
        let mut bench = Bench::new(wrap, ConnectionTimeouts::default());
        if is_open {
            bench = bench.open().await;
        }
        bench.broker.stream = duplex(1).0;
        let error = bench.end().await;
        assert_eq!(error.kind, TransportErrorKind::Unreachable);
        assert!(error.cause.contains(words), "{error}");
    }
}

/// TLS buffers written data until it is flushed: without a flush, nothing would arrive.
#[tokio::test(start_paused = true)]
async fn what_a_wire_holds_back_is_passed_on() {
    let wrap = |wire| Box::new(BufWriter::new(wire)) as Wire;
    let mut bench = Bench::new(wrap, ConnectionTimeouts::default()).open().await;
    for _ in 0..2 {
        bench.broker.says(CommandPing {}).await;
        assert!(matches!(bench.broker.hears().await, Command::Pong(_)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_is_silent_is_asked_and_then_given_up() {
    let mut bench = Bench::plain().open().await;
    let ConnectionTimeouts { keep_alive, .. } = ConnectionTimeouts::default();
    let heard = bench.clock.now();
    assert!(matches!(bench.broker.hears().await, Command::Ping(_)));
    assert_eq!(bench.clock.now().since(heard), keep_alive);
    assert_eq!(bench.end().await.cause, "the broker is silent");
    assert_eq!(bench.clock.now().since(heard), keep_alive * 2);
    assert!(bench.broker.hears_or_ends().await.is_none(), "it is not told");
}

/// A deadline that is earlier than the timer's.
#[tokio::test(start_paused = true)]
async fn a_question_is_given_up_in_its_time() {
    let times = ConnectionTimeouts { answer: 10 * SECOND, ..ConnectionTimeouts::default() };
    let bench = Bench::new(|wire| Box::new(wire), times).open().await;
    let asked = bench.clock.now();
    let lookup =
        LookupQuestion { topic: "t".to_owned(), authoritative: false, listener_name: None };
    let unanswered = soon(bench.link.ask(BrokerRequest::Lookup(lookup))).await.unwrap_err();
    assert_eq!(unanswered.cause, "no answer in time");
    assert_eq!(bench.clock.now().since(asked), times.answer);
    assert!(bench.over.get().is_none(), "the connection is given up with it");
}

#[tokio::test(start_paused = true)]
async fn the_last_user_to_leave_ends_the_connection() {
    let bench = Bench::plain().open().await;
    let Bench { mut broker, link, clock, over, .. } = bench;
    let left = clock.now();
    drop(link);
    assert!(broker.hears_or_ends().await.is_none());
    assert_eq!(clock.now(), left, "nothing was under way");
    soon(over.wait()).await;
    assert_eq!(over.get().unwrap().cause, "the connection was closed");
}

/// Messages of a publisher that leaves are still stored.
#[tokio::test(start_paused = true)]
async fn what_is_under_way_when_the_last_user_leaves_is_finished() {
    let mut bench = Bench::plain().open().await;
    let (mut publisher, producer_id) = bench.publisher().await;
    let receipt = publisher.send(Outgoing::default()).await.unwrap();
    drop(publisher);
    let Bench { mut broker, link, clock, .. } = bench;
    drop(link);
    let Command::Send(sent) = broker.hears().await else { panic!("not sent") };
    sleep(FAREWELL_TIME_MAX / 2).await;
    let left = clock.now();
    let (ledger_id, entry_id) = (1, 2);
    let message_id = Some(MessageIdData { ledger_id, entry_id, ..MessageIdData::default() });
    let sequence_id = sent.sequence_id;
    broker
        .says(CommandSendReceipt {
            producer_id,
            sequence_id,
            message_id,
            highest_sequence_id: None,
        })
        .await;
    assert_eq!(soon(receipt).await.unwrap(), message(2, None).position);
    let Command::CloseProducer(closed) = broker.hears().await else { panic!("not closed") };
    broker.says(CommandSuccess { request_id: closed.request_id, schema: None }).await;
    assert!(broker.hears_or_ends().await.is_none());
    assert_eq!(clock.now(), left, "nothing is under way any more");
}

#[tokio::test(start_paused = true)]
async fn what_is_under_way_when_the_last_user_leaves_has_a_limited_time() {
    let mut bench = Bench::plain().open().await;
    let (mut publisher, _) = bench.publisher().await;
    let receipt = publisher.send(Outgoing::default()).await.unwrap();
    drop(publisher);
    let Bench { broker: _broker, link, clock, .. } = bench;
    let left = clock.now();
    drop(link);
    let Err(PublishError::Unknown(cause)) = soon(receipt).await else { panic!("of known fate") };
    assert!(cause.contains("the connection was closed"), "{cause}");
    assert_eq!(clock.now().since(left), FAREWELL_TIME_MAX);
}

/// Calls that wait while the connection ends. A publish among them was never written: its caller
/// may retry it, which is not allowed if the fate is unknown.
#[tokio::test(start_paused = true)]
async fn what_was_called_while_the_connection_ends_is_answered() {
    let bench = Bench::plain();
    let no_token = error::refused("there", "no token");
    bench.link.call(ConnectionCall::Credentials(Err(no_token)));
    for _ in 0..CALLS_AT_ONCE_MAX {
        bench.link.call(ConnectionCall::Request { consumer: 0, count: 0 });
    }
    let stored = soon(publish(&bench.link, 0, Outgoing::default())).await;
    assert!(matches!(stored, Err(PublishError::NotStored(_))), "{stored:?}");
    assert_eq!(bench.end().await.cause, "no token");
    let refused = soon(bench.opened).await.unwrap().unwrap_err();
    assert_eq!(refused.cause, "no token");
}

#[tokio::test(start_paused = true)]
async fn a_consumer_gets_what_it_asks_for_until_the_broker_ends_it() {
    let mut bench = Bench::plain().open().await;
    let (mut consumer, consumer_id) = bench.consumer().await;
    consumer.request(1);
    let Command::Flow(flow) = bench.broker.hears().await else { panic!("no FLOW") };
    assert_eq!((flow.consumer_id, flow.message_permits), (consumer_id, 1));
    let delivery = CommandMessage {
        consumer_id,
        message_id: MessageIdData { ledger_id: 1, entry_id: 5, ..MessageIdData::default() },
        ..CommandMessage::default()
    };
    let mut bytes = BytesMut::new();
    frame::encode_message(delivery, &MessageMetadata::default(), b"body", &mut bytes);
    bench.broker.stream.write_all(&bytes).await.unwrap();
    let delivered = soon(consumer.next()).await.unwrap();
    assert_eq!(
        (delivered.position, &delivered.payload[..]),
        (message(5, None).position, &b"body"[..])
    );
    let moves = CommandCloseConsumer {
        assigned_broker_service_url: Some("pulsar://there:1".to_owned()),
        ..CommandCloseConsumer::new(consumer_id, u64::MAX)
    };
    bench.broker.says(moves).await;
    soon(consumer.next()).await.unwrap_err();
    let detour = bench.detours.take("t", bench.clock.now()).unwrap();
    assert_eq!((detour.by.to_string().as_str(), detour.proxied), ("pulsar://here:1", true));
    assert_eq!(detour.moved.url, "pulsar://there:1");
}

/// The end of a consumer also closes its channel of deliveries: the consumer checks that before it
/// returns the rest of a batch.
#[tokio::test(start_paused = true)]
async fn the_deliveries_of_a_consumer_that_is_over_end() {
    let mut bench = Bench::plain().open().await;
    let (sink, mut deliveries) = unbounded();
    let opening = bench.link.open_consumer(consumer_options(), sink);
    let (opened, id) = tokio::join!(soon(opening), bench.broker.opens_consumer());
    assert_eq!(opened.unwrap(), BrokerResponse::Consumer(id));
    bench.broker.says(CommandCloseConsumer::new(id, u64::MAX)).await;
    assert!(matches!(soon(deliveries.recv()).await, Some(ConsumerDelivery::Over(_))));
    assert!(soon(deliveries.recv()).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_publisher_learns_that_the_broker_has_ended_it() {
    let mut bench = Bench::plain().open().await;
    let (mut publisher, id) = bench.publisher().await;
    assert!(publisher.ended().now_or_never().is_none());
    bench.broker.says(CommandCloseProducer::new(id, u64::MAX)).await;
    soon(publisher.ended()).await;
    assert!(publisher.send(Outgoing::default()).await.is_err());
    assert!(bench.over.get().is_none(), "the connection goes on");
}

/// Errors that the machine detects while writing are reported at once, and not only after the
/// broker's next frame.
#[tokio::test(start_paused = true)]
async fn a_message_that_the_machine_refuses_is_told_at_once() {
    let mut bench = Bench::plain().open().await;
    let (_publisher, id) = bench.publisher().await;
    let published = bench.clock.now();
    let payload = vec![b'x'; MESSAGE_BYTES_MAX.unsigned_abs() as usize].into();
    let message = Outgoing { payload, ..Outgoing::default() };
    let stored = soon(publish(&bench.link, id, message)).await;
    assert!(matches!(stored, Err(PublishError::TooLarge { .. })), "{stored:?}");
    assert_eq!(bench.clock.now(), published);
}

/// A result that was opened for a caller that had given up was only closed with the next write,
/// such as a keep-alive half a minute later.
#[tokio::test(start_paused = true)]
async fn what_is_opened_for_nobody_is_closed() {
    let mut bench = Bench::plain().open().await;
    let began = bench.clock.now();
    let opening = SessionConsumer::open(Arc::clone(&bench.link), consumer_options());
    assert!(opening.now_or_never().is_none());
    let id = bench.broker.opens_consumer().await;
    let Command::CloseConsumer(closed) = bench.broker.hears().await else { panic!("not closed") };
    assert_eq!(closed.consumer_id, id);
    let opening = SessionPublisher::open(Arc::clone(&bench.link), producer_options());
    assert!(opening.now_or_never().is_none());
    let id = bench.broker.opens_producer().await;
    let heard = bench.broker.hears().await;
    let Command::CloseProducer(closed) = heard else { panic!("not closed: {heard:?}") };
    assert_eq!(closed.producer_id, id);
    assert_eq!(bench.clock.now(), began);
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_asks_who_we_are_is_shown_it_again() {
    let mut bench = Bench::plain().open().await;
    bench.broker.says(CommandAuthChallenge::default()).await;
    let Command::AuthResponse(shown) = bench.broker.hears().await else { panic!("not shown") };
    assert_eq!(shown.response.unwrap().auth_data.unwrap(), "token");
}
