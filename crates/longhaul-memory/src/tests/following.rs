//! Followers: bootstraps, compactions, replays, gaps.

use super::{SOON, at, follower, is_error, is_silent, keys, message, quiet, read, with_faults};
use crate::{Faults, Loss, Sessions};
use longhaul_transport::{Follow, Start, Transport};
use std::time::Duration;
use tokio::time::timeout;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn followers_start_where_they_want_and_go_on() {
    let (broker, worker) = quiet();
    broker.publish(&at(), message("a"));
    let mut all = follower(&worker, false).await;
    let latest = Follow { start: Start::Latest, compacted: false };
    let mut new = worker.follower(&at(), latest).await.unwrap();
    broker.publish(&at(), message("b"));
    assert_eq!(keys(&read(&mut all).await), "a b");
    assert_eq!(keys(&read(&mut new).await), "b");
}

#[tokio::test(start_paused = true)]
async fn followers_that_are_silenced_get_everything_later() {
    let (broker, worker) = quiet();
    let mut follower = follower(&worker, false).await;
    broker.silence_followers(&at(), 60 * SECOND);
    broker.publish(&at(), message("a"));
    broker.publish(&at(), message("b"));
    assert!(timeout(50 * SECOND, follower.next()).await.is_err(), "it is sent something");
    assert!(follower.last_position().await.unwrap().is_some(), "what is there is told");
    tokio::time::sleep(20 * SECOND).await;
    assert_eq!(keys(&read(&mut follower).await), "a b");
}

#[tokio::test(start_paused = true)]
async fn a_compaction_in_the_bootstrap_takes_away_what_was_not_yet_sent() {
    let (broker, worker) = quiet();
    let queue = super::super::session::FOLLOWER_QUEUE;
    for number in 0..queue + 1 {
        broker.publish(&at(), message(&number.to_string()));
    }
    let last = format!("{queue}");
    broker.publish_tombstone(&at(), "0");
    broker.publish_tombstone(&at(), &last);
    let mut follower = follower(&worker, true).await;
    broker.compact(&at());
    let seen = read(&mut follower).await;
    assert_eq!(
        seen.len(),
        queue,
        "0 was on its way before; its tombstone and the last key never are"
    );
    assert_eq!(seen[0].key.as_deref(), Some("0"));
    assert!(seen.iter().all(|message| !message.null && message.key.as_ref() != Some(&last)));
    broker.publish(&at(), message("new"));
    assert_eq!(keys(&read(&mut follower).await), "new");
}

#[tokio::test(start_paused = true)]
async fn compactions_overtake_bootstraps_at_the_rate_of_the_plan() {
    let faults = Faults { compaction_in_bootstrap: 1.0, ..Faults::quiet() };
    let (broker, worker) = with_faults(faults);
    broker.publish(&at(), message("a"));
    for _ in 0..10 {
        read(&mut follower(&worker, true).await).await;
    }
    assert_eq!(broker.with_history(|it| it.count("compacted ")), 10);
}

#[tokio::test(start_paused = true)]
async fn each_loss_of_a_follower_shows_as_it_should() {
    let (broker, worker) = quiet();
    for key in ["a", "a", "b"] {
        broker.publish(&at(), message(key));
    }
    broker.compact(&at());

    let mut gone = follower(&worker, true).await;
    worker.lose(Sessions::Followers, Loss::Error);
    assert!(is_error(&timeout(SOON, gone.next()).await));
    assert!(gone.last_position().await.is_err());

    let mut mute = follower(&worker, true).await;
    read(&mut mute).await;
    worker.lose(Sessions::Followers, Loss::ErrorThenSilence);
    assert!(is_error(&timeout(SOON, mute.next()).await));
    assert!(is_silent(&timeout(600 * SECOND, mute.next()).await));

    let mut slow = follower(&worker, true).await;
    read(&mut slow).await;
    worker.lose(Sessions::Followers, Loss::SilenceThenError(42 * SECOND));
    broker.publish(&at(), message("c"));
    assert!(is_silent(&timeout(41 * SECOND, slow.next()).await));
    assert!(is_error(&timeout(2 * SECOND, slow.next()).await));
}

#[tokio::test(start_paused = true)]
async fn a_reconnect_below_replays_the_whole_view_without_a_word() {
    let (broker, worker) = quiet();
    for key in ["a", "a", "b"] {
        broker.publish(&at(), message(key));
    }
    broker.compact(&at());
    let mut follower = follower(&worker, true).await;
    assert_eq!(keys(&read(&mut follower).await), "a b");
    broker.publish(&at(), message("c"));
    assert_eq!(keys(&read(&mut follower).await), "c");
    worker.lose(Sessions::Followers, Loss::Replay(5 * SECOND));
    assert!(is_silent(&timeout(4 * SECOND, follower.next()).await));
    tokio::time::sleep(SECOND).await;
    assert_eq!(keys(&read(&mut follower).await), "a b c");
    assert!(follower.last_position().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_lags_behind_trimming_skips_without_a_word() {
    let (broker, worker) = quiet();
    let queue = super::super::session::FOLLOWER_QUEUE;
    let mut last = None;
    let mut follower = follower(&worker, false).await;
    for number in 0..queue + 10 {
        last = Some(broker.publish(&at(), message(&number.to_string())).entry_id());
    }
    broker.trim_to(&at(), last.unwrap());
    broker.publish(&at(), message("new"));
    let seen = read(&mut follower).await;
    assert_eq!(seen.len(), queue + 1);
    assert_eq!(seen.last().unwrap().key.as_deref(), Some("new"));
}
