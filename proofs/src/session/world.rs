//! Connections, the broker, the time, and faults.

mod moving;

use super::actors::{Actor, Publisher, Reader, Worker};
use super::ledger::{Handle, Ledger};
use super::network::{Arrival, Direction, Pipe};
use super::{Figures, Plan};
use bytes::BytesMut;
use fastrand::Rng;
use longhaul::EntryId;
use longhaul_broker::internals::log::SimulatedStorage;
use longhaul_broker::internals::stepped::{Handles, Journal, SteppedBroker};
use longhaul_session::machine::call::{
    BrokerRequest, BrokerResponse, ConnectionCall, ConnectionEvent,
};
use longhaul_session::machine::{ConnectionMachine, Greeting};
use longhaul_transport::moment::Moment;
use longhaul_transport::{TransportError, TransportErrorKind};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The wall clock when a history begins.
const EPOCH_MS: u64 = 1_700_000_000_000;
/// Silence after which the broker pings a client. After twice that time it drops the client.
const BROKER_KEEP_ALIVE_MS: u64 = 30_000;
/// The longest calm phase in simulated time. It suffices for two dead connections in a row and
/// their pings.
const CALM_MS_MAX: u64 = 600_000;
/// Connections of a client. A transport has one for tasks and one for records.
const SLOTS: usize = 2;
/// The most bytes that a machine may have encoded and not written: its own limit and the frame that
/// exceeds it.
const OUT_BYTES_MAX: usize = 512 * 1024;

/// One connection, both ends.
struct Conn {
    machine: ConnectionMachine<u64, u64>,
    /// Whether the client has closed the connection or has been told that it is over.
    is_left: bool,
    inbox: BytesMut,
    outbox: BytesMut,
    up: Pipe,
    down: Pipe,
    /// Whether the broker serves the connection.
    is_served: bool,
    served: BytesMut,
    heard: u64,
    is_asked: bool,
    /// The number of bytes that move at a time.
    pace: usize,
    taps: (BytesMut, BytesMut),
}

/// The purpose of a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    /// An actor opens something.
    Open(usize),
    /// An entry of a topic is acknowledged.
    Ack(usize, EntryId),
    /// A question without consequences.
    Question,
}

/// The whole world.
pub(super) struct World {
    plan: Plan,
    pub(super) random: Rng,
    /// In ms since the history began.
    now: u64,
    storage: SimulatedStorage,
    broker: SteppedBroker,
    pub(super) journal: Journal,
    conns: BTreeMap<u64, Conn>,
    /// The connections of each client.
    slots: Vec<[Option<u64>; SLOTS]>,
    next: u64,
    pending: BTreeMap<u64, Purpose>,
    /// The actor that owns each producer or consumer.
    owners: BTreeMap<Handle, usize>,
    /// Consumers that their owners have closed, until the machine confirms it.
    leaving: BTreeSet<Handle>,
    actors: Vec<Option<Actor>>,
    pub(super) topics: Vec<String>,
    pub(super) ledger: Ledger,
    pub(super) is_calm: bool,
    first: (u64, u64),
}

fn broken(cause: &str) -> TransportError {
    let kind = TransportErrorKind::Unreachable;
    TransportError { kind, address: "simulated".to_owned(), cause: cause.to_owned() }
}

impl World {
    pub(super) fn new(plan: Plan) -> Self {
        let mut random = Rng::with_seed(plan.seed);
        let storage = SimulatedStorage::new(plan.seed);
        let mut journal = Journal::new();
        let mut broker =
            SteppedBroker::open(&storage, EPOCH_MS).expect("a broker on an empty disk");
        let topics: Vec<String> =
            (0..2).map(|index| format!("persistent://public/default/topic-{index}")).collect();
        for topic in &topics {
            // One subscription is never read, so that nothing is trimmed before readers get there.
            broker.create(topic, &["kept", "s"]);
        }
        broker.write(&mut journal).expect("a disk that works");
        broker.confirm();
        let clients = if plan.faults { 3 } else { 1 };
        let mut actors = Vec::new();
        for client in 0..clients {
            for topic in 0..topics.len() {
                let left = if plan.faults { random.u32(10..60) } else { 12 };
                actors.push(Some(Actor::Publisher(Publisher::new(client, topic, left))));
                actors.push(Some(Actor::Worker(Worker::new(client, topic))));
                if client == 0 {
                    for compacted in [false, true].into_iter().take(if plan.faults { 2 } else { 1 })
                    {
                        let window = random.u32(1..30);
                        let reader = Reader::new(client, topic, window, compacted);
                        actors.push(Some(Actor::Reader(reader)));
                    }
                }
            }
        }
        Self {
            plan,
            random,
            now: 0,
            storage,
            broker,
            journal,
            conns: BTreeMap::new(),
            slots: vec![[None; SLOTS]; clients],
            next: 0,
            pending: BTreeMap::new(),
            owners: BTreeMap::new(),
            leaving: BTreeSet::new(),
            actors,
            ledger: Ledger::new(plan.seed, topics.clone()),
            topics,
            is_calm: false,
            first: (0, 0),
        }
    }

    pub(super) fn figures(mut self) -> Figures {
        self.ledger.figures.first_connection = self.first;
        self.ledger.figures
    }

    fn moment(&self) -> Moment {
        Moment(Duration::from_secs(1_000) + Duration::from_millis(self.now))
    }

    pub(super) fn chance(&mut self, of: u32) -> bool {
        self.random.u32(0..of) == 0
    }

    /// Performs random steps with faults.
    pub(super) fn rough(&mut self) {
        for _ in 0..self.plan.steps {
            match self.random.u8(0..100) {
                0..=39 => self.move_something(),
                40..=54 => {
                    let index = self.random.usize(0..self.actors.len());
                    self.act(index);
                }
                55..=79 => drop(self.move_everything(64)),
                80..=87 => self.advance_broker(),
                88..=94 => self.write_broker(),
                95..=97 => self.pass(self.random.clone().u64(1..200)),
                98 if self.plan.faults && self.chance(4) => {
                    self.pass(self.random.clone().u64(1_000..20_000))
                }
                99 if self.plan.faults => self.go_wrong(),
                _ => {}
            }
        }
    }

    /// Performs steps without faults until everything has come to its end.
    pub(super) fn calm(&mut self) {
        self.is_calm = true;
        let began = self.now;
        while !self.is_done() {
            for index in 0..self.actors.len() {
                self.act(index);
            }
            if !self.turn() {
                self.wait(began);
            }
        }
    }

    /// Closes all actors, and checks that nothing is left behind.
    pub(super) fn settle(&mut self) {
        let seed = self.plan.seed;
        for index in 0..self.actors.len() {
            let mut actor = self.actors[index].take().expect("an actor");
            actor.leave(self);
            self.actors[index] = Some(actor);
        }
        let began = self.now;
        while self.turn() || self.conns.values().any(|it| !it.is_left && !it.machine.is_quiet()) {
            if !self.turn() {
                self.wait(began);
            }
        }
        assert!(self.pending.is_empty(), "seed {seed}: nobody answered {:?}", self.pending);
        self.ledger.check(&self.journal);
        // Connections that are deaf, or that only the broker knows, no longer count.
        let lost = self.conns.iter().filter(|(_, it)| it.is_left || it.up.is_deaf());
        let lost: Vec<u64> = lost.map(|(number, _)| *number).collect();
        lost.into_iter().for_each(|number| self.broker.disconnect(number));
        for topic in self.topics.clone() {
            let (handles, backlog) = self.look(&topic);
            assert_eq!(handles, Handles::default(), "seed {seed}: left open on {topic}");
            assert_eq!(backlog, 0, "seed {seed}: not acknowledged on {topic}");
        }
    }

    fn look(&mut self, topic: &str) -> (Handles, u64) {
        self.write_broker();
        self.write_broker();
        self.broker.look(topic, "s").expect("figures of a topic")
    }

    fn is_done(&mut self) -> bool {
        if !self.ledger.is_settled() {
            return false;
        }
        let actors: Vec<&Actor> = self.actors.iter().flatten().collect();
        if !actors.iter().all(|actor| actor.is_done(self)) {
            return false;
        }
        let topics = self.topics.clone();
        topics.iter().all(|topic| self.look(topic).1 == 0)
    }

    /// Moves everything that can move. Returns whether anything did.
    fn turn(&mut self) -> bool {
        let mut moved = self.move_everything(usize::MAX);
        self.advance_broker();
        moved |= self.broker.write(&mut self.journal).expect("a disk that works");
        self.broker.confirm();
        self.collect();
        moved | self.move_everything(usize::MAX)
    }

    /// Lets time pass to the next due time, when nothing moves.
    fn wait(&mut self, began: u64) {
        let due = self.conns.values().filter(|it| !it.is_left);
        let due = due.filter_map(|it| it.machine.timeout()).min();
        let due = due.map(|at| u64::try_from(at.since(self.moment()).as_millis()).expect("soon"));
        // The broker's own deadlines, and those of its connections, are checked at least once a
        // second.
        self.pass(due.unwrap_or(1_000).clamp(1, 1_000));
        let (seed, took) = (self.plan.seed, self.now - began);
        assert!(
            took < CALM_MS_MAX,
            "seed {seed}: it hangs: {:?}, {:#?}",
            self.pending,
            self.actors
        );
    }

    fn act(&mut self, index: usize) {
        let Some(mut actor) = self.actors[index].take() else { return };
        actor.step(self, index);
        self.actors[index] = Some(actor);
        self.drain_all();
    }

    // Operations of actors on connections.

    /// The open connection of a client in this slot, or a new one.
    pub(super) fn conn(&mut self, client: usize, slot: usize) -> u64 {
        let known = self.slots[client][slot].filter(|conn| {
            self.conns.get(conn).is_some_and(|it| !it.is_left && it.machine.end().is_none())
        });
        if let Some(conn) = known {
            return conn;
        }
        let number = self.next;
        self.next += 1;
        let machine =
            ConnectionMachine::new("simulated".into(), Greeting::default(), self.moment());
        let small = self.plan.faults && self.chance(3);
        let capacity = if small { self.random.usize(1..200) } else { 64 * 1024 };
        let slow = self.plan.faults && self.chance(4);
        let pace = if slow { self.random.usize(1..30) } else { self.random.usize(100..20_000) };
        let (mut up, mut down) = (Pipe::new(capacity), Pipe::new(capacity));
        if let (0, Some((direction, at))) = (number, self.plan.cut) {
            match direction {
                Direction::Up => up.cut_at = Some(at),
                Direction::Down => down.cut_at = Some(at),
            }
        }
        self.broker.connect(number);
        self.conns.insert(
            number,
            Conn {
                machine,
                is_left: false,
                inbox: BytesMut::new(),
                outbox: BytesMut::new(),
                up,
                down,
                is_served: true,
                served: BytesMut::new(),
                heard: self.now,
                is_asked: false,
                pace,
                taps: Default::default(),
            },
        );
        self.slots[client][slot] = Some(number);
        self.ledger.figures.connections += 1;
        number
    }

    pub(super) fn call(&mut self, conn: u64, call: ConnectionCall<u64, u64>) {
        let now = self.moment();
        let Some(conn) = self.conns.get_mut(&conn) else { return };
        conn.machine.handle(call, now);
    }

    /// Sends a request. Returns the token of its answer.
    pub(super) fn ask(&mut self, conn: u64, question: BrokerRequest, purpose: Purpose) -> u64 {
        let token = self.token(purpose);
        self.call(conn, ConnectionCall::Ask(question, token));
        token
    }

    pub(super) fn token(&mut self, purpose: Purpose) -> u64 {
        self.next += 1;
        self.pending.insert(self.next, purpose);
        self.next
    }

    /// Closes a producer or consumer of an actor.
    pub(super) fn close(&mut self, conn: u64, id: u64, is_producer: bool) {
        self.owners.remove(&(conn, id));
        if is_producer {
            self.call(conn, ConnectionCall::CloseProducer(id));
        } else {
            self.leaving.insert((conn, id));
            self.call(conn, ConnectionCall::CloseConsumer(id));
        }
    }

    // Outputs of the machines.

    fn drain_all(&mut self) {
        let conns: Vec<u64> = self.conns.keys().copied().collect();
        conns.into_iter().for_each(|conn| self.drain(conn));
    }

    fn drain(&mut self, number: u64) {
        loop {
            let Some(conn) = self.conns.get_mut(&number) else { return };
            let Some(event) = conn.machine.poll_event() else { break };
            self.take(number, event);
        }
        let Some(conn) = self.conns.get_mut(&number) else { return };
        if conn.machine.end().is_none() || conn.is_left {
            return;
        }
        // Like the driver: unwritten bytes are dropped, and the other side learns of the end after
        // the written ones.
        conn.is_left = true;
        conn.outbox.clear();
        if self.random.bool() {
            conn.up.end();
        } else {
            let kept = self.random.usize(0..=conn.up.under_way());
            conn.up.break_off(kept);
        }
        let seed = self.plan.seed;
        let left = self.owners.range((number, 0)..=(number, u64::MAX)).next();
        assert!(left.is_none(), "seed {seed}: {left:?} was not told of its end");
    }

    fn take(&mut self, number: u64, event: ConnectionEvent<u64, u64>) {
        let seed = self.plan.seed;
        match event {
            ConnectionEvent::Answered(token, answer) => {
                let purpose = self.pending.remove(&token);
                let purpose = purpose.unwrap_or_else(|| panic!("seed {seed}: {token} came twice"));
                self.answered(number, token, purpose, &answer);
            }
            ConnectionEvent::Published(message, fate) => self.ledger.settle(message, fate),
            ConnectionEvent::Delivered { consumer, messages } => {
                let Some(&owner) = self.owners.get(&(number, consumer)) else {
                    let leaves = self.leaving.contains(&(number, consumer));
                    assert!(
                        leaves,
                        "seed {seed}: a delivery to consumer {consumer}, which is over"
                    );
                    return;
                };
                let mut actor = self.actors[owner].take().expect("an actor");
                actor.delivered(self, &messages);
                self.actors[owner] = Some(actor);
            }
            ConnectionEvent::ConsumerEnded(id, _) | ConnectionEvent::ProducerEnded(id, _) => {
                self.leaving.remove(&(number, id));
                if let Some(owner) = self.owners.remove(&(number, id))
                    && let Some(actor) = &mut self.actors[owner]
                {
                    actor.ended();
                }
            }
            ConnectionEvent::ConsumerDrained(..) => panic!("seed {seed}: a terminated topic"),
            ConnectionEvent::Moved(moved) => panic!("seed {seed}: {moved:?}"),
            ConnectionEvent::Challenged => panic!("seed {seed}: challenged"),
        }
    }

    fn answered(
        &mut self,
        conn: u64,
        token: u64,
        purpose: Purpose,
        answer: &Result<BrokerResponse, TransportError>,
    ) {
        match purpose {
            Purpose::Ack(topic, entry) => {
                if answer.is_ok() {
                    self.ledger.confirm_ack(topic, entry);
                }
            }
            Purpose::Open(owner) => {
                let opened = match answer {
                    Ok(BrokerResponse::Producer { id, .. }) => Some((*id, true)),
                    Ok(BrokerResponse::Consumer(id)) => Some((*id, false)),
                    _ => None,
                };
                let actor = self.actors[owner].as_mut().expect("an actor");
                let is_wanted = actor.opened(token, opened.map(|(id, _)| (conn, id)));
                match opened {
                    Some((id, _)) if is_wanted => drop(self.owners.insert((conn, id), owner)),
                    Some((id, is_producer)) => self.close(conn, id, is_producer),
                    None => {}
                }
            }
            Purpose::Question => {}
        }
    }
}
