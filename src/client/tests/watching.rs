//! The events of a watch, and the log lines of outages.

use super::*;
use crate::captured::CapturedLog;
use crate::client::ReadError;

#[tokio::test(start_paused = true)]
async fn a_watch_shows_updates_evictions_and_garbage() {
    let bench = bench();
    bench.show(&processing(ID, 1), 1);
    let mut watch = bench.client.watch("tasks").await.unwrap();
    bench.fake.append(&bench.metadata, tombstone(0, ID));
    let mut garbage = entry(0, &processing(ID, 1), None);
    garbage.payload = Bytes::from_static(b"{}");
    bench.fake.append(&bench.metadata, garbage);
    bench.show(&completed(OTHER, 2), 2);
    let events: Vec<_> = watch.by_ref().take(5).try_collect().await.unwrap();
    let updated = |id, metadata, epoch| WatchEvent::Updated { id, metadata, epoch: Some(epoch) };
    assert_eq!(events[0], updated(ID, processing(ID, 1), 1));
    assert_eq!(events[1], WatchEvent::CaughtUp);
    assert_eq!(events[2], WatchEvent::Evicted { id: ID });
    let WatchEvent::Undecodable { key, position, .. } = &events[3] else { panic!("{events:?}") };
    assert_eq!((key.as_deref(), position.entry), (Some("1:1:-1"), 2));
    assert_eq!(events[4], updated(OTHER, completed(OTHER, 2), 2));
    assert!(timeout(Duration::from_secs(1), watch.next()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_watch_goes_on_after_a_break_and_shows_nothing_twice() {
    let bench = bench();
    bench.show(&processing(ID, 1), 1);
    let mut watch = bench.client.queue("tasks").watch_from(WatchFrom::Latest).await.unwrap();
    bench.fake.world().refusals.push_back(TransportErrorKind::Unreachable);
    bench.fake.break_followers();
    bench.show(&completed(ID, 1), 1);
    assert_eq!(watch.next().await.unwrap().unwrap(), WatchEvent::CaughtUp);
    let event = watch.next().await.unwrap().unwrap();
    assert!(matches!(&event, WatchEvent::Updated { metadata, .. } if metadata.is_terminal()));

    bench.fake.world().refusals.push_back(TransportErrorKind::NotFound);
    bench.fake.break_followers();
    let end = watch.next().await;
    assert!(matches!(end, Some(Err(ReadError::Transport(_)))), "{end:?}");
    assert!(watch.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn another_watch_goes_on_where_one_has_stopped() {
    let bench = bench();
    let name = bench.metadata.topic.clone();
    bench.fake.world().partitions.insert(name.clone(), 2);
    let at = |index| TaskId { partition: index, ..ID };
    let put = |index, attempt| {
        let shown = entry(0, &processing(at(index), attempt), Some(1));
        bench.fake.append(&partition(name.clone(), index), shown);
    };
    let seen = |event: WatchEvent| {
        let WatchEvent::Updated { id, metadata, .. } = event else { return None };
        Some((id.partition, metadata.attempts))
    };
    put(0, 1);
    put(1, 1);
    put(0, 2);
    let mut watch = bench.client.watch("tasks").await.unwrap();
    let mut first = Vec::new();
    while first.len() < 2 {
        first.extend(seen(watch.next().await.unwrap().unwrap()));
    }
    let place: WatchPlace = watch.place().to_string().parse().unwrap();
    assert_eq!(&place, watch.place());
    drop(watch);
    put(1, 3);
    let mut watch =
        bench.client.queue("tasks").watch_from(WatchFrom::After(place.clone())).await.unwrap();
    let mut rest = Vec::new();
    while first.len() + rest.len() < 4 {
        rest.extend(seen(watch.next().await.unwrap().unwrap()));
    }
    let mut all = [first, rest].concat();
    all.sort_unstable();
    assert_eq!(all, [(0, 1), (0, 2), (1, 1), (1, 3)], "each is shown once");
    assert!(
        timeout(Duration::from_secs(1), watch.next())
            .await
            .is_ok_and(|it| { matches!(it, Some(Ok(WatchEvent::CaughtUp))) })
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_covers_all_partitions_and_new_ones() {
    let bench = bench();
    let name = bench.metadata.topic.clone();
    bench.fake.world().partitions.insert(name.clone(), 2);
    let mut watch = bench.client.watch("tasks").await.unwrap();
    bench.fake.world().partitions.insert(name.clone(), 3);
    for index in 0..3 {
        let id = TaskId { partition: index, ..ID };
        bench.fake.append(&partition(name.clone(), index), entry(0, &processing(id, 1), Some(1)));
    }
    let mut seen = Vec::new();
    while seen.len() < 3 {
        let event = watch.next().await.unwrap().unwrap();
        if event == WatchEvent::CaughtUp {
            continue;
        }
        let WatchEvent::Updated { id, .. } = event else { panic!("{event:?}") };
        seen.push(id.partition);
    }
    seen.sort_unstable();
    assert_eq!(seen, [0, 1, 2]);
}

/// `CaughtUp` tells past events from new ones, and so when a table of all tasks is complete.
#[tokio::test(start_paused = true)]
async fn a_watch_says_once_that_it_has_caught_up_with_all_partitions() {
    let bench = bench();
    let name = bench.metadata.topic.clone();
    bench.fake.world().partitions.insert(name.clone(), 3);
    let show = |index, entry_id| {
        let id = TaskId { partition: index, entry: entry_id, ..ID };
        bench.fake.append(&partition(name.clone(), index), entry(0, &processing(id, 1), Some(1)));
    };
    // The third partition is empty.
    for (index, entry_id) in [(0, 1), (1, 1), (1, 2)] {
        show(index, entry_id);
    }
    let mut watch = bench.client.watch("tasks").await.unwrap();
    // After an outage it finds the same entries.
    bench.fake.break_followers();
    for _ in 0..3 {
        let event = watch.next().await.unwrap().unwrap();
        assert!(matches!(event, WatchEvent::Updated { .. }), "{event:?}");
    }
    assert_eq!(watch.next().await.unwrap().unwrap(), WatchEvent::CaughtUp);
    assert!(timeout(Duration::from_secs(1), watch.next()).await.is_err());
    show(0, 3);
    let event = watch.next().await.unwrap().unwrap();
    assert!(matches!(event, WatchEvent::Updated { .. }), "{event:?}");
    let mut latest = bench.client.queue("tasks").watch_from(WatchFrom::Latest).await.unwrap();
    assert_eq!(latest.next().await.unwrap().unwrap(), WatchEvent::CaughtUp);
    // Another watch continues from its place, and reads an empty partition from its start.
    assert_eq!(latest.place().to_string(), "0@7:1,1@7:1");
    show(2, 4);
    let mut on = bench
        .client
        .queue("tasks")
        .watch_from(WatchFrom::After(latest.place().clone()))
        .await
        .unwrap();
    let event = on.next().await.unwrap().unwrap();
    assert!(matches!(event, WatchEvent::Updated { id: TaskId { entry: 4, .. }, .. }), "{event:?}");
}

/// Compaction removes tombstones: a watch that began when one was last must not wait for another
/// entry.
#[tokio::test(start_paused = true)]
async fn a_watch_catches_up_although_what_stood_last_is_gone() {
    let bench = bench();
    bench.show(&processing(ID, 1), 1);
    bench.fake.append(&bench.metadata, tombstone(0, OTHER));
    let mut watch = bench.client.watch("tasks").await.unwrap();
    bench.fake.world().logs.get_mut(&bench.metadata).unwrap().pop();
    let event = watch.next().await.unwrap().unwrap();
    assert!(matches!(event, WatchEvent::Updated { .. }), "{event:?}");
    let caught_up = timeout(Duration::from_secs(60), watch.next()).await;
    assert_eq!(caught_up.unwrap().unwrap().unwrap(), WatchEvent::CaughtUp);
}

/// A task's entry with a key.
fn keyed(metadata: TaskMetadata, key: &str, created: u64) -> TaskMetadata {
    TaskMetadata { task_key: Some(key.to_owned()), created, ..metadata }
}

/// A task is found by its key, without its id.
#[tokio::test(start_paused = true)]
async fn a_task_is_found_and_watched_by_the_key_that_its_submitter_gave_it() {
    let bench = bench();
    assert_eq!(bench.client.queue("tasks").find("order").await.unwrap(), None);
    let newer = TaskId { entry: 9, ..ID };
    bench.show(&keyed(processing(newer, 1), "order", 7), 1);
    bench.show(&keyed(processing(ID, 1), "order", 3), 1);
    bench.show(&keyed(processing(OTHER, 1), "another", 9), 1);
    let queue = bench.client.queue("tasks");
    let find = || queue.find("order");
    assert_eq!(find().await.unwrap(), Some(task(newer)));
    bench.fake.append(&bench.metadata, tombstone(0, newer));
    assert_eq!(find().await.unwrap(), Some(task(ID)));

    let mut watch = bench.client.watch("tasks").await.unwrap().with_key("another");
    // An entry without the key: its worker could not read the task's message any more.
    bench.show(&completed(OTHER, 2), 2);
    bench.show(&keyed(completed(ID, 1), "order", 3), 1);
    bench.fake.append(&bench.metadata, tombstone(0, ID));
    bench.fake.append(&bench.metadata, tombstone(0, OTHER));
    let events: Vec<_> = watch.by_ref().take(4).try_collect().await.unwrap();
    let attempts = |event: &WatchEvent| {
        let WatchEvent::Updated { id: OTHER, metadata, .. } = event else { return None };
        Some(metadata.attempts)
    };
    assert_eq!((attempts(&events[0]), attempts(&events[2])), (Some(1), Some(2)), "{events:?}");
    assert_eq!(events[1], WatchEvent::CaughtUp);
    assert_eq!(events[3], WatchEvent::Evicted { id: OTHER });
    assert!(timeout(Duration::from_secs(1), watch.next()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_key_goes_with_the_task_and_one_that_nobody_would_show_is_refused() {
    let bench = bench();
    let submission = || bench.client.submission("tasks", &Text("task".to_owned()));
    for key in [String::new(), "x".repeat(257)] {
        let refused = submission().key(key.clone()).send().await;
        assert!(
            matches!(refused, Err(SubmitError::Key(bytes)) if bytes == key.len()),
            "{refused:?}"
        );
    }
    for task_type in [String::new(), "x".repeat(129)] {
        let refused = submission().task_type(task_type.clone()).send().await;
        assert!(
            matches!(refused, Err(SubmitError::Type(bytes)) if bytes == task_type.len()),
            "{refused:?}"
        );
    }
    for (name, submission) in [
        ("TASK_KEY", submission().key("a\0b")),
        ("TASK_TYPE", submission().task_type("a\0b")),
        ("TAGS", submission().tag("a").tag("b\0")),
    ] {
        let refused = submission.send().await.unwrap_err().to_string();
        assert!(refused.starts_with(&format!("{name}: it contains a NUL")), "{refused}");
    }
    submission().key("order").task_type("print").send().await.unwrap();
    let log = bench.fake.world().logs[&partition(TASKS.to_owned(), -1)].clone();
    assert_eq!((log.len(), log[0].properties.get("TASK_KEY")), (1, Some("order")));
    assert_eq!(log[0].properties.get("TASK_TYPE"), Some("print"));
}

/// An outage is logged once, and so is its end, rather than each try of each follower.
#[tokio::test(start_paused = true)]
async fn an_outage_of_a_client_is_told_once_and_so_is_its_end() {
    let (log, _guard) = CapturedLog::capture();
    let bench = bench();
    let mut wait = waiting!(bench);
    let mut watch = bench.client.watch("tasks").await.unwrap();
    assert_eq!(watch.next().await.unwrap().unwrap(), WatchEvent::CaughtUp);
    for outage in 1..=2 {
        bench.fake.world().refusals.extend([TransportErrorKind::Unreachable; 10]);
        bench.fake.break_followers();
        assert!(timeout(Duration::from_secs(60), watch.next()).await.is_err());
        assert!(bench.fake.world().refusals.is_empty());
        let lines = |words: &[&str]| log.with(&[&["of=\"client\""], words].concat()).len();
        assert_eq!(lines(&["WARN", "connection lost"]), outage, "{:#?}", log.with(&[]));
        assert_eq!(lines(&["INFO", "connected again"]), outage, "{:#?}", log.with(&[]));
        assert_eq!(log.with(&["WARN"]).len(), outage, "{:#?}", log.with(&[]));
    }
    bench.show(&completed(ID, 1), 1);
    assert_eq!(wait.join_next().await.unwrap().unwrap().unwrap(), "done");
}
