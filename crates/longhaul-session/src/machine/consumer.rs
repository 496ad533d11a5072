//! A consumer of a subscription, or a reader: its permits, its acks and its start.

use super::call::{ConnectionEvent, ConsumerOptions, StartPlace, SubscriptionSpec};
use super::flow::Flow;
use super::requests::RequestKind;
use super::unpack::{UnpackedEntry, counted_of_damaged, unpack};
use super::{ConnectionMachine, error};
use bytes::BytesMut;
use longhaul_transport::{Message, TransportError, TransportErrorKind};
use longhaul_types::EntryId;
use longhaul_types::moment::Moment;
use longhaul_wire::frame;
use longhaul_wire::messages::{
    AckType, CommandAck, CommandCloseConsumer, CommandFlow, CommandMessage,
    CommandRedeliverUnacknowledgedMessages, CommandSubscribe, InitialPosition, KeySharedMeta,
    KeySharedMode, MessageIdData, SubType,
};
use longhaul_wire::payload::Payload;

/// Acks or returned entries per frame.
const IDS_PER_FRAME: usize = 1_000;
/// How often an entry with a wrong checksum is requested again before it is delivered as
/// unreadable: the damage may have happened in transit.
const DAMAGED_TRIES_MAX: u32 = 3;
/// Returned entries that may wait when another undeliverable entry arrives. A broker above this
/// limit does not read what we write.
const RETURNS_WAITING_MAX: usize = 10_000;

/// One consumer.
#[derive(Debug)]
pub(super) struct ConnectionConsumer<A> {
    topic: String,
    is_shared: bool,
    is_open: bool,
    /// Whether the broker has said that the topic was terminated and nothing is left in it.
    is_drained: bool,
    pub(super) flow: Flow,
    /// Messages before this place are not delivered: the broker starts at the beginning of an
    /// entry.
    from: StartPlace,
    pub(super) acks: Vec<(EntryId, A)>,
    pub(super) handed_back: Vec<EntryId>,
    pub(super) closing: bool,
}

impl StartPlace {
    /// Whether the message is to be delivered.
    fn admits(self, message: &Message) -> bool {
        match self {
            Self::Earliest | Self::Latest => true,
            Self::At(position) => message.position >= position,
            Self::After(position) => message.position > position,
        }
    }
}

impl<A> ConnectionConsumer<A> {
    fn new(options: ConsumerOptions) -> Self {
        let (is_shared, flow, from) = match options.subscription {
            SubscriptionSpec::Shared { .. } | SubscriptionSpec::KeyShared { .. } => {
                (true, Flow::exact(), StartPlace::Earliest)
            }
            SubscriptionSpec::Reader { start, window: 0, .. } => (false, Flow::exact(), start),
            SubscriptionSpec::Reader { start, window, .. } => (false, Flow::window(window), start),
        };
        Self {
            topic: options.topic,
            is_shared,
            is_open: false,
            is_drained: false,
            flow,
            from,
            acks: Vec::new(),
            handed_back: Vec::new(),
            closing: false,
        }
    }

    pub(super) const fn is_open(&self) -> bool {
        self.is_open
    }

    pub(super) fn topic(&self) -> &str {
        &self.topic
    }
}

/// The command that opens a consumer.
fn subscribe(options: &ConsumerOptions, consumer_id: u64) -> CommandSubscribe {
    let mut subscribe = CommandSubscribe {
        topic: options.topic.clone(),
        consumer_id,
        initial_position: Some(InitialPosition::Earliest as i32),
        ..CommandSubscribe::default()
    };
    match &options.subscription {
        SubscriptionSpec::Shared { name } => {
            subscribe.subscription.clone_from(name);
            subscribe.sub_type = SubType::Shared as i32;
            subscribe.durable = Some(true);
        }
        SubscriptionSpec::KeyShared { name } => {
            subscribe.subscription.clone_from(name);
            subscribe.sub_type = SubType::KeyShared as i32;
            subscribe.durable = Some(true);
            subscribe.key_shared_meta = Some(KeySharedMeta {
                key_shared_mode: KeySharedMode::AutoSplit as i32,
                ..KeySharedMeta::default()
            });
        }
        SubscriptionSpec::Reader { name, start, compacted, .. } => {
            subscribe.subscription.clone_from(name);
            subscribe.sub_type = SubType::Exclusive as i32;
            subscribe.durable = Some(false);
            subscribe.read_compacted = Some(*compacted);
            begin_at(&mut subscribe, *start);
        }
    }
    subscribe
}

fn begin_at(subscribe: &mut CommandSubscribe, place: StartPlace) {
    let (position, initial) = match place {
        StartPlace::Earliest => (None, InitialPosition::Earliest),
        StartPlace::Latest => (None, InitialPosition::Latest),
        StartPlace::At(position) | StartPlace::After(position) => {
            (Some(position.entry_id()), InitialPosition::Earliest)
        }
    };
    subscribe.start_message_id = position.map(id_of);
    subscribe.initial_position = Some(initial as i32);
}

fn id_of(entry: EntryId) -> MessageIdData {
    MessageIdData { ledger_id: entry.ledger, entry_id: entry.entry, ..MessageIdData::default() }
}

impl<A, P> ConnectionMachine<A, P> {
    pub(super) fn open_consumer(&mut self, options: ConsumerOptions, token: A, now: Moment) {
        let id = self.draw_id();
        let request_id = self.begin(RequestKind::Consumer(id), vec![token], now);
        let name = if self.name.is_empty() { "longhaul" } else { &self.name };
        let subscribe = CommandSubscribe {
            request_id,
            consumer_name: Some(format!("{name}-{id}")),
            metadata: self.introduction(),
            ..subscribe(&options, id)
        };
        self.consumers.insert(id, ConnectionConsumer::new(options));
        self.control.push_back(subscribe.into());
    }

    /// The broker has opened the consumer.
    pub(super) fn consumer_opened(&mut self, id: u64) {
        self.with_consumer(id, |consumer| consumer.is_open = true);
    }

    /// The topic was terminated, and the subscription has nothing left to acknowledge. Pulsar may
    /// say so before it confirms the consumer. Readers need no notice.
    pub(super) fn handle_reached_end(&mut self, id: u64) {
        let Some(consumer) = self.consumers.get_mut(&id).filter(|it| it.is_shared) else { return };
        consumer.is_drained = true;
        if consumer.is_open() {
            self.tell_drained(id);
        }
    }

    pub(super) fn tell_drained(&mut self, id: u64) {
        let Some(consumer) = self.consumers.get(&id).filter(|it| it.is_drained) else { return };
        let text = "it was terminated, and nothing is left in it";
        let cause = TransportError::new(TransportErrorKind::Terminated, consumer.topic(), text);
        self.events.push_back(ConnectionEvent::ConsumerDrained(id, cause));
    }

    /// Writes the pending commands of a consumer: permits, returned entries, acks, and its close.
    pub(super) fn write_consumer(&mut self, id: u64, out: &mut BytesMut, now: Moment) {
        let Some(consumer) = self.consumers.get_mut(&id) else { return };
        if !consumer.is_open() {
            return;
        }
        for entries in consumer.handed_back.chunks(IDS_PER_FRAME) {
            let redeliver = CommandRedeliverUnacknowledgedMessages {
                consumer_id: id,
                message_ids: entries.iter().copied().map(id_of).collect(),
                consumer_epoch: None,
            };
            frame::encode(redeliver, out);
        }
        consumer.handed_back.clear();
        if let Some(message_permits) = consumer.flow.grant() {
            frame::encode(CommandFlow { consumer_id: id, message_permits }, out);
        }
        let (acks, closing) = (std::mem::take(&mut consumer.acks), consumer.closing);
        self.write_acks(id, acks, out, now);
        if closing {
            let cause = error::unreachable(&self.address, "closed");
            self.end_consumer(id, &cause);
            self.close_consumer(id, now);
        }
    }

    /// Writes all waiting acks, up to [`IDS_PER_FRAME`] per frame; each frame gets a receipt.
    fn write_acks(
        &mut self,
        consumer_id: u64,
        acks: Vec<(EntryId, A)>,
        out: &mut BytesMut,
        now: Moment,
    ) {
        let mut acks = acks.into_iter().peekable();
        while acks.peek().is_some() {
            let (entries, tokens): (Vec<_>, Vec<_>) = acks.by_ref().take(IDS_PER_FRAME).unzip();
            let request_id = self.begin(RequestKind::Ack(consumer_id), tokens, now);
            let ack = CommandAck {
                consumer_id,
                ack_type: AckType::Individual as i32,
                message_id: entries.into_iter().map(id_of).collect(),
                request_id: Some(request_id),
                ..CommandAck::default()
            };
            frame::encode(ack, out);
        }
    }

    /// Tells the broker to close the consumer.
    pub(super) fn close_consumer(&mut self, consumer_id: u64, now: Moment) {
        let request_id = self.begin(RequestKind::Done, Vec::new(), now);
        self.control.push_back(CommandCloseConsumer::new(consumer_id, request_id).into());
    }

    pub(super) fn handle_message(&mut self, command: &CommandMessage, payload: &Payload) {
        let id = command.consumer_id;
        let Some(consumer) = self.consumers.get_mut(&id) else { return };
        if !consumer.is_open() {
            return;
        }
        if !consumer.flow.admit() {
            let cause = error::unreachable(&self.address, "an unrequested delivery");
            return self.abandon_consumer(id, &cause, self.heard);
        }
        let damage = payload.verify().err();
        if let Some(damage) = &damage {
            let is_tried = command.redelivery_count.unwrap_or_default() < DAMAGED_TRIES_MAX;
            if is_tried || !consumer.is_shared {
                let counted = counted_of_damaged(command, payload);
                return self.give_back(command, counted, &format!("a damaged delivery: {damage}"));
            }
        }
        let room = consumer.flow.room_to_unpack();
        let UnpackedEntry { messages, counted } = unpack(command, payload, damage.as_ref(), room);
        let Some(mut messages) = messages else {
            return self.give_back(command, counted, "too many messages wait to be read");
        };
        messages.retain(|message| consumer.from.admits(message));
        let bytes = messages.iter().map(|message| message.payload.len()).sum();
        consumer.flow.received(counted, messages.len(), bytes);
        self.dirty.insert(id);
        if !messages.is_empty() {
            self.events.push_back(ConnectionEvent::Delivered { consumer: id, messages });
        }
    }

    /// Returns an entry that is not delivered now. On a shared subscription the broker is told to
    /// redeliver it. Otherwise the consumer ends, and the next one continues after the last
    /// delivered message.
    fn give_back(&mut self, command: &CommandMessage, counted: u32, cause: &str) {
        let id = command.consumer_id;
        let Some(consumer) = self.consumers.get_mut(&id) else { return };
        if consumer.is_shared && consumer.handed_back.len() < RETURNS_WAITING_MAX {
            let CommandMessage { message_id: MessageIdData { ledger_id, entry_id, .. }, .. } =
                command;
            consumer.flow.received(counted, 0, 0);
            consumer.handed_back.push(EntryId { ledger: *ledger_id, entry: *entry_id });
            self.dirty.insert(id);
        } else {
            let cause = error::unreachable(&self.address, cause);
            self.abandon_consumer(id, &cause, self.heard);
        }
    }

    /// The broker has closed a consumer: pending questions about it get no answer.
    pub(super) fn consumer_closed(&mut self, id: u64, cause: &TransportError, now: Moment) {
        self.end_consumer(id, cause);
        for request in self.requests.take_of(|kind| kind.is_of_consumer(id)) {
            self.give_up(request, cause, now);
        }
    }

    /// Ends a consumer. Questions about it may still be answered.
    pub(super) fn end_consumer(&mut self, id: u64, cause: &TransportError) {
        let Some(consumer) = self.consumers.remove(&id) else { return };
        self.end_of_consumer(id, consumer, cause);
    }

    /// Ends a consumer and tells the broker.
    pub(super) fn abandon_consumer(&mut self, id: u64, cause: &TransportError, now: Moment) {
        self.end_consumer(id, cause);
        self.close_consumer(id, now);
    }

    pub(super) fn end_of_consumer(
        &mut self,
        id: u64,
        consumer: ConnectionConsumer<A>,
        cause: &TransportError,
    ) {
        for (_, token) in consumer.acks {
            self.events.push_back(ConnectionEvent::Answered(token, Err(cause.clone())));
        }
        self.events.push_back(ConnectionEvent::ConsumerEnded(id, cause.clone()));
    }
}
