//! Consumers: what they may be sent, what they were sent, what they acknowledge and give back.

use super::entries::{Body, expected};
use super::{Context, Kind, Model, Producer, Step};
use longhaul_session::machine::call::{
    ConnectionEvent, ConsumerOptions, StartPlace, SubscriptionSpec,
};
use longhaul_transport::moment::Moment;
use longhaul_transport::{EntryId, Message, Position};
use longhaul_wire::frame::Frame;
use longhaul_wire::messages::{
    AckType, Command, CommandAck, CommandFlow, CommandRedeliverUnacknowledgedMessages,
    MessageIdData,
};
use std::collections::VecDeque;

/// How often a shared consumer gives back what was damaged on its way.
const DAMAGED_TRIES: u32 = 3;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    #[default]
    Opening,
    Open,
}

#[derive(Default)]
pub(in super::super) struct Consumer {
    pub(super) stage: Stage,
    is_shared: bool,
    /// Messages that may be on their way or wait; otherwise it is sent what is asked for.
    window: Option<i64>,
    from: Option<(Position, bool)>,
    /// Messages that were asked for and have not come.
    pub(super) wanted: i64,
    /// Messages that the broker may still send, as it counts.
    granted: i64,
    /// Entries that it may still send: one for each permit.
    pub(super) entries: i64,
    /// It has asked for as many as a FLOW can say: more is not needed, and may be left out.
    has_asked_for_all: bool,
    /// Messages that came and were not taken.
    pub(super) queued: usize,
    pub(super) acks: VecDeque<(EntryId, u64)>,
    pub(super) handed_back: VecDeque<EntryId>,
    pub(super) is_closing: bool,
    pub(super) is_closed: bool,
    pub(super) is_over: bool,
}

impl Consumer {
    /// What it was asked for as.
    pub(super) fn subscribe(&mut self, options: &ConsumerOptions) {
        match options.subscription {
            SubscriptionSpec::Shared { .. } | SubscriptionSpec::KeyShared { .. } => {
                self.is_shared = true
            }
            SubscriptionSpec::Reader { start, window, .. } => {
                self.window = (window > 0).then_some(i64::from(window));
                self.begin_at(start);
            }
        }
    }

    const fn begin_at(&mut self, place: StartPlace) {
        self.from = match place {
            StartPlace::At(position) => Some((position, true)),
            StartPlace::After(position) => Some((position, false)),
            StartPlace::Earliest | StartPlace::Latest => None,
        };
    }

    fn admits(&self, position: Position) -> bool {
        self.from.is_none_or(|(from, itself)| position > from || itself && position == from)
    }

    /// What the broker may be asked for at most.
    fn limit(&self) -> i64 {
        let queued = i64::try_from(self.queued).unwrap_or(i64::MAX);
        self.window.map_or(self.wanted, |window| (window - queued).max(1))
    }

    pub(super) fn has_written_all(&self) {
        if self.is_over || self.stage != Stage::Open {
            return;
        }
        assert!(!self.is_closing, "a consumer is not closed");
        assert!(self.acks.is_empty() && self.handed_back.is_empty(), "it has more to say");
        if self.has_asked_for_all {
            // Whoever says of a damaged entry that it holds billions of messages may leave more permits owed than a FLOW can grant.
            return;
        }
        let needed = match self.window {
            None => self.wanted,
            Some(_) => i64::from(self.queued == 0),
        };
        assert!(self.granted >= needed, "a consumer is starved: {} of {needed}", self.granted);
    }
}

impl Model {
    /// Consumers and producers that have ended, and why.
    pub(super) fn record_ends(
        &mut self,
        step: &Step,
        events: &[ConnectionEvent<u64, u64>],
        context: &mut Context,
    ) {
        for event in events {
            match event {
                ConnectionEvent::ConsumerEnded(id, _) => {
                    self.record_consumer_end(step, *id, context)
                }
                ConnectionEvent::ProducerEnded(id, _) => {
                    self.record_producer_end(step, *id, context)
                }
                ConnectionEvent::ConsumerDrained(id, _) => {
                    let is_over = self.consumers.get(id).is_none_or(|it| it.is_over);
                    assert!(!is_over && self.drained.contains(id), "a topic that was not drained");
                }
                ConnectionEvent::Answered(..)
                | ConnectionEvent::Published(..)
                | ConnectionEvent::Delivered { .. }
                | ConnectionEvent::Moved(_)
                | ConnectionEvent::Challenged => {}
            }
        }
        if let Step::Heard(frame) = step
            && let Command::ReachedEndOfTopic(it) = &frame.command
            && let Some(consumer) = self.consumers.get(&it.consumer_id)
            && consumer.is_shared
            && consumer.stage == Stage::Open
            && !(consumer.is_over || consumer.is_closing || context.is_over)
        {
            let is_told = |event: &ConnectionEvent<u64, u64>| matches!(event, ConnectionEvent::ConsumerDrained(id, _) if *id == it.consumer_id);
            assert!(events.iter().any(is_told), "a consumer is not told that its topic is drained");
        }
    }

    fn record_consumer_end(&mut self, step: &Step, id: u64, context: &mut Context) {
        let is_guessed = !self.guessed.is_empty();
        let consumer = self.consumers.entry(id).or_default();
        assert!(!std::mem::replace(&mut consumer.is_over, true), "a consumer ends twice");
        context.consumers_over.insert(id);
        if context.is_over {
            return;
        }
        let is_told = match step {
            Step::Heard(frame) => match &frame.command {
                Command::CloseConsumer(it) => {
                    assert_eq!(it.consumer_id, id);
                    true
                }
                Command::TopicMigrated(it) => {
                    assert!(it.resource_id == id && it.resource_type != 0);
                    false
                }
                Command::Message(it) => {
                    let damage = frame.payload.as_ref().and_then(|it| it.verify().err());
                    let is_bad = damage.is_some() || consumer.entries <= 0;
                    assert!(it.consumer_id == id && is_bad, "it was sent nothing bad");
                    false
                }
                _ => match context.answered.as_ref().map(|it| it.kind) {
                    Some(Kind::Consumer(it)) if it == id => true,
                    None if is_guessed => true,
                    other => panic!("the answer to {other:?} ends a consumer"),
                },
            },
            Step::Tick => {
                assert!(consumer.stage != Stage::Open, "time does not end a consumer");
                false
            }
            Step::Wrote => {
                assert!(consumer.is_closing && consumer.acks.is_empty(), "closed too early");
                false
            }
            other => panic!("a consumer has ended for no reason: {other:?}"),
        };
        if !is_told && !consumer.is_closed {
            self.consumers_to_close.insert(id);
        }
    }

    /// Nobody waits for what is over.
    pub(super) fn check_ends(&self, context: &Context) {
        for id in &context.producers_over {
            let Some(Producer { in_flight, queue, .. }) = self.producers.get(id) else { continue };
            let mut tokens = in_flight.iter().flat_map(|it| &it.tokens).chain(queue);
            assert!(!tokens.any(|it| self.waiting.contains_key(it)), "a publish without an end");
        }
        for id in &context.consumers_over {
            let acks = self.consumers.get(id).into_iter().flat_map(|it| &it.acks);
            let mut tokens = acks.map(|(_, token)| token);
            assert!(!tokens.any(|it| self.waiting.contains_key(it)), "an ack without an end");
        }
    }

    /// What the broker has closed is over.
    pub(super) fn check_closed(&self, frame: &Frame) {
        match &frame.command {
            Command::CloseProducer(it) => {
                let closed = self.producers.get(&it.producer_id);
                assert!(closed.is_none_or(|it| it.is_over), "a producer outlives its end");
            }
            Command::CloseConsumer(it) => {
                let closed = self.consumers.get(&it.consumer_id);
                assert!(closed.is_none_or(|it| it.is_over), "a consumer outlives its end");
            }
            Command::TopicMigrated(it) if it.resource_type == 0 => {
                let moved = self.producers.get(&it.resource_id);
                assert!(moved.is_none_or(|it| it.is_over), "a producer stays behind");
            }
            Command::TopicMigrated(it) => {
                let moved = self.consumers.get(&it.resource_id);
                assert!(moved.is_none_or(|it| it.is_over), "a consumer stays behind");
            }
            _ => {}
        }
        for request in self.requests.values().filter(|it| it.kind.is_closed_by(&frame.command)) {
            let waits = request.tokens.iter().any(|it| self.waiting.contains_key(it));
            assert!(!waits, "somebody waits for what is over: {request:?}");
        }
    }

    pub(super) fn wrote_flow(&mut self, flow: &CommandFlow) {
        let consumer = self.live_consumer(flow.consumer_id).expect("permits for nobody");
        assert_eq!(consumer.stage, Stage::Open);
        assert!(flow.message_permits > 0 && !consumer.is_closed);
        consumer.granted += i64::from(flow.message_permits);
        consumer.entries += i64::from(flow.message_permits);
        let most = i64::from(i32::MAX);
        assert!(i64::from(flow.message_permits).max(consumer.granted) <= most, "more than an i32");
        consumer.has_asked_for_all |= i64::from(flow.message_permits).max(consumer.granted) == most;
        let (granted, limit) = (consumer.granted, consumer.limit());
        assert!(granted <= limit, "{granted} permits where {limit} are enough");
    }

    pub(super) fn wrote_redeliver(&mut self, back: &CommandRedeliverUnacknowledgedMessages) {
        let consumer = self.live_consumer(back.consumer_id).expect("given back by nobody");
        assert!(consumer.stage == Stage::Open && !consumer.is_closed);
        for id in &back.message_ids {
            assert_eq!(consumer.handed_back.pop_front(), Some(entry_of(id)), "not given back");
        }
    }

    pub(super) fn wrote_ack(&mut self, ack: &CommandAck) {
        let now: Moment = self.now;
        let consumer = self.live_consumer(ack.consumer_id).expect("acknowledged by nobody");
        assert!(consumer.stage == Stage::Open && !consumer.is_closed);
        assert_eq!(ack.ack_type, AckType::Individual as i32);
        let mut tokens = Vec::new();
        for id in &ack.message_id {
            let (entry, token) = consumer.acks.pop_front().expect("acknowledged once");
            assert_eq!(entry, entry_of(id), "another entry");
            tokens.push(token);
        }
        let request = ack.request_id.expect("an ack with a receipt");
        self.record_ack(request, ack.consumer_id, tokens, now);
    }

    /// Of a delivery every message comes that is there, and nothing comes that was not delivered.
    pub(super) fn check_deliveries(
        &mut self,
        frame: &Frame,
        deliveries: &[(u64, Vec<Message>)],
        context: &Context,
    ) {
        let (Command::Message(command), Some(payload)) = (&frame.command, &frame.payload) else {
            return assert!(deliveries.is_empty(), "delivered out of nowhere");
        };
        let id = command.consumer_id;
        let is_void = context.consumers_over.contains(&id);
        let Some(consumer) = self.live_consumer(id).filter(|it| it.stage == Stage::Open) else {
            let damage = payload.verify().is_err();
            let is_unasked = self.consumers.get(&id).is_some_and(|it| it.entries <= 0);
            let is_just = !is_void || damage || is_unasked;
            assert!(deliveries.is_empty() && is_just, "delivered to nobody");
            return;
        };
        assert!(consumer.entries > 0, "nobody asked for this");
        consumer.entries -= 1;
        let entry = expected(command, payload);
        consumer.granted -= entry.counted;
        if payload.verify().is_err() && command.redelivery_count() < DAMAGED_TRIES {
            assert!(consumer.is_shared && deliveries.is_empty(), "damage is delivered");
            return consumer.handed_back.push_back(entry_of(&command.message_id));
        }
        let mut messages = deliveries.iter().flat_map(|(to, messages)| {
            assert!(*to == id && !messages.is_empty(), "delivered to somebody else");
            messages
        });
        assert!(deliveries.len() <= 1);
        let mut count = 0;
        let mut next = messages.next();
        for place in entry.places.iter().filter(|it| consumer.admits(it.position)) {
            let Some(message) = next.filter(|it| it.position == place.position) else {
                assert!(place.body == Body::Unknown, "{:?} is lost", place.position);
                continue;
            };
            assert_eq!(
                message.batch_size.map(i64::from),
                place.position.batch_index.map(|_| entry.counted)
            );
            match &place.body {
                Body::Of(body) => assert!(message.undecodable.is_none() && message.payload == body),
                Body::Unreadable => assert!(message.undecodable.is_some()),
                Body::Unknown => {}
            }
            count += 1;
            next = messages.next();
        }
        assert!(next.is_none(), "{next:?} was not delivered");
        consumer.wanted -= i64::from(count);
        if consumer.window.is_some() {
            consumer.queued += usize::try_from(count).expect("a count");
        }
    }
}

const fn entry_of(id: &MessageIdData) -> EntryId {
    EntryId { ledger: id.ledger_id, entry: id.entry_id }
}
