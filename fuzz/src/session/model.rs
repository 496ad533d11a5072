//! What may and what must come of what was called, said and written.

mod consumers;
mod entries;
mod moving;
mod producers;
mod questions;

pub(super) use questions::Kind;

use consumers::{Consumer, Stage};
use longhaul_session::machine::call::{ConnectionCall, ConnectionEvent, Publication};
use longhaul_transport::moment::Moment;
use longhaul_transport::{Message, Outgoing};
use longhaul_wire::frame::{Frame, MESSAGE_BYTES_MAX_DEFAULT};
use longhaul_wire::messages::{Command, ServerError};
use producers::{Entry, Producer};
use questions::{Asked, Request, request_id};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

const SILENCE_MAX: Duration = Duration::from_secs(60);
const IDLE_MAX: Duration = Duration::from_secs(60);
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// How often credentials are asked for in answer to one challenge.
const CHALLENGE_TRIES: u32 = 5;
/// No broker is believed to allow larger messages.
const MESSAGE_BYTES_BELIEVED: usize = 128 * 1024 * 1024;
/// Versions of the protocol before this one have no receipts of acks.
const VERSION_MIN: i32 = 17;

/// What was done to the machine.
#[derive(Debug)]
pub(super) enum Step {
    /// A call, with the token that it handed over.
    Call(Option<u64>),
    /// A frame came.
    Heard(Frame),
    /// A part of one came.
    Part,
    /// A frame came with a command that nobody knows.
    Unknown,
    /// Something came that is no frame.
    Noise,
    /// It wrote.
    Wrote,
    /// What is due was done.
    Tick,
    /// It was ended.
    Fail,
}

/// Who waits for an answer.
#[derive(Debug)]
pub(super) enum Waiting {
    Question { since: Moment },
    Ack { consumer: u64, written: Option<Moment> },
    Publish { producer: u64, bytes: usize, is_written: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Greeting,
    Open,
    Ended,
}

/// What a step had to bring about, as far as it is known before its events are looked at.
#[derive(Debug, Default)]
struct Context {
    /// What the broker has answered.
    answered: Option<Request>,
    /// What the broker has given a receipt for, or refused.
    entry: Option<Entry>,
    producers_over: BTreeSet<u64>,
    consumers_over: BTreeSet<u64>,
    is_over: bool,
}

pub(super) struct Model {
    pub(super) now: Moment,
    phase: Phase,
    is_introduced: bool,
    pub(super) message_bytes_max: usize,
    waiting: BTreeMap<u64, Waiting>,
    /// Questions whose commands are not written yet, in order.
    asked: VecDeque<(u64, Asked)>,
    /// Requests that are written and have no answer.
    pub(super) requests: BTreeMap<u64, Request>,
    /// Answers to requests that were not written yet: the broker has guessed their numbers, or they were never asked.
    guessed: BTreeSet<u64>,
    /// Consumers whose topics were terminated and have nothing left, as the broker has said.
    drained: BTreeSet<u64>,
    pub(super) producers: BTreeMap<u64, Producer>,
    pub(super) consumers: BTreeMap<u64, Consumer>,
    /// What the broker is to be told to close.
    producers_to_close: BTreeSet<u64>,
    consumers_to_close: BTreeSet<u64>,
    pub(super) heard_at: Moment,
    used_at: Moment,
    /// How many wait for the end of the connection.
    watchers: u32,
    is_pinged: bool,
    /// The broker waits for credentials.
    is_challenged: bool,
    /// How often there were none, and whether they are to be asked for again.
    refusals: u32,
    is_to_be_asked: bool,
    has_credentials: bool,
    pub(super) forsaken: BTreeSet<u64>,
}

impl Model {
    pub(super) fn new(now: Moment) -> Self {
        Self {
            now,
            phase: Phase::Greeting,
            is_introduced: false,
            message_bytes_max: MESSAGE_BYTES_MAX_DEFAULT,
            waiting: BTreeMap::new(),
            asked: VecDeque::new(),
            requests: BTreeMap::new(),
            guessed: BTreeSet::new(),
            drained: BTreeSet::new(),
            producers: BTreeMap::new(),
            consumers: BTreeMap::new(),
            producers_to_close: BTreeSet::new(),
            consumers_to_close: BTreeSet::new(),
            heard_at: now,
            used_at: now,
            watchers: 0,
            is_pinged: false,
            is_challenged: false,
            refusals: 0,
            is_to_be_asked: false,
            has_credentials: false,
            forsaken: BTreeSet::new(),
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn handles(&self) -> usize {
        self.producers.len() + self.consumers.len() + self.asked.len()
    }

    pub(super) fn known(&self) -> (Vec<u64>, Vec<u64>) {
        (self.producers.keys().copied().collect(), self.consumers.keys().copied().collect())
    }

    pub(super) fn publication() -> Publication {
        Publication { message: Outgoing::default(), publish_time_ms: 0 }
    }

    /// Somebody is about to call.
    pub(super) fn called(&mut self, call: &ConnectionCall<u64, u64>) -> Step {
        self.used_at = self.now;
        let (token, waiting) = match call {
            ConnectionCall::Ask(question, token) => {
                self.asked.push_back((*token, Asked::of(question)));
                (*token, Waiting::Question { since: self.now })
            }
            ConnectionCall::Publish { producer, publication, token } => {
                if let Some(open) = self.live_producer(*producer) {
                    open.queue.push_back(*token);
                }
                let (producer, bytes) = (*producer, publication.message.payload.len());
                (*token, Waiting::Publish { producer, bytes, is_written: false })
            }
            ConnectionCall::Ack { consumer, entry, token } => {
                if let Some(open) = self.live_consumer(*consumer) {
                    open.acks.push_back((*entry, *token));
                }
                (*token, Waiting::Ack { consumer: *consumer, written: None })
            }
            ConnectionCall::Credentials(Err(_)) if self.phase == Phase::Greeting => {
                return Step::Fail;
            }
            _ => {
                self.told_by_user(call);
                return Step::Call(None);
            }
        };
        assert!(self.waiting.insert(token, waiting).is_none());
        Step::Call(Some(token))
    }

    fn told_by_user(&mut self, call: &ConnectionCall<u64, u64>) {
        match call {
            ConnectionCall::CloseProducer(id) => {
                if let Some(open) = self.live_producer(*id) {
                    open.is_closing = true;
                }
            }
            ConnectionCall::Request { consumer, count } => {
                if let Some(open) = self.live_consumer(*consumer) {
                    open.wanted += i64::from(*count);
                }
            }
            ConnectionCall::Taken { consumer, count, .. } => {
                if let Some(open) = self.live_consumer(*consumer) {
                    open.queued = open.queued.saturating_sub(*count);
                }
            }
            ConnectionCall::HandBack { consumer, entry } => {
                if let Some(open) = self.live_consumer(*consumer) {
                    open.handed_back.push_back(*entry);
                }
            }
            ConnectionCall::CloseConsumer(id) => {
                if let Some(open) = self.live_consumer(*id) {
                    open.is_closing = true;
                }
            }
            ConnectionCall::Watch => self.watchers += 1,
            ConnectionCall::Unwatch => self.watchers = self.watchers.saturating_sub(1),
            ConnectionCall::Credentials(Err(_)) => {
                self.refusals += u32::from(self.is_challenged);
                self.is_to_be_asked = self.is_challenged && self.refusals < CHALLENGE_TRIES;
                self.is_challenged = self.is_to_be_asked;
            }
            ConnectionCall::Credentials(Ok(_)) => {
                (self.is_challenged, self.is_to_be_asked) = (false, false);
                self.has_credentials = self.phase != Phase::Ended;
            }
            ConnectionCall::Ask(..)
            | ConnectionCall::Publish { .. }
            | ConnectionCall::Ack { .. } => {}
        }
    }

    /// What has happened. Says what is called because of it.
    pub(super) fn told(
        &mut self,
        step: &Step,
        events: Vec<ConnectionEvent<u64, u64>>,
        is_over: bool,
    ) -> Vec<ConnectionCall<u64, u64>> {
        if matches!(step, Step::Heard(_) | Step::Part | Step::Unknown | Step::Noise) {
            self.heard_at = self.now;
        }
        let mut context = self.begin(step, is_over);
        self.record_ends(step, &events, &mut context);
        let (mut deliveries, mut calls, mut moved) = (Vec::new(), Vec::new(), None);
        for event in events {
            match event {
                ConnectionEvent::Answered(token, result) => {
                    calls.extend(self.answered(step, &context, token, &result));
                }
                ConnectionEvent::Published(token, result) => {
                    self.published(step, &context, token, &result);
                }
                ConnectionEvent::Delivered { consumer, messages } => {
                    deliveries.push((consumer, messages))
                }
                ConnectionEvent::Challenged => {
                    let is_again = matches!(step, Step::Tick) && self.is_to_be_asked;
                    let is_asked = matches!(step, Step::Heard(it) if matches!(it.command, Command::AuthChallenge(_)));
                    let is_first = is_asked && !self.is_challenged;
                    assert!(is_first || is_again, "one challenge at a time");
                    self.refusals = if is_first { 0 } else { self.refusals };
                    (self.is_challenged, self.is_to_be_asked) = (true, false);
                }
                ConnectionEvent::Moved(told) => {
                    assert!(moved.replace(told).is_none(), "one place to go");
                }
                ConnectionEvent::ConsumerDrained(..)
                | ConnectionEvent::ConsumerEnded(..)
                | ConnectionEvent::ProducerEnded(..) => {}
            }
        }
        moving::check_moved(step, &context, moved.as_ref());
        self.complete(step, &context, &deliveries);
        calls
    }

    /// Whether the step has ended the connection is as it must be; then what the broker's words change.
    fn begin(&mut self, step: &Step, is_over: bool) -> Context {
        let was_over = self.phase == Phase::Ended;
        assert!(is_over || !was_over, "what has ended stays ended");
        if !was_over {
            let is_silent = self.now >= self.heard_at + SILENCE_MAX;
            match step {
                Step::Heard(frame) => assert_eq!(is_over, self.ends(frame), "{frame:?}"),
                Step::Noise | Step::Fail => assert!(is_over, "it goes on"),
                Step::Tick if is_silent => assert!(is_over, "a silent broker is given up"),
                Step::Tick => assert!(!is_over || self.is_idle(), "it ended in use"),
                Step::Call(_) | Step::Part | Step::Unknown | Step::Wrote => {
                    assert!(!is_over, "it ended: {step:?}")
                }
            }
        }
        let mut context = Context { is_over: is_over && !was_over, ..Context::default() };
        if is_over {
            self.phase = Phase::Ended;
        } else if let Step::Heard(frame) = step {
            self.heard(&frame.command, &mut context);
        }
        context
    }

    fn is_idle(&self) -> bool {
        let producers = self.producers.values().any(|it| !it.is_over);
        let consumers = self.consumers.values().any(|it| !it.is_over);
        !producers
            && !consumers
            && self.watchers == 0
            && self.is_quiet()
            && self.now >= self.used_at + IDLE_MAX
    }

    /// Whether such a frame ends the connection.
    fn ends(&self, frame: &Frame) -> bool {
        match (&frame.command, self.phase) {
            (Command::AuthChallenge(_), Phase::Greeting) => false,
            (Command::Connected(it), Phase::Greeting) => it.protocol_version() < VERSION_MIN,
            (_, Phase::Greeting) => true,
            (Command::Error(it), _) => it.request_id == u64::MAX,
            (Command::Message(_), _) => frame.payload.is_none(),
            (Command::SendReceipt(it), _) => {
                let producer = self.producers.get(&it.producer_id).filter(|it| !it.is_over);
                let first = producer.and_then(|it| it.in_flight.front());
                first.is_some_and(|first| first.sequence != it.sequence_id)
            }
            _ => false,
        }
    }

    fn heard(&mut self, command: &Command, context: &mut Context) {
        match command {
            Command::Connected(it) if self.phase == Phase::Greeting => {
                self.phase = Phase::Open;
                let stated = it.max_message_size.unwrap_or_default();
                self.message_bytes_max = match usize::try_from(stated) {
                    Ok(0) | Err(_) => MESSAGE_BYTES_MAX_DEFAULT,
                    Ok(bytes) => bytes.min(MESSAGE_BYTES_BELIEVED),
                };
            }
            Command::Ping(_) => self.is_pinged = true,
            Command::ReachedEndOfTopic(it) => {
                // One that is not written yet may be guessed.
                self.drained.insert(it.consumer_id);
            }
            Command::SendReceipt(it) => {
                let producer = self.live_producer(it.producer_id);
                context.entry = producer.and_then(|it| it.in_flight.pop_front());
            }
            Command::SendError(it) if it.error == ServerError::NotAllowedError as i32 => {
                let producer = self.live_producer(it.producer_id);
                context.entry = producer.and_then(|producer| producer.refused(it.sequence_id));
            }
            _ => {
                let Some(id) = request_id(command) else { return };
                context.answered = self.requests.remove(&id);
                if context.answered.is_none() {
                    self.guessed.insert(id);
                }
            }
        }
    }

    /// What had to come of the step has come of it.
    fn complete(&mut self, step: &Step, context: &Context, deliveries: &[(u64, Vec<Message>)]) {
        if context.is_over {
            return self.is_settled();
        }
        let entry = context.entry.iter().flat_map(|it| &it.tokens);
        assert!(entry.into_iter().all(|it| !self.waiting.contains_key(it)), "no word of an entry");
        self.check_ends(context);
        match step {
            Step::Heard(frame) => {
                if let Some(request) = &context.answered {
                    self.check_answered(request, &frame.command);
                }
                self.check_deliveries(frame, deliveries, context);
                self.check_closed(frame);
            }
            Step::Tick => self.check_times(),
            Step::Call(Some(token)) => self.take_question(*token),
            _ => {}
        }
        assert!(matches!(step, Step::Heard(_)) || deliveries.is_empty(), "out of nowhere");
    }

    /// Nobody waits longer than is promised.
    fn check_times(&self) {
        for (token, waiting) in &self.waiting {
            let since = match waiting {
                Waiting::Question { since } => Some(*since),
                Waiting::Ack { written, .. } => *written,
                Waiting::Publish { .. } => None,
            };
            assert!(
                since.is_none_or(|at| self.now < at + ANSWER_MAX),
                "{token} waits for too long: {waiting:?}"
            );
        }
        self.check_receipt_times();
    }

    /// Frames that were written, in order, in one go.
    pub(super) fn wrote(&mut self, frames: &[Frame]) {
        assert!(frames.is_empty() || self.phase != Phase::Ended, "it writes behind its end");
        let count = |wanted: fn(&Command) -> bool| {
            frames.iter().filter(|frame| wanted(&frame.command)).count()
        };
        assert!(count(|it| matches!(it, Command::Ping(_))) <= 1, "one PING is enough");
        assert!(count(|it| matches!(it, Command::Pong(_))) <= 1, "one PONG is enough");
        assert!(count(|it| matches!(it, Command::AuthResponse(_))) <= 1, "only the newest counts");
        for frame in frames {
            match &frame.command {
                Command::Connect(_) => {
                    assert!(!std::mem::replace(&mut self.is_introduced, true), "a second CONNECT");
                }
                Command::AuthResponse(_) => {
                    assert!(self.is_introduced && std::mem::take(&mut self.has_credentials));
                }
                command => {
                    assert!(self.is_open(), "said before it was taken in: {command:?}");
                    self.wrote_command(frame);
                }
            }
        }
    }

    fn wrote_command(&mut self, frame: &Frame) {
        match &frame.command {
            Command::Ping(_) => {}
            Command::Pong(_) => assert!(std::mem::take(&mut self.is_pinged), "nobody asked"),
            Command::Send(send) => self.wrote_send(send, frame.payload.as_ref()),
            Command::Flow(flow) => self.wrote_flow(flow),
            Command::Redeliver(it) => self.wrote_redeliver(it),
            Command::Ack(ack) => self.wrote_ack(ack),
            Command::CloseProducer(it) => {
                self.producers_to_close.remove(&it.producer_id);
                self.requests.insert(it.request_id, Request::of_nobody());
                let closed = self.producers.entry(it.producer_id).or_default();
                assert!(closed.is_over || closed.is_closing, "a producer in use is closed");
                closed.is_closed = true;
            }
            Command::CloseConsumer(it) => {
                self.consumers_to_close.remove(&it.consumer_id);
                self.requests.insert(it.request_id, Request::of_nobody());
                let closed = self.consumers.entry(it.consumer_id).or_default();
                assert!(closed.is_over || closed.is_closing, "a consumer in use is closed");
                closed.is_closed = true;
            }
            command => self.wrote_question(command),
        }
    }

    /// Nothing is left to be written.
    pub(super) fn has_written_all(&self) {
        assert!(self.is_introduced && !self.has_credentials, "the broker knows who we are");
        if self.is_open() {
            assert!(!self.is_pinged, "a PING is answered");
            assert!(self.asked.is_empty(), "not asked: {:?}", self.asked);
            let to_close = (&self.producers_to_close, &self.consumers_to_close);
            assert!(to_close.0.is_empty() && to_close.1.is_empty(), "left open: {to_close:?}");
            self.producers.values().for_each(Producer::has_written_all);
            self.consumers.values().for_each(Consumer::has_written_all);
        }
    }

    /// Everything has come to its end.
    pub(super) fn is_settled(&self) {
        assert!(self.waiting.is_empty(), "nobody answers {:?}", self.waiting);
        assert!(self.producers.values().all(|it| it.is_over), "a producer without an end");
        assert!(self.consumers.values().all(|it| it.is_over), "a consumer without an end");
    }

    fn live_producer(&mut self, id: u64) -> Option<&mut Producer> {
        self.producers.get_mut(&id).filter(|it| !it.is_over)
    }

    fn live_consumer(&mut self, id: u64) -> Option<&mut Consumer> {
        self.consumers.get_mut(&id).filter(|it| !it.is_over)
    }
}
