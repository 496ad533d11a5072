//! Tasks that wait for others: `AFTER`.

use super::*;
use longhaul_core::protocol::entry_set::{BatchOutcome, EntrySet};
use longhaul_core::protocol::key::{OnceKey, SealKey};
use longhaul_core::protocol::seal::{EndedCounts, Seal};
use longhaul_core::protocol::waits::{AfterFailed, WaitsFor};
use longhaul_core::task::text;

/// A worker whose tasks take the number of seconds in their property, and fail for good if another
/// one says so. It notes each start and each end.
fn timed(config: WorkerConfig, partitions: Option<u32>) -> (Bench, Diary) {
    Bench::with_diary(config, partitions, |context, notes| async move {
        let of = |name| context.properties().get(name).cloned().unwrap_or_default();
        notes.note(format!("{} starts", of("name")));
        let seconds: u64 = of("seconds").parse().unwrap_or(0);
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        notes.note(format!("{} ends", of("name")));
        if of("fails").is_empty() {
            Ok(Text("done".to_owned()))
        } else {
            Err(TaskError::fatal("no"))
        }
    })
}

impl Bench {
    /// The number of ledger entries that park this task.
    pub(super) fn parked(&self, task: TaskId) -> usize {
        let parks = |message: &&Message| match ledger::read(message) {
            Ok(Entry::Claim(claim)) => claim.key.task == task && claim.kind == ClaimKind::Park,
            Ok(Entry::Done(done)) => done.key.task == task && done.parks(),
            _ => false,
        };
        self.broker.full_log(&self.ledger()).iter().filter(parks).count()
    }

    /// Another worker, which is gone, has parked this task, and no worker holds it.
    fn parked_by_another(&self, named: TaskId) -> TaskId {
        self.broker.stall_subscription(&self.at(&self.names.task, -1), "longhaul");
        let task = self.submit(&[("name", "parked"), ("AFTER", &named.to_string())]);
        let key = OnceKey { task, epoch: Epoch(1), owner: OwnerId(7), serial: 1 };
        let claim = Entry::Claim(Claim::plain(key, 0, ClaimKind::Park));
        let list = WaitsFor::of([named], AfterFailed::Fail);
        self.broker.publish(&self.ledger(), ledger::message(&claim, list.content().as_bytes()));
        task
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_begins_when_the_others_are_over_and_meanwhile_takes_no_slot() {
    let config = WorkerConfig { concurrency: 2, max_attempts: 1, ..brisk() };
    let (mut bench, diary) = timed(config, None);
    let first = bench.submit(&[("name", "first"), ("seconds", "20")]);
    bench.run_for(2 * SECOND).await;
    let after = first.to_string();
    let parked = bench.submit(&[("name", "parked"), ("AFTER", &after)]);
    bench.run_for(2 * SECOND).await;
    assert_eq!(bench.parked(parked), 1);
    assert!(!bench.driver.lanes.get(&LANE).unwrap().payloads.contains(parked));
    bench.submit(&[("name", "other"), ("seconds", "1")]);
    bench.run_for(60 * SECOND).await;
    let expected = [
        "first starts",
        "other starts",
        "other ends",
        "first ends",
        "parked starts",
        "parked ends",
    ];
    assert_eq!(diary.lines(), expected);
    let last = bench.last_of(parked);
    assert_eq!((last.state, last.attempts), (TaskState::Completed, 1));
    assert_eq!(bench.driver.stats.read().violations, 0);
    assert!(bench.driver.queues[0].core.dependencies().is_empty(), "what is over is not kept");
}

#[tokio::test(start_paused = true)]
async fn what_follows_a_task_without_a_result_is_up_to_the_one_that_waited() {
    let (mut bench, diary) = timed(brisk(), None);
    let first = bench.submit(&[("name", "first"), ("seconds", "5"), ("fails", "yes")]).to_string();
    bench.run_for(2 * SECOND).await;
    let ends = |outcome, reason: &str| (outcome, reason.replace("ID", &first));
    for (policy, (outcome, reason)) in [
        (
            "fail",
            ends(Some(TaskOutcome::Final), "Task ID, which had to be over first, has no result"),
        ),
        (
            "skip",
            ends(
                Some(TaskOutcome::Cancelled),
                "Skipped: task ID, which had to be over first, has no result",
            ),
        ),
        ("run", ends(None, "")),
    ] {
        // Before the first one has failed, and after it.
        let properties = [("name", policy), ("AFTER", &*first), ("AFTER_FAILED", policy)];
        let task = bench.submit(&properties);
        bench.run_for(10 * SECOND).await;
        let late = bench.submit(&properties);
        bench.run_for(10 * SECOND).await;
        for task in [task, late] {
            let last = bench.last_of(task);
            assert_eq!(last.outcome, outcome, "{policy}");
            assert_eq!(last.failure_reason.unwrap_or_default(), reason, "{policy}");
            assert!(bench.is_acked(task));
        }
    }
    let begun = diary.lines().into_iter().filter(|line| line.ends_with("starts"));
    assert_eq!(begun.collect::<Vec<_>>(), ["first starts", "run starts", "run starts"]);
    assert_eq!(bench.driver.stats.read().violations, 0);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_nobody_can_follow_fails_the_task_with_that_reason() {
    let (mut bench, diary) = timed(brisk(), None);
    bench.run_for(5 * SECOND).await;
    for (after, failed, reason) in [
        ("yesterday", "fail", "AFTER cannot be followed: `yesterday` is not the id of a task"),
        ("1:2:-1", "maybe", "AFTER cannot be followed: `maybe` is not `fail`, `skip` or `run`"),
        ("1:2:5", "run", "AFTER names 1:2:5, which is no task of this topic"),
    ] {
        let task = bench.submit(&[("AFTER", after), ("AFTER_FAILED", failed)]);
        bench.run_for(5 * SECOND).await;
        let last = bench.last_of(task);
        assert_eq!(last.outcome, Some(TaskOutcome::Final));
        assert_eq!(last.failure_reason.as_deref(), Some(reason));
    }
    assert!(diary.lines().is_empty(), "{:?}", diary.lines());
}

#[tokio::test(start_paused = true)]
async fn any_worker_goes_on_with_a_task_that_another_one_has_parked() {
    let (mut bench, diary) = timed(brisk(), None);
    let first = bench.submit(&[("name", "first"), ("seconds", "100")]);
    bench.run_for(2 * SECOND).await;
    let parked = bench.parked_by_another(first);
    bench.run_for(90 * SECOND).await;
    assert_eq!(diary.lines(), ["first starts"]);
    bench.run_for(60 * SECOND).await;
    assert_eq!(diary.lines()[1..], ["first ends", "parked starts", "parked ends"]);
    assert_eq!(bench.last_of(parked).attempts, 1);
}

/// The data of a seal must suffice for tasks that wait for a sealed one: nothing else is left of
/// it.
#[tokio::test(start_paused = true)]
async fn a_seal_says_how_a_task_has_ended() {
    for (counts, ended, outcome) in [
        (EndedCounts { completed: 1, ..EndedCounts::default() }, BatchOutcome::Completed, None),
        (
            EndedCounts { expired: 1, ..EndedCounts::default() },
            BatchOutcome::Failed,
            Some(TaskOutcome::Final),
        ),
    ] {
        let (mut bench, diary) = timed(brisk(), None);
        bench.run_for(5 * SECOND).await;
        let first = TaskId { ledger: 0, entry: 77, partition: -1, batch_index: None };
        let parked = bench.parked_by_another(first);
        bench.run_for(60 * SECOND).await;
        assert!(diary.lines().is_empty(), "{:?}", diary.lines());
        let mut entries = EntrySet::default();
        entries.push_entry(first.entry_id(), ended);
        let key = SealKey { owner: OwnerId(7), serial: 3 };
        bench.write(&Entry::Seal(Seal { key, counts, entries }));
        bench.run_for(60 * SECOND).await;
        assert_eq!(diary.lines().is_empty(), outcome.is_some());
        assert_eq!(bench.last_of(parked).outcome, outcome);
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_starts_later_finds_who_waits_for_whom_on_the_ledger() {
    let (mut bench, diary) = timed(brisk(), None);
    let first = bench.submit(&[("name", "first")]);
    let other = TaskId { entry: first.entry + 1_000, ..first };
    bench.run_for(10 * SECOND).await;
    bench.drain_for(Duration::ZERO);
    bench.run_for(30 * SECOND).await;
    assert!(bench.ended);
    let (due, waits) = (bench.parked_by_another(first), bench.parked_by_another(other));
    let broker = bench.broker.clone();
    let mut next =
        Bench::on(broker, "next", brisk(), None, |_| async { Ok(Text("next".to_owned())) });
    next.run_for(30 * SECOND).await;
    assert_eq!(diary.lines(), ["first starts", "first ends"]);
    let last = next.last_of(due);
    assert_eq!((last.state, last.attempts), (TaskState::Completed, 1));
    assert!(next.shown_of(waits).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_task_waits_for_tasks_of_other_partitions() {
    let (mut bench, diary) = timed(brisk(), Some(3));
    let submit = |bench: &Bench, partition, properties: &[(&str, &str)]| {
        bench.submit_to(&bench.names.task, partition, properties)
    };
    let fast = submit(&bench, 0, &[("name", "fast"), ("seconds", "5")]);
    let slow = submit(&bench, 1, &[("name", "slow"), ("seconds", "30")]);
    let after = format!("{fast},{slow}");
    submit(&bench, 2, &[("name", "both"), ("AFTER", &after)]);
    bench.run_for(60 * SECOND).await;
    let expected = ["fast ends", "slow ends", "both starts", "both ends"];
    assert_eq!(diary.lines()[2..], expected);
}

#[tokio::test(start_paused = true)]
async fn a_parked_task_is_cancelled_at_once() {
    let (mut bench, diary) = timed(brisk(), None);
    let first = bench.submit(&[("name", "first"), ("seconds", "1000")]).to_string();
    let parked = bench.submit(&[("name", "parked"), ("AFTER", &first)]);
    bench.run_for(10 * SECOND).await;
    bench.write(&Entry::Cancel(parked));
    bench.run_for(2 * SECOND).await;
    let last = bench.last_of(parked);
    assert_eq!(last.outcome, Some(TaskOutcome::Cancelled));
    assert_eq!(last.failure_reason.as_deref(), Some(text::CANCELLED));
    assert_eq!(diary.lines(), ["first starts"]);
    assert!(bench.driver.queues[0].core.dependencies().is_empty());
}
