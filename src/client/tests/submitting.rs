//! Many tasks in one call, with a result for each.

use super::*;
use serde::ser::Error as _;
use serde::{Serialize, Serializer};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A task that can be serialized only if its number is even.
struct Even(u32);

impl Serialize for Even {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_multiple_of(2) {
            serializer.serialize_u32(self.0)
        } else {
            Err(S::Error::custom("odd"))
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_cannot_be_submitted_stops_no_other() {
    let bench = bench();
    bench.fake.world().fates.extend([
        ScriptedFate::Refused,
        ScriptedFate::Unknown,
        ScriptedFate::PublisherLost,
    ]);
    let outcomes: Vec<_> = bench.client.submit_all("tasks", (0..600).map(Even)).collect().await;
    assert_eq!(outcomes.len(), 600);
    let (mut stored, mut refused, mut unknown, mut lost) = (0, 0, 0, 0);
    let log = bench.fake.world().logs[&partition(TASKS.to_owned(), -1)].clone();
    for (number, outcome) in outcomes.iter().enumerate() {
        match outcome {
            Ok(task) => {
                let at = log.iter().find(|message| message.position == task.id.position()).unwrap();
                assert_eq!(at.payload.as_ref(), number.to_string().as_bytes());
                stored += 1;
            }
            Err(SubmitError::Encode(_)) => assert_eq!(number % 2, 1, "{number}"),
            Err(SubmitError::Refused(_)) => refused += 1,
            Err(SubmitError::Unknown(_)) => unknown += 1,
            Err(SubmitError::Transport(_)) => lost += 1,
            Err(other) => panic!("{number}: {other:?}"),
        }
    }
    assert_eq!((refused, unknown, stored + lost), (1, 1, 298));
    // The task of unknown fate is stored, too.
    assert_eq!(log.len(), stored + 1);
}

/// A submit abandoned during an outage must not be sent when the broker is back.
#[tokio::test(start_paused = true)]
async fn what_was_given_up_before_it_was_sent_is_not_sent_later() {
    let bench = bench();
    bench.fake.world().publisher_refusals.extend([TransportErrorKind::Unreachable; 3]);
    let first = Text("given up".to_owned());
    let given_up = timeout(Duration::from_millis(10), bench.client.submit("tasks", &first));
    assert!(given_up.await.is_err());
    bench.submit().await.unwrap();
    let log = bench.fake.world().logs[&partition(TASKS.to_owned(), -1)].clone();
    let payloads: Vec<_> = log.iter().map(|message| message.payload.as_ref()).collect();
    assert_eq!(payloads, [b"task"]);
}

/// A caller with a million tasks must not hold a million futures.
#[tokio::test(start_paused = true)]
async fn no_more_tasks_are_taken_than_receipts_may_be_awaited() {
    let bench = bench();
    let taken = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&taken);
    let tasks = (0..1_000_000_u32).inspect(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let mut outcomes = bench.client.submit_all("tasks", tasks);
    assert_eq!(taken.load(Ordering::Relaxed), 0);
    for _ in 0..10 {
        outcomes.next().await.unwrap().unwrap();
    }
    let taken = taken.load(Ordering::Relaxed);
    assert!((10..=256 + 10).contains(&taken), "{taken}");
}
