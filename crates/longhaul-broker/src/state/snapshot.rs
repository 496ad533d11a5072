//! Converts a state to the changes that lead to it: the content of a checkpoint.

use super::change::{
    Ack, AddSchema, BatchAck, ChangeRecord, Compacted, CreateNamespace, CreateSubscription,
    CreateTopic, DeleteNamespace, Numbers, OpenLedger, Sequence, SetPartitions, SetPolicies,
    StateChange, Terminate, TopicEnd, TopicEpoch, Trim,
};
use super::{BrokerState, BrokerTopic};
use bytes::Bytes;
use prost::Message as _;

/// Maximum number of entries or ranges per change, so that records do not become too large.
const PIECES_MAX: usize = 10_000;

/// Approximate size of a checkpoint's pieces, in bytes.
const IMAGE_BYTES: usize = 256 * 1024;

/// The state as a checkpoint, in pieces.
pub(crate) fn image(state: &BrokerState) -> Vec<Bytes> {
    let mut image: Vec<Bytes> = Vec::new();
    let mut piece = Vec::new();
    for change in state.snapshot() {
        let record = ChangeRecord { change: Some(change) };
        piece.extend_from_slice(&record.encode_length_delimited_to_vec());
        if piece.len() >= IMAGE_BYTES {
            image.push(std::mem::take(&mut piece).into());
        }
    }
    image.push(piece.into());
    image
}

impl BrokerState {
    /// The changes that lead from the empty state to this one, without entries, which come from the
    /// log.
    #[must_use]
    pub fn snapshot(&self) -> Vec<StateChange> {
        let mut changes: Vec<StateChange> = Vec::new();
        let (topic, ledger) = self.next_numbers();
        changes.push(Numbers { topic, ledger }.into());
        // The built-in namespaces may have been deleted.
        for built_in in ["public/default", "public"] {
            changes.push(DeleteNamespace { name: built_in.to_owned() }.into());
        }
        for name in self.namespaces() {
            changes.push(CreateNamespace { name: name.to_owned() }.into());
        }
        for (name, partitions) in self.partitioned() {
            changes.push(SetPartitions { name: name.to_owned(), partitions }.into());
        }
        for (scope, settings) in &self.settings {
            let policies = Bytes::from(serde_json::to_vec(settings).unwrap_or_default());
            changes.push(SetPolicies { scope: scope.clone(), policies }.into());
        }
        for (name, versions) in self.schemas.iter() {
            for version in versions {
                let schema = Some(version.schema.clone());
                let added_at = version.added_at;
                changes.push(AddSchema { name: name.clone(), schema, added_at }.into());
            }
        }
        for (id, topic) in self.topics() {
            topic_changes(id, topic, &mut changes);
        }
        changes
    }
}

fn topic_changes(id: u32, topic: &BrokerTopic, out: &mut Vec<StateChange>) {
    let name = topic.name.as_str().to_owned();
    let (created_at, role) = (topic.created_at, topic.role.clone());
    out.push(CreateTopic { topic: id, name, created_at, role }.into());
    // The range of entries comes before the ledgers: a ledger that begins on an empty topic means
    // that nothing before it is needed.
    out.push(Trim { topic: id, first: topic.entries.first() }.into());
    out.push(TopicEnd { topic: id, end: topic.entries.end() }.into());
    for (ledger, first) in topic.entries.ledgers() {
        out.push(OpenLedger { topic: id, ledger, first }.into());
    }
    if let Some(epoch) = topic.epoch {
        out.push(TopicEpoch { topic: id, epoch }.into());
    }
    if topic.is_terminated {
        out.push(Terminate { topic: id }.into());
    }
    if let Some(view) = &topic.compacted {
        let (horizon, file) = (view.horizon, view.file.clone());
        out.push(Compacted { topic: id, horizon, file }.into());
    }
    for (producer, highest, last_use) in topic.sequences() {
        out.push(Sequence { topic: id, producer: producer.to_owned(), highest, last_use }.into());
    }
    for (&subscription, record) in
        topic.subscriptions.iter().filter(|(_, record)| record.is_durable)
    {
        let (name, mark, properties) =
            (record.name.clone(), record.cursor.mark(), record.properties.clone());
        let role = record.role.clone();
        let topic = id;
        out.push(CreateSubscription { topic, subscription, name, mark, properties, role }.into());
        let ranges: Vec<u64> =
            record.cursor.acked().iter().flat_map(|(from, to)| [from, to]).collect();
        for ranges in ranges.chunks(2 * PIECES_MAX) {
            let ranges = ranges.to_vec();
            out.push(Ack { topic: id, subscription, ranges, ..Ack::default() }.into());
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
        for batches in batches.chunks(PIECES_MAX) {
            let batches = batches.to_vec();
            out.push(Ack { topic: id, subscription, batches, ..Ack::default() }.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::RecordLocation;
    use crate::state::entries::EntryPosition;
    use crate::state::entry::EntryHead;

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
        state
            .apply(&CreateTopic { topic: 0, name, created_at: 1, ..CreateTopic::default() }.into())
            .unwrap();
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
}
