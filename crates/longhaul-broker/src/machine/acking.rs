//! Acknowledgements, and requests for redelivery.

use super::BrokerMachine;
use super::backoff::may_warn;
use super::dispatcher::ConsumerKey;
use super::effect::{MachineEffect, RequestRefusal};
use super::invariants::Invariant;
use crate::state::change::{Ack, BatchAck, StateChange};
use crate::state::entries::EntryPosition;
use longhaul_wire::messages::{
    AckType, CommandAck, CommandAckResponse, CommandRedeliverUnacknowledgedMessages, MessageIdData,
    ServerError,
};

/// Partly acknowledged batches per subscription. Parts of further ones are refused.
const PARTIAL_MAX: usize = 10_000;
/// Ranges of acknowledged entries behind unacknowledged ones, per subscription. Each takes some 30
/// bytes of memory, and all are in one step of a checkpoint. Acknowledgements that begin further
/// ones are refused.
const RANGES_MAX: usize = 1_000_000;

impl BrokerMachine {
    pub(super) fn ack(&mut self, conn: u64, command: &CommandAck) {
        let answer = command.request_id.map(|request_id| (command.consumer_id, request_id));
        let result = self.acknowledge(conn, command);
        // The client expects no answer.
        let Some((consumer_id, request_id)) = answer else { return };
        let (error, message) = match result {
            Ok(()) => (None, None),
            Err(refusal) => (Some(refusal.code.into()), Some(refusal.text)),
        };
        self.send_after_commit(
            conn,
            CommandAckResponse {
                consumer_id,
                txnid_least_bits: None,
                txnid_most_bits: None,
                error,
                message,
                request_id: Some(request_id),
            },
        );
    }

    fn acknowledge(&mut self, conn: u64, command: &CommandAck) -> Result<(), RequestRefusal> {
        let key = ConsumerKey { conn, id: command.consumer_id };
        let missing = || RequestRefusal::no_consumer(ServerError::ConsumerNotFound);
        let (topic, subscription) = self.subscription_of(key).ok_or_else(missing)?;
        if command.txnid_most_bits.is_some() || command.txnid_least_bits.is_some() {
            return Err(RequestRefusal::no_transactions());
        }
        let is_shared = self
            .dispatcher(topic, subscription)
            .is_some_and(|dispatcher| dispatcher.kind.is_shared());
        let mut ack = Ack { topic, subscription, ..Ack::default() };
        let mut refused = 0;
        if command.ack_type == i32::from(AckType::Cumulative) {
            if is_shared {
                let text = "a shared subscription cannot acknowledge cumulatively";
                return Err(RequestRefusal::not_allowed(text));
            }
            for id in &command.message_id {
                self.collect_cumulative(id, &mut ack);
            }
            self.leave_out_withheld(&mut ack);
        } else {
            for id in &command.message_id {
                refused += u64::from(!self.collect_individual(id, &mut ack));
            }
        }
        self.record_ack(ack)?;
        if refused == 0 { Ok(()) } else { Err(self.refuse_acks(topic, subscription, refused)) }
    }

    /// The error for acknowledgements beyond a limit. Most clients ask for no answer, so the log
    /// has it too.
    fn refuse_acks(&mut self, topic: u32, subscription: u32, refused: u64) -> RequestRefusal {
        let kept = self.state.topic(topic);
        let known = kept.and_then(|kept| Some((kept, kept.subscriptions.get(&subscription)?)));
        let place = known.map_or_else(String::new, |(kept, known)| {
            format!("subscription {} of {}", known.name, kept.name)
        });
        let text = format!(
            "{place}: {refused} acknowledgements are refused, and their messages are redelivered: the limits are {PARTIAL_MAX} batches that are acknowledged in part, and {RANGES_MAX} gaps between acknowledged messages. Acknowledge whole batches, and the oldest messages"
        );
        if may_warn(&mut self.next_ack_warning, self.up) {
            self.effects.push(MachineEffect::Warn(text.clone()));
        }
        RequestRefusal::not_allowed(text)
    }

    fn collect_cumulative(&self, id: &MessageIdData, ack: &mut Ack) {
        let Some(ordinal) = self.ordinal_of(ack.topic, id) else { return };
        if id.ack_set.is_empty() {
            ack.before = ack.before.max(Some(ordinal + 1));
        } else {
            ack.before = ack.before.max(Some(ordinal));
            self.collect_in_batch(id, ordinal, ack);
        }
    }

    /// Returns whether the acknowledgement is within the limits.
    fn collect_individual(&self, id: &MessageIdData, ack: &mut Ack) -> bool {
        let Some(ordinal) = self.ordinal_of(ack.topic, id) else { return true };
        let known = self.state.subscription(ack.topic, ack.subscription);
        let Some(cursor) = known.map(|known| &known.cursor).filter(|it| !it.is_acked(ordinal))
        else {
            return true;
        };
        let begins_range = !cursor.touches(ordinal);
        let is_done = id.ack_set.is_empty();
        if is_done && begins_range && cursor.acked().pieces() + ack.entries.len() >= RANGES_MAX {
            return false;
        }
        let begins_batch = cursor.open_in_batch(ordinal).is_none();
        if !is_done && begins_batch && cursor.partly_acked() + ack.batches.len() >= PARTIAL_MAX {
            return false;
        }
        if is_done {
            ack.entries.push(ordinal);
        } else {
            self.collect_in_batch(id, ordinal, ack);
        }
        true
    }

    /// Acknowledges some messages of a batch. An ack that does not match a known batch is ignored;
    /// the entry will be redelivered.
    fn collect_in_batch(&self, id: &MessageIdData, ordinal: u64, ack: &mut Ack) {
        let Some(messages) = self.messages_of_batch(ack.topic, ordinal) else { return };
        if id.ack_set.len() <= messages.div_ceil(64) as usize {
            let open = id.ack_set.iter().map(|word| word.cast_unsigned()).collect();
            ack.batches.push(BatchAck { ordinal, open, messages });
        }
    }

    /// Number of messages in the batch. A trimmed entry may still be readable in the compacted
    /// view, which does not distinguish a single message from a batch of one; clients acknowledge
    /// parts of batches only.
    fn messages_of_batch(&self, topic: u32, ordinal: u64) -> Option<u32> {
        let slot = self.state.topic(topic)?.entries.get(ordinal);
        match slot {
            Some(slot) => slot.is_batch().then(|| slot.messages()),
            None => self.view(topic, true)?.get(ordinal).map(|item| item.messages),
        }
    }

    /// The ordinal of an entry that a consumer may have received.
    fn ordinal_of(&self, topic: u32, id: &MessageIdData) -> Option<u64> {
        let position = EntryPosition { ledger: id.ledger_id, entry: id.entry_id };
        let ordinal = self.state.topic(topic)?.entries.ordinal_of(position)?;
        (ordinal < self.live.get(&topic)?.readable).then_some(ordinal)
    }

    pub(super) fn is_acked(&self, ack: &Ack, ordinal: u64) -> bool {
        let subscription = self.state.subscription(ack.topic, ack.subscription);
        subscription.is_none_or(|subscription| subscription.cursor.is_acked(ordinal))
    }

    /// Records the new part of an ack, and tells the dispatcher.
    pub(super) fn record_ack(&mut self, ack: Ack) -> Result<(), RequestRefusal> {
        let (topic, subscription) = (ack.topic, ack.subscription);
        if ack == (Ack { topic, subscription, ..Ack::default() }) {
            return Ok(());
        }
        let known = self.state.subscription(topic, subscription);
        let is_durable = known.is_some_and(|known| known.is_durable);
        let batches: Vec<u64> = ack.batches.iter().map(|batch| batch.ordinal).collect();
        let (before, entries, ranges) = (ack.before, ack.entries.clone(), ack.ranges.clone());
        let change = StateChange::from(ack);
        if is_durable {
            self.change(change)?;
        } else {
            self.apply(&change)?;
        }
        let known = self.state.subscription(topic, subscription);
        let is_acked = |&ordinal: &u64| known.is_some_and(|known| known.cursor.is_acked(ordinal));
        let whole = batches.into_iter().filter(is_acked);
        let whole: Vec<u64> = whole.chain(entries).collect();
        let Some(live) = self.invariants.served(self.live.get_mut(&topic)) else { return Ok(()) };
        live.figures
            .subscription(subscription)
            .acked(whole.len() as u64 + u64::from(before.is_some()), self.now);
        self.totals.acks += whole.len() as u64;
        if let Some(dispatcher) = live.dispatchers.get_mut(&subscription) {
            before.into_iter().for_each(|end| dispatcher.acked_between(0, end));
            for range in ranges.chunks_exact(2) {
                if let &[from, to] = range {
                    dispatcher.acked_between(from, to);
                }
            }
            whole.into_iter().for_each(|ordinal| dispatcher.acked(ordinal));
        }
        // The limit of unacknowledged messages may have room again.
        self.dirty.insert((topic, subscription));
        self.tell_end(topic, subscription);
        Ok(())
    }

    pub(super) fn redeliver(
        &mut self,
        conn: u64,
        command: &CommandRedeliverUnacknowledgedMessages,
    ) {
        let key = ConsumerKey { conn, id: command.consumer_id };
        // The client may have sent this before it learned that its consumer was closed.
        let Some((topic, subscription)) = self.subscription_of(key) else { return };
        let ordinals: Vec<u64> =
            command.message_ids.iter().filter_map(|id| self.ordinal_of(topic, id)).collect();
        let asked = (!command.message_ids.is_empty()).then_some(ordinals.as_slice());
        let record = self.state.subscription(topic, subscription);
        let dispatchers = self.live.get_mut(&topic).map(|live| &mut live.dispatchers);
        let dispatcher = dispatchers.and_then(|dispatchers| dispatchers.get_mut(&subscription));
        let both = dispatcher.zip(record);
        let both = self.invariants.need(both, Invariant::ConsumerAttached, Some(conn));
        let Some((dispatcher, record)) = both else { return };
        dispatcher.redeliver(key, asked, &record.cursor);
        self.dirty.insert((topic, subscription));
    }

    /// Excludes withheld entries from a cumulative acknowledgement.
    fn leave_out_withheld(&mut self, ack: &mut Ack) {
        let Some(end) = ack.before else { return };
        let live = self.live.get(&ack.topic);
        let Some(live) = self.invariants.served(live) else { return };
        let mut left_out = live.withheld.before(end);
        left_out.retain(|&ordinal| !self.is_acked(ack, ordinal));
        let Some(&first) = left_out.first() else { return };
        ack.before = Some(first);
        let ends = left_out.iter().skip(1).copied().chain([end]);
        for (from, to) in
            left_out.iter().map(|ordinal| ordinal + 1).zip(ends).filter(|(from, to)| from < to)
        {
            ack.ranges.extend([from, to]);
        }
    }

    /// Acknowledges everything before an entry, for one subscription or for all durable ones.
    pub(super) fn acknowledge_before(
        &mut self,
        topic: u32,
        only: Option<u32>,
        ordinal: u64,
    ) -> Result<(), RequestRefusal> {
        let Some(kept) = self.invariants.kept(self.state.topic(topic)) else { return Ok(()) };
        let behind = kept.subscriptions.iter().filter(|(id, subscription)| {
            subscription.is_durable
                && subscription.cursor.mark() < ordinal
                && only.is_none_or(|only| only == **id)
        });
        let behind: Vec<u32> = behind.map(|(&id, _)| id).collect();
        for subscription in behind {
            self.record_ack(Ack { topic, subscription, before: Some(ordinal), ..Ack::default() })?;
        }
        Ok(())
    }
}
