//! A queue is moved to another one while its tasks are in all states, and the move is dropped at
//! every step. The judge knows what was submitted, and what processors ran.

use super::ends::MigrationEnd;
use super::plan::MigrationNote;
use super::steps::{Migration, MigrationState};
use crate::output::{Format, Output};
use longhaul::ops::{TaskFilter, TaskStatus};
use longhaul::testing::TestEngine;
use longhaul::{
    Priority, Schedule, Submission, TaskContext, TaskError, TaskRef, Text, WorkerHandle,
    processor_fn,
};
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

const FROM: &str = "here";
const TO: &str = "there";

const HOUR: Duration = Duration::from_secs(3600);

/// How many interruptions are tried, spread over the steps of a migration.
const INTERRUPTIONS: &str = "LONGHAUL_TEST_MIGRATIONS";

/// An attempt: its queue, its number and its checkpoint.
type Run = (&'static str, u32, Option<String>);

/// All attempts by payload, and the order of their starts.
#[derive(Clone, Default)]
struct Runs(Arc<Mutex<Vec<(String, Run)>>>);

struct Stage {
    engine: TestEngine,
    runs: Runs,
}

async fn process(
    queue: &'static str,
    text: Text,
    context: TaskContext,
    runs: Runs,
) -> Result<Text, TaskError> {
    let checkpoint = context.last_checkpoint().map(|it| String::from_utf8_lossy(it).into_owned());
    let slot = context.properties().get("SCHEDULE_SLOT").map(|slot| format!(" {slot}"));
    let name = format!("{}{}", text.0, slot.unwrap_or_default());
    runs.0.lock().unwrap().push((name, (queue, context.attempt(), checkpoint.clone())));
    match text.0.as_str() {
        "fails once" if checkpoint.is_none() => {
            context.checkpoint("half way").await?;
            Err(TaskError::retry_after(HOUR, "not yet"))
        }
        "slow" if checkpoint.is_none() => {
            context.checkpoint("half way").await?;
            tokio::time::sleep(HOUR).await;
            Ok(text)
        }
        "fails" => Err(TaskError::fatal("never")),
        _ => Ok(text),
    }
}

impl Stage {
    fn new() -> Self {
        Self { engine: TestEngine::new(), runs: Runs::default() }
    }

    fn worker(&self, queue: &'static str) -> WorkerHandle {
        let runs = self.runs.clone();
        let process =
            move |text: Text, context: TaskContext| process(queue, text, context, runs.clone());
        let worker = self.engine.worker(queue, processor_fn(process)).concurrency(1);
        self.engine.start(worker.levels(longhaul::Levels::strict()))
    }

    fn submission(&self, text: &str) -> Submission {
        self.engine.client().submission(FROM, &Text(text.to_owned()))
    }

    fn send(&self, submission: Submission) -> TaskRef {
        self.engine.run(submission.send()).unwrap()
    }

    fn migration(&self) -> Migration {
        self.between(FROM, TO)
    }

    fn between(&self, from: &str, to: &str) -> Migration {
        let end = |queue: &str| MigrationEnd {
            name: queue.to_owned(),
            place: queue.to_owned(),
            state: Arc::default(),
            client: self.engine.client().clone(),
            queue: queue.to_owned(),
        };
        Migration {
            source: end(from),
            target: end(to),
            wait: Duration::from_secs(60),
            output: Output::new(Format::Table, true, "never").unwrap(),
            done: Arc::default(),
        }
    }

    /// Drops a future after this many polls. Returns its output, and how often it was polled.
    fn polled<T>(&self, polls: usize, future: impl Future<Output = T>) -> (Option<T>, usize) {
        let mut count = 0;
        let output = self.engine.run(async {
            let mut future = pin!(future);
            std::future::poll_fn(|context| {
                if count >= polls {
                    return Poll::Ready(None);
                }
                count += 1;
                future.as_mut().poll(context).map(Some)
            })
            .await
        });
        // A broker receives what was sent.
        self.engine.advance(Duration::from_millis(100));
        (output, count)
    }

    /// Drops a migration at a state of its work.
    fn polled_until(&self, migration: &Migration, is: impl Fn(&MigrationState) -> bool) {
        let mut running = pin!(migration.run());
        while !is(&migration.done()) {
            assert!(self.polled(1, running.as_mut()).0.is_none());
        }
    }

    /// Submits tasks of all kinds. One of them runs, when its worker gives it back.
    fn fill(&self) {
        let queue = self.engine.client().queue(FROM);
        self.engine
            .run(queue.change(|settings| settings.order = Some(longhaul::ops::QueueOrder::Key)))
            .unwrap();
        let worker = self.worker(FROM);
        for text in ["done", "fails"] {
            self.send(self.submission(text));
        }
        let done = self.send(self.submission("keyed and done").idempotency_key("order-0"));
        let hourly = Schedule::every(HOUR).overlap(longhaul::Overlap::AllowAll);
        let tick = self.submission("tick");
        self.engine.run(queue.schedules().create("hourly", hourly, tick)).unwrap();
        let early = self.send(self.submission("early").delay(2 * HOUR));
        self.send(self.submission("later").delay(2 * HOUR));
        self.send(self.submission("fails once"));
        self.engine.advance(Duration::from_secs(30));
        self.send(self.submission("slow"));
        // A worker parks these, and fails one whose awaited task ends without a result.
        let parked = self.send(self.submission("parked").after([&early]));
        self.send(self.submission("parked twice").after([&parked]));
        self.engine.advance(Duration::from_secs(5));
        self.engine.run(queue.pause()).unwrap();
        self.engine.run(worker.drain(Duration::from_secs(1))).unwrap();

        let new = self.send(self.submission("new"));
        let keyed = self.send(self.submission("keyed").idempotency_key("order-1"));
        self.send(self.submission("deduped").dedupe_key("document"));
        self.send(self.submission("draft").dedupe_key("page"));
        self.send(self.submission("page").dedupe_key("page").overwrite());
        for text in ["first", "second", "third"] {
            self.send(self.submission(text).order_key("line"));
        }
        let waits = self.send(self.submission("waits").after([&new, &done, &keyed]));
        self.send(self.submission("waits for a key").after_key("order-1").after([&waits]));
        self.send(self.submission("waits for nobody yet").after_key("order-2"));
        self.send(self.submission("awaited").idempotency_key("order-2"));
        self.send(self.submission("urgent").priority(Priority::High));
        let cancelled = self.send(self.submission("cancelled"));
        self.engine.run(self.engine.client().cancel(&cancelled)).unwrap();
    }

    /// Takes a migration back, unless it closes tasks already. Returns whether it has.
    fn takes_back(&self, case: &str) -> bool {
        let Err(error) = self.engine.run(self.migration().back()) else { return true };
        let told = error.to_string();
        if told.contains("is unfinished") {
            // It has not begun, or has ended.
            return true;
        }
        assert!(told.starts_with("all tasks are copied, and are being closed"), "{told}: {case}");
        assert!(self.is_paused(FROM) && self.is_paused(TO), "{case}");
        false
    }

    fn runs_of(&self, text: &str) -> Vec<Run> {
        let runs = self.runs.0.lock().unwrap();
        runs.iter().filter(|(name, _)| name == text).map(|(_, run)| run.clone()).collect()
    }

    fn open(&self, queue: &str) -> Vec<String> {
        let mut open = Vec::new();
        for level in ["", "-high"] {
            let queue = self.engine.client().queue(format!("{queue}{level}"));
            let view = self.engine.run(queue.tasks()).unwrap();
            let page = view.list(&TaskFilter::new(), None, 1_000).unwrap();
            let tasks = page.tasks.into_iter().filter(|task| !task.status.is_terminal());
            open.extend(tasks.map(|task| format!("{} {:?}", task.id, task.status)));
        }
        open
    }

    fn is_paused(&self, queue: &str) -> bool {
        let queue = self.engine.client().queue(queue);
        self.engine.run(queue.settings()).unwrap().settings.paused
    }

    /// Lets workers finish what is left, and checks that each task was done once, in one place.
    /// `at` is the place where all must have been done.
    fn judge(&self, at: Option<&str>, case: &str) {
        self.engine.advance(3 * HOUR);
        let at_is = |run: &Run| at.is_none_or(|at| run.0 == at);
        for text in ["done", "fails", "keyed and done"] {
            assert_eq!(self.runs_of(text), [(FROM, 1, None)], "{text}: {case}");
        }
        for text in [
            "early",
            "parked",
            "parked twice",
            "new",
            "keyed",
            "deduped",
            "page",
            "later",
            "first",
            "second",
            "third",
            "waits",
            "waits for a key",
            "waits for nobody yet",
            "awaited",
            "urgent",
        ] {
            let runs = self.runs_of(text);
            assert!(runs.len() == 1 && at_is(&runs[0]), "{text}: {runs:?}: {case}");
        }
        for text in ["draft", "cancelled"] {
            assert_eq!(self.runs_of(text), [], "{text}: {case}");
        }
        for text in ["fails once", "slow"] {
            let runs = self.runs_of(text);
            let [first, second] = &runs[..] else { panic!("{text}: {runs:?}: {case}") };
            assert_eq!(*first, (FROM, 1, None), "{text}: {case}");
            assert_eq!(second.2.as_deref(), Some("half way"), "{text}: {case}");
            assert!(at_is(second), "{text}: {second:?}: {case}");
            // At the target, attempts begin anew. One that was given back does not count.
            let anew = second.0 == TO || text == "slow";
            assert_eq!(second.1, if anew { 1 } else { 2 }, "{text}: {case}");
        }
        let runs = self.runs.0.lock().unwrap();
        let mut ticks = BTreeMap::new();
        for (name, _) in runs.iter().filter(|(name, _)| name.starts_with("tick")) {
            *ticks.entry(name.clone()).or_insert(0) += 1;
        }
        let hours = self.engine.time_passed().as_secs() / 3600;
        assert!(ticks.values().all(|count| *count == 1), "{ticks:?}: {case}");
        assert!(ticks.len() as u64 >= hours, "{hours} hours: {ticks:?}: {case}");
        let place = |text: &str| runs.iter().position(|(name, _)| name == text).unwrap();
        assert!(place("first") < place("second") && place("second") < place("third"), "{case}");
        assert!(place("new") < place("waits") && place("keyed") < place("waits"), "{case}");
        assert!(place("waits") < place("waits for a key"), "{case}");
        assert!(
            place("early") < place("parked") && place("parked") < place("parked twice"),
            "{case}"
        );
        assert!(place("awaited") < place("waits for nobody yet"), "{case}");
        drop(runs);
        assert_eq!((self.open(FROM), self.open(TO)), (vec![], vec![]), "{case}");
        // Only a task that has failed has a dead letter, which could be replayed.
        assert_eq!((self.dead_letters(FROM), self.dead_letters(TO)), (1, 0), "{case}");
    }

    fn dead_letters(&self, queue: &str) -> usize {
        let letters = self.engine.run(self.engine.client().queue(queue).dead_letters()).unwrap();
        let filter = longhaul::ops::DeadLetterFilter::new();
        self.engine.run(letters.list(&filter, None, 1_000)).unwrap().letters.len()
    }
}

/// What follows an interrupted run.
#[derive(Clone, Copy, Debug)]
enum Then {
    /// The command is run again.
    Again,
    /// It is interrupted once more, at the same number of polls, and run again.
    Twice,
    /// The tasks are taken back.
    Back,
    /// They are taken back, which is interrupted and repeated, and then moved.
    BackAndAgain,
    /// They are taken back, which is interrupted after this number of polls, and moved.
    HalfBack(usize),
}

/// Returns how often a migration is polled.
fn interrupted(polls: usize, then: Then) -> usize {
    let case = format!("{polls} polls, then {then:?}");
    let stage = Stage::new();
    stage.fill();
    let _workers = [stage.worker(FROM), stage.worker(TO)];
    let (ended, needed) = stage.polled(polls, stage.migration().run());
    let is_over = ended.map(Result::unwrap).is_some();
    if !is_over {
        // Nothing runs twice, however long the command is not repeated.
        stage.engine.advance(Duration::from_secs(60));
    }
    match then {
        Then::Again => {}
        Then::Twice => drop(stage.polled(polls, stage.migration().run())),
        Then::Back if stage.takes_back(&case) => {
            // `--back` refuses a queue that no migration has paused.
            stage.engine.run(stage.engine.client().queue(FROM).resume()).unwrap();
            assert!(!stage.is_paused(TO), "{case}");
            stage.judge(is_over.then_some(TO), &case);
            return needed;
        }
        Then::Back => {}
        Then::BackAndAgain => {
            drop(stage.polled(polls / 2, stage.migration().back()));
            stage.takes_back(&case);
        }
        Then::HalfBack(polls) => drop(stage.polled(polls, stage.migration().back())),
    }
    stage.engine.run(stage.migration().run()).unwrap();
    assert_eq!(stage.open(FROM), Vec::<String>::new(), "{case}");
    assert!(stage.is_paused(FROM) && !stage.is_paused(TO), "{case}");
    let everywhere = matches!(then, Then::BackAndAgain | Then::HalfBack(_));
    stage.judge((!everywhere).then_some(TO), &case);
    needed
}

#[test]
fn a_queue_is_moved_as_it_is() {
    let polls = interrupted(usize::MAX, Then::Again);
    assert!(polls > 100, "a migration has few steps: {polls}");
}

/// Each open task runs once at the target, or is still open at the source. Set the variable
/// `LONGHAUL_TEST_MIGRATIONS` to 1000 to hit every step.
#[test]
fn a_migration_that_is_interrupted_anywhere_loses_nothing_and_doubles_nothing() {
    let count = std::env::var(INTERRUPTIONS).map_or(40, |count| count.parse().unwrap());
    let polls = interrupted(usize::MAX, Then::Again);
    for number in 0..count {
        let half = Then::HalfBack(number * 7 % polls);
        let all = [Then::Again, Then::Back, Then::Twice, Then::BackAndAgain, half];
        interrupted(1 + number * polls / count, all[number % all.len()]);
    }
}

/// A task that runs when the wait is over is named, and stays where it is.
#[test]
fn a_task_that_does_not_end_holds_a_migration_up() {
    let stage = Stage::new();
    let _workers = [stage.worker(FROM), stage.worker(TO)];
    stage.send(stage.submission("new"));
    let slow = stage.send(stage.submission("slow"));
    stage.engine.advance(Duration::from_secs(2));
    let error = stage.engine.run(stage.migration().run()).unwrap_err().to_string();
    assert!(error.starts_with("1 task still running at the source"), "{error}");
    assert!(error.contains(&slow.id.to_string()), "{error}");
    let done = stage.migration();
    // The target is not paused for as long as tasks run.
    assert!(stage.is_paused(FROM) && !stage.is_paused(TO));
    // It is over later.
    stage.engine.advance(2 * HOUR);
    stage.engine.run(done.run()).unwrap();
    assert_eq!(stage.runs_of("slow"), [(FROM, 1, None)]);
    assert_eq!(done.done().copied, 0);
}

/// Two commands at once: one of them stops.
#[test]
fn a_second_migration_stops_the_first_one() {
    let mut stopped = 0;
    for polls in (1..).step_by(20) {
        let stage = Stage::new();
        for number in 0..3 {
            stage.send(stage.submission(&format!("keyed {number}")).dedupe_key(number.to_string()));
        }
        let _workers = [stage.worker(FROM), stage.worker(TO)];
        let (first, second) = (stage.migration(), stage.migration());
        let mut running = Box::pin(first.run());
        let ended = stage.polled(polls, running.as_mut()).0;
        stage.engine.run(second.run()).unwrap();
        stage.engine.advance(Duration::from_secs(5));
        let is_over = ended.is_some();
        let ended = ended.unwrap_or_else(|| stage.engine.run(running));
        if let Err(error) = ended {
            assert!(error.to_string().starts_with("somebody changed the settings"), "{error}");
            stopped += 1;
        }
        assert!(!stage.is_paused(TO), "{polls} polls");
        stage.engine.advance(Duration::from_secs(60));
        for number in 0..3 {
            let runs = stage.runs_of(&format!("keyed {number}"));
            assert_eq!(runs.len(), 1, "{number}: {runs:?}, {polls} polls");
        }
        if is_over {
            assert!(stopped > 2, "{stopped} stopped");
            return;
        }
    }
}

/// Somebody resumes the target by hand: a copy that has run closes its task at the source, with
/// another run or with `--back`.
#[test]
fn a_task_whose_copy_has_run_does_not_run_again() {
    for (number, polls) in (1..).step_by(10).enumerate() {
        let stage = Stage::new();
        stage.send(stage.submission("deduped").dedupe_key("a"));
        stage.send(stage.submission("keyed").idempotency_key("b"));
        stage.send(stage.submission("new"));
        let _workers = [stage.worker(FROM), stage.worker(TO)];
        stage.engine.run(stage.engine.client().queue(FROM).pause()).unwrap();
        let is_over = stage.polled(polls, stage.migration().run()).0.map(Result::unwrap).is_some();
        stage.engine.run(stage.engine.client().queue(TO).resume()).unwrap();
        stage.engine.advance(Duration::from_secs(60));
        let migration = stage.migration();
        if number % 2 == 0 {
            stage.engine.run(migration.run()).unwrap();
        } else {
            if let Err(error) = stage.engine.run(migration.back()) {
                let told = error.to_string();
                let closes = told.starts_with("all tasks are copied");
                assert!(closes || told.contains("is unfinished"), "{told}");
                if closes {
                    stage.engine.run(stage.migration().run()).unwrap();
                }
            }
        }
        stage.engine.advance(Duration::from_secs(60));
        for text in ["deduped", "keyed", "new"] {
            let runs = stage.runs_of(text);
            assert_eq!(runs.len(), 1, "{text}: {runs:?}, {polls} polls");
        }
        if is_over {
            return;
        }
    }
}

/// A task that cannot move ends the command before anything is copied.
#[test]
fn a_task_that_cannot_move_is_named() {
    let stage = Stage::new();
    let worker = stage.worker(FROM);
    let failed = stage.send(stage.submission("fails"));
    stage.engine.advance(Duration::from_secs(5));
    stage.engine.run(worker.drain(Duration::ZERO)).unwrap();
    stage.send(stage.submission("new"));
    let waits = stage.send(stage.submission("waits").after([&failed]));
    let migration = stage.migration();
    let error = stage.engine.run(migration.run()).unwrap_err().to_string();
    let cause = format!("1 task cannot move: {}: it waits for {}", waits.id, failed.id);
    assert!(error.starts_with(&cause), "{error}");
    assert_eq!((migration.done().copied, stage.open(TO)), (0, vec![]));
    stage.engine.run(stage.engine.client().queue(FROM).delete(waits.id, "of no use")).unwrap();
    stage.engine.run(migration.run()).unwrap();
    assert_eq!((migration.done().moved, stage.open(TO).len()), (1, 1));
}

/// A copy must not run if its task was cancelled at the source, or has ended there, before the next
/// run; and it must run if the task was moved.
#[test]
fn a_task_that_ends_at_the_source_between_two_runs_does_not_run_at_the_target() {
    for polls in (1..).step_by(10) {
        let stage = Stage::new();
        let ends = stage.send(stage.submission("ends").dedupe_key("a"));
        stage.send(stage.submission("is cancelled"));
        stage.send(stage.submission("moves").idempotency_key("b").delay(2 * HOUR));
        stage.send(stage.submission("waits").after([&ends]).delay(2 * HOUR));
        let _target = stage.worker(TO);
        let is_over = stage.polled(polls, stage.migration().run()).0.map(Result::unwrap).is_some();
        let note = stage.engine.run(stage.migration().target.look()).unwrap().1;
        // Somebody resumes the source by hand.
        stage.engine.run(stage.engine.client().queue(FROM).resume()).unwrap();
        let source = stage.worker(FROM);
        stage.engine.advance(Duration::from_secs(60));
        let before = stage.runs_of("ends").len() + stage.runs_of("is cancelled").len();
        stage.engine.run(source.drain(Duration::from_secs(1))).unwrap();
        stage.engine.run(stage.migration().run()).unwrap();
        stage.engine.advance(3 * HOUR);
        for text in ["ends", "is cancelled", "moves"] {
            let runs = stage.runs_of(text);
            assert_eq!(runs.len(), 1, "{text}: {runs:?}, {before} before, {polls} polls");
        }
        // A copy that waits for a task which ended while tasks were closed ends with it.
        let runs = stage.runs_of("waits");
        let closes = matches!(note, Some(MigrationNote::From(mark)) if mark.closes);
        assert!(runs.len() == 1 || closes, "{runs:?}, {polls} polls");
        if is_over {
            assert!(polls > 50, "a migration has few steps: {polls}");
            return;
        }
    }
}

/// Keys at the target belong to copies that were moved away, or to other tasks.
#[test]
fn a_queue_moves_back() {
    let stage = Stage::new();
    stage.fill();
    let workers = [stage.worker(FROM), stage.worker(TO)];
    stage.engine.run(workers.into_iter().next().unwrap().drain(Duration::ZERO)).unwrap();
    let there = stage.migration();
    stage.engine.run(there.target.queue().pause()).unwrap();
    stage.engine.run(there.run()).unwrap();
    stage.engine.run(there.target.queue().pause()).unwrap();
    stage.engine.run(stage.between(TO, FROM).run()).unwrap();
    let _worker = stage.worker(FROM);
    stage.engine.advance(4 * HOUR);
    for text in ["new", "keyed", "deduped", "page", "later", "waits", "waits for a key", "urgent"] {
        assert_eq!(stage.runs_of(text).len(), 1, "{text}: {:?}", stage.runs_of(text));
    }
    let view = stage.engine.run(stage.engine.client().queue(TO).tasks()).unwrap();
    let counts = view.counts().unwrap().by_status;
    assert!(counts.keys().all(|status| *status == TaskStatus::Cancelled || status.is_terminal()));
}

/// Earlier, a run that followed an interrupted `--back` counted deleted copies as copies: it closed
/// their tasks, which were lost.
#[test]
fn a_deleted_copy_is_none() {
    let mut halves = 0;
    for polls in (40..).step_by(4) {
        let stage = Stage::new();
        stage.fill();
        let _workers = [stage.worker(FROM), stage.worker(TO)];
        stage.polled_until(&stage.migration(), |done| done.copied == 18);
        let all = stage.open(TO).len();
        let is_over = stage.polled(polls, stage.migration().back()).0.map(Result::unwrap).is_some();
        halves += usize::from((1..all).contains(&stage.open(TO).len()));
        stage.engine.run(stage.migration().run()).unwrap();
        stage.judge(None, &format!("{polls} polls back"));
        if is_over {
            assert!(halves > 0, "never with half of the copies");
            return;
        }
    }
}

/// Earlier, only the target had a note: a second migration of the same queue, to another one or from
/// the target, made a second task of each copy. And `--back` of a third queue deleted the copies.
#[test]
fn no_other_migration_begins_until_one_has_ended() {
    let stage = Stage::new();
    stage.send(stage.submission("new"));
    stage
        .engine
        .run(stage.engine.client().submission("other", &Text("x".to_owned())).send())
        .unwrap();
    let refused = |future: Result<(), anyhow::Error>| {
        let error = future.unwrap_err().to_string();
        assert!(error.contains("has not ended"), "{error}");
    };
    let _workers = [stage.worker(FROM), stage.worker(TO)];
    let mut polls = 1;
    while stage.engine.run(stage.migration().target.look()).unwrap().1.is_none() {
        assert!(stage.polled(polls, stage.migration().run()).0.is_none());
        polls += 20;
    }
    refused(stage.engine.run(stage.between(FROM, "other").run()));
    refused(stage.engine.run(stage.between(TO, FROM).run()));
    refused(stage.engine.run(stage.between(TO, "other").run()));
    refused(stage.engine.run(stage.between("other", TO).run()));
    refused(stage.engine.run(stage.between("other", TO).back()));
    stage.engine.run(stage.migration().run()).unwrap();
    stage.engine.run(stage.between(TO, FROM).run()).unwrap();
    assert_eq!(stage.open(TO), Vec::<String>::new());
}
