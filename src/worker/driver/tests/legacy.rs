//! A worker beside workers of the Java reference, which write only to the metadata topic.

use super::*;

const KEEP_ALIVE: Duration = Duration::from_secs(10);

fn beside(legacy: bool) -> WorkerConfig {
    WorkerConfig { legacy, keep_alive: KEEP_ALIVE, ..WorkerConfig::default() }
}

/// A worker that notes the attempts it runs.
fn bench(legacy: bool) -> (Bench, Diary) {
    Bench::with_diary(beside(legacy), None, |context, notes| async move {
        notes.note(format!("attempt {}", context.attempt()));
        Ok(Text("ours".to_owned()))
    })
}

impl Bench {
    /// Writes an entry of a reference worker to the metadata topic.
    fn write_legacy(&self, task: TaskId, state: &str, attempts: u32, more: &str) {
        let json = format!(
            r#"{{"messageId":"{task}","state":"{state}","created":1,"lastUpdated":2,"attempts":{attempts},"task":"dGFzaw=="{more}}}"#
        );
        let (key, payload) = (Some(task.to_string()), json.into());
        let message = Outgoing { key, payload, ..Outgoing::default() };
        self.broker.publish(&self.at(&self.names.metadata, -1), message);
    }

    /// The states and attempts that longhaul has shown, and the last reason or result.
    fn shown_by_us(&self) -> Vec<String> {
        let log = self.broker.full_log(&self.at(&self.names.metadata, -1));
        let ours = log.iter().filter(|message| message.properties.get("epoch").is_some());
        let read = |message: &Message| serde_json::from_slice(&message.payload).unwrap();
        ours.map(read)
            .map(|TaskMetadata { state, attempts, result, failure_reason, outcome, .. }| {
                let text = result.map(|result| String::from_utf8_lossy(&result).into_owned());
                let text = text.or(failure_reason).unwrap_or_default();
                format!("{state:?} {attempts} {outcome:?} {text}")
            })
            .collect()
    }

    /// Whether the ledger has a claim.
    fn has_claimed(&self) -> bool {
        let log = self.broker.full_log(&self.ledger());
        log.iter().any(|message| matches!(ledger::read(message), Ok(Entry::Claim(_))))
    }
}

/// Regression: a worker on several topics looked at each task once without a slot before it offered
/// slots to the topics. That look used up the metadata topic's answer about the task. The worker
/// asked again and again, and no task ran.
#[tokio::test(start_paused = true)]
async fn a_worker_on_two_topics_runs_tasks_beside_java_workers() {
    let (mut bench, diary) = bench(true);
    let other = bench.add_topic("others", Share::default(), None);
    bench.run_for(SECOND).await;
    bench.submit(&[]);
    bench.submit_to(&other.task, -1, &[]);
    bench.run_for(20 * SECOND).await;
    assert_eq!(diary.lines(), ["attempt 1"; 2]);
}

/// After kills in a mixed fleet the broker gives the task of a dead Java worker to a Rust worker
/// within milliseconds. The same happens when the Java worker has only lost its connection and
/// still runs the task.
#[tokio::test(start_paused = true)]
async fn what_a_java_worker_runs_is_left_alone_for_two_keep_alives() {
    let (mut bench, diary) = bench(true);
    let task = bench.submit(&[]);
    bench.write_legacy(task, "PROCESSING", 1, "");
    bench.run_for(15 * SECOND).await;
    bench.write_legacy(task, "PROCESSING", 1, "");
    bench.run_for(19 * SECOND).await;
    assert!(diary.lines().is_empty(), "{:?}", diary.lines());
    bench.run_for(3 * SECOND).await;
    assert_eq!(diary.lines(), ["attempt 2"]);
    assert_eq!(bench.shown_by_us(), ["Processing 2 None ", "Completed 2 None ours"]);
    assert!(bench.is_acked(task));
}

#[tokio::test(start_paused = true)]
async fn attempts_that_failed_in_java_count() {
    let (mut bench, diary) = bench(true);
    let task = bench.submit(&[]);
    bench.write_legacy(task, "FAILED", 1, r#","failureReason":"Processing error: java""#);
    bench.run_for(3 * SECOND).await;
    assert_eq!(diary.lines(), ["attempt 2"]);
    assert!(bench.is_acked(task));
}

/// A Java worker that was killed between its last entry and the ack left a finished task. Running
/// it again would give a second outcome.
#[tokio::test(start_paused = true)]
async fn what_has_ended_in_java_is_closed_with_that_end_and_not_run() {
    let reason = r#","failureReason":"Processing error: java""#;
    let ends = [
        ("COMPLETED", 2, r#","result":"amF2YQ==""#, "Completed 2 None java"),
        ("FAILED", 3, reason, "Failed 3 Some(Final) Processing error: java"),
        ("FAILED", 7, reason, "Failed 3 Some(Final) Processing error: java"),
    ];
    for (state, attempts, more, expected) in ends {
        let (mut bench, diary) = bench(true);
        let task = bench.submit(&[]);
        bench.write_legacy(task, state, attempts, more);
        bench.run_for(5 * SECOND).await;
        assert!(diary.lines().is_empty(), "{:?}", diary.lines());
        assert_eq!(bench.shown_by_us(), [expected]);
        assert!(bench.is_acked(task), "{state}");
        assert_eq!(bench.driver.stats.read().violations, 0);
        assert_eq!(bench.driver.slots.free(), bench.driver.config.concurrency);
    }
}

#[tokio::test(start_paused = true)]
async fn a_last_attempt_that_died_in_java_ends_the_task() {
    let (mut bench, diary) = bench(true);
    let task = bench.submit(&[]);
    bench.write_legacy(task, "PROCESSING", 3, "");
    bench.run_for(25 * SECOND).await;
    assert!(diary.lines().is_empty(), "{:?}", diary.lines());
    let end = "Failed 3 Some(Final) All attempts to process task failed.";
    assert_eq!(bench.shown_by_us(), [end]);
    assert!(bench.is_acked(task));
}

/// Java workers do not read the ledger: one may begin while a claim is in flight.
#[tokio::test(start_paused = true)]
async fn a_java_worker_that_begins_behind_the_claim_is_left_alone() {
    let (mut bench, diary) = bench(true);
    let task = bench.submit(&[]);
    while !bench.has_claimed() {
        bench.run_for(Duration::from_millis(1)).await;
    }
    bench.write_legacy(task, "PROCESSING", 1, "");
    bench.run_for(15 * SECOND).await;
    assert!(diary.lines().is_empty() && bench.shown_by_us().is_empty(), "{:?}", diary.lines());
    let fold = bench.driver.lanes[-1].core.machine().fold(task);
    assert_eq!((fold.epoch, fold.attempt), (Epoch(1), 0), "given back, at no cost");
    assert_eq!(bench.driver.slots.free(), bench.driver.config.concurrency);
    bench.write_legacy(task, "COMPLETED", 1, r#","result":"amF2YQ==""#);
    bench.run_for(30 * SECOND).await;
    assert!(diary.lines().is_empty(), "{:?}", diary.lines());
    assert_eq!(bench.shown_by_us(), ["Completed 1 None java"]);
    assert!(bench.is_acked(task));
}

/// A cancelled task whose start was delayed must end, and a drain must not wait for the metadata
/// topic.
#[tokio::test(start_paused = true)]
async fn a_start_that_waits_for_m_can_be_cancelled_and_drained() {
    for drain in [false, true] {
        let (mut bench, diary) = bench(true);
        bench.run_for(2 * SECOND).await;
        let task = bench.submit(&[]);
        while !bench.has_claimed() {
            bench.run_for(Duration::from_millis(1)).await;
        }
        // From now on the end of the metadata topic is not reached.
        let metadata = bench.at(&bench.names.metadata, -1);
        bench.broker.silence_followers(&metadata, 60 * SECOND);
        bench.write_legacy(TaskId { entry: 999, ..task }, "PROCESSING", 1, "");
        bench.run_for(SECOND).await;
        assert!(bench.driver.lanes[-1].core.has_processors(), "the start is kept back");
        if drain {
            bench.drain_for(SECOND);
        } else {
            bench.write(&Entry::Cancel(task));
        }
        bench.run_for(5 * SECOND).await;
        assert_eq!(bench.ended, drain, "{:?}", bench.end);
        if drain {
            assert!(matches!(bench.end, Some(Ok(()))), "{:?}", bench.end);
            let fold = bench.driver.lanes[-1].core.machine().fold(task);
            assert_eq!((fold.epoch, fold.attempt), (Epoch(1), 0), "given back, at no cost");
        } else {
            assert!(bench.is_acked(task));
        }
        assert!(diary.lines().is_empty(), "{:?}", diary.lines());
    }
}

/// The reference shows such a task as failed, `Unexpected state`. The metadata topic decides
/// nothing here.
#[tokio::test(start_paused = true)]
async fn an_entry_that_nobody_understands_counts_as_none() {
    for state in ["UNKNOWN", "NEW", "BETTER"] {
        let (mut bench, diary) = bench(true);
        let task = bench.submit(&[]);
        bench.write_legacy(task, state, 2, "");
        bench.run_for(3 * SECOND).await;
        assert_eq!(diary.lines(), ["attempt 1"], "{state}");
        assert!(bench.is_acked(task), "{state}");
    }
}

/// Without the mode nothing on the metadata topic counts.
#[tokio::test(start_paused = true)]
async fn by_default_no_claim_asks_what_m_shows() {
    let (mut bench, diary) = bench(false);
    let task = bench.submit(&[]);
    bench.write_legacy(task, "PROCESSING", 1, "");
    bench.run_for(3 * SECOND).await;
    assert_eq!(diary.lines(), ["attempt 1"]);
    assert!(bench.is_acked(task));
}
