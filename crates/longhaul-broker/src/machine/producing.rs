//! Producers: PRODUCER, access modes, and closing.

use super::BrokerMachine;
use super::effect::RequestRefusal;
use super::invariants::Invariant;
use super::session::{ProducerHandle, metadata_of};
use crate::name::{TopicName, check_name};
use crate::policies::AuthAction;
use crate::state::change::TopicEpoch;
use bytes::Bytes;
use longhaul_wire::messages::{
    AccessMode, CommandCloseProducer, CommandProducer, CommandProducerSuccess, ServerError,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The producers of a topic.
#[derive(Debug, Default)]
pub(super) struct Producers {
    pub(super) active: Vec<TopicProducer>,
    /// Producers that wait for exclusive access, in order.
    pub(super) waiting: VecDeque<TopicProducer>,
}

/// A producer.
#[derive(Clone, Debug)]
pub(super) struct TopicProducer {
    pub(super) conn: u64,
    pub(super) id: u64,
    pub(super) name: String,
    pub(super) mode: AccessMode,
    pub(super) since: u64,
    /// Increases when the same producer reconnects.
    epoch: u64,
    /// Whether the broker has chosen its name.
    is_generated: bool,
    /// Id of the PRODUCER request, which a waiting producer still needs an answer to.
    request_id: u64,
    schema_version: Bytes,
    /// Metadata from its client.
    pub(super) metadata: BTreeMap<String, String>,
}

impl Producers {
    /// Their number, with those that wait.
    pub(super) fn count(&self) -> usize {
        self.active.len() + self.waiting.len()
    }

    fn exclusive(&self) -> Option<&TopicProducer> {
        self.active.iter().find(|producer| producer.mode != AccessMode::Shared)
    }

    fn find(&mut self, conn: u64, id: u64) -> Option<&mut TopicProducer> {
        self.active.iter_mut().find(|producer| (producer.conn, producer.id) == (conn, id))
    }
}

/// Result of access mode and topic epoch.
enum ProducerAdmission {
    Enter,
    Wait,
    /// All other producers have to leave, if there are any.
    Fence,
}

impl BrokerMachine {
    pub(super) fn create_producer(
        &mut self,
        conn: u64,
        command: &CommandProducer,
    ) -> Result<(), RequestRefusal> {
        let name = self.topic_name(&command.topic)?;
        self.authorize(conn, &name, AuthAction::Produce)?;
        let topic = self.ensure_topic(&name, true)?;
        let handles = self.sessions.get(&conn).map_or(0, |session| session.producers.len());
        if handles >= self.settings.handles_per_connection {
            let text = format!(
                "a connection has at most {} producers",
                self.settings.handles_per_connection
            );
            return Err(RequestRefusal::new(ServerError::TooManyRequests, text));
        }
        if let Some(known) =
            self.sessions.get(&conn).and_then(|session| session.producers.get(&command.producer_id))
        {
            if known.topic == topic
                && command.producer_name.as_ref().is_none_or(|name| **name == *known.name)
            {
                // The client has lost patience and asks again.
                if known.is_waiting {
                    self.wait_on(conn, topic, command.producer_id, command.request_id);
                } else {
                    self.succeed_producer(conn, topic, command.producer_id, command.request_id);
                }
                return Ok(());
            }
            let text = format!("producer id {} is in use on this connection", command.producer_id);
            return Err(RequestRefusal::not_allowed(text));
        }
        self.check_end(topic)?;
        self.check_room_to_begin(topic)?;
        let producer = self.producer(conn, topic, command)?;
        self.replace_predecessor(topic, &producer)?;
        let admission = self.admit(topic, &producer, command.topic_epoch)?;
        if matches!(admission, ProducerAdmission::Enter) {
            self.check_producers(topic)?;
        }
        self.subscribe_initially(conn, topic, &name, command)?;
        match admission {
            ProducerAdmission::Wait => self.let_wait(topic, producer),
            ProducerAdmission::Fence => {
                self.close_producers(topic);
                self.enter(topic, producer, command.topic_epoch)?;
            }
            ProducerAdmission::Enter => self.enter(topic, producer, command.topic_epoch)?,
        }
        Ok(())
    }

    fn producer(
        &mut self,
        conn: u64,
        topic: u32,
        command: &CommandProducer,
    ) -> Result<TopicProducer, RequestRefusal> {
        let given = command.producer_name.as_deref().filter(|name| !name.is_empty());
        // The name is stored with each entry of a topic with deduplication.
        check_name("producer", given.unwrap_or_default()).map_err(RequestRefusal::not_allowed)?;
        let mode = AccessMode::try_from(command.producer_access_mode.unwrap_or_default())
            .map_err(|_| RequestRefusal::not_allowed("unknown access mode"))?;
        let schema_version = self.register_schema(topic, command.schema.as_ref())?;
        self.check_schema(topic, &schema_version)?;
        let name = given.map_or_else(|| self.generate_name(), str::to_owned);
        // A reconnecting client sends the name that the broker chose, and marks it as such.
        let is_generated = given.is_none() || command.user_provided_producer_name == Some(false);
        Ok(TopicProducer {
            conn,
            id: command.producer_id,
            name,
            mode,
            since: self.now,
            epoch: command.epoch.unwrap_or_default(),
            is_generated,
            request_id: command.request_id,
            schema_version,
            metadata: metadata_of(&command.metadata)?,
        })
    }

    /// Creates the subscription that a producer of dead letters asks for, so that none is lost
    /// before a consumer reads them.
    fn subscribe_initially(
        &mut self,
        conn: u64,
        topic: u32,
        name: &TopicName,
        command: &CommandProducer,
    ) -> Result<(), RequestRefusal> {
        let Some(subscription) =
            command.initial_subscription_name.clone().filter(|name| !name.is_empty())
        else {
            return Ok(());
        };
        self.authorize(conn, name, AuthAction::Consume)?;
        check_name("subscription", &subscription).map_err(RequestRefusal::not_allowed)?;
        self.create_subscription(topic, subscription, None, BTreeMap::new())
    }

    fn generate_name(&mut self) -> String {
        self.next_name = self.next_name.wrapping_add(1);
        format!("longhaul-{:x}", self.next_name)
    }

    /// Two producers of one name would share one sequence of ids. Only a later incarnation replaces
    /// the earlier one.
    fn replace_predecessor(
        &mut self,
        topic: u32,
        producer: &TopicProducer,
    ) -> Result<(), RequestRefusal> {
        let live = self.live.get(&topic);
        let live = self.invariants.need(live, Invariant::TopicServed, Some(producer.conn));
        let Some(live) = live else { return Ok(()) };
        let Some(old) = live.producers.active.iter().find(|active| active.name == producer.name)
        else {
            return Ok(());
        };
        let is_same_client =
            old.is_generated && producer.is_generated && producer.epoch > old.epoch;
        if !is_same_client || old.conn != producer.conn {
            let text =
                format!("producer with name `{}` is already connected to the topic", old.name);
            return Err(RequestRefusal::new(ServerError::ProducerBusy, text).because_of(old.conn));
        }
        let (conn, id) = (old.conn, old.id);
        if let Some(session) = self.session(conn) {
            session.record_closed(id);
        }
        self.drop_producer(topic, conn, id);
        Ok(())
    }

    fn admit(
        &mut self,
        topic: u32,
        producer: &TopicProducer,
        epoch: Option<u64>,
    ) -> Result<ProducerAdmission, RequestRefusal> {
        let live = self.live.get(&topic);
        let live = self.invariants.need(live, Invariant::TopicServed, Some(producer.conn));
        let Some(live) = live else { return Ok(ProducerAdmission::Enter) };
        let producers = &live.producers;
        let fenced = |text: &str| Err(RequestRefusal::new(ServerError::ProducerFenced, text));
        let current = self.state.topic(topic).and_then(|topic| topic.epoch);
        let is_past = epoch.is_some_and(|epoch| current.is_some_and(|current| epoch < current));
        match producer.mode {
            AccessMode::Shared
                if producers.exclusive().is_some() || !producers.waiting.is_empty() =>
            {
                Err(RequestRefusal::new(
                    ServerError::ProducerBusy,
                    "the topic has an exclusive producer",
                ))
            }
            AccessMode::Shared => Ok(ProducerAdmission::Enter),
            AccessMode::Exclusive if !producers.active.is_empty() => {
                fenced("the topic has other producers")
            }
            // It had exclusive access and lost it: its remaining messages must not wait for the
            // next turn.
            _ if is_past => fenced("the topic's epoch has moved on"),
            AccessMode::WaitForExclusive if !producers.active.is_empty() => {
                Ok(ProducerAdmission::Wait)
            }
            AccessMode::Exclusive
            | AccessMode::WaitForExclusive
            | AccessMode::ExclusiveWithFencing => Ok(ProducerAdmission::Fence),
        }
    }

    fn enter(
        &mut self,
        topic: u32,
        producer: TopicProducer,
        epoch: Option<u64>,
    ) -> Result<(), RequestRefusal> {
        if producer.mode != AccessMode::Shared {
            let current = self.state.topic(topic).and_then(|topic| topic.epoch);
            let epoch =
                epoch.unwrap_or_else(|| current.map_or(0, |current| current.saturating_add(1)));
            if current != Some(epoch) {
                self.change(TopicEpoch { topic, epoch })?;
            }
        }
        let (conn, id, request_id) = (producer.conn, producer.id, producer.request_id);
        self.record_handle(topic, &producer, false);
        let live = self.live.get_mut(&topic);
        if let Some(live) = self.invariants.need(live, Invariant::TopicServed, Some(conn)) {
            live.producers.active.push(producer);
            live.inactivity.end(None);
        }
        self.succeed_producer(conn, topic, id, request_id);
        Ok(())
    }

    fn record_handle(&mut self, topic: u32, producer: &TopicProducer, is_waiting: bool) {
        let name = Arc::from(producer.name.as_str());
        if let Some(session) = self.session(producer.conn) {
            session.closed.remove(&producer.id);
            session.producers.insert(producer.id, ProducerHandle { topic, name, is_waiting });
        }
    }

    /// Queues a producer for exclusive access.
    fn let_wait(&mut self, topic: u32, producer: TopicProducer) {
        self.record_handle(topic, &producer, true);
        self.tell_to_wait(&producer);
        let live = self.live.get_mut(&topic);
        if let Some(live) = self.invariants.need(live, Invariant::TopicServed, Some(producer.conn))
        {
            live.producers.waiting.push_back(producer);
        }
    }

    /// Answers a waiting producer that asked again: this is now the request that it waits for.
    fn wait_on(&mut self, conn: u64, topic: u32, id: u64, request_id: u64) {
        let mut waiting =
            self.live.get_mut(&topic).into_iter().flat_map(|live| &mut live.producers.waiting);
        let waiting = waiting.find(|waiting| (waiting.conn, waiting.id) == (conn, id));
        let waiting = self.invariants.need(waiting, Invariant::ProducerEntered, Some(conn));
        let Some(waiting) = waiting else { return };
        waiting.request_id = request_id;
        let producer = waiting.clone();
        self.tell_to_wait(&producer);
    }

    /// Tells a producer that it has to wait for exclusive access.
    fn tell_to_wait(&mut self, producer: &TopicProducer) {
        self.send(
            producer.conn,
            CommandProducerSuccess {
                request_id: producer.request_id,
                producer_name: producer.name.clone(),
                last_sequence_id: Some(-1),
                schema_version: Some(producer.schema_version.clone()),
                topic_epoch: None,
                producer_ready: Some(false),
            },
        );
    }

    fn succeed_producer(&mut self, conn: u64, topic: u32, id: u64, request_id: u64) {
        let found = self.live.get_mut(&topic).and_then(|live| {
            let deduplicates = live.deduplicates();
            Some((deduplicates, live.producers.find(conn, id)?))
        });
        let found = self.invariants.need(found, Invariant::ProducerEntered, Some(conn));
        let Some((deduplicates, producer)) = found else { return };
        let (producer_name, mode) = (producer.name.clone(), producer.mode);
        let schema_version = Some(producer.schema_version.clone());
        let state = self.state.topic(topic);
        let last =
            state.filter(|_| deduplicates).and_then(|topic| topic.highest_sequence(&producer_name));
        let last_sequence_id = last.and_then(|sequence| i64::try_from(sequence).ok()).or(Some(-1));
        let topic_epoch =
            state.and_then(|topic| topic.epoch).filter(|_| mode != AccessMode::Shared);
        self.send_after_commit(
            conn,
            CommandProducerSuccess {
                request_id,
                producer_name,
                last_sequence_id,
                schema_version,
                topic_epoch,
                producer_ready: Some(true),
            },
        );
    }

    pub(super) fn close_producer(&mut self, conn: u64, command: &CommandCloseProducer) {
        let handle =
            self.session(conn).and_then(|session| session.producers.remove(&command.producer_id));
        if let Some(handle) = handle {
            self.drop_producer(handle.topic, conn, command.producer_id);
        }
        // Confirmed after its receipts; clients may close twice.
        self.succeed(conn, command.request_id);
    }

    /// Removes a producer from its topic, and admits the next waiting one.
    pub(super) fn drop_producer(&mut self, topic: u32, conn: u64, id: u64) {
        let live = self.live.get_mut(&topic);
        let live = self.invariants.need(live, Invariant::TopicServed, Some(conn));
        let Some(live) = live else { return };
        live.producers.active.retain(|producer| (producer.conn, producer.id) != (conn, id));
        live.producers.waiting.retain(|producer| (producer.conn, producer.id) != (conn, id));
        if !live.producers.active.is_empty() {
            return;
        }
        if let Some(next) = live.producers.waiting.pop_front() {
            let owed = (next.conn, next.request_id);
            if let Err(refusal) = self.enter(topic, next, None) {
                self.error(owed.0, owed.1, &refusal);
            }
        }
    }

    /// Closes all producers of a topic; their clients may reconnect.
    pub(super) fn close_producers(&mut self, topic: u32) {
        let Some(live) = self.invariants.served(self.live.get_mut(&topic)) else { return };
        let producers = std::mem::take(&mut live.producers);
        for producer in producers.active.into_iter().chain(producers.waiting) {
            if let Some(session) = self.session(producer.conn) {
                session.record_closed(producer.id);
            }
            let close = CommandCloseProducer::new(producer.id, u64::MAX);
            self.send_after_commit(producer.conn, close);
        }
    }
}
