//! The messages that the log of a partition keeps, for each kind of reader.

use super::{at, follower, keys, message, quiet, read};
use bytes::Bytes;
use longhaul_transport::{Position, Transport};

#[tokio::test(start_paused = true)]
async fn compaction_keeps_the_last_of_a_key_and_no_tombstone() {
    let (broker, _) = quiet();
    for key in ["a", "b", "a", "c"] {
        broker.publish(&at(), message(key));
    }
    broker.publish_tombstone(&at(), "b");
    broker.publish(&at(), longhaul_transport::Outgoing::default());
    broker.compact(&at());
    broker.publish(&at(), message("c"));
    assert_eq!(keys(&broker.view(&at(), true)), "a c c", "the tail is not compacted");
    assert_eq!(broker.view(&at(), false).len(), 7);
    broker.compact(&at());
    let view = broker.view(&at(), true);
    assert_eq!(keys(&view), "a c");
    assert_eq!(broker.full_log(&at()).len(), 7);
    assert!(view.iter().all(|message| !message.null));
}

/// Earlier, only messages marked as null were dropped here. A broker checks only the size, so a
/// ledger whose claims had no body was whole in every simulation and lost them on every broker.
#[tokio::test(start_paused = true)]
async fn compaction_takes_whatever_is_empty_for_a_tombstone() {
    let (broker, _) = quiet();
    let empty = |key| longhaul_transport::Outgoing { payload: Bytes::new(), ..message(key) };
    broker.publish(&at(), message("a"));
    broker.publish(&at(), empty("a"));
    broker.publish_batch(&at(), vec![message("b"), empty("b"), message("c"), empty("d")]);
    broker.compact(&at());
    assert_eq!(keys(&broker.view(&at(), true)), "c");
}

#[tokio::test(start_paused = true)]
async fn compaction_ends_at_any_entry_and_never_goes_back() {
    let (broker, _) = quiet();
    let positions: Vec<Position> =
        ["a", "a", "a", "a"].map(|key| broker.publish(&at(), message(key))).to_vec();
    broker.compact_to(&at(), positions[1].entry_id());
    assert_eq!(broker.view(&at(), true).len(), 3);
    broker.compact_to(&at(), positions[2].entry_id());
    assert_eq!(broker.view(&at(), true).len(), 2);
    broker.compact_to(&at(), positions[0].entry_id());
    assert_eq!(broker.view(&at(), true).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn compaction_keeps_places_inside_a_batch() {
    let (broker, _) = quiet();
    let batch = ["a", "b", "a"].map(message).to_vec();
    let positions = broker.publish_batch(&at(), batch);
    broker.compact(&at());
    let view = broker.view(&at(), true);
    assert_eq!(view.iter().map(|it| it.position).collect::<Vec<_>>(), positions[1..]);
    assert_eq!(view[0].batch_size, Some(3));
}

#[tokio::test(start_paused = true)]
async fn last_position_is_that_of_the_view() {
    let (broker, worker) = quiet();
    let mut compacted = follower(&worker, true).await;
    let mut full = follower(&worker, false).await;
    assert_eq!(compacted.last_position().await.unwrap(), None);
    let first = broker.publish(&at(), message("a"));
    broker.publish(&at(), message("b"));
    let last = broker.publish_tombstone(&at(), "b");
    assert_eq!(compacted.last_position().await.unwrap(), Some(last));
    broker.compact(&at());
    assert_eq!(compacted.last_position().await.unwrap(), Some(first));
    assert_eq!(full.last_position().await.unwrap(), Some(last));
}

#[tokio::test(start_paused = true)]
async fn trimmed_messages_are_gone_for_readers_but_not_from_the_compacted_view() {
    let (broker, worker) = quiet();
    let superseded = broker.publish(&at(), message("a"));
    let first = broker.publish(&at(), message("a"));
    let second = broker.publish(&at(), message("b"));
    broker.compact(&at());
    let third = broker.publish(&at(), message("c"));
    assert_eq!(worker.fetch(&at(), first).await.unwrap().unwrap().position, first);
    broker.trim_to(&at(), second.entry_id());
    assert_eq!(worker.fetch(&at(), superseded).await.unwrap(), None);
    let kept = worker.fetch(&at(), first).await.unwrap();
    assert_eq!(kept.map(|message| message.position), Some(first), "compaction has kept it");
    assert!(worker.fetch(&at(), third).await.unwrap().is_some());
    assert_eq!(keys(&read(&mut follower(&worker, false).await).await), "c");
    assert_eq!(keys(&read(&mut follower(&worker, true).await).await), "a b c");
    assert_eq!(keys(&broker.full_log(&at())), "a a b c");
}

#[tokio::test(start_paused = true)]
async fn failed_requests_are_told_and_over() {
    let (broker, worker) = quiet();
    let position = broker.publish(&at(), message("a"));
    broker.fail_requests(&at(), 1);
    assert!(worker.fetch(&at(), position).await.is_err());
    assert!(worker.fetch(&at(), position).await.is_ok());
    assert!(worker.fetch(&at(), Position { entry: 99, ..position }).await.unwrap().is_none());
}

/// Earlier, everything ever published stayed in memory: a simulated year of tasks needed more than
/// 17 GB.
#[tokio::test(start_paused = true)]
async fn a_broker_that_forgets_what_was_trimmed_shows_the_same() {
    let (broker, _) = quiet();
    for round in 0..3 {
        for key in ["a", "b", "a", "c"] {
            broker.publish(&at(), message(key));
        }
        broker.publish_tombstone(&at(), "b");
        broker.compact(&at());
        broker.publish(&at(), message("c"));
        let (compacted, last) = (broker.view(&at(), true), broker.view(&at(), false).pop());
        broker.trim_and_forget(&at());
        assert_eq!(broker.view(&at(), true), compacted, "round {round}");
        assert_eq!(broker.view(&at(), false), Vec::from_iter(last), "round {round}");
        assert_eq!(broker.full_log(&at()).len(), 3, "round {round}: a and c, and c again");
    }
}
