//! Topics that end, and the notices to producers and consumers of single partitions.

use crate::oracle::commands::{EARLIEST, ack, flow, plain, producer, reader, subscribe};
use crate::oracle::stage::Stage;
use anyhow::Result;
use longhaul_wire::messages::{CommandProducer, CommandSubscribe, InitialPosition, SubType};

async fn publish(stage: &mut Stage, at: usize, count: u64) -> Result<()> {
    for sequence in 0..count {
        let (send, payload) = plain(1, sequence);
        stage.send_message(at, send, &payload).await;
        stage.answers(at, 1).await?;
    }
    Ok(())
}

async fn terminate(stage: &mut Stage, topic: &str) -> Result<()> {
    let last = stage.admin_topic("POST", topic, "/terminate", "").await?;
    stage.note(format!("terminated behind entry {}", last["entryId"]));
    Ok(())
}

pub(super) async fn terminated(stage: &mut Stage) -> Result<()> {
    let (at, other) = (stage.connect().await?, stage.connect().await?);
    let topic = stage.topic("t").await?;
    stage.ask(at, producer(&topic, 1), 1).await?;
    publish(stage, at, 2).await?;
    stage.ask(other, subscribe(&topic, 2, SubType::Shared), 1).await?;
    stage.ask(other, flow(2, 10), 2).await?;
    terminate(stage, &topic).await?;
    stage.answers(at, 1).await?;
    stage.note("a message of the one that is closed, and a producer");
    let (send, payload) = plain(1, 2);
    stage.send_message(at, send, &payload).await;
    stage.answers(at, 0).await?;
    stage.ask(at, producer(&topic, 3), 1).await?;
    stage.note("acks of the first, of the last");
    stage.ask(other, ack(2, vec![stage.id(0)]), 0).await?;
    stage.ask(other, ack(2, vec![stage.id(1)]), 1).await?;
    stage.note("one that comes when everything is acknowledged");
    stage.ask(other, subscribe(&topic, 4, SubType::Shared), 1).await?;
    stage.ask(other, flow(4, 10), 0).await?;
    let state = stage.admin_topic("GET", &topic, "/internalStats", "").await?;
    stage.note(format!("state {}", state["state"]));
    terminate(stage, &topic).await
}

pub(super) async fn terminated_under_readers(stage: &mut Stage) -> Result<()> {
    let at = stage.connect().await?;
    let topic = stage.topic("t").await?;
    stage.ask(at, producer(&topic, 1), 1).await?;
    publish(stage, at, 1).await?;
    stage.note("an idle reader that has read everything");
    stage.ask(at, reader(&topic, 2, EARLIEST), 1).await?;
    stage.ask(at, flow(2, 10), 1).await?;
    stage.ask(at, ack(2, vec![stage.id(0)]), 0).await?;
    terminate(stage, &topic).await?;
    stage.answers_sorted(at, 2).await
}

/// The notices to the consumers of the second partition when no more consumers come or go.
pub(super) async fn failover_on_a_partition(stage: &mut Stage) -> Result<()> {
    let (first, second) = (stage.connect().await?, stage.connect().await?);
    let topic = stage.topic("t").await?;
    stage.admin_topic("PUT", &topic, "/partitions", "2").await?;
    for partition in [0, 1] {
        let topic = format!("{topic}-partition-{partition}");
        stage.note(format!("partition {partition}"));
        let id = 10 * (partition + 1);
        stage.ask(first, subscribe(&topic, id + 1, SubType::Failover), 2).await?;
        // Pulsar confirms a subscription before or after it names the active consumer.
        stage.send(second, subscribe(&topic, id + 2, SubType::Failover)).await;
        stage.answers_sorted(second, 2).await?;
        stage.answers(first, usize::from(partition == 1)).await?;
    }
    Ok(())
}

pub(super) async fn initial_subscription(stage: &mut Stage) -> Result<()> {
    let at = stage.connect().await?;
    let topic = stage.topic("t").await?;
    let with = |id, name: &str| CommandProducer {
        initial_subscription_name: Some(name.to_owned()),
        ..producer(&topic, id)
    };
    stage.ask(at, with(1, "sub"), 1).await?;
    publish(stage, at, 1).await?;
    stage.note("the same, and none");
    stage.ask(at, with(2, "sub"), 1).await?;
    stage.ask(at, with(3, ""), 1).await?;
    let subscriptions = stage.admin_topic("GET", &topic, "/subscriptions", "").await?;
    stage.note(subscriptions);
    let command = CommandSubscribe {
        initial_position: Some(InitialPosition::Latest as i32),
        ..subscribe(&topic, 4, SubType::Shared)
    };
    stage.ask(at, command, 1).await?;
    stage.ask(at, flow(4, 10), 1).await
}
