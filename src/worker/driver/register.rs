//! The register of a queue: followed from its start, once, whatever the number of topics and
//! partitions. The worker takes no tasks before it has read it to its end.
//!
//! A register that is deleted is followed from the start of the one that takes its place. What it
//! said of keys is forgotten: a key that was bound is free, and a second task may run with it.
//! Tasks that were claimed go on, for what the ledger says of them stands.

use super::key_keeping::KeyKeeping;
use super::keyed::Waiting;
use super::lane::Lane;
use super::lanes::LaneId;
use super::overwriting::Underway;
use super::settings::OwnSettings;
use super::tickets::Tickets;
use super::{Driver, Environment, Event};
use crate::supervise::Landmark;
use crate::transport::{Batching, Message, OnReceipt, Schema, TopicPartition};
use crate::worker::mailbox::Mailbox;
use crate::worker::session::{FollowedWhole, Publish, Sink, follow_whole, publish};
use longhaul_core::protocol::key::OwnerId;
use longhaul_core::protocol::moment::Moment;
use longhaul_core::protocol::register::{
    DocumentName, Entry, EntryError, Register, Stamp, Verdict,
};
use longhaul_core::register;
use longhaul_core::task::Priority;
use std::collections::BTreeMap;
use tokio::task::{AbortHandle, JoinSet};

/// Makes stamps that no other entry has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamps {
    writer: OwnerId,
    serial: u64,
}

impl Stamps {
    pub(super) const fn next(&mut self) -> Stamp {
        self.serial += 1;
        Stamp { writer: self.writer, serial: self.serial }
    }

    pub(super) fn is_own(&self, stamp: Stamp) -> bool {
        self.writer == stamp.writer
    }
}

/// The register as this worker sees it.
pub(super) struct OwnRegister {
    pub(super) fold: Register,
    topic: TopicPartition,
    /// Its place among the worker's.
    number: usize,
    /// The worker's topics of its queue, by their levels.
    pub(super) topics: BTreeMap<Priority, u16>,
    /// It was read to its end.
    read: bool,
    /// Counts the followers, so that what an ended one left in the queue is told from the new
    /// one's.
    generation: u64,
    landmark: Landmark,
    follower: Option<AbortHandle>,
    publishes: Option<Mailbox<Publish>>,
    pub(super) stamps: Stamps,
    /// Tasks that are held here and wait for their keys.
    pub(super) waiting: Waiting,
    pub(super) keeping: KeyKeeping,
    /// What is under way about tasks that make room for others.
    pub(super) overwriting: Underway,
    #[cfg(feature = "schedules")]
    pub(super) schedules: super::schedules::Schedules,
    pub(super) tickets: Tickets,
    pub(super) settings: OwnSettings,
}

impl OwnRegister {
    /// Follows the register from its start.
    fn open(env: &mut Environment, services: &mut JoinSet<()>, topic: &str, number: usize) -> Self {
        let mut opened = Self {
            fold: Register::default(),
            number,
            topics: BTreeMap::new(),
            topic: TopicPartition { topic: topic.to_owned(), partition: -1 },
            read: false,
            generation: 0,
            landmark: Landmark::default(),
            follower: None,
            publishes: None,
            stamps: Stamps { writer: Lane::draw_owner(env), serial: 0 },
            waiting: Waiting::default(),
            keeping: KeyKeeping::default(),
            overwriting: Underway::default(),
            #[cfg(feature = "schedules")]
            schedules: super::schedules::Schedules::default(),
            tickets: Tickets::default(),
            settings: OwnSettings::default(),
        };
        opened.read_from_start(env, services);
        opened
    }

    /// Whether it was read to its end.
    pub(super) const fn is_read(&self) -> bool {
        self.read
    }

    pub(super) const fn topic(&self) -> &TopicPartition {
        &self.topic
    }

    /// A stamp that no other entry has.
    pub(super) const fn next_stamp(&mut self) -> Stamp {
        self.stamps.next()
    }

    fn read_from_start(&mut self, env: &mut Environment, services: &mut JoinSet<()>) {
        self.generation += 1;
        self.read = false;
        self.fold = Register::default();
        self.landmark = Landmark::default();
        self.keeping.forget();
        let (register, generation) = (self.number, self.generation);
        let sink = Sink::new(env.events.clone(), move |followed| Event::Register {
            register,
            generation,
            followed,
        });
        let following = follow_whole(env.service(&self.topic), self.landmark.clone(), sink);
        let service = services.spawn(env.gate.wrap(following));
        if let Some(before) = self.follower.replace(service) {
            before.abort();
        }
    }

    /// Publishes an entry. The first one opens the publisher: most workers never need it.
    pub(super) fn publish(
        &mut self,
        env: &mut Environment,
        services: &mut JoinSet<()>,
        entry: &Entry,
        on_receipt: OnReceipt,
    ) {
        let mailbox = self.publishes.get_or_insert_with(|| {
            let mailbox = Mailbox::new();
            let service = env.service(&self.topic);
            let publishing = publish(service, Batching::On, Schema::None, mailbox.clone());
            services.spawn(env.gate.wrap(publishing));
            mailbox
        });
        mailbox.put(Publish { message: register::message(entry), on_receipt, expires: None });
    }
}

impl Driver {
    /// Follows the register of this name, if none of the worker's topics has it yet. Returns its
    /// number.
    pub(super) fn open_register(&mut self, topic: &str) -> usize {
        let known = self.registers.iter().position(|register| register.topic.topic == topic);
        known.unwrap_or_else(|| {
            let number = self.registers.len();
            let Self { env, services, registers, .. } = self;
            registers.push(OwnRegister::open(env, services, topic, number));
            number
        })
    }

    /// The register of a lane's queue.
    pub(super) fn register_of(&self, lane: LaneId) -> Option<&OwnRegister> {
        let topic = self.topics.get(usize::from(lane.topic))?;
        self.registers.get(topic.register)
    }

    pub(super) fn handle_register(
        &mut self,
        number: usize,
        generation: u64,
        followed: FollowedWhole,
        now: Moment,
    ) {
        let Some(register) = self.registers.get_mut(number) else { return };
        if generation != register.generation {
            return;
        }
        match followed {
            FollowedWhole::Messages(messages) => {
                for message in &messages {
                    self.handle_register_entry(number, message, now);
                    self.perform_effects();
                }
            }
            FollowedWhole::ToEnd => self.handle_register_read(number, now),
            FollowedWhole::Gone => {
                tracing::error!(
                    topic = %register.topic,
                    "the register was deleted or replaced: keys that were bound are free again, and a second task may run with one of them"
                );
                self.stats.register_lost();
                register.read_from_start(&mut self.env, &mut self.services);
            }
        }
    }

    fn handle_register_entry(&mut self, number: usize, message: &Message, now: Moment) {
        let Some(register) = self.registers.get_mut(number) else { return };
        match register::read(message) {
            Ok(entry) => {
                if matches!(entry, Entry::Start(_)) {
                    register.landmark.set(Some(message));
                }
                let (position, published_ms) = (message.position, message.publish_time_ms);
                let verdict = register.fold.apply_at(&entry, position, published_ms);
                let is_accepted = verdict == Some(Verdict::Accepted);
                let begins = matches!(entry, Entry::Period(..)) && is_accepted;
                if begins || register.keeping.began_ms.is_none() {
                    // Whoever has begun it may have a clock that is fast by a year.
                    let own_ms = self.env.clock.wall_ms();
                    register.keeping.began_ms = Some(message.publish_time_ms.min(own_ms));
                }
                if let Entry::Document(document) = &entry
                    && (is_accepted || document.key.name == DocumentName::queue_settings())
                    && register.is_read()
                {
                    self.document_changed(number, &document.key.name, now);
                }
                if let Some(key) = entry.key().hold() {
                    self.key_was_read(number, key, now);
                    self.note_key(number, key, now);
                }
                if self.registers.get(number).is_some_and(OwnRegister::is_read) {
                    self.keep_keys(number, &entry);
                }
                if let (Entry::Bind(hold), Some(Verdict::Lost(to))) = (&entry, verdict) {
                    self.note_lost(number, hold, to);
                }
                if let Some(key) = entry.key().hold() {
                    self.overwrite(number, &key.name);
                }
                #[cfg(feature = "schedules")]
                self.firing_was_read(number, &entry, now);
                self.ticket_was_read(number, &entry, now);
            }
            Err(EntryError::Replicated) => self.stats.replicated(),
            Err(error) => {
                tracing::debug!(position = ?message.position, %error, "not an entry of the register");
                self.stats.malformed();
            }
        }
    }

    /// A register was read to its end: lanes that have waited for it begin.
    fn handle_register_read(&mut self, number: usize, now: Moment) {
        let Self { registers, env, services, .. } = self;
        let Some(register) = registers.get_mut(number) else { return };
        register.read = true;
        register.fold.read_to_end(env.clock.wall_ms());
        if !register.fold.has_start() {
            let start = Entry::Start(register.next_stamp());
            // Should it get lost the next worker writes another one.
            register.publish(env, services, &start, OnReceipt::ignored());
        }
        self.documents_were_read(number, now);
        self.take_up_settings(number, now);
        self.look_at_all_tickets(number, now);
        self.look_at_all_keys(number, now);
        self.look_at_ends(number);
        self.look_at_overwriters(number);
        self.look_at_keys_later(number);
        let lanes: Vec<LaneId> = self.lanes.keys().collect();
        for id in lanes {
            if self.lanes.get(&id).is_some_and(|lane| lane.core.machine().is_ready()) {
                self.take_tasks(id);
            }
        }
    }

    /// A lane has read its ledger: it takes tasks as soon as the register is read, too.
    pub(super) fn take_tasks(&mut self, id: LaneId) {
        if self.register_of(id).is_none_or(|register| !register.is_read()) {
            return;
        }
        self.apply_settings(id, self.env.clock.now());
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        if lane.start_consuming(&mut self.env, &mut self.services) {
            tracing::info!(topic = %lane.topics.task, owner = %lane.core.machine().owner(), "ledger read: working");
            self.stats.ready(id);
        }
    }
}
