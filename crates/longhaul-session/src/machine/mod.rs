//! One connection to a broker as a pure state machine: frames, calls and the time go in; bytes and
//! [`ConnectionEvent`]s come out.
//!
//! - [`call`]: inputs and outputs.
//! - `greeting`: the handshake, and later challenges.
//! - `requests`: questions that wait for their answer.
//! - `producer`, `consumer`: what is open on the connection; `flow` decides how many messages the
//!   broker may send to a consumer.
//! - `moving`: closes producers and consumers whose topic moves.
//! - `unpack`: splits an entry into its messages.
//! - `answers`: converts the broker's commands to answers.
//!
//! Invariants:
//! - A publish is written once, to this connection. When the connection, the producer or the broker
//!   fails, the caller learns that its fate is unknown. Nothing is ever resent.
//! - The machine never waits for users to take deliveries: only requested entries are delivered,
//!   and a connection to a broker that sends more is closed.
//! - Every token comes back, exactly once.
//! - The amount of unwritten data depends on the users' calls, not on the broker's commands.
//! - A connection that has ended stays ended. Every caller gets its first cause.

mod answers;
pub mod call;
mod consumer;
mod flow;
mod greeting;
mod moving;
mod producer;
mod requests;
#[cfg(test)]
#[expect(clippy::wildcard_enum_match_arm, reason = "whatever else comes fails the test")]
mod tests;
mod unpack;

use super::error;
use bytes::BytesMut;
use call::{BrokerRequest, BrokerResponse, ConnectionCall, ConnectionEvent};
use consumer::ConnectionConsumer;
use greeting::{Challenge, introduction};
use longhaul_transport::TransportError;
use longhaul_types::moment::Moment;
use longhaul_wire::frame::{self, Frame, FrameError, MESSAGE_BYTES_MAX_DEFAULT};
use longhaul_wire::messages::{Command, CommandPing, CommandPong};
use producer::ConnectionProducer;
use requests::Requests;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub(super) use flow::{UNTOLD_BYTES_MAX, UNTOLD_MAX};
pub use greeting::{ConnectionTimeouts, Greeting};
pub(super) use producer::weight;

/// How long an unused connection is kept.
const IDLE_TIME_MAX: Duration = Duration::from_secs(60);
/// Upper bound for a broker's message size limit: memory for a message is allocated when its first
/// bytes arrive.
const MESSAGE_BYTES_MAX: usize = 128 * 1024 * 1024;
/// Bytes waiting to be written above which no more are encoded.
const OUT_BYTES: usize = 256 * 1024;

#[derive(Debug)]
enum ConnectionPhase {
    Greeting { with_credentials: bool },
    Open,
    Ended(TransportError),
}

/// See the module's documentation.
pub struct ConnectionMachine<A, P> {
    /// Name of the broker, for errors.
    address: Arc<str>,
    phase: ConnectionPhase,
    auth_method: &'static str,
    name: Arc<str>,
    times: ConnectionTimeouts,
    message_bytes_max: usize,
    /// Next id of a request, producer or consumer.
    next_id: u64,
    /// Commands that are written first: CONNECT, and the newest credentials.
    handshake: VecDeque<Command>,
    /// A challenge in progress; a repeated challenge gets the same credentials.
    challenge: Option<Challenge>,
    /// Pings to write. They are flags and not queued commands: a broker that pings and does not
    /// read would make a queue grow.
    ping_due: bool,
    pong_due: bool,
    /// Commands that are written before those of producers and consumers.
    control: VecDeque<Command>,
    requests: Requests<A>,
    producers: BTreeMap<u64, ConnectionProducer<P>>,
    consumers: BTreeMap<u64, ConnectionConsumer<A>>,
    /// Producers that may have something to write, in turn.
    writable: VecDeque<u64>,
    /// Consumers that have something to write.
    dirty: BTreeSet<u64>,
    events: VecDeque<ConnectionEvent<A, P>>,
    /// When the broker last sent something.
    heard: Moment,
    pinged: bool,
    /// Since when the connection is unused.
    idle_since: Moment,
    /// Number of callers that wait for the end.
    watchers: usize,
}

impl<A, P> fmt::Debug for ConnectionMachine<A, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Unwritten commands are left out: they may hold credentials.
        let (address, phase) = (&self.address, &self.phase);
        f.debug_struct("ConnectionMachine")
            .field("address", address)
            .field("phase", phase)
            .finish_non_exhaustive()
    }
}

impl<A, P> ConnectionMachine<A, P> {
    /// Creates a connection that starts with the handshake. `address` names the broker in errors.
    #[must_use]
    pub fn new(address: Arc<str>, greeting: Greeting, now: Moment) -> Self {
        let connect = introduction(&greeting);
        Self {
            address,
            phase: ConnectionPhase::Greeting { with_credentials: greeting.auth_method != "none" },
            auth_method: greeting.auth_method,
            name: greeting.name.into(),
            times: greeting.times,
            message_bytes_max: MESSAGE_BYTES_MAX_DEFAULT,
            next_id: 1,
            handshake: VecDeque::from([connect.into()]),
            challenge: None,
            ping_due: false,
            pong_due: false,
            control: VecDeque::new(),
            requests: Requests::default(),
            producers: BTreeMap::new(),
            consumers: BTreeMap::new(),
            writable: VecDeque::new(),
            dirty: BTreeSet::new(),
            events: VecDeque::new(),
            heard: now,
            pinged: false,
            idle_since: now,
            watchers: 0,
        }
    }

    /// Whether the broker has accepted the connection.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        matches!(self.phase, ConnectionPhase::Open)
    }

    /// Why the connection has ended, if it has.
    #[must_use]
    pub const fn end(&self) -> Option<&TransportError> {
        match &self.phase {
            ConnectionPhase::Ended(cause) => Some(cause),
            ConnectionPhase::Greeting { .. } | ConnectionPhase::Open => None,
        }
    }

    /// Whether nothing is in flight: nothing to write and no waiting caller. Producers and
    /// consumers may be open.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.handshake.is_empty()
            && !self.ping_due
            && !self.pong_due
            && self.control.is_empty()
            && self.requests.is_empty()
            && self.dirty.is_empty()
            && self.producers.values().all(ConnectionProducer::is_quiet)
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<ConnectionEvent<A, P>> {
        self.events.pop_front()
    }

    /// Handles a call.
    pub fn handle(&mut self, call: ConnectionCall<A, P>, now: Moment) {
        self.idle_since = now;
        match call {
            ConnectionCall::Ask(question, token) => self.ask(question, token, now),
            ConnectionCall::Publish { producer, publication, token } => {
                match self.producers.get_mut(&producer) {
                    Some(open) => {
                        if open.push(publication, token) {
                            self.writable.push_back(producer);
                        }
                    }
                    None => self
                        .events
                        .push_back(ConnectionEvent::Published(token, Err(producer::over()))),
                }
            }
            ConnectionCall::CloseProducer(id) => {
                if let Some(producer) = self.producers.get_mut(&id)
                    && producer.close()
                {
                    self.writable.push_back(id);
                }
            }
            ConnectionCall::Watch => self.watchers += 1,
            ConnectionCall::Unwatch => self.watchers = self.watchers.saturating_sub(1),
            ConnectionCall::Request { consumer, count } => {
                self.with_consumer(consumer, |consumer| consumer.flow.request(count));
            }
            ConnectionCall::Taken { consumer, count, bytes } => {
                self.with_consumer(consumer, |consumer| consumer.flow.taken(count, bytes));
            }
            ConnectionCall::Ack { consumer, entry, token } => {
                match self.consumers.get_mut(&consumer) {
                    Some(open) => {
                        open.acks.push((entry, token));
                        self.dirty.insert(consumer);
                    }
                    None => {
                        let cause = error::unreachable(&self.address, "the consumer is closed");
                        self.events.push_back(ConnectionEvent::Answered(token, Err(cause)));
                    }
                }
            }
            ConnectionCall::HandBack { consumer, entry } => {
                self.with_consumer(consumer, |consumer| consumer.handed_back.push(entry));
            }
            ConnectionCall::CloseConsumer(id) => {
                self.with_consumer(id, |consumer| consumer.closing = true)
            }
            ConnectionCall::Credentials(_) if self.end().is_some() => {}
            ConnectionCall::Credentials(data) => self.authenticate(data, now),
        }
    }

    fn with_consumer(&mut self, id: u64, change: impl FnOnce(&mut ConnectionConsumer<A>)) {
        if let Some(consumer) = self.consumers.get_mut(&id) {
            change(consumer);
            self.dirty.insert(id);
        }
    }

    /// Reads all complete frames of the input. An incomplete frame also proves that the broker is
    /// alive.
    pub fn receive(&mut self, bytes: &mut BytesMut, now: Moment) {
        self.heard = now;
        self.pinged = false;
        self.record_use(now);
        while self.end().is_none() {
            match frame::decode(bytes, self.message_bytes_max) {
                Ok(Some(frame)) => self.handle_frame(frame, now),
                Ok(None) => return,
                // A newer broker may send unknown commands. Known commands report everything that
                // concerns our producers and consumers.
                Err(FrameError::Type(_)) if self.is_open() => {}
                Err(cause) => {
                    self.fail(error::unreachable(
                        &self.address,
                        format_args!("not understood: {cause}"),
                    ));
                }
            }
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "all others are answers, or not for clients"
    )]
    fn handle_frame(&mut self, frame: Frame, now: Moment) {
        let Frame { command, payload } = frame;
        if matches!(self.phase, ConnectionPhase::Greeting { .. }) {
            return self.handle_greeting(command);
        }
        match command {
            Command::Ping(_) => self.pong_due = true,
            Command::AuthChallenge(_) => self.challenge(),
            Command::SendReceipt(receipt) => self.handle_receipt(&receipt),
            Command::SendError(refusal) => self.handle_send_error(&refusal),
            Command::Message(message) => match payload {
                Some(payload) => self.handle_message(&message, &payload),
                None => {
                    self.fail(error::unreachable(&self.address, "a delivery without a message"))
                }
            },
            Command::CloseProducer(close) => self.handle_close_producer(close, now),
            Command::CloseConsumer(close) => self.handle_close_consumer(close, now),
            Command::ReachedEndOfTopic(end) => self.handle_reached_end(end.consumer_id),
            Command::TopicMigrated(migrated) => self.handle_migrated(*migrated, now),
            answer => self.handle_answer(answer),
        }
    }

    /// Appends bytes to write while `out` is short.
    pub fn transmit(&mut self, out: &mut BytesMut, now: Moment) {
        if self.end().is_some() {
            return;
        }
        while out.len() < OUT_BYTES {
            // Writing may queue further commands, such as the close of a producer after its last
            // receipt.
            if let Some(command) = self.handshake.pop_front() {
                frame::encode(command, out);
            } else if !self.is_open() {
                return;
            } else if std::mem::take(&mut self.pong_due) {
                frame::encode(CommandPong {}, out);
            } else if std::mem::take(&mut self.ping_due) {
                frame::encode(CommandPing {}, out);
            } else if let Some(command) = self.control.pop_front() {
                frame::encode(command, out);
            } else if let Some(id) = self.dirty.pop_first() {
                self.write_consumer(id, out, now);
            } else if let Some(id) = self.writable.pop_front() {
                self.write_producer(id, out, now);
            } else {
                return;
            }
        }
    }

    /// The latest time to call [`ConnectionMachine::tick`].
    #[must_use]
    pub fn timeout(&self) -> Option<Moment> {
        if self.end().is_some() {
            return None;
        }
        // A broker that has not accepted the connection yet is not pinged, only timed out.
        let asks = self.is_open() && !self.pinged;
        let keep_alive = self.times.keep_alive;
        let silence = if asks { keep_alive } else { keep_alive * 2 };
        let idle = self.is_unused().then(|| self.idle_since + IDLE_TIME_MAX);
        let receipts = self.producers.values().filter_map(ConnectionProducer::deadline).min();
        let others = [idle, receipts, self.requests.deadline(), self.challenge_is_due()];
        others.into_iter().flatten().chain([self.heard + silence]).min()
    }

    /// Performs the actions that are due.
    pub fn tick(&mut self, now: Moment) {
        if self.end().is_some() {
            return;
        }
        self.record_use(now);
        if now >= self.heard + self.times.keep_alive * 2 {
            return self.fail(error::unreachable(&self.address, "the broker is silent"));
        }
        if now >= self.heard + self.times.keep_alive && !self.pinged && self.is_open() {
            self.pinged = true;
            self.ping_due = true;
        }
        self.challenge_again(now);
        while let Some(late) = self.requests.take_due(now) {
            let cause = error::unreachable(&self.address, "no answer in time");
            self.give_up(late, &cause, now);
        }
        let late: Vec<u64> = self
            .producers
            .iter()
            .filter(|(_, producer)| producer.deadline().is_some_and(|at| at <= now))
            .map(|(id, _)| *id)
            .collect();
        for id in late {
            let cause = error::unreachable(&self.address, "no receipt in time");
            self.abandon_producer(id, &cause, now);
        }
        if self.is_unused() && now >= self.idle_since + IDLE_TIME_MAX {
            self.fail(error::unreachable(&self.address, "closed because it was unused"));
        }
    }

    /// Ends the connection and reports the cause to all callers.
    pub fn fail(&mut self, cause: TransportError) {
        if self.end().is_some() {
            return;
        }
        for token in self.requests.drain() {
            self.events.push_back(ConnectionEvent::Answered(token, Err(cause.clone())));
        }
        for (id, consumer) in std::mem::take(&mut self.consumers) {
            self.end_of_consumer(id, consumer, &cause);
        }
        for (id, producer) in std::mem::take(&mut self.producers) {
            self.end_of_producer(id, producer, &cause);
        }
        self.handshake.clear();
        (self.ping_due, self.pong_due) = (false, false);
        self.control.clear();
        self.dirty.clear();
        self.phase = ConnectionPhase::Ended(cause);
    }

    /// Watching counts as use; when it ends, the idle time begins.
    fn record_use(&mut self, now: Moment) {
        if !self.is_unused() {
            self.idle_since = now;
        }
    }

    fn is_unused(&self) -> bool {
        self.producers.is_empty()
            && self.consumers.is_empty()
            && self.requests.is_empty()
            && self.watchers == 0
    }

    fn draw_id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    fn answer(&mut self, token: A, answer: Result<BrokerResponse, TransportError>) {
        self.events.push_back(ConnectionEvent::Answered(token, answer));
    }

    fn ask(&mut self, question: BrokerRequest, token: A, now: Moment) {
        if let Some(cause) = self.end() {
            let cause = cause.clone();
            return self.answer(token, Err(cause));
        }
        if self.requests.is_full() {
            let cause = error::unreachable(&self.address, "too many requests wait for an answer");
            return self.answer(token, Err(cause));
        }
        match question {
            BrokerRequest::Partitions { topic } => self.ask_partitions(topic, token, now),
            BrokerRequest::Lookup(lookup) => self.ask_lookup(lookup, token, now),
            BrokerRequest::Producer(options) => self.open_producer(options, token, now),
            BrokerRequest::Consumer(options) => self.open_consumer(options, token, now),
            BrokerRequest::Last { consumer } => self.ask_last(consumer, token, now),
            BrokerRequest::Stats { consumer } => self.ask_stats(consumer, token, now),
        }
    }
}
