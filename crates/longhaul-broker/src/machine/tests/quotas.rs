//! Quotas of roles, and the shares of connections in what waits to be sent.

use super::support::{named, refusal, shared};
use super::*;
use crate::auth::tests::with_roles_file;
use longhaul_wire::messages::{CommandPartitionedTopicMetadata, CommandUnsubscribe};

const DENIED: i32 = ServerError::NotAllowedError as i32;

/// A rig whose two connections have these roles.
fn rig(quotas: &str, roles: [&str; 2]) -> Rig {
    let auth = with_roles_file(&format!(r#"{{"quotas": {quotas}}}"#));
    Rig::guarded(Some(Arc::new(auth)), roles.map(|role| Some(named(role))))
}

fn produce_to(rig: &mut Rig, conn: u64, id: u64, topic: &str) -> Option<i32> {
    let topic = format!("persistent://public/default/{topic}");
    refusal(&rig.ask(conn, CommandProducer { topic, ..producer(id, 7, AccessMode::Shared) }))
}

fn subscribe_to(rig: &mut Rig, id: u64, name: &str, is_durable: bool) -> Option<i32> {
    let subscription = name.to_owned();
    let durable = Some(is_durable);
    refusal(&rig.ask(2, CommandSubscribe { subscription, durable, ..consumer(id) }))
}

/// Any role that could produce could create topics up to the limit of the whole broker.
#[test]
fn a_role_creates_as_many_topics_as_its_quota_has() {
    let mut rig = rig(r#"{"ann": {"topics": 2}}"#, ["ann", "bob"]);
    assert_eq!(produce_to(&mut rig, 1, 1, "a"), None);
    assert_eq!(produce_to(&mut rig, 1, 2, "b"), None);
    assert_eq!(produce_to(&mut rig, 1, 3, "c"), Some(DENIED));
    assert_eq!(produce_to(&mut rig, 1, 3, "a"), None, "it exists");
    assert_eq!(produce_to(&mut rig, 2, 1, "c"), None, "bob has no quota");
    let asked = CommandPartitionedTopicMetadata { topic: TOPIC.to_owned(), ..<_>::default() };
    rig.ask(1, asked);
    assert_eq!(produce_to(&mut rig, 1, 4, "t"), Some(DENIED));
    // An administrator's topics do not count, and one that is gone does not any more.
    rig.call(|machine, name| machine.make_topic(name, BTreeMap::new()));
    assert_eq!(produce_to(&mut rig, 1, 4, "t"), None);
    rig.machine.call(1, |machine| machine.delete_topic(0)).unwrap();
    rig.settle();
    assert_eq!(produce_to(&mut rig, 1, 5, "d"), None);
    assert_eq!(produce_to(&mut rig, 1, 6, "e"), Some(DENIED));
}

/// A topic takes 10,000 durable subscriptions, and a role could create them on each topic.
#[test]
fn a_role_creates_as_many_durable_subscriptions_as_its_quota_has() {
    let mut rig = rig(r#"{"*": {"subscriptions": 1}}"#, ["ann", "bob"]);
    produce_to(&mut rig, 1, 1, "t");
    assert_eq!(subscribe_to(&mut rig, 1, "reader", false), None);
    assert_eq!(subscribe_to(&mut rig, 2, "one", true), None);
    assert_eq!(subscribe_to(&mut rig, 3, "two", true), Some(DENIED));
    assert_eq!(subscribe_to(&mut rig, 3, "another reader", false), None);
    rig.ask(2, CommandUnsubscribe { consumer_id: 2, request_id: 1, ..<_>::default() });
    assert_eq!(subscribe_to(&mut rig, 4, "two", true), None);
}

/// A rate was that of a topic, and a role could publish to many.
#[test]
fn a_role_is_slowed_down_by_what_it_publishes_to_all_topics_on_all_connections() {
    let mut rig = rig(r#"{"ann": {"messagesPerSecond": 10}}"#, ["ann", "ann"]);
    produce_to(&mut rig, 1, 1, "a");
    produce_to(&mut rig, 2, 1, "b");
    let mut ahead = |conn, count| {
        (0..count).for_each(|_| drop(rig.publish(conn, 1, b"x")));
        rig.machine.take_ahead()
    };
    assert_eq!(ahead(1, 5), 0);
    assert_eq!(ahead(2, 5), 0, "a second's messages are taken at once");
    assert_eq!((ahead(1, 1), ahead(2, 1)), (100, 200));
    // Whoever leaves and comes back is as far ahead as before.
    rig.machine.closed(1);
    rig.machine.closed(2);
    rig.pass(1);
    rig.machine.opened(3, "/test".to_owned());
    let connect = CommandConnect {
        auth_method_name: Some("token".to_owned()),
        auth_data: Some(named("ann").into()),
        ..CommandConnect::default()
    };
    rig.ask(3, connect);
    assert_eq!(rig.machine.take_ahead(), 199);
    produce_to(&mut rig, 3, 1, "a");
    rig.now += 10_000;
    rig.machine.set_time(rig.now, rig.now);
    // A round keeps the pace, and forgets those who are gone.
    rig.machine.tick();
    assert_eq!(rig.publish(3, 1, b"x").len(), 1);
    assert_eq!(rig.machine.take_ahead(), 0);
}

/// Entries of 1,000 bytes that connection 2 is sent at once.
fn sent_at_once(rig: &mut Rig) -> usize {
    let size = rig.topic().entries.iter().next().unwrap().1.location.size;
    assert!((900..1_100).contains(&size), "{size}");
    let mut count = rig.subscribe(2, 1, shared).len();
    count += delivered(&rig.ask(2, CommandFlow { consumer_id: 1, message_permits: 100 })).len();
    count
}

fn with_entries(quotas: &str, window: u64, all: u64) -> Rig {
    let mut rig = rig(quotas, ["ann", "bob"]);
    rig.machine.settings.window_bytes = window;
    rig.machine.settings.unsent_bytes_max = all;
    produce_to(&mut rig, 1, 1, "t");
    (0..50).for_each(|_| drop(rig.publish(1, 1, &[0; 900])));
    rig
}

/// Each connection had its own 4 MiB for what waits to be sent, and nothing limited all of them:
/// 10,000 consumers that read nothing took 40 GB.
#[test]
fn connections_share_the_room_for_what_waits_to_be_sent() {
    let mut rig = with_entries("{}", 64_000, 40_000);
    (3..=8).for_each(|conn| rig.machine.opened(conn, "/test".to_owned()));
    let effects = rig.pass(1000);
    let is_told = |effect: &MachineEffect| matches!(effect, MachineEffect::Window(2, 5_000));
    assert!(effects.iter().any(is_told), "the driver learns the share of eight");
    let count = sent_at_once(&mut rig);
    assert!((5..=6).contains(&count), "{count}");
    // The others leave, and there is room for more although the client has read nothing.
    (3..=8).for_each(|conn| rig.machine.closed(conn));
    let more = delivered(&rig.pass(1000)).len();
    assert!((18..=23).contains(&(count + more)), "{count} and {more}");
    // However many there are, each goes on.
    (3..=1000).for_each(|conn| rig.machine.opened(conn, "/test".to_owned()));
    rig.pass(1000);
    assert_eq!(delivered(&rig.pass(1000)).len(), 0);
    rig.machine.written(2, 64_000);
    assert_eq!(delivered(&rig.settle()).len(), 2, "a 64th of the window, and the rest of an entry");
}

#[test]
fn the_connections_of_a_role_share_its_quota_for_what_waits_to_be_sent() {
    let mut rig = with_entries(r#"{"bob": {"unsentBytes": 10000}}"#, 64_000, 1_000_000);
    rig.pass(1000);
    let count = sent_at_once(&mut rig);
    assert!((10..=11).contains(&count), "{count}");
    let mut rig = with_entries(r#"{"ann": {"unsentBytes": 10000}}"#, 64_000, 1_000_000);
    rig.pass(1000);
    assert_eq!(sent_at_once(&mut rig), 50, "bob has no quota");
}
