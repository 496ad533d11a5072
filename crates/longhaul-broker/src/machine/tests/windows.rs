//! The shares of connections in what waits to be sent.

use super::support::shared;
use super::*;

/// Entries of 1,000 bytes that connection 2 is sent at once.
fn sent_at_once(rig: &mut Rig) -> usize {
    let size = rig.topic().entries.iter().next().unwrap().1.location.size;
    assert!((900..1_100).contains(&size), "{size}");
    let mut count = rig.subscribe(2, 1, shared).len();
    count += delivered(&rig.ask(2, CommandFlow { consumer_id: 1, message_permits: 100 })).len();
    count
}

/// Each connection had its own 4 MiB for what waits to be sent, and nothing limited all of them:
/// 10,000 consumers that read nothing took 40 GB.
#[test]
fn connections_share_the_room_for_what_waits_to_be_sent() {
    let mut rig = Rig::with_producer();
    rig.machine.settings.window_bytes = 64_000;
    rig.machine.settings.unsent_bytes_max = 40_000;
    (0..50).for_each(|_| drop(rig.publish(1, 1, &[0; 900])));
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

/// A client with consumers on several topics got nothing of the younger ones while an older one had
/// a backlog: ten small messages came 15 s late, behind 30 MB of another topic, because the first
/// subscription took the whole window of the connection each time.
#[test]
fn the_subscriptions_of_a_slow_connection_take_turns() {
    let mut rig = Rig::with_producer();
    rig.machine.settings.window_bytes = 16_000;
    (0..100).for_each(|_| drop(rig.publish(1, 1, &[0; 900])));
    let mut producer = producer(2, 2, AccessMode::Shared);
    "persistent://public/default/younger".clone_into(&mut producer.topic);
    rig.ask(1, producer);
    (0..3).for_each(|_| drop(rig.publish(1, 2, b"small")));
    for (consumer_id, topic) in [(1, TOPIC), (2, "persistent://public/default/younger")] {
        let mut subscribe = consumer(consumer_id);
        topic.clone_into(&mut subscribe.topic);
        shared(&mut subscribe);
        subscribe.subscription = "turns".to_owned();
        subscribe.initial_position = Some(1);
        rig.ask(2, subscribe);
    }
    rig.pass(1000);
    let flow = |consumer_id| CommandFlow { consumer_id, message_permits: 1_000 };
    let ids = |effects: &[MachineEffect]| -> Vec<u64> {
        effects
            .iter()
            .filter_map(|effect| match effect {
                MachineEffect::Deliver { command, .. } => Some(command.consumer_id),
                _ => None,
            })
            .collect()
    };
    let first = ids(&rig.ask(2, flow(1)));
    assert!(first.len() >= 15 && first.iter().all(|&id| id == 1), "alone it has all: {first:?}");
    assert_eq!(ids(&rig.ask(2, flow(2))), [0; 0], "the window is full");
    rig.machine.written(2, 4_000);
    let next = ids(&rig.settle());
    assert_eq!(next.iter().filter(|&&id| id == 2).count(), 3, "{next:?}");
    // The window stays in use.
    rig.machine.written(2, 4_000);
    assert!(ids(&rig.settle()).len() >= 4);
}
