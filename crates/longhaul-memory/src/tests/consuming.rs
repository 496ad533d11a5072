//! Shared subscriptions: turns, acks, redelivery, and the ways a session ends.

use super::{
    GROUP, SOON, at, consumer, entry, is_error, is_silent, keys, message, quiet, received,
    with_faults,
};
use crate::{DurationRange, Faults, Loss, Sessions};
use longhaul_transport::Transport;
use std::time::Duration;
use tokio::time::{sleep, timeout};

#[tokio::test(start_paused = true)]
async fn consumers_take_turns_and_a_new_subscription_starts_at_the_earliest() {
    let (broker, first) = quiet();
    let second = broker.connect("other");
    for key in ["a", "b", "c", "d"] {
        broker.publish(&at(), message(key));
    }
    let mut one = consumer(&first).await;
    assert_eq!(keys(&received(&mut one).await), "a b c d");
    let mut two = consumer(&second).await;
    for key in ["e", "f", "g", "h"] {
        broker.publish(&at(), message(key));
    }
    assert_eq!(received(&mut one).await.len(), 2);
    assert_eq!(received(&mut two).await.len(), 2);
    let mut other = first.consumer(&at(), "another").await.unwrap();
    assert_eq!(keys(&received(&mut other).await), "a b c d e f g h");
}

#[tokio::test(start_paused = true)]
async fn what_is_not_taken_blocks_only_the_small_queue() {
    let (broker, first) = quiet();
    let idle = consumer(&first).await;
    let mut busy = consumer(&broker.connect("other")).await;
    for number in 0..20 {
        broker.publish(&at(), message(&number.to_string()));
    }
    assert_eq!(received(&mut busy).await.len(), 17);
    drop(idle);
    assert_eq!(received(&mut busy).await.len(), 3, "delivered again at once");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_ends_gives_back_what_it_held() {
    let (broker, first) = quiet();
    let mut held = consumer(&first).await;
    let mut other = consumer(&broker.connect("other")).await;
    broker.publish(&at(), message("a"));
    assert_eq!(received(&mut held).await.len(), 1);
    assert!(received(&mut other).await.is_empty());
    drop(held);
    assert_eq!(keys(&received(&mut other).await), "a");
}

#[tokio::test(start_paused = true)]
async fn acks_count_whoever_sends_them_and_move_the_position() {
    let (broker, first) = quiet();
    let mut held = consumer(&first).await;
    let mut other = consumer(&broker.connect("other")).await;
    let positions = ["a", "b", "c"].map(|key| broker.publish(&at(), message(key)).entry_id());
    received(&mut held).await;
    received(&mut other).await;
    other.ack(positions[1]).await.unwrap();
    assert_eq!(broker.mark_delete(&at(), GROUP).0, None, "a gap");
    held.ack(positions[0]).await.unwrap();
    held.ack(positions[0]).await.unwrap();
    assert_eq!(broker.mark_delete(&at(), GROUP).0, Some(positions[1]));
    assert_eq!(broker.backlog(&at(), GROUP), [positions[2]]);
    drop((held, other));
    assert_eq!(keys(&received(&mut consumer(&first).await).await), "c");
}

#[tokio::test(start_paused = true)]
async fn a_handed_back_entry_comes_again_at_once() {
    let (broker, first) = quiet();
    let mut held = consumer(&first).await;
    let batch = ["a", "b"].map(message).to_vec();
    broker.publish_batch(&at(), batch);
    let delivered = received(&mut held).await;
    assert_eq!(keys(&delivered), "a b");
    assert_eq!(delivered[1].batch_size, Some(2));
    let mut other = consumer(&broker.connect("other")).await;
    other.hand_back(entry(&delivered[0])).await.unwrap();
    assert!(received(&mut other).await.is_empty(), "only its holder can give it back");
    held.hand_back(entry(&delivered[0])).await.unwrap();
    let again = [received(&mut held).await, received(&mut other).await].concat();
    assert_eq!(keys(&again), "a b", "the whole entry");
}

#[tokio::test(start_paused = true)]
async fn trimming_takes_what_all_subscriptions_acknowledged() {
    let (broker, first) = quiet();
    let entries = ["a", "b"].map(|key| broker.publish(&at(), message(key)).entry_id());
    broker.trim(&at());
    assert_eq!(broker.view(&at(), false).len(), 2);
    let mut held = consumer(&first).await;
    broker.create_subscription(&at(), "another");
    held.ack(entries[0]).await.unwrap();
    broker.trim(&at());
    assert_eq!(broker.view(&at(), false).len(), 2, "another subscription needs it");
    first.consumer(&at(), "another").await.unwrap().ack(entries[0]).await.unwrap();
    broker.trim(&at());
    assert_eq!(keys(&broker.view(&at(), false)), "b");
    assert_eq!(broker.full_log(&at()).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_lost_ack_is_forgotten_and_its_session_ends() {
    let mut told = 0;
    for seed in 0..20 {
        let broker = super::MemoryBroker::new(seed, Faults::quiet());
        broker.create_topic(&at().topic, Some(1), true);
        let worker = broker.connect("worker");
        let position = broker.publish(&at(), message("a")).entry_id();
        broker.lose_acks(&at(), 1);
        let mut held = consumer(&worker).await;
        received(&mut held).await;
        told += u32::from(held.ack(position).await.is_ok());
        assert!(!broker.is_acked(&at(), GROUP, position));
        assert!(is_error(&timeout(Duration::from_secs(5), held.next()).await));
        assert_eq!(keys(&received(&mut consumer(&worker).await).await), "a");
    }
    assert!((1..20).contains(&told), "a receipt proves nothing: {told}");
}

#[tokio::test(start_paused = true)]
async fn acks_under_way_may_be_lost_with_the_session() {
    let mut faults = Faults::quiet();
    faults.orphan_dropped = 1.0;
    let (broker, worker) = with_faults(faults);
    let entry = broker.publish(&at(), message("a")).entry_id();
    let mut dropped = consumer(&worker).await;
    let receipt = dropped.ack(entry);
    drop(dropped);
    assert!(receipt.await.is_err());
    assert!(!broker.is_acked(&at(), GROUP, entry));
}

#[tokio::test(start_paused = true)]
async fn each_loss_of_a_consumer_shows_as_it_should() {
    let (broker, worker) = quiet();
    broker.publish(&at(), message("a"));
    let second = Duration::from_secs(1);

    let mut gone = consumer(&worker).await;
    assert_eq!(received(&mut gone).await.len(), 1);
    worker.lose(Sessions::Consumers, Loss::Error);
    assert!(is_error(&timeout(SOON, gone.next()).await));
    assert!(is_error(&timeout(SOON, gone.next()).await));

    let mut mute = consumer(&worker).await;
    assert_eq!(received(&mut mute).await.len(), 1);
    worker.lose(Sessions::Consumers, Loss::ErrorThenSilence);
    assert!(is_error(&timeout(SOON, mute.next()).await));
    assert!(is_silent(&timeout(600 * second, mute.next()).await));

    let mut slow = consumer(&worker).await;
    assert_eq!(received(&mut slow).await.len(), 1);
    worker.lose(Sessions::Consumers, Loss::SilenceThenError(40 * second));
    assert!(is_silent(&timeout(39 * second, slow.next()).await));
    assert!(is_error(&timeout(2 * second, slow.next()).await));

    let mut anew = consumer(&worker).await;
    assert_eq!(received(&mut anew).await.len(), 1);
    worker.lose(Sessions::Consumers, Loss::Replay(5 * second));
    assert!(is_silent(&timeout(4 * second, anew.next()).await));
    assert_eq!(keys(&[timeout(2 * second, anew.next()).await.unwrap().unwrap()]), "a");

    worker.lose(Sessions::Consumers, Loss::Silence);
    assert!(is_silent(&timeout(3_600 * second, anew.next()).await));
}

#[tokio::test(start_paused = true)]
async fn a_stalled_subscription_is_healed_by_subscribing_anew() {
    let (broker, worker) = quiet();
    let mut held = consumer(&worker).await;
    broker.stall_subscription(&at(), GROUP);
    broker.publish(&at(), message("a"));
    assert!(is_silent(&timeout(Duration::from_secs(600), held.next()).await));
    assert_eq!(broker.backlog(&at(), GROUP).len(), 1);
    let mut anew = consumer(&worker).await;
    assert_eq!([received(&mut held).await, received(&mut anew).await].concat().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn deliveries_come_twice_and_early() {
    let (broker, worker) = with_faults(Faults { delivered_twice: 1.0, ..Faults::quiet() });
    broker.publish(&at(), message("a"));
    let mut held = consumer(&worker).await;
    assert_eq!(keys(&received(&mut held).await), "a a");
    broker.set_faults(Faults {
        redelivered_early: 1.0,
        redelivered_after: DurationRange::secs(1, 1),
        ..Faults::quiet()
    });
    let mut other = consumer(&broker.connect("other")).await;
    let position = broker.publish(&at(), message("b"));
    let first = [received(&mut held).await, received(&mut other).await].concat();
    assert_eq!(keys(&first), "b");
    broker.set_faults(Faults::quiet());
    sleep(Duration::from_secs(2)).await;
    let second = [received(&mut held).await, received(&mut other).await].concat();
    assert_eq!(keys(&second), "b", "while the first one still holds it");
    broker.redeliver(&at(), GROUP, position.entry_id());
    let third = [received(&mut held).await, received(&mut other).await].concat();
    assert_eq!(keys(&third), "b");
}

#[tokio::test(start_paused = true)]
async fn an_undecodable_message_ends_every_session_that_gets_it() {
    let (broker, worker) = quiet();
    let bad = broker.publish_undecodable(&at());
    for _ in 0..2 {
        let mut held = consumer(&worker).await;
        assert!(is_error(&timeout(SOON, held.next()).await));
    }
    assert_eq!(broker.backlog(&at(), GROUP), [bad.entry_id()]);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_next_loses_nothing() {
    let (broker, worker) = quiet();
    let mut held = consumer(&worker).await;
    for number in 0..50 {
        assert!(is_silent(&timeout(Duration::from_millis(7), held.next()).await));
        broker.publish(&at(), message(&number.to_string()));
        assert_eq!(received(&mut held).await.len(), 1);
    }
}

/// Earlier, a worker's credit had no effect in simulations: the broker delivered ahead regardless
/// of requests.
#[tokio::test(start_paused = true)]
async fn nothing_is_delivered_that_was_not_asked_for() {
    let (broker, worker) = with_faults(Faults { prefetch: 0, ..Faults::quiet() });
    for key in ["a", "b", "c"] {
        broker.publish(&at(), message(key));
    }
    broker.publish_batch(&at(), ["d", "e"].map(message).to_vec());
    broker.publish(&at(), message("f"));
    let mut one = consumer(&worker).await;
    assert!(received(&mut one).await.is_empty());
    one.request(2);
    assert_eq!(keys(&received(&mut one).await), "a b");
    one.request(2);
    assert_eq!(keys(&received(&mut one).await), "c d e", "and the rest of the batch");
    one.request(1);
    assert!(received(&mut one).await.is_empty(), "the rest of the batch counts");
    one.request(1);
    assert_eq!(keys(&received(&mut one).await), "f");
}
