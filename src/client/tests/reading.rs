//! The part of a metadata topic that a client keeps, and the part that it reads again.

use super::*;
use crate::transport::Start;

/// A waiting client does not keep payloads and results of the topic's tasks.
#[tokio::test(start_paused = true)]
async fn what_an_entry_says_is_read_again_when_somebody_asks() {
    let bench = bench();
    let large = Bytes::from(format!("\"{}\"", "x".repeat(100_000)));
    bench.show(&TaskMetadata { result: Some(large), ..completed(ID, 1) }, 1);
    for fetched in 1..=2 {
        let result = bench.client.wait::<String>(&task(ID)).await.unwrap();
        assert_eq!(result.len(), 100_000);
        let all = format!("{:?}", bench.client.inner.views);
        let (_, kept) = all.split_once("views: ").unwrap();
        assert!(kept.len() < 2_000 && kept.contains("ended: true"), "{} bytes", kept.len());
        let found = bench.client.get(&task(ID)).await.unwrap();
        assert_eq!(found.unwrap().result.unwrap().len(), 100_002);
        // The first wait began before anything was read, and got the entry as it came.
        assert_eq!(bench.fake.world().fetched, 2 * fetched - 1);
    }
}

/// After an outage a waiting client does not read the whole metadata topic again.
#[tokio::test(start_paused = true)]
async fn who_waits_or_watches_goes_on_behind_what_was_read() {
    let bench = bench();
    bench.show(&processing(ID, 1), 1);
    let mut wait = waiting!(bench);
    let mut watch = bench.client.watch("tasks").await.unwrap();
    assert!(matches!(watch.next().await, Some(Ok(WatchEvent::Updated { .. }))));
    assert_eq!(watch.next().await.unwrap().unwrap(), WatchEvent::CaughtUp);
    bench.fake.break_followers();
    bench.show(&completed(ID, 1), 1);
    assert_eq!(wait.join_next().await.unwrap().unwrap().unwrap(), "done");
    let event = watch.next().await.unwrap().unwrap();
    assert!(matches!(&event, WatchEvent::Updated { metadata, .. } if metadata.is_terminal()));
    let first = bench.fake.world().logs[&bench.metadata][0].position;
    let starts = bench.fake.world().starts.clone();
    assert_eq!(starts[..2], [Start::Earliest; 2]);
    assert_eq!(starts[2..], [Start::After(first); 2]);
}

/// A watch from the latest entry that loses its follower before anything came must not start at the
/// latest entry again: it would miss entries of the outage.
#[tokio::test(start_paused = true)]
async fn a_watch_of_what_is_new_misses_nothing_that_comes_in_an_outage() {
    for stands_there in [false, true] {
        let bench = bench();
        if stands_there {
            bench.show(&processing(OTHER, 1), 1);
        }
        let mut watch = bench.client.queue("tasks").watch_from(WatchFrom::Latest).await.unwrap();
        assert_eq!(watch.next().await.unwrap().unwrap(), WatchEvent::CaughtUp);
        bench.fake.break_followers();
        bench.show(&processing(ID, 1), 1);
        let event = watch.next().await.unwrap().unwrap();
        assert!(matches!(event, WatchEvent::Updated { id: ID, .. }), "{event:?}");
    }
}

/// An entry that compaction has removed was evicted, or replaced by another one.
#[tokio::test(start_paused = true)]
async fn an_end_that_is_not_there_any_more_is_looked_for_behind() {
    let bench = bench();
    let remove = |index: usize| {
        let mut world = bench.fake.world();
        let log = world.logs.get_mut(&bench.metadata).unwrap();
        // The other entries keep their positions.
        log[index].position.ledger = 0;
    };
    bench.show(&completed(ID, 1), 1);
    assert!(bench.client.get(&task(ID)).await.unwrap().is_some());
    remove(0);
    bench.show(&completed(ID, 1), 1);
    assert_eq!(bench.client.wait::<String>(&task(ID)).await.unwrap(), "done");
    remove(1);
    let end = bench.client.wait::<String>(&task(ID)).await;
    assert!(matches!(end, Err(WaitError::Evicted)), "{end:?}");
    assert_eq!(bench.client.get(&task(ID)).await.unwrap(), None);
}

/// While the broker is away a wait continues, also one for an end that was seen before.
#[tokio::test(start_paused = true)]
async fn a_wait_for_an_end_that_was_seen_goes_on_in_an_outage() {
    let bench = bench();
    bench.show(&completed(ID, 1), 1);
    assert!(bench.client.get(&task(ID)).await.unwrap().is_some());
    bench.fake.world().refusals.extend([TransportErrorKind::Unreachable; 20]);
    let mut wait = waiting!(bench);
    sleep(Duration::from_secs(21)).await;
    assert!(wait.try_join_next().is_none(), "the broker is away for longer");
    assert_eq!(wait.join_next().await.unwrap().unwrap().unwrap(), "done");
}

/// Compaction removes tombstones: a lookup made when one was last must not wait for another entry.
#[tokio::test(start_paused = true)]
async fn a_look_is_answered_although_what_stood_last_is_gone() {
    let bench = bench();
    bench.show(&processing(ID, 1), 1);
    assert!(bench.client.get(&task(ID)).await.unwrap().is_some());
    let last = bench.fake.world().logs[&bench.metadata][0].position;
    bench.fake.world().last_before = Some(Position { entry: last.entry + 1, ..last });
    let task = task(ID);
    let mut look = Box::pin(bench.client.get(&task));
    let early = timeout(Duration::from_secs(1), &mut look).await;
    assert!(early.is_err(), "it reads up to there");
    bench.fake.world().last_before = None;
    let found = timeout(Duration::from_secs(20), look).await;
    assert!(found.unwrap().unwrap().is_some());
}

/// Messages that arrive while the log is read to its end come from `follow`, each once.
#[tokio::test(start_paused = true)]
async fn a_log_is_read_to_its_end_and_followed_without_a_gap() {
    let bench = bench();
    let publish = |epoch| bench.show(&processing(ID, epoch), epoch);
    (1..=2).for_each(publish);
    let mut log = bench.client.logs().open(&bench.metadata, true).await.unwrap();
    (3..=5).for_each(publish);
    let mut read = Vec::new();
    while let Some(message) = log.next().await.unwrap() {
        read.push(message.position);
    }
    assert_eq!((read.len(), log.next().await.unwrap()), (2, None), "the end stays the end");
    read.push(log.follow().await.unwrap().position);
    read.extend(log.more().map(|message| message.position));
    while read.len() < 5 {
        read.push(log.follow().await.unwrap().position);
    }
    publish(6);
    read.push(log.follow().await.unwrap().position);
    let stored: Vec<_> =
        bench.fake.world().logs[&bench.metadata].iter().map(|it| it.position).collect();
    assert_eq!(read, stored);
}
