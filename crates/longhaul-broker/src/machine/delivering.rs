//! Deliveries: the readable entries of a topic, and what each consumer is sent.

use super::dispatcher::{Assignment, UnackedLimits};
use super::dues::SubscriptionKey;
use super::effect::{MachineEffect, MessageSource};
use super::invariants::Invariant;
use super::recent::Recent;
use super::view::ReadableView;
use super::{BrokerMachine, CompactedEntry, DISPATCH_BUDGET};
use crate::state::BrokerTopic;
use longhaul_wire::messages::{CommandMessage, MessageIdData};
use std::collections::HashMap;
use std::sync::Arc;

/// Turns in which one connection's window is filled.
const TURNS_PER_WINDOW: u64 = 16;

impl BrokerMachine {
    /// The readable part of a topic.
    pub(super) fn view(&self, topic: u32, reads_compacted: bool) -> Option<ReadableView<'_>> {
        let (kept, live) = (self.state.topic(topic)?, self.live.get(&topic)?);
        let compacted = kept.compacted.as_ref().filter(|_| reads_compacted).and_then(|view| {
            let slots = self.compacted.get(&view.file)?;
            Some((slots.as_ref(), view.horizon))
        });
        Some(ReadableView {
            entries: &kept.entries,
            end: live.readable,
            compacted,
            withheld: &live.withheld,
        })
    }

    /// Assigns the entries of a topic to the consumers of a subscription. Returns whether there is
    /// more to process.
    pub(super) fn dispatch_one(&mut self, key: SubscriptionKey) -> bool {
        #[cfg(test)]
        {
            self.visits += 1;
        }
        let (topic, subscription) = key;
        let has_more = self.deal(topic, subscription);
        let dispatcher = self.dispatcher(topic, subscription);
        let next = dispatcher.and_then(|dispatcher| dispatcher.next_due());
        self.dues.set(key, next);
        has_more
    }

    fn deal(&mut self, topic: u32, subscription: u32) -> bool {
        // The topic, or the last consumer, may be gone.
        let Some(live) = self.live.get_mut(&topic) else { return false };
        let Some(dispatcher) = live.dispatchers.get_mut(&subscription) else { return false };
        let kept = self.state.topic(topic);
        let found = kept.and_then(|kept| Some((kept, kept.subscriptions.get(&subscription)?)));
        let found = self.invariants.need(found, Invariant::SubscriptionKept, None);
        let Some((kept, record)) = found else { return false };
        let compacted = kept.compacted.as_ref().filter(|_| dispatcher.reads_compacted());
        let (cursor, first) = (&record.cursor, kept.entries.first());
        let compacted = compacted.and_then(|view| {
            let horizon = dispatcher.horizon(view.horizon, first, cursor);
            Some((self.compacted.get(&view.file)?.as_ref(), horizon))
        });
        let withheld = &live.withheld;
        // In ordered modes, entries after one that is tried again wait for it.
        let horizon = compacted.map_or(0, |view| view.1);
        let waiting = (!dispatcher.kind.is_shared())
            .then(|| withheld.first_waiting(dispatcher.next(), horizon, cursor));
        let end = waiting.flatten().map_or(live.readable, |waiting| waiting.min(live.readable));
        let view = ReadableView { entries: &kept.entries, end, compacted, withheld };
        let limits = UnackedLimits {
            per_consumer: live.policies.unacked_per_consumer.unwrap_or_default(),
            per_subscription: live.policies.unacked_per_subscription.unwrap_or_default(),
        };
        let sessions = &self.sessions;
        let room = |conn| {
            let session = sessions.get(&conn);
            Some(session.map_or(0, |it| turn_bytes(it.window, it.under_way)))
        };
        let mut assigned = std::mem::take(&mut self.assigned);
        let mut more = dispatcher.dispatch(
            self.now,
            cursor,
            &view,
            limits,
            DISPATCH_BUDGET,
            &room,
            &mut assigned,
        );
        if !assigned.is_empty() {
            self.turn += 1;
            dispatcher.last_turn = self.turn;
        }
        let figures = live.figures.subscription(subscription);
        for assignment in assigned.drain(..) {
            figures.delivered(
                assignment.item.messages,
                assignment.item.bytes,
                assignment.redeliveries,
            );
            self.totals.delivered(assignment.redeliveries);
            if let Some(session) = self.sessions.get_mut(&assignment.consumer.conn) {
                session.under_way += u64::from(assignment.item.bytes);
                if session.under_way < session.window
                    && dispatcher.has_used_turn(assignment.consumer)
                {
                    dispatcher.may_be_ready(assignment.consumer);
                    more = true;
                }
            }
            let open = cursor.open_in_batch(assignment.item.ordinal);
            let file = kept.compacted.as_ref().map(|view| view.file.as_str());
            let source = source(&self.compacted, &self.recent, kept, topic, &assignment, file);
            let conn = Some(assignment.consumer.conn);
            let source = self.invariants.need(source, Invariant::EntryKept, conn);
            self.effects
                .extend(source.map(|source| delivery(&assignment, live.partition, open, source)));
        }
        self.assigned = assigned;
        more
    }
}

/// The bytes that one subscription may fill of a connection's window before others have their turn.
fn turn_bytes(window: u64, under_way: u64) -> u64 {
    window.saturating_sub(under_way).min((window / TURNS_PER_WINDOW).max(1))
}

/// The location of an assigned message.
fn source(
    views: &HashMap<String, Arc<[CompactedEntry]>>,
    recent: &Recent,
    kept: &BrokerTopic,
    topic: u32,
    assignment: &Assignment,
    file: Option<&str>,
) -> Option<MessageSource> {
    if let Some(at) = assignment.item.compacted {
        let slot = views.get(file?)?.get(at)?;
        return Some(MessageSource::Compacted(Arc::from(file?), *slot));
    }
    if let Some(body) = recent.to_send(topic, assignment.item.ordinal) {
        return Some(MessageSource::Memory(body.clone()));
    }
    Some(MessageSource::Log(kept.entries.get(assignment.item.ordinal)?.location))
}

fn delivery(
    assignment: &Assignment,
    partition: i32,
    open: Option<&[u64]>,
    source: MessageSource,
) -> MachineEffect {
    let message_id = MessageIdData {
        ledger_id: assignment.item.position.ledger,
        entry_id: assignment.item.position.entry,
        partition: Some(partition),
        ..MessageIdData::default()
    };
    let command = CommandMessage {
        consumer_id: assignment.consumer.id,
        message_id,
        redelivery_count: Some(assignment.redeliveries),
        ack_set: open.unwrap_or_default().iter().map(|word| word.cast_signed()).collect(),
        consumer_epoch: None,
    };
    MachineEffect::Deliver {
        conn: assignment.consumer.conn,
        command,
        source,
        bytes: assignment.item.bytes,
    }
}
