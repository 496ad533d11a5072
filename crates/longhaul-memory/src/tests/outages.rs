//! Faults of the broker: unloads, restarts, hangs, deletions.

use super::{
    GROUP, SOON, at, consumer, entry, follower, is_error, is_silent, keys, message, publisher,
    quiet, read, received, send, with_faults,
};
use crate::{DurationRange, Faults, Loss};
use longhaul_transport::{Batching, Transport, TransportErrorKind};
use std::time::Duration;
use tokio::time::{sleep, timeout};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn an_unload_ends_all_sessions_and_rolls_the_ledger() {
    let (broker, worker) = quiet();
    let first = broker.publish(&at(), message("a"));
    let mut held = consumer(&worker).await;
    let mut follower = follower(&worker, true).await;
    let mut publisher = publisher(&worker, Batching::On).await;
    received(&mut held).await;
    read(&mut follower).await;
    broker.unload(&at(), Loss::Error);
    assert!(is_error(&timeout(SOON, held.next()).await));
    assert!(is_error(&timeout(SOON, follower.next()).await));
    assert!(publisher.send(message("b")).await.is_err());
    assert!(worker.consumer(&at(), GROUP).await.is_err(), "not yet");
    sleep(SECOND).await;
    let second = broker.publish(&at(), message("b"));
    assert!(second.ledger > first.ledger && second.entry == 0);
    assert_eq!(keys(&received(&mut consumer(&worker).await).await), "a b");
}

#[tokio::test(start_paused = true)]
async fn an_unload_as_the_crate_shows_it() {
    let (broker, worker) = quiet();
    broker.publish(&at(), message("a"));
    let mut follower = follower(&worker, true).await;
    let mut publisher = publisher(&worker, Batching::Off).await;
    assert_eq!(read(&mut follower).await.len(), 1);
    let receipt = send(&mut publisher, "b").await;
    broker.unload(&at(), Loss::Replay(5 * SECOND));
    assert!(receipt.await.is_err(), "stored by the first try, at a place that nobody tells");
    sleep(6 * SECOND).await;
    assert_eq!(keys(&read(&mut follower).await), "a b");
    assert!(send(&mut publisher, "c").await.await.is_ok());
}

/// A seed in ten thousand once had two workers run one epoch: its ledger was read out of order,
/// which no broker does.
#[tokio::test(start_paused = true)]
async fn what_waits_for_a_thaw_and_for_the_broker_stays_in_order() {
    let (broker, worker) = quiet();
    let mut follower = follower(&worker, true).await;
    worker.freeze();
    broker.publish(&at(), message("a"));
    sleep(SECOND).await;
    broker.hang(5 * SECOND);
    broker.publish(&at(), message("b"));
    sleep(SECOND).await;
    worker.thaw();
    sleep(5 * SECOND).await;
    assert_eq!(keys(&read(&mut follower).await), "a b");
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_is_down_refuses_and_keeps_its_data() {
    let (broker, worker) = quiet();
    let mut publisher = publisher(&worker, Batching::Off).await;
    let receipt = send(&mut publisher, "a").await;
    broker.restart(6 * SECOND, false, Loss::Error);
    assert!(receipt.await.is_err());
    assert!(publisher.send(message("b")).await.is_err());
    let error = worker.consumer(&at(), GROUP).await.err().unwrap();
    assert_eq!(error.kind, TransportErrorKind::Unreachable);
    sleep(7 * SECOND).await;
    assert_eq!(keys(&received(&mut consumer(&worker).await).await), "a", "stored just before");
}

#[tokio::test(start_paused = true)]
async fn clients_that_reconnect_below_come_back_with_the_broker() {
    let (broker, worker) = quiet();
    broker.publish(&at(), message("a"));
    let mut follower = follower(&worker, true).await;
    read(&mut follower).await;
    broker.restart(6 * SECOND, false, Loss::Replay(SECOND));
    assert!(is_silent(&timeout(5 * SECOND, follower.next()).await));
    sleep(3 * SECOND).await;
    assert_eq!(keys(&read(&mut follower).await), "a");
}

#[tokio::test(start_paused = true)]
async fn a_restart_forgets_acks_above_the_stored_position() {
    let faults = Faults { mark_delete_delay: DurationRange::secs(60, 60), ..Faults::quiet() };
    for (forget, left) in [(true, "a b c"), (false, "b")] {
        let (broker, worker) = with_faults(faults.clone());
        let entries = ["a", "b", "c"].map(|key| broker.publish(&at(), message(key)).entry_id());
        let mut held = consumer(&worker).await;
        held.ack(entries[0]).await.unwrap();
        held.ack(entries[2]).await.unwrap();
        assert_eq!(broker.mark_delete(&at(), GROUP), (Some(entries[0]), None));
        broker.restart(SECOND, forget, Loss::Error);
        sleep(2 * SECOND).await;
        let mut anew = consumer(&worker).await;
        assert_eq!(keys(&received(&mut anew).await), left);
        assert_eq!(
            broker.mark_delete(&at(), GROUP).0,
            (!forget).then_some(entries[0]),
            "a position may go back"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_stored_position_survives_a_restart() {
    let (broker, worker) = quiet();
    let entries = ["a", "b", "c"].map(|key| broker.publish(&at(), message(key)).entry_id());
    let mut held = consumer(&worker).await;
    held.ack(entries[0]).await.unwrap();
    held.ack(entries[2]).await.unwrap();
    broker.restart(SECOND, true, Loss::Error);
    sleep(2 * SECOND).await;
    assert_eq!(keys(&received(&mut consumer(&worker).await).await), "b c");
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_hangs_moves_nothing_and_fails_nothing_at_first() {
    let (broker, worker) = quiet();
    let mut held = consumer(&worker).await;
    let mut publisher = publisher(&worker, Batching::Off).await;
    broker.hang(5 * SECOND);
    let receipt = send(&mut publisher, "a").await;
    assert!(is_silent(&timeout(4 * SECOND, held.next()).await));
    let opened = worker.consumer(&at(), "another").await;
    assert!(opened.is_ok(), "it waited");
    assert!(receipt.await.is_ok());
    assert_eq!(keys(&received(&mut held).await), "a");

    broker.hang(60 * SECOND);
    assert!(worker.consumer(&at(), GROUP).await.is_err(), "10 s is all a client waits");
    assert!(is_error(&timeout(40 * SECOND, held.next()).await), "its keep-alive failed");
    sleep(60 * SECOND).await;
    assert_eq!(keys(&received(&mut consumer(&worker).await).await), "a");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_topic_gives_one_error_and_then_silence_for_ever() {
    let (broker, worker) = quiet();
    let mut follower = follower(&worker, true).await;
    broker.delete_topic(&at().topic, Loss::ErrorThenSilence);
    let error = timeout(SOON, follower.next()).await.unwrap().unwrap_err();
    assert_eq!(error.kind, TransportErrorKind::NotFound);
    sleep(5 * SECOND).await;
    broker.create_topic(&at().topic, Some(1), true);
    broker.publish(&at(), message("a"));
    assert!(is_silent(&timeout(40 * SECOND, follower.next()).await));
    assert_eq!(keys(&read(&mut super::follower(&worker, true).await).await), "a");
}

#[tokio::test(start_paused = true)]
async fn partitions_can_be_added() {
    let (broker, worker) = quiet();
    broker.publish(&at(), message("a"));
    broker.create_topic(&at().topic, Some(3), true);
    assert_eq!(worker.partitions(&at().topic).await.unwrap(), Some(3));
    let third = super::TopicPartition { partition: 2, ..at() };
    let mut held = worker.consumer(&third, GROUP).await.unwrap();
    broker.publish(&third, message("b"));
    let delivered = received(&mut held).await;
    assert_eq!(keys(&delivered), "b");
    assert!(entry(&delivered[0]).ledger > 0);
    assert_eq!(broker.full_log(&at()).len(), 1);
}
