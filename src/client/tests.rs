use super::fake::{
    Fake, FakeTransport, ScriptedFate, completed, entry, failed, processing, tombstone,
};
use super::*;
use crate::client::ReadError;
use crate::topics::TopicOverrides;
use crate::transport::{Message, TransportErrorKind};
use crate::{Raw, Text};
use bytes::Bytes;
use futures::future::join_all;
use futures::{StreamExt, TryStreamExt};
use longhaul_core::task::{Position, TaskId, TaskMetadata, TaskOutcome, TaskState};
use std::time::Duration;
use tokio::time::{sleep, timeout};

const TASKS: &str = "persistent://public/default/tasks";
const ID: TaskId = TaskId { ledger: 1, entry: 1, partition: -1, batch_index: None };
const OTHER: TaskId = TaskId { entry: 2, ..ID };

struct Bench {
    fake: Arc<Fake>,
    client: Client,
    metadata: TopicPartition,
    ledger: TopicPartition,
}

fn bench() -> Bench {
    let fake = Fake::new();
    let client = Client::on_transport(Arc::new(FakeTransport(Arc::clone(&fake))));
    let metadata = partition(format!("{TASKS}-metadata"), -1);
    Bench { fake, client, metadata, ledger: partition(format!("{TASKS}-ledger"), -1) }
}

impl Bench {
    fn show(&self, metadata: &TaskMetadata, epoch: u32) {
        self.fake.append(&self.metadata, entry(0, metadata, Some(epoch)));
    }

    async fn submit(&self) -> Result<TaskRef, SubmitError> {
        self.client.submit("tasks", &Text("task".to_owned())).await
    }
}

fn task(id: TaskId) -> TaskRef {
    TaskRef { topic: TASKS.to_owned(), id }
}

/// Lets all runnable tasks run. Time is paused in these tests, so this takes none.
async fn settle() {
    sleep(Duration::from_millis(1)).await;
}

/// Spawns a wait, so that a test can check whether it has ended.
macro_rules! waiting {
    ($bench:expr) => {{
        let client = $bench.client.clone();
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(async move { client.wait::<String>(&task(ID)).await });
        settle().await;
        tasks
    }};
}

mod coded;
mod documents;
mod existing;
mod history;
mod keyed;
#[cfg(feature = "metrics")]
mod measuring;
mod reading;
mod starting;
mod submitted;
mod submitting;
mod tasks;
#[cfg(feature = "otel")]
mod traced;
mod watching;

#[tokio::test(start_paused = true)]
async fn a_wait_ends_with_the_result() {
    let bench = bench();
    let mut wait = waiting!(bench);
    bench.show(&processing(ID, 1), 1);
    settle().await;
    assert!(wait.try_join_next().is_none());
    bench.show(&completed(ID, 1), 1);
    assert_eq!(wait.join_next().await.unwrap().unwrap().unwrap(), "done");
    // The end is cached.
    assert_eq!(bench.client.wait::<Text>(&task(ID)).await.unwrap().0, "\"done\"");
    assert_eq!(bench.client.wait_metadata(&task(ID)).await.unwrap().state, TaskState::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_with_an_outcome_and_not_with_a_failure_that_is_tried_again() {
    let bench = bench();
    let mut wait = waiting!(bench);
    bench.show(&failed(ID, 1, None), 1);
    settle().await;
    assert!(wait.try_join_next().is_none());
    bench.show(&failed(ID, 2, Some(TaskOutcome::Cancelled)), 2);
    let end = wait.join_next().await.unwrap().unwrap();
    let Err(WaitError::Failed { reason, outcome, attempts, .. }) = end else { panic!("{end:?}") };
    assert_eq!((reason.as_str(), outcome, attempts), ("no luck", TaskOutcome::Cancelled, 2));
    assert_eq!(bench.client.wait_metadata(&task(ID)).await.unwrap().attempts, 2);
}

#[tokio::test(start_paused = true)]
async fn a_late_entry_of_a_lower_epoch_ends_no_wait() {
    let bench = bench();
    bench.show(&processing(ID, 2), 2);
    let mut wait = waiting!(bench);
    bench.show(&failed(ID, 1, Some(TaskOutcome::Final)), 1);
    settle().await;
    assert!(wait.try_join_next().is_none());
    assert_eq!(bench.client.get(&task(ID)).await.unwrap().unwrap().attempts, 2);
    bench.show(&completed(ID, 2), 2);
    assert_eq!(wait.join_next().await.unwrap().unwrap().unwrap(), "done");
}

#[tokio::test(start_paused = true)]
async fn a_result_of_another_type_is_an_error() {
    let bench = bench();
    bench.show(&completed(ID, 1), 1);
    let end = bench.client.wait::<u32>(&task(ID)).await;
    assert!(matches!(end, Err(WaitError::Decode(_))), "{end:?}");
}

/// A task that borrows, or that implements only `Serialize`, can be submitted: it need not be
/// deserializable.
#[tokio::test(start_paused = true)]
async fn whatever_can_be_serialized_is_submitted() {
    #[derive(serde::Serialize)]
    struct Greeting<'a> {
        name: &'a str,
    }
    let bench = bench();
    let name = "Dave".to_owned();
    bench.client.submit("tasks", &Greeting { name: &name }).await.unwrap();
    bench.client.submit("tasks", name.as_str()).await.unwrap();
    bench.client.submit("tasks", &Raw(Bytes::from_static(b"\xff"))).await.unwrap();
    let sent: Vec<_> =
        bench.client.submit_all("tasks", [[1, 2], [3, 4]]).try_collect().await.unwrap();
    assert_eq!(sent.len(), 2);
    let world = bench.fake.world();
    let log = world.logs.get(&partition(TASKS.to_owned(), -1)).unwrap();
    let payloads: Vec<_> = log.iter().map(|message| message.payload.as_ref()).collect();
    let expected: [&[u8]; 5] = [b"{\"name\":\"Dave\"}", b"\"Dave\"", b"\xff", b"[1,2]", b"[3,4]"];
    assert_eq!(payloads, expected);
}

#[tokio::test(start_paused = true)]
async fn a_wait_on_an_evicted_task_ends() {
    let bench = bench();
    let mut wait = waiting!(bench);
    bench.fake.append(&bench.metadata, tombstone(0, ID));
    let end = wait.join_next().await.unwrap().unwrap();
    assert!(matches!(end, Err(WaitError::Evicted)), "{end:?}");
    assert_eq!(bench.client.get(&task(ID)).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_waits_cost_one_follower() {
    let bench = bench();
    let id = |entry| TaskId { entry, ..ID };
    let mut waits = tokio::task::JoinSet::new();
    for entry in 0..1_000 {
        let client = bench.client.clone();
        waits.spawn(async move { client.wait::<String>(&task(id(entry))).await });
    }
    settle().await;
    for entry in 0..1_000 {
        bench.show(&completed(id(entry), 1), 1);
    }
    while let Some(result) = waits.join_next().await {
        assert_eq!(result.unwrap().unwrap(), "done");
    }
    assert_eq!(bench.fake.world().followers_opened, 1);
}

#[tokio::test(start_paused = true)]
async fn a_wait_outlives_its_follower_and_what_comes_again_is_skipped() {
    let bench = bench();
    bench.show(&processing(ID, 1), 1);
    bench.show(&completed(OTHER, 1), 1);
    let mut wait = waiting!(bench);
    bench.fake.world().refusals.extend([TransportErrorKind::Unreachable; 3]);
    bench.fake.break_followers();
    sleep(Duration::from_secs(60)).await;
    assert!(wait.try_join_next().is_none());
    assert_eq!(bench.fake.world().followers_opened, 2);
    bench.show(&completed(ID, 1), 1);
    assert_eq!(wait.join_next().await.unwrap().unwrap().unwrap(), "done");
}

#[tokio::test(start_paused = true)]
async fn missing_rights_end_waits_and_looks_and_the_next_one_tries_again() {
    let bench = bench();
    bench.fake.world().refusals.extend([TransportErrorKind::Unauthorized; 2]);
    let end = bench.client.wait::<String>(&task(ID)).await;
    assert!(matches!(end, Err(WaitError::Transport(_))), "{end:?}");
    let look = bench.client.get(&task(ID)).await;
    assert!(matches!(look, Err(ReadError::Transport(_))), "{look:?}");
    assert_eq!(bench.client.get(&task(ID)).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_is_away_from_the_start_ends_a_wait() {
    let bench = bench();
    bench.fake.world().refusals.extend([TransportErrorKind::Unreachable; 1_000]);
    let end = timeout(Duration::from_secs(30), bench.client.wait::<String>(&task(ID))).await;
    assert!(matches!(end, Ok(Err(WaitError::Transport(_)))), "{end:?}");
}

#[tokio::test(start_paused = true)]
async fn a_look_sees_everything_that_was_there_before() {
    let bench = bench();
    assert_eq!(bench.client.get(&task(ID)).await.unwrap(), None);
    for attempt in 1..=100 {
        bench.show(&processing(ID, attempt), attempt);
        let found = bench.client.get(&task(ID)).await.unwrap().unwrap();
        assert_eq!(found.attempts, attempt);
    }
    bench.fake.break_followers();
    bench.show(&completed(ID, 100), 100);
    let id = task(ID);
    for found in join_all((0..100).map(|_| bench.client.get(&id))).await {
        let found = found.unwrap().unwrap();
        assert_eq!(found.state, TaskState::Completed);
    }
    assert_eq!(bench.fake.world().followers_opened, 2);
}

#[tokio::test(start_paused = true)]
async fn a_given_up_wait_leaves_nothing_behind() {
    let bench = bench();
    let id = task(ID);
    let wait = bench.client.wait::<String>(&id);
    assert!(timeout(Duration::from_secs(1), wait).await.is_err());
    let views = format!("{:?}", bench.client.inner.views);
    assert!(views.contains("waiters: {}"), "{views}");
}

#[tokio::test(start_paused = true)]
async fn the_last_clone_takes_its_follower_and_publishers_along() {
    let Bench { fake, client, .. } = bench();
    client.clone().submit("tasks", &1_u32).await.unwrap();
    client.clone().get(&task(ID)).await.unwrap();
    let before = Arc::strong_count(&fake);
    drop(client);
    settle().await;
    assert!(before > 1);
    assert_eq!(Arc::strong_count(&fake), 1);
}

#[tokio::test(start_paused = true)]
async fn tasks_go_in_turns_to_the_partitions_and_carry_them_in_their_ids() {
    let bench = bench();
    bench.fake.world().partitions.insert(TASKS.to_owned(), 3);
    let submitted: Vec<TaskRef> =
        bench.client.submit_all("tasks", 0..7_u32).try_collect().await.unwrap();
    let mut ids: Vec<_> = submitted.iter().map(|task| task.id.to_string()).collect();
    ids.sort_unstable();
    assert_eq!(ids, ["7:0:0", "7:0:1", "7:0:2", "7:1:0", "7:1:1", "7:1:2", "7:2:0"]);
    assert!(submitted.iter().all(|task| task.topic == TASKS));
    assert_eq!(bench.fake.world().publishers_opened, 3);

    // A new partition is found within a minute.
    bench.fake.world().partitions.insert(TASKS.to_owned(), 4);
    sleep(Duration::from_secs(61)).await;
    let submitted: Vec<TaskRef> =
        bench.client.submit_all("tasks", 0..4_u32).try_collect().await.unwrap();
    assert!(submitted.iter().any(|task| task.id.partition == 3), "{submitted:?}");
}

#[tokio::test(start_paused = true)]
async fn a_topic_without_partitions_gives_minus_one() {
    let bench = bench();
    let submitted = bench
        .client
        .submission("tasks", &Raw(Bytes::from_static(b"foo")))
        .property("a", "b")
        .max_duration(Duration::from_secs(5400))
        .send()
        .await
        .unwrap();
    assert_eq!(submitted.to_string(), format!("{TASKS}@7:0:-1"));
    let log = bench.fake.world().logs[&partition(TASKS.to_owned(), -1)].clone();
    let [Message { key: None, properties, payload, .. }] = log.as_slice() else {
        panic!("{log:?}")
    };
    let properties: Vec<_> = properties.iter().collect();
    assert_eq!(properties, [("MAX_TASK_DURATION", "PT1H30M"), ("a", "b")]);
    assert_eq!(payload, "foo");
}

#[tokio::test(start_paused = true)]
async fn a_publish_of_unknown_fate_is_never_repeated() {
    let bench = bench();
    bench.fake.world().fates.push_back(ScriptedFate::Unknown);
    let lost = bench.submit().await;
    assert!(matches!(lost, Err(SubmitError::Unknown(_))), "{lost:?}");
    let log = |bench: &Bench| bench.fake.world().logs[&partition(TASKS.to_owned(), -1)].len();
    assert_eq!(log(&bench), 1);
    bench.fake.world().fates.push_back(ScriptedFate::Refused);
    let refused = bench.submit().await;
    assert!(matches!(refused, Err(SubmitError::Refused(_))), "{refused:?}");
    assert_eq!(log(&bench), 1);
}

#[tokio::test(start_paused = true)]
async fn a_publisher_that_failed_earlier_is_opened_again() {
    let bench = bench();
    bench.submit().await.unwrap();
    bench.fake.world().fates.push_back(ScriptedFate::PublisherLost);
    let id = bench.submit().await.unwrap().id;
    assert_eq!(id.position(), Position { ledger: 7, entry: 1, batch_index: None });
    assert_eq!(bench.fake.world().publishers_opened, 2);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_submitted_is_refused_before_anything_is_sent() {
    let bench = bench();
    let bad = bench.client.submit("a\nb", &1_u32).await;
    assert!(matches!(bad, Err(SubmitError::Topic(_))), "{bad:?}");
    let bad = bench.client.submission("tasks", &1_u32).max_duration(Duration::ZERO).send().await;
    assert!(matches!(bad, Err(SubmitError::Property { .. })), "{bad:?}");
    let text = bad.unwrap_err().to_string();
    assert_eq!(text, "MAX_TASK_DURATION: `0s`: it must be above zero");
    assert!(bench.fake.world().logs.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_cancellation_is_a_plain_entry_and_is_repeated_until_its_receipt() {
    let bench = bench();
    bench.fake.world().fates.extend([ScriptedFate::Unknown, ScriptedFate::Refused]);
    bench.client.cancel(&task(ID)).await.unwrap();
    let log = bench.fake.world().logs[&bench.ledger].clone();
    assert_eq!(log.len(), 2);
    assert!(log.iter().all(|message| message.key.as_deref() == Some("1:1:-1/cancel")));
    assert!(log.iter().all(|message| message.properties.get("k") == Some("cancel")));

    bench.fake.world().fates.extend([ScriptedFate::Refused; 5]);
    let refused = bench.client.cancel(&task(ID)).await;
    assert!(matches!(refused, Err(ActionError::NoReceipt(_))), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn a_cancellation_goes_to_the_partition_of_its_task() {
    let bench = bench();
    bench.client.cancel(&task(TaskId { partition: 2, ..ID })).await.unwrap();
    assert!(bench.fake.world().logs.contains_key(&partition(bench.ledger.topic.clone(), 2)));
}

#[tokio::test(start_paused = true)]
async fn names_follow_subscription_and_overrides() {
    let overrides = TopicOverrides { metadata: Some("shown".to_owned()), ..Default::default() };
    let builder = Client::builder("").subscription("audit").topics("tasks", overrides);
    let settings = builder.settings.check().unwrap();
    let client = Client::new(settings, Preflight::default(), Arc::new(FakeTransport(Fake::new())));
    let names = client.names("public/default/tasks").unwrap();
    assert_eq!(names.metadata, "persistent://public/default/shown");
    assert_eq!(names.ledger, "persistent://public/default/tasks-audit-ledger");
    let other = client.names("others").unwrap();
    assert_eq!(other.metadata, "persistent://public/default/others-audit-metadata");
    assert!(Client::builder("").subscription("a/b").settings.check().is_err());
}

/// A wait for a mistyped id must not go on for ever.
#[tokio::test(start_paused = true)]
async fn a_wait_on_an_id_that_cannot_exist_is_an_error() {
    let bench = bench();
    let tasks = partition(TASKS.to_owned(), -1);
    let last =
        bench.fake.append(&tasks, Message::at(Position { ledger: 0, entry: 0, batch_index: None }));
    let id = TaskId { ledger: last.ledger, entry: last.entry, partition: -1, batch_index: None };
    let wait = async |id: TaskId| {
        let end = timeout(Duration::from_secs(600), bench.client.wait::<String>(&task(id))).await;
        end.ok().map(|end| match end {
            Err(WaitError::NoSuchTask { cause, .. }) => cause,
            other => panic!("{other:?}"),
        })
    };
    assert_eq!(wait(id).await, None, "nobody has begun it yet");
    let text = wait(TaskId { entry: last.entry + 1, ..id }).await.unwrap();
    assert_eq!(text, format!("the last id of {TASKS} is 7:0"));
    assert!(wait(TaskId { ledger: last.ledger + 1, entry: 0, ..id }).await.is_some());
    let text = wait(TaskId { partition: 0, ..id }).await.unwrap();
    assert!(text.contains("has no partitions"), "{text}");
    bench.fake.world().partitions.insert(TASKS.to_owned(), 4);
    for partition in [-1, 4] {
        let text = bench
            .client
            .inner
            .existence
            .objection("persistent://public/default/tasks", TaskId { partition, ledger: 9, ..id });
        assert!(text.await.unwrap().contains("4 partitions"), "{partition}");
    }
    // The task cannot exist any more, but its end is still readable.
    let gone = TaskId { ledger: last.ledger + 9, ..id };
    bench.fake.world().partitions.clear();
    bench.show(&completed(gone, 1), 1);
    assert_eq!(bench.client.wait::<String>(&task(gone)).await.unwrap(), "done");
}

#[tokio::test(start_paused = true)]
async fn own_tasks_are_known_to_exist_and_many_waits_ask_once() {
    let bench = bench();
    let mine = bench.submit().await.unwrap();
    let waits =
        (0..100).map(|_| timeout(Duration::from_secs(1), bench.client.wait::<String>(&mine)));
    assert!(join_all(waits).await.into_iter().all(|end| end.is_err()));
    assert_eq!(bench.fake.world().lookers_opened, 0);
    let foreign = bench.fake.append(
        &partition(TASKS.to_owned(), -1),
        Message::at(Position { ledger: 0, entry: 0, batch_index: None }),
    );
    let foreign = task(TaskId::new(foreign, -1));
    let waits =
        (0..100).map(|_| timeout(Duration::from_secs(1), bench.client.wait::<String>(&foreign)));
    assert!(join_all(waits).await.into_iter().all(|end| end.is_err()));
    assert_eq!(bench.fake.world().lookers_opened, 1);
}

/// If an error during an outage were cached, a wait for an impossible id would never end.
#[tokio::test(start_paused = true)]
async fn an_error_that_may_pass_is_not_remembered_as_an_answer() {
    let bench = bench();
    let tasks = partition(TASKS.to_owned(), -1);
    let last =
        bench.fake.append(&tasks, Message::at(Position { ledger: 0, entry: 0, batch_index: None }));
    let beyond = TaskId { entry: last.entry + 1, ..TaskId::new(last, -1) };
    let objection = || bench.client.inner.existence.objection(TASKS, beyond);
    let refuse = |kind| bench.fake.world().looker_refusals.push_back(kind);
    // Concurrent waits send one request.
    refuse(TransportErrorKind::Unreachable);
    assert!(join_all((0..100).map(|_| objection())).await.into_iter().all(|it| it.is_none()));
    assert_eq!(bench.fake.world().lookers_opened, 1);
    assert!(objection().await.is_some());
    // A later error does not drop the cached answer.
    refuse(TransportErrorKind::Unreachable);
    assert!(objection().await.is_none());
    assert!(objection().await.is_some());
}

#[tokio::test(start_paused = true)]
async fn who_may_not_read_tasks_asks_once() {
    let bench = bench();
    bench.fake.world().looker_refusals.push_back(TransportErrorKind::Unauthorized);
    for _ in 0..3 {
        assert_eq!(bench.client.inner.existence.objection(TASKS, ID).await, None);
    }
    assert_eq!(bench.fake.world().lookers_opened, 1);
}
