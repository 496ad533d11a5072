//! One connection to a broker that the test controls.

mod bounds;
mod consuming;
mod edges;
mod ending;
mod greeting;
mod moving;
mod producing;
mod questions;
mod reading;

use super::call::{
    BrokerRequest, BrokerResponse, ConnectionCall, ConnectionEvent, ConsumerOptions,
    LookupQuestion, ProducerOptions, Publication, StartPlace, SubscriptionSpec, TopicRedirect,
};
use super::{ConnectionMachine, Greeting};
use bytes::{Bytes, BytesMut};
use longhaul_transport::{Batching, Message, Outgoing, PublishError, TransportError};
use longhaul_types::moment::Moment;
use longhaul_types::{EntryId, Position};
use longhaul_wire::batch::BatchBuilder;
use longhaul_wire::frame::{self, Frame};
use longhaul_wire::messages::{
    Command, CommandConnected, CommandError, CommandMessage, CommandProducer,
    CommandProducerSuccess, CommandSendReceipt, CommandSuccess, MessageIdData, MessageMetadata,
    ServerError, SingleMessageMetadata,
};
use std::time::Duration;

const LEDGER: u64 = 7;

/// A connection, and the test's side of the broker.
struct Bench {
    machine: ConnectionMachine<u32, u32>,
    now: Moment,
    next_token: u32,
}

/// Results of tokens.
#[derive(Debug, Default)]
struct Outcome {
    answered: Vec<(u32, Result<BrokerResponse, TransportError>)>,
    published: Vec<(u32, Result<Position, PublishError>)>,
    delivered: Vec<(u64, Vec<Message>)>,
    drained: Vec<u64>,
    consumers_over: Vec<u64>,
    producers_over: Vec<u64>,
    challenges: usize,
    moved: Vec<TopicRedirect>,
    ends: Vec<TransportError>,
}

impl Bench {
    /// A connection before the handshake.
    fn new(greeting: Greeting) -> Self {
        let now = Moment(Duration::from_secs(1_000));
        Self { machine: ConnectionMachine::new("here".into(), greeting, now), now, next_token: 0 }
    }

    /// A connection that the broker has accepted.
    fn open() -> Self {
        let mut bench = Self::new(Greeting::default());
        bench.written();
        bench.says(CommandConnected { protocol_version: Some(21), ..CommandConnected::default() });
        assert!(bench.machine.is_open());
        bench
    }

    fn token(&mut self) -> u32 {
        self.next_token += 1;
        self.next_token
    }

    fn call(&mut self, call: ConnectionCall<u32, u32>) {
        self.machine.handle(call, self.now);
    }

    fn ask(&mut self, question: BrokerRequest) -> u32 {
        let token = self.token();
        self.call(ConnectionCall::Ask(question, token));
        token
    }

    /// The broker sends a command.
    #[track_caller]
    fn says(&mut self, command: impl Into<Command>) {
        let mut bytes = BytesMut::new();
        frame::encode(command, &mut bytes);
        self.says_bytes(&bytes);
    }

    fn says_bytes(&mut self, bytes: &[u8]) {
        self.machine.receive(&mut BytesMut::from(bytes), self.now);
    }

    /// The broker delivers an entry.
    fn delivers(&mut self, command: &CommandMessage, metadata: &MessageMetadata, body: &[u8]) {
        let mut bytes = BytesMut::new();
        frame::encode_message(command.clone(), metadata, body, &mut bytes);
        self.machine.receive(&mut bytes, self.now);
    }

    /// All frames that are to be written.
    fn written(&mut self) -> Vec<Frame> {
        let (mut frames, mut out) = (Vec::new(), BytesMut::new());
        loop {
            self.machine.transmit(&mut out, self.now);
            if out.is_empty() {
                return frames;
            }
            while let Some(frame) = frame::decode(&mut out, usize::MAX / 2).unwrap() {
                frames.push(frame);
            }
        }
    }

    fn commands(&mut self) -> Vec<Command> {
        self.written().into_iter().map(|frame| frame.command).collect()
    }

    fn outcome(&mut self) -> Outcome {
        let mut outcome = Outcome::default();
        while let Some(event) = self.machine.poll_event() {
            match event {
                ConnectionEvent::Answered(token, answer) => outcome.answered.push((token, answer)),
                ConnectionEvent::Published(token, stored) => {
                    outcome.published.push((token, stored))
                }
                ConnectionEvent::Delivered { consumer, messages } => {
                    outcome.delivered.push((consumer, messages));
                }
                ConnectionEvent::ConsumerDrained(id, _) => outcome.drained.push(id),
                ConnectionEvent::ConsumerEnded(id, cause) => {
                    outcome.consumers_over.push(id);
                    outcome.ends.push(cause);
                }
                ConnectionEvent::ProducerEnded(id, cause) => {
                    outcome.producers_over.push(id);
                    outcome.ends.push(cause);
                }
                ConnectionEvent::Moved(moved) => outcome.moved.push(moved),
                ConnectionEvent::Challenged => outcome.challenges += 1,
            }
        }
        outcome
    }

    /// Advances the time, and performs the actions that are due.
    fn wait(&mut self, time: Duration) {
        self.now = self.now + time;
        self.machine.tick(self.now);
        let next = self.machine.timeout();
        assert!(
            next.is_none_or(|at| at > self.now),
            "a tick that leaves something due: a busy loop"
        );
    }

    /// Opens a producer.
    fn producer(&mut self, batching: Batching) -> u64 {
        self.producer_behind(batching, -1)
    }

    /// Opens a producer under a name whose last sequence id the broker knows.
    fn producer_behind(&mut self, batching: Batching, last: i64) -> u64 {
        let (token, asked) = self.ask_for_producer(batching);
        self.producer_opened(token, asked.request_id, last)
    }

    fn ask_for_producer(&mut self, batching: Batching) -> (u32, CommandProducer) {
        let topic = "topic".to_owned();
        let options = ProducerOptions { topic, batching, schema: None };
        let token = self.ask(BrokerRequest::Producer(options));
        let [Command::Producer(asked)] = &self.commands()[..] else { panic!("one PRODUCER") };
        (token, CommandProducer::clone(asked))
    }

    fn producer_opened(&mut self, token: u32, request_id: u64, last: i64) -> u64 {
        self.says(CommandProducerSuccess {
            request_id,
            producer_name: "name".to_owned(),
            last_sequence_id: Some(last),
            schema_version: None,
            topic_epoch: None,
            producer_ready: Some(true),
        });
        match &self.outcome().answered[..] {
            [(it, Ok(BrokerResponse::Producer { id, .. }))] if *it == token => *id,
            other => panic!("{other:?}"),
        }
    }

    fn subscribe(&mut self, subscription: SubscriptionSpec) -> u64 {
        let topic = "topic".to_owned();
        let token = self.ask(BrokerRequest::Consumer(ConsumerOptions { topic, subscription }));
        let [Command::Subscribe(asked)] = &self.commands()[..] else { panic!("one SUBSCRIBE") };
        self.says(CommandSuccess { request_id: asked.request_id, schema: None });
        match &self.outcome().answered[..] {
            [(it, Ok(BrokerResponse::Consumer(id)))] if *it == token => *id,
            other => panic!("{other:?}"),
        }
    }

    /// Opens a consumer of a Shared subscription.
    fn consumer(&mut self) -> u64 {
        self.subscribe(SubscriptionSpec::Shared { name: "s".to_owned() })
    }

    fn publish(&mut self, producer: u64, message: Outgoing) -> u32 {
        let token = self.token();
        let publication = Publication { message, publish_time_ms: 1_000 };
        self.call(ConnectionCall::Publish { producer, publication, token });
        token
    }

    fn receipt(&mut self, producer_id: u64, sequence_id: u64, entry: u64) {
        let message_id =
            Some(MessageIdData { ledger_id: LEDGER, entry_id: entry, ..MessageIdData::default() });
        self.says(CommandSendReceipt {
            producer_id,
            sequence_id,
            message_id,
            highest_sequence_id: None,
        });
    }

    fn refuses(&mut self, request_id: u64, code: ServerError) {
        self.says(CommandError { request_id, error: code as i32, message: "no".to_owned() });
    }
}

fn body(bytes: &'static [u8]) -> Outgoing {
    Outgoing { payload: Bytes::from_static(bytes), ..Outgoing::default() }
}

const fn entry(entry: u64) -> EntryId {
    EntryId { ledger: LEDGER, entry }
}

const fn at(entry: u64, batch_index: Option<u32>) -> Position {
    Position { ledger: LEDGER, entry, batch_index }
}

/// The command before a delivery.
fn delivery(consumer_id: u64, entry: u64) -> CommandMessage {
    CommandMessage {
        consumer_id,
        message_id: MessageIdData {
            ledger_id: LEDGER,
            entry_id: entry,
            ..MessageIdData::default()
        },
        redelivery_count: Some(0),
        ack_set: Vec::new(),
        consumer_epoch: None,
    }
}

/// The broker delivers an entry with one message.
fn plain(bench: &mut Bench, consumer: u64, entry: u64) {
    bench.delivers(&delivery(consumer, entry), &MessageMetadata::default(), b"body");
}

/// Asks for messages. Returns what is written for that.
fn request(bench: &mut Bench, consumer: u64, count: u32) -> Vec<Command> {
    bench.call(ConnectionCall::Request { consumer, count });
    bench.commands()
}

/// A batch of messages, each with its number as the body.
fn batch(count: u8) -> (MessageMetadata, Bytes) {
    batch_without(count, &[])
}

/// A batch from which compaction has removed some messages.
fn batch_without(count: u8, removed: &[u8]) -> (MessageMetadata, Bytes) {
    let mut builder = BatchBuilder::default();
    for index in 0..count {
        let metadata = SingleMessageMetadata {
            compacted_out: removed.contains(&index).then_some(true),
            ..SingleMessageMetadata::default()
        };
        builder.push(metadata, &[index]);
    }
    let body = builder.finish();
    let metadata = MessageMetadata {
        num_messages_in_batch: Some(i32::from(count)),
        uncompressed_size: Some(u32::try_from(body.len()).unwrap()),
        ..MessageMetadata::default()
    };
    (metadata, body)
}

/// Sum of the permits in these FLOW commands; other commands fail the test.
#[track_caller]
fn permits(commands: &[Command]) -> u32 {
    let granted = commands.iter().map(|command| match command {
        Command::Flow(flow) => flow.message_permits,
        other => panic!("not a FLOW: {other:?}"),
    });
    granted.sum()
}

fn tokens<T>(outcomes: &[(u32, T)]) -> Vec<u32> {
    outcomes.iter().map(|(token, _)| *token).collect()
}

fn reader(start: StartPlace, window: u32) -> SubscriptionSpec {
    SubscriptionSpec::Reader { name: "r".to_owned(), start, compacted: false, window }
}
