//! Tasks that start at a time: `SCHEDULED_AT` and `DELAY`.

use super::*;
use longhaul_core::task::EntryId;
use longhaul_memory::{Happening, Loss};

const DAY: Duration = Duration::from_secs(24 * 3600);

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap()
}

/// A worker whose processors note when they start, and take this time.
fn noting(config: WorkerConfig, takes: Duration) -> (Bench, Diary) {
    Bench::with_diary(config, None, move |context, notes| async move {
        notes.note(context.task_id().to_string());
        end_after(takes).await
    })
}

impl Bench {
    pub(super) fn wall_ms(&self) -> u64 {
        self.broker.clock().wall_ms()
    }

    /// Submits a task with this start time.
    fn submit_at(&self, at_ms: u64) -> TaskId {
        self.submit(&[("SCHEDULED_AT", &at_ms.to_string())])
    }

    fn started_ms(&self, task: TaskId) -> u64 {
        self.shown_of(task).first().unwrap().0
    }

    /// The number of deliveries of each entry of the task topic.
    fn deliveries(&self) -> std::collections::BTreeMap<EntryId, usize> {
        let topic: Arc<str> = self.at(&self.names.task, -1).to_string().into();
        let mut count = std::collections::BTreeMap::new();
        self.broker.with_history(|history| {
            for event in history.events() {
                if let Happening::Received { partition, position, subscription: Some(_), .. } =
                    &event.what
                    && *partition == topic
                {
                    *count.entry(position.entry_id()).or_default() += 1;
                }
            }
        });
        count
    }
}

/// Regression: a submitter could not set a start time, and a task started at once.
#[tokio::test(start_paused = true)]
async fn a_task_starts_at_its_time_and_holds_nothing_until_then() {
    let (mut bench, diary) = noting(WorkerConfig::default(), SECOND);
    bench.run_for(5 * SECOND).await;
    let now = bench.wall_ms();
    let at = bench.submit_at(now + 30_000);
    let past = bench.submit_at(now - 30_000);
    let delayed = bench.submit(&[("DELAY", "PT20S")]);
    let text = jiff::Timestamp::from_millisecond(i64::try_from(now + 25_000).unwrap()).unwrap();
    let written = bench.submit(&[("SCHEDULED_AT", &text.to_string())]);
    bench.run_for(15 * SECOND).await;
    assert_eq!(diary.lines(), [past.to_string()]);
    let lane = &bench.driver.lanes[-1];
    assert_eq!((lane.payloads.len(), bench.driver.slots.free()), (0, 16));
    bench.run_for(30 * SECOND).await;
    assert_eq!(diary.lines(), [past, delayed, written, at].map(|task| task.to_string()));
    for (task, at_ms) in [(delayed, now + 20_000), (written, now + 25_000), (at, now + 30_000)] {
        let started = bench.started_ms(task);
        assert!((at_ms..at_ms + 200).contains(&started), "{started} for {at_ms}");
        assert_eq!(bench.last_of(task).scheduled_at, Some(at_ms));
    }
    assert!(bench.deliveries().values().all(|count| *count == 1), "no redelivery");
}

/// A task starts at the instant that its submitter named, even months ahead.
#[tokio::test(start_paused = true)]
async fn a_task_may_be_months_ahead() {
    let (heartbeat, self_fence, ledger_retention) = (DAY, 3 * DAY, 24 * DAY);
    let config =
        WorkerConfig { heartbeat, self_fence, ledger_retention, ..WorkerConfig::default() };
    let (mut bench, diary) = noting(config, SECOND);
    bench.run_for(SECOND).await;
    let at_ms = bench.wall_ms() + ms(90 * DAY);
    let task = bench.submit_at(at_ms);
    // A worker performs periodic checks each minute.
    for days in [15 * DAY; 5].into_iter().chain([15 * DAY - SECOND]) {
        bench.turns = 0;
        bench.run_for(days).await;
    }
    bench.turns = 0;
    assert!(diary.lines().is_empty());
    bench.run_for(10 * SECOND).await;
    let started = bench.started_ms(task);
    assert!((at_ms..at_ms + 200).contains(&started), "{started} for {at_ms}");
}

/// Regression: tasks started in the order of their delivery, not of their start times.
#[tokio::test(start_paused = true)]
async fn ready_tasks_start_in_the_order_of_their_times() {
    let config = WorkerConfig { concurrency: 1, ..WorkerConfig::default() };
    let (mut bench, diary) = noting(config, 20 * SECOND);
    bench.run_for(5 * SECOND).await;
    let now = bench.wall_ms();
    let blocker = bench.submit(&[]);
    let scheduled = [9, 7, 8, 7].map(|second| bench.submit_at(now + 1000 * second));
    bench.run_for(120 * SECOND).await;
    let [ninth, seventh, eighth, other_seventh] = scheduled;
    let order = [blocker, seventh, other_seventh, eighth, ninth];
    assert_eq!(diary.lines(), order.map(|task| task.to_string()));
}

/// Regression: tasks of next month came before ready ones, each using a slot's worth of credit, so
/// the ready ones came one per round trip.
#[tokio::test(start_paused = true)]
async fn ready_tasks_do_not_wait_behind_those_of_next_month() {
    let config = WorkerConfig { concurrency: 2, ..WorkerConfig::default() };
    let (mut bench, diary) = noting(config, SECOND / 10);
    let month_ms = bench.wall_ms() + ms(30 * DAY);
    for number in 0..5_000 {
        bench.submit_at(month_ms + number);
    }
    let ready: Vec<String> = (0..10).map(|_| bench.submit(&[]).to_string()).collect();
    bench.run_for(20 * SECOND).await;
    assert_eq!(diary.lines(), ready);
    assert_eq!(bench.driver.lanes[-1].payloads.len(), 0);
    assert!(bench.deliveries().values().all(|count| *count == 1), "no redelivery");
    // The same holds for a worker that replaces the first, and after a restart of the broker.
    bench.drain_for(Duration::ZERO);
    bench.run_for(20 * SECOND).await;
    let (broker, notes) = (bench.broker.clone(), diary.clone());
    drop(bench);
    let config = WorkerConfig { concurrency: 2, ..WorkerConfig::default() };
    let body = move |context| note_id(context, notes.clone());
    let mut next = Bench::on(broker, "next", config, None, body);
    let mut ready = ready;
    for _ in 0..2 {
        ready.extend((0..10).map(|_| next.submit(&[]).to_string()));
        next.run_for(30 * SECOND).await;
        assert_eq!(diary.lines(), ready);
        next.broker.restart(SECOND, false, Loss::Error);
    }
    assert_eq!(next.driver.stats.read().violations, 0);
}

/// Regression: a cancel of a task of next month took effect next month.
#[tokio::test(start_paused = true)]
async fn a_task_that_waits_for_its_time_is_cancelled_at_once() {
    let (mut bench, diary) = noting(WorkerConfig::default(), SECOND);
    bench.run_for(5 * SECOND).await;
    let month_ms = bench.wall_ms() + ms(30 * DAY);
    let (kept, cancelled) = (bench.submit_at(month_ms), bench.submit_at(month_ms));
    bench.run_for(SECOND).await;
    bench.write(&Entry::Cancel(cancelled));
    bench.run_for(5 * SECOND).await;
    assert_eq!(bench.last_of(cancelled).outcome, Some(TaskOutcome::Cancelled));
    assert!(bench.shown_of(kept).is_empty() && diary.lines().is_empty());
    assert!(bench.is_acked(cancelled));
}

/// Regression: an operator deleted a task of next month. Its end was shown at once by the keeper of
/// the metadata topic, and next month once more by the worker that had its delivery.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_task_that_waits_for_its_time_is_shown_once_when_an_operator_deletes_it() {
    let (mut first, _) = noting(WorkerConfig::default(), SECOND);
    let mut second = Bench::on(first.broker.clone(), "second", WorkerConfig::default(), None, end);
    tokio::join!(first.run_for(5 * SECOND), second.run_for(5 * SECOND));
    let due_ms = first.wall_ms() + 60_000;
    let deleted: Vec<TaskId> = (0..8).map(|_| first.submit_at(due_ms)).collect();
    tokio::join!(first.run_for(SECOND), second.run_for(SECOND));
    for task in &deleted {
        let key = OnceKey { task: *task, epoch: Epoch(1), owner: OwnerId(9), serial: 1 };
        first.write(&Entry::Claim(Claim::plain(key, 0, ClaimKind::Cancelled)));
    }
    for time in [5, 60] {
        tokio::join!(first.run_for(time * SECOND), second.run_for(time * SECOND));
        for task in &deleted {
            assert_eq!(first.shown_of(*task).len(), 1);
            assert!(first.is_acked(*task));
        }
    }
}

/// A task that expires before its start time is closed when it expires.
#[tokio::test(start_paused = true)]
async fn a_task_may_expire_before_its_time() {
    let (mut bench, diary) = noting(WorkerConfig::default(), SECOND);
    bench.run_for(5 * SECOND).await;
    let now = bench.wall_ms();
    let (at, expires) = ((now + 60_000).to_string(), (now + 20_000).to_string());
    let task = bench.submit(&[("SCHEDULED_AT", &at), ("EXPIRES_AT", &expires)]);
    bench.run_for(30 * SECOND).await;
    assert_eq!(bench.last_of(task).outcome, Some(TaskOutcome::Expired));
    assert!(diary.lines().is_empty());
}

/// If all slots are taken when its time comes, another worker gets the task within seconds.
#[tokio::test(start_paused = true)]
async fn what_cannot_start_here_goes_to_another_worker() {
    let config = WorkerConfig { concurrency: 1, ..WorkerConfig::default() };
    let (mut bench, diary) = noting(config.clone(), 600 * SECOND);
    bench.run_for(5 * SECOND).await;
    let at_ms = bench.wall_ms() + 10_000;
    let tasks = [0, 1].map(|_| bench.submit_at(at_ms));
    bench.run_for(5 * SECOND).await;
    let (broker, notes) = (bench.broker.clone(), diary.clone());
    let mut other = Bench::on(broker, "other", config, None, move |context| {
        notes.note(format!("{} elsewhere", context.task_id()));
        async { Ok(Text("done".to_owned())) }
    });
    tokio::join!(bench.run_for(30 * SECOND), other.run_for(30 * SECOND));
    let [first, second] = tasks;
    assert_eq!(diary.lines(), [first.to_string(), format!("{second} elsewhere")]);
    let started = other.started_ms(second);
    assert!(started < at_ms + 5_000, "{} ms late", started - at_ms);
}

/// The tasks of one message may start at different times. The message is acknowledged when all of
/// them are over.
#[tokio::test(start_paused = true)]
async fn tasks_of_a_batch_start_each_at_its_time() {
    let (mut bench, diary) = noting(WorkerConfig::default(), SECOND);
    bench.run_for(5 * SECOND).await;
    let at = bench.at(&bench.names.task, -1);
    let message = |properties: &[(&str, &str)]| Outgoing {
        properties: properties.iter().copied().collect(),
        payload: "task".into(),
        ..Outgoing::default()
    };
    let later = (bench.wall_ms() + 30_000).to_string();
    let batch =
        vec![message(&[("SCHEDULED_AT", &later)]), message(&[]), message(&[("DELAY", "PT20S")])];
    let positions = bench.broker.publish_batch(&at, batch);
    let ids: Vec<String> =
        positions.iter().map(|position| TaskId::new(*position, -1).to_string()).collect();
    bench.run_for(25 * SECOND).await;
    assert_eq!(diary.lines(), [ids[1].clone(), ids[2].clone()]);
    assert!(!bench.broker.is_acked(&at, "longhaul", positions[0].entry_id()));
    bench.run_for(15 * SECOND).await;
    assert_eq!(diary.lines().last(), Some(&ids[0]));
    assert!(bench.broker.is_acked(&at, "longhaul", positions[0].entry_id()));
}

/// Regression: a task in the same batch as a cancelled one started at once, hours before its time.
#[tokio::test(start_paused = true)]
async fn a_cancelled_task_of_a_batch_leaves_the_others_waiting() {
    let (mut bench, diary) = noting(WorkerConfig::default(), SECOND);
    bench.run_for(5 * SECOND).await;
    let at = bench.at(&bench.names.task, -1);
    let message = Outgoing {
        properties: [("DELAY", "PT1H")].into_iter().collect(),
        payload: "task".into(),
        ..Outgoing::default()
    };
    let positions = bench.broker.publish_batch(&at, vec![message.clone(), message]);
    let [cancelled, waits] = [0, 1].map(|index| TaskId::new(positions[index], -1));
    bench.run_for(5 * SECOND).await;
    bench.write(&Entry::Cancel(cancelled));
    bench.run_for(60 * SECOND).await;
    let outcome = bench.shown_of(cancelled).last().and_then(|(_, shown)| shown.outcome);
    assert_eq!(outcome, Some(TaskOutcome::Cancelled));
    assert_eq!(diary.lines(), [""; 0]);
    bench.run_for(Duration::from_secs(3_600)).await;
    assert_eq!(diary.lines(), [waits.to_string()]);
    assert!(bench.broker.is_acked(&at, "longhaul", positions[0].entry_id()));
}
