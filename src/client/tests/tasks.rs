//! Views of all tasks.

use super::*;
use crate::client::{ReadError, TaskFilter, TaskStatus};
use crate::transport::Start;
use longhaul_core::ledger;
use longhaul_core::protocol::entry::{Claim, ClaimKind, Done, Entry, Outcome};
use longhaul_core::protocol::key::{Epoch, OnceKey, OwnerId};

impl Bench {
    fn write(&self, topic: &TopicPartition, entry: &Entry) {
        let crate::transport::Outgoing { key, properties, payload, null, .. } =
            ledger::message(entry, b"");
        let here = Position { ledger: 0, entry: 0, batch_index: None };
        self.fake.append(topic, Message { key, properties, payload, null, ..Message::at(here) });
    }
}

fn key(id: TaskId) -> OnceKey {
    OnceKey { task: id, epoch: Epoch(1), owner: OwnerId(7), serial: 1 }
}

fn claim(id: TaskId) -> Entry {
    Entry::Claim(Claim::plain(key(id), 1, ClaimKind::Run))
}

fn done(id: TaskId) -> Entry {
    Entry::Done(Done { key: key(id), attempt: 1, outcome: Outcome::Completed, writer: None })
}

/// Waits until the view shows it; time is paused, so this takes none.
async fn until(mut says: impl FnMut() -> bool) {
    timeout(Duration::from_secs(600), async {
        while !says() {
            sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .expect("the view never says so");
}

/// A view tells waiting tasks from running ones, which the broker's backlog does not.
#[tokio::test(start_paused = true)]
async fn a_view_shows_what_stood_there_and_what_comes_and_goes_on_after_an_outage() {
    let bench = bench();
    let topic = partition(TASKS.to_owned(), -1);
    for _ in 0..3 {
        bench.submit().await.unwrap();
    }
    let ids: Vec<TaskId> = {
        let world = bench.fake.world();
        world.logs[&topic].iter().map(|message| TaskId::new(message.position, -1)).collect()
    };
    bench.write(&bench.ledger, &claim(ids[0]));
    bench.show(&processing(ids[0], 1), 1);
    let view = bench.client.queue("tasks").tasks().await.unwrap();
    let counts = view.counts().unwrap();
    assert_eq!((counts.of(TaskStatus::Running), counts.of(TaskStatus::Ready)), (1, 2));
    assert_eq!((counts.demand(), counts.oldest_ready.map(|(id, _)| id)), (3, Some(ids[1])));
    assert_eq!(view.workers().unwrap()[0].running, [ids[0]]);
    for outage in 0..2 {
        bench.fake.break_followers();
        bench.fake.world().refusals.extend([TransportErrorKind::Unreachable; 3]);
        bench.write(&bench.ledger, &claim(ids[outage + 1]));
        let claimed = || view.get(ids[outage + 1]).unwrap().map(|info| info.status);
        until(|| claimed() == Some(TaskStatus::Claimed)).await;
    }
    bench.write(&bench.ledger, &done(ids[0]));
    until(|| view.counts().unwrap().of(TaskStatus::Completed) == 1).await;
    // It continued behind what it had read.
    until(|| bench.fake.world().starts.len() > 1).await;
    let starts = bench.fake.world().starts.clone();
    assert!(matches!(starts[..], [Start::Earliest, Start::After(_), ..]), "{starts:?}");
    let page = view.list(&TaskFilter::new(), Some(ids[0]), 1).unwrap();
    assert_eq!((page.tasks[0].id, page.next), (ids[1], Some(ids[1])));
    assert_eq!(view.list(&TaskFilter::new(), page.next, 1).unwrap().next, None);
}

#[tokio::test(start_paused = true)]
async fn a_view_covers_all_partitions_in_order_and_those_that_come() {
    let bench = bench();
    let grow = |count| {
        for topic in [TASKS.to_owned(), format!("{TASKS}-ledger"), format!("{TASKS}-metadata")] {
            bench.fake.world().partitions.insert(topic, count);
        }
    };
    let id = |partition| TaskId { partition, ..ID };
    let write = |index| {
        bench.write(&partition(format!("{TASKS}-ledger"), index), &claim(id(index)));
    };
    grow(2);
    (0..2).for_each(write);
    let view = bench.client.queue("tasks").claimed_tasks().await.unwrap();
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let page = view.list(&TaskFilter::new(), after, 1).unwrap();
        seen.extend(page.tasks.iter().map(|task| task.id.partition));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen, [0, 1]);
    grow(3);
    write(2);
    until(|| view.counts().unwrap().total() == 3).await;
}

/// Following a missing ledger would create an unpartitioned topic in its place.
#[tokio::test(start_paused = true)]
async fn a_partitioned_queue_without_a_ledger_is_refused() {
    let bench = bench();
    bench.fake.world().partitions.insert(TASKS.to_owned(), 2);
    let refused = bench.client.queue("tasks").tasks().await;
    assert!(matches!(refused, Err(ReadError::NoLedger(_))), "{refused:?}");
    assert!(bench.fake.world().logs.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_view_that_may_not_read_says_so() {
    let bench = bench();
    let view = bench.client.queue("tasks").tasks().await.unwrap();
    bench.fake.world().refusals.push_back(TransportErrorKind::Unauthorized);
    bench.fake.break_followers();
    until(|| view.counts().is_err()).await;
    bench.fake.world().refusals.push_back(TransportErrorKind::Unauthorized);
    assert!(bench.client.queue("tasks").tasks().await.is_err());
}
