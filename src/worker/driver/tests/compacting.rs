//! A compaction of the ledger must not remove anything that a worker or its successor needs.

use super::*;
use crate::captured::CapturedLog;
use bytes::Bytes;
use longhaul_memory::Loss;
use std::collections::BTreeMap;

const RUNNING: usize = 20;
const OF_EACH: usize = 5;

/// The behaviour of a task at its first attempt. Later attempts note the checkpoint that they find,
/// and complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Runs until it is told to stop.
    Long,
    /// The same after a checkpoint without bytes.
    LongWithCheckpoint,
    /// Completes with a result without bytes.
    Empty,
    /// Fails for good with a reason without text.
    FatalWithoutReason,
    /// Fails, is to be tried again in ten minutes, and has no reason.
    RetryWithoutReason,
}

use Kind::{Empty, FatalWithoutReason, Long, LongWithCheckpoint, RetryWithoutReason};

/// The processor of all workers. `kinds` maps tasks to their kinds.
async fn play(kinds: Kinds, diary: Diary, context: TaskContext) -> Result<Text, TaskError> {
    let task = context.task_id();
    diary.note(format!("{task} {} {}", context.fencing_token().epoch, context.attempt()));
    let kind = kinds.of(task);
    if context.attempt() > 1 {
        diary.note(format!("{kind:?} found {:?}", context.last_checkpoint().map(Bytes::len)));
        return Ok(Text::default());
    }
    match kind {
        Long => {}
        LongWithCheckpoint => context.checkpoint(Bytes::new()).await?,
        Empty => return Ok(Text::default()),
        FatalWithoutReason => return Err(TaskError::fatal("")),
        RetryWithoutReason => return Err(TaskError::retry_after(600 * SECOND, "")),
    }
    context.cancelled().await;
    Ok(Text::default())
}

#[derive(Clone, Default)]
struct Kinds(Arc<Mutex<BTreeMap<TaskId, Kind>>>);

impl Kinds {
    fn put(&self, task: TaskId, kind: Kind) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(task, kind);
    }

    fn of(&self, task: TaskId) -> Kind {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[&task]
    }
}

/// Workers that share topics, kinds of tasks, and a diary.
struct Pair {
    first: Bench,
    kinds: Kinds,
    diary: Diary,
}

fn config() -> WorkerConfig {
    WorkerConfig { concurrency: 100, ..brisk() }
}

/// A worker with tasks of all kinds, each as far as it can get, and then a compacted ledger.
async fn compacted() -> Pair {
    let (kinds, diary) = (Kinds::default(), Diary::default());
    let first = {
        let (kinds, diary) = (kinds.clone(), diary.clone());
        Bench::new(config(), None, move |context| play(kinds.clone(), diary.clone(), context))
    };
    let mut pair = Pair { first, kinds, diary };
    pair.first.run_for(2 * SECOND).await;
    let counts = [
        (Long, RUNNING),
        (LongWithCheckpoint, OF_EACH),
        (Empty, OF_EACH),
        (FatalWithoutReason, OF_EACH),
        (RetryWithoutReason, OF_EACH),
    ];
    for (kind, count) in counts {
        for _ in 0..count {
            // The driver has no turn before the kind is known.
            let task = pair.first.submit(&[]);
            pair.kinds.put(task, kind);
        }
    }
    pair.first.run_for(10 * SECOND).await;
    let started = pair.diary.lines();
    assert_eq!(started.len(), RUNNING + 4 * OF_EACH, "{started:?}");
    let before = pair.first.broker.view(&pair.first.ledger(), false).len();
    pair.first.broker.compact(&pair.first.ledger());
    let after = pair.first.broker.view(&pair.first.ledger(), true).len();
    assert!(after < before, "a compaction that removes nothing proves nothing: {after}");
    pair
}

impl Pair {
    fn second(&self) -> Bench {
        let (kinds, diary) = (self.kinds.clone(), self.diary.clone());
        let body = move |context| play(kinds.clone(), diary.clone(), context);
        Bench::on(self.first.broker.clone(), "second", config(), None, body)
    }

    fn backlog(&self) -> usize {
        self.first.unfinished()
    }
}

/// Regression: twenty tasks that ran on one worker were all started again on a second one, under
/// the same epoch and attempt, because a compaction had removed their claims, which had no body.
/// Finished tasks without a result came back in the same way.
#[tokio::test(start_paused = true)]
async fn a_worker_that_begins_after_a_compaction_starts_nothing_again() {
    let mut pair = compacted().await;
    let started = pair.diary.lines();
    assert_eq!(pair.backlog(), RUNNING + 2 * OF_EACH);
    let mut second = pair.second();
    tokio::join!(pair.first.run_for(10 * SECOND), second.run_for(10 * SECOND));
    // All tasks from the oldest running one on are delivered again, including acknowledged ones,
    // and to either worker.
    pair.first.broker.restart(SECOND, true, Loss::Error);
    assert_eq!(pair.backlog(), RUNNING + 4 * OF_EACH);
    tokio::join!(pair.first.run_for(60 * SECOND), second.run_for(60 * SECOND));
    assert_eq!(pair.diary.lines(), started, "something was started again");
    assert_eq!(pair.backlog(), RUNNING + 2 * OF_EACH, "what has ended is acknowledged");
    assert!(second.driver.stats.is_ready(1), "the second worker has read the ledger");
}

/// Regression: after a compaction an attempt of a dead worker was missing: it was started under the
/// same number, and its checkpoint without bytes was gone.
#[tokio::test(start_paused = true)]
async fn the_heir_of_a_worker_goes_on_from_a_compacted_ledger() {
    let mut pair = compacted().await;
    let started = pair.diary.lines().len();
    let mut second = pair.second();
    tokio::join!(pair.first.run_for(10 * SECOND), second.run_for(10 * SECOND));
    pair.first.transport.kill();
    pair.first.broker.compact(&pair.first.ledger());
    second.run_for(120 * SECOND).await;
    let lines = pair.diary.lines().split_off(started);
    let count = |what: &str| lines.iter().filter(|line| line.ends_with(what)).count();
    assert_eq!(count(" 2 2"), RUNNING + OF_EACH, "{lines:?}");
    assert_eq!(count("LongWithCheckpoint found Some(0)"), OF_EACH, "{lines:?}");
    assert_eq!(count("Long found None"), RUNNING, "{lines:?}");
    assert_eq!(lines.len(), 2 * (RUNNING + OF_EACH), "{lines:?}");
    assert_eq!(pair.backlog(), OF_EACH, "only what waits for its next attempt is left");
}

/// Earlier, a worker that began on a compacted view that had lost entries, as those of real Pulsar
/// do when unloads race compactions, ran tasks again that had ended or ran elsewhere.
#[tokio::test(start_paused = true)]
async fn a_worker_that_begins_on_a_view_that_has_lost_entries_starts_nothing_again() {
    let mut pair = compacted().await;
    let started = pair.diary.lines();
    let ledger = pair.first.ledger();
    let whole = pair.first.broker.view(&ledger, true).len();
    pair.first.broker.compact_forgetting(&ledger, whole / 3);
    assert!(pair.first.broker.view(&ledger, true).len() < whole, "nothing was lost");
    let mut second = pair.second();
    tokio::join!(pair.first.run_for(10 * SECOND), second.run_for(10 * SECOND));
    assert!(second.driver.stats.is_ready(1), "the log has what the view has lost");
    pair.first.broker.restart(SECOND, true, Loss::Error);
    assert_eq!(pair.backlog(), RUNNING + 4 * OF_EACH);
    tokio::join!(pair.first.run_for(60 * SECOND), second.run_for(60 * SECOND));
    assert_eq!(pair.diary.lines(), started, "something was started again");
    assert_eq!(pair.backlog(), RUNNING + 2 * OF_EACH, "what has ended is acknowledged");
}

/// What the log does not have any more either cannot be known: the worker takes no tasks while
/// another one knows more.
#[tokio::test(start_paused = true)]
async fn a_worker_takes_no_tasks_while_another_one_knows_more_than_the_ledger() {
    let (log, _guard) = CapturedLog::capture();
    let mut pair = compacted().await;
    let started = pair.diary.lines();
    let ledger = pair.first.ledger();
    pair.first.broker.trim(&ledger);
    pair.first.broker.compact_forgetting(&ledger, 3);
    let mut second = pair.second();
    tokio::join!(pair.first.run_for(60 * SECOND), second.run_for(60 * SECOND));
    let told = log.with(&["ERROR", "reads the ledger differently"]);
    assert_eq!(told.len(), 1, "once a minute: {told:#?}");
    pair.first.broker.restart(SECOND, true, Loss::Error);
    tokio::join!(pair.first.run_for(60 * SECOND), second.run_for(60 * SECOND));
    assert!(!second.driver.stats.is_ready(1), "it does not know what runs");
    assert_eq!(pair.diary.lines(), started, "something was started again");
    // Nobody is left who knows.
    pair.first.transport.kill();
    second.run_for(60 * SECOND).await;
    assert!(second.driver.stats.is_ready(1));
}
