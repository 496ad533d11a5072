//! Consumers: answers and deliveries, from SUBSCRIBE to closing.

use super::support::{id, job, refusal, sent, shared};
use super::*;
use crate::compaction::run;
use crate::machine::dispatcher::DispatchMode;
use crate::machine::effect::MessageSource;
use longhaul_wire::messages::AckType::{Cumulative, Individual};
use longhaul_wire::messages::{CommandCloseConsumer, CommandPong, CommandUnsubscribe};

const SUCCESS: i32 = 13;
const CLOSE_CONSUMER: i32 = 16;
const PING: i32 = 18;

/// A rig with producer 1 and this many entries.
fn rig(entries: u64) -> Rig {
    let mut rig = Rig::with_producer();
    (0..entries).for_each(|_| drop(rig.publish(1, 1, b"x")));
    rig
}

fn subscribe(consumer_id: u64) -> CommandSubscribe {
    CommandSubscribe { request_id: 3, initial_position: Some(1), ..consumer(consumer_id) }
}

fn reader(command: &mut CommandSubscribe) {
    command.durable = Some(false);
}

fn close(consumer_id: u64) -> CommandCloseConsumer {
    CommandCloseConsumer::new(consumer_id, 4)
}

fn seek(consumer_id: u64, message_id: Option<MessageIdData>) -> CommandSeek {
    CommandSeek { consumer_id, request_id: 5, message_id, ..CommandSeek::default() }
}

fn unsubscribe(consumer_id: u64, force: bool) -> CommandUnsubscribe {
    CommandUnsubscribe { consumer_id, request_id: 6, force: force.then_some(true) }
}

fn code(error: ServerError) -> Option<i32> {
    Some(error.into())
}

#[test]
fn what_is_no_subscription_is_refused() {
    let mut rig = rig(0);
    let not_allowed = code(ServerError::NotAllowedError);
    let nameless = CommandSubscribe { subscription: String::new(), ..subscribe(5) };
    assert_eq!(refusal(&rig.ask(1, nameless)), not_allowed);
    let unknown = CommandSubscribe { sub_type: 77, ..subscribe(5) };
    assert_eq!(refusal(&rig.ask(1, unknown)), not_allowed);
    let schema = |kind: SchemaType| Schema { r#type: kind.into(), ..Schema::default() };
    let json = Some(schema(SchemaType::Json));
    rig.ask(1, CommandProducer { schema: json, ..producer(2, 7, AccessMode::Shared) });
    let avro = CommandSubscribe { schema: Some(schema(SchemaType::Avro)), ..subscribe(5) };
    assert_eq!(refusal(&rig.ask(1, avro)), code(ServerError::IncompatibleSchema));
    assert!(rig.topic().subscriptions.is_empty());
}

/// A client that has lost patience asks again, and gets the original answer.
#[test]
fn who_asks_again_has_one_consumer() {
    let mut rig = rig(1);
    assert_eq!(rig.subscribe(1, 5, shared), [0]);
    assert_eq!(names(&rig.ask(1, subscribe(5))), [SUCCESS]);
    assert_eq!(rig.machine.dispatcher(0, 0).unwrap().consumers().len(), 1);
}

#[test]
fn a_connection_has_so_many_consumers() {
    let mut rig = rig(0);
    let with = |id| CommandSubscribe { sub_type: 1, ..subscribe(id) };
    for consumer in 0..10 {
        assert_eq!(names(&rig.ask(1, with(consumer))), [SUCCESS]);
    }
    assert_eq!(refusal(&rig.ask(1, with(10))), code(ServerError::TooManyRequests));
    assert_eq!(names(&rig.ask(2, with(10))), [SUCCESS], "another connection has its own");
    rig.ask(1, close(3));
    assert_eq!(names(&rig.ask(1, with(10))), [SUCCESS]);
}

#[test]
fn a_subscription_stays_as_durable_as_it_was_made() {
    for durable in [false, true] {
        let mut rig = rig(0);
        rig.subscribe(1, 5, |command| command.durable = Some(durable));
        rig.ask(1, CommandSubscribe { subscription: "other".to_owned(), ..subscribe(6) });
        let effects = rig.ask(1, CommandSubscribe { durable: Some(!durable), ..subscribe(7) });
        assert_eq!(refusal(&effects), code(ServerError::NotAllowedError));
        let text = sent(&effects, |command| match command {
            Command::Error(error) => Some(error.message.clone()),
            _ => None,
        });
        assert_eq!(text[0].1.contains("is not durable"), !durable, "{text:?}");
    }
}

/// The first unacknowledged entry of a new subscription, with four entries that came ten seconds
/// apart.
#[test]
fn a_subscription_starts_where_it_was_told() {
    let mut rig = rig(1);
    for _ in 0..3 {
        rig.now += 10_000;
        rig.publish(1, 1, b"x");
    }
    let rollback = |seconds| CommandSubscribe {
        start_message_rollback_duration_sec: Some(seconds),
        initial_position: None,
        ..subscribe(0)
    };
    let at = |entry, initial_position| CommandSubscribe {
        start_message_id: Some(id(entry)),
        initial_position,
        ..subscribe(0)
    };
    let latest = CommandSubscribe { initial_position: None, ..subscribe(0) };
    for (consumer_id, (command, mark)) in (0..).zip([
        (subscribe(0), 0),
        (latest, 4),
        (rollback(15), 2),
        (rollback(0), 4),
        (at(1, None), 1),
        (at(3, None), 3),
        (at(4, None), 4),
        (at(4, Some(1)), 0),
    ]) {
        let subscription = consumer_id.to_string();
        let text = format!("{command:?}");
        rig.ask(1, CommandSubscribe { consumer_id, subscription, ..command });
        let last = rig.topic().subscriptions.values().last().unwrap();
        assert_eq!(last.cursor.mark(), mark, "{text}");
    }
}

/// A reader of the compacted view gets compacted entries although the log has removed them.
#[test]
fn who_reads_the_compacted_view_begins_before_the_log() {
    let mut rig = rig(0);
    for key in ["a", "b", "c"] {
        let partition_key = Some(key.to_owned());
        let metadata = MessageMetadata { partition_key, ..MessageMetadata::default() };
        rig.send(1, b"x", |_, message| message.payload = Payload::new(&metadata, b"x"));
    }
    rig.settle();
    rig.set(|policies| policies.compaction_threshold_bytes = Some(1 << 30));
    rig.subscribe(1, 5, |_| {});
    rig.ack(5, Cumulative, vec![id(2)]);
    let job = job(&rig.call(BrokerMachine::start_compaction)).unwrap();
    let storage = Arc::new(SimulatedStorage::new(3));
    let slots = run::run_into(&mut HashMap::new(), &job, &rig.log.reader(), storage);
    let slots = slots.unwrap();
    rig.machine.compacted(&job, Ok(Arc::clone(&slots)));
    rig.call(BrokerMachine::unload_topic);
    assert_eq!(rig.first(), 3);
    rig.produce(1, 1, AccessMode::Shared).unwrap();
    rig.publish(1, 1, b"y");
    let compacted = |command: &mut CommandSubscribe| {
        command.subscription = "compacted".to_owned();
        command.durable = Some(false);
        command.read_compacted = Some(true);
    };
    let mark = |rig: &Rig| rig.topic().subscriptions.values().last().unwrap().cursor.mark();
    rig.ask(1, CommandSubscribe { subscription: "plain".to_owned(), ..subscribe(6) });
    assert_eq!(mark(&rig), 3);
    let mut command = subscribe(7);
    compacted(&mut command);
    rig.ask(1, command);
    assert_eq!(mark(&rig), 0);
    let flow = |consumer_id| CommandFlow { consumer_id, message_permits: 10 };
    assert_eq!(delivered(&rig.ask(1, flow(6))), [0], "the first of the new ledger");
    let effects = rig.ask(1, flow(7));
    assert_eq!(delivered(&effects), [0, 1, 2, 0]);
    let [MachineEffect::Deliver { source, .. }, ..] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(source, &MessageSource::Compacted(job.file.as_str().into(), slots[0]));
    // Back to the start of the view, and of the log.
    for (consumer, start) in [(7, 0), (6, 3)] {
        rig.ask(1, seek(consumer, Some(MessageIdData::EARLIEST)));
        let id = u32::try_from(consumer).unwrap() - 5;
        assert_eq!(rig.topic().subscriptions[&id].cursor.mark(), start);
    }
}

#[test]
fn consumers_of_a_subscription_agree_on_its_type() {
    let mut rig = rig(0);
    rig.subscribe(1, 5, shared);
    let command = CommandSubscribe { sub_type: 2, ..subscribe(6) };
    assert_eq!(refusal(&rig.ask(1, command.clone())), code(ServerError::ConsumerBusy));
    rig.ask(1, close(5));
    assert_eq!(refusal(&rig.ask(1, command)), None, "nobody is there any more");
    assert_eq!(rig.machine.dispatcher(0, 0).unwrap().kind, DispatchMode::Failover);
}

/// The holder of an exclusive subscription is pinged before others are refused.
#[test]
fn an_exclusive_subscription_has_one_consumer() {
    let mut rig = rig(0);
    rig.subscribe(1, 5, |_| {});
    assert_eq!(refusal(&rig.ask(1, subscribe(6))), code(ServerError::ConsumerBusy));
    let effects = rig.ask(2, subscribe(5));
    assert!(
        matches!(&effects[..], [MachineEffect::Send(1, command)] if command.number() == PING),
        "{effects:?}"
    );
    let effects = rig.ask(1, CommandPong {});
    let refused = sent(&effects, |command| match command {
        Command::Error(error) => Some((error.request_id, error.error)),
        _ => None,
    });
    assert_eq!(refused, [(2, (3, ServerError::ConsumerBusy.into()))]);
}

#[test]
fn a_consumer_has_the_name_and_the_priority_that_it_gave_itself() {
    let mut rig = rig(0);
    let named = |name: &'static str| {
        move |command: &mut CommandSubscribe| {
            shared(command);
            command.consumer_name = Some(name.to_owned());
            command.priority_level = (name == "b").then_some(7);
        }
    };
    rig.subscribe(1, 5, shared);
    rig.subscribe(1, 6, named(""));
    rig.subscribe(2, 5, named("b"));
    let found = rig.machine.dispatcher(0, 0).unwrap().consumers().iter();
    let found: Vec<_> =
        found.map(|consumer| (consumer.name.as_str(), consumer.priority, consumer.since)).collect();
    assert_eq!(found, [("1-5", 0, START), ("1-6", 0, START), ("b", 7, START)]);
}

/// The notifications: connection, consumer, and whether it is active.
fn told(effects: &[MachineEffect]) -> Vec<(u64, u64, bool)> {
    let told = sent(effects, |command| match command {
        Command::ActiveConsumerChange(change) => Some((change.consumer_id, change.is_active?)),
        _ => None,
    });
    told.into_iter().map(|(conn, (consumer, is_active))| (conn, consumer, is_active)).collect()
}

/// No test checked the notifications of a failover subscription: a broker that sent none passed all
/// of them.
#[test]
fn consumers_of_a_failover_subscription_know_which_of_them_is_active() {
    let mut rig = rig(2);
    let named = |name: &str, consumer_id| CommandSubscribe {
        sub_type: 2,
        consumer_name: Some(name.to_owned()),
        ..subscribe(consumer_id)
    };
    let flow = |consumer_id| CommandFlow { consumer_id, message_permits: 10 };
    assert_eq!(names(&rig.ask(1, named("b", 5))), [SUCCESS]);
    let first = rig.ask(1, flow(5));
    assert_eq!((told(&first), delivered(&first)), (vec![(1, 5, true)], vec![0, 1]));
    assert_eq!(names(&rig.ask(2, named("c", 6))), [SUCCESS]);
    let second = rig.ask(2, flow(6));
    assert_eq!(told(&second), [(2, 6, false)]);
    assert!(delivered(&second).is_empty(), "the active one keeps what it has");
    let third = rig.ask(2, named("a", 7));
    assert_eq!((names(&third)[0], told(&third)), (SUCCESS, vec![(1, 5, false), (2, 6, false)]));
    let third = rig.ask(2, flow(7));
    assert_eq!(told(&third), [(2, 7, true)]);
    assert_eq!(delivered(&third), [0, 1], "b has not acknowledged them");
    assert_eq!(told(&rig.ask(2, close(6))), [], "the active one stays");
    let effects = rig.ask(2, close(7));
    assert_eq!(told(&effects), [(1, 5, true)]);
    assert_eq!(delivered(&effects), [0, 1], "in order, from the start");
    let other = |kind| {
        move |command: &mut CommandSubscribe| {
            command.subscription = "other".to_owned();
            command.sub_type = kind;
        }
    };
    for kind in [0, 1] {
        let mut command = subscribe(8);
        other(kind)(&mut command);
        let effects = rig.ask(1, command);
        assert_eq!(told(&effects), [], "nobody of another type is told");
        rig.ask(1, close(8));
    }
}

#[test]
fn what_a_consumer_leaves_behind_goes_to_the_others() {
    let mut rig = rig(3);
    assert_eq!(rig.subscribe(1, 5, shared), [0, 1, 2]);
    rig.ack(5, Individual, vec![id(1)]);
    assert_eq!(rig.subscribe(2, 6, shared), [0; 0]);
    let effects = rig.ask(1, close(5));
    assert_eq!((names(&effects)[0], delivered(&effects)), (SUCCESS, vec![0, 2]));
    assert_eq!(names(&rig.ask(1, close(5))), [SUCCESS], "clients close twice");
    rig.ask(2, close(6));
    assert_eq!(rig.cursor().mark(), 0, "a durable subscription stays");
}

#[test]
fn the_subscription_of_a_reader_goes_with_it() {
    let mut rig = rig(1);
    rig.subscribe(1, 5, reader);
    assert_eq!(rig.figures().messages_out, 1);
    rig.ask(1, close(5));
    assert!(rig.topic().subscriptions.is_empty());
    assert_eq!(rig.figures().messages_out, 0, "nor is it counted");
    assert_eq!(rig.subscribe(1, 5, reader), [0], "a new one begins anew");
}

/// A reader is closed by its own SEEK, and its client subscribes again at once: its subscription
/// must still exist, until the connection ends.
#[test]
fn a_reader_comes_back_to_where_it_went() {
    let mut rig = rig(4);
    let named = |name: &'static str| {
        move |command: &mut CommandSubscribe| {
            reader(command);
            command.subscription = name.to_owned();
        }
    };
    rig.subscribe(1, 5, named("one"));
    rig.subscribe(2, 5, named("two"));
    let end = rig.machine.recorded();
    for (conn, entry) in [(1, 2), (2, 3)] {
        assert_eq!(names(&rig.ask(conn, seek(5, Some(id(entry))))), [CLOSE_CONSUMER, SUCCESS]);
    }
    assert_eq!(rig.machine.recorded(), end, "where a reader stands is not recorded");
    rig.machine.closed(1);
    let left: Vec<_> =
        rig.topic().subscriptions.values().map(|subscription| subscription.name.clone()).collect();
    assert_eq!(left, ["two"]);
    assert_eq!(rig.machine.live[&0].orphans.len(), 1);
    assert_eq!(rig.figures().messages_out, 0);
    assert_eq!(rig.subscribe(2, 5, named("two")), [3]);
}

/// A consumer that takes over the subscription of a reader after SEEK keeps it when the reader's
/// connection ends.
#[test]
fn a_place_that_somebody_else_took_stays() {
    let mut rig = rig(2);
    rig.subscribe(1, 5, reader);
    rig.ask(1, seek(5, Some(id(1))));
    assert_eq!(rig.subscribe(2, 6, reader), [1]);
    rig.machine.closed(1);
    rig.machine.opened(1, String::new());
    rig.ask(1, CommandConnect::default());
    rig.produce(1, 1, AccessMode::Shared).unwrap();
    assert_eq!(delivered(&rig.publish(1, 1, b"x")), [2]);
}

#[test]
fn who_unsubscribes_ends_the_subscription() {
    let mut rig = rig(2);
    assert_eq!(rig.subscribe(1, 5, shared), [0, 1]);
    assert_eq!(names(&rig.ask(1, unsubscribe(5, false))), [SUCCESS]);
    assert!(rig.topic().subscriptions.is_empty());
    assert_eq!(refusal(&rig.ask(1, unsubscribe(5, false))), code(ServerError::MetadataError));
    assert_eq!(rig.subscribe(1, 5, shared), [0, 1], "the number is free, and all begins anew");
}

#[test]
fn who_unsubscribes_others_has_to_force_it() {
    for durable in [true, false] {
        let mut rig = rig(1);
        let both = |command: &mut CommandSubscribe| {
            shared(command);
            command.durable = Some(durable);
        };
        rig.subscribe(1, 5, both);
        rig.subscribe(2, 6, both);
        assert_eq!(refusal(&rig.ask(1, unsubscribe(5, false))), code(ServerError::MetadataError));
        assert_eq!(rig.topic().subscriptions.len(), 1);
        let end = rig.machine.recorded();
        let effects = rig.ask(1, unsubscribe(5, true));
        let closed = sent(&effects, |command| match command {
            Command::CloseConsumer(close) => Some(close.consumer_id),
            _ => None,
        });
        assert_eq!(closed, [(2, 6)]);
        assert!(names(&effects).contains(&SUCCESS) && rig.topic().subscriptions.is_empty());
        assert_eq!(rig.machine.recorded() > end, durable, "the log knows nothing of readers");
    }
}

#[test]
fn who_seeks_says_where_to() {
    let mut rig = rig(1);
    rig.subscribe(1, 5, |_| {});
    assert_eq!(refusal(&rig.ask(1, seek(5, None))), code(ServerError::MetadataError));
    assert_eq!(refusal(&rig.ask(1, seek(6, Some(id(0))))), code(ServerError::MetadataError));
    assert_eq!(rig.machine.dispatcher(0, 0).unwrap().consumers().len(), 1, "nobody was closed");
}

#[test]
fn a_consumer_gets_what_it_asks_for() {
    let mut rig = rig(4);
    rig.ask(1, subscribe(5));
    let flow = |message_permits| CommandFlow { consumer_id: 5, message_permits };
    assert_eq!(delivered(&rig.ask(1, flow(1))), [0]);
    assert_eq!(delivered(&rig.ask(1, flow(2))), [1, 2]);
    let last = rig.ask(1, flow(u32::MAX));
    assert_eq!(delivered(&last), [3]);
    // The last message is still in memory.
    assert!(
        matches!(&last[0], MachineEffect::Deliver { source: MessageSource::Memory(_), .. }),
        "{last:?}"
    );
    assert_eq!((rig.figures().messages_out, rig.machine.totals.deliveries), (4, 4));
    (0..300).for_each(|_| drop(rig.ask(1, flow(u32::MAX))));
    let permits = rig.machine.dispatcher(0, 0).unwrap().consumers()[0].permits;
    assert_eq!(permits, 1 << 40, "as many as nobody needs");
}

/// Deliveries are limited by the bytes that the connection has not taken yet.
#[test]
fn a_connection_has_only_so_much_under_way() {
    let mut rig = rig(0);
    rig.machine.settings.window_bytes = 5_000;
    rig.machine.resize_windows();
    (0..5).for_each(|_| drop(rig.publish(1, 1, &[7; 3000])));
    let first = CommandSubscribe { sub_type: 1, ..subscribe(5) };
    rig.ask(2, CommandSubscribe { subscription: "other".to_owned(), ..first });
    assert_eq!(rig.subscribe(1, 5, shared), [0, 1]);
    assert_eq!(delivered(&rig.ask(1, CommandFlow { consumer_id: 5, message_permits: 1 })), [0; 0]);
    let flow = CommandFlow { consumer_id: 5, message_permits: 2 };
    assert_eq!(delivered(&rig.ask(2, flow)), [0, 1], "another connection has its own");
    let bytes = u64::from(rig.topic().entries.get(0).unwrap().location.size);
    assert_eq!(rig.machine.sessions[&1].under_way, 2 * bytes);
    rig.machine.written(1, bytes);
    assert_eq!(delivered(&rig.settle()), [2], "there is some room again");
    rig.machine.written(1, 100);
    assert_eq!(delivered(&rig.settle()), [0; 0]);
    rig.machine.written(1, 2 * bytes - 100);
    assert_eq!(delivered(&rig.settle()), [3, 4]);
}

#[test]
fn a_delayed_message_wakes_the_machine_when_it_is_due() {
    let mut rig = rig(0);
    let due = START + 500;
    rig.send(1, b"later", |_, message| message.facts.deliver_at = Some(due));
    rig.send(1, b"much later", |_, message| message.facts.deliver_at = Some(START + 100_000));
    rig.settle();
    rig.pass(0);
    assert_eq!(rig.subscribe(1, 5, shared), [0; 0]);
    rig.subscribe(1, 6, |command| command.subscription = "exclusive".to_owned());
    assert_eq!(rig.machine.next_deadline(), due);
    assert_eq!(delivered(&rig.pass(499)), [0; 0]);
    assert_eq!(delivered(&rig.pass(1)), [0]);
    assert_eq!(rig.machine.next_deadline(), START + 1_000, "the next round");
    rig.pass(50_000);
    rig.ask(1, close(5));
    assert!(rig.machine.dues.is_empty(), "nobody waits for it");
}

/// One subscription must not delay all others, however many entries it has to check.
#[test]
fn a_turn_ends_though_there_is_more() {
    let mut rig = rig(0);
    for _ in 0..5_000 {
        rig.send(1, b"x", |_, message| message.facts.deliver_at = Some(START + 100_000));
    }
    rig.send(1, b"x", |_, _| {});
    rig.settle();
    rig.ask(1, CommandSubscribe { sub_type: 1, ..subscribe(5) });
    let flow = CommandFlow { consumer_id: 5, message_permits: 10 };
    assert!(delivered(&rig.at_once(1, flow)).is_empty());
    assert!(rig.machine.dispatch(), "there is more");
    assert!(delivered(&rig.machine.take_effects()).is_empty());
    assert!(!rig.machine.dispatch());
    assert_eq!(delivered(&rig.machine.take_effects()), [5_000]);
}

/// An ack or permits of one consumer made the broker check all subscriptions of the topic, and each
/// turn checked all topics with delayed entries.
#[test]
fn an_event_costs_the_same_however_much_there_is() {
    let mut rig = rig(1);
    rig.machine.settings.handles_per_connection = 1000;
    for number in 0..50 {
        rig.subscribe(1, 100 + number, |command| command.subscription = format!("other-{number}"));
    }
    rig.send(1, b"x", |_, _| {});
    let before = rig.machine.visits;
    rig.settle();
    assert!(rig.machine.visits >= before + 50, "a new entry is for all");
    let visits = |rig: &mut Rig, command: Command| {
        let before = rig.machine.visits;
        rig.ask(1, command);
        rig.pass(0);
        rig.machine.visits - before
    };
    let flow = CommandFlow { consumer_id: 101, message_permits: 1 };
    assert_eq!(visits(&mut rig, flow.into()), 1);
    assert_eq!(visits(&mut rig, flow.into()), 1);
}
