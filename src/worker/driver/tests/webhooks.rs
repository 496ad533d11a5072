//! Webhooks: an end is told before it is shown.

use super::*;
use longhaul_core::settings::QueueSettings;
use longhaul_core::task::text;
use longhaul_core::webhook::WebhookCall;
use longhaul_memory::PublishFate;

const URLS: [&str; 2] = ["https://hooks.example/a", "https://hooks.example/b"];

fn urls() -> Vec<String> {
    URLS.map(str::to_owned).into()
}

fn with_webhooks() -> QueueSettings {
    let mut settings = QueueSettings::default();
    settings.webhooks = urls();
    settings
}

impl Bench {
    /// The task topic of the calls.
    fn calls_topic(&self) -> TopicPartition {
        self.at("persistent://public/default/webhooks", -1)
    }

    /// The calls, with the time and the key of each.
    fn calls(&self) -> Vec<(u64, String, WebhookCall)> {
        let log = self.broker.full_log(&self.calls_topic());
        let read = |message: &Message| {
            let key = message.properties[text::IDEMPOTENCY_KEY].to_owned();
            let call = serde_json::from_slice(&message.payload).unwrap();
            (message.publish_time_ms, key, call)
        };
        log.iter().map(read).collect()
    }

    /// The end of a task as the metadata topic shows it, with its time.
    fn end_of(&self, task: TaskId) -> Option<(u64, TaskMetadata)> {
        let is_end =
            |it: &(u64, TaskMetadata)| it.1.message_id == task.to_string() && it.1.is_terminal();
        self.shown().into_iter().find(is_end)
    }
}

/// A worker of a queue with two webhooks.
async fn telling(
    body: impl Fn(TaskContext) -> Result<Text, TaskError> + Send + Sync + 'static,
) -> Bench {
    let mut bench = Bench::new(brisk(), None, move |context| {
        let ended = body(context);
        async { ended }
    });
    bench.broker.create_topic(&bench.calls_topic().topic, None, false);
    bench.settle(1, &with_webhooks());
    bench.run_for(SECOND).await;
    bench
}

#[tokio::test(start_paused = true)]
async fn each_end_is_told_to_each_url_before_it_is_shown() {
    let mut bench = telling(|context| match context.properties().get("what") {
        Some(_) if context.attempt() == 1 => Err(TaskError::retry_after(SECOND, "no luck")),
        Some(_) => Err(TaskError::fatal("never")),
        None => Ok(Text("done".to_owned())),
    })
    .await;
    bench.broker.stall_publishes(&bench.calls_topic(), 5 * SECOND);
    let (done, fails) = (bench.submit(&[]), bench.submit(&[("what", "fails")]));
    bench.run_for(3 * SECOND).await;
    assert!(bench.end_of(done).is_none(), "its calls are not stored");
    bench.run_for(20 * SECOND).await;
    for (task, epoch, state) in [(done, 1, TaskState::Completed), (fails, 2, TaskState::Failed)] {
        let (shown_at, shown) = bench.end_of(task).unwrap();
        let mut calls = bench.calls();
        calls.retain(|(_, _, call)| call.task == task.to_string());
        let told: Vec<_> = calls.iter().map(|(_, _, call)| call.url.as_str()).collect();
        assert_eq!(told, URLS, "{task}: neither the attempt nor the retry is told");
        for (told_at, _, call) in &calls {
            assert!(*told_at <= shown_at);
            assert_eq!((&*call.queue, call.epoch, call.metadata.state), ("tasks", epoch, state));
            let told = TaskMetadata { last_updated: shown.last_updated, ..call.metadata.clone() };
            let without_payload = TaskMetadata { task: None, ..shown.clone() };
            assert_eq!(told, without_payload);
        }
    }
    assert_eq!(bench.unfinished(), 0);
    assert_eq!(bench.driver.stats.read().violations, 0);
}

/// The first worker dies after it has published the calls and before it shows the end.
#[tokio::test(start_paused = true)]
async fn the_next_worker_tells_an_end_again_that_is_not_shown() {
    let mut bench = telling(|_| Ok(Text("done".to_owned()))).await;
    let metadata = bench.at(&bench.names.metadata, -1);
    bench.broker.forbid(&metadata, true);
    let task = bench.submit(&[]);
    // Trying to show the end once more tells nothing once more: that was 2 calls every 10 s.
    bench.run_for(60 * SECOND).await;
    assert_eq!(bench.calls().len(), 2);
    let Bench { broker, driver, transport, .. } = bench;
    drop((driver, transport));
    broker.forbid(&metadata, false);
    let mut next =
        Bench::on(broker, "next", brisk(), None, |_| async { Ok(Text("it runs once".to_owned())) });
    next.run_for(60 * SECOND).await;
    let (_, shown) = next.end_of(task).unwrap();
    assert_eq!(shown.result.as_deref(), Some(&b"done"[..]));
    let mut keys: Vec<_> = next.calls().into_iter().map(|(_, key, _)| key).collect();
    assert!(keys.len() > 2, "the next worker cannot know whether the calls are stored: {keys:?}");
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 2, "one task runs for each URL");
}

/// The settings are unknown until the register is read; meanwhile an end would be shown untold.
#[tokio::test(start_paused = true)]
async fn an_end_is_not_repaired_before_the_webhooks_are_known() {
    let mut bench = telling(|_| Ok(Text("done".to_owned()))).await;
    let register = bench.register();
    bench.broker.stall_publishes(&bench.calls_topic(), 10 * SECOND);
    let task = bench.submit(&[]);
    bench.run_for(2 * SECOND).await;
    let Bench { broker, driver, transport, .. } = bench;
    drop((driver, transport));
    broker.forbid(&register, true);
    let mut next = Bench::on(broker, "next", brisk(), None, |_| async { Ok(Text::default()) });
    next.run_for(120 * SECOND).await;
    assert!(next.end_of(task).is_none());
    let before = next.calls().len();
    next.broker.forbid(&register, false);
    next.run_for(60 * SECOND).await;
    assert!(next.end_of(task).is_some());
    assert_eq!(next.calls().len(), before + 2);
}

/// The workers of the queue `webhooks` run one task for each end and URL, however often it is told.
#[tokio::test(start_paused = true)]
async fn one_call_is_run_for_each_key_of_plain_messages() {
    let (mut bench, diary) = Bench::with_diary(brisk(), None, |context, notes| async move {
        notes.note(context.properties()[text::IDEMPOTENCY_KEY].clone());
        Ok(Text("called".to_owned()))
    });
    let task = longhaul_core::webhook::EndedTask {
        topic: "persistent://public/default/mails",
        level: longhaul_core::task::Priority::Normal,
        id: "12:0:-1".parse().unwrap(),
        epoch: Epoch(1),
    };
    for metadata in [r#"{"lastUpdated":1}"#, r#"{"lastUpdated":2}"#] {
        let (_, calls) = task.calls(&urls(), metadata.as_bytes()).unwrap();
        for call in calls {
            bench.broker.publish(&bench.at(&bench.names.task, -1), call);
        }
    }
    bench.run_for(30 * SECOND).await;
    let mut ran = diary.lines();
    assert_eq!(ran.len(), 2, "{ran:?}");
    ran.dedup();
    assert_eq!(ran.len(), 2, "{ran:?}");
}

#[tokio::test(start_paused = true)]
async fn a_refused_call_and_a_missing_queue_block_no_task() {
    let mut bench = telling(|_| Ok(Text("done".to_owned()))).await;
    let log = crate::captured::CapturedLog::capture();
    bench.broker.next_publish(&bench.calls_topic(), PublishFate::Refused);
    let task = bench.submit(&[]);
    bench.run_for(5 * SECOND).await;
    assert!(bench.end_of(task).is_some());
    assert_eq!(bench.calls().len(), 1, "the other call is stored");
    assert_eq!(log.0.with(&["ERROR", "webhook call given up", &task.to_string()]).len(), 1);
    bench.broker.forbid(&bench.calls_topic(), true);
    let tasks = [bench.submit(&[]), bench.submit(&[])];
    bench.run_for(30 * SECOND).await;
    assert!(tasks.iter().all(|task| bench.end_of(*task).is_some()));
}

/// A call without a receipt may be lost: it is published again.
#[tokio::test(start_paused = true)]
async fn calls_of_unknown_fate_are_published_again() {
    let mut bench = telling(|_| Ok(Text("done".to_owned()))).await;
    bench.broker.next_publish(&bench.calls_topic(), PublishFate::Lost);
    let task = bench.submit(&[]);
    bench.run_for(30 * SECOND).await;
    assert!(bench.end_of(task).is_some());
    let told: BTreeSet<_> = bench.calls().into_iter().map(|(_, _, call)| call.url).collect();
    assert_eq!(told, urls().into_iter().collect());
}
