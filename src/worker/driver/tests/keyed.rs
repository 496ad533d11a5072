//! Tasks with keys.

use super::*;
use longhaul_core::protocol::fold::Phase;
use longhaul_core::protocol::register::{KeyKind, QueueTask, RegisterEntry};
use longhaul_core::register;
use longhaul_core::task::FailureCause;
use longhaul_memory::{Loss, PublishFate};

/// The key retention in tests that wait until keys are forgotten.
const R: Duration = Duration::from_secs(3600);

fn forgetful() -> WorkerConfig {
    WorkerConfig { key_retention: R, ..WorkerConfig::default() }
}

/// A worker that notes which tasks it has run.
fn noting() -> (Bench, Diary) {
    noting_with(WorkerConfig::default())
}

fn noting_with(config: WorkerConfig) -> (Bench, Diary) {
    Bench::with_diary(config, None, note_id)
}

impl Bench {
    fn phase(&self, task: TaskId) -> Phase {
        self.driver.lanes[-1].core.machine().fold(task).phase
    }

    fn binds(&self) -> usize {
        let log = self.broker.full_log(&self.register());
        let is_bind =
            |message: &&Message| matches!(register::read(message), Ok(RegisterEntry::Bind(_)));
        log.iter().filter(is_bind).count()
    }
}

/// Regression: each end that waited for the release of its key was shown within the previous one.
/// Several hundred of them overflowed the stack and crashed the process.
#[tokio::test(start_paused = true)]
async fn many_ends_that_wait_for_their_keys_are_shown_one_after_the_other() {
    const MANY: usize = 1_000;
    let config = WorkerConfig { concurrency: MANY, ..WorkerConfig::default() };
    let mut bench = Bench::new(config, None, |_| end_after(20 * SECOND));
    let key = |number: usize| number.to_string();
    let tasks: Vec<_> =
        (0..MANY).map(|number| bench.submit(&[("DEDUPE_KEY", &key(number))])).collect();
    bench.run_for(15 * SECOND).await;
    assert!(tasks.iter().all(|task| bench.phase(*task) == Phase::Running));
    // All ends wait for their releases. When the register is replaced, none does any more.
    bench.broker.stall_publishes(&bench.register(), 60 * SECOND);
    bench.run_for(10 * SECOND).await;
    bench.broker.replace_topic(&bench.names.register.clone(), Loss::Error);
    bench.run_for(60 * SECOND).await;
    let ended = bench.shown().into_iter().filter(|(_, shown)| shown.is_terminal()).count();
    assert_eq!(ended, MANY);
}

#[tokio::test(start_paused = true)]
async fn of_the_tasks_with_one_idempotency_key_one_is_run() {
    let (mut bench, diary) = noting();
    let key = [("IDEMPOTENCY_KEY", "order/4711")];
    let tasks = [bench.submit(&key), bench.submit(&key), bench.submit(&[]), bench.submit(&key)];
    bench.run_for(30 * SECOND).await;
    let mut ran = diary.lines();
    ran.sort();
    assert_eq!(ran, [tasks[0].to_string(), tasks[2].to_string()]);
    assert_eq!(bench.holder("order/4711"), Some(tasks[0]));
    for duplicate in [tasks[1], tasks[3]] {
        assert_eq!(bench.phase(duplicate), Phase::Cancelled);
        let shown = bench.last_of(duplicate);
        assert_eq!(shown.outcome, Some(TaskOutcome::Cancelled));
        assert_eq!(shown.duplicate_of, Some(tasks[0].to_string()));
        assert_eq!(shown.failure_reason, Some(format!("Duplicate of {}", tasks[0])));
    }
    assert_eq!(bench.phase(tasks[0]), Phase::Completed);
    // A lost task leaves no hole for seals: it was closed and acknowledged like any other task.
    assert_eq!(bench.unfinished(), 0);
    assert_eq!(bench.driver.stats.read().violations, 0);
}

/// Regression: a task that had lost its key counted as waiting until its entries were removed from
/// the ledger. After as many of them as there are slots, only one task was delivered per heartbeat,
/// with hundreds ready behind them. A queue that received tasks from a killed move program stood
/// still.
#[tokio::test(start_paused = true)]
async fn duplicates_hold_up_nothing_that_is_behind_them() {
    let (mut bench, diary) =
        noting_with(WorkerConfig { concurrency: 2, ..WorkerConfig::default() });
    bench.run_for(SECOND).await;
    let key = [("IDEMPOTENCY_KEY", "order/4711")];
    let tasks: Vec<TaskId> = (0..20).map(|_| bench.submit(&key)).collect();
    let behind = bench.submit(&[]);
    bench.run_for(5 * SECOND).await;
    let mut ran = diary.lines();
    ran.sort();
    let mut expected = [tasks[0].to_string(), behind.to_string()];
    expected.sort();
    assert_eq!(ran, expected);
}

/// Regression: the register could not be written for an hour. The worker held as many tasks with
/// keys as it has slots, and requested no task without a key.
#[tokio::test(start_paused = true)]
async fn tasks_without_keys_run_while_the_register_cannot_be_written() {
    let (mut bench, diary) =
        noting_with(WorkerConfig { concurrency: 2, ..WorkerConfig::default() });
    bench.run_for(SECOND).await;
    bench.broker.stall_publishes(&bench.register(), 60 * SECOND);
    let keys: Vec<String> = (0..1_500).map(|key| format!("order/{key}")).collect();
    let with_keys: Vec<TaskId> =
        keys.iter().map(|key| bench.submit(&[("IDEMPOTENCY_KEY", key.as_str())])).collect();
    let ready: Vec<TaskId> = (0..4).map(|_| bench.submit(&[])).collect();
    bench.run_for(20 * SECOND).await;
    let expected: Vec<String> = ready.iter().map(ToString::to_string).collect();
    assert_eq!(diary.lines(), expected);
    bench.run_for(60 * SECOND).await;
    let mut ran = diary.lines();
    ran.sort();
    let mut expected: Vec<String> =
        with_keys.iter().chain(&ready).map(ToString::to_string).collect();
    expected.sort();
    assert_eq!(ran, expected);
    assert_eq!(bench.driver.stats.read().violations, 0);
}

/// Another message holds the key already. The loss of this one must be on the register all the
/// same, because the key may be released before.
#[tokio::test(start_paused = true)]
async fn what_the_register_says_already_counts() {
    let (mut bench, diary) = noting();
    let first = bench.submit(&[("IDEMPOTENCY_KEY", "k")]);
    let second = bench.submit(&[("IDEMPOTENCY_KEY", "k")]);
    bench.bind("k", second, 1);
    bench.run_for(10 * SECOND).await;
    assert_eq!((diary.lines(), bench.binds()), (vec![second.to_string()], 2));
    let last = bench.last_of(first);
    assert_eq!(last.duplicate_of, Some(second.to_string()));
    assert_eq!(last.failure_cause, Some(FailureCause::Duplicate));
}

/// A bind that was not stored, or whose fate is unknown, is published again.
#[tokio::test(start_paused = true)]
async fn a_bind_that_is_lost_is_published_again() {
    for fate in [PublishFate::Lost, PublishFate::ReceiptLost, PublishFate::Refused] {
        let (mut bench, diary) = noting();
        bench.run_for(SECOND).await;
        bench.broker.next_publish(&bench.register(), fate);
        let task = bench.submit(&[("IDEMPOTENCY_KEY", "k")]);
        bench.run_for(20 * SECOND).await;
        assert_eq!(diary.lines(), [task.to_string()], "{fate:?}");
    }
}

/// A submitter that dies between its message and the bind leaves a message that a worker binds. A
/// submitter that lives binds it itself, and one entry is enough.
#[tokio::test(start_paused = true)]
async fn a_worker_binds_what_its_submitter_has_not_bound() {
    let (mut bench, diary) = noting();
    bench.run_for(SECOND).await;
    let task = bench.submit(&[("IDEMPOTENCY_KEY", "k")]);
    bench.bind("k", task, 1);
    bench.run_for(SECOND).await;
    assert_eq!((diary.lines().len(), bench.binds()), (1, 1));
    bench.submit(&[("IDEMPOTENCY_KEY", "l")]);
    bench.run_for(SECOND).await;
    assert_eq!((diary.lines().len(), bench.binds()), (2, 2));
}

/// An invalid key is ignored, with a warning.
#[tokio::test(start_paused = true)]
async fn a_key_that_is_too_long_is_told_and_does_not_count() {
    let (mut bench, diary) = noting();
    let long = "x".repeat(257);
    let tasks: Vec<_> =
        (0..2).map(|_| bench.submit(&[("IDEMPOTENCY_KEY", long.as_str())])).collect();
    bench.run_for(5 * SECOND).await;
    assert_eq!((diary.lines().len(), bench.binds()), (2, 0));
    let warning = bench.last_of(tasks[0]).warning.unwrap();
    assert!(warning.contains("257 bytes"), "{warning}");
}

/// A claim that no rule has led to: the task does not hold its key.
#[tokio::test(start_paused = true)]
async fn a_task_without_its_key_is_not_claimed_even_if_asked_for() {
    use longhaul_core::machine::Action;
    use longhaul_core::protocol::key::OnceKey;
    let (mut bench, diary) = noting();
    bench.run_for(SECOND).await;
    bench.broker.stall_publishes(&bench.register(), 60 * SECOND);
    let task = bench.submit(&[("IDEMPOTENCY_KEY", "k")]);
    bench.run_for(2 * SECOND).await;
    let lane = bench.driver.lanes.get_mut(&LANE).unwrap();
    let owner = lane.core.machine().owner();
    let key = OnceKey { task, epoch: Epoch(1), owner, serial: 999 };
    let (kind, attempt) = (ClaimKind::Run, 1);
    let claim = Claim::plain(key, attempt, kind);
    lane.core.ask_for(Action::Publish(Entry::Claim(claim)));
    bench.run_for(SECOND).await;
    assert_eq!((diary.lines().len(), bench.driver.stats.read().violations), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn of_the_unfinished_tasks_with_one_dedupe_key_one_is_run() {
    let (mut bench, diary) =
        Bench::with_diary(WorkerConfig::default(), None, |context, notes| async move {
            notes.note(context.task_id().to_string());
            end_after(10 * SECOND).await
        });
    let key = [("DEDUPE_KEY", "nightly")];
    let first = bench.submit(&key);
    bench.run_for(2 * SECOND).await;
    let duplicate = bench.submit(&key);
    bench.run_for(5 * SECOND).await;
    assert_eq!(bench.last_of(duplicate).duplicate_of, Some(first.to_string()));
    assert_eq!(bench.phase(first), Phase::Running);
    bench.run_for(10 * SECOND).await;
    assert_eq!(bench.phase(first), Phase::Completed);
    let next = bench.submit(&key);
    bench.run_for(15 * SECOND).await;
    assert_eq!(diary.lines(), [first.to_string(), next.to_string()]);
    assert_eq!(bench.phase(next), Phase::Completed);
    assert_eq!(bench.unfinished(), 0);
}

/// A submitter that has seen the end of a task may submit the next one, which must not lose against
/// it.
#[tokio::test(start_paused = true)]
async fn an_end_is_shown_when_the_key_is_released_and_not_before() {
    let mut bench = Bench::new(WorkerConfig::default(), None, |_| end_after(2 * SECOND));
    let task = bench.submit(&[("DEDUPE_KEY", "k")]);
    bench.bind_to(KeyKind::Dedupe, "k", task, 1);
    bench.run_for(SECOND).await;
    bench.broker.stall_publishes(&bench.register(), 20 * SECOND);
    bench.run_for(10 * SECOND).await;
    assert_eq!(bench.phase(task), Phase::Completed);
    let is_over = |bench: &Bench| bench.last_of(task).is_terminal();
    assert!(!is_over(&bench));
    bench.run_for(30 * SECOND).await;
    assert!(is_over(&bench));
    assert_eq!(
        bench.driver.queues[0].core.register().keys().held_by(QueueTask::normal(task)),
        None
    );
}

/// A bind that was in flight for long names a task that is over. Otherwise the key would be held
/// forever.
#[tokio::test(start_paused = true)]
async fn a_key_of_a_task_that_is_over_is_released_by_whoever_sees_it() {
    let (mut bench, diary) = noting();
    let task = bench.submit(&[]);
    bench.run_for(20 * SECOND).await;
    bench.bind_to(KeyKind::Dedupe, "k", task, 1);
    bench.run_for(SECOND).await;
    assert_eq!(
        bench.driver.queues[0].core.register().keys().held_by(QueueTask::normal(task)),
        None
    );
    let next = bench.submit(&[("DEDUPE_KEY", "k")]);
    bench.run_for(5 * SECOND).await;
    assert_eq!(diary.lines(), [task.to_string(), next.to_string()]);
}

/// Regression: keys were kept forever, on the register and in the memory of each worker.
#[tokio::test(start_paused = true)]
async fn a_key_is_remembered_for_its_retention_and_then_removed() {
    let (mut bench, diary) = Bench::with_diary(forgetful(), None, |context, notes| async move {
        notes.note(context.task_id().to_string());
        let times: u32 = context.properties().get("times").map_or(0, |it| it.parse().unwrap());
        end_after(times * R).await
    });
    let first = bench.submit(&[("IDEMPOTENCY_KEY", "k")]);
    let long = bench.submit(&[("IDEMPOTENCY_KEY", "l"), ("times", "5")]);
    bench.run_long(R).await;
    let duplicate = bench.submit(&[("IDEMPOTENCY_KEY", "k")]);
    bench.run_long(3 * R).await;
    assert_eq!((bench.holder("k"), bench.holder("l")), (None, Some(long)));
    let of_long = bench.submit(&[("IDEMPOTENCY_KEY", "l")]);
    bench.run_long(2 * R).await;
    assert_eq!(bench.phase(long), Phase::Completed);
    // The retention counts from the end of the task, not from its bind.
    let again = ["l", "k"].map(|key| bench.submit(&[("IDEMPOTENCY_KEY", key)]));
    bench.run_long(R).await;
    let ran = [first, long, again[1]].map(|task| task.to_string());
    assert_eq!(diary.lines(), ran);
    for (lost, holder) in [(duplicate, first), (of_long, long), (again[0], long)] {
        assert_eq!(bench.last_of(lost).duplicate_of, Some(holder.to_string()));
    }
    bench.run_long(5 * R).await;
    let keys = bench.driver.queues[0].core.register().keys();
    assert!(keys.is_empty(), "{keys:?}");
    bench.broker.compact(&bench.register());
    let left = bench.broker.view(&bench.register(), true);
    let is_key = |message: &Message| matches!(register::read(message), Ok(RegisterEntry::Bind(_)));
    assert!(!left.iter().any(is_key), "{left:?}");
    assert_eq!(bench.driver.stats.read().violations, 0);
}

/// Regression: at most 10,000 entries a minute were removed, so a busy queue left more behind than
/// was ever removed.
#[tokio::test(start_paused = true)]
async fn what_is_over_is_removed_in_batches_that_follow_each_other() {
    let mut bench = Bench::new(forgetful(), None, |context| report(context, 1));
    let first = bench.submit(&[("IDEMPOTENCY_KEY", "k")]);
    bench.run_for(10 * SECOND).await;
    for entry in 1_000..26_000 {
        bench.bind_to(KeyKind::Idempotency, "k", TaskId { entry, ..first }, entry);
    }
    let left =
        |bench: &Bench| bench.driver.queues[0].core.register().keys().expired().next().count();
    let mut seconds = 0;
    while left(&bench) < 25_000 {
        seconds += 1;
        assert!(seconds < 5 * R.as_secs(), "nothing is over");
        bench.turns = 0;
        bench.run_for(SECOND).await;
    }
    bench.run_for(61 * SECOND).await;
    // The key's own entry follows the entries of lost tasks.
    assert!(left(&bench) <= 1, "{}", left(&bench));
}

/// See `longhaul_core::queue`: a check of this many holders continues in the next turn.
#[tokio::test(start_paused = true)]
async fn more_holders_than_are_checked_at_once_are_all_renewed() {
    let mut bench = Bench::new(forgetful(), None, |context| report(context, 1));
    let first = bench.submit(&[]);
    bench.run_for(10 * SECOND).await;
    let tasks = (1_000..26_000).map(|entry| TaskId { entry, ..first });
    for task in tasks.clone() {
        bench.bind_to(KeyKind::Idempotency, &task.entry.to_string(), task, task.entry);
    }
    for _ in 0..40 {
        bench.turns = 0;
        bench.run_for(R / 10).await;
    }
    let keys = bench.driver.queues[0].core.register().keys();
    assert!(keys.period().0 >= 3, "{:?}", keys.period());
    assert_eq!(keys.holders_behind(KeyKind::Idempotency, None).count(), 25_000);
}

/// A dead letter may stay in its topic for longer than keys are remembered. Without this its second
/// replay would run the task again.
#[tokio::test(start_paused = true)]
async fn the_key_of_a_replay_is_never_forgotten() {
    let (mut bench, diary) = noting_with(forgetful());
    let submit =
        |bench: &Bench| ["dlq/1:2:-1", "k"].map(|key| bench.submit(&[("IDEMPOTENCY_KEY", key)]));
    let first = submit(&bench);
    bench.run_long(6 * R).await;
    let second = submit(&bench);
    bench.run_for(5 * SECOND).await;
    let ran = [first[0], first[1], second[1]].map(|task| task.to_string());
    assert_eq!(diary.lines(), ran);
    assert_eq!(bench.last_of(second[0]).duplicate_of, Some(first[0].to_string()));
}
