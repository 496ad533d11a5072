//! Publishes: into the log, to receipts, and to readers.

use super::effect::{
    IncomingMessage, MachineEffect, PendingCommit, PendingReceipt, RequestRefusal,
};
use super::invariants::Invariant;
use super::{BrokerMachine, Live};
use crate::log::{RecordHead, RecordKind};
use crate::state::entry::EntryHead;
use bytes::Bytes;
use longhaul_wire::messages::{
    CommandCloseProducer, CommandSend, CommandSendError, CommandSendReceipt, MessageIdData,
    ServerError,
};
use std::sync::Arc;

/// Ledger and entry in the receipt of a duplicate.
const DUPLICATE: (u64, u64) = (u64::MAX, u64::MAX);

impl BrokerMachine {
    pub(super) fn publish(
        &mut self,
        conn: u64,
        send: CommandSend,
        message: Result<IncomingMessage, RequestRefusal>,
    ) {
        if self
            .sessions
            .get(&conn)
            .is_some_and(|session| session.closed.contains(&send.producer_id))
        {
            // The client sends the message again with its next producer. An error would make it
            // close the whole connection.
            return;
        }
        let published = message.and_then(|message| self.append(conn, send, &message));
        if let Err(refusal) = published {
            self.totals.publish_errors += 1;
            if is_blocked(refusal.code) {
                return self.block_producer(conn, send.producer_id);
            }
            // As on Pulsar, errors name a batch by its last message, and receipts by its first.
            let sequence_id = send.sequence_id.max(send.highest_sequence_id());
            let producer_id = send.producer_id;
            let (error, message) = (refusal.code.into(), refusal.text);
            let error = CommandSendError { producer_id, sequence_id, error, message };
            self.send_after_commit(conn, error);
            self.end_refused_producer(conn, send.producer_id, refusal.code);
        }
    }

    /// Closes a producer whose message has no room, as Pulsar does for a topic with an exceeded
    /// quota. There is no error, which would make clients close the connection with all its
    /// consumers. The client starts again, in order, and then gets the reason.
    fn block_producer(&mut self, conn: u64, id: u64) {
        if let Some(topic) = self.open_producer(conn, id) {
            self.end_producer(conn, topic, id);
        }
    }

    /// The topic of a producer that does not wait.
    fn open_producer(&self, conn: u64, id: u64) -> Option<u32> {
        let handle = self.sessions.get(&conn)?.producers.get(&id)?;
        (!handle.is_waiting).then_some(handle.topic)
    }

    /// Closes a producer whose message could not be recorded, or whose message was refused on a
    /// topic with deduplication. Later messages of it must not be accepted: they would overtake the
    /// refused one, which would then be dropped as a duplicate when it is resent. The client starts
    /// again, in order.
    fn end_refused_producer(&mut self, conn: u64, id: u64, code: ServerError) {
        let Some(topic) = self.open_producer(conn, id) else { return };
        let deduplicates = self.live.get(&topic).is_some_and(Live::deduplicates);
        if deduplicates || code == ServerError::PersistenceError {
            self.end_producer(conn, topic, id);
        }
    }

    /// Closes a producer. Its client may open it again.
    pub(super) fn end_producer(&mut self, conn: u64, topic: u32, id: u64) {
        if let Some(session) = self.session(conn) {
            session.record_closed(id);
        }
        self.drop_producer(topic, conn, id);
        self.send_after_commit(conn, CommandCloseProducer::new(id, u64::MAX));
    }

    fn append(
        &mut self,
        conn: u64,
        send: CommandSend,
        message: &IncomingMessage,
    ) -> Result<(), RequestRefusal> {
        let handle =
            self.sessions.get(&conn).and_then(|session| session.producers.get(&send.producer_id));
        let Some(handle) = handle else {
            let text = format!("there is no producer {} on this connection", send.producer_id);
            return Err(RequestRefusal::new(ServerError::UnknownError, text));
        };
        if handle.is_waiting {
            let text = "the producer is not yet the only one of its topic";
            return Err(RequestRefusal::new(ServerError::ProducerFenced, text));
        }
        let topic = handle.topic;
        let highest = send.highest_sequence_id.unwrap_or_default().max(send.sequence_id);
        let mut sequence = None;
        if self.live.get(&topic).is_some_and(Live::deduplicates) {
            let name = Arc::clone(&handle.name);
            let known = self.state.topic(topic).and_then(|topic| topic.highest_sequence(&name));
            if known.is_some_and(|known| highest <= known) {
                self.totals.publishes_deduplicated += 1;
                let receipt = receipt(send, DUPLICATE, self.moment.received);
                self.after_commit(PendingCommit::Receipt { conn, receipt });
                return Ok(());
            }
            // All chunks of a message have one sequence id: the last chunk completes it.
            sequence = (!message.has_next_chunk).then_some((name, highest));
        }
        self.check_room(topic, message.payload.bytes().len())?;
        let mut head = EntryHead { facts: message.facts, sequence };
        // A publisher's clock may be ahead. An entry from the future would stop expiry and retention.
        head.facts.publish_time = head.facts.publish_time.min(self.now);
        let id = self.record_entry(topic, &head, message.payload.bytes())?;
        let live = self.live.get_mut(&topic);
        if let Some(live) = self.invariants.need(live, Invariant::TopicServed, Some(conn)) {
            let (messages, bytes) = (head.facts.batch.unwrap_or(1), message.payload.bytes().len());
            live.figures.published(messages, bytes);
            self.totals.bytes_in += bytes as u64;
        }
        let Recorded { ledger, entry, ordinal, location } = id;
        let receipt = receipt(send, (ledger, entry), self.moment.received);
        self.waiting.push_back((
            self.composing,
            PendingCommit::Published { topic, ordinal, location, conn, receipt },
        ));
        Ok(())
    }

    fn record_entry(
        &mut self,
        id: u32,
        head: &EntryHead,
        payload: &[u8],
    ) -> Result<Recorded, RequestRefusal> {
        let unknown = || RequestRefusal::not_found("the topic was deleted");
        let topic = self.state.topic(id).ok_or_else(unknown)?;
        if !topic.is_open {
            self.open_ledger(id)?;
        }
        let topic = self.state.topic(id).ok_or_else(unknown)?;
        let position = topic.entries.next_position().ok_or_else(unknown)?;
        let record = RecordHead {
            kind: RecordKind::Entry,
            topic: id,
            ledger: position.ledger,
            entry: position.entry,
        };
        self.scratch.clear();
        head.encode(&mut self.scratch);
        let location = self.composer.append(record, &[&self.scratch, payload]);
        let location = location.map_err(|cause| {
            RequestRefusal::new(ServerError::PersistenceError, cause.to_string())
        })?;
        self.totals.records += 1;
        let pushed = self.state.push(id, location, head);
        let ordinal = pushed.map_err(|cause| {
            let found = || format!("an entry is recorded and cannot be applied: {cause}");
            self.invariants.fail(Invariant::Recorded, found);
            unknown()
        })?;
        debug_assert_eq!(
            self.state.topic(id).and_then(|topic| topic.entries.position_of(ordinal)),
            Some(position),
            "the log and the state name an entry differently"
        );
        Ok(Recorded { ledger: position.ledger, entry: position.entry, ordinal, location })
    }

    pub(super) fn send_receipt(&mut self, conn: u64, receipt: PendingReceipt) {
        self.totals.publishes += 1;
        self.totals.publish_times.note(self.moment.since(receipt.received));
        let (ledger_id, entry_id) = receipt.id;
        let message_id = MessageIdData { ledger_id, entry_id, ..MessageIdData::default() };
        let command = CommandSendReceipt {
            producer_id: receipt.producer,
            sequence_id: receipt.sequence,
            message_id: Some(message_id),
            highest_sequence_id: receipt.highest,
        };
        self.effects.push(MachineEffect::Send(conn, command.into()));
    }

    /// Makes an entry on disk available to consumers.
    pub(super) fn show(&mut self, topic: u32, ordinal: u64, body: Bytes) {
        // The topic may have been deleted meanwhile.
        let Some(live) = self.live.get_mut(&topic) else { return };
        let readable = live.readable;
        if ordinal != readable {
            return self.invariants.fail(Invariant::EntryOrder, || {
                format!("entry {ordinal} of topic {topic} is on disk instead of {readable}")
            });
        }
        self.recent.push(topic, ordinal, body);
        live.readable += 1;
        self.shown.insert(topic);
    }
}

/// Whether there is no room, on the disk or in a quota.
const fn is_blocked(code: ServerError) -> bool {
    matches!(
        code,
        ServerError::ProducerBlockedQuotaExceededError
            | ServerError::ProducerBlockedQuotaExceededException
    )
}

/// Location of a recorded entry.
struct Recorded {
    ledger: u64,
    entry: u64,
    ordinal: u64,
    location: crate::log::RecordLocation,
}

const fn receipt(send: CommandSend, id: (u64, u64), received: u64) -> PendingReceipt {
    PendingReceipt {
        producer: send.producer_id,
        sequence: send.sequence_id,
        highest: send.highest_sequence_id,
        id,
        received,
    }
}
