//! Converts a state to the changes that lead to it: the content of a checkpoint.

use super::change::{
    Ack, AddSchema, BatchAck, ChangeRecord, Compacted, CreateNamespace, CreateSubscription,
    CreateTopic, DeleteNamespace, Numbers, OpenLedger, Sequence, SetPartitions, SetPolicies,
    StateChange, Terminate, TopicEnd, TopicEpoch, Trim,
};
use super::{BrokerState, BrokerTopic};
use bytes::Bytes;
use prost::Message as _;
use std::collections::HashSet;
use std::ops::Bound;

/// Maximum number of entries or ranges per change, so that records do not become too large.
const RANGES_MAX: usize = 10_000;

/// Size of an image's pieces in bytes: clients wait while one is composed.
pub(crate) const PIECE_BYTES: usize = 64 * 1024;

/// Topics that are visited at once: many may have been added before their turn.
const VISITED_MAX: usize = 1000;

/// The content of a checkpoint while it is composed.
///
/// It is the state of the moment when it was begun. Clients wait while topics are added, so they
/// are added in steps, by name. A topic that changes before its turn is added first, as it was.
/// Policies, schemas and the numbers of partitions are added at once.
#[derive(Clone, Debug)]
pub(super) struct StateImage {
    pieces: Vec<Bytes>,
    /// The last piece, and the size from which on it is complete.
    piece: Vec<u8>,
    piece_bytes: usize,
    /// Full name of the next topic.
    next: String,
    /// Topics that were added before their turn.
    added: HashSet<u32>,
    /// Topics from this id on did not exist.
    end: u32,
}

impl StateImage {
    fn add(&mut self, change: StateChange) {
        let record = ChangeRecord { change: Some(change) };
        self.piece.extend_from_slice(&record.encode_length_delimited_to_vec());
        if self.piece.len() >= self.piece_bytes {
            self.pieces.push(std::mem::take(&mut self.piece).into());
        }
    }

    fn add_topic(&mut self, id: u32, topic: &BrokerTopic) {
        topic_changes(id, topic, &mut |change| self.add(change));
    }

    /// Adds a topic that is about to change, if it has not had its turn.
    pub(super) fn keep(&mut self, id: u32, topic: &BrokerTopic) {
        let is_due = id < self.end && topic.name.as_str() >= self.next.as_str();
        if is_due && self.added.insert(id) {
            self.add_topic(id, topic);
        }
    }
}

impl BrokerState {
    /// Begins an image of this state, in pieces of about this size.
    pub(crate) fn begin_image(&mut self, piece_bytes: usize) {
        let mut image = StateImage {
            pieces: Vec::new(),
            piece: Vec::new(),
            piece_bytes,
            next: String::new(),
            added: HashSet::new(),
            end: self.next_topic,
        };
        self.common_changes(&mut |change| image.add(change));
        self.image = Some(Box::new(image));
    }

    /// Adds topics to the image that was begun, until a piece is complete or enough were visited.
    /// Returns all pieces when there are no more topics.
    pub(crate) fn extend_image(&mut self) -> Option<Vec<Bytes>> {
        let mut image = self.image.take()?;
        let (pieces, next) = (image.pieces.len(), std::mem::take(&mut image.next));
        let rest = self.names.range::<str, _>((Bound::Included(next.as_str()), Bound::Unbounded));
        for (visited, (name, id)) in rest.enumerate() {
            if image.pieces.len() > pieces || visited >= VISITED_MAX {
                image.next.clone_from(name);
                self.image = Some(image);
                return None;
            }
            let is_added = *id >= image.end || image.added.remove(id);
            if let Some(topic) = self.topics.get(id).filter(|_| !is_added) {
                image.add_topic(*id, topic);
            }
        }
        image.pieces.push(image.piece.into());
        Some(image.pieces)
    }

    /// Whether an image was begun and is not complete.
    pub(crate) const fn has_image(&self) -> bool {
        self.image.is_some()
    }

    /// The image of this state at once.
    pub(crate) fn image(&mut self, piece_bytes: usize) -> Vec<Bytes> {
        self.begin_image(piece_bytes);
        loop {
            if let Some(pieces) = self.extend_image() {
                return pieces;
            }
        }
    }

    /// The changes that lead from the empty state to this one, without entries, which come from the
    /// log.
    #[cfg(test)]
    #[must_use]
    pub fn snapshot(&self) -> Vec<StateChange> {
        let mut changes: Vec<StateChange> = Vec::new();
        self.common_changes(&mut |change| changes.push(change));
        self.topics().for_each(|(id, topic)| {
            topic_changes(id, topic, &mut |change| changes.push(change));
        });
        changes
    }

    /// Those changes as texts, sorted: two states are equal if these are.
    #[cfg(test)]
    pub(crate) fn described(&self) -> Vec<String> {
        let changes = self.snapshot();
        let mut texts: Vec<String> = changes.iter().map(|change| format!("{change:?}")).collect();
        texts.sort();
        texts
    }

    /// The changes that are not about one topic.
    fn common_changes(&self, add: &mut impl FnMut(StateChange)) {
        let (topic, ledger) = self.next_numbers();
        add(Numbers { topic, ledger }.into());
        // The built-in namespaces may have been deleted.
        for built_in in ["public/default", "public"] {
            add(DeleteNamespace { name: built_in.to_owned() }.into());
        }
        for name in self.namespaces() {
            add(CreateNamespace { name: name.to_owned() }.into());
        }
        for (name, partitions) in self.partitioned() {
            add(SetPartitions { name: name.to_owned(), partitions }.into());
        }
        for (scope, settings) in &self.settings {
            let policies = Bytes::from(serde_json::to_vec(settings).unwrap_or_default());
            add(SetPolicies { scope: scope.clone(), policies }.into());
        }
        for (name, versions) in self.schemas.iter() {
            for version in versions {
                let schema = Some(version.schema.clone());
                let added_at = version.added_at;
                add(AddSchema { name: name.clone(), schema, added_at }.into());
            }
        }
    }
}

fn topic_changes(id: u32, topic: &BrokerTopic, add: &mut impl FnMut(StateChange)) {
    let name = topic.name.as_str().to_owned();
    add(CreateTopic { topic: id, name, created_at: topic.created_at }.into());
    // The range of entries comes before the ledgers: a ledger that begins on an empty topic means
    // that nothing before it is needed.
    add(Trim { topic: id, first: topic.entries.first() }.into());
    add(TopicEnd { topic: id, end: topic.entries.end() }.into());
    for (ledger, first) in topic.entries.ledgers() {
        add(OpenLedger { topic: id, ledger, first }.into());
    }
    if let Some(epoch) = topic.epoch {
        add(TopicEpoch { topic: id, epoch }.into());
    }
    if topic.is_terminated {
        add(Terminate { topic: id }.into());
    }
    if let Some(view) = &topic.compacted {
        let (horizon, file) = (view.horizon, view.file.clone());
        add(Compacted { topic: id, horizon, file }.into());
    }
    for (producer, highest, last_use) in topic.sequences() {
        add(Sequence { topic: id, producer: producer.to_owned(), highest, last_use }.into());
    }
    for (&subscription, record) in
        topic.subscriptions.iter().filter(|(_, record)| record.is_durable)
    {
        let (name, mark, properties) =
            (record.name.clone(), record.cursor.mark(), record.properties.clone());
        let topic = id;
        add(CreateSubscription { topic, subscription, name, mark, properties }.into());
        let ranges: Vec<u64> =
            record.cursor.acked().iter().flat_map(|(from, to)| [from, to]).collect();
        for ranges in ranges.chunks(2 * RANGES_MAX) {
            let ranges = ranges.to_vec();
            add(Ack { topic: id, subscription, ranges, ..Ack::default() }.into());
        }
        let batches: Vec<BatchAck> = record
            .cursor
            .partial()
            .map(|(ordinal, open)| BatchAck {
                ordinal,
                open: open.to_vec(),
                // The open messages say all. The entry may be trimmed, and have no number any more.
                messages: u32::try_from(64 * open.len()).unwrap_or(u32::MAX),
            })
            .collect();
        for batches in batches.chunks(RANGES_MAX) {
            let batches = batches.to_vec();
            add(Ack { topic: id, subscription, batches, ..Ack::default() }.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{RecordLocation, ReplayedItem};
    use crate::state::change::DeleteTopic;
    use crate::state::entries::EntryPosition;
    use crate::state::entry::EntryHead;
    use crate::state::replay::replay;

    /// A topic had entries in two ledgers, because the broker had been restarted. A checkpoint
    /// listed the ledgers before the range of entries. A ledger that begins on an empty topic means
    /// that nothing before it is needed, so after the next start all entries of the first ledger
    /// were lost, acknowledged or not.
    #[test]
    fn a_checkpoint_keeps_the_entries_of_earlier_ledgers() {
        let mut state = BrokerState::default();
        let name = "persistent://public/default/tasks".to_owned();
        let location = |offset| RecordLocation { segment: 1, offset, size: 40 };
        let head = EntryHead::default();
        state.apply(&CreateTopic { topic: 0, name, created_at: 1 }.into()).unwrap();
        for (ledger, first) in [(0, 0), (1, 3)] {
            state.apply(&OpenLedger { topic: 0, ledger, first }.into()).unwrap();
            (0..3).for_each(|at| drop(state.push(0, location(at), &head)));
        }
        state.apply(&Trim { topic: 0, first: 1 }.into()).unwrap();
        let mut restored = BrokerState::default();
        state.snapshot().iter().for_each(|change| restored.apply(change).unwrap());
        for (ledger, entry) in [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)] {
            restored.restore(0, EntryPosition { ledger, entry }, location(0), &head);
        }
        let here = |state: &BrokerState| -> Vec<_> {
            let entries = &state.topic(0).unwrap().entries;
            entries.iter().map(|entry| entries.position_of(entry.0).unwrap()).collect()
        };
        assert_eq!(here(&restored), here(&state));
        assert_eq!(here(&restored).len(), 5);
    }

    /// Applies any change to a state, at a point that the generator chooses.
    fn change(state: &mut BrokerState, random: &mut fastrand::Rng) {
        let (topic, ledger) = state.next_numbers();
        let topics: Vec<u32> = state.topics().map(|(id, _)| id).collect();
        // Names go up and down as ids go up, and come again.
        let name = format!("persistent://public/default/{}", random.u32(0..40) * 7 % 40);
        let Some(id) = random.choice(topics) else {
            let create = CreateTopic { topic, name, created_at: 1 };
            return state.apply(&create.into()).unwrap();
        };
        let known = state.topic(id).unwrap();
        let (end, subscription) = (known.entries.end(), known.next_subscription());
        let change: StateChange = match random.u32(0..11) {
            0..3 if state.topic_id(&name).is_none() => {
                CreateTopic { topic, name, created_at: 1 }.into()
            }
            3 => DeleteTopic { topic: id }.into(),
            4 => OpenLedger { topic: id, ledger, first: end }.into(),
            5 => Trim { topic: id, first: random.u64(0..=end) }.into(),
            6 => TopicEpoch { topic: id, epoch: random.u64(..) }.into(),
            7 => {
                let name = format!("s{subscription}");
                let new =
                    CreateSubscription { topic: id, subscription, name, ..Default::default() };
                new.into()
            }
            8 if subscription > 0 => {
                let (subscription, before) = (random.u32(0..subscription), Some(end));
                Ack { topic: id, subscription, before, ..Ack::default() }.into()
            }
            9 => SetPartitions { name, partitions: random.u32(0..3) }.into(),
            _ => {
                let head = EntryHead { sequence: Some(("p".into(), end)), ..Default::default() };
                let location = RecordLocation { segment: 1, offset: 0, size: 40 };
                state.push(id, location, &head).unwrap();
                return;
            }
        };
        state.apply(&change).unwrap();
    }

    /// A checkpoint was composed at once: with 100,000 topics all clients waited for 0.2 s. It is
    /// composed in steps now, between which everything may change.
    #[test]
    fn an_image_is_the_state_at_its_begin_whatever_changes_meanwhile() {
        let (mut steps, mut kept) = (0, 0);
        for seed in 0..300 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut state = BrokerState::default();
            (0..100).for_each(|_| change(&mut state, &mut random));
            let expected = state.described();
            state.begin_image(1);
            let image = loop {
                (0..random.u32(0..5)).for_each(|_| change(&mut state, &mut random));
                kept += state.image.as_ref().map_or(0, |image| image.added.len());
                steps += 1;
                if let Some(image) = state.extend_image() {
                    break image;
                }
            };
            let mut restored = BrokerState::default();
            for piece in &image {
                replay(&mut restored, ReplayedItem::Checkpoint(piece)).unwrap();
            }
            assert_eq!(restored.described(), expected, "seed {seed}");
        }
        assert!(steps > 1_000 && kept > 1_000, "{steps} steps, {kept} before their turns");
    }
}
