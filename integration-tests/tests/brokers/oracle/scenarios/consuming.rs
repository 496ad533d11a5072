//! Consumers and their deliveries.

use crate::oracle::commands::{
    Slot, ack, batch, close_consumer, flow, keyed, metadata, plain, producer, redeliver, send,
    subscribe,
};
use crate::oracle::stage::Stage;
use anyhow::Result;
use longhaul_wire::messages::{
    CommandConsumerStats, CommandSubscribe, CommandUnsubscribe, InitialPosition, MessageMetadata,
    SubType,
};
use longhaul_wire::payload::Payload;

/// Opens producer 1 and publishes messages with these numbers.
pub(super) async fn publish(stage: &mut Stage, at: usize, topic: &str, count: u64) -> Result<()> {
    stage.ask(at, producer(topic, 1), 1).await?;
    more(stage, at, 0..count).await
}

pub(super) async fn more(
    stage: &mut Stage,
    at: usize,
    numbers: std::ops::Range<u64>,
) -> Result<()> {
    let count = usize::try_from(numbers.end - numbers.start)?;
    for sequence in numbers {
        let (send, payload) = plain(1, sequence);
        stage.send_message(at, send, &payload).await;
    }
    stage.answers(at, count).await
}

/// Ten permits to each, by connection and consumer.
pub(super) async fn permits_for_all(stage: &mut Stage, all: &[(usize, u64)]) -> Result<()> {
    for &(at, id) in all {
        stage.ask(at, flow(id, 10), 0).await?;
    }
    Ok(())
}

pub(super) async fn permits(stage: &mut Stage) -> Result<()> {
    let (a, b) = (stage.connect().await?, stage.connect().await?);
    let topic = stage.topic("t").await?;
    stage.ask(b, subscribe(&topic, 1, SubType::Shared), 1).await?;
    stage.ask(a, producer(&topic, 1), 1).await?;
    let ten: Vec<Slot<'_>> = vec![(None, Some("x")); 10];
    let (command, payload) = batch(1, 0, &ten);
    stage.send_message(a, command, &payload).await;
    stage.answers(a, 1).await?;
    stage.note("nothing without permits");
    stage.quiet().await?;
    stage.note("4 permits: a batch of ten, and none of the singles that follow");
    stage.ask(b, flow(1, 4), 1).await?;
    more(stage, a, 1..5).await?;
    stage.quiet().await?;
    for (permits, expected) in [(5, 0), (1, 0), (1, 1), (2, 2)] {
        stage.note(format!("{permits} permits"));
        stage.ask(b, flow(1, permits), expected).await?;
    }
    stage.note("permits of a consumer that is not there");
    stage.ask(b, flow(77, 5), 0).await?;
    stage.note("no permits");
    stage.ask(b, flow(1, 0), 0).await
}

pub(super) async fn shared_turns(stage: &mut Stage) -> Result<()> {
    let (p, a, b) = (stage.connect().await?, stage.connect().await?, stage.connect().await?);
    let topic = stage.topic("t").await?;
    stage.ask(a, subscribe(&topic, 1, SubType::Shared), 1).await?;
    stage.ask(b, subscribe(&topic, 2, SubType::Shared), 1).await?;
    publish(stage, p, &topic, 8).await?;
    stage.note("two permits each");
    stage.ask(a, flow(1, 2), 2).await?;
    stage.ask(b, flow(2, 2), 2).await?;
    stage.note("one more each, the second first");
    stage.ask(b, flow(2, 1), 1).await?;
    stage.ask(a, flow(1, 1), 1).await?;
    stage.note("the rest to the first");
    stage.ask(a, flow(1, 10), 2).await
}

pub(super) async fn shared_turns_of_new_messages(stage: &mut Stage) -> Result<()> {
    let (p, a, b) = (stage.connect().await?, stage.connect().await?, stage.connect().await?);
    let topic = stage.topic("t").await?;
    stage.ask(a, subscribe(&topic, 1, SubType::Shared), 1).await?;
    stage.ask(b, subscribe(&topic, 2, SubType::Shared), 1).await?;
    stage.ask(a, flow(1, 10), 0).await?;
    stage.ask(b, flow(2, 2), 0).await?;
    stage.ask(p, producer(&topic, 1), 1).await?;
    for number in 0..6 {
        more(stage, p, number..number + 1).await?;
        stage.answers(a, 0).await?;
        stage.answers(b, 0).await?;
    }
    Ok(())
}

pub(super) async fn unacked_limit(stage: &mut Stage) -> Result<()> {
    let (p, a) = (stage.connect().await?, stage.connect().await?);
    let topic = stage.topic("t").await?;
    stage.admin_topic("PUT", &topic, "", "").await?;
    stage.admin_topic("POST", &topic, "/maxUnackedMessagesOnConsumer", "2").await?;
    for _ in 0..100 {
        let limit = stage.admin_topic("GET", &topic, "/maxUnackedMessagesOnConsumer", "").await?;
        if limit == 2 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    stage.ask(a, subscribe(&topic, 1, SubType::Shared), 1).await?;
    stage.ask(a, flow(1, 10), 0).await?;
    stage.ask(p, producer(&topic, 1), 1).await?;
    for number in 0..4 {
        more(stage, p, number..number + 1).await?;
        stage.answers(a, 0).await?;
    }
    stage.note("one is acknowledged");
    let first = stage.id(0);
    stage.ask(a, ack(1, vec![first]), 0).await?;
    stage.note("and the other");
    let second = stage.id(1);
    stage.ask(a, ack(1, vec![second]), 0).await
}

pub(super) async fn closing(stage: &mut Stage) -> Result<()> {
    let (p, a, b) = (stage.connect().await?, stage.connect().await?, stage.connect().await?);
    let topic = stage.topic("t").await?;
    stage.ask(a, subscribe(&topic, 1, SubType::Shared), 1).await?;
    publish(stage, p, &topic, 4).await?;
    stage.ask(a, flow(1, 10), 4).await?;
    let second = stage.id(1);
    stage.ask(a, ack(1, vec![second]), 0).await?;
    stage.ask(b, subscribe(&topic, 2, SubType::Shared), 1).await?;
    stage.ask(b, flow(2, 10), 0).await?;
    stage.note("close");
    stage.ask(a, close_consumer(1, 7), 1).await?;
    stage.answers(b, 3).await?;
    stage.note("close again, and what is not there");
    stage.ask(a, close_consumer(1, 8), 1).await?;
    stage.ask(a, close_consumer(99, 9), 1).await?;
    stage.note("the connection is dropped");
    stage.drop_connection(b).await?;
    let c = stage.connect().await?;
    stage.ask(c, subscribe(&topic, 3, SubType::Shared), 1).await?;
    stage.ask(c, flow(3, 10), 3).await?;
    stage.note("returned by hand, then closed");
    let first = stage.id(0);
    stage.ask(c, redeliver(3, vec![first]), 1).await?;
    stage.ask(c, close_consumer(3, 4), 1).await?;
    stage.ask(c, subscribe(&topic, 5, SubType::Shared), 1).await?;
    stage.ask(c, flow(5, 10), 3).await
}

pub(super) async fn exclusive(stage: &mut Stage) -> Result<()> {
    let (a, b) = (stage.connect().await?, stage.connect().await?);
    let topic = stage.topic("t").await?;
    stage.ask(a, subscribe(&topic, 1, SubType::Exclusive), 1).await?;
    for (id, kind) in [(2, SubType::Exclusive), (3, SubType::Shared), (4, SubType::Failover)] {
        stage.note(format!("{kind:?}"));
        stage.ask(b, subscribe(&topic, id, kind), 1).await?;
    }
    stage.note("the same id again on its own connection");
    stage.ask(a, subscribe(&topic, 1, SubType::Exclusive), 1).await?;
    stage.note("after it was closed");
    stage.ask(a, close_consumer(1, 9), 1).await?;
    for (id, kind) in [
        (5, SubType::Shared),
        (6, SubType::Exclusive),
        (7, SubType::Failover),
        (8, SubType::Shared),
    ] {
        stage.note(format!("{kind:?}"));
        stage.ask(b, subscribe(&topic, id, kind), 1).await?;
    }
    stage.note("names");
    stage
        .ask(
            b,
            CommandSubscribe {
                subscription: String::new(),
                ..subscribe(&topic, 10, SubType::Shared)
            },
            1,
        )
        .await?;
    stage
        .ask(
            b,
            CommandSubscribe { consumer_name: None, ..subscribe(&topic, 11, SubType::Shared) },
            1,
        )
        .await
}

pub(super) async fn failover(stage: &mut Stage) -> Result<()> {
    let (p, a, b) = (stage.connect().await?, stage.connect().await?, stage.connect().await?);
    // For a topic without partitions the broker chooses the active consumer by a hash of its name,
    // which differs from run to run.
    let whole = stage.topic("whole").await?;
    stage.admin_topic("PUT", &whole, "/partitions", "2").await?;
    let topic = stage.topic("whole-partition-0").await?;
    let with = |id, name: &str, priority| CommandSubscribe {
        consumer_name: Some(name.to_owned()),
        priority_level: Some(priority),
        ..subscribe(&topic, id, SubType::Failover)
    };
    stage.ask(b, with(1, "b", 0), 2).await?;
    stage.note("a smaller name");
    stage.ask(a, with(2, "a", 0), 2).await?;
    stage.answers(b, 0).await?;
    stage.note("permits for both");
    stage.ask(a, flow(2, 10), 0).await?;
    stage.ask(b, flow(1, 10), 0).await?;
    publish(stage, p, &topic, 3).await?;
    stage.answers(a, 0).await?;
    stage.answers(b, 0).await?;
    stage.note("a smaller priority");
    // Pulsar takes up to a second to deal to the next one. Until that was awaited the scripts of a
    // busy Pulsar closed the next one before anything was dealt to it.
    stage.ask(a, with(3, "c", -1), 3).await?;
    stage.ask(a, flow(3, 10), 3).await?;
    stage.quiet().await?;
    stage.note("the active ones go");
    // Frames that come at once can come before or after the answer.
    stage.send(a, close_consumer(3, 8)).await;
    stage.answers_sorted(a, 5).await?;
    stage.quiet().await?;
    stage.ask(a, close_consumer(2, 9), 1).await?;
    // Pulsar takes some time to inform the last one, and confirms a message that is published
    // meanwhile first.
    stage.answers(b, 4).await?;
    stage.quiet().await?;
    more(stage, p, 3..4).await?;
    stage.quiet().await
}

pub(super) async fn initial_positions(stage: &mut Stage) -> Result<()> {
    let (p, a) = (stage.connect().await?, stage.connect().await?);
    let topic = stage.topic("t").await?;
    publish(stage, p, &topic, 2).await?;
    let with = |id, subscription: &str, position: InitialPosition| CommandSubscribe {
        subscription: subscription.to_owned(),
        initial_position: Some(position as i32),
        ..subscribe(&topic, id, SubType::Shared)
    };
    for (id, position) in [(1, InitialPosition::Latest), (2, InitialPosition::Earliest)] {
        stage.note(format!("{position:?}"));
        stage.ask(a, with(id, &format!("{position:?}"), position), 1).await?;
        stage.ask(a, flow(id, 10), 0).await?;
    }
    more(stage, p, 2..3).await?;
    stage.answers_sorted(a, 2).await?;
    stage.note("an existing subscription stays where it is");
    let first = stage.id(0);
    stage.ask(a, ack(2, vec![first]), 0).await?;
    stage.ask(a, close_consumer(2, 9), 1).await?;
    stage.ask(a, with(3, "Earliest", InitialPosition::Latest), 1).await?;
    stage.ask(a, flow(3, 10), 2).await
}

pub(super) async fn delayed(stage: &mut Stage) -> Result<()> {
    let (p, a) = (stage.connect().await?, stage.connect().await?);
    let topic = stage.topic("t").await?;
    let other = |id, kind| CommandSubscribe {
        subscription: format!("{kind:?}"),
        ..subscribe(&topic, id, kind)
    };
    for (id, kind) in [(1, SubType::Shared), (2, SubType::Exclusive)] {
        stage.ask(a, other(id, kind), 1).await?;
        stage.send(a, flow(id, 10)).await;
    }
    stage.ask(p, producer(&topic, 1), 1).await?;
    stage.note("late, later, at once, in the past");
    let now = now_ms();
    for (sequence, delay) in [(0, Some(8000)), (1, Some(14_000)), (2, None), (3, Some(-5000))] {
        let metadata = MessageMetadata {
            deliver_at_time: delay.map(|delay| now + delay),
            ..metadata(sequence)
        };
        let payload = Payload::new(&metadata, sequence.to_string().as_bytes());
        stage.send_message(p, send(1, sequence), &payload).await;
    }
    stage.answers(p, 4).await?;
    stage.answers_sorted(a, 6).await?;
    stage.note("the late one");
    stage.answers(a, 1).await?;
    stage.note("the later one");
    stage.answers(a, 1).await
}

#[expect(clippy::disallowed_methods, reason = "a delay counts from now")]
pub(super) fn now_ms() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(now.as_millis()).unwrap()
}

pub(super) async fn stats(stage: &mut Stage) -> Result<()> {
    let (p, a) = (stage.connect().await?, stage.connect().await?);
    let topic = stage.topic("t").await?;
    stage.ask(a, subscribe(&topic, 1, SubType::Shared), 1).await?;
    stage.ask(p, producer(&topic, 1), 1).await?;
    for sequence in 0..3 {
        let (command, payload) = keyed(1, sequence, "k", "v");
        stage.send_message(p, command, &payload).await;
    }
    stage.answers(p, 3).await?;
    stage.ask(a, flow(1, 10), 3).await?;
    stage.ask(a, CommandConsumerStats { request_id: 8, consumer_id: 1 }, 1).await?;
    stage.note("unsubscribe what is not there");
    stage.ask(a, CommandUnsubscribe { consumer_id: 77, request_id: 10, force: None }, 1).await?;
    stage.note("stats of a consumer that is not there");
    stage.ask(a, CommandConsumerStats { request_id: 9, consumer_id: 77 }, 1).await
}
