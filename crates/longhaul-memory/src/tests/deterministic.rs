//! One seed gives one history, and a rough one has every fault.

use super::{GROUP, at, message, tombstone};
use crate::{Faults, MemoryBroker, MemoryTransport};
use longhaul_transport::{Batching, Consumer, Follow, Follower, Start, TopicSchema, Transport};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

const BACKOFF: Duration = Duration::from_millis(200);
const SHORT: Duration = Duration::from_secs(120);
const LONG: Duration = Duration::from_secs(600);
const PATIENCE: Duration = Duration::from_secs(20);

/// A client that reopens everything after every error, publishes, reads, acknowledges.
async fn client(transport: MemoryTransport, number: u32) {
    let mut round = 0;
    loop {
        round += 1;
        if session(&transport, number, round).await.is_none() {
            sleep(BACKOFF).await;
        }
    }
}

async fn session(transport: &MemoryTransport, number: u32, round: u32) -> Option<()> {
    let follow = Follow { start: Start::Earliest, compacted: true };
    let mut publisher = transport.publisher(&at(), Batching::On, TopicSchema::None).await.ok()?;
    let mut consumer = transport.consumer(&at(), GROUP).await.ok()?;
    let mut follower = transport.follower(&at(), follow).await.ok()?;
    for count in 0..20_u32 {
        let key = format!("{number}/{round}/{}", count % 7);
        let receipt = publisher.send(message(&key)).await.ok()?;
        step(round + count, &mut consumer, &mut follower).await?;
        drop(receipt.await);
        if count % 5 == 0 {
            drop(publisher.send(tombstone(&key)).await.ok()?.await);
        }
    }
    Some(())
}

async fn step(
    number: u32,
    consumer: &mut Box<dyn Consumer>,
    follower: &mut Box<dyn Follower>,
) -> Option<()> {
    let delivered = timeout(PATIENCE, consumer.next()).await.ok()?.ok()?;
    let entry = delivered.position.entry_id();
    if (entry.entry + u64::from(number)).is_multiple_of(3) {
        consumer.hand_back(entry).await.ok()?;
    } else {
        consumer.ack(entry).await.ok()?;
    }
    timeout(PATIENCE, follower.next()).await.ok()?.ok()?;
    Some(())
}

/// The history of three clients over this simulated time.
fn history(seed: u64, faults: Faults, time: Duration) -> String {
    let builder =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    builder.unwrap().block_on(async {
        let broker = MemoryBroker::new(seed, faults);
        broker.create_topic(&at().topic, Some(1), seed.is_multiple_of(2));
        let mut clients = JoinSet::new();
        for number in 0..3 {
            let transport = broker.connect(&format!("client {number}"));
            clients.spawn(transport.gate().wrap(client(transport, number)));
        }
        sleep(time).await;
        clients.shutdown().await;
        broker.history().to_string()
    })
}

#[test]
fn one_seed_is_one_history_and_another_seed_another() {
    for seed in 0..8 {
        let first = history(seed, Faults::rough(), SHORT);
        assert!(first.lines().count() > 300, "{first}");
        assert_eq!(first, history(seed, Faults::rough(), SHORT), "seed {seed}");
        assert_ne!(first, history(seed + 100, Faults::rough(), SHORT));
    }
}

#[test]
fn a_rough_plan_meets_every_fault() {
    let all: String = (0..20).map(|seed| history(seed, Faults::rough(), LONG)).collect();
    for text in [
        "Lost",
        "ReceiptLost",
        "Late",
        "Resent(",
        "ResentForReceipt",
        "Refused",
        "dropped a resend",
        "lost on the way",
        "lost the ack",
        "ErrorThenSilence",
        "SilenceThenError",
        "Replay",
        "unloaded",
        "goes down",
        "acks forgotten",
        "hangs for",
        "nothing is stored",
        "compacted",
        "trimmed",
        "falls silent",
        "suspended",
        "is back",
        "handed back",
        "delivered again",
        "while it is held",
        "the broker does not answer",
        "given the client up",
        "never sent",
        "black hole",
        "is cut off",
        "is restored",
    ] {
        assert!(all.contains(text), "never: {text}");
    }
}

#[test]
fn a_plan_ends_when_it_should() {
    let faults = Faults { until: Some(Duration::from_secs(300)), ..Faults::rough() };
    let history = history(3, faults, LONG);
    let (_, calm) = history.split_once("calm").unwrap();
    let lost = calm.lines().filter(|line| line.contains("is lost")).count();
    assert!(lost <= 12, "only what had begun before: {lost}");
    let late = calm.lines().filter(|line| line.starts_with("     5")).count();
    assert!(late > 100, "the clients go on");
}
