//! Tasks that replace an earlier one with the same dedupe key.

use super::*;
use longhaul_core::protocol::fold::Phase;
use longhaul_core::protocol::register::{KeyKind, KeyName, QueueTask};
use longhaul_memory::PublishFate;

const HOUR: Duration = Duration::from_secs(3600);
const KEY: (&str, &str) = ("DEDUPE_KEY", "k");
const KEYS: [&str; 2] = ["k", "l"];
const OVER: (&str, &str) = ("OVERWRITE", "true");

/// A worker that notes which tasks it has begun. Their properties give the number of seconds they
/// take and the number of failures.
fn noting() -> (Bench, Diary) {
    noting_with(WorkerConfig::default())
}

fn noting_with(config: WorkerConfig) -> (Bench, Diary) {
    Bench::with_diary(config, None, |context, notes| async move {
        notes.note(context.task_id().to_string());
        let number = |name| context.properties().get(name).map_or(0, |it| it.parse().unwrap());
        tokio::time::sleep(number("takes") * SECOND).await;
        if context.attempt() <= number("fails") {
            return Err(TaskError::retry_after(HOUR, "not yet"));
        }
        Ok(Text("done".to_owned()))
    })
}

impl Bench {
    /// Writes the bind of a client that has submitted this task.
    fn bind_as_client(&self, task: TaskId, overwrites: bool, serial: u64) {
        self.write_bind(KeyName::new(KeyKind::Dedupe, "k").unwrap(), task, overwrites, serial);
    }

    fn fold(&self, task: TaskId) -> (Phase, Epoch) {
        let fold = self.driver.lanes[-1].core.machine().fold(task);
        (fold.phase, fold.epoch)
    }

    fn superseded_by(&self, task: TaskId) -> Option<TaskId> {
        self.last_of(task).superseded_by?.parse().ok()
    }

    #[track_caller]
    fn check_superseded(&self, task: TaskId, by: TaskId) {
        assert_eq!(self.fold(task).0, Phase::Cancelled);
        let last = self.last_of(task);
        assert_eq!(last.outcome, Some(TaskOutcome::Cancelled));
        assert_eq!(last.superseded_by, Some(by.to_string()));
        assert_eq!(last.failure_reason, Some(format!("Superseded by {by}")));
        assert_eq!((last.duplicate_of, last.warning), (None, None));
    }

    #[track_caller]
    fn check_end(&self) {
        assert_eq!(self.unfinished(), 0);
        assert_eq!(self.driver.stats.read().violations, 0);
        assert!(!self.driver.queues[0].core.register().keys().has_overwriters());
    }
}

/// Regression: updates of a document came every minute, and either each made a task or none of them
/// counted.
#[tokio::test(start_paused = true)]
async fn a_task_that_is_scheduled_makes_room_at_once() {
    let (mut bench, diary) = noting();
    bench.run_for(SECOND).await;
    let first = bench.submit(&[KEY, ("DELAY", "PT1H")]);
    bench.bind_as_client(first, false, 1);
    bench.run_for(5 * SECOND).await;
    let second = bench.submit(&[KEY, OVER]);
    bench.run_for(10 * SECOND).await;
    assert_eq!(diary.lines(), [second.to_string()]);
    bench.check_superseded(first, second);
    bench.run_long(2 * HOUR).await;
    assert_eq!(diary.lines(), [second.to_string()]);
    bench.check_end();
}

/// No worker has a delivery of the replacing task, and it counts all the same: a task can be put
/// off.
#[tokio::test(start_paused = true)]
async fn a_task_is_put_off_by_one_that_is_scheduled_for_later() {
    let (mut bench, diary) = noting();
    let mut last = bench.submit(&[KEY, ("DELAY", "PT1H")]);
    bench.bind_as_client(last, false, 1);
    for serial in 2..5 {
        bench.run_for(60 * SECOND).await;
        let next = bench.submit(&[KEY, OVER, ("DELAY", "PT2H")]);
        bench.bind_as_client(next, true, serial);
        bench.run_for(10 * SECOND).await;
        assert_eq!(bench.fold(last).0, Phase::Cancelled);
        last = next;
    }
    bench.run_long(3 * HOUR).await;
    assert_eq!(diary.lines(), [last.to_string()]);
    bench.check_end();
}

#[tokio::test(start_paused = true)]
async fn a_task_between_two_attempts_makes_room() {
    let (mut bench, diary) = noting();
    let first = bench.submit(&[KEY, ("fails", "1")]);
    bench.run_for(10 * SECOND).await;
    assert_eq!(bench.fold(first), (Phase::Retry, Epoch(1)));
    let second = bench.submit(&[KEY, OVER]);
    bench.run_for(20 * SECOND).await;
    assert_eq!(diary.lines(), [first.to_string(), second.to_string()]);
    bench.check_superseded(first, second);
    bench.check_end();
}

/// Regression: an update that came while the task ran was lost.
#[tokio::test(start_paused = true)]
async fn what_runs_is_not_touched_and_the_later_task_runs_after_it() {
    for fails in ["0", "1"] {
        let (mut bench, diary) = noting();
        let first = bench.submit(&[KEY, ("takes", "30"), ("fails", fails)]);
        bench.run_for(5 * SECOND).await;
        let second = bench.submit(&[KEY, OVER]);
        bench.run_for(20 * SECOND).await;
        assert_eq!((bench.fold(first).0, bench.fold(second).0), (Phase::Running, Phase::New));
        bench.run_for(20 * SECOND).await;
        assert_eq!(diary.lines(), [first.to_string(), second.to_string()]);
        if fails == "1" {
            bench.check_superseded(first, second);
        } else {
            assert_eq!(bench.fold(first).0, Phase::Completed);
        }
        bench.check_end();
    }
}

/// Regression: the later task was cancelled, and the earlier one, which had failed once, was closed
/// for it, so neither ran to its end.
#[tokio::test(start_paused = true)]
async fn a_task_that_is_over_takes_nobodys_place() {
    let (mut bench, diary) = noting();
    let first = bench.submit(&[KEY, ("takes", "30"), ("fails", "1")]);
    bench.run_for(5 * SECOND).await;
    let second = bench.submit(&[KEY, OVER]);
    bench.run_for(5 * SECOND).await;
    bench.write(&Entry::Cancel(second));
    bench.run_for(5 * SECOND).await;
    assert_eq!((bench.fold(first).0, bench.fold(second).0), (Phase::Running, Phase::Cancelled));
    bench.run_long(2 * HOUR).await;
    assert_eq!(diary.lines(), [first.to_string(), first.to_string()]);
    assert_eq!(bench.fold(first).0, Phase::Completed);
    bench.check_end();
}

/// The broker loses, in turn, the claim that closes the earlier task, the release of its key, and
/// the bind of the later task.
#[tokio::test(start_paused = true)]
async fn what_gets_lost_on_the_way_is_published_again() {
    for lost in 0..3 {
        let (mut bench, diary) = noting();
        bench.run_for(SECOND).await;
        let first = bench.submit(&[KEY, ("DELAY", "PT1H")]);
        bench.bind_as_client(first, false, 1);
        bench.run_for(5 * SECOND).await;
        let second = bench.submit(&[KEY, OVER, ("DELAY", "PT2H")]);
        bench.bind_as_client(second, true, 2);
        let fates = [PublishFate::Stored, PublishFate::Lost];
        let (topic, fates) = match lost {
            0 => (bench.ledger(), &fates[1..]),
            1 => (bench.register(), &fates[1..]),
            _ => (bench.register(), &fates[..]),
        };
        for fate in fates {
            bench.broker.next_publish(&topic, *fate);
        }
        bench.run_for(60 * SECOND).await;
        bench.check_superseded(first, second);
        let keys = bench.driver.queues[0].core.register().keys();
        assert!(keys.held_by(QueueTask::normal(second)).is_some(), "{lost}");
        bench.run_long(3 * HOUR).await;
        assert_eq!(diary.lines(), [second.to_string()], "{lost}");
        bench.check_end();
    }
}

/// Of two tasks that overwrite each other while a third one runs, the later one counts.
#[tokio::test(start_paused = true)]
async fn the_last_of_several_overwriters_runs() {
    let (mut bench, diary) = noting();
    let first = bench.submit(&[KEY, ("takes", "30")]);
    bench.run_for(5 * SECOND).await;
    let second = bench.submit(&[KEY, OVER]);
    let third = bench.submit(&[KEY, OVER]);
    bench.run_for(60 * SECOND).await;
    assert_eq!(diary.lines(), [first.to_string(), third.to_string()]);
    assert_eq!(bench.fold(second).0, Phase::Cancelled);
    bench.check_end();
}

/// Regression: an overwriter whose start time was later than losses are remembered ran after the
/// task that had replaced it.
#[tokio::test(start_paused = true)]
async fn an_overwriter_that_has_lost_is_closed_before_its_time() {
    let (mut bench, diary) = noting();
    let first = bench.submit(&[KEY, ("takes", "30")]);
    bench.run_for(5 * SECOND).await;
    let second = bench.submit(&[KEY, OVER, ("DELAY", "PT1000H")]);
    bench.bind_as_client(second, true, 1);
    let third = bench.submit(&[KEY, OVER]);
    bench.run_for(60 * SECOND).await;
    assert_eq!(diary.lines(), [first.to_string(), third.to_string()]);
    bench.check_superseded(second, third);
    bench.check_end();
}

/// A message that came late is the earlier task: a task that was submitted after it has run.
#[tokio::test(start_paused = true)]
async fn an_overwriter_loses_against_a_later_task() {
    let (mut bench, diary) = noting();
    bench.run_for(SECOND).await;
    let [first, second] = [&[KEY, OVER][..], &[KEY, ("takes", "20")]].map(|it| bench.submit(it));
    bench.bind_as_client(second, false, 1);
    bench.run_for(60 * SECOND).await;
    assert_eq!(diary.lines(), [second.to_string()]);
    bench.check_superseded(first, second);
    bench.check_end();
}

/// Regression: the message of the earlier task is gone, and its key was held forever if the task
/// was one of a batch. Every five seconds a claim was published that no reader could parse, because
/// it did not contain the size of the batch.
#[tokio::test(start_paused = true)]
async fn a_task_whose_message_is_gone_makes_room() {
    for batch_index in [None, Some(2)] {
        let (mut bench, diary) = noting();
        bench.run_for(SECOND).await;
        let gone = TaskId { ledger: 0, entry: 0, partition: -1, batch_index };
        bench.bind_as_client(gone, false, 1);
        let task = bench.submit(&[KEY, OVER]);
        assert!(gone < task);
        bench.run_for(20 * SECOND).await;
        assert_eq!(diary.lines(), [task.to_string()]);
        assert_eq!(bench.fold(gone).0, Phase::Cancelled);
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_used_of_overwriting_is_told() {
    let (mut bench, diary) = noting();
    let cases = [
        (vec![OVER], Some("no dedupe key")),
        (vec![OVER, ("IDEMPOTENCY_KEY", "i")], Some("no dedupe key")),
        (vec![KEY, ("OVERWRITE", "yes")], Some("neither `true` nor `false`")),
        (vec![("DEDUPE_KEY", "l"), ("OVERWRITE", "false")], None),
    ];
    for (properties, problem) in &cases {
        let task = bench.submit(properties);
        bench.run_for(5 * SECOND).await;
        let (_, shown) = bench.shown().pop().unwrap();
        assert_eq!(shown.message_id, task.to_string());
        match problem {
            Some(problem) => assert!(shown.warning.unwrap().contains(problem)),
            None => assert_eq!(shown.warning, None),
        }
    }
    assert_eq!(diary.lines().len(), cases.len());
}

/// Regression: one task ran for an hour, and each minute an overwriter of it came. The worker kept
/// a slot free for each overwriter: after as many as it has slots it took no task, with all slots
/// but one free.
#[tokio::test(start_paused = true)]
async fn overwriters_behind_one_that_runs_hold_up_nothing() {
    let (mut bench, diary) =
        noting_with(WorkerConfig { concurrency: 4, ..WorkerConfig::default() });
    let holders = [0, 1].map(|key| bench.submit(&[("DEDUPE_KEY", KEYS[key]), ("takes", "3600")]));
    bench.run_for(SECOND).await;
    let over: Vec<TaskId> =
        (0..20).map(|each| bench.submit(&[("DEDUPE_KEY", KEYS[each % 2]), OVER])).collect();
    bench.run_for(5 * SECOND).await;
    let ready: Vec<TaskId> = (0..4).map(|_| bench.submit(&[])).collect();
    bench.run_for(2 * SECOND).await;
    let begun: Vec<String> = holders.iter().chain(&ready).map(ToString::to_string).collect();
    assert_eq!(diary.lines(), begun);
    // An overwriter that a later one replaces does not wait.
    for (at, task) in over[..18].iter().enumerate() {
        let by = bench.superseded_by(*task).expect("a later one was named");
        let at_by = over.iter().position(|task| *task == by).unwrap();
        assert!(at_by > at && at_by % 2 == at % 2, "{task} by {by}");
        bench.check_superseded(*task, by);
    }
    bench.run_long(2 * HOUR).await;
    let ran = [&begun[..], &[over[18].to_string(), over[19].to_string()]].concat();
    assert_eq!(diary.lines(), ran);
    bench.check_end();
}
