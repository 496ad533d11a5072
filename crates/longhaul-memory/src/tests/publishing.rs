//! From a publisher to the log, and what becomes of receipts.

use super::{
    at, follower, is_error, is_silent, keys, message, publisher, quiet, read, send, tombstone,
};
use crate::{Loss, PublishFate, Sessions};
use longhaul_transport::{Batching, Outgoing, PublishError, Transport};
use std::time::Duration;
use tokio::time::{sleep, timeout};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn receipts_name_the_place_of_the_message() {
    let (broker, worker) = quiet();
    let mut single = publisher(&worker, Batching::Off).await;
    let mut batched = publisher(&worker, Batching::On).await;
    let first = send(&mut single, "a").await.await.unwrap();
    let receipts = [send(&mut batched, "b").await, send(&mut batched, "c").await];
    let [second, third] = receipts;
    let places = [first, second.await.unwrap(), third.await.unwrap()];
    let log = broker.full_log(&at());
    assert_eq!(log.iter().map(|it| it.position).collect::<Vec<_>>(), places);
    assert_eq!(places.map(|it| it.batch_index), [None, Some(0), Some(1)]);
    assert_eq!(log[1].batch_size, Some(2));
    assert_eq!(keys(&log), "a b c");
    assert!(log[0].publish_time_ms > 0);
}

#[tokio::test(start_paused = true)]
async fn messages_land_in_the_order_of_sending() {
    let mut faults = super::Faults::quiet();
    faults.publish_delay = super::super::DurationRange::millis(0, 500);
    let (broker, worker) = super::with_faults(faults);
    let mut publisher = publisher(&worker, Batching::Off).await;
    for key in ["a", "b", "c", "d", "e", "f"] {
        drop(send(&mut publisher, key).await);
    }
    sleep(SECOND).await;
    assert_eq!(
        keys(&broker.full_log(&at())),
        "a b c d e f",
        "a dropped receipt takes nothing back"
    );
}

#[tokio::test(start_paused = true)]
async fn unknown_fates_land_or_not() {
    let (broker, worker) = quiet();
    let mut publisher = publisher(&worker, Batching::Off).await;
    broker.next_publish(&at(), PublishFate::Lost);
    broker.next_publish(&at(), PublishFate::ReceiptLost);
    broker.next_publish(&at(), PublishFate::Refused);
    let lost = send(&mut publisher, "lost").await;
    let stored = send(&mut publisher, "stored").await;
    let refused = send(&mut publisher, "refused").await;
    let normal = send(&mut publisher, "normal").await;
    assert!(matches!(refused.await, Err(PublishError::Refused(_))));
    assert!(normal.await.is_ok());
    assert!(matches!(lost.await, Err(PublishError::Unknown(_))));
    assert!(matches!(stored.await, Err(PublishError::Unknown(_))));
    assert_eq!(keys(&broker.full_log(&at())), "stored normal");
}

#[tokio::test(start_paused = true)]
async fn a_late_entry_lands_after_its_session_is_gone() {
    let (broker, worker) = quiet();
    let mut publisher = publisher(&worker, Batching::Off).await;
    broker.next_publish(&at(), PublishFate::Late(60 * SECOND));
    let receipt = send(&mut publisher, "late").await;
    assert!(matches!(receipt.await, Err(PublishError::Unknown(_))));
    assert!(publisher.send(message("more")).await.is_err());
    drop(publisher);
    sleep(59 * SECOND).await;
    assert_eq!(broker.full_log(&at()).len(), 0);
    sleep(2 * SECOND).await;
    assert_eq!(keys(&broker.full_log(&at())), "late");
}

#[tokio::test(start_paused = true)]
async fn a_resend_is_dropped_only_with_deduplication() {
    for (deduplication, expected) in [(true, "a b"), (false, "a b a")] {
        let (broker, worker) = quiet();
        broker.create_topic(&at().topic, Some(1), deduplication);
        let mut publisher = publisher(&worker, Batching::Off).await;
        broker.next_publish(&at(), PublishFate::Resent(SECOND));
        let first = send(&mut publisher, "a").await.await.unwrap();
        let second = send(&mut publisher, "b").await.await.unwrap();
        assert!(first < second);
        sleep(2 * SECOND).await;
        assert_eq!(keys(&broker.full_log(&at())), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn the_receipt_of_a_dropped_resend_names_no_place() {
    let (broker, worker) = quiet();
    let mut publisher = publisher(&worker, Batching::Off).await;
    broker.next_publish(&at(), PublishFate::ResentForReceipt(SECOND));
    let receipt = send(&mut publisher, "a").await;
    assert!(matches!(receipt.await, Err(PublishError::Unknown(_))));
    assert_eq!(keys(&broker.full_log(&at())), "a");
}

#[tokio::test(start_paused = true)]
async fn a_hidden_reconnect_resends_what_has_no_receipt() {
    for (deduplication, copies) in [(true, 1), (false, 2)] {
        let (broker, worker) = quiet();
        broker.create_topic(&at().topic, Some(1), deduplication);
        let mut publisher = publisher(&worker, Batching::Off).await;
        broker.next_publish(&at(), PublishFate::ReceiptLost);
        let first = send(&mut publisher, "a").await;
        sleep(SECOND).await;
        worker.lose(Sessions::Publishers, Loss::Replay(SECOND));
        let second = send(&mut publisher, "b").await;
        assert_eq!(first.await.is_ok(), !deduplication);
        assert!(second.await.is_ok());
        assert_eq!(broker.full_log(&at()).len(), copies + 1);
    }
}

#[tokio::test(start_paused = true)]
async fn each_loss_of_a_publisher_shows_as_it_should() {
    let (_, worker) = quiet();
    let mut gone = publisher(&worker, Batching::Off).await;
    worker.lose(Sessions::Publishers, Loss::Error);
    assert!(gone.send(message("a")).await.is_err());
    assert!(gone.send(message("a")).await.is_err());

    let mut mute = publisher(&worker, Batching::Off).await;
    worker.lose(Sessions::Publishers, Loss::ErrorThenSilence);
    assert!(is_error(&timeout(SECOND, mute.send(message("a"))).await));
    assert!(is_silent(&timeout(600 * SECOND, mute.send(message("a"))).await));

    let mut slow = publisher(&worker, Batching::Off).await;
    worker.lose(Sessions::Publishers, Loss::SilenceThenError(5 * SECOND));
    let receipt = send(&mut slow, "a").await;
    assert!(timeout(4 * SECOND, receipt).await.is_err());
    sleep(2 * SECOND).await;
    assert!(slow.send(message("a")).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_stalled_partition_stores_later() {
    let (broker, worker) = quiet();
    let mut publisher = publisher(&worker, Batching::Off).await;
    broker.stall_publishes(&at(), 26 * SECOND);
    let receipt = send(&mut publisher, "a").await;
    assert!(matches!(receipt.await, Err(PublishError::Unknown(_))), "10 s is all a client waits");
    assert_eq!(broker.full_log(&at()).len(), 0);
    sleep(20 * SECOND).await;
    assert_eq!(keys(&broker.full_log(&at())), "a");
}

#[tokio::test(start_paused = true)]
async fn what_is_under_way_is_lost_from_a_point_on() {
    let mut faults = super::Faults::quiet();
    faults.orphan_dropped = 0.5;
    let (broker, worker) = super::with_faults(faults);
    let mut short = 0;
    for _ in 0..20 {
        let before = broker.full_log(&at()).len();
        let mut publisher = publisher(&worker, Batching::Off).await;
        for key in ["a", "b", "c"] {
            drop(send(&mut publisher, key).await);
        }
        worker.lose(Sessions::Publishers, Loss::Error);
        sleep(SECOND).await;
        let landed = keys(&broker.full_log(&at())[before..]);
        assert!("a b c".starts_with(&landed), "{landed}");
        short += u32::from(landed.len() < 5);
    }
    assert!((5..20).contains(&short), "{short}");
}

#[tokio::test(start_paused = true)]
async fn tombstones_are_null_and_in_order() {
    let (broker, worker) = quiet();
    broker.publish(&at(), message("a"));
    let mut publisher = publisher(&worker, Batching::Off).await;
    for key in ["a", "b"] {
        publisher.send(tombstone(key)).await.unwrap().await.unwrap();
    }
    let log = broker.full_log(&at());
    assert_eq!(keys(&log), "a a b");
    assert!(log[1].null && log[2].null && log[2].payload.is_empty());
    assert_eq!(log[2].batch_size, None);
    broker.compact(&at());
    assert!(read(&mut follower(&worker, true).await).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn too_large_is_refused_and_no_topic_is_not_found() {
    let (_, worker) = quiet();
    let mut publisher = publisher(&worker, Batching::Off).await;
    let payload = vec![0; super::super::publish::MESSAGE_MAX + 1].into();
    let large = publisher.send(Outgoing { payload, ..message("a") }).await.unwrap();
    assert!(matches!(large.await, Err(PublishError::TooLarge { .. })));
    let nowhere = super::TopicPartition { partition: 1, ..at() };
    let error = worker.consumer(&nowhere, super::GROUP).await.err().unwrap();
    assert_eq!(error.kind, longhaul_transport::TransportErrorKind::NotFound);
    assert_eq!(worker.partitions(&at().topic).await.unwrap(), Some(1));
    assert_eq!(worker.partitions("nothing").await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_lets_its_caller_wait() {
    let (broker, worker) = quiet();
    let mut publisher = publisher(&worker, Batching::Off).await;
    broker.stall_publishes(&at(), 3 * SECOND);
    for _ in 0..super::super::session::PUBLISH_QUEUE_MAX {
        drop(send(&mut publisher, "a").await);
    }
    assert!(is_silent(&timeout(SECOND, publisher.send(message("a"))).await));
    assert!(timeout(3 * SECOND, publisher.send(message("a"))).await.is_ok());
}
