//! Delivers messages from the log to the consumers of a subscription, and their acks back.

use super::agenda::{
    AckFlight, AckSender, Down, PartitionId, PlannedEffect, SessionAttachment, SessionId, Up,
};
use super::faults::{DurationRange, Loss};
use super::history::Happening;
use super::session::SessionRole;
use super::state::{MemoryBrokerState, MemoryPartition, lost};
use super::subscription::MemorySubscription;
use longhaul_transport::{Backlog, EntryId, Message, TransportError};
use std::sync::Arc;

/// A session with a lost ack ends within this time.
const ACK_LOST_WITHIN: DurationRange = DurationRange::millis(10, 2_000);

impl MemoryBrokerState {
    /// Sends entries to consumers for as long as there are both.
    pub(super) fn dispatch(&mut self, id: PartitionId, subscription: &str) {
        while let Some((entry, session)) = self.take_entry(id, subscription) {
            let Some(partition) = self.partitions.get(&id) else { return };
            let messages = partition.log.entry(entry).to_vec();
            let name = Arc::clone(&partition.name);
            let EntryId { ledger, entry: number } = entry;
            self.note(format!("dispatched {ledger}:{number} of {name} to session {session}"));
            if self.chance(self.faults.delivered_twice) {
                self.send_messages(session, messages.clone());
            }
            self.send_messages(session, messages);
            if self.chance(self.faults.redelivered_early) {
                let after = self.draw(self.faults.redelivered_after);
                let subscription = Arc::from(subscription);
                self.after(after, PlannedEffect::Redeliver { partition: id, subscription, entry });
            }
        }
    }

    fn take_entry(&mut self, id: PartitionId, subscription: &str) -> Option<(EntryId, SessionId)> {
        let keeps_keys = !self.faults.keys_dealt_to_any;
        let partition = self.partitions.get_mut(&id)?;
        let sessions = &self.sessions;
        let has_room = |id| sessions.get(&id).is_some_and(|session| session.room() > 0);
        partition.subscriptions.get_mut(subscription)?.take(&partition.log, keeps_keys, has_room)
    }

    /// Sends messages to a client, behind those in flight.
    pub(super) fn send_messages(&mut self, id: SessionId, messages: Vec<Message>) {
        let consumer =
            self.sessions.get(&id).is_some_and(|it| matches!(it.role, SessionRole::Consumer(_)));
        let span = if consumer { self.faults.dispatch_delay } else { self.faults.read_back_delay };
        let delay = self.draw(span);
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.coming += messages.len();
        if let Some(consuming) = session.consuming() {
            consuming.permits -= i64::try_from(messages.len()).unwrap_or(i64::MAX);
        }
        let link = session.link(id);
        self.send_down(link, delay, Down::Arrive(messages));
    }

    pub(super) fn arrive(&mut self, link: SessionAttachment, messages: Vec<Message>) {
        let Some(session) = self.sessions.get_mut(&link.session) else { return };
        let undecodable = self.partitions.get(&session.partition).map(|it| &it.undecodable);
        let unreadable = |message: &Message| {
            undecodable.is_some_and(|bad| bad.contains(&message.position.entry_id()))
        };
        if messages.iter().any(unreadable) {
            self.lose(link.session, Some(Loss::Error), "a message cannot be decoded");
            return;
        }
        session.coming = session.coming.saturating_sub(messages.len());
        session.inbox.extend(messages);
        session.bell.notify_one();
    }

    /// A message that has arrived, if there is one.
    pub(super) fn take(&mut self, id: SessionId) -> Option<Message> {
        let session = self.sessions.get_mut(&id)?;
        let message = session.inbox.pop_front()?;
        let (by, partition) = (Arc::clone(&session.by), session.partition);
        let subscription = session.consuming().map(|it| Arc::clone(&it.subscription));
        let name = self.name(partition);
        self.happened(Happening::Received {
            by,
            session: id,
            partition: name,
            position: message.position,
            subscription,
        });
        self.refill(id);
        Some(message)
    }

    /// Handles the client's request for this many more deliveries.
    pub(super) fn ask_for(&mut self, id: SessionId, count: usize) {
        let session = self.sessions.get_mut(&id);
        if let Some(consuming) = session.and_then(|session| session.consuming()) {
            consuming.permits += i64::try_from(count).unwrap_or(i64::MAX);
            self.refill(id);
        }
    }

    /// Tells the broker that there is room again. A frozen connection does not.
    pub(super) fn refill(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get(&id).filter(|session| session.attached) else {
            return;
        };
        let connection = self.connections.get(&session.connection);
        if connection.is_some_and(|connection| connection.frozen) {
            return;
        }
        let partition = session.partition;
        match &session.role {
            SessionRole::Consumer(it) => {
                let subscription = Arc::clone(&it.subscription);
                self.dispatch(partition, &subscription);
            }
            SessionRole::Follower(_) => self.feed(id),
            SessionRole::Publisher(_) => {}
        }
    }

    /// The broker's view of a consumer and its subscription; no answer while the client has no
    /// connection.
    pub(super) fn backlog(&mut self, id: SessionId) -> Option<Result<Backlog, TransportError>> {
        let Some(session) = self.sessions.get_mut(&id).filter(|session| session.is_open()) else {
            return Some(Err(lost("consumer", "the session is over")));
        };
        let (attached, partition, room) = (session.attached, session.partition, session.room());
        let name = Arc::clone(&session.consuming()?.subscription);
        let partition = self.partitions.get(&partition).filter(|_| attached)?;
        let subscription = partition.subscriptions.get(&*name)?;
        let entries = u64::try_from(subscription.backlog(&partition.log)).unwrap_or(u64::MAX);
        let permits = u64::try_from(room).unwrap_or(u64::MAX);
        Some(Ok(Backlog { entries, permits, blocked: false }))
    }

    /// Sends an ack of a client. Without an attachment it is lost.
    pub(super) fn send_ack(&mut self, id: SessionId, entry: EntryId, receipt: AckSender) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let (link, connection, open) = (session.link(id), session.connection, session.is_open());
        let (by, partition, attached) =
            (Arc::clone(&session.by), session.partition, session.attached);
        let Some(consuming) = session.consuming() else { return };
        if !attached {
            if open {
                consuming.receipts.push(receipt);
            }
            return;
        }
        let subscription = Arc::clone(&consuming.subscription);
        let planned = self.partitions.get_mut(&partition).map(|it| &mut it.next_lost_acks);
        if planned.is_some_and(MemoryPartition::take_one) || self.chance(self.faults.ack_lost) {
            self.lose_ack(link, entry, receipt);
            return;
        }
        let delay = self.draw(self.faults.ack_delay);
        let at = self.now() + delay;
        let at = self.sessions.get_mut(&id).map_or(at, |session| session.outbound_at(at));
        let receipt = Some(receipt);
        let flight = AckFlight { link, by, partition, subscription, entry, receipt };
        self.send_up(connection, at, Up::Ack(flight));
    }

    /// Loses an ack: the client sent it, and may even have a receipt; the broker never gets it,
    /// because the connection is about to break.
    fn lose_ack(&mut self, link: SessionAttachment, entry: EntryId, receipt: AckSender) {
        let EntryId { ledger, entry } = entry;
        let told = self.rng.bool();
        self.note(format!("lost the ack of {ledger}:{entry} by {link:?}, told {told}"));
        if told {
            let delay = self.draw(self.faults.ack_delay);
            self.send_down(link, delay, Down::AckReceipt(receipt));
        }
        let soon = self.draw(ACK_LOST_WITHIN);
        self.after(soon, PlannedEffect::Lose(link));
    }

    /// Handles an ack at the broker.
    pub(super) fn take_ack(&mut self, flight: AckFlight) {
        let AckFlight { link, by, partition: id, subscription, entry, receipt } = flight;
        let Some(partition) = self.partitions.get_mut(&id) else { return };
        if let Some(sub) = partition.subscriptions.get_mut(&subscription) {
            sub.ack(entry, &partition.log);
            let mark_delete = sub.mark_delete;
            let name = Arc::clone(&partition.name);
            let to = Arc::clone(&subscription);
            self.happened(Happening::Acked {
                by,
                partition: name,
                entry,
                subscription: to,
                mark_delete,
            });
            self.store_mark_delete_later(id, &subscription);
            // Its key may now go to another consumer.
            self.dispatch(id, &subscription);
        }
        if let Some(receipt) = receipt {
            let delay = self.draw(self.faults.ack_delay);
            self.send_down(link, delay, Down::AckReceipt(receipt));
        }
    }

    fn store_mark_delete_later(&mut self, id: PartitionId, subscription: &Arc<str>) {
        let Some(sub) = self.subscription(id, subscription) else { return };
        if sub.mark_delete == sub.stored || std::mem::replace(&mut sub.storing, true) {
            return;
        }
        let delay = self.draw(self.faults.mark_delete_delay);
        if delay.is_zero() {
            self.store_mark_delete(id, subscription);
        } else {
            let subscription = Arc::clone(subscription);
            self.after(delay, PlannedEffect::StoreMarkDelete { partition: id, subscription });
        }
    }

    pub(super) fn store_mark_delete(&mut self, id: PartitionId, subscription: &str) {
        if let Some(sub) = self.subscription(id, subscription) {
            sub.stored = sub.mark_delete;
            sub.storing = false;
        }
    }

    fn subscription(&mut self, id: PartitionId, name: &str) -> Option<&mut MemorySubscription> {
        self.partitions.get_mut(&id)?.subscriptions.get_mut(name)
    }

    /// Hands a delivery back. Without an attachment the broker has it back already.
    pub(super) fn send_back(
        &mut self,
        id: SessionId,
        entry: EntryId,
    ) -> Result<(), TransportError> {
        let delay = self.draw(self.faults.ack_delay);
        let at = self.now() + delay;
        let Some(session) = self.sessions.get_mut(&id).filter(|session| session.is_open()) else {
            return Err(lost("consumer", "the session is over"));
        };
        if session.attached {
            let (link, connection) = (session.link(id), session.connection);
            let at = session.outbound_at(at);
            self.send_up(connection, at, Up::HandBack { link, entry });
        }
        Ok(())
    }

    pub(super) fn take_back(&mut self, link: SessionAttachment, entry: EntryId) {
        let Some(session) = self.sessions.get_mut(&link.session) else { return };
        let (partition, current) = (session.partition, session.link(link.session) == link);
        let Some(it) = session.consuming() else { return };
        let subscription = Arc::clone(&it.subscription);
        let holder = self.holder(partition, &subscription, entry);
        if current && holder == Some(link.session) {
            let EntryId { ledger, entry: number } = entry;
            let session = link.session;
            self.note(format!("{ledger}:{number} handed back by session {session}"));
            self.deliver_again(partition, &subscription, entry);
        }
    }

    pub(super) fn redeliver_early(
        &mut self,
        partition: PartitionId,
        subscription: &str,
        entry: EntryId,
    ) {
        if self.holder(partition, subscription, entry).is_some() {
            let EntryId { ledger, entry: number } = entry;
            self.note(format!("{ledger}:{number} is delivered again while it is held"));
            self.deliver_again(partition, subscription, entry);
        }
    }

    fn holder(
        &self,
        partition: PartitionId,
        subscription: &str,
        entry: EntryId,
    ) -> Option<SessionId> {
        self.partitions.get(&partition)?.subscriptions.get(subscription)?.holder(entry)
    }

    fn deliver_again(&mut self, id: PartitionId, subscription: &str, entry: EntryId) {
        if let Some(sub) = self.subscription(id, subscription) {
            sub.deliver_again(entry);
            self.dispatch(id, subscription);
        }
    }
}
