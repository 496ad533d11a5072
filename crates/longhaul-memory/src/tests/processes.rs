//! Faults of one process: cut, frozen, suspended, killed.

use super::{
    SOON, at, consumer, entry, is_error, is_silent, keys, message, publisher, quiet, received, send,
};
use crate::Loss;
use longhaul_transport::{Batching, Transport};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_cut_process_is_alone_until_it_is_restored() {
    let (broker, worker) = quiet();
    let other = broker.connect("other");
    broker.publish(&at(), message("a"));
    let mut held = consumer(&worker).await;
    received(&mut held).await;
    let mut elsewhere = consumer(&other).await;
    worker.cut(Loss::Error);
    assert!(is_error(&timeout(SOON, held.next()).await));
    assert_eq!(keys(&received(&mut elsewhere).await), "a");
    assert!(worker.consumer(&at(), super::GROUP).await.is_err());
    worker.restore();
    consumer(&worker).await;
}

#[tokio::test(start_paused = true)]
async fn a_black_hole_holds_everything_back_and_a_short_one_loses_nothing() {
    let (broker, worker) = quiet();
    let mut held = consumer(&worker).await;
    let mut publisher = publisher(&worker, Batching::Off).await;
    let under_way = send(&mut publisher, "a").await;
    worker.freeze();
    let waiting = send(&mut publisher, "b").await;
    sleep(5 * SECOND).await;
    assert_eq!(keys(&broker.full_log(&at())), "a", "what was under way arrived");
    assert!(is_silent(&timeout(SOON, held.next()).await));
    worker.thaw();
    assert!(under_way.await.is_ok());
    assert!(waiting.await.is_ok());
    let delivered = received(&mut held).await;
    assert_eq!(keys(&delivered), "a b");
    assert!(held.ack(entry(&delivered[0])).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_broker_gives_up_on_a_black_hole() {
    let (broker, worker) = quiet();
    broker.publish(&at(), message("a"));
    let mut held = consumer(&worker).await;
    let mut publisher = publisher(&worker, Batching::Off).await;
    received(&mut held).await;
    let mut other = consumer(&broker.connect("other")).await;
    worker.freeze();
    let never = send(&mut publisher, "b").await;
    sleep(29 * SECOND).await;
    assert!(received(&mut other).await.is_empty(), "it keeps its deliveries for 30 to 60 s");
    sleep(31 * SECOND).await;
    assert_eq!(keys(&received(&mut other).await), "a");
    assert!(is_silent(&timeout(SOON, held.next()).await), "nobody could tell");
    worker.thaw();
    assert!(is_error(&timeout(SOON, held.next()).await));
    assert!(never.await.is_err());
    sleep(SECOND).await;
    assert_eq!(keys(&broker.full_log(&at())), "a", "never sent");
}

#[tokio::test(start_paused = true)]
async fn a_suspended_process_takes_no_step_but_what_it_sent_lands() {
    let (broker, worker) = quiet();
    let mut publisher = publisher(&worker, Batching::Off).await;
    let mut process = JoinSet::new();
    process.spawn(worker.gate().wrap(async move {
        loop {
            drop(send(&mut publisher, "tick").await);
            sleep(SECOND).await;
        }
    }));
    sleep(Duration::from_millis(2_500)).await;
    assert_eq!(broker.full_log(&at()).len(), 3);
    assert!(worker.suspend_for(20 * SECOND));
    sleep(19 * SECOND).await;
    assert_eq!(broker.full_log(&at()).len(), 3);
    sleep(3 * SECOND).await;
    assert!(broker.full_log(&at()).len() > 3);
    worker.suspend();
    let before = broker.full_log(&at()).len();
    sleep(SECOND).await;
    worker.resume();
    sleep(SECOND).await;
    assert!(broker.full_log(&at()).len() > before);
}

#[tokio::test(start_paused = true)]
async fn a_killed_process_is_gone_and_what_it_sent_lands() {
    let (broker, worker) = quiet();
    broker.publish(&at(), message("a"));
    let mut held = consumer(&worker).await;
    received(&mut held).await;
    let mut publisher = publisher(&worker, Batching::Off).await;
    let receipt = send(&mut publisher, "b").await;
    let batched = worker.publisher(&at(), Batching::On, super::TopicSchema::None).await;
    drop(batched.unwrap().send(message("in the batch")).await);
    worker.kill();
    assert!(timeout(SOON, receipt).await.is_err(), "nobody is there to be told");
    assert!(is_error(&timeout(SOON, held.next()).await));
    assert!(worker.consumer(&at(), super::GROUP).await.is_err());
    assert!(worker.freezer.is_frozen());
    worker.resume();
    assert!(worker.freezer.is_frozen(), "for good");
    let mut other = consumer(&broker.connect("worker again")).await;
    assert_eq!(keys(&received(&mut other).await), "a b");
}
