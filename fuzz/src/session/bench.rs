//! The machine, and the bytes to it and from it.

use super::model::{Model, Step};
use super::next_frame;
use bytes::BytesMut;
use longhaul_session::machine::call::{BrokerRequest, ConnectionCall};
use longhaul_session::machine::{ConnectionMachine, Greeting};
use longhaul_transport::moment::Moment;
use longhaul_transport::{EntryId, TransportError, TransportErrorKind};
use longhaul_wire::frame::{self, FRAME_ALLOWANCE};
use std::time::Duration;

/// What the machine leaves unwritten before it encodes more, and the most that it then adds at once.
const OUT_BYTES: usize = 256 * 1024;
const OUT_BYTES_MAX: usize = 2 * OUT_BYTES;
/// How long a silent connection lives.
const SILENCE_MAX: Duration = Duration::from_secs(60);

pub(super) struct Bench {
    machine: ConnectionMachine<u64, u64>,
    pub(super) model: Model,
    next_token: u64,
    /// What is to be written waits until it is asked for.
    is_lazy: bool,
    /// A frame comes in two parts.
    is_cut: bool,
    /// What has come for the machine, and was no whole frame.
    inbox: BytesMut,
    /// The same as the model reads it.
    stream: BytesMut,
    outbox: BytesMut,
    /// What was said last, so that it can be said again.
    pub(super) last_said: Vec<u8>,
}

impl Bench {
    pub(super) fn new(is_lazy: bool, is_cut: bool) -> Self {
        let now = Moment(Duration::from_secs(1_000));
        Self {
            machine: ConnectionMachine::new("here".into(), Greeting::default(), now),
            model: Model::new(now),
            next_token: 0,
            is_lazy,
            is_cut,
            inbox: BytesMut::new(),
            stream: BytesMut::new(),
            outbox: BytesMut::new(),
            last_said: Vec::new(),
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.machine.end().is_some()
    }

    pub(super) const fn token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }

    /// Nobody will wait for the answer to this question any more.
    pub(super) fn forsake(&mut self, token: u64) {
        self.model.forsaken.insert(token);
    }

    pub(super) fn call(&mut self, call: ConnectionCall<u64, u64>) {
        let step = self.model.called(&call);
        self.machine.handle(call, self.model.now);
        self.settle(&step);
        self.drain_unless_lazy();
    }

    /// The broker says something, which may be a part of a frame, or several.
    pub(super) fn say(&mut self, bytes: &[u8]) {
        self.last_said = bytes.to_vec();
        self.stream.extend_from_slice(bytes);
        while !self.is_over() && !self.stream.is_empty() {
            let passed = self.inbox.len();
            match self.whole_frame() {
                Ok(Some((frame, size))) => {
                    let part = self.stream.split_to(size);
                    let (first, second) = part.split_at(if self.is_cut { size / 2 } else { 0 });
                    self.pass_on(first.get(passed..).unwrap_or_default());
                    assert!(self.machine.poll_event().is_none(), "half a frame is none");
                    self.pass_on(
                        second.get(passed.saturating_sub(first.len())..).unwrap_or_default(),
                    );
                    self.settle(&Step::Heard(frame));
                }
                Ok(None) => {
                    let part = self.stream.clone();
                    self.pass_on(part.get(passed..).unwrap_or_default());
                    return self.settle(&Step::Part);
                }
                Err(frame::FrameError::Type(_)) if self.model.is_open() => {
                    let size = self.stream.first_chunk::<4>().map(|head| u32::from_be_bytes(*head));
                    let part = self.stream.split_to(4 + size.expect("a whole frame") as usize);
                    self.pass_on(part.get(passed..).unwrap_or_default());
                    self.settle(&Step::Unknown);
                }
                Err(_) => {
                    let part = self.stream.split();
                    self.pass_on(part.get(passed..).unwrap_or_default());
                    self.settle(&Step::Noise);
                }
            }
            self.drain_unless_lazy();
        }
    }

    /// A large frame of which only the head is there is not waited for with a buffer of its size.
    fn whole_frame(&self) -> Result<Option<(frame::Frame, usize)>, frame::FrameError> {
        let limit = self.model.message_bytes_max.saturating_add(FRAME_ALLOWANCE);
        let Some(head) = self.stream.first_chunk::<4>() else { return Ok(None) };
        let size = u32::from_be_bytes(*head) as usize;
        if size <= limit && self.stream.len() < 4 + size {
            return Ok(None);
        }
        next_frame(&self.stream, self.model.message_bytes_max)
    }

    fn pass_on(&mut self, bytes: &[u8]) {
        self.inbox.extend_from_slice(bytes);
        self.machine.receive(&mut self.inbox, self.model.now);
    }

    /// Lets time pass; what is due is done, or left to somebody who is late.
    pub(super) fn pass(&mut self, time: Duration, is_looked_at: bool) {
        self.model.now = self.model.now + time;
        if is_looked_at {
            self.tick();
        }
    }

    /// Waits until something is due.
    pub(super) fn ring(&mut self) {
        let due = self.machine.timeout().expect("something is due until the end");
        self.model.now = self.model.now.max(due);
        self.tick();
    }

    fn tick(&mut self) {
        let now = self.model.now;
        self.machine.tick(now);
        self.settle(&Step::Tick);
        assert!(self.machine.timeout().is_none_or(|at| at > now), "a timer rings for ever");
        self.drain_unless_lazy();
    }

    pub(super) fn fail(&mut self) {
        self.machine.fail(TransportError {
            kind: TransportErrorKind::Unreachable,
            address: "here".to_owned(),
            cause: "gone".to_owned(),
        });
        self.settle(&Step::Fail);
    }

    fn drain_unless_lazy(&mut self) {
        if !self.is_lazy {
            self.drain();
        }
    }

    /// Takes all that is to be written.
    pub(super) fn drain(&mut self) {
        loop {
            self.outbox.clear();
            self.transmit();
            if self.outbox.is_empty() {
                return;
            }
        }
    }

    /// The socket takes a part.
    pub(super) fn drain_some(&mut self, bytes: usize) {
        let bytes = bytes.min(self.outbox.len());
        drop(self.outbox.split_to(bytes));
        self.transmit();
    }

    pub(super) fn transmit(&mut self) {
        let before = self.outbox.len();
        self.machine.transmit(&mut self.outbox, self.model.now);
        assert!(self.outbox.len() <= OUT_BYTES_MAX, "too much waits to be written");
        let mut written = BytesMut::from(self.outbox.get(before..).unwrap_or_default());
        let mut frames = Vec::new();
        while let Some(frame) = frame::decode(&mut written, OUT_BYTES_MAX).expect("a frame") {
            frames.push(frame);
        }
        assert!(written.is_empty(), "only whole frames are written");
        self.model.wrote(&frames);
        self.settle(&Step::Wrote);
        if self.outbox.len() < OUT_BYTES && !self.is_over() {
            self.model.has_written_all();
            assert!(!self.machine.is_quiet() || self.model.is_quiet(), "somebody still waits");
        }
    }

    /// Compares what has happened with what had to.
    fn settle(&mut self, step: &Step) {
        let events = std::iter::from_fn(|| self.machine.poll_event()).collect();
        for call in self.model.told(step, events, self.machine.end().is_some()) {
            let step = self.model.called(&call);
            self.machine.handle(call, self.model.now);
            self.settle(&step);
        }
        assert_eq!(self.machine.is_open(), self.model.is_open());
        match self.machine.timeout() {
            Some(due) => assert!(!self.is_over() && due <= self.model.heard_at + SILENCE_MAX),
            None => assert!(self.is_over(), "nothing is due"),
        }
    }

    /// The connection ends, at once or because nothing is heard any more; then everybody knows.
    pub(super) fn finish(mut self, is_silent: bool) {
        let mut rings = 16 + 2 * self.model.handles() + self.model.requests.len();
        while is_silent && !self.is_over() {
            self.drain();
            self.ring();
            assert!(rings > 0, "what is due does not get less");
            rings -= 1;
        }
        if !self.is_over() {
            self.fail();
        }
        self.model.is_settled();
        self.is_lazy = false;
        self.outbox.clear();
        let (producers, consumers) = self.model.known();
        let mut calls = Vec::new();
        calls.push(ConnectionCall::Credentials(Ok(None)));
        calls.push(ConnectionCall::Ask(
            BrokerRequest::Partitions { topic: String::new() },
            self.token(),
        ));
        for producer in producers {
            let token = self.token();
            calls.push(ConnectionCall::Publish {
                producer,
                publication: Model::publication(),
                token,
            });
            calls.push(ConnectionCall::CloseProducer(producer));
        }
        for consumer in consumers {
            let entry = EntryId { ledger: 0, entry: 0 };
            calls.push(ConnectionCall::Ack { consumer, entry, token: self.token() });
            calls.push(ConnectionCall::Request { consumer, count: 1 });
            calls.push(ConnectionCall::CloseConsumer(consumer));
        }
        calls.into_iter().for_each(|call| self.call(call));
        let now = self.model.now;
        self.machine.receive(&mut BytesMut::from(&super::broker::ping()[..]), now);
        self.machine.tick(now + SILENCE_MAX);
        self.fail();
        self.transmit();
        assert!(self.machine.is_quiet() && self.outbox.is_empty(), "it goes on behind its end");
        self.model.is_settled();
    }
}
