//! Reading a queue that does not exist is an error, and creates nothing.

use super::*;
use crate::ops::{DeadLetterFilter, PastInstant, TaskFilter};
use crate::transport::TransportError;
use longhaul_core::task::Priority;
use std::error::Error;
use tokio::time::advance;

/// The kind of the transport error in an error's source chain, if there is one.
fn kind(error: &(dyn Error + 'static)) -> Option<TransportErrorKind> {
    let own = error.downcast_ref::<TransportError>().map(|it| it.kind);
    own.or_else(|| kind(error.source()?))
}

macro_rules! refused {
    ($($look:expr),* $(,)?) => {
        [$((stringify!($look), $look.await.err().and_then(|error| kind(&error)))),*]
    };
}

/// `runs-high` is a level only where there is a queue `runs`.
#[tokio::test(start_paused = true)]
async fn a_queue_may_have_the_name_of_a_level() {
    let is_refused = async |missing: &[&str]| {
        let bench = bench();
        bench.fake.world().missing.extend(missing.iter().map(|&topic| topic.to_owned()));
        let names = bench.client.names("runs-high").unwrap();
        matches!(bench.client.refuse_level(&names).await, Err(ActionError::Level(_)))
    };
    assert!(is_refused(&[]).await);
    assert!(!is_refused(&["persistent://public/default/runs"]).await);
}

/// A misspelt name must not show an empty queue, nor leave a ledger and a metadata topic behind.
#[tokio::test(start_paused = true)]
async fn a_queue_that_does_not_exist_is_told_and_not_made() {
    let bench = bench();
    bench.fake.world().missing.insert(TASKS.to_owned());
    let (client, task) = (&bench.client, task(ID));
    let letters = client.queue("tasks").dead_letters().await.unwrap();
    let looks = refused![
        client.get(&task),
        client.wait::<Text>(&task),
        client.queue(&task.topic).submitted(task.id),
        client.queue(&task.topic).history(task.id),
        client.cancel(&task),
        client.cancellation(&task).kill().send(),
        client.queue(&task.topic).delete(task.id, ""),
        client.queue(&task.topic).force_fail(task.id, Some(1), ""),
        client.queue("tasks").tasks(),
        client.queue("tasks").claimed_tasks(),
        client.queue("tasks").tasks_at(PastInstant::Time(1)),
        client.queue("tasks").find("key"),
        client.queue("tasks").verify(),
        client.queue("tasks").zombies(),
        client.queue("tasks").action_log(1),
        async { client.queue("tasks").purge(TaskFilter::new(), "").await.map(drop) },
        client.queue("tasks").drain_worker("worker", ""),
        letters.list(&DeadLetterFilter::new(), None, 1),
        letters.show(&task),
        letters.replay(&task, ""),
        letters.purge_one(&task, ""),
        async { letters.purge(DeadLetterFilter::new(), "").try_next().await },
        async { letters.replay_all(DeadLetterFilter::new(), "").try_next().await },
    ];
    for (look, kind) in looks {
        assert_eq!(kind, Some(TransportErrorKind::NotFound), "{look}");
    }
    assert_eq!(bench.fake.world().opened, Vec::<String>::new());
    assert!(!client.queue("tasks").exists().await.unwrap());
    let wrong = client.queue("a/b").exists().await.unwrap_err();
    assert_eq!(wrong.kind, TransportErrorKind::Invalid);
}

/// A submission to a level without workers creates its task topic only, so the ledger tells whether
/// the level is served.
#[tokio::test(start_paused = true)]
async fn a_level_is_there_when_it_has_a_ledger() {
    let bench = bench();
    let has = async |priority| bench.client.queue("tasks").has_level(priority).await.unwrap();
    assert!(has(Priority::High).await && has(Priority::Normal).await);
    bench.fake.world().missing.insert(format!("{TASKS}-high-ledger"));
    assert!(!has(Priority::High).await && has(Priority::Low).await);
    assert_eq!(bench.fake.world().opened, Vec::<String>::new());
}

/// A watch may start before the first task.
#[tokio::test(start_paused = true)]
async fn a_watch_may_come_before_its_queue() {
    let bench = bench();
    bench.fake.world().missing.insert(TASKS.to_owned());
    let mut watch = bench.client.watch("tasks").await.unwrap();
    assert_eq!(watch.next().await.unwrap().unwrap(), WatchEvent::CaughtUp);
}

/// The client's own submission created one queue; its worker is about to create the other.
#[tokio::test(start_paused = true)]
async fn a_client_knows_the_queues_that_it_makes() {
    let bench = bench();
    bench.fake.world().missing.insert(TASKS.to_owned());
    let task = bench.submit().await.unwrap();
    assert_eq!(bench.client.get(&task).await.unwrap(), None);
    let other = super::bench();
    other.fake.world().missing.insert(TASKS.to_owned());
    assert!(other.client.queue("tasks").find("key").await.is_err());
    drop(other.client.leases("tasks"));
    assert!(other.client.queue("tasks").find("key").await.is_ok());
}

/// A cached answer must expire, or a read would create a deleted queue anew.
#[tokio::test(start_paused = true)]
async fn a_queue_is_asked_for_twice_a_minute() {
    for submits in [false, true] {
        let bench = bench();
        let find = async || bench.client.queue("tasks").find("key").await;
        if submits {
            bench.submit().await.unwrap();
        }
        assert!(find().await.is_ok());
        bench.fake.world().missing.insert(TASKS.to_owned());
        advance(Duration::from_secs(29)).await;
        assert!(find().await.is_ok(), "it is not asked for at each read");
        assert!(bench.client.get(&task(ID)).await.is_ok());
        advance(Duration::from_secs(2)).await;
        let opened = bench.fake.world().opened.len();
        assert!(find().await.is_err());
        assert!(bench.client.wait_metadata(&task(ID)).await.is_err());
        assert_eq!(bench.fake.world().opened.len(), opened, "nothing was made");
        // The queue was created again by another client; the next read finds it.
        bench.fake.world().missing.clear();
        assert!(find().await.is_ok());
    }
}

/// A view of a queue and a watch that were open while another client deleted it opened their topics
/// again and so created them. A task list or a dashboard anywhere brought a deleted queue back.
#[tokio::test(start_paused = true)]
async fn what_follows_a_deleted_queue_does_not_bring_it_back() {
    let bench = bench();
    let queue = bench.client.queue("tasks");
    queue.tasks().await.unwrap();
    queue.settings().await.unwrap();
    let mut watch = bench.client.watch("tasks").await.unwrap();
    assert_eq!(watch.next().await.unwrap().unwrap(), WatchEvent::CaughtUp);
    let ends = ["", "-ledger", "-metadata", "-register"];
    let topics = ends.map(|end| format!("{TASKS}{end}"));
    {
        let mut world = bench.fake.world();
        world.missing.extend(topics.clone());
        world.opened.clear();
    }
    bench.fake.break_followers();
    let ended = timeout(Duration::from_secs(60), watch.next()).await;
    assert_eq!(bench.fake.world().opened, Vec::<String>::new());
    let error = ended.unwrap().unwrap().unwrap_err();
    assert_eq!(kind(&error), Some(TransportErrorKind::NotFound));
    assert!(queue.tasks().await.is_err());
    sleep(Duration::from_secs(60)).await;
    assert_eq!(bench.fake.world().opened, Vec::<String>::new());
    // Created again, it is read as before.
    bench.fake.world().missing.clear();
    assert!(queue.tasks().await.is_ok());
}

/// A broker that creates topics on demand makes a partition without the whole: then the whole does
/// not exist, and a watch still goes on after an outage.
#[tokio::test(start_paused = true)]
async fn a_partition_without_the_whole_is_not_deleted() {
    let bench = bench();
    let metadata = format!("{TASKS}-metadata");
    bench.fake.world().partitions.insert(TASKS.to_owned(), 1);
    bench.fake.world().missing.insert(metadata.clone());
    let mut watch = bench.client.watch("tasks").await.unwrap();
    assert_eq!(watch.next().await.unwrap().unwrap(), WatchEvent::CaughtUp);
    bench.fake.break_followers();
    let place = partition(metadata, 0);
    bench.fake.append(&place, entry(0, &completed(ID, 1), Some(1)));
    let next = timeout(Duration::from_secs(60), watch.next()).await.unwrap().unwrap();
    assert!(matches!(next, Ok(WatchEvent::Updated { .. })), "{next:?}");
}
