//! Tasks that wait for others: missing tasks, keys, cycles, and the information for a processor
//! about the tasks that it has waited for.

use super::*;
use crate::TaskRef;
use longhaul_core::protocol::waits::KEY_WAIT_MAX;
use longhaul_memory::{Happening, Loss};

const HOUR: Duration = Duration::from_secs(3600);

/// A worker whose tasks note their starts and follow their property `does`: they take a second and
/// return their name, fail for good, or, in their first attempt, wait for the tasks in `after`.
/// Then they note what they learn about those.
fn bench(config: WorkerConfig) -> (Bench, Diary) {
    Bench::with_diary(config, None, |context, notes| async move {
        let of = |name: &str| context.properties().get(name).cloned().unwrap_or_default();
        let (name, known) = (of("name"), context.predecessors());
        notes.note(format!("{name} starts {}", context.attempt()));
        for task in known {
            let result = task.result::<Text>().await?.map_or_else(|| "-".to_owned(), |it| it.0);
            notes.note(format!("{name} after {result} {:?}", task.outcome()));
        }
        if known.is_empty() && !of("after").is_empty() {
            let of_topic = |id: &str| TaskRef::new(context.topic(), id.parse().unwrap());
            let tasks: Vec<_> = of("after").split(',').map(of_topic).collect();
            return Err(TaskError::after(tasks.iter().map(|task| task.as_ref().unwrap())));
        }
        tokio::time::sleep(SECOND).await;
        if of("does") == "fail" { Err(TaskError::fatal("no")) } else { Ok(Text(name)) }
    })
}

impl Bench {
    /// The number of requests of the worker for the message of this task.
    fn asked_for(&self, task: TaskId) -> usize {
        self.broker.with_history(|history| {
            let asks = |event: &&longhaul_memory::SimulationEvent| matches!(&event.what, Happening::Fetched { position, .. } if *position == task.position());
            history.events().iter().filter(asks).count()
        })
    }

    fn reason(&self, task: TaskId) -> (Option<TaskOutcome>, String) {
        let last = self.last_of(task);
        (last.outcome, last.failure_reason.unwrap_or_default())
    }
}

#[tokio::test(start_paused = true)]
async fn m_says_what_a_parked_task_waits_for() {
    let (mut bench, _) = bench(brisk());
    let first = bench.submit(&[("SCHEDULED_AT", "2100-01-01T00:00:00Z")]).to_string();
    let after = format!("{first},key:o%2Cp");
    let parked = bench.submit(&[("AFTER", &after), ("TAGS", "t"), ("name", "parked")]);
    bench.run_for(10 * SECOND).await;
    let last = bench.last_of(parked);
    assert_eq!((last.state, last.attempts, last.outcome), (TaskState::New, 0, None));
    assert_eq!(last.waits_for, [first, "key:o%2Cp".to_owned()]);
    assert_eq!((last.tags, last.task), (vec!["t".to_owned()], Some("task".into())));
    assert_eq!(bench.driver.stats.read().violations, 0);
}

/// Regression: a task that named an id without a message stayed parked forever.
#[tokio::test(start_paused = true)]
async fn a_task_that_does_not_exist_counts_as_one_without_a_result() {
    let (mut bench, diary) = bench(brisk());
    let last = bench.submit(&[("name", "last")]);
    let nobody = TaskId { entry: last.entry + 100, ..last };
    let after = nobody.to_string();
    let [fail, skip, _] = ["fail", "skip", "run"].map(|policy| {
        bench.submit(&[("AFTER", &after), ("AFTER_FAILED", policy), ("name", policy)])
    });
    bench.run_for(60 * SECOND).await;
    let why = format!(
        "ask {nobody}, which had to be over first, does not exist: no message of the topic has its id"
    );
    assert_eq!(bench.reason(fail), (Some(TaskOutcome::Final), format!("T{why}")));
    assert_eq!(bench.reason(skip), (Some(TaskOutcome::Cancelled), format!("Skipped: t{why}")));
    assert_eq!(diary.lines(), ["last starts 1", "run starts 1", "run after - Missing"]);
    assert_eq!(bench.driver.stats.read().violations, 0);
}

/// Regression: each task that waited for another one requested its message, and while the worker
/// was cut off all of them did so again and again: 13 times a second with 8 waiting tasks. Found by
/// the simulation.
#[tokio::test(start_paused = true)]
async fn a_message_that_many_tasks_wait_for_is_asked_for_once_at_a_time() {
    let (mut bench, diary) = bench(brisk());
    let last = bench.submit(&[("name", "last")]);
    let nobody = TaskId { entry: last.entry + 1_000, ..last };
    let after = nobody.to_string();
    for _ in 0..50 {
        bench.submit(&[("AFTER", &after), ("AFTER_FAILED", "run"), ("name", "run")]);
    }
    bench.run_for(SECOND).await;
    bench.transport.cut(Loss::Error);
    bench.run_for(20 * SECOND).await;
    let times = bench.asked_for(nobody);
    assert!((5..30).contains(&times), "{times}");
    bench.transport.restore();
    bench.run_for(60 * SECOND).await;
    let begun = diary.lines().iter().filter(|line| *line == "run starts 1").count();
    assert_eq!(begun, 50);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_exists_is_waited_for_however_long_nobody_claims_it() {
    let (mut bench, diary) = bench(brisk());
    let first = bench.submit(&[("name", "first"), ("DELAY", "PT5H")]);
    bench.submit(&[("name", "second"), ("AFTER", &first.to_string())]);
    bench.run_long(4 * HOUR).await;
    assert!(diary.lines().is_empty(), "{:?}", diary.lines());
    bench.run_long(2 * HOUR).await;
    assert_eq!(
        diary.lines(),
        ["first starts 1", "second starts 1", "second after first Completed"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_key_is_the_task_that_takes_it_and_one_that_nobody_takes_has_its_time() {
    let (mut bench, diary) = bench(WorkerConfig::default());
    let late = bench.submit(&[("name", "late"), ("AFTER", "key:nobody")]);
    bench.submit(&[("name", "second"), ("AFTER", "key:one,key:two")]);
    bench.run_long(HOUR).await;
    assert!(diary.lines().is_empty(), "{:?}", diary.lines());
    bench.submit(&[("name", "one"), ("IDEMPOTENCY_KEY", "one")]);
    bench.submit(&[("name", "two"), ("DEDUPE_KEY", "two"), ("does", "fail")]);
    bench.submit(&[("name", "both"), ("AFTER", "key:one,key:two"), ("AFTER_FAILED", "run")]);
    bench.run_for(60 * SECOND).await;
    let mut lines = diary.lines();
    lines.sort();
    let both = ["both after - Failed", "both after one Completed", "both starts 1"];
    assert_eq!(lines, [&both[..], &["one starts 1", "two starts 1"]].concat());
    bench.run_long(KEY_WAIT_MAX).await;
    let why = "Task key:nobody, which had to be over first, does not exist: no task has taken its key in 24 hours";
    assert_eq!(bench.reason(late), (Some(TaskOutcome::Final), why.to_owned()));
    assert_eq!(bench.driver.stats.read().violations, 0);
    assert!(bench.driver.queues[0].core.dependencies().is_empty());
}

/// Regression: when one of several keys was taken, keys that had been given up after 24 hours
/// counted again forever.
#[tokio::test(start_paused = true)]
async fn keys_that_were_given_up_stay_so_when_another_one_is_taken() {
    let (mut bench, diary) = bench(WorkerConfig::default());
    let late = bench.submit(&[("SCHEDULED_AT", "2100-01-01T00:00:00Z")]);
    let after = format!("{late},key:a,key:b");
    let parked = [("AFTER", &*after), ("AFTER_FAILED", "run"), ("name", "parked")];
    let parked = bench.submit(&parked);
    bench.run_long(KEY_WAIT_MAX + HOUR).await;
    bench.submit(&[("name", "b"), ("IDEMPOTENCY_KEY", "b")]);
    bench.run_for(10 * SECOND).await;
    assert_eq!(diary.lines(), ["b starts 1"], "{late} is not over");
    bench.broker.publish(&bench.ledger(), ledger::message(&Entry::Cancel(late), b""));
    bench.run_for(60 * SECOND).await;
    assert_eq!(bench.last_of(parked).state, TaskState::Completed);
}

/// A processor that waits for finished tasks, whatever it has learned of them, must not spin: each
/// round is a snooze of a second.
#[tokio::test(start_paused = true)]
async fn a_processor_that_waits_for_what_is_over_begins_once_a_second() {
    let (mut bench, diary) = Bench::with_diary(brisk(), None, |context, notes| async move {
        let Some(id) = context.properties().get("after") else {
            return Ok(Text("done".to_owned()));
        };
        notes.note("again".to_owned());
        let task = TaskRef::new(context.topic(), id.parse().unwrap()).unwrap();
        Err(TaskError::after([&task]))
    });
    let first = bench.submit(&[]).to_string();
    bench.run_for(SECOND).await;
    bench.submit(&[("after", &first)]);
    bench.run_for(30 * SECOND).await;
    let rounds = diary.lines().len();
    assert!((20..=31).contains(&rounds), "{rounds}");
}

#[tokio::test(start_paused = true)]
async fn of_tasks_that_wait_for_one_another_the_last_one_breaks_the_circle() {
    let (mut bench, diary) = bench(brisk());
    let a = bench.submit(&[("IDEMPOTENCY_KEY", "a"), ("AFTER", "key:c"), ("name", "a")]);
    let b = bench.submit(&[("IDEMPOTENCY_KEY", "b"), ("AFTER", "key:a"), ("name", "b")]);
    let c = bench.submit(&[("IDEMPOTENCY_KEY", "c"), ("AFTER", "key:b"), ("name", "c")]);
    let own = bench.submit(&[("IDEMPOTENCY_KEY", "own"), ("AFTER", "key:own"), ("name", "own")]);
    bench.run_for(60 * SECOND).await;
    let last = bench.reason(c);
    let why = format!(
        "Task key:b, which had to be over first, waits for this one itself: {c} -> {b} -> {a} -> {c}"
    );
    assert_eq!(last, (Some(TaskOutcome::Final), why));
    for task in [a, b] {
        let (outcome, why) = bench.reason(task);
        assert_eq!(outcome, Some(TaskOutcome::Final));
        assert!(why.ends_with(", which had to be over first, has no result"), "{why}");
    }
    let (_, why) = bench.reason(own);
    assert!(why.ends_with(&format!("waits for this one itself: {own} -> {own}")), "{why}");
    assert!(diary.lines().is_empty(), "{:?}", diary.lines());
    assert!(bench.driver.queues[0].core.dependencies().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_attempt_ends_until_others_are_over_and_the_next_one_has_their_results() {
    let config = WorkerConfig { concurrency: 1, max_attempts: 1, ..brisk() };
    let (mut bench, diary) = bench(config);
    let one = bench.submit(&[("name", "one"), ("DELAY", "PT10S")]);
    let two = bench.submit(&[("name", "two"), ("DELAY", "PT20S"), ("does", "fail")]);
    let parent = bench.submit(&[("name", "parent"), ("after", &format!("{one},{two}"))]);
    bench.run_for(8 * SECOND).await;
    let parked = bench.last_of(parent);
    assert_eq!((parked.state, parked.waits_for.len()), (TaskState::New, 2));
    assert!(!bench.driver.lanes.get(&LANE).unwrap().payloads.contains(parent));
    bench.run_for(60 * SECOND).await;
    let expected = [
        "parent starts 1",
        "one starts 1",
        "two starts 1",
        "parent starts 1",
        "parent after one Completed",
        "parent after - Failed",
    ];
    assert_eq!(diary.lines(), expected);
    let last = bench.last_of(parent);
    assert_eq!((last.state, last.attempts), (TaskState::Completed, 1));
    assert!(last.waits_for.is_empty());
    assert_eq!(bench.driver.stats.read().violations, 0);
}

/// The metadata topic keeps a task for a day after the ledger has no entry of it, and then removes
/// it.
#[tokio::test(start_paused = true)]
async fn the_result_of_a_task_that_was_sealed_is_read_from_m() {
    let (mut bench, diary) =
        bench(WorkerConfig { retention: 10 * HOUR, ..WorkerConfig::default() });
    let first = bench.submit(&[("name", "first")]).to_string();
    bench.run_long(3 * HOUR).await;
    let machine = bench.driver.lanes.get(&LANE).unwrap().core.machine();
    assert!(machine.is_sealed(first.parse().unwrap()));
    bench.submit(&[("name", "soon"), ("AFTER", &first)]);
    bench.run_long(20 * HOUR).await;
    bench.submit(&[("name", "late"), ("AFTER", &first)]);
    bench.run_for(60 * SECOND).await;
    let told: Vec<_> = diary.lines().into_iter().filter(|line| line.contains(" after ")).collect();
    assert_eq!(told, ["soon after first Completed", "late after - Completed"]);
}

/// Regression: a worker that died between the claim of a task and the RELEASED that parked it used
/// up an attempt. A task with one attempt ended without having begun.
#[tokio::test(start_paused = true)]
async fn a_worker_that_dies_when_it_has_parked_a_task_costs_no_attempt() {
    let config = || WorkerConfig { max_attempts: 1, ..brisk() };
    let (mut first, diary) = bench(config());
    let one = first.submit(&[("name", "one"), ("DELAY", "PT10M")]);
    let after = one.to_string();
    first.run_for(5 * SECOND).await;
    let parked = first.submit(&[("name", "parked"), ("AFTER", &after)]);
    // Until its claim is stored, but not until it is read back.
    while first.parked(parked) == 0 {
        first.run_for(Duration::from_millis(1)).await;
    }
    let broker = first.broker.clone();
    drop(first);
    let (second, notes) = (diary.clone(), diary.clone());
    let mut next = Bench::on(broker, "next", config(), None, move |context| {
        let notes = notes.clone();
        async move {
            notes.note(format!("{} runs", context.properties()["name"]));
            Ok(Text("next".to_owned()))
        }
    });
    next.run_long(HOUR).await;
    assert_eq!(second.lines(), ["one runs", "parked runs"]);
    let last = next.last_of(parked);
    assert_eq!((last.state, last.attempts), (TaskState::Completed, 1));
}
