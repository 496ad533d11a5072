//! Readers: the compacted view and the entries after it, and the position where they have caught
//! up.

use super::*;
use crate::key_hash::of_none;
use crate::log::{CompactedEntry, CompactedWriter, Facts, RecordLocation};
use crate::machine::dispatcher::READER_HOLD_MS;
use crate::machine::view::{Item, ReadableView};
use crate::machine::withheld::NOTHING;
use crate::state::entries::{EntryPosition, TopicEntries};
use longhaul_wire::messages::{
    AckType, CommandGetLastMessageId, CommandGetLastMessageIdResponse,
    CommandRedeliverUnacknowledgedMessages,
};

/// A compacted view of these entries: ordinals, numbers of messages and bytes, all in ledger 0.
pub(super) fn slots(entries: &[(u64, u32, usize)]) -> Arc<[CompactedEntry]> {
    let storage = Arc::new(SimulatedStorage::new(1));
    let mut writer = CompactedWriter::create(storage, "compact/test.seg").unwrap();
    for &(ordinal, messages, bytes) in entries {
        writer.append(ordinal, 0, ordinal, messages, &vec![0; bytes]).unwrap();
    }
    Arc::clone(writer.finish().unwrap().slots())
}

/// The entries 0 to 5 of ledger 0: a batch of two, plain ones, a chunk, a delayed one, and a
/// removed one.
fn entries() -> TopicEntries {
    let mut entries = TopicEntries::default();
    entries.open_ledger(0, 0);
    let location = |offset| RecordLocation { segment: 1, offset, size: 10 + offset };
    let none = Facts::default();
    entries.push(location(0), &Facts { batch: Some(2), ..none });
    entries.push(location(1), &none);
    entries.push(location(2), &none);
    entries.push(location(3), &Facts { chunk_of: Some(77), ..none });
    entries.push(location(4), &Facts { deliver_at: Some(88), ..none });
    entries.push(location(5), &none);
    entries.forget((2, 3), 1, |_, _| true);
    entries
}

/// An item without a key.
fn item(ordinal: u64, messages: u32, bytes: u32) -> Item {
    Item {
        ordinal,
        position: EntryPosition { ledger: 0, entry: ordinal },
        messages,
        bytes,
        deliver_at: None,
        chunk_of: None,
        key_hash: of_none(ordinal),
        compacted: None,
    }
}

#[test]
fn a_view_shows_what_is_on_disk_and_here() {
    let entries = entries();
    let view = ReadableView { entries: &entries, end: 5, compacted: None, withheld: &NOTHING };
    assert_eq!(view.get(0), Some(item(0, 2, 10)));
    assert_eq!(view.get(1), Some(item(1, 1, 11)));
    assert_eq!(view.get(2), None, "it is gone");
    assert_eq!(
        view.at_or_after(2),
        Some(Item { chunk_of: Some(77), key_hash: of_none(77), ..item(3, 1, 13) })
    );
    assert_eq!(view.get(4), Some(Item { deliver_at: Some(88), ..item(4, 1, 14) }));
    assert_eq!(view.at_or_after(5), None, "it is not on disk");
    assert_eq!(view.last(), Some((EntryPosition { ledger: 0, entry: 4 }, None)));
    let start = ReadableView { end: 1, ..view };
    assert_eq!(start.last(), Some((EntryPosition { ledger: 0, entry: 0 }, Some(2))));
    let gone = ReadableView { end: 3, ..view };
    assert_eq!(
        gone.last(),
        Some((EntryPosition { ledger: 0, entry: 1 }, None)),
        "the last one here"
    );
    assert_eq!(ReadableView { end: 0, ..view }.last(), None);
}

/// Up to the horizon, a reader of the compacted view only gets the view, and after it the entries.
#[test]
fn a_compacted_view_replaces_what_lies_before_its_horizon() {
    let entries = entries();
    let slots = slots(&[(0, 0, 5), (3, 4, 7)]);
    let view = ReadableView {
        entries: &entries,
        end: 6,
        compacted: Some((&slots, 4)),
        withheld: &NOTHING,
    };
    let first = Item { compacted: Some(0), key_hash: 0, ..item(0, 1, 5) };
    let second = Item { compacted: Some(1), key_hash: 0, ..item(3, 4, 7) };
    assert_eq!(view.get(0), Some(first), "an entry has a message at least");
    assert_eq!(view.get(1), None, "compaction has removed it");
    assert_eq!(view.at_or_after(1), Some(second));
    assert_eq!(view.at_or_after(3), Some(second));
    assert_eq!(view.at_or_after(4), Some(Item { deliver_at: Some(88), ..item(4, 1, 14) }));
    let empty: &[CompactedEntry] = &[];
    let nothing_left = ReadableView { compacted: Some((empty, 4)), ..view };
    assert_eq!(nothing_left.at_or_after(0).map(|item| item.ordinal), Some(4));
    let beyond = ReadableView { compacted: Some((&slots[..1], 4)), ..view };
    assert_eq!(beyond.at_or_after(1).map(|item| item.ordinal), Some(4));
    // The horizon decides, not the position of the last entry.
    let at_the_horizon = ReadableView { compacted: Some((&slots, 3)), ..view };
    assert_eq!(at_the_horizon.at_or_after(3).map(|item| item.compacted), Some(None));
}

#[test]
fn the_last_of_a_compacted_view_is_the_last_that_is_left() {
    let entries = entries();
    let last = |slots: &[CompactedEntry], horizon, end| {
        let compacted = Some((slots, horizon));
        ReadableView { entries: &entries, end, compacted, withheld: &NOTHING }.last()
    };
    let (batch, plain) = (slots(&[(0, 2, 5), (3, 4, 7)]), slots(&[(0, 2, 5), (1, 1, 7)]));
    let id = |entry| EntryPosition { ledger: 0, entry };
    assert_eq!(last(&batch, 4, 6), Some((id(5), None)), "behind the horizon");
    assert_eq!(last(&batch, 4, 4), Some((id(3), Some(4))));
    assert_eq!(last(&plain, 4, 4), Some((id(1), None)));
    assert_eq!(last(&[], 4, 4), None);
}

fn last_id(rig: &mut Rig, consumer_id: u64) -> CommandGetLastMessageIdResponse {
    let command = CommandGetLastMessageId { consumer_id, request_id: 8 };
    match rig.ask(2, command).pop() {
        Some(MachineEffect::Send(2, Command::GetLastMessageIdResponse(response))) => *response,
        other => panic!("{other:?}"),
    }
}

fn answer(entry: u64, batch_index: i32, mark: u64) -> CommandGetLastMessageIdResponse {
    let id = |entry_id, batch_index| MessageIdData {
        ledger_id: 0,
        entry_id,
        partition: Some(-1),
        batch_index,
        ..MessageIdData::default()
    };
    CommandGetLastMessageIdResponse {
        last_message_id: id(entry, Some(batch_index)),
        request_id: 8,
        consumer_mark_delete_position: Some(id(mark, None)),
    }
}

fn publish_batch(rig: &mut Rig, messages: i32) {
    let metadata =
        MessageMetadata { num_messages_in_batch: Some(messages), ..MessageMetadata::default() };
    let message = verified(Payload::new(&metadata, &[7; 100]));
    let send = CommandSend { producer_id: 1, ..CommandSend::default() };
    rig.machine.request(1, ClientRequest::Publish(send, message));
    rig.settle();
}

/// A reader has caught up when it has read the last message, which may be the last of a batch.
#[test]
fn a_reader_learns_where_it_has_caught_up() {
    let mut rig = Rig::with_producer();
    rig.subscribe(2, 5, |_| {});
    let none = last_id(&mut rig, 5);
    assert_eq!(none.last_message_id.entry_id, u64::MAX, "-1: there is none");
    assert_eq!(none.last_message_id.batch_index, Some(-1));
    publish_batch(&mut rig, 3);
    assert_eq!(last_id(&mut rig, 5), answer(0, 2, u64::MAX));
    rig.publish(1, 1, b"x");
    rig.ask(
        2,
        CommandAck {
            consumer_id: 5,
            message_id: vec![MessageIdData::default()],
            ..CommandAck::default()
        },
    );
    assert_eq!(last_id(&mut rig, 5), answer(1, -1, 0));
    let command = CommandGetLastMessageId { consumer_id: 77, request_id: 8 };
    let refused = rig.ask(2, command);
    assert!(
        matches!(&refused[..], [MachineEffect::Send(2, Command::Error(error))] if error.request_id == 8)
    );
}

/// A reader of the compacted view would wait for ever for an entry that compaction has removed.
/// Other consumers of the connection do not change its answer.
#[test]
fn a_reader_of_the_compacted_view_waits_for_nothing_that_is_gone() {
    let mut rig = Rig::with_producer();
    (0..3).for_each(|_| drop(rig.publish(1, 1, b"x")));
    let job = support::job(&rig.call(BrokerMachine::start_compaction)).unwrap();
    rig.machine.compacted(&job, Ok(slots(&[(1, 1, 5)])));
    rig.settle();
    let failover = |name: &'static str, read_compacted| {
        move |command: &mut CommandSubscribe| {
            command.sub_type = 2;
            command.consumer_name = Some(name.to_owned());
            command.read_compacted = Some(read_compacted);
        }
    };
    rig.subscribe(2, 5, failover("b", true));
    rig.subscribe(2, 6, failover("a", false));
    assert_eq!(last_id(&mut rig, 5).last_message_id.entry_id, 1);
    assert_eq!(last_id(&mut rig, 6).last_message_id.entry_id, 2);
}

/// Between a trim and the end of the first compaction, a reader saw neither the entries nor the
/// view, and never returned to the skipped part.
#[test]
fn what_is_compacted_for_the_first_time_stays_until_there_is_a_view() {
    let mut rig = keeping::rig(3);
    rig.ack(5, AckType::Cumulative, vec![support::id(1)]);
    let job = support::job(&rig.call(BrokerMachine::start_compaction)).unwrap();
    rig.pass(6_000);
    assert!(rig.first() == 0 && rig.topic().entries.gone().next().is_none());
    rig.machine.compacted(&job, Ok(slots(&[(0, 1, 9)])));
    rig.settle();
    rig.pass(6_000);
    assert_eq!(rig.first(), 2);
}

/// A topic of ten entries, and a reader of its compacted view that has got the first five when a
/// compaction leaves the third and the eighth.
fn overtaken() -> Rig {
    let mut rig = keeping::rig(10);
    assert_eq!(follow(&mut rig, 6, 5), [0, 1, 2, 3, 4]);
    let job = support::job(&rig.call(BrokerMachine::start_compaction)).unwrap();
    rig.machine.compacted(&job, Ok(slots(&[(2, 1, 9), (7, 1, 9)])));
    rig.settle();
    rig
}

/// A reader of the compacted view with these permits. Returns the deliveries.
fn follow(rig: &mut Rig, consumer_id: u64, message_permits: u32) -> Vec<u64> {
    let reader = CommandSubscribe {
        subscription: format!("reader-{consumer_id}"),
        durable: Some(false),
        read_compacted: Some(true),
        start_message_id: Some(MessageIdData::EARLIEST),
        ..consumer(consumer_id)
    };
    rig.ask(2, reader);
    more(rig, consumer_id, message_permits)
}

fn more(rig: &mut Rig, consumer_id: u64, message_permits: u32) -> Vec<u64> {
    delivered(&rig.ask(2, CommandFlow { consumer_id, message_permits }))
}

/// A compaction removed a value and its tombstone while a reader had read the value and not yet the
/// tombstone. The reader was to go on in the new view, and kept the value for ever.
#[test]
fn a_reader_that_is_behind_gets_what_compaction_has_removed() {
    let mut rig = overtaken();
    assert_eq!(last_id(&mut rig, 6).last_message_id.entry_id, 9, "it has yet to come");
    assert_eq!(more(&mut rig, 6, 3), [5, 6, 7]);
    assert_eq!(follow(&mut rig, 7, 10), [2, 7], "a newcomer reads the view alone");
    assert_eq!(last_id(&mut rig, 7).last_message_id.entry_id, 7);
    assert_eq!(more(&mut rig, 6, 10), [8, 9]);
    let again = CommandRedeliverUnacknowledgedMessages { consumer_id: 6, ..Default::default() };
    let mut again = delivered(&rig.ask(2, again));
    again.extend(more(&mut rig, 6, 10));
    assert_eq!(again, (0..10).collect::<Vec<_>>(), "what it has not acknowledged");
    let (consumer_id, ack_type) = (6, AckType::Cumulative.into());
    let message_id = vec![support::id(9)];
    rig.ask(2, CommandAck { consumer_id, ack_type, message_id, ..CommandAck::default() });
    assert_eq!(last_id(&mut rig, 6).last_message_id.entry_id, 7, "it needs the log no more");
}

/// A reader that had read nothing yet was told of a last message. A compaction removed the message,
/// and the reader waited for it for ever.
#[test]
fn a_reader_gets_the_message_that_it_was_told_of() {
    let mut rig = keeping::rig(10);
    assert_eq!(follow(&mut rig, 6, 0), [0; 0]);
    assert_eq!(last_id(&mut rig, 6).last_message_id.entry_id, 9);
    let job = support::job(&rig.call(BrokerMachine::start_compaction)).unwrap();
    rig.machine.compacted(&job, Ok(slots(&[(2, 1, 9)])));
    rig.settle();
    assert_eq!(more(&mut rig, 6, 20), (0..10).collect::<Vec<_>>());
}

/// Trimming removed the tombstones that a reader of the compacted view had yet to read. It waits
/// for the reader, but not for one that has stopped, and not on a full disk.
#[test]
fn the_log_waits_for_a_reader_that_is_behind() {
    let trimmed = |change: fn(&mut Rig), ms| {
        let mut rig = overtaken();
        rig.ack(5, AckType::Cumulative, vec![support::id(9)]);
        rig.pass(0);
        change(&mut rig);
        rig.pass(ms);
        (rig.first(), more(&mut rig, 6, 10))
    };
    let all = vec![5, 6, 7, 8, 9];
    assert_eq!(trimmed(|_| {}, READER_HOLD_MS - 1), (5, all));
    assert_eq!(trimmed(|_| {}, READER_HOLD_MS), (9, vec![7, 9]), "it reads the view after that");
    assert_eq!(trimmed(|rig| rig.machine.log.is_stuck = true, 1_000), (9, vec![7, 9]));
    assert_eq!(trimmed(|rig| drop(more(rig, 6, 5)), 1_000), (9, vec![]), "it has everything");
    assert_eq!(trimmed(|rig| rig.machine.closed(2), 1_000).0, 9, "it is gone");
}
