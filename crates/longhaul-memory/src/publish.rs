//! Moves messages from a publisher to the log: batches, fates, deduplication, receipts.

use super::agenda::{Down, Flight, PartitionId, PlannedEffect, SessionId, Up};
use super::faults::{Loss, PublishFate};
use super::history::Happening;
use super::session::{BATCH_MAX, InFlightEntry, ReceiptSender};
use super::state::{MemoryBrokerState, lost};
use longhaul_transport::{
    Batching, EntryId, Message, PublishError, Published, TransportError, moment::Moment,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// How long a publisher waits for a batch to fill.
const BATCH_TIME: Duration = Duration::from_millis(1);
/// How long a client waits for the broker's answer.
pub(super) const OPERATION_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a message: Pulsar's default.
pub(super) const MESSAGE_MAX: usize = 5 * 1024 * 1024;

impl MemoryBrokerState {
    /// Whether there is room in the client's queue.
    pub(super) fn has_room(&mut self, id: SessionId) -> bool {
        let session = self.sessions.get_mut(&id).filter(|session| session.is_open());
        session.and_then(|session| session.publishing()).is_some_and(|queue| !queue.is_full())
    }

    /// Takes a message into the client's queue; an error if the session is not open.
    pub(super) fn offer(
        &mut self,
        id: SessionId,
        body: Message,
    ) -> Result<oneshot::Receiver<Published>, TransportError> {
        let session = self.sessions.get_mut(&id).filter(|session| session.is_open());
        let Some(publishing) = session.and_then(|session| session.publishing()) else {
            return Err(lost("publisher", "the session is over"));
        };
        let (sender, receiver) = oneshot::channel();
        if body.payload.len() > MESSAGE_MAX {
            let (bytes, bytes_max) = (body.payload.len(), MESSAGE_MAX);
            sender.send(Err(PublishError::TooLarge { bytes, bytes_max })).ok();
            return Ok(receiver);
        }
        publishing.batch.push((body, sender));
        let count = publishing.batch.len();
        if publishing.batching == Batching::Off || count >= BATCH_MAX {
            self.flush(id);
        } else if count == 1 {
            self.after(BATCH_TIME, PlannedEffect::Flush(id));
        }
        Ok(receiver)
    }

    /// Sends the batch as one entry.
    pub(super) fn flush(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let (connection, partition) = (session.connection, session.partition);
        let Some(publishing) = session.publishing().filter(|queue| !queue.batch.is_empty()) else {
            return;
        };
        let sequence = publishing.sequence;
        publishing.sequence += 1;
        let batch = std::mem::take(&mut publishing.batch);
        let (bodies, receipts): (Vec<Message>, Vec<ReceiptSender>) = batch.into_iter().unzip();
        let wall_ms =
            self.connections.get(&connection).map(|connection| connection.clock.wall_ms());
        let publish_time_ms = wall_ms.unwrap_or_default();
        self.record_sent(id, partition, &bodies);
        let bodies = Arc::new(bodies);
        let entry = InFlightEntry { bodies, receipts, publish_time_ms, sent: self.now() };
        if let Some(publishing) = self.sessions.get_mut(&id).and_then(|it| it.publishing()) {
            publishing.in_flight.insert(sequence, entry);
        }
        let forced = self.partitions.get_mut(&partition).and_then(|it| it.next_fates.pop_front());
        let fate = forced.unwrap_or_else(|| self.draw_fate());
        self.meet_fate(id, sequence, fate);
    }

    fn record_sent(&mut self, id: SessionId, partition: PartitionId, bodies: &[Message]) {
        let Some(session) = self.sessions.get(&id).filter(|_| self.keeps_history) else { return };
        let Some(partition) = self.partitions.get(&partition) else { return };
        let (by, partition) = (Arc::clone(&session.by), Arc::clone(&partition.name));
        let keys = bodies.iter().filter_map(|body| body.key.clone()).collect();
        self.happened(Happening::Sent { by, partition, keys });
    }

    fn draw_fate(&mut self) -> PublishFate {
        if self.chance(self.faults.publish_lost) {
            PublishFate::Lost
        } else if self.chance(self.faults.receipt_lost) {
            PublishFate::ReceiptLost
        } else if self.chance(self.faults.publish_late) {
            PublishFate::Late(self.draw(self.faults.publish_late_by))
        } else if self.chance(self.faults.publish_refused) {
            PublishFate::Refused
        } else if self.chance(self.faults.resend) {
            let after = self.draw(self.faults.resend_after);
            if self.rng.bool() {
                PublishFate::Resent(after)
            } else {
                PublishFate::ResentForReceipt(after)
            }
        } else {
            PublishFate::Stored
        }
    }

    fn meet_fate(&mut self, id: SessionId, sequence: u64, fate: PublishFate) {
        if fate != PublishFate::Stored {
            self.note(format!("session {id}: entry {sequence} will be {fate:?}"));
        }
        match fate {
            PublishFate::Stored => self.transmit(id, sequence, Duration::ZERO, true),
            PublishFate::Lost => {
                self.after(OPERATION_TIMEOUT, PlannedEffect::GiveUp { session: id, sequence })
            }
            PublishFate::ReceiptLost => {
                self.transmit(id, sequence, Duration::ZERO, false);
                self.after(OPERATION_TIMEOUT, PlannedEffect::GiveUp { session: id, sequence });
            }
            PublishFate::Late(by) => {
                let flight = self.flight(id, sequence, false);
                self.lose(id, Some(Loss::Error), "the connection broke while publishing");
                if let Some(flight) = flight {
                    self.after(by, PlannedEffect::Up(Up::Land(flight)));
                }
            }
            PublishFate::Resent(after) => {
                self.transmit(id, sequence, Duration::ZERO, true);
                self.transmit(id, sequence, after, true);
            }
            PublishFate::ResentForReceipt(after) => {
                self.transmit(id, sequence, Duration::ZERO, false);
                self.transmit(id, sequence, after, true);
            }
            PublishFate::Refused => {
                let refused = PublishError::Refused("the broker does not store it".to_owned());
                self.answer(id, sequence, &Err(refused));
            }
        }
    }

    /// Sends an entry of an attached session; otherwise it waits for the session to be attached
    /// again, or to fail.
    pub(super) fn transmit(
        &mut self,
        id: SessionId,
        sequence: u64,
        after: Duration,
        answered: bool,
    ) {
        let Some(flight) = self.flight(id, sequence, answered) else { return };
        let delay = self.draw(self.faults.publish_delay);
        let at = self.now() + delay;
        let Some(session) = self.sessions.get_mut(&id).filter(|session| session.attached) else {
            return;
        };
        let connection = session.connection;
        // A resend does not delay later messages.
        let at = if after.is_zero() { session.outbound_at(at) } else { at + after };
        self.send_up(connection, at, Up::Land(flight));
    }

    fn flight(&mut self, id: SessionId, sequence: u64, answered: bool) -> Option<Flight> {
        let session = self.sessions.get_mut(&id)?;
        let (link, partition, by) = (session.link(id), session.partition, Arc::clone(&session.by));
        let publishing = session.publishing()?;
        let batched = publishing.batching == Batching::On;
        let entry = publishing.in_flight.get(&sequence)?;
        let InFlightEntry { publish_time_ms, sent, .. } = *entry;
        let bodies = Arc::clone(&entry.bodies);
        Some(Flight {
            link,
            by,
            partition,
            sequence,
            bodies,
            batched,
            publish_time_ms,
            sent,
            answered,
        })
    }

    /// Handles an entry at the broker.
    pub(super) fn land(&mut self, flight: Flight) {
        let deduplicated = self.is_deduplicated(flight.partition);
        let now = self.now();
        let Some(partition) = self.partitions.get_mut(&flight.partition) else { return };
        if partition.deleted {
            return;
        }
        if partition.stalled_until > now {
            let until = partition.stalled_until;
            self.at(until, PlannedEffect::Up(Up::Land(flight)));
            return;
        }
        let Flight { link, sequence, answered, .. } = flight;
        // One above the highest stored sequence.
        let next = partition.sequences.entry(link.session).or_default();
        let repeated = sequence < *next;
        *next = (*next).max(sequence + 1);
        let answer = if deduplicated && repeated {
            let name = self.name(flight.partition);
            self.note(format!("dropped a resend of session {} on {name}", link.session));
            Err(PublishError::Unknown("stored before, the broker does not say where".to_owned()))
        } else {
            let Flight { partition, by, bodies, batched, publish_time_ms, sent, .. } = flight;
            let entry = self.store(partition, (by, sent), &bodies, batched, publish_time_ms);
            Ok(entry)
        };
        if answered {
            let delay = self.draw(self.faults.receipt_delay);
            self.send_down(link, delay, Down::Receipt { sequence, answer });
        }
    }

    fn is_deduplicated(&self, partition: PartitionId) -> bool {
        let topic = self.partitions.get(&partition).map(|partition| &partition.at.topic);
        topic.and_then(|topic| self.topics.get(topic)).is_some_and(|topic| topic.deduplication)
    }

    /// Appends an entry and wakes its waiters; `by` and `sent` are its sender and time.
    pub(super) fn store(
        &mut self,
        id: PartitionId,
        (by, sent): (Arc<str>, Moment),
        bodies: &[Message],
        batched: bool,
        publish_time_ms: u64,
    ) -> EntryId {
        let Some(partition) = self.partitions.get_mut(&id) else {
            unreachable!("partitions are marked as deleted, and never removed")
        };
        let entry = partition.log.append(bodies, batched, publish_time_ms);
        let subscriptions: Vec<Arc<str>> = partition.subscriptions.keys().cloned().collect();
        let stored = Happening::Stored {
            by,
            partition: Arc::clone(&partition.name),
            entry,
            messages: bodies.len(),
            key: bodies.first().and_then(|body| body.key.clone()),
            sent,
        };
        self.happened(stored);
        self.feed_all(id);
        for subscription in subscriptions {
            self.dispatch(id, &subscription);
        }
        entry
    }

    /// Passes the broker's answer to the client.
    pub(super) fn answer(
        &mut self,
        id: SessionId,
        sequence: u64,
        answer: &Result<EntryId, PublishError>,
    ) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let bell = Arc::clone(&session.bell);
        let Some(publishing) = session.publishing() else { return };
        if let Some(entry) = publishing.in_flight.remove(&sequence) {
            entry.answer(publishing.batching == Batching::On, answer);
            bell.notify_one();
        }
    }

    pub(super) fn give_up(&mut self, session: SessionId, sequence: u64) {
        let cause = PublishError::Unknown("no answer in time".to_owned());
        self.answer(session, sequence, &Err(cause));
    }
}
