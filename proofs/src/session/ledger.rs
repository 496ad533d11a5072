//! The requests, their results, and the content of the broker's disk.

use super::Figures;
use bytes::{Bytes, BytesMut};
use longhaul::{EntryId, Position};
use longhaul_broker::internals::stepped::Journal;
use longhaul_transport::{Message, Outgoing, PublishError};
use longhaul_wire::batch::Singles;
use longhaul_wire::frame;
use longhaul_wire::messages::{Command, KeyValue};
use longhaul_wire::payload::Payload;
use std::collections::{BTreeMap, BTreeSet};

/// A producer or consumer: its connection and its number there.
pub(super) type Handle = (u64, u64);

/// A message that was handed over.
#[derive(Debug)]
struct Publish {
    topic: usize,
    producer: Handle,
    bytes: usize,
    is_null: bool,
    fate: Option<Result<Position, PublishError>>,
    is_sent: bool,
}

/// The number of message keys. Messages share them, so that a compaction removes something.
const KEYS: usize = 11;

/// All promises of the broker. A message is identified by its number, which is a property.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) seed: u64,
    topics: Vec<String>,
    publishes: Vec<Publish>,
    /// The first known position of each message.
    places: BTreeMap<usize, Position>,
    /// Topic and subscription of the consumers that clients have requested.
    subscriptions: BTreeMap<Handle, (String, String)>,
    /// Entries whose acks are confirmed, by topic.
    acked: BTreeSet<(String, EntryId)>,
    pub(super) figures: Figures,
}

impl Ledger {
    pub(super) fn new(seed: u64, topics: Vec<String>) -> Self {
        Self {
            seed,
            topics,
            publishes: Vec::new(),
            places: BTreeMap::new(),
            subscriptions: BTreeMap::new(),
            acked: BTreeSet::new(),
            figures: Figures::default(),
        }
    }

    /// A new message and its number.
    pub(super) fn publish(
        &mut self,
        topic: usize,
        producer: Handle,
        bytes: usize,
        is_null: bool,
    ) -> (Outgoing, u64) {
        let number = self.publishes.len();
        let bytes = if is_null { 0 } else { bytes };
        self.publishes.push(Publish {
            topic,
            producer,
            bytes,
            is_null,
            fate: None,
            is_sent: false,
        });
        self.figures.published += 1;
        let message = Outgoing {
            key: Some((number % KEYS).to_string()),
            properties: [("n".to_owned(), number.to_string())].into(),
            payload: body(number, bytes),
            null: is_null,
            ..Outgoing::default()
        };
        (message, number as u64)
    }

    /// Records the fate of a publish.
    pub(super) fn settle(&mut self, number: u64, fate: Result<Position, PublishError>) {
        let seed = self.seed;
        match &fate {
            Ok(_) => self.figures.receipts += 1,
            Err(PublishError::Refused(_) | PublishError::TooLarge { .. }) => {
                self.figures.refused += 1
            }
            Err(PublishError::NotStored(_)) => self.figures.not_stored += 1,
            Err(_) => self.figures.unknown += 1,
        }
        let number = usize::try_from(number).expect("a number");
        let publish = &mut self.publishes[number];
        assert!(publish.fate.is_none(), "seed {seed}: message {number} was settled twice");
        publish.fate = Some(fate);
    }

    /// Whether every publish is settled.
    pub(super) fn is_settled(&self) -> bool {
        self.publishes.iter().all(|it| it.fate.is_some())
    }

    pub(super) fn confirm_ack(&mut self, topic: usize, entry: EntryId) {
        self.figures.acked += 1;
        self.acked.insert((self.topics[topic].clone(), entry));
    }

    /// Checks a delivered message: it equals the published one, at the same position as before.
    pub(super) fn check_delivery(&mut self, topic: usize, message: &Message) -> usize {
        let seed = self.seed;
        assert!(message.undecodable.is_none(), "seed {seed}: undecodable: {message:?}");
        let number = message.properties.get("n").and_then(|it| it.parse::<usize>().ok());
        let number = number.expect("a number");
        assert_eq!(message.key, Some((number % KEYS).to_string()), "seed {seed}: {number}");
        let publish = &self.publishes[number];
        assert_eq!(publish.topic, topic, "seed {seed}: message {number} is on another topic");
        assert_eq!(message.payload, body(number, publish.bytes), "seed {seed}: of {number}");
        assert_eq!(message.null, publish.is_null, "seed {seed}: message {number}");
        let place = *self.places.entry(number).or_insert(message.position);
        assert_eq!(place, message.position, "seed {seed}: message {number} is there twice");
        number
    }

    /// Checks the client's output: no message may be sent twice.
    pub(super) fn watch_up(&mut self, conn: u64, tap: &mut BytesMut) {
        while let Ok(Some(frame)) = frame::decode(tap, usize::MAX / 2) {
            match (frame.command, frame.payload) {
                (Command::Subscribe(it), _) => {
                    let place = (it.topic, it.subscription);
                    self.subscriptions.insert((conn, it.consumer_id), place);
                }
                (Command::Send(_), Some(payload)) => {
                    for (_, number) in numbers(&payload) {
                        let publish = &mut self.publishes[number];
                        let twice = std::mem::replace(&mut publish.is_sent, true);
                        assert!(!twice, "seed {}: message {number} was sent twice", self.seed);
                        assert_eq!(publish.producer.0, conn, "seed {}: of {number}", self.seed);
                    }
                }
                _ => {}
            }
        }
    }

    /// Checks the broker's output: an entry whose ack was confirmed is never delivered again.
    pub(super) fn watch_down(&self, conn: u64, tap: &mut BytesMut) {
        while let Ok(Some(frame)) = frame::decode(tap, usize::MAX / 2) {
            let Command::Message(message) = frame.command else { continue };
            let Some((topic, name)) = self.subscriptions.get(&(conn, message.consumer_id)) else {
                continue;
            };
            let id = &message.message_id;
            let entry = EntryId { ledger: id.ledger_id, entry: id.entry_id };
            assert!(
                name != "s" || !self.acked.contains(&(topic.clone(), entry)),
                "seed {}: {entry:?} of {topic} came again after its ack was confirmed",
                self.seed
            );
        }
    }

    /// The messages stored on a topic, in order: position and number of each.
    fn stored(&self, topic: usize, journal: &Journal) -> Vec<(Position, usize)> {
        let entries = journal.get(&self.topics[topic]).map(Vec::as_slice).unwrap_or_default();
        let messages = entries.iter().flat_map(|it| {
            let place = |batch_index| Position { ledger: it.ledger, entry: it.entry, batch_index };
            numbers(&it.payload).into_iter().map(move |(index, number)| (place(index), number))
        });
        messages.collect()
    }

    /// The number of messages that a compaction has taken away from a reader that began after
    /// `behind`. Only a compacted reader may miss messages: those without a body, and those that
    /// are not the last of their key. `None` while the reader has not seen all others.
    pub(super) fn taken_away(
        &self,
        (topic, journal): (usize, &Journal),
        behind: Option<Position>,
        compacted: bool,
        seen: &[Position],
    ) -> Option<u64> {
        let stored = self.stored(topic, journal);
        let mut last_of = [None; KEYS];
        for (place, number) in &stored {
            last_of[number % KEYS] = Some(*place);
        }
        let (mut seen, mut gone) = (seen.iter().peekable(), 0);
        for (place, number) in stored.into_iter().filter(|(place, _)| Some(*place) > behind) {
            if seen.next_if(|it| **it == place).is_some() {
                continue;
            }
            let is_last = last_of[number % KEYS] == Some(place);
            if !compacted || is_last && self.publishes[number].bytes > 0 {
                return None;
            }
            gone += 1;
        }
        seen.next().is_none().then_some(gone)
    }

    /// Checks every fate against the disk.
    pub(super) fn check(&mut self, journal: &Journal) {
        let seed = self.seed;
        let mut stored: BTreeMap<usize, (usize, Position)> = BTreeMap::new();
        for (name, entries) in journal {
            let topic = self.topics.iter().position(|it| it == name).expect("a known topic");
            for it in entries {
                let numbers = numbers(&it.payload);
                self.figures.batches += u64::from(numbers.len() > 1);
                for (batch_index, number) in numbers {
                    let place = Position { ledger: it.ledger, entry: it.entry, batch_index };
                    let before = stored.insert(number, (topic, place));
                    assert!(before.is_none(), "seed {seed}: message {number} is stored twice");
                }
            }
        }
        let mut last: BTreeMap<Handle, (usize, Option<Position>)> = BTreeMap::new();
        for (number, publish) in self.publishes.iter().enumerate() {
            let found = stored.get(&number);
            match &publish.fate {
                Some(Ok(place)) => {
                    assert_eq!(found, Some(&(publish.topic, *place)), "seed {seed}: {number}");
                }
                Some(Err(PublishError::Refused(_) | PublishError::TooLarge { .. })) => {
                    assert_eq!(found, None, "seed {seed}: {number} was refused and is stored");
                    continue;
                }
                Some(Err(PublishError::NotStored(_))) => {
                    assert_eq!(found, None, "seed {seed}: {number} was not sent and is stored");
                }
                Some(Err(_)) => self.figures.unknown_stored += u64::from(found.is_some()),
                None => panic!("seed {seed}: nothing became of message {number}"),
            }
            // A producer's stored messages are a beginning of the ones it was given, in that order.
            let place = found.map(|it| it.1);
            let (before, at) =
                last.insert(publish.producer, (number, place)).unwrap_or((number, place));
            let in_order =
                before == number || place.is_none() || at.is_some_and(|at| place > Some(at));
            assert!(in_order, "seed {seed}: {number} was stored behind or without {before}");
        }
    }
}

/// The body of a message.
fn body(number: usize, bytes: usize) -> Bytes {
    let seed = number.to_le_bytes();
    (0..bytes).map(|at| seed[at % 2]).collect::<Vec<u8>>().into()
}

/// The messages of an entry: index in the batch, and number.
fn numbers(payload: &Payload) -> Vec<(Option<u32>, usize)> {
    let metadata = payload.metadata().expect("readable metadata");
    let number = |properties: &[KeyValue]| {
        let found = properties.iter().find(|it| it.key == "n");
        found.and_then(|it| it.value().parse().ok()).expect("a number")
    };
    match metadata.num_messages_in_batch {
        None => vec![(None, number(&metadata.properties))],
        Some(count) => {
            let count = usize::try_from(count).expect("a count");
            let singles = Singles::new(payload.body(), count);
            let keys = singles.map(|it| number(&it.expect("a message").metadata.properties));
            (0..).map(Some).zip(keys).collect()
        }
    }
}
