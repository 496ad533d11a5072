//! Periodic work: removed and kept entries, and checkpoints.

use super::support::{id, job, reader};
use super::*;
use crate::admin::values::RunState;
use crate::log::{LogPosition, ReplayedItem};
use crate::state::change::Sequence;
use crate::state::replay::replay;
use longhaul_wire::messages::AckType::Cumulative;

const MIB: u64 = 1024 * 1024;

/// A rig with producer 1, consumer 5, and entries with numbers from 1, each in a segment of its
/// own.
pub(super) fn rig(entries: u64) -> Rig {
    let mut rig = Rig::with_producer();
    rig.subscribe(1, 5, |_| {});
    (0..entries).for_each(|_| drop(rig.publish(1, 1, &[7; 3000])));
    let segments = rig.topic().entries.iter().map(|(_, slot)| slot.location.segment);
    assert!(segments.eq(1..=u32::try_from(entries).unwrap()), "what the tests go by");
    rig.look();
    rig
}

fn retention(minutes: i64, megabytes: i64) -> PolicyChange {
    Box::new(move |policies| policies.retention = Some(Retention { minutes, megabytes }))
}

/// The end of what the requested checkpoint covers, and its pieces.
fn checkpoint(effects: &[MachineEffect]) -> Option<(LogPosition, Vec<bytes::Bytes>)> {
    effects.iter().find_map(|effect| match effect {
        MachineEffect::Checkpoint { at, image } => Some((*at, image.clone())),
        _ => None,
    })
}

fn image(effects: &[MachineEffect]) -> Option<Vec<bytes::Bytes>> {
    checkpoint(effects).map(|(_, image)| image)
}

/// The removed segments.
fn removed(effects: &[MachineEffect]) -> Vec<u32> {
    let segments = |effect: &MachineEffect| match effect {
        MachineEffect::RemoveSegments(segments) => Some(segments.clone()),
        _ => None,
    };
    effects.iter().filter_map(segments).flatten().collect()
}

/// The removed compacted views.
fn views_removed(effects: &[MachineEffect]) -> Vec<String> {
    let name = |effect: &MachineEffect| match effect {
        MachineEffect::RemoveCompacted(name) => Some(name.clone()),
        _ => None,
    };
    effects.iter().filter_map(name).collect()
}

/// Automatic work waits for the end of this second.
#[test]
fn a_round_comes_every_second() {
    let mut rig = rig(0);
    assert_eq!(rig.machine.next_deadline(), START);
    rig.pass(0);
    assert_eq!(rig.machine.next_deadline(), START + 1_000);
    rig.pass(999);
    assert_eq!(rig.machine.next_deadline(), START + 1_000);
    rig.pass(1);
    assert_eq!(rig.machine.next_deadline(), START + 2_000);
}

#[test]
fn a_round_that_finds_nothing_to_do_records_nothing() {
    let mut rig = rig(3);
    rig.ack(5, Cumulative, vec![id(1)]);
    rig.set(|policies| policies.message_ttl_s = Some(100));
    rig.pass(1_000);
    let end = rig.machine.recorded();
    (0..3).for_each(|_| drop(rig.pass(1_000)));
    assert_eq!((rig.machine.recorded(), rig.first()), (end, 2));
}

#[test]
fn who_holds_an_exclusive_place_and_is_silent_loses_it() {
    let mut rig = rig(0);
    rig.ask(2, consumer(0));
    assert_eq!(rig.machine.next_deadline(), START);
    rig.pass(0);
    assert!(rig.pass(5_999).is_empty());
    let effects = rig.pass(1);
    assert!(matches!(effects[0], MachineEffect::Close(1)), "{effects:?}");
    assert_eq!(names(&effects), [13]);
}

#[test]
fn rates_are_those_of_the_last_minute() {
    let mut rig = rig(0);
    rig.pass(1_000);
    (0..120).for_each(|_| drop(rig.publish(1, 1, b"x")));
    rig.pass(60_000);
    assert_eq!(rig.machine.live[&0].figures.rate_in.get().0, 2.0);
}

#[test]
fn no_time_to_live_is_for_ever_and_no_threshold_never() {
    let mut rig = rig(1);
    rig.set(|policies| policies.message_ttl_s = Some(0));
    rig.set(|policies| policies.compaction_threshold_bytes = Some(0));
    assert!(job(&rig.pass(10_000_000)).is_none());
    assert_eq!(rig.mark(), 0);
    let threshold = u64::from(rig.topic().entries.get(0).unwrap().location.size);
    rig.set(|policies| policies.compaction_threshold_bytes = Some(threshold));
    assert!(job(&rig.pass(1_000)).is_some(), "just reached");
}

/// Between compactions, new entries are counted, so that not every round scans all entries.
#[test]
fn what_comes_behind_a_compaction_is_counted() {
    let mut rig = rig(1);
    rig.set(|policies| policies.compaction_threshold_bytes = Some(6_000));
    let first = job(&rig.call(BrokerMachine::start_compaction)).unwrap();
    rig.machine.compacted(&first, Ok(Arc::from([])));
    rig.settle();
    assert!(job(&rig.pass(1_000)).is_none());
    rig.publish(1, 1, &[7; 3000]);
    assert!(job(&rig.pass(1_000)).is_none());
    rig.publish(1, 1, &[7; 3000]);
    let second = job(&rig.pass(1_000)).unwrap();
    assert_eq!((second.entries.iter().count(), second.horizon), (2, 3));
    assert_eq!(second.previous, Some(first.file));
}

/// Regression: a view of 10 GB was written again for each 64 MiB of new entries.
#[test]
fn a_large_view_is_written_again_after_half_of_its_size() {
    let storage: Arc<dyn crate::log::Storage> = Arc::new(SimulatedStorage::new(1));
    let mut writer = crate::log::CompactedWriter::create(storage, "compact/0.seg").unwrap();
    writer.append(0, 0, 0, 1, &[7; 16_000]).unwrap();
    let view = writer.finish().unwrap();
    let mut rig = rig(1);
    rig.set(|policies| policies.compaction_threshold_bytes = Some(3_000));
    let first = job(&rig.pass(1_000)).unwrap();
    rig.machine.compacted(&first, Ok(Arc::clone(view.slots())));
    rig.settle();
    for _ in 0..2 {
        rig.publish(1, 1, &[7; 3000]);
        assert!(job(&rig.pass(1_000)).is_none(), "it is less than 8,000 bytes");
    }
    let by_hand = job(&rig.call(BrokerMachine::start_compaction)).unwrap();
    assert_eq!(by_hand.entries.iter().count(), 2, "a request does not wait");
    rig.machine.compacted(&by_hand, Err("no room".to_owned()));
    rig.pass(10_000);
    rig.publish(1, 1, &[7; 3000]);
    assert_eq!(job(&rig.pass(1_000)).unwrap().entries.iter().count(), 3);
}

#[test]
fn who_has_read_so_far_is_not_expired_again() {
    let mut rig = rig(2);
    let other = |command: &mut CommandSubscribe| command.subscription = "other".to_owned();
    rig.subscribe(1, 6, other);
    rig.subscribe(1, 7, reader);
    rig.now += 10_000;
    rig.publish(1, 1, b"young");
    let marks = |rig: &Rig| -> Vec<u64> {
        rig.topic().subscriptions.values().map(|subscription| subscription.cursor.mark()).collect()
    };
    rig.call(|machine, name| machine.expire_subscription(name, "other", 5));
    assert_eq!(marks(&rig), [0, 2, 0], "this one alone");
    rig.call(|machine, name| machine.expire_topic(name, 5));
    assert_eq!(marks(&rig), [2, 2, 0], "all but readers");
    let end = rig.machine.recorded();
    rig.call(|machine, name| machine.expire_topic(name, 5));
    assert_eq!(rig.machine.recorded(), end, "there is nothing to be recorded");
}

#[test]
fn what_lies_in_the_segment_that_is_written_stays() {
    let mut rig = rig(4);
    rig.ack(5, Cumulative, vec![id(3)]);
    rig.pass(1_000);
    assert_eq!(rig.first(), 3);
    rig.publish(1, 1, b"x");
    rig.call(BrokerMachine::unload_topic);
    rig.pass(1_000);
    assert_eq!(rig.first(), 4, "but not of a ledger that is closed");
}

/// Retention of entries that all, or no, subscriptions have acknowledged.
#[test]
fn retention_decides_what_stays() {
    let first = |policy: Option<PolicyChange>, acked: bool, bytes: Option<u64>, ms: u64| {
        let mut rig = rig(4);
        if let Some(policy) = policy {
            rig.set(policy);
        }
        if acked {
            rig.ack(5, Cumulative, vec![id(3)]);
        } else {
            rig.ask(
                1,
                longhaul_wire::messages::CommandUnsubscribe {
                    consumer_id: 5,
                    ..Default::default()
                },
            );
        }
        if let Some(bytes) = bytes {
            rig.machine.state.topic_mut(0).unwrap().bytes = bytes;
        }
        rig.pass(ms);
        rig.first()
    };
    assert_eq!(first(None, true, None, 1), 3);
    assert_eq!(first(None, false, None, 1), 0, "nobody has subscribed, nor said how long to wait");
    assert_eq!(first(Some(retention(0, 0)), false, None, 1), 3);
    assert_eq!(first(Some(retention(1, -1)), true, None, 60_000), 0, "of any size");
    assert_eq!(first(Some(retention(1, -1)), true, None, 60_001), 3);
    assert_eq!(first(Some(retention(1, -1)), false, None, 60_001), 3);
    assert_eq!(first(Some(retention(-1, -1)), true, None, 10_000_000), 0);
    assert_eq!(first(Some(retention(-1, 1)), true, Some(MIB), 10_000_000), 0);
    assert_eq!(first(Some(retention(-1, 1)), true, Some(MIB + 1), 10_000_000), 1, "the oldest");
    let two = MIB + 4_000;
    assert_eq!(first(Some(retention(-1, 1)), true, Some(two), 10_000_000), 2);
    assert_eq!(first(Some(retention(60, 0)), true, None, 1), 3, "of no size");
    let threshold = |bytes| -> Option<PolicyChange> {
        Some(Box::new(move |policies| policies.compaction_threshold_bytes = Some(bytes)))
    };
    assert_eq!(first(threshold(MIB), true, None, 1), 0, "compaction has not been there");
    assert_eq!(first(threshold(0), true, None, 1), 3, "it never will be");
}

/// Compacted entries can be read from the view, with or without subscriptions.
#[test]
fn what_is_compacted_may_go_though_nobody_has_subscribed() {
    let mut rig = rig(4);
    let compaction = job(&rig.call(BrokerMachine::start_compaction)).unwrap();
    rig.publish(1, 1, &[7; 3000]);
    rig.publish(1, 1, &[7; 3000]);
    rig.machine.compacted(&compaction, Ok(Arc::from([])));
    rig.settle();
    rig.pass(1_000);
    assert_eq!(rig.first(), 0, "somebody has not read it");
    let unsubscribe =
        longhaul_wire::messages::CommandUnsubscribe { consumer_id: 5, ..Default::default() };
    rig.ask(1, unsubscribe);
    rig.pass(1_000);
    assert_eq!(rig.first(), 4);
}

/// The compaction status of the admin interface.
fn state(rig: &mut Rig) -> RunState {
    rig.asked(TOPIC, |machine, name| machine.compaction_status(name)).0.unwrap().status
}

#[test]
fn a_compaction_is_followed_to_its_end() {
    let mut rig = rig(3);
    assert_eq!(state(&mut rig), RunState::NotRun);
    let first = job(&rig.call(BrokerMachine::start_compaction)).unwrap();
    assert_eq!(
        (first.previous.as_ref(), first.entries.iter().count(), first.horizon),
        (None, 3, 3)
    );
    assert_eq!(state(&mut rig), RunState::Running);
    assert!(job(&rig.call(BrokerMachine::start_compaction)).is_none(), "one at a time");
    rig.now += 70;
    rig.machine.set_time(rig.now, rig.now);
    rig.machine.compacted(&first, Err("broken".to_owned()));
    let effects = rig.settle();
    assert_eq!(views_removed(&effects), std::slice::from_ref(&first.file));
    assert_eq!(state(&mut rig), RunState::Error);
    assert!(rig.topic().compacted.is_none() && rig.machine.compacted.is_empty());
    let totals =
        |rig: &Rig| (rig.machine.totals.compactions, rig.machine.totals.compactions_failed);
    assert_eq!(totals(&rig), (0, 1));
    // Nothing was recorded since, and the file of the first one is about to be removed.
    let second = job(&rig.call(BrokerMachine::start_compaction)).unwrap();
    assert_ne!(second.file, first.file);
    rig.now += 30;
    rig.machine.set_time(rig.now, rig.now);
    rig.machine.compacted(&second, Ok(Arc::from([])));
    assert!(rig.settle().is_empty(), "there was none before");
    assert_eq!((state(&mut rig), totals(&rig)), (RunState::Success, (1, 1)));
    let compaction = &rig.machine.live[&0].compaction;
    assert_eq!((compaction.took_ms, compaction.last_at, compaction.removed), (30, rig.now, 3));
    assert_eq!(rig.topic().compacted.as_ref().unwrap().horizon, 3);
}

/// The previous view is read until the new one is on disk, and no longer.
#[test]
fn a_compacted_view_goes_when_the_next_is_on_disk() {
    let mut rig = rig(1);
    let compact = |rig: &mut Rig| {
        let job = job(&rig.call(BrokerMachine::start_compaction)).unwrap();
        rig.machine.compacted(&job, Ok(Arc::from([])));
        (job.file, views_removed(&rig.machine.take_effects()), views_removed(&rig.settle()))
    };
    let (first, ..) = compact(&mut rig);
    let (second, at_once, then) = compact(&mut rig);
    assert_eq!((at_once, then), (vec![], vec![first]));
    assert_eq!(rig.machine.compacted.keys().collect::<Vec<_>>(), [&second]);
}

#[test]
fn a_view_of_a_topic_that_was_deleted_goes() {
    let mut rig = rig(1);
    let job = job(&rig.call(BrokerMachine::start_compaction)).unwrap();
    rig.call(|machine, name| machine.remove_topic(name, true));
    rig.machine.compacted(&job, Ok(Arc::from([])));
    assert_eq!(views_removed(&rig.settle()), [job.file]);
    assert!(rig.machine.compacted.is_empty());
}

#[test]
fn a_checkpoint_is_written_when_enough_was_logged() {
    let mut rig = rig(0);
    (0..3).for_each(|_| drop(rig.publish(1, 1, b"x")));
    let logged = rig.machine.totals.bytes_logged;
    rig.machine.settings.checkpoint_bytes = logged + 1;
    assert!(image(&rig.pass(1_000)).is_none());
    rig.machine.settings.checkpoint_bytes = logged;
    assert!(image(&rig.pass(1_000)).is_some());
    (0..9).for_each(|_| drop(rig.publish(1, 1, b"x")));
    assert!(image(&rig.pass(1_000)).is_none(), "one is under way");
    rig.checkpointed(true);
    assert!(image(&rig.pass(1_000)).is_some());
    rig.checkpointed(true);
    assert!(image(&rig.pass(1_000)).is_none(), "nothing was logged since");
}

/// Records that are composed but not written when a checkpoint is made belong to it, and do not
/// cause another one.
#[test]
fn a_checkpoint_covers_what_is_on_its_way() {
    let mut rig = rig(1);
    rig.machine.settings.checkpoint_bytes = 6_000;
    rig.send(1, &[7; 3000], |_, _| {});
    rig.machine.checkpoint();
    let (at, _) = checkpoint(&rig.machine.take_effects()).unwrap();
    assert_eq!(at, rig.machine.recorded(), "the log waits for it");
    rig.settle();
    rig.checkpointed(true);
    assert!(image(&rig.pass(1_000)).is_none());
    (0..2).for_each(|_| drop(rig.publish(1, 1, &[7; 3000])));
    assert!(image(&rig.pass(1_000)).is_some());
}

#[test]
fn a_checkpoint_leads_to_the_same_state() {
    let mut rig = rig(3);
    rig.ack(5, Cumulative, vec![id(1)]);
    for number in 0..2_000_u64 {
        let producer = format!("{number:0>200}");
        let change = Sequence { topic: 0, producer, highest: number, last_use: number };
        rig.machine.state.apply(&change.into()).unwrap();
    }
    rig.machine.checkpoint();
    let image = image(&rig.settle()).unwrap();
    assert_eq!(image.len(), 5, "in pieces of which each is read at once");
    let mut restored = BrokerState::default();
    for piece in &image {
        replay(&mut restored, ReplayedItem::Checkpoint(piece)).unwrap();
    }
    assert_eq!(restored.described(), rig.machine.state.described());
}

/// A segment is removed when nothing in it is needed and a checkpoint covers it; the segment with
/// the checkpoint's position is kept.
#[test]
fn segments_go_behind_a_checkpoint() {
    let mut rig = rig(4);
    rig.machine.checkpoint();
    rig.settle();
    rig.checkpointed(true);
    assert!(removed(&rig.pass(1_000)).is_empty(), "all are needed");
    rig.publish(1, 1, &[7; 3000]);
    rig.look();
    rig.ack(5, Cumulative, vec![id(4)]);
    let effects = rig.pass(1_000);
    assert_eq!(removed(&effects), [1, 2, 3]);
    assert!(image(&effects).is_some(), "for the fourth");
    rig.look_at(
        rig.log.status().segments.into_iter().filter(|(segment, _)| *segment > 3).collect(),
    );
    assert!(removed(&rig.pass(1_000)).is_empty(), "it is not written yet");
    rig.checkpointed(true);
    assert_eq!(removed(&rig.pass(1_000)), [4]);
}

/// The disk may be full or broken: a failed checkpoint would fail every second. It was only tried
/// again after something else was logged, which a full disk refuses.
#[test]
fn a_checkpoint_that_failed_is_tried_again_after_a_while() {
    let mut rig = rig(2);
    rig.ack(5, Cumulative, vec![id(1)]);
    assert!(image(&rig.pass(1_000)).is_some(), "the first segment can go");
    rig.checkpointed(false);
    rig.publish(1, 1, b"x");
    assert!(image(&rig.pass(1_000)).is_none());
    assert!(image(&rig.pass(3_999)).is_none());
    let effects = rig.pass(1_000);
    assert!(image(&effects).is_some() && removed(&effects).is_empty());
    rig.checkpointed(false);
    assert!(image(&rig.pass(5_000)).is_some(), "nothing was logged since");
}

/// A checkpoint is composed in steps. On a full disk it is composed at once: acknowledgements that
/// come between the steps would use up their reserve, and what frees space would wait behind them.
#[test]
fn a_checkpoint_takes_its_time_unless_the_disk_is_full() {
    for is_full in [false, true] {
        let mut rig = rig(1);
        for name in ["a", "b", "c"] {
            let name = format!("persistent://public/default/{name}");
            let made = rig.asked(&name, |machine, name| machine.make_topic(name));
            made.0.unwrap();
        }
        rig.machine.settings.piece_bytes = 1;
        rig.machine.settings.checkpoint_bytes = 1;
        if is_full {
            rig.machine.composer.leave_room(4096, 0);
        }
        let mut ticks = 1;
        while image(&rig.pass(1_000)).is_none() {
            assert_eq!(rig.machine.next_in(), 0, "for the next step");
            ticks += 1;
        }
        assert_eq!(ticks, if is_full { 1 } else { 4 }, "a topic in each");
    }
}

/// After a start the checkpoint was unknown, so the segments before it stayed.
#[test]
fn segments_go_behind_a_checkpoint_from_before_the_start() {
    let mut rig = rig(4);
    rig.ack(5, Cumulative, vec![id(3)]);
    rig.look();
    rig.machine.log.checkpoint = Some(rig.machine.composer.end());
    assert_eq!(removed(&rig.pass(1_000)), [1, 2, 3]);
}

#[test]
fn the_segment_that_is_written_is_no_reason_for_a_checkpoint() {
    let mut rig = Rig::new();
    rig.call(|machine, name| machine.make_topic(name));
    rig.look();
    assert!(rig.pass(1_000).is_empty());
}

/// The wall clock was set back by an hour: nothing was trimmed, expired, checkpointed or removed
/// until the old time was reached again.
#[test]
fn rounds_go_on_while_the_wall_clock_is_behind() {
    let mut rig = Rig::new();
    rig.pass(1_000);
    let before = rig.now;
    for round in 1..4 {
        rig.machine.set_time(before - 3_600_000, before + 1_000 * round);
        assert_eq!(rig.machine.next_in(), 0, "round {round} is due");
        rig.machine.tick();
        assert_eq!(rig.machine.next_in(), 1_000);
    }
}

/// Regression: the clock of one publisher was a year ahead. Its entry was younger than any limit, so
/// it and all entries behind it were neither expired nor trimmed for a year, and the disk filled.
#[test]
fn a_publisher_whose_clock_is_ahead_stops_neither_expiry_nor_retention() {
    let mut rig = rig(1);
    rig.set(retention(1, -1));
    let ahead = rig.now + 365 * 24 * 3_600_000;
    rig.send(1, &[7; 3000], |_, message| message.facts.publish_time = ahead);
    rig.settle();
    rig.publish(1, 1, &[7; 3000]);
    rig.pass(30_000);
    rig.call(|machine, name| machine.expire_topic(name, 10));
    assert_eq!(rig.cursor().mark(), 3, "all are older than 10 s");
    rig.pass(30_001);
    assert_eq!(rig.first(), 2, "the last one is in the segment that is written");
}

/// Ten million entries that were skipped at once were removed at once, and all clients waited.
#[test]
fn a_round_forgets_so_much_and_the_next_one_goes_on() {
    let count = 300_000;
    let mut rig = rig(0);
    for offset in 0..count {
        let location = crate::log::RecordLocation { segment: 0, offset, size: 1 };
        rig.machine.state.push(0, location, &crate::state::entry::EntryHead::default()).unwrap();
    }
    let count = u64::from(count);
    rig.machine.live.get_mut(&0).unwrap().readable = count;
    rig.ack(5, Cumulative, vec![id(count - 1)]);
    for first in [1 << 18, count, count] {
        rig.pass(1_000);
        assert_eq!(rig.first(), first);
    }
}
