//! The driver: owns the machine, feeds it with events, writes its records and queues its answers.

mod ending;
mod links;

use super::alarm::Alarm;
use super::compactions::Compactions;
use super::connection::RequestPermit;
use super::messages::Messages;
use super::outbox::Outbox;
use super::outcome::PendingOutcome;
use super::unreadable;
use crate::admin::call::{MachineCall, Tell};
use crate::clock::{self, Uptime};
use crate::compaction::CompactionJob;
use crate::error::BrokerError;
use crate::ids::IdMap;
use crate::log::{
    BrokerLog, CompactedEntry, CompactedFile, LogPosition, LogReadError, RecordGroup, Storage,
    WriteError,
};
use crate::machine::BrokerMachine;
use crate::machine::effect::{ClientRequest, MachineEffect, Survivor};
use crate::machine::unreadable::Unreadable;
use bytes::Bytes;
use links::ConnectionLink;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Events per turn, before consumers have theirs.
const EVENTS_MAX: usize = 256;
/// Capacity of the event queue. A connection whose event finds no room is not read from.
pub(super) const QUEUE: usize = 1024;
/// Capacity of the queue of reads of the admin interface, which wait for room.
pub(super) const READS: usize = 64;
/// Bytes of composed records above which no requests are taken until the disk has caught up.
const COMPOSED_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Answers waiting for the disk above which no requests are taken.
const WAITING_MAX: usize = 1_000_000;
/// Longest interval between checks of the wall clock, which may have been set, and of the disk.
const LOOK_MS: u64 = 1000;
/// Pause before a group is retried that found no room on disk.
const FULL_PAUSE_MS: u64 = 1000;
/// Capacity of the queue of outcomes of copies. Senders wait for room.
const COPIES_MAX: usize = 64;

/// An event for the driver.
pub(super) enum BrokerEvent {
    Opened(u64, String, Arc<Outbox>),
    /// Requests of a client, and when they were read.
    Requests(u64, Vec<ClientRequest>, Instant, RequestPermit),
    /// Enough deliveries were sent on a connection to make room for more.
    Written(u64),
    Closed(u64),
    /// Unreadable entries.
    Unreadable(Vec<Unreadable>),
    /// A call of the admin interface that does not only read.
    Call(MachineCall),
}

pub(super) type BrokerEventSender = mpsc::Sender<BrokerEvent>;

/// Entries that are to be copied, and those that could not be read.
type CopyOutcome = (Vec<(Survivor, Bytes)>, Vec<(Survivor, LogReadError)>);

/// The broker's main task.
pub(super) struct BrokerDriver {
    machine: BrokerMachine,
    log: BrokerLog,
    storage: Arc<dyn Storage>,
    messages: Messages,
    events: mpsc::Receiver<BrokerEvent>,
    /// Calls that only read. They are taken even if there is no room for events.
    reads: mpsc::Receiver<MachineCall>,
    copies: (mpsc::Sender<CopyOutcome>, mpsc::Receiver<CopyOutcome>),
    links: IdMap<u64, ConnectionLink>,
    /// Empty; kept for its memory.
    effects: Vec<MachineEffect>,
    /// Connections with data in their buffer.
    touched: Vec<u64>,
    /// Room of requests, which is freed when their answers are queued.
    tickets: Vec<RequestPermit>,
    /// Completed calls of the admin interface whose results are not yet sent, by ticket.
    calls: HashMap<u64, Tell>,
    next_ticket: u64,
    /// The group that is being written, and its outcome.
    in_flight: Option<RecordGroup>,
    written: PendingOutcome,
    /// Outcome of the checkpoint in progress.
    checkpointed: PendingOutcome,
    compactions: Compactions,
    /// Time of the next try after the disk was full, in ms since the start, like all times here.
    retry_at: Option<u64>,
    tasks: TaskTracker,
    next_look: u64,
    uptime: Uptime,
}

impl BrokerDriver {
    pub(super) fn new(
        machine: BrokerMachine,
        log: BrokerLog,
        storage: Arc<dyn Storage>,
        messages: Messages,
        events: mpsc::Receiver<BrokerEvent>,
        reads: mpsc::Receiver<MachineCall>,
    ) -> Self {
        Self {
            machine,
            log,
            storage,
            messages,
            events,
            reads,
            copies: mpsc::channel(COPIES_MAX),
            links: IdMap::default(),
            effects: Vec::new(),
            touched: Vec::new(),
            tickets: Vec::new(),
            calls: HashMap::new(),
            next_ticket: 0,
            in_flight: None,
            written: PendingOutcome::default(),
            checkpointed: PendingOutcome::default(),
            compactions: Compactions::default(),
            retry_at: None,
            tasks: TaskTracker::new(),
            next_look: 0,
            uptime: Uptime::begin(),
        }
    }

    /// Runs until the stop, or until the log can no longer be written.
    pub(super) async fn run(mut self, stop: CancellationToken) -> Result<(), BrokerError> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let mut is_stopping = false;
        let mut alarm = Alarm::new();
        let outcome = loop {
            let up = self.set_time();
            // One per turn, so that reads and events do not starve each other.
            if let Ok(read) = self.reads.try_recv() {
                self.call(read);
            }
            let has_more = self.advance(up);
            if let Some(fatal) = self.machine.fatal() {
                break Err(BrokerError::Invariant(fatal.to_string()));
            }
            let is_written = self.in_flight.is_none() && self.machine.pending_bytes() == 0;
            if is_stopping && (is_written || self.retry_at.is_some()) {
                break Ok(());
            }
            let has_room = self.machine.pending_bytes() < COMPOSED_BYTES_MAX
                && self.machine.waiting() < WAITING_MAX
                && !is_stopping;
            self.machine.set_listening(has_room);
            let wait = self.machine.next_in().min(LOOK_MS);
            alarm.set_in(Duration::from_millis(wait));
            tokio::select! {
                biased;
                // Answers before new requests.
                result = self.written.comes() => {
                    if let Err(error) = self.group_written(result) {
                        break Err(error);
                    }
                }
                result = self.checkpointed.comes() => self.checkpoint_written(&result),
                Some((read, failed)) = self.copies.1.recv() => {
                    self.machine.copy(read);
                    self.machine.not_copied(&failed);
                }
                (job, result) = self.compactions.comes() => self.compacted(&job, result),
                () = stop.cancelled(), if !is_stopping => is_stopping = true,
                count = self.events.recv_many(&mut events, EVENTS_MAX), if has_room => {
                    if count == 0 {
                        is_stopping = true;
                    }
                    self.set_time();
                    events.drain(..).for_each(|event| self.handle(event));
                }
                Some(read) = self.reads.recv() => {
                    self.set_time();
                    self.call(read);
                }
                // Connections have their turn first.
                () = tokio::task::yield_now(), if has_more => {}
                () = alarm.rings() => {}
            }
        };
        self.end(outcome).await
    }

    /// Lets the machine do what is due, and performs its effects. Returns whether the machine has
    /// more to do at once.
    fn advance(&mut self, up: u64) -> bool {
        if up >= self.next_look {
            self.next_look = up + LOOK_MS;
            // Other programs use the disk too.
            self.log.prepare();
            self.machine.set_log(self.log.status());
        }
        if self.retry_at.is_some_and(|at| up >= at)
            && let Some(group) = self.in_flight.clone()
        {
            self.retry_at = None;
            self.submit(group);
        }
        self.machine.tick();
        self.machine.dispatch();
        if self.in_flight.is_none()
            && let Some(group) = self.machine.take_group()
        {
            self.submit(group);
        }
        let mut effects = std::mem::take(&mut self.effects);
        self.machine.swap_effects(&mut effects);
        effects.drain(..).for_each(|effect| self.perform(effect));
        self.effects = effects;
        self.flush();
        self.tickets.clear();
        self.machine.has_dirty()
    }

    /// Sets the machine's time, and returns it in ms since the start: after each wait, so that
    /// what has come is not dated back.
    fn set_time(&mut self) -> u64 {
        let up = self.uptime.ms();
        self.machine.set_time(clock::wall_ms(), up);
        up
    }

    /// Sets the machine's finer time, and the time when the next requests were received.
    fn set_moment(&mut self, received: Instant) {
        let at = |time| self.uptime.us_at(time);
        let (now, received) = (at(clock::monotonic()), at(received));
        self.machine.set_moment(now, received);
    }

    fn submit(&mut self, group: RecordGroup) {
        self.in_flight = Some(group.clone());
        self.log.submit(group, self.written.expect());
    }

    fn handle(&mut self, event: BrokerEvent) {
        match event {
            BrokerEvent::Requests(conn, requests, received, ticket) => {
                self.set_moment(received);
                self.machine.note_wait();
                requests.into_iter().for_each(|request| self.machine.request(conn, request));
                self.tickets.push(ticket);
            }
            BrokerEvent::Written(conn) => self.collect_sent(conn),
            BrokerEvent::Opened(conn, peer, outbox) => {
                self.links.insert(conn, ConnectionLink::new(outbox));
                self.machine.opened(conn, peer);
            }
            BrokerEvent::Unreadable(entries) => unreadable::withhold(&mut self.machine, &entries),
            BrokerEvent::Closed(conn) => {
                self.collect_sent(conn);
                self.links.remove(&conn);
                self.machine.closed(conn);
            }
            BrokerEvent::Call(call) => self.call(call),
        }
    }

    fn call(&mut self, call: MachineCall) {
        // Keeps statistics exact.
        let links: Vec<u64> = self.links.keys().copied().collect();
        links.into_iter().for_each(|conn| self.collect_sent(conn));
        self.next_ticket += 1;
        let (ticket, is_read) = (self.next_ticket, call.is_read);
        let run = |machine: &mut BrokerMachine| call.run(machine);
        let machine = &mut self.machine;
        let tell = if is_read { machine.read(ticket, run) } else { machine.call(ticket, run) };
        self.calls.insert(ticket, tell);
    }

    fn group_written(&mut self, result: Result<(), WriteError>) -> Result<(), BrokerError> {
        match result {
            Ok(()) => {
                if self.machine.is_stuck() {
                    tracing::info!("the log can be written again");
                    self.machine.set_log(self.log.status());
                }
                if let Some(group) = self.in_flight.take() {
                    self.set_moment(clock::monotonic());
                    self.machine.committed(&group);
                }
            }
            Err(error @ WriteError::Full { .. }) => {
                // It is tried again each second.
                if !self.machine.is_stuck() {
                    tracing::warn!(%error, "cannot write the log: retrying every second");
                }
                self.machine.set_log(self.log.status());
                self.retry_at = Some(self.uptime.ms() + FULL_PAUSE_MS);
            }
            Err(error) => return Err(BrokerError::Log(Arc::new(error))),
        }
        Ok(())
    }

    fn checkpoint_written(&mut self, result: &Result<(), WriteError>) {
        self.set_time();
        if let Err(error) = result {
            tracing::warn!(%error, "no checkpoint");
        }
        self.machine.set_log(self.log.status());
        self.machine.checkpointed(result.is_ok());
    }

    fn compacted(&mut self, job: &CompactionJob, result: Result<CompactedFile, String>) {
        self.set_time();
        let result = result.map(|file| {
            let slots: Arc<[CompactedEntry]> = Arc::clone(file.slots());
            self.messages.add(&job.file, file);
            slots
        });
        if let Err(error) = &result {
            tracing::warn!(topic = %job.name, error, "a topic is not compacted");
        }
        self.machine.compacted(job, result);
    }

    fn perform(&mut self, effect: MachineEffect) {
        match effect {
            MachineEffect::Send(conn, command) => self.send(conn, command),
            MachineEffect::Deliver { conn, command, source, bytes } => {
                self.deliver(conn, command, source, bytes)
            }
            MachineEffect::Window(conn, window) => self.set_window(conn, window),
            MachineEffect::Close(conn) => {
                self.queue(conn);
                if let Some(link) = self.links.get(&conn) {
                    link.outbox.close();
                }
            }
            MachineEffect::Reply(ticket) => {
                if let Some(tell) = self.calls.remove(&ticket) {
                    tell();
                }
            }
            MachineEffect::Compact(job) => {
                self.compactions.begin(job, &self.messages, &self.storage);
            }
            MachineEffect::RemoveCompacted(name) => {
                self.messages.remove(&name);
                let storage = Arc::clone(&self.storage);
                self.tasks.spawn_blocking(move || {
                    // If this fails, the next start removes the file.
                    storage.remove(&name).ok();
                });
            }
            MachineEffect::Checkpoint { at, image } => self.checkpoint(at, image),
            MachineEffect::RemoveSegments(segments) => self.log.remove(&segments),
            MachineEffect::Inform(text) => tracing::info!("{text}"),
            MachineEffect::Warn(text) => tracing::warn!("{text}"),
            MachineEffect::Copy(survivors) => self.read(survivors),
        }
    }

    fn checkpoint(&mut self, at: LogPosition, image: Vec<Bytes>) {
        // The machine requests one checkpoint at a time.
        if !self.checkpointed.is_expected() {
            self.log.checkpoint(at, image, self.checkpointed.expect());
        }
    }

    /// Reads entries that are to be copied.
    fn read(&self, survivors: Vec<Survivor>) {
        let (reader, copies) = (self.messages.reader().clone(), self.copies.0.clone());
        self.tasks.spawn(async move {
            let outcome = unreadable::read_survivors(reader, survivors).await;
            copies.send(outcome).await.ok();
        });
    }
}
