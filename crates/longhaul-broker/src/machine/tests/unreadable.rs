//! An unreadable entry is left out, counted and reported; it is not acknowledged, and nothing of it
//! is removed.

use super::support::{id, job, shared};
use super::*;
use crate::admin::values::RunState;
use crate::log::LogReadError;
use crate::machine::unreadable::Unreadable;
use crate::state::entries::EntryPosition;
use longhaul_wire::messages::AckType::{Cumulative, Individual};
use longhaul_wire::messages::CommandRedeliverUnacknowledgedMessages;

const FILE: &str = "log/0000000001.seg";

/// The read error of entry `entry` of the first topic, which consumer 5 of connection 1 should have
/// received.
fn unreadable(rig: &Rig, entry: u64, cause: LogReadError) -> Unreadable {
    let location = rig.topic().entries.get(entry).unwrap().location;
    Unreadable {
        consumer: ConsumerKey { conn: 1, id: 5 },
        position: EntryPosition { ledger: 0, entry },
        location: Some(location),
        cause,
    }
}

fn damaged(rig: &Rig, entry: u64) -> Unreadable {
    unreadable(rig, entry, LogReadError::Damaged { file: FILE.to_owned(), offset: 4711 })
}

fn refused(rig: &Rig, entry: u64) -> Unreadable {
    let reason = "Input/output error".to_owned();
    unreadable(rig, entry, LogReadError::Io { file: FILE.to_owned(), offset: 4711, reason })
}

/// Six entries, of which the last ones have a segment each. Consumer 5 has received them.
fn rig(change: impl FnOnce(&mut CommandSubscribe)) -> Rig {
    let mut rig = Rig::with_producer();
    rig.subscribe(1, 5, change);
    (0..6).for_each(|_| drop(rig.publish(1, 1, &[7; 3000])));
    rig
}

fn exclusive(_: &mut CommandSubscribe) {}

fn permits(rig: &mut Rig) -> i64 {
    let key = ConsumerKey { conn: 1, id: 5 };
    let (topic, subscription) = rig.machine.subscription_of(key).unwrap();
    rig.machine.dispatcher(topic, subscription).unwrap().consumer_mut(key).unwrap().permits
}

fn segment(rig: &Rig, entry: u64) -> u32 {
    rig.topic().entries.get(entry).unwrap().location.segment
}

fn needed(rig: &Rig) -> Vec<u32> {
    rig.machine.state.live().keys().copied().collect()
}

#[test]
fn it_is_named_and_counted_once_and_the_consumer_has_its_permits_back() {
    let mut rig = rig(shared);
    let before = permits(&mut rig);
    let unreadable = damaged(&rig, 2);
    let told = rig.machine.withhold(&unreadable).unwrap();
    for word in ["0:2", TOPIC, FILE, "4711", "is set aside"] {
        assert!(told.contains(word), "{word}: {told}");
    }
    assert_eq!(permits(&mut rig), before + 1);
    assert_eq!(rig.machine.withhold(&unreadable), None, "another consumer came upon it, too");
    assert_eq!(permits(&mut rig), before + 1);
    assert_eq!((rig.machine.totals.unreadable, rig.machine.live[&0].figures.unreadable), (1, 1));
    assert_eq!(rig.again(), [0, 1, 3, 4, 5], "and never again");
    rig.pass(100_000);
    assert_eq!(rig.again(), [0, 1, 3, 4, 5]);
}

/// The entry was subtracted from its segment's count: within seconds, the only copy of an
/// unacknowledged entry was removed with the segment.
#[test]
fn nothing_acknowledges_it_and_its_segment_is_kept_until_somebody_lets_go_of_it() {
    let mut rig = rig(shared);
    let unreadable = damaged(&rig, 0);
    rig.machine.withhold(&unreadable).unwrap();
    rig.ack(5, Individual, (1..5).map(id).collect());
    assert_eq!((rig.cursor().mark(), rig.cursor().is_acked(0)), (0, false));
    for _ in 0..5 {
        rig.look();
        let effects = rig.pass(10_000);
        let kept = unreadable.location.unwrap().segment;
        let removes = |effect: &MachineEffect| matches!(effect, MachineEffect::RemoveSegments(segments) if segments.contains(&kept));
        assert!(!effects.iter().any(removes), "{effects:?}");
        rig.machine.checkpoint();
        rig.settle();
        rig.checkpointed(true);
    }
    assert_eq!(rig.first(), 0);
    assert_eq!(needed(&rig).first(), Some(&segment(&rig, 0)));
    assert!(rig.log.reader().read(unreadable.location.unwrap()).is_ok(), "it is still there");
    // An operator gives it up; that is recorded.
    rig.call(|machine, name| machine.skip(name, "s", 1));
    rig.pass(1_000);
    assert_eq!(rig.first(), 5);
    assert_eq!(needed(&rig), [segment(&rig, 5)]);
    assert_eq!(rig.machine.live[&0].withheld.first_to_compact(0), None, "nothing is left of it");
}

#[test]
fn an_exclusive_consumer_goes_on_behind_it_and_acknowledges_only_what_it_got() {
    let mut rig = rig(exclusive);
    let before = permits(&mut rig);
    for entry in [1, 3] {
        let unreadable = damaged(&rig, entry);
        rig.machine.withhold(&unreadable).unwrap();
    }
    assert_eq!(permits(&mut rig), before + 2);
    assert_eq!(rig.again(), [0, 2, 4, 5]);
    rig.ack(5, Cumulative, vec![id(0)]);
    assert_eq!(rig.cursor().mark(), 1);
    rig.ack(5, Cumulative, vec![id(4)]);
    let acked: Vec<u64> = (0..6).filter(|&ordinal| rig.cursor().is_acked(ordinal)).collect();
    assert_eq!((rig.cursor().mark(), acked), (1, vec![0, 2, 4]));
    rig.pass(1_000);
    assert_eq!((rig.first(), rig.again()), (1, vec![5]));
}

/// While an entry could not be read at its old location, its copy was written elsewhere.
#[test]
fn an_entry_that_was_copied_meanwhile_is_delivered_from_there() {
    for (change, expected) in [
        (shared as fn(&mut CommandSubscribe), vec![2]),
        // In order.
        (exclusive, vec![2, 3, 4, 5]),
    ] {
        let mut rig = rig(change);
        let unreadable = damaged(&rig, 2);
        let elsewhere = rig.topic().entries.get(3).unwrap().location;
        rig.machine.state.relocate(0, 2, elsewhere);
        assert_eq!(rig.machine.withhold(&unreadable), None);
        assert_eq!(rig.machine.totals.unreadable, 0);
        assert_eq!(rig.ids(), expected);
    }
}

#[test]
fn one_that_the_cleaner_could_read_is_delivered_again() {
    let mut rig = rig(shared);
    let unreadable = damaged(&rig, 2);
    rig.machine.withhold(&unreadable).unwrap();
    assert!(rig.ids().is_empty());
    rig.machine.is_readable_again(0, 2);
    assert_eq!(rig.ids(), [2]);
    rig.machine.is_readable_again(0, 2);
    assert!(rig.ids().is_empty(), "once");
}

/// Each consumer got it again at once, and an exclusive one everything before it too, with a log
/// line each time.
#[test]
fn beyond_the_limit_it_stays_with_its_consumer_and_is_told_once_a_minute() {
    for change in [shared as fn(&mut CommandSubscribe), exclusive] {
        let mut rig = rig(change);
        rig.machine.totals.unreadable = 10_000;
        let before = permits(&mut rig);
        let unreadable = damaged(&rig, 3);
        assert!(rig.machine.withhold(&unreadable).unwrap().contains("is not set aside"));
        for _ in 0..60 {
            assert_eq!(rig.machine.withhold(&unreadable), None);
            assert_eq!((rig.ids(), permits(&mut rig)), (vec![], before));
            rig.pass(1_000);
        }
        assert!(rig.machine.withhold(&unreadable).is_some());
        assert_eq!(rig.machine.totals.unreadable, 10_000);
        let ids = rig.again();
        assert!(ids.contains(&3), "it is not withheld from who asks for it: {ids:?}");
    }
}

/// Without the entry, the earlier value of its key would be the current one, for ever.
#[test]
fn a_topic_with_one_is_not_compacted() {
    let mut rig = rig(shared);
    rig.set(|policies| policies.compaction_threshold_bytes = Some(5_000));
    let unreadable = damaged(&rig, 3);
    rig.machine.withhold(&unreadable).unwrap();
    let mut warned = Vec::new();
    for second in 1..=8 {
        let effects = rig.pass(1_000);
        assert!(job(&effects).is_none());
        let warns = |effect: &MachineEffect| matches!(effect, MachineEffect::Warn(warning) if warning.contains("is not compacted"));
        warned.extend(effects.iter().any(warns).then_some(second));
    }
    assert_eq!(warned, [1, 3, 7], "with longer and longer pauses");
    let effects = rig.call(BrokerMachine::start_compaction);
    assert!(job(&effects).is_none(), "nor where somebody asks for it");
    let state = rig.asked(TOPIC, |machine, name| machine.compaction_status(name)).0.unwrap();
    assert_eq!(state.status, RunState::Error);
    assert!(state.last_error.contains("message 0:3 cannot be read"), "{}", state.last_error);
    rig.machine.is_readable_again(0, 3);
    assert!(job(&rig.call(BrokerMachine::start_compaction)).is_some());
}

/// A network disk that fails for seconds only costs time.
#[test]
fn what_the_system_refuses_to_read_is_tried_again_with_pauses() {
    let mut rig = rig(shared);
    let before = permits(&mut rig);
    let unreadable = refused(&rig, 2);
    let told = rig.machine.withhold(&unreadable).unwrap();
    assert!(told.contains("0:2") && told.contains("after 1 s"), "{told}");
    assert_eq!((permits(&mut rig), rig.machine.totals.unreadable), (before + 1, 0));
    assert_eq!(rig.again(), [0, 1, 3, 4, 5], "the others need not wait");
    let mut tried = Vec::new();
    for second in 1..=200_u64 {
        let ids = delivered(&rig.pass(1_000));
        if ids.is_empty() {
            continue;
        }
        assert_eq!(ids, [2]);
        tried.push(second);
        let told = rig.machine.withhold(&unreadable);
        assert_eq!(told.is_some(), [63, 123, 183].contains(&second), "{second}: {told:?}");
    }
    assert_eq!(tried, [1, 3, 7, 15, 31, 63, 123, 183]);
    assert_eq!(rig.first(), 0);
}

/// A later value must not come before an earlier one.
#[test]
fn an_exclusive_consumer_waits_for_what_is_tried_again() {
    let mut rig = rig(exclusive);
    let unreadable = refused(&rig, 2);
    rig.machine.withhold(&unreadable).unwrap();
    assert_eq!(rig.again(), [0, 1]);
    rig.ack(5, Cumulative, vec![id(3)]);
    assert_eq!(rig.cursor().mark(), 2, "it got 3 before 2 could not be read");
    assert_eq!(delivered(&rig.pass(1_000)), [2, 4, 5]);
}

impl Rig {
    /// The deliveries after a request for redelivery of everything.
    fn again(&mut self) -> Vec<u64> {
        let all = CommandRedeliverUnacknowledgedMessages { consumer_id: 5, ..Default::default() };
        let effects = self.ask(1, all);
        self.ask(1, CommandFlow { consumer_id: 5, message_permits: 10 });
        delivered(&effects)
    }

    /// The current deliveries.
    fn ids(&mut self) -> Vec<u64> {
        delivered(&self.settle())
    }
}

fn delivered(effects: &[MachineEffect]) -> Vec<u64> {
    let one = |effect: &MachineEffect| match effect {
        MachineEffect::Deliver { command, .. } => Some(command.message_id.entry_id),
        _ => None,
    };
    effects.iter().filter_map(one).collect()
}
