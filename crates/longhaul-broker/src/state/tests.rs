//! The state that records lead to, and its checkpoints.

use super::change::{
    Ack, AddSchema, BatchAck, ChangeRecord, Compacted, CreateNamespace, CreateSubscription,
    CreateTopic, DeleteNamespace, DeleteSchemas, DeleteSubscription, DeleteTopic, NoteSubscription,
    Numbers, OpenLedger, ResetCursor, Sequence, SetPartitions, SetPolicies, TopicEnd, TopicEpoch,
    Trim,
};
use super::replay::replay;
use super::*;
use crate::log::{Facts, RecordHead, RecordKind, ReplayedItem};
use longhaul_wire::messages::Schema;
use prost::Message as _;

const NAME: &str = "persistent://public/default/t";

fn location(segment: u32, offset: u32) -> RecordLocation {
    RecordLocation { segment, offset, size: 40 }
}

fn at(ledger: u64, entry: u64) -> EntryPosition {
    EntryPosition { ledger, entry }
}

fn with(facts: Facts) -> EntryHead {
    EntryHead { facts, sequence: None }
}

/// The state that these changes lead to.
fn state(changes: impl IntoIterator<Item = StateChange>) -> BrokerState {
    let mut state = BrokerState::default();
    changes.into_iter().for_each(|change| state.apply(&change).unwrap());
    state
}

/// A state with topic 3, ledger 7, subscription 2, and entries in the segments 1, 1, 2 and 3.
fn sample() -> BrokerState {
    let mut state = state([
        CreateTopic { topic: 3, name: NAME.to_owned(), created_at: 5 }.into(),
        OpenLedger { topic: 3, ledger: 7, first: 0 }.into(),
        CreateSubscription {
            topic: 3,
            subscription: 2,
            name: "s".to_owned(),
            mark: 0,
            properties: BTreeMap::from([("k".to_owned(), "v".to_owned())]),
        }
        .into(),
    ]);
    for (offset, segment) in (0..).zip([1, 1, 2, 3]) {
        let ordinal = state.push(3, location(segment, offset), &EntryHead::default()).unwrap();
        assert_eq!(ordinal, u64::from(offset));
    }
    state
}

fn new_subscription(subscription: u32, name: &str, mark: u64) -> CreateSubscription {
    let (name, properties) = (name.to_owned(), BTreeMap::new());
    CreateSubscription { topic: 3, subscription, name, mark, properties }
}

fn topic(state: &BrokerState) -> &BrokerTopic {
    state.topic(3).unwrap()
}

fn cursor(state: &BrokerState) -> &cursor::Cursor {
    &topic(state).subscriptions[&2].cursor
}

/// Bytes of the topic, and of each segment.
fn bytes(state: &BrokerState) -> (u64, Vec<(u32, u64)>) {
    (topic(state).bytes, state.live().iter().map(|(&segment, &bytes)| (segment, bytes)).collect())
}

/// The state that a checkpoint of this one leads to, without its entries.
fn restored(state: &BrokerState) -> BrokerState {
    self::state(state.snapshot())
}

#[test]
fn each_change_does_what_it_says() {
    let mut state = sample();
    let apply = |state: &mut BrokerState, change: StateChange| state.apply(&change).unwrap();
    assert_eq!((state.topic_id(NAME), state.next_numbers()), (Some(3), (4, 8)));
    assert_eq!((topic(&state).created_at, topic(&state).is_open), (5, true));
    assert_eq!(topic(&state).subscription_id("s"), Some(2));
    assert_eq!(topic(&state).next_subscription(), 3);
    apply(&mut state, Ack { topic: 3, subscription: 2, entries: vec![2], ..Ack::default() }.into());
    let ack = Ack { topic: 3, subscription: 2, before: Some(1), ..Ack::default() };
    apply(&mut state, ack.into());
    assert_eq!((cursor(&state).mark(), cursor(&state).is_acked(2)), (1, true));
    apply(&mut state, ResetCursor { topic: 3, subscription: 2, mark: 0 }.into());
    assert_eq!(cursor(&state), &cursor::Cursor::at(0));
    apply(&mut state, DeleteSubscription { topic: 3, subscription: 2 }.into());
    assert_eq!(topic(&state).subscription_id("s"), None);
    assert_eq!(topic(&state).next_subscription(), 3, "its number is not given again");
    apply(&mut state, TopicEpoch { topic: 3, epoch: 9 }.into());
    assert_eq!(topic(&state).epoch, Some(9));
    apply(&mut state, TopicEnd { topic: 3, end: 6 }.into());
    assert_eq!(topic(&state).entries.next_position(), Some(at(7, 6)));
    let file = "compact/1".to_owned();
    apply(&mut state, Compacted { topic: 3, horizon: 2, file: file.clone() }.into());
    assert_eq!(topic(&state).compacted, Some(CompactedView { horizon: 2, file }));
    apply(&mut state, Compacted { topic: 3, horizon: 2, file: String::new() }.into());
    assert_eq!(topic(&state).compacted, None);
    for (highest, last_use) in [(8, 2), (6, 1)] {
        let producer = "p".to_owned();
        apply(&mut state, Sequence { topic: 3, producer, highest, last_use }.into());
    }
    assert_eq!(topic(&state).highest_sequence("p"), Some(8), "never back");
    assert_eq!(topic(&state).sequences().collect::<Vec<_>>(), [("p", 8, 2)]);
    apply(&mut state, Numbers { topic: 2, ledger: 90 }.into());
    assert_eq!(state.next_numbers(), (4, 90), "nor are these");
    apply(&mut state, Numbers { topic: 20, ledger: 9 }.into());
    assert_eq!(state.next_numbers(), (20, 90));
    state.close_ledgers();
    assert!(!topic(&state).is_open);
}

#[test]
fn what_is_about_nothing_is_refused() {
    let mut state = sample();
    let ack = Ack { topic: 3, subscription: 9, ..Ack::default() };
    assert_eq!(state.apply(&ack.into()), Err(StateError::Subscription(3, 9)));
    let reset = ResetCursor { topic: 3, subscription: 9, mark: 0 };
    assert_eq!(state.apply(&reset.into()), Err(StateError::Subscription(3, 9)));
    assert_eq!(state.apply(&Trim { topic: 9, first: 1 }.into()), Err(StateError::Topic(9)));
    assert_eq!(state.apply(&DeleteTopic { topic: 9 }.into()), Err(StateError::Topic(9)));
    assert_eq!(state.push(9, location(1, 0), &EntryHead::default()), Err(StateError::Topic(9)));
    let content = |result: Result<(), StateError>| matches!(result, Err(StateError::Content(_)));
    let nameless = CreateTopic { topic: 9, name: "a://b/c/d/e".to_owned(), created_at: 0 };
    assert!(content(state.apply(&nameless.into())));
    let schema = AddSchema { name: NAME.to_owned(), schema: None, added_at: 0 };
    assert!(content(state.apply(&schema.into())));
    let policies = SetPolicies { scope: NAME.to_owned(), policies: "{".into() };
    assert!(content(state.apply(&policies.into())));
}

/// Reused names: their former settings are deleted with their former owners.
#[test]
fn nothing_is_left_of_what_was_deleted() {
    let set = |scope: &str| SetPolicies { scope: scope.to_owned(), policies: "{}".into() };
    let mut state = sample();
    let name = "public/other".to_owned();
    for change in [
        CreateNamespace { name: name.clone() }.into(),
        set(&name).into(),
        set(NAME).into(),
        SetPartitions { name: NAME.to_owned(), partitions: 4 }.into(),
        AddSchema { name: NAME.to_owned(), schema: Some(Schema::default()), added_at: 6 }.into(),
    ] {
        state.apply(&change).unwrap();
    }
    assert!(
        state.has_namespace(&name)
            && state.settings(&name).is_some()
            && state.settings(NAME).is_some()
    );
    assert_eq!((state.partitions(NAME), state.schemas(NAME).len()), (Some(4), 1));
    for change in [
        DeleteNamespace { name: name.clone() }.into(),
        DeleteTopic { topic: 3 }.into(),
        SetPartitions { name: NAME.to_owned(), partitions: 0 }.into(),
        DeleteSchemas { name: NAME.to_owned() }.into(),
    ] {
        state.apply(&change).unwrap();
    }
    assert!(
        !state.has_namespace(&name)
            && state.settings(&name).is_none()
            && state.settings(NAME).is_none()
    );
    assert_eq!((state.partitions(NAME), state.schemas(NAME).len()), (None, 0));
    assert_eq!((state.topic_id(NAME), state.topics().count(), state.live().len()), (None, 0, 0));
    state.apply(&set(NAME).into()).unwrap();
    let nothing = SetPolicies { scope: NAME.to_owned(), policies: Bytes::new() };
    state.apply(&nothing.into()).unwrap();
    assert!(state.settings(NAME).is_none());
}

/// The needed bytes of each log segment decide when it is removed.
#[test]
fn bytes_are_counted_where_they_lie() {
    let mut state = sample();
    assert_eq!(bytes(&state), (160, vec![(1, 80), (2, 40), (3, 40)]));
    state.relocate(3, 1, location(4, 0));
    assert_eq!(bytes(&state), (160, vec![(1, 40), (2, 40), (3, 40), (4, 40)]));
    state
        .apply(&Ack { topic: 3, subscription: 2, entries: vec![2, 3], ..Ack::default() }.into())
        .unwrap();
    let forgotten = state.forget_acked(3, 0, 9, 3, u64::MAX);
    assert_eq!(forgotten, Forgotten { pages: 1, entries: 1, next: None });
    assert_eq!(bytes(&state), (120, vec![(1, 40), (3, 40), (4, 40)]));
    state.relocate(3, 99, location(5, 0));
    state.relocate(9, 0, location(5, 0));
    state.relocate(3, 2, location(5, 0));
    state.apply(&Trim { topic: 3, first: 3 }.into()).unwrap();
    assert_eq!(bytes(&state), (40, vec![(3, 40)]));
    state.apply(&DeleteTopic { topic: 3 }.into()).unwrap();
    assert!(state.live().is_empty());
}

/// Entries come back in the order of the log: a copy comes after its original, and is then read
/// instead.
#[test]
fn entries_come_back_once() {
    let mut state = restored(&sample());
    assert_eq!(bytes(&state), (0, vec![]));
    let sequenced = EntryHead { sequence: Some(("p".into(), 4)), ..EntryHead::default() };
    state.restore(3, at(7, 1), location(1, 0), &sequenced);
    state.restore(3, at(7, 2), location(1, 1), &EntryHead::default());
    state.restore(3, at(7, 1), location(5, 0), &EntryHead::default());
    assert_eq!(bytes(&state), (80, vec![(1, 40), (5, 40)]));
    assert_eq!(topic(&state).entries.get(1).unwrap().location, location(5, 0));
    assert_eq!(topic(&state).highest_sequence("p"), Some(4));
    state.apply(&Trim { topic: 3, first: 2 }.into()).unwrap();
    // A trimmed entry, one without a ledger, and one without a topic.
    for (id, position) in [(3, at(7, 1)), (3, at(6, 0)), (9, at(7, 2))] {
        state.restore(id, position, location(6, 0), &sequenced);
    }
    assert_eq!(bytes(&state), (40, vec![(1, 40)]));
    let here = topic(&state).entries.iter();
    assert_eq!(here.map(|(ordinal, _)| ordinal).collect::<Vec<_>>(), [2]);
}

/// Data that is missing in a checkpoint would be lost with the next start.
#[test]
fn a_checkpoint_keeps_everything() {
    let mut state = sample();
    let schema = |kind| Some(Schema { r#type: kind, ..Schema::default() });
    let name = || NAME.to_owned();
    for change in [
        Numbers { topic: 50, ledger: 60 }.into(),
        CreateNamespace { name: "other".to_owned() }.into(),
        DeleteNamespace { name: "public/default".to_owned() }.into(),
        SetPartitions { name: "persistent://public/default/whole".to_owned(), partitions: 4 }
            .into(),
        SetPolicies { scope: name(), policies: r#"{"policies":{"deduplication":true}}"#.into() }
            .into(),
        AddSchema { name: name(), schema: schema(4), added_at: 6 }.into(),
        AddSchema { name: name(), schema: schema(2), added_at: 7 }.into(),
        TopicEpoch { topic: 3, epoch: 9 }.into(),
        Compacted { topic: 3, horizon: 2, file: "compact/1".to_owned() }.into(),
        Sequence { topic: 3, producer: "p".to_owned(), highest: 8, last_use: 2 }.into(),
        OpenLedger { topic: 3, ledger: 12, first: 4 }.into(),
        Trim { topic: 3, first: 1 }.into(),
        Ack { topic: 3, subscription: 2, before: Some(1), entries: vec![3], ..Ack::default() }
            .into(),
        Ack {
            topic: 3,
            subscription: 2,
            batches: vec![BatchAck { ordinal: 2, open: vec![1], messages: 2 }],
            ..Ack::default()
        }
        .into(),
        NoteSubscription {
            topic: 3,
            subscription: 2,
            properties: BTreeMap::from([("k".to_owned(), "new".to_owned())]),
        }
        .into(),
    ] {
        // As encoded in the log.
        let record = ChangeRecord { change: Some(change) }.encode_to_vec();
        let record = ChangeRecord::decode(&record[..]).unwrap();
        state.apply(&record.change.unwrap()).unwrap();
    }
    state.topic_mut(3).unwrap().add_subscription(new_subscription(5, "reader", 2), false);
    let back = restored(&state);
    assert_eq!(back.next_numbers(), (50, 60));
    assert!(back.has_namespace("public") && !back.has_namespace("public/default"));
    assert_eq!(back.namespaces().collect::<Vec<_>>(), ["other", "public"]);
    assert_eq!(back.partitioned().collect::<Vec<_>>(), state.partitioned().collect::<Vec<_>>());
    assert_eq!(back.settings(NAME), state.settings(NAME));
    assert_eq!((back.settings(NAME).is_some(), back.schemas(NAME)), (true, state.schemas(NAME)));
    assert_eq!(back.schema_bytes(), state.schema_bytes());
    let (kept, was) = (topic(&back), topic(&state));
    assert_eq!((&kept.name, kept.created_at, kept.epoch), (&was.name, 5, Some(9)));
    assert_eq!((kept.entries.first(), kept.entries.end()), (1, 4));
    assert_eq!(kept.entries.ledgers().collect::<Vec<_>>(), [(7, 0), (12, 4)]);
    assert_eq!((&kept.compacted, kept.highest_sequence("p")), (&was.compacted, Some(8)));
    assert_eq!(kept.subscriptions.len(), 1, "readers come again by themselves");
    let noted = BTreeMap::from([("k".to_owned(), "new".to_owned())]);
    assert_eq!(topic(&back).subscriptions[&2].properties, noted);
    assert_eq!((cursor(&back).mark(), cursor(&back).is_acked(3)), (1, true));
    assert_eq!(cursor(&back).open_in_batch(2), Some(&[1][..]));
    // Both built-in namespaces may be deleted.
    state.apply(&DeleteNamespace { name: "public".to_owned() }.into()).unwrap();
    assert_eq!(restored(&state).namespaces().collect::<Vec<_>>(), ["other"]);
    assert_eq!(restored(&BrokerState::default()).namespaces().count(), 2);
}

/// Records have a limit, and a subscription may have acknowledged every other one of a million
/// entries.
#[test]
fn what_is_acknowledged_is_kept_in_pieces() {
    let mut state = sample();
    let batch = with(Facts { batch: Some(2), ..Facts::default() });
    (0..30_003).for_each(|_| drop(state.push(3, location(4, 0), &batch)));
    let kept = state.topic_mut(3).unwrap().subscriptions.get_mut(&2).unwrap();
    for number in 0..10_001 {
        kept.cursor.ack(4 + 3 * number);
        kept.cursor.ack_in_batch(5 + 3 * number, &[1], 2);
    }
    let mut acks = Vec::new();
    for change in state.snapshot() {
        if let StateChange::Ack(ack) = change {
            acks.push((ack.ranges.len(), ack.batches.len()));
        }
    }
    assert_eq!(acks, [(20_000, 0), (2, 0), (0, 10_000), (0, 1)]);
    assert!(cursor(&restored(&state)) == cursor(&state));
}

/// Regression: a consumer of the compacted view acknowledged one message of a batch whose entry was
/// trimmed. The checkpoint took the number of messages from the entry, and wrote 0. After the next
/// start the whole batch was acknowledged, and its other messages were never delivered.
#[test]
fn a_part_of_a_batch_stays_a_part_after_its_entry_is_trimmed() {
    let mut state = sample();
    let batches = vec![BatchAck { ordinal: 1, open: vec![0b110], messages: 3 }];
    let ack = Ack { topic: 3, subscription: 2, batches, ..Ack::default() };
    state.apply(&ack.into()).unwrap();
    state.apply(&Trim { topic: 3, first: 3 }.into()).unwrap();
    assert_eq!(cursor(&restored(&state)).open_in_batch(1), Some(&[0b110][..]));
}

#[test]
fn a_restart_reads_what_was_recorded() {
    let encoded = |change: StateChange| ChangeRecord { change: Some(change) };
    let create = CreateTopic { topic: 3, name: NAME.to_owned(), created_at: 5 };
    let open = OpenLedger { topic: 3, ledger: 7, first: 0 };
    let mut image = encoded(create.into()).encode_length_delimited_to_vec();
    image.extend(encoded(open.into()).encode_length_delimited_to_vec());
    let mut state = BrokerState::default();
    replay(&mut state, ReplayedItem::Checkpoint(&image)).unwrap();
    assert_eq!(topic(&state).entries.next_position(), Some(at(7, 0)));
    let mut record = |kind, body: &[u8], before_checkpoint| {
        let head = RecordHead { kind, topic: 3, ledger: 7, entry: 0 };
        let location = location(1, 0);
        replay(&mut state, ReplayedItem::Record { head, location, body, before_checkpoint })
    };
    let batch = with(Facts { batch: Some(6), ..Facts::default() });
    let mut head = Vec::new();
    batch.encode(&mut head);
    record(RecordKind::Entry, &head, true).unwrap();
    let epoch = |epoch| encoded(TopicEpoch { topic: 3, epoch }.into()).encode_to_vec();
    record(RecordKind::Change, &epoch(1), false).unwrap();
    record(RecordKind::Change, &epoch(2), true).unwrap();
    assert!(record(RecordKind::Entry, b"x", true).unwrap_err().contains("without a head"));
    let unknown = record(RecordKind::Change, &[], false).unwrap_err();
    assert!(unknown.contains("use a newer one"), "{unknown}");
    assert!(record(RecordKind::Change, &[0xff], false).is_err());
    assert_eq!(topic(&state).entries.get(0).unwrap().messages(), 6);
    assert_eq!(topic(&state).epoch, Some(1), "the checkpoint stands for what lies before it");
    assert!(replay(&mut state, ReplayedItem::Checkpoint(&[0xff])).is_err());
}

/// The longest unused producers are dropped first, a tenth at a time.
#[test]
fn so_many_producers_are_remembered() {
    let mut state = sample();
    let kept = state.topic_mut(3).unwrap();
    for number in 0..10_000 {
        kept.record_sequence(&number.to_string(), 1, 10_000 - number);
    }
    assert_eq!(kept.sequences().count(), 10_000);
    kept.record_sequence("9999", 2, 20_000);
    kept.record_sequence("9998", 2, 0);
    kept.record_sequence("new", 1, 1);
    assert_eq!(kept.sequences().count(), 9_001);
    let is_kept = |number: u64| kept.highest_sequence(&number.to_string()).is_some();
    assert!(is_kept(9999) && (0..8_999).all(is_kept), "used lately");
    assert!(!(8_999..9_999).any(is_kept), "longest unused");
    assert!(kept.highest_sequence("new").is_some());
}

/// Regression: a producer was as old as its own clock said. Of 10,000 producers, those with slow
/// clocks lost their sequence ids first, although they were active, and what they sent again was
/// stored twice. The order of the log decides now, before a restart and after it.
#[test]
fn a_producer_with_a_slow_clock_is_not_forgotten_while_it_publishes() {
    let mut state = sample();
    let head = |producer: String, publish_time| EntryHead {
        sequence: Some((producer.into(), 1)),
        ..with(Facts { publish_time, ..Facts::default() })
    };
    let heads = (0..9_999).map(|number| head(number.to_string(), 1_000_000 + number));
    let heads: Vec<EntryHead> = heads.chain([head("slow".to_owned(), 5)]).collect();
    let mut after_restart = restored(&state);
    for (entry, head) in (4..).zip(&heads) {
        state.push(3, location(4, 0), head).unwrap();
        after_restart.restore(3, at(7, entry), location(4, 0), head);
    }
    for mut state in [restored(&state), after_restart, state] {
        // A copy of an old entry is no use of its producer.
        state.restore(3, at(7, 4), location(5, 0), &heads[0]);
        state.push(3, location(5, 0), &head("new".to_owned(), 2_000_000)).unwrap();
        assert_eq!(topic(&state).sequences().count(), 9_001);
        assert_eq!(topic(&state).highest_sequence("slow"), Some(1));
        assert_eq!(topic(&state).highest_sequence("0"), None);
    }
}

#[test]
fn the_lowest_mark_is_that_of_an_entry_that_is_here() {
    let mut state = sample();
    assert_eq!(topic(&state).lowest_mark(), Some(0));
    state.topic_mut(3).unwrap().add_subscription(new_subscription(5, "reader", 0), false);
    let ahead = new_subscription(6, "t", 3);
    state.apply(&ahead.into()).unwrap();
    state
        .apply(&Ack { topic: 3, subscription: 2, before: Some(1), ..Ack::default() }.into())
        .unwrap();
    assert_eq!(topic(&state).lowest_mark(), Some(1), "of those that are durable");
    state.topic_mut(3).unwrap().entries.forget((1, 2), 1, |_, _| true);
    assert_eq!(topic(&state).lowest_mark(), Some(2), "it cannot acknowledge what is gone");
    assert_eq!(topic(&state).durable().count(), 2);
    let before = |ordinal| topic(&state).position_before_or_none(ordinal);
    assert_eq!((before(2), before(0)), (at(7, 1), at(7, u64::MAX)));
    assert_eq!(
        (topic(&state).position_before(0), topic(&state).position_before(1)),
        (None, Some(at(7, 0)))
    );
    for subscription in [2, 6] {
        state.apply(&DeleteSubscription { topic: 3, subscription }.into()).unwrap();
    }
    assert_eq!(topic(&state).lowest_mark(), None);
}

/// The machine records only changes that apply, so a change that does not reveals a loss.
#[test]
fn a_change_that_does_not_apply_is_refused_and_leaves_nothing_behind() {
    let deep = "[".repeat(200) + &"]".repeat(200);
    let refused: [StateChange; 3] = [
        CreateTopic { topic: 3, name: format!("{NAME}{}", "x".repeat(250)), created_at: 5 }.into(),
        SetPolicies { scope: NAME.to_owned(), policies: deep.into() }.into(),
        TopicEpoch { topic: 9, epoch: 1 }.into(),
    ];
    let mut state = BrokerState::default();
    let before = format!("{:?}", state.snapshot());
    for change in refused {
        let record = ChangeRecord { change: Some(change) };
        let body = record.encode_to_vec();
        let head = RecordHead { kind: RecordKind::Change, topic: 0, ledger: 0, entry: 0 };
        let (location, body, before_checkpoint) = (location(1, 0), &body[..], false);
        let read = ReplayedItem::Record { head, location, body, before_checkpoint };
        let refused = replay(&mut state, read).unwrap_err();
        assert!(refused.contains("contradicts what was recorded before it"), "{refused}");
        assert_eq!(format!("{:?}", state.snapshot()), before, "it leaves nothing behind");
        let image = record.encode_length_delimited_to_vec();
        assert!(replay(&mut state, ReplayedItem::Checkpoint(&image)).is_err());
    }
}
