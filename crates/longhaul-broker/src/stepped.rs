//! The broker without sockets, threads and clocks, for simulations of its clients: bytes in, bytes
//! out, each step on request.
//!
//! It has the parts of [`crate::Broker`] on a simulated disk: the machine, the stepped log, and the
//! driver's work between them. A journal records the entries on disk, and survives the broker.

use crate::admin::values::{AdminCallError, SubscriptionStart};
use crate::compaction::CompactionJob;
use crate::compaction::{run, views};
use crate::error::StartError;
use crate::log::{
    CompactedFile, LogOptions, LogPosition, RecordGroup, SimulatedStorage, Stepped, Storage,
    WriteError,
};
use crate::machine::effect::Survivor;
use crate::machine::effect::{MachineEffect, MessageSource};
use crate::machine::{BrokerMachine, MachineSettings};
use crate::name::TopicName;
use crate::server::requests::{REQUESTS_MAX, requests};
use crate::state::BrokerState;
use crate::state::entry::EntryHead;
use crate::state::replay::replay;
use bytes::{Bytes, BytesMut};
use longhaul_wire::frame;
use longhaul_wire::messages::{Command, CommandMessage, CommandPing};
use longhaul_wire::payload::Payload;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Largest message in bytes, without metadata.
pub const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// An entry on disk.
#[derive(Clone, Debug)]
pub struct StoredEntry {
    /// Id of the ledger.
    pub ledger: u64,
    /// Number of the entry in the ledger.
    pub entry: u64,
    /// The bytes that the producer sent.
    pub payload: Payload,
}

/// Entries on disk, by topic, in order.
pub type Journal = BTreeMap<String, Vec<StoredEntry>>;

/// Users of a topic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handles {
    /// Producers.
    pub producers: usize,
    /// Consumers of all subscriptions.
    pub consumers: usize,
}

#[derive(Debug, Default)]
struct SteppedLink {
    inbox: BytesMut,
    is_connected: bool,
    outbox: BytesMut,
    /// Bytes of deliveries in the outbox.
    credit: u64,
    is_closing: bool,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct SteppedBroker {
    machine: BrokerMachine,
    log: Stepped,
    storage: SimulatedStorage,
    links: BTreeMap<u64, SteppedLink>,
    in_flight: Option<RecordGroup>,
    checkpoint: Option<(LogPosition, Vec<Bytes>)>,
    copies: Vec<Vec<Survivor>>,
    compactions: Vec<CompactionJob>,
    /// The compacted views.
    files: HashMap<String, CompactedFile>,
    next_ticket: u64,
}

fn options() -> LogOptions {
    let segment_bytes_first = 1 << 18;
    let facts = Some(EntryHead::facts as fn(&[u8]) -> _);
    LogOptions {
        segment_bytes_first,
        segment_bytes_max: 1 << 26,
        body_bytes_max: 1 << 17,
        salt: 7,
        facts,
    }
}

fn settings() -> MachineSettings {
    MachineSettings {
        message_bytes_max: MESSAGE_BYTES_MAX,
        service_url: "pulsar://stepped:6650".to_owned(),
        service_url_tls: None,
        handles_per_connection: 1_000,
        recent_bytes: 20_000,
        window_bytes: 30_000,
        unsent_bytes_max: 1_000_000,
        disk_bytes_max: None,
        topic_defaults: Vec::new(),
        checkpoint_bytes: 50_000,
        piece_bytes: 1_000,
    }
}

impl SteppedBroker {
    /// Opens a broker on a disk. `now` is the wall clock, in ms since the epoch.
    ///
    /// # Errors
    /// [`StartError::Log`] and [`StartError::Compacted`].
    pub fn open(storage: &SimulatedStorage, now: u64) -> Result<Self, StartError> {
        let unreadable = |source| StartError::Log { path: "simulated".into(), source };
        let mut state = BrokerState::default();
        let log = Stepped::open(Arc::new(storage.clone()), options(), &mut |record| {
            replay(&mut state, record)
        });
        let log = log.map_err(unreadable)?;
        let (files, compacted) = views::open(&state, storage).map_err(StartError::Compacted)?;
        let known = (log.composer.clone(), log.status());
        let machine = BrokerMachine::new(settings(), None, state, known, compacted, now);
        Ok(Self {
            machine,
            log,
            storage: storage.clone(),
            links: BTreeMap::new(),
            in_flight: None,
            checkpoint: None,
            copies: Vec::new(),
            compactions: Vec::new(),
            files,
            next_ticket: 0,
        })
    }

    /// A client has connected.
    pub fn connect(&mut self, conn: u64) {
        self.links.insert(conn, SteppedLink::default());
        self.machine.opened(conn, "/stepped".to_owned());
    }

    /// A connection has ended.
    pub fn disconnect(&mut self, conn: u64) {
        if self.links.remove(&conn).is_some() {
            self.machine.closed(conn);
        }
    }

    /// A client has sent bytes.
    pub fn receive(&mut self, conn: u64, bytes: &[u8], now: u64) {
        self.machine.set_time(now, now);
        let Some(link) = self.links.get_mut(&conn).filter(|link| !link.is_closing) else { return };
        link.inbox.extend_from_slice(bytes);
        loop {
            let Some(link) = self.links.get_mut(&conn) else { return };
            let parsed =
                requests(&mut link.inbox, &mut link.is_connected, MESSAGE_BYTES_MAX, REQUESTS_MAX);
            parsed.requests.into_iter().for_each(|request| self.machine.request(conn, request));
            if parsed.is_broken || !parsed.has_more {
                break;
            }
        }
        self.perform();
    }

    /// Pings a client.
    pub fn ping(&mut self, conn: u64) {
        if let Some(link) = self.links.get_mut(&conn) {
            frame::encode(CommandPing {}, &mut link.outbox);
        }
    }

    /// Takes the output of a connection.
    pub fn take_output(&mut self, conn: u64) -> BytesMut {
        let Some(link) = self.links.get_mut(&conn) else { return BytesMut::new() };
        let (bytes, credit) = (link.outbox.split(), std::mem::take(&mut link.credit));
        if credit > 0 {
            self.machine.written(conn, credit);
        }
        bytes
    }

    /// Whether the broker closes the connection after its remaining output.
    #[must_use]
    pub fn is_closing(&self, conn: u64) -> bool {
        self.links.get(&conn).is_none_or(|link| link.is_closing)
    }

    /// Performs due work of the machine, and dispatches to consumers.
    pub fn advance(&mut self, now: u64) {
        self.machine.set_time(now, now);
        self.machine.set_log(self.log.status());
        self.machine.tick();
        while self.machine.dispatch() {}
        if let Some((at, image)) = self.checkpoint.take() {
            match self.log.checkpoint(at, &image) {
                Err(WriteError::Busy) => self.checkpoint = Some((at, image)),
                result => {
                    self.machine.set_log(self.log.status());
                    self.machine.checkpointed(result.is_ok());
                }
            }
        }
        for survivors in std::mem::take(&mut self.copies) {
            let reader = self.log.reader();
            let read = survivors
                .into_iter()
                .filter_map(|survivor| Some((survivor, reader.read(survivor.location).ok()?)));
            self.machine.copy(read.collect());
        }
        while let Some(job) = self.compactions.pop() {
            let (reader, storage) = (self.log.reader(), Arc::new(self.storage.clone()));
            let done = run::run_into(&mut self.files, &job, &reader, storage);
            self.machine.compacted(&job, done);
            self.perform();
        }
        self.perform();
    }

    /// Writes the composed records. Returns whether there were any.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn write(&mut self, journal: &mut Journal) -> Result<bool, WriteError> {
        if self.in_flight.is_some() {
            return Ok(false);
        }
        if let Some(fatal) = self.machine.fatal() {
            return Err(WriteError::Poisoned { reason: fatal.to_string() });
        }
        let Some(group) = self.machine.take_group() else { return Ok(false) };
        self.log.prepare();
        self.log.write(&group)?;
        self.note(&group, journal);
        self.in_flight = Some(group);
        Ok(true)
    }

    /// Tells the machine that the group is on disk: its clients get their answers.
    pub fn confirm(&mut self) {
        if let Some(group) = self.in_flight.take() {
            self.machine.committed(&group);
            self.perform();
        }
    }

    fn note(&self, group: &RecordGroup, journal: &mut Journal) {
        for (_, topic) in self.machine.state().topics() {
            let stored = journal.entry(topic.name.as_str().to_owned()).or_default();
            let last = stored.last().map(|last| (last.ledger, last.entry));
            for (ordinal, slot) in topic.entries.iter() {
                let Some(id) = topic.entries.position_of(ordinal) else { continue };
                let Some(mut body) = group.body(slot.location) else { continue };
                if last.is_some_and(|last| (id.ledger, id.entry) <= last)
                    || EntryHead::decode(&mut body).is_none()
                {
                    continue;
                }
                if let Ok(payload) = Payload::parse(body) {
                    stored.push(StoredEntry { ledger: id.ledger, entry: id.entry, payload });
                }
            }
        }
    }

    /// The latest time to call [`SteppedBroker::advance`].
    #[must_use]
    pub fn next_deadline(&self) -> u64 {
        self.machine.next_deadline()
    }

    /// Creates a topic with durable subscriptions at its beginning.
    pub fn create(&mut self, topic: &str, subscriptions: &[&str]) {
        for subscription in subscriptions {
            let none = BTreeMap::new();
            self.call(topic, |machine, name| {
                machine.make_subscription(name, subscription, SubscriptionStart::Earliest, &none)
            });
        }
    }

    /// Closes the producers and consumers of a topic, as when it moves to another broker.
    pub fn unload(&mut self, topic: &str) {
        self.call(topic, BrokerMachine::unload_topic);
    }

    /// Requests a compaction of a topic; [`SteppedBroker::advance`] runs it.
    pub fn compact(&mut self, topic: &str) {
        self.call(topic, BrokerMachine::start_compaction);
    }

    /// The result of a call about a topic, unless it is refused. Its records are not on disk yet.
    fn call<T>(
        &mut self,
        topic: &str,
        work: impl FnOnce(&mut BrokerMachine, &TopicName) -> Result<T, AdminCallError>,
    ) -> Option<T> {
        let name = TopicName::parse(topic).ok()?;
        self.next_ticket += 1;
        let result = self.machine.call(self.next_ticket, |machine| work(machine, &name));
        self.perform();
        result.ok()
    }

    /// Users of a topic, and the number of unacknowledged entries of a subscription. Call it only
    /// while nothing waits for the disk.
    pub fn look(&mut self, topic: &str, subscription: &str) -> Option<(Handles, u64)> {
        let stats = self.call(topic, |machine, name| machine.stats(name))?;
        let handles = Handles {
            producers: stats.publishers.len(),
            consumers: stats.subscriptions.values().map(|known| known.consumers.len()).sum(),
        };
        let backlog = stats.subscriptions.get(subscription).map_or(0, |known| known.msg_backlog);
        Some((handles, backlog))
    }

    fn perform(&mut self) {
        loop {
            let effects = self.machine.take_effects();
            if effects.is_empty() {
                return;
            }
            effects.into_iter().for_each(|effect| self.do_one(effect));
        }
    }

    fn do_one(&mut self, effect: MachineEffect) {
        match effect {
            MachineEffect::Send(conn, command) => {
                if let Some(link) = self.links.get_mut(&conn).filter(|link| !link.is_closing) {
                    frame::encode(command, &mut link.outbox);
                }
            }
            MachineEffect::Deliver { conn, command, source, bytes } => {
                self.deliver(conn, command, source, bytes);
            }
            MachineEffect::Close(conn) => {
                if let Some(link) = self.links.get_mut(&conn) {
                    link.is_closing = true;
                }
            }
            MachineEffect::Checkpoint { at, image } => self.checkpoint = Some((at, image)),
            MachineEffect::Copy(survivors) => self.copies.push(survivors),
            MachineEffect::RemoveSegments(segments) => self.log.remove(&segments),
            MachineEffect::RemoveCompacted(name) => {
                self.files.remove(&name);
                drop(self.storage.remove(&name));
            }
            MachineEffect::Compact(job) => self.compactions.push(job),
            // The caller already has the result, and there is no operator.
            MachineEffect::Reply(_)
            | MachineEffect::Window(..)
            | MachineEffect::Inform(_)
            | MachineEffect::Warn(_) => {}
        }
    }

    fn deliver(&mut self, conn: u64, command: CommandMessage, source: MessageSource, bytes: u32) {
        let body = match source {
            MessageSource::Memory(body) => Some(body),
            MessageSource::Log(location) => self.log.reader().read(location).ok(),
            MessageSource::Compacted(name, slot) => {
                self.files.get(&*name).and_then(|file| file.read(&slot).ok())
            }
        };
        let Some(link) = self.links.get_mut(&conn).filter(|link| !link.is_closing) else { return };
        let Some(mut body) = body else { return self.machine.written(conn, u64::from(bytes)) };
        EntryHead::skip(&mut body);
        frame::encode_head(Command::Message(command), body.len(), &mut link.outbox);
        link.outbox.extend_from_slice(&body);
        link.credit += u64::from(bytes);
    }
}
