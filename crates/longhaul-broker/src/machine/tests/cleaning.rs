//! A single unacknowledged entry does not keep disk space, and entries that are kept for a reason
//! stay.

use super::support::{id, job, shared};
use super::*;
use crate::admin::values::SubscriptionStart;
use crate::log::{LogReadError, RecordLocation};
use crate::machine::effect::MessageSource;
use crate::machine::effect::Survivor;
use longhaul_wire::messages::AckType::Individual;
use longhaul_wire::messages::{CommandRedeliverUnacknowledgedMessages, CommandUnsubscribe};

/// A rig whose shared consumer has received entries in five segments, of which the last is being
/// written: the small entries 0 and 1, and large ones, one per segment. It has acknowledged some of
/// them.
fn rig(acked: impl Iterator<Item = u64>) -> Rig {
    let mut rig = Rig::with_producer();
    rig.subscribe(1, 5, shared);
    (0..2).for_each(|_| drop(rig.publish(1, 1, b"small")));
    (2..7).for_each(|_| drop(rig.publish(1, 1, &[7; 3000])));
    let segments: Vec<u32> = (0..7).map(|ordinal| location(&rig, ordinal).segment).collect();
    assert_eq!(segments, [1, 1, 1, 2, 3, 4, 5], "what the tests go by");
    rig.ack(5, Individual, acked.map(id).collect());
    rig.look();
    rig
}

fn location(rig: &Rig, ordinal: u64) -> RecordLocation {
    rig.topic().entries.get(ordinal).unwrap().location
}

/// Removed entries that are not before the trim point.
fn gone(rig: &Rig) -> Vec<u64> {
    rig.topic().entries.gone().collect()
}

/// The entries to be copied.
fn survivors(effects: &[MachineEffect]) -> Option<Vec<Survivor>> {
    effects.iter().find_map(|effect| match effect {
        MachineEffect::Copy(survivors) => Some(survivors.clone()),
        _ => None,
    })
}

/// Reads them, as the driver does.
fn read(rig: &Rig, survivors: Vec<Survivor>) -> Vec<(Survivor, bytes::Bytes)> {
    let reader = rig.log.reader();
    survivors
        .into_iter()
        .map(|survivor| (survivor, reader.read(survivor.location).unwrap()))
        .collect()
}

/// Segments with needed entries.
fn needed(rig: &Rig) -> Vec<u32> {
    rig.machine.state.live().keys().copied().collect()
}

#[test]
fn an_entry_that_stays_open_is_copied_and_its_segment_goes() {
    let mut rig = rig(1..7);
    let former = location(&rig, 0);
    let body = rig.log.reader().read(former).unwrap();
    let found = survivors(&rig.pass(1_000)).unwrap();
    assert_eq!(found.iter().map(|survivor| survivor.location).collect::<Vec<_>>(), [former]);
    assert_eq!(
        (gone(&rig), needed(&rig)),
        (vec![1, 2, 3, 4, 5], vec![1, 5]),
        "what is being written stays"
    );
    let records = rig.machine.totals.records;
    let read = read(&rig, found);
    rig.machine.copy(read);
    assert_eq!(location(&rig, 0), former, "the copy is not on disk yet");
    rig.settle();
    let copy = location(&rig, 0);
    assert!(copy.segment >= 5 && rig.machine.totals.records == records + 1);
    assert_eq!(rig.log.reader().read(copy).unwrap(), body);
    assert_eq!((needed(&rig), rig.mark()), (vec![5], 0));
    // A restart finds the copy by its id.
    let heads = rig.log.reader().scan(copy.segment);
    let head = RecordHead { kind: RecordKind::Entry, topic: 0, ledger: 0, entry: 0 };
    assert_eq!(heads.last(), Some(&(head, copy)));
    // The move changes neither the id nor the content.
    let again = CommandRedeliverUnacknowledgedMessages { consumer_id: 5, ..Default::default() };
    let effects = rig.ask(1, again);
    let [MachineEffect::Deliver { command, source, .. }] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!((command.message_id.entry_id, source), (0, &MessageSource::Log(copy)));
    // The segment is removed after the next checkpoint, which knows the copy.
    rig.machine.checkpoint();
    rig.settle();
    rig.checkpointed(true);
    let effects = rig.pass(1_000);
    assert!(effects.iter().any(
        |effect| matches!(effect, MachineEffect::RemoveSegments(segments) if segments[..] == [1, 2, 3, 4])
    ));
}

/// A broker that wrote much could not compact a topic whose entries were scattered: the cleaner
/// moved them and removed their segments while the compaction was reading. 697 of 1,000 compactions
/// failed with "segment 7 is not in the log", again and again.
#[test]
fn what_a_compaction_reads_is_not_removed() {
    let removed = |effects: &[MachineEffect]| {
        effects.iter().find_map(|effect| match effect {
            MachineEffect::RemoveSegments(segments) => Some(segments.clone()),
            _ => None,
        })
    };
    for waits in [false, true] {
        let mut rig = rig(1..7);
        let found = survivors(&rig.pass(1_000)).unwrap();
        let other = waits.then(|| {
            let name = "persistent://public/default/other";
            let create = |machine: &mut BrokerMachine, name: &TopicName| {
                machine.make_subscription(name, "s", SubscriptionStart::Earliest, &BTreeMap::new())
            };
            rig.asked(name, create).0.unwrap();
            job(&rig.asked(name, BrokerMachine::start_compaction).1).unwrap()
        });
        let first = job(&rig.call(BrokerMachine::start_compaction));
        assert_eq!(first.is_some(), !waits, "one runs at a time");
        let read = read(&rig, found);
        rig.machine.copy(read);
        rig.settle();
        rig.machine.checkpoint();
        rig.settle();
        rig.checkpointed(true);
        let gone = removed(&rig.pass(1_000)).unwrap_or_default();
        assert_eq!(gone, if waits { vec![1, 2, 3, 4] } else { vec![] });
        rig.log.remove(&gone);
        let job = first.unwrap_or_else(|| {
            rig.machine.compacted(&other.unwrap(), Ok(Arc::from([])));
            job(&rig.settle()).unwrap()
        });
        let reader = rig.log.reader();
        let read: Vec<bool> =
            job.entries.iter().map(|entry| reader.read(entry.2).is_ok()).collect();
        assert_eq!(read, [true, true], "entry 0, and the newest one");
        rig.machine.compacted(&job, Ok(Arc::from([])));
        rig.settle();
        let gone = removed(&rig.pass(1_000)).unwrap_or_default();
        assert!(waits || gone == [1, 2, 3, 4], "nobody reads them any more: {gone:?}");
    }
}

/// Copies wait on a full disk. They were made again every few seconds, each time after those that
/// waited.
#[test]
fn what_is_on_its_way_is_not_copied_again() {
    let copies_later = |rig: &mut Rig| {
        rig.now += 6_000;
        rig.machine.set_time(rig.now, rig.now);
        rig.machine.tick();
        survivors(&rig.machine.take_effects()).is_some()
    };
    let mut rig = rig(1..7);
    rig.machine.log.is_stuck = true;
    assert!(!copies_later(&mut rig), "there is no room");
    rig.machine.log.is_stuck = false;
    let found = survivors(&rig.pass(6_000)).unwrap();
    let read = read(&rig, found);
    rig.machine.copy(read);
    assert!(!copies_later(&mut rig));
    rig.settle();
    assert_eq!(rig.machine.cleaner.copying, 0);
    assert_eq!(needed(&rig), [5]);
}

/// Which entries are removed although an older one stays, and which must be kept.
#[test]
fn what_somebody_may_still_read_stays() {
    let retention = |minutes, megabytes| {
        move |rig: &mut Rig| {
            rig.set(|policies| policies.retention = Some(Retention { minutes, megabytes }));
        }
    };
    let given_up = |prepare: &dyn Fn(&mut Rig), wait: u64| {
        let mut rig = rig(1..7);
        prepare(&mut rig);
        rig.pass(wait);
        gone(&rig).contains(&1)
    };
    assert!(given_up(&|_| {}, 1));
    assert!(!given_up(&|_| {}, 0), "it was published in this very millisecond");
    assert!(!given_up(&retention(1, 0), 60_000));
    assert!(given_up(&retention(1, 0), 60_001), "its retention is over");
    assert!(!given_up(&retention(-1, 0), 1_000_000));
    let threshold = |rig: &mut Rig| {
        rig.set(|policies| policies.compaction_threshold_bytes = Some(1 << 30));
    };
    assert!(!given_up(&threshold, 1), "compaction needs it");
    let other = |command: &mut CommandSubscribe| command.subscription = "other".to_owned();
    assert!(!given_up(&|rig| drop(rig.subscribe(1, 6, other)), 1), "somebody has not read it");
    let reader = |command: &mut CommandSubscribe| {
        other(command);
        command.durable = Some(false);
    };
    assert!(given_up(&|rig| drop(rig.subscribe(1, 6, reader)), 1), "readers keep nothing");
    let unsubscribe = |rig: &mut Rig| {
        let command = CommandUnsubscribe { consumer_id: 5, request_id: 1, force: None };
        rig.ask(1, command);
    };
    assert!(!given_up(&unsubscribe, 1), "nobody has subscribed yet");
}

/// Tasks have a retention of an hour and of any size. Segments of such topics were never cleaned:
/// one task that stayed unacknowledged for a week kept all data in its segment.
#[test]
fn a_retention_of_any_size_ends_with_its_time() {
    for (ms, expected) in [(3_600_000, vec![]), (3_600_001, vec![1, 2, 3, 4, 5])] {
        let mut rig = rig(1..7);
        let retention = Retention { minutes: 60, megabytes: -1 };
        rig.set(|policies| policies.retention = Some(retention));
        rig.pass(ms);
        assert_eq!(gone(&rig), expected);
    }
}

#[test]
fn a_few_segments_are_left_alone() {
    let mut rig = rig(1..7);
    let all = rig.log.status().segments;
    let without =
        |gone: u32| all.iter().copied().filter(|(segment, _)| *segment != gone).collect::<Vec<_>>();
    rig.look_at(without(4));
    assert!(survivors(&rig.pass(1_000)).is_none(), "three, and the one that is written");
    rig.look_at(without(5));
    assert!(survivors(&rig.pass(1_000)).is_some(), "four");
}

/// The segment sizes as the driver reports them, with these replaced.
fn set_sizes(rig: &mut Rig, sizes: &[(u32, u64)]) {
    let mut segments = rig.log.status().segments;
    for (segment, bytes) in &mut segments {
        *bytes = sizes.iter().find(|(known, _)| known == segment).map_or(*bytes, |(_, size)| *size);
    }
    rig.look_at(segments);
}

fn ids(survivors: &[Survivor]) -> Vec<u64> {
    survivors.iter().map(|survivor| survivor.position.entry).collect()
}

/// One segment was removed every five seconds: with one unacknowledged entry and 43 MB/s of
/// consumed data, the log had 2.2 GB after a minute.
#[test]
fn all_segments_of_which_little_is_needed_are_cleaned_at_once() {
    const MIB: u64 = 1024 * 1024;
    let mut rig = rig([3].into_iter());
    set_sizes(&mut rig, &[(1, MIB), (3, MIB), (4, MIB), (5, MIB)]);
    let found = survivors(&rig.pass(1_000)).unwrap();
    assert_eq!(ids(&found), [0, 1, 2, 4, 5], "but not what is being written");
    assert_eq!(gone(&rig), [3]);
    assert!(survivors(&rig.pass(1_000)).is_none(), "nothing new while copies are being read");
}

#[test]
fn a_segment_that_is_needed_does_not_hide_the_next() {
    let mut rig = rig([].into_iter());
    set_sizes(&mut rig, &[(3, 1 << 20)]);
    assert_eq!(ids(&survivors(&rig.pass(1_000)).unwrap()), [4]);
}

/// Copies are kept in memory meanwhile.
#[test]
fn no_more_is_copied_at_once_than_fits_into_memory() {
    const MIB: u32 = 1024 * 1024;
    let copied = |sizes: [u32; 3]| {
        let mut rig = rig([].into_iter());
        for (ordinal, size) in (3..).zip(sizes) {
            let location = RecordLocation { size, ..location(&rig, ordinal) };
            rig.machine.state.relocate(0, ordinal, location);
        }
        set_sizes(&mut rig, &[(2, 1 << 30), (3, 1 << 30), (4, 1 << 30)]);
        ids(&survivors(&rig.pass(1_000)).unwrap())
    };
    assert_eq!(copied([MIB, 15 * MIB, MIB]), [3, 4]);
    assert_eq!(copied([MIB, 15 * MIB + 1, MIB]), [3, 5]);
    assert_eq!(copied([17 * MIB, MIB, MIB]), [3], "a single segment may have more");
}

/// Six million acknowledged entries after an unacknowledged one took 208 MB of memory.
#[test]
fn what_is_acknowledged_behind_an_open_entry_is_forgotten() {
    let mut rig = rig([2, 4].into_iter());
    rig.pass(1_000);
    assert_eq!(gone(&rig), [2, 4]);
    assert_eq!(
        rig.topic().bytes,
        rig.topic().entries.iter().map(|(_, slot)| u64::from(slot.location.size)).sum::<u64>()
    );
    // A later subscription gets the remaining entries.
    let other = |command: &mut CommandSubscribe| {
        command.subscription = "other".to_owned();
        command.initial_position = Some(longhaul_wire::messages::InitialPosition::Earliest.into());
    };
    rig.subscribe(1, 6, other);
    rig.ack(5, Individual, vec![id(1), id(5)]);
    rig.pass(1_000);
    assert_eq!(gone(&rig), [2, 4], "the other one has not acknowledged it");
    rig.ack(6, Individual, vec![id(1), id(3)]);
    rig.pass(1_000);
    assert_eq!(gone(&rig), [1, 2, 4], "both have");
}

#[test]
fn a_segment_is_cleaned_when_a_quarter_of_it_is_needed() {
    for (bytes_less, is_cleaned) in [(0, true), (1, false)] {
        let mut rig = rig(1..7);
        let mut segments = rig.log.status().segments;
        segments[0].1 = u64::from(location(&rig, 0).size) * 4 - bytes_less;
        rig.look_at(segments);
        assert_eq!(survivors(&rig.pass(1_000)).is_some(), is_cleaned);
    }
}

#[test]
fn what_is_moved_or_given_up_meanwhile_is_not_brought_back() {
    let mut rig = rig(2..7);
    let found = survivors(&rig.pass(1_000)).unwrap();
    assert_eq!(found.len(), 2);
    let first = read(&rig, found);
    // One of the entries is acknowledged while the copies are not on disk, and the segment is
    // checked again.
    rig.machine.copy(first.clone());
    let message_id = vec![id(1)];
    rig.at_once(1, CommandAck { consumer_id: 5, message_id, ..CommandAck::default() });
    rig.machine.cleaner = super::super::cleaning::Cleaner::default();
    rig.now += 1_000;
    rig.machine.set_time(rig.now, rig.now);
    rig.machine.tick();
    let second = survivors(&rig.machine.take_effects()).unwrap();
    assert_eq!(second.iter().map(|survivor| survivor.position.entry).collect::<Vec<_>>(), [0]);
    let second = read(&rig, second);
    rig.settle();
    assert!(gone(&rig).contains(&1), "it stays away");
    let copy = location(&rig, 0);
    assert!(copy.segment >= 5);
    // Entries that were read in vain are not written again.
    let end = rig.machine.recorded();
    rig.machine.copy(second);
    rig.machine.copy(first);
    assert_eq!((rig.machine.recorded(), location(&rig, 0)), (end, copy));
    rig.ack(5, Individual, vec![id(0)]);
    rig.call(BrokerMachine::unload_topic);
    let end = rig.machine.recorded();
    let topic = rig.machine.state.topic_id(TOPIC).unwrap();
    assert!(rig.first() > 0, "trimmed");
    let position = crate::state::entries::EntryPosition { ledger: 0, entry: 0 };
    rig.machine.copy(vec![(Survivor { topic, position, location: copy }, bytes::Bytes::new())]);
    assert_eq!(rig.machine.recorded(), end);
}

/// The texts of the warnings.
fn warnings(effects: &[MachineEffect]) -> Vec<String> {
    let text = |effect: &MachineEffect| match effect {
        MachineEffect::Warn(text) => Some(text.clone()),
        _ => None,
    };
    effects.iter().filter_map(text).collect()
}

#[test]
fn whoever_keeps_much_is_named() {
    const GIB: u64 = 1 << 30;
    // Four of the seven entries are unacknowledged; their bytes are not counted individually.
    let rig = |bytes: u64, disk: u64| {
        let mut rig = rig(0..3);
        // Nothing is trimmed.
        let retention = Retention { minutes: -1, megabytes: -1 };
        rig.set(|policies| policies.retention = Some(retention));
        rig.machine.state.topic_mut(0).unwrap().bytes = bytes;
        rig.look_at(vec![(1, disk / 2), (2, disk - disk / 2)]);
        rig
    };
    let mut large = rig(7 * GIB, 7 * GIB);
    let found = warnings(&large.pass(1_000));
    assert_eq!(found.len(), 1);
    let start = "subscription s keeps about 4096 MiB of persistent://public/default/t: ";
    assert!(found[0].starts_with(start), "{found:?}");
    assert!(warnings(&large.pass(599_000)).is_empty(), "not again so soon");
    assert_eq!(warnings(&large.pass(1_000)).len(), 1);
    assert_eq!(warnings(&rig(7 * GIB / 4, GIB).pass(1_000)).len(), 1, "just enough");
    assert!(warnings(&rig(7 * GIB / 4 - 1, GIB).pass(1_000)).is_empty());
    assert!(warnings(&rig(7 * GIB / 4, GIB - 1).pass(1_000)).is_empty(), "the log is small");
}

/// A disk that failed for a second while the cleaner read cost an unacknowledged entry, with its
/// segment.
#[test]
fn what_cannot_be_read_is_not_copied_and_its_segment_is_tried_again_after_longer_and_longer_pauses()
{
    let mut rig = rig(1..7);
    let former = location(&rig, 0);
    let io = LogReadError::Io { file: "x".to_owned(), offset: 1, reason: "EIO".to_owned() };
    let damaged = LogReadError::Damaged { file: "x".to_owned(), offset: 1 };
    let mut tried = Vec::new();
    for second in 0..200 {
        rig.look();
        rig.machine.checkpoint();
        rig.settle();
        rig.checkpointed(true);
        let effects = rig.pass(1_000);
        let removed = effects.iter().any(
            |effect| matches!(effect, MachineEffect::RemoveSegments(segments) if segments.contains(&1)),
        );
        assert!(!removed, "the segment with the only copy of an open entry");
        let Some(found) = survivors(&effects).filter(|survivors| survivors[0].location == former)
        else {
            continue;
        };
        tried.push(second);
        rig.machine.copy(Vec::new());
        let cause = if second % 2 == 0 { &io } else { &damaged };
        rig.machine.not_copied(&[(found[0], cause.clone())]);
        let told = rig.machine.take_effects();
        assert!(
            matches!(&told[..], [MachineEffect::Warn(warning)] if warning.contains("the broker tries again"))
        );
    }
    let pauses: Vec<i32> = tried.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses.is_sorted() && pauses.last() >= Some(&80), "{pauses:?}");
    assert_eq!((location(&rig, 0), rig.machine.totals.unreadable), (former, 0));
    let again = CommandRedeliverUnacknowledgedMessages { consumer_id: 5, ..Default::default() };
    let effects = rig.ask(1, again);
    assert!(
        matches!(&effects[..], [MachineEffect::Deliver { command, .. }] if command.message_id.entry_id == 0)
    );
}

/// The segment with the newest entry of this topic was full because of another topic's traffic. The
/// last id went back to that of the unacknowledged entry, and a client that asked whether a later
/// task exists was told that it never did.
#[test]
fn the_newest_entry_stays_and_a_late_subscription_has_no_backlog_of_what_is_gone() {
    use longhaul_wire::messages::{CommandGetLastMessageId, CommandProducer};
    let mut rig = rig(1..7);
    let topic = "persistent://public/default/u".to_owned();
    rig.ask(1, CommandProducer { topic, ..producer(9, 7, AccessMode::Shared) });
    (0..2).for_each(|_| drop(rig.publish(1, 9, &[7; 3000])));
    let last = |rig: &mut Rig| {
        let effects = rig.ask(1, CommandGetLastMessageId { consumer_id: 5, request_id: 8 });
        effects.into_iter().find_map(|effect| match effect {
            MachineEffect::Send(_, Command::GetLastMessageIdResponse(response)) => {
                Some(response.last_message_id.entry_id)
            }
            _ => None,
        })
    };
    assert_eq!(last(&mut rig), Some(6));
    rig.pass(1_000);
    assert_eq!((gone(&rig), last(&mut rig)), (vec![1, 2, 3, 4, 5], Some(6)));
    assert_eq!(rig.subscribe(1, 6, |command| command.subscription = "late".to_owned()), [0, 6]);
    let stats = rig.machine.topic_stats(0).unwrap();
    let backlogs = ["s", "late"].map(|name| stats.subscriptions[name].msg_backlog);
    assert_eq!(backlogs, [1, 2]);
}

/// A late subscription has removed entries at its mark. Its backlog was reported to have no age.
#[test]
fn the_oldest_open_entry_of_a_late_subscription_is_the_first_that_is_there() {
    let mut rig = rig(1..7);
    rig.pass(1_000);
    assert_eq!(rig.subscribe(1, 6, |command| command.subscription = "late".to_owned()), [0, 6]);
    rig.ack(6, Individual, vec![id(0)]);
    assert_eq!(gone(&rig), [1, 2, 3, 4, 5]);
    let published = rig.topic().entries.get(6).unwrap().publish_time;
    let late = &rig.machine.topic_stats(0).unwrap().subscriptions["late"];
    assert!(published > 0);
    assert_eq!(late.earliest_msg_publish_time_in_backlog, published);
    rig.ack(6, Individual, vec![id(6)]);
    let late = &rig.machine.topic_stats(0).unwrap().subscriptions["late"];
    assert_eq!(late.earliest_msg_publish_time_in_backlog, 0, "nothing is there that is open");
}

/// Only 16,384 entries of a topic were forgotten per second, and later per run, although the other
/// topics had nothing to forget. At 150,000, then at 500,000 small messages per second after an
/// unacknowledged one, the log grew by 160 MB per million, and did not shrink before the load did.
#[test]
fn what_is_acknowledged_fast_is_forgotten_as_fast() {
    const COUNT: u64 = 60_000;
    let mut rig = rig(1..7);
    for _ in 0..COUNT {
        rig.send(1, b"small", |_, _| {});
    }
    rig.settle();
    (0..2).for_each(|_| drop(rig.publish(1, 1, &[7; 3000])));
    let acks: Vec<_> = (7..7 + COUNT).map(id).collect();
    for acks in acks.chunks(500) {
        assert_eq!(rig.ack(5, Individual, acks.to_vec()).0, None);
    }
    rig.look();
    rig.pass(1000);
    let kept = rig.topic().entries.iter().count();
    assert!(kept < 10, "{kept} entries are kept for one");
    // If there is nothing to forget, the pages are not checked for a second.
    let looks = rig.machine.cleaner.next_go - rig.machine.up;
    assert!(looks > 500, "the next look is in {looks} ms");
}
