//! The beginning and end of sessions, on the broker's and the client's side.

use super::agenda::{ConnectionId, PartitionId, PlannedEffect, SessionAttachment, SessionId};
use super::faults::Loss;
use super::session::{MemorySession, SessionRole, SessionStatus};
use super::state::{BrokerOutage, MemoryBrokerState, error, lost};
use super::subscription::MemorySubscription;
use longhaul_transport::{
    EntryId, SubscriptionType, TopicPartition, TransportError, TransportErrorKind, moment::Moment,
};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// Pause of the simulated client between two tries to reconnect.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// Whether a request gets through.
#[derive(Debug)]
pub(super) enum Reachability {
    Yes,
    No(TransportError),
    Wait,
}

impl MemoryBrokerState {
    /// Whether a process can reach the broker now.
    pub(super) fn reach(&self, connection: ConnectionId) -> Reachability {
        let Some(connection) = self.connections.get(&connection) else {
            return Reachability::No(lost("connection", "there is none"));
        };
        if connection.killed || connection.cut {
            Reachability::No(lost(&connection.name, "the connection is cut"))
        } else if self.outage == BrokerOutage::Refuses {
            Reachability::No(lost(&connection.name, "the broker is down"))
        } else if connection.frozen || self.outage == BrokerOutage::Hangs {
            Reachability::Wait
        } else {
            Reachability::Yes
        }
    }

    /// The partition of a request.
    pub(super) fn reach_partition(
        &mut self,
        at: &TopicPartition,
    ) -> Result<PartitionId, TransportError> {
        let name = at.to_string();
        if let Some(deduplication) = self.missing_topics
            && at.partition < 0
            && self.find(at).is_none()
        {
            self.create(&at.topic, None, deduplication(&at.topic));
        }
        let Some(id) = self.find(at) else {
            return Err(error(TransportErrorKind::NotFound, &name, "no such topic"));
        };
        let now = self.now();
        let rate = self.faults.request_error;
        let failed = self.chance(rate);
        let Some(partition) = self.partitions.get_mut(&id) else {
            return Err(lost(&name, "the partition is gone"));
        };
        if partition.forbidden {
            return Err(error(TransportErrorKind::Unauthorized, &name, "no permission"));
        }
        if partition.unavailable_until > now {
            return Err(lost(&name, "the topic is temporarily unavailable"));
        }
        if super::state::MemoryPartition::take_one(&mut partition.next_errors) || failed {
            return Err(lost(&name, "the request failed"));
        }
        Ok(id)
    }

    /// Opens a session for a client.
    pub(super) fn open(
        &mut self,
        connection: ConnectionId,
        partition: PartitionId,
        role: SessionRole,
    ) -> SessionId {
        let id = self.id();
        let by = self.connections.get(&connection).map(|connection| Arc::clone(&connection.name));
        let by = by.unwrap_or_else(|| Arc::from("nobody"));
        let session = MemorySession {
            connection,
            by,
            partition,
            attached: false,
            given_up: false,
            generation: 0,
            verdict: SessionStatus::Open,
            inbox: VecDeque::new(),
            coming: 0,
            outbound: Moment::default(),
            inbound: Moment::default(),
            bell: Arc::new(Notify::new()),
            role,
        };
        self.sessions.insert(id, session);
        self.attach(id);
        id
    }

    /// Registers a session at the broker, for the first time or again.
    fn attach(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.attached = true;
        session.given_up = false;
        session.generation += 1;
        let (by, partition) = (Arc::clone(&session.by), session.partition);
        let name = self.name(partition);
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let what = match &mut session.role {
            SessionRole::Publisher(publishing) => {
                let unanswered: Vec<u64> = publishing.in_flight.keys().copied().collect();
                for sequence in unanswered {
                    self.transmit(id, sequence, Duration::ZERO, true);
                }
                "publisher"
            }
            SessionRole::Consumer(consuming) => {
                let subscription = Arc::clone(&consuming.subscription);
                let subscription_type = consuming.subscription_type;
                for receipt in std::mem::take(&mut consuming.receipts) {
                    receipt.send(Ok(())).ok();
                }
                self.subscribe(partition, &subscription);
                self.join(id, partition, &subscription, subscription_type);
                "consumer"
            }
            SessionRole::Follower(following) => {
                let compacted = following.follow.compacted;
                self.rewind(id);
                if compacted && self.chance(self.faults.compaction_in_bootstrap) {
                    let soon = self.draw(self.faults.read_back_delay);
                    self.after(soon, PlannedEffect::Compact(partition));
                }
                "follower"
            }
        };
        self.note(format!("session {id}: {what} of {by} on {name}"));
        self.refill(id);
        self.signals.changed.notify_waiters();
    }

    /// Ensures that there is a durable subscription; a new one starts at the earliest message.
    pub(super) fn subscribe(&mut self, id: PartitionId, name: &str) {
        let Some(partition) = self.partitions.get_mut(&id) else { return };
        if !partition.subscriptions.contains_key(name) {
            let subscription = MemorySubscription::new(name);
            partition.subscriptions.insert(Arc::clone(&subscription.name), subscription);
        }
    }

    fn join(
        &mut self,
        id: SessionId,
        partition: PartitionId,
        subscription: &str,
        subscription_type: SubscriptionType,
    ) {
        let partition = self.partitions.get_mut(&partition);
        if let Some(it) = partition.and_then(|it| it.subscriptions.get_mut(subscription)) {
            it.join(id, subscription_type);
        }
    }

    /// Whether a consumer of this type may join the subscription: all its consumers have the same
    /// type.
    pub(super) fn admit(
        &self,
        partition: PartitionId,
        subscription: &str,
        subscription_type: SubscriptionType,
    ) -> Result<(), TransportError> {
        let partition = self.partitions.get(&partition);
        let subscription = partition.and_then(|it| it.subscriptions.get(subscription));
        if subscription.is_none_or(|it| it.admits(subscription_type)) {
            return Ok(());
        }
        Err(lost("consumer", "the subscription has consumers of another type"))
    }

    /// Ends a session at the broker; `loss` sets how the client learns of it. Without one, it is
    /// drawn.
    pub(super) fn lose(&mut self, id: SessionId, loss: Option<Loss>, cause: &str) {
        let loss = loss.unwrap_or_else(|| self.draw_loss(id));
        self.lose_with(id, loss, TransportErrorKind::Unreachable, cause);
    }

    pub(super) fn lose_with(
        &mut self,
        id: SessionId,
        loss: Loss,
        kind: TransportErrorKind,
        cause: &str,
    ) {
        let Some(session) = self.sessions.get(&id).filter(|session| session.is_open()) else {
            return;
        };
        let (connection, partition) = (session.connection, session.partition);
        if self.connections.get(&connection).is_some_and(|connection| connection.frozen) {
            self.note(format!("session {id} is lost: {cause}; its client is frozen"));
            self.give_up_session(id);
            return;
        }
        self.note(format!("session {id} is lost: {cause}, {loss:?}"));
        self.detach(id);
        let error = error(kind, &self.name(partition), cause);
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.given_up = false;
        let link = session.link(id);
        match loss {
            Loss::Error => self.fail(id, SessionStatus::Failed(error)),
            Loss::ErrorThenSilence => self.fail(id, SessionStatus::FailedOnce(error)),
            Loss::SilenceThenError(time) => self.after(time, PlannedEffect::Fail { link, error }),
            Loss::Replay(time) => self.after(time, PlannedEffect::Reattach(link)),
            Loss::Silence => {}
        }
    }

    /// Removes a session from the broker. Receipts, deliveries and answers in flight never arrive.
    fn detach(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id).filter(|session| session.attached) else {
            return;
        };
        session.attached = false;
        session.coming = 0;
        let link = session.link(id);
        session.generation += 1;
        let partition = session.partition;
        let subscription = session.consuming().map(|it| Arc::clone(&it.subscription));
        self.drop_orphans(link);
        let Some(at) = self.partitions.get_mut(&partition) else { return };
        at.followers.remove(&id);
        let subscription = subscription.and_then(|name| at.subscriptions.get_mut(&name));
        if let Some(subscription) = subscription {
            let name = Arc::clone(&subscription.name);
            for EntryId { ledger, entry } in subscription.leave(id) {
                self.note(format!("{ledger}:{entry} is delivered again, held by session {id}"));
            }
            self.dispatch(partition, &name);
        }
    }

    /// Ends a session whose client cannot be told.
    pub(super) fn give_up_session(&mut self, id: SessionId) {
        self.detach(id);
        if let Some(session) = self.sessions.get_mut(&id) {
            session.given_up = true;
        }
    }

    /// Drops messages in flight from a random point on: a broken connection keeps the order.
    fn drop_orphans(&mut self, link: SessionAttachment) {
        let mut gone = false;
        let rate = self.faults.orphan_dropped;
        for (at, effect) in self.agenda.extract(|it| it.is_up(Some(link))) {
            gone = gone || self.chance(rate);
            if gone {
                self.note(format!("session {}: lost on the way", link.session));
            } else {
                self.at(at, effect);
            }
        }
    }

    /// Tells the client that its session is over.
    fn fail(&mut self, id: SessionId, verdict: SessionStatus) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.verdict = verdict;
        match &mut session.role {
            SessionRole::Publisher(publishing) => publishing.abandon("the connection was lost"),
            SessionRole::Consumer(consuming) => consuming.receipts.clear(),
            SessionRole::Follower(_) => {}
        }
        session.bell.notify_one();
        self.note(format!("session {id}: its client knows"));
    }

    pub(super) fn fail_silent(&mut self, link: SessionAttachment, error: TransportError) {
        let session = self.sessions.get(&link.session);
        if session.is_some_and(|it| it.is_open() && it.link(link.session) == link) {
            self.fail(link.session, SessionStatus::Failed(error));
        }
    }

    /// Reconnects the simulated client, without an error to the caller.
    pub(super) fn reattach(&mut self, link: SessionAttachment) {
        let id = link.session;
        let Some(session) = self.sessions.get(&id) else { return };
        if !session.is_open() || session.link(id) != link {
            return;
        }
        let (connection, partition) = (session.connection, session.partition);
        let now = self.now();
        let Some(at) = self.partitions.get(&partition) else { return };
        if at.deleted {
            let name = at.name.to_string();
            let error = error(TransportErrorKind::NotFound, &name, "the topic was deleted");
            self.fail(id, SessionStatus::FailedOnce(error));
        } else if at.unavailable_until <= now && matches!(self.reach(connection), Reachability::Yes)
        {
            self.attach(id);
        } else {
            self.after(RETRY_DELAY, PlannedEffect::Reattach(link));
        }
    }

    /// The bell that notifies the client of news of its session. If the session is over, its error,
    /// which some sessions report once.
    pub(super) fn bell(&mut self, id: SessionId) -> Result<Arc<Notify>, TransportError> {
        let Some(session) = self.sessions.get_mut(&id) else {
            return Err(lost("session", "the session is closed"));
        };
        match session.error() {
            Some(error) => Err(error),
            None => Ok(Arc::clone(&session.bell)),
        }
    }

    /// The client dropped its session.
    pub(super) fn close(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get(&id) else { return };
        let connection = self.connections.get_mut(&session.connection);
        match connection.filter(|connection| connection.frozen) {
            Some(connection) => connection.held.push(PlannedEffect::Closed(id)),
            None if self.outage == BrokerOutage::Hangs => self.hung.push(PlannedEffect::Closed(id)),
            None => self.forget(id),
        }
    }

    pub(super) fn forget(&mut self, id: SessionId) {
        self.detach(id);
        if self.sessions.remove(&id).is_some() {
            self.note(format!("session {id} is closed"));
        }
    }
}
