//! The users of connections, and their promises.

use super::world::{Purpose, World};
use longhaul::{EntryId, Position};
use longhaul_broker::internals::stepped::MESSAGE_BYTES_MAX;
use longhaul_session::machine::call::{
    BrokerRequest, ConnectionCall, ConsumerOptions, LookupQuestion, ProducerOptions, Publication,
    StartPlace, SubscriptionSpec,
};
use longhaul_transport::{Batching, Message};
use std::collections::{BTreeSet, VecDeque};

/// Messages of the largest batch in a history. A reader may get this many more than it has room
/// for.
const BATCH_MAX: usize = 64;

/// A user of connections.
#[derive(Debug)]
pub(super) enum Actor {
    Publisher(Publisher),
    Worker(Worker),
    Reader(Reader),
}

/// The state of an actor's producer or consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    /// Waits for the answer to this token.
    Opening(u64),
    /// Connection and number.
    Open(u64, u64),
}

/// Publishes a number of messages, each once.
#[derive(Debug)]
pub(super) struct Publisher {
    client: usize,
    topic: usize,
    left: u32,
    state: State,
}

/// Consumes the shared subscription, and finally acknowledges everything.
#[derive(Debug)]
pub(super) struct Worker {
    client: usize,
    topic: usize,
    state: State,
    /// The messages that the open consumer has requested, and those delivered to it.
    requested: u64,
    delivered: u64,
    held: BTreeSet<EntryId>,
}

/// Reads a topic from its beginning, and continues where it was.
#[derive(Debug)]
pub(super) struct Reader {
    client: usize,
    topic: usize,
    window: u32,
    /// Whether it reads the compacted view, if there is one.
    compacted: bool,
    state: State,
    begin: Option<Position>,
    seen: Vec<Position>,
    /// Bytes of each message that waits to be taken.
    queue: VecDeque<usize>,
    /// Messages and bytes taken and not yet reported.
    untold: (usize, usize),
}

impl Actor {
    const fn state(&mut self) -> &mut State {
        match self {
            Self::Publisher(it) => &mut it.state,
            Self::Worker(it) => &mut it.state,
            Self::Reader(it) => &mut it.state,
        }
    }

    pub(super) fn step(&mut self, world: &mut World, me: usize) {
        match self {
            Self::Publisher(it) => it.step(world, me),
            Self::Worker(it) => it.step(world, me),
            Self::Reader(it) => it.step(world, me),
        }
    }

    /// Handles the answer to an open. Returns whether the actor still waits for it.
    pub(super) fn opened(&mut self, token: u64, handle: Option<(u64, u64)>) -> bool {
        let is_wanted = *self.state() == State::Opening(token);
        if is_wanted {
            *self.state() = handle.map_or(State::Closed, |(conn, id)| State::Open(conn, id));
        }
        is_wanted
    }

    /// Handles the end of the producer or consumer.
    pub(super) fn ended(&mut self) {
        *self.state() = State::Closed;
        if let Self::Worker(it) = self {
            it.held.clear();
        }
    }

    pub(super) fn delivered(&mut self, world: &mut World, messages: &[Message]) {
        match self {
            Self::Publisher(_) => panic!("a delivery to a publisher"),
            Self::Worker(it) => it.delivered(world, messages),
            Self::Reader(it) => it.delivered(world, messages),
        }
    }

    pub(super) fn is_done(&self, world: &World) -> bool {
        match self {
            Self::Publisher(it) => it.left == 0,
            Self::Worker(it) => matches!(it.state, State::Open(..)) && it.held.is_empty(),
            Self::Reader(it) => it.taken_away(world).is_some(),
        }
    }

    /// Closes the open producer or consumer, or one that is being opened.
    pub(super) fn leave(&mut self, world: &mut World) {
        if let Self::Reader(it) = self {
            world.ledger.figures.compacted_out += it.taken_away(world).unwrap_or_default();
        }
        let is_producer = matches!(self, Self::Publisher(_));
        if let State::Open(conn, id) = *self.state() {
            world.close(conn, id, is_producer);
        }
        *self.state() = State::Closed;
    }
}

impl Publisher {
    pub(super) const fn new(client: usize, topic: usize, left: u32) -> Self {
        Self { client, topic, left, state: State::Closed }
    }

    fn step(&mut self, world: &mut World, me: usize) {
        match self.state {
            State::Closed if self.left > 0 => {
                let batching = if world.random.bool() { Batching::On } else { Batching::Off };
                let topic = world.topics[self.topic].clone();
                let options = ProducerOptions { topic, batching, schema: None };
                let conn = world.conn(self.client, 1);
                let token = world.ask(conn, BrokerRequest::Producer(options), Purpose::Open(me));
                self.state = State::Opening(token);
            }
            State::Opening(_) if !world.is_calm && world.chance(40) => self.state = State::Closed,
            State::Open(conn, id) if !world.is_calm && world.chance(30) => {
                world.close(conn, id, true);
                self.state = State::Closed;
            }
            State::Open(conn, id) => {
                for _ in 0..world.random.u32(1..6).min(self.left) {
                    self.left -= 1;
                    self.publish(world, conn, id);
                }
            }
            State::Closed | State::Opening(_) => {}
        }
    }

    fn publish(&self, world: &mut World, producer: u64, id: u64) {
        let bytes = match world.random.u8(0..40) {
            0 => MESSAGE_BYTES_MAX + 1,
            1..=3 => world.random.usize(1_000..20_000),
            _ => world.random.usize(0..60),
        };
        let is_null = world.chance(10);
        let (message, number) = world.ledger.publish(self.topic, (producer, id), bytes, is_null);
        let publication = Publication { message, publish_time_ms: 1_700_000_000_000 };
        world.call(producer, ConnectionCall::Publish { producer: id, publication, token: number });
    }
}

impl Worker {
    pub(super) const fn new(client: usize, topic: usize) -> Self {
        let held = BTreeSet::new();
        Self { client, topic, state: State::Closed, requested: 0, delivered: 0, held }
    }

    fn step(&mut self, world: &mut World, me: usize) {
        match self.state {
            State::Closed => {
                let topic = world.topics[self.topic].clone();
                let subscription = SubscriptionSpec::Shared { name: "s".to_owned() };
                let options = ConsumerOptions { topic, subscription };
                (self.requested, self.delivered) = (0, 0);
                self.held.clear();
                let conn = world.conn(self.client, 0);
                let token = world.ask(conn, BrokerRequest::Consumer(options), Purpose::Open(me));
                self.state = State::Opening(token);
            }
            State::Opening(_) if !world.is_calm && world.chance(40) => self.state = State::Closed,
            State::Opening(_) => {}
            State::Open(conn, id) if world.is_calm => {
                let owed = self.delivered.saturating_sub(self.requested);
                if self.requested <= self.delivered {
                    self.request(world, conn, id, owed + 1);
                }
                for entry in std::mem::take(&mut self.held) {
                    self.ack(world, conn, id, entry);
                }
            }
            State::Open(conn, id) => self.misbehave(world, conn, id),
        }
    }

    fn misbehave(&mut self, world: &mut World, conn: u64, id: u64) {
        match world.random.u8(0..40) {
            0..=15 => {
                let count = world.random.u64(0..8);
                self.request(world, conn, id, count);
            }
            16..=28 => {
                for _ in 0..world.random.u8(1..6) {
                    let Some(entry) = self.held.pop_first() else { break };
                    self.ack(world, conn, id, entry);
                }
            }
            29..=32 => {
                if let Some(entry) = self.held.pop_last() {
                    world.call(conn, ConnectionCall::HandBack { consumer: id, entry });
                }
            }
            33 => {
                world.close(conn, id, false);
                self.held.clear();
                self.state = State::Closed;
            }
            34 => drop(world.ask(conn, BrokerRequest::Stats { consumer: id }, Purpose::Question)),
            35 => drop(world.ask(conn, BrokerRequest::Last { consumer: id }, Purpose::Question)),
            36 => {
                let topic = world.topics[self.topic].clone();
                let listener_name = None;
                let question = BrokerRequest::Lookup(LookupQuestion {
                    topic,
                    authoritative: false,
                    listener_name,
                });
                world.ask(conn, question, Purpose::Question);
            }
            _ => {}
        }
    }

    fn request(&mut self, world: &mut World, conn: u64, id: u64, count: u64) {
        self.requested += count;
        let count = u32::try_from(count).expect("a few");
        world.call(conn, ConnectionCall::Request { consumer: id, count });
    }

    fn ack(&self, world: &mut World, conn: u64, id: u64, entry: EntryId) {
        let token = world.token(Purpose::Ack(self.topic, entry));
        world.call(conn, ConnectionCall::Ack { consumer: id, entry, token });
    }

    fn delivered(&mut self, world: &mut World, messages: &[Message]) {
        let seed = world.ledger.seed;
        assert!(
            self.delivered < self.requested,
            "seed {seed}: {} asked for, {} delivered, and more came",
            self.requested,
            self.delivered
        );
        self.delivered += messages.len() as u64;
        world.ledger.figures.delivered += messages.len() as u64;
        for message in messages {
            world.ledger.check_delivery(self.topic, message);
            self.held.insert(message.position.entry_id());
        }
    }
}

impl Reader {
    pub(super) const fn new(client: usize, topic: usize, window: u32, compacted: bool) -> Self {
        Self {
            client,
            topic,
            window,
            compacted,
            state: State::Closed,
            begin: None,
            seen: Vec::new(),
            queue: VecDeque::new(),
            untold: (0, 0),
        }
    }

    /// The messages that compactions removed before the reader came to them. `None` while it has
    /// not seen all others.
    fn taken_away(&self, world: &World) -> Option<u64> {
        let topic = (self.topic, &world.journal);
        world.ledger.taken_away(topic, self.begin, self.compacted, &self.seen)
    }

    /// The last message seen, or the place where the reader began.
    fn last(&self) -> Option<Position> {
        self.seen.last().copied().or(self.begin)
    }

    fn step(&mut self, world: &mut World, me: usize) {
        match self.state {
            State::Closed => self.open(world, me),
            State::Opening(_) if !world.is_calm && world.chance(40) => self.state = State::Closed,
            State::Opening(_) => {}
            State::Open(conn, id) if !world.is_calm && world.chance(30) => {
                world.close(conn, id, false);
                self.state = State::Closed;
            }
            State::Open(conn, id) if !world.is_calm && world.chance(15) => {
                world.close(conn, id, false);
                self.state = State::Closed;
                self.move_on(world);
            }
            State::Open(conn, id) => self.take(world, conn, id),
        }
    }

    fn open(&mut self, world: &mut World, me: usize) {
        self.queue.clear();
        self.untold = (0, 0);
        let start = self.last().map_or(StartPlace::Earliest, StartPlace::After);
        let name = format!("reader-{:x}", world.random.u64(..));
        let (window, compacted) = (self.window, self.compacted);
        let subscription = SubscriptionSpec::Reader { name, start, compacted, window };
        let topic = world.topics[self.topic].clone();
        let options = ConsumerOptions { topic, subscription };
        let conn = world.conn(self.client, 1);
        let token = world.ask(conn, BrokerRequest::Consumer(options), Purpose::Open(me));
        self.state = State::Opening(token);
    }

    /// Starts again at a message that was seen, or at the beginning.
    fn move_on(&mut self, world: &mut World) {
        let place = world.random.choice(&self.seen).copied();
        self.begin = if world.random.u8(0..3) == 0 { None } else { place };
        self.seen.clear();
    }

    fn take(&mut self, world: &mut World, conn: u64, id: u64) {
        let count = if world.is_calm { self.queue.len() } else { world.random.usize(0..10) };
        for _ in 0..count {
            let Some(bytes) = self.queue.pop_front() else { break };
            self.untold.0 += 1;
            self.untold.1 += bytes;
        }
        self.tell(world, conn, id, self.window as usize / 4);
    }

    /// Reports the taken messages if there are more than `more_than`.
    fn tell(&mut self, world: &mut World, conn: u64, id: u64, more_than: usize) {
        if self.untold.0 > more_than {
            let (count, bytes) = std::mem::take(&mut self.untold);
            world.call(conn, ConnectionCall::Taken { consumer: id, count, bytes });
        }
    }

    fn delivered(&mut self, world: &mut World, messages: &[Message]) {
        let seed = world.ledger.seed;
        for message in messages {
            let last = self.last();
            let place = message.position;
            assert!(Some(place) > last, "seed {seed}: {place:?} behind {last:?}");
            world.ledger.check_delivery(self.topic, message);
            self.seen.push(place);
            self.queue.push_back(message.payload.len());
        }
        world.ledger.figures.read += messages.len() as u64;
        let ahead = self.queue.len() + self.untold.0;
        let most = self.window as usize + BATCH_MAX;
        assert!(ahead <= most, "seed {seed}: {ahead} messages wait in a window of {}", self.window);
    }
}
