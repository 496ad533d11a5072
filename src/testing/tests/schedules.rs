//! Schedules with several workers that come, go and die, over days.

use super::*;
use crate::ops::Schedules;
use crate::{ActionError, Levels, Overlap, Priority, Schedule, TaskMetadata, TaskState};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// The runs of the processors of all workers: slot, time in ms, and how each ended.
#[derive(Clone, Default)]
struct Runs(Arc<Mutex<Vec<Run>>>);

#[derive(Clone, Debug)]
struct Run {
    slot: u64,
    began: u64,
    ended: Option<u64>,
    cancelled: bool,
}

impl Runs {
    fn all(&self) -> Vec<Run> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How often each slot was run.
    fn by_slot(&self) -> BTreeMap<u64, usize> {
        let mut counts = BTreeMap::new();
        for run in self.all() {
            *counts.entry(run.slot).or_default() += 1;
        }
        counts
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Run>)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Says when it ran, for which slot.
struct Ticker {
    runs: Runs,
    took: Duration,
    clock: Clock,
}

impl TaskProcessor for Ticker {
    type Task = Text;
    type Output = Text;

    async fn process(&self, task: Text, context: TaskContext) -> Outcome {
        let slot = context.properties()["SCHEDULE_SLOT"].parse::<Timestamp>().unwrap();
        let slot = u64::try_from(slot.as_millisecond()).unwrap();
        let began = self.clock.wall_ms();
        let mut index = 0;
        self.runs.change(|runs| {
            index = runs.len();
            runs.push(Run { slot, began, ended: None, cancelled: false });
        });
        let cancelled = tokio::select! {
            () = tokio::time::sleep(self.took) => false,
            () = context.cancelled() => true,
        };
        let ended = Some(self.clock.wall_ms());
        self.runs.change(|runs| runs[index] = Run { slot, began, ended, cancelled });
        Ok(task)
    }
}

struct Bench {
    engine: TestEngine,
    runs: Runs,
    took: Duration,
}

impl Bench {
    /// Each run takes so long.
    fn new(took: Duration) -> Self {
        Self { engine: TestEngine::new(), runs: Runs::default(), took }
    }

    fn worker(&self) -> WorkerHandle {
        self.start(|builder| builder)
    }

    fn start(
        &self,
        with: impl FnOnce(WorkerBuilder<Ticker>) -> WorkerBuilder<Ticker>,
    ) -> WorkerHandle {
        let (runs, took) = (self.runs.clone(), self.took);
        let ticker = Ticker { runs, took, clock: self.engine.broker.clock() };
        let builder = self.engine.worker("tasks", ticker).concurrency(10);
        self.engine.start(with(builder))
    }

    fn schedules(&self) -> Schedules {
        self.engine.client().queue("tasks").schedules()
    }

    fn create(&self, schedule: Schedule) -> Result<u64, ActionError> {
        let task = self.engine.client().submission("tasks", &text("tick"));
        self.engine.run(self.schedules().create("tick", schedule, task))
    }

    /// Lets time pass until so long behind the next whole minute.
    fn pass_to_minute(&self, behind: Duration) {
        let minute = u64::try_from(MINUTE.as_millis()).unwrap();
        let left = minute - self.engine.now_ms() % minute;
        self.engine.advance(Duration::from_millis(left) + behind);
    }
}

fn minutely() -> Schedule {
    Schedule::cron("* * * * *")
}

#[test]
fn a_month_of_nights_with_three_workers_is_one_run_a_night() {
    let bench = Bench::new(MINUTE);
    let _workers = [bench.worker(), bench.worker(), bench.worker()];
    let nightly = Schedule::cron("30 2 * * *").time_zone("Europe/Berlin");
    let begin = bench.engine.now_ms();
    bench.create(nightly.clone()).unwrap();
    bench.engine.advance(30 * DAY);
    let expected = nightly.next_after(begin, 30).unwrap();
    let found = bench.runs.by_slot();
    assert_eq!(found.keys().copied().collect::<Vec<_>>(), expected);
    assert!(found.values().all(|count| *count == 1), "{found:?}");
    for run in bench.runs.all() {
        assert!(run.began - run.slot < 4_000, "{run:?}");
    }
    let info = bench.engine.run(bench.schedules().get("tick")).unwrap().unwrap();
    assert_eq!((info.version, info.next.len()), (1, 10));
    let ms = info.last.unwrap().slot.duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    assert_eq!(ms, u128::from(*expected.last().unwrap()));
}

/// A worker dies at any moment of a firing: before the task is published, between task and key, and
/// after that. The others see to the slot.
#[test]
fn each_slot_is_one_task_although_workers_die_in_the_middle() {
    let bench = Bench::new(Duration::from_millis(1));
    let mut workers: Vec<_> = (0..3).map(|_| bench.worker()).collect();
    bench.create(minutely()).unwrap();
    let begin = bench.engine.now_ms();
    for death in 0..40_u32 {
        bench.pass_to_minute(death * Duration::from_micros(500));
        // One after the other, so that each rank is hit.
        drop(workers.remove(usize::try_from(death).unwrap() % workers.len()));
        bench.engine.advance(Duration::from_secs(30));
        workers.push(bench.worker());
    }
    bench.pass_to_minute(30 * Duration::from_secs(1));
    let expected = minutely().next_after(begin, 41).unwrap();
    let settled = bench.runs.by_slot();
    let missed: Vec<_> = expected.iter().filter(|slot| !settled.contains_key(slot)).collect();
    assert!(missed.is_empty(), "{missed:?}");
    assert_eq!(settled.len(), expected.len(), "{settled:?}");
    // A task whose worker has died runs again, and is the same task all the same: of each slot one
    // task has ended with a result.
    let topic = names("tasks").metadata;
    let _entered = bench.engine.runtime.enter();
    let log = bench.engine.broker.full_log(&TopicPartition { topic, partition: -1 });
    let ended =
        log.iter().filter_map(|it| serde_json::from_slice::<TaskMetadata>(&it.payload).ok());
    let completed = ended.filter(|it| it.state == TaskState::Completed);
    let completed: BTreeSet<String> = completed.map(|it| it.message_id).collect();
    assert_eq!(completed.len(), expected.len());
}

#[test]
fn a_slot_is_left_out_while_the_task_before_runs() {
    let bench = Bench::new(150 * Duration::from_secs(1));
    let _workers = [bench.worker(), bench.worker()];
    bench.create(minutely()).unwrap();
    let begin = bench.engine.now_ms();
    bench.engine.advance(10 * MINUTE + Duration::from_secs(10));
    let slots = minutely().next_after(begin, 10).unwrap();
    let found: Vec<u64> = bench.runs.by_slot().into_keys().collect();
    // Each takes two minutes and a half: of three slots one is run.
    assert_eq!(found, slots.iter().step_by(3).copied().collect::<Vec<_>>());
}

#[test]
fn one_task_is_buffered_and_begins_when_the_one_before_is_over() {
    let bench = Bench::new(150 * Duration::from_secs(1));
    let _workers = [bench.worker(), bench.worker()];
    bench.create(minutely().overlap(Overlap::BufferOne)).unwrap();
    bench.engine.advance(30 * MINUTE);
    let runs = bench.runs.all();
    assert!(runs.len() >= 10, "{runs:?}");
    for pair in runs.windows(2) {
        let gap = pair[1].began - pair[0].ended.unwrap();
        assert!(gap < 5_000, "the next one was waiting: {pair:?}");
    }
    assert!(bench.runs.by_slot().values().all(|count| *count == 1));
}

#[test]
fn the_task_before_is_cancelled_and_only_then_the_next_one_begins() {
    let bench = Bench::new(HOUR);
    let _workers = [bench.worker(), bench.worker()];
    bench.create(minutely().overlap(Overlap::CancelOther)).unwrap();
    bench.engine.advance(10 * MINUTE + 30 * Duration::from_secs(1));
    let runs = bench.runs.all();
    assert!(runs.len() >= 10, "{runs:?}");
    for pair in runs.windows(2) {
        assert!(pair[0].cancelled && pair[0].ended.unwrap() <= pair[1].began, "{pair:?}");
        assert!(pair[1].began - pair[1].slot < 10_000, "{pair:?}");
    }
}

#[test]
fn tasks_run_beside_each_other_where_that_is_allowed() {
    let bench = Bench::new(150 * Duration::from_secs(1));
    let _worker = bench.worker();
    bench.create(minutely().overlap(Overlap::AllowAll)).unwrap();
    bench.engine.advance(10 * MINUTE + Duration::from_secs(10));
    assert_eq!(bench.runs.by_slot().len(), 10);
}

/// The tasks of a schedule go to a level of the queue, if it says so: to workers that work on that
/// level.
#[test]
fn a_schedule_may_fire_on_a_level_of_the_queue() {
    let bench = Bench::new(90 * Duration::from_secs(1));
    let task = bench.engine.client().submission("tasks", &text("tick")).priority(Priority::High);
    let create = bench.schedules();
    let _other = bench.worker();
    bench.engine.run(create.create("tick", minutely(), task)).unwrap();
    bench.engine.advance(5 * MINUTE);
    assert_eq!(bench.runs.all().len(), 0, "no worker is there for that level");
    let _worker = bench.start(|builder| builder.levels(Levels::strict()));
    bench.engine.advance(Duration::from_secs(10));
    let first = bench.runs.by_slot();
    assert_eq!(first.len(), 1, "one of those that were missed, and the others are left out");
    let begin = bench.engine.now_ms();
    bench.engine.advance(10 * MINUTE);
    let slots = minutely().next_after(begin, 10).unwrap();
    let found: Vec<u64> = bench.runs.by_slot().into_keys().filter(|slot| *slot > begin).collect();
    assert_eq!(found.len(), 5, "each takes a minute and a half: {found:?} of {slots:?}");
    let high = names("tasks-high").metadata;
    let _entered = bench.engine.runtime.enter();
    let log = bench.engine.broker.full_log(&TopicPartition { topic: high, partition: -1 });
    assert!(!log.is_empty());
}

#[test]
fn what_was_missed_while_no_worker_was_there_is_made_up_for_within_the_window() {
    for (window, expected) in [(None, 60), (Some(10 * MINUTE), 10)] {
        let bench = Bench::new(Duration::from_secs(1));
        let schedule = minutely().overlap(Overlap::AllowAll);
        let schedule = match window {
            Some(window) => schedule.catch_up_window(window),
            None => schedule,
        };
        let worker = bench.worker();
        bench.create(schedule).unwrap();
        drop(worker);
        bench.pass_to_minute(Duration::from_secs(59 * 60 + 30));
        let _workers = [bench.worker(), bench.worker()];
        bench.engine.advance(25 * Duration::from_secs(1));
        let runs = bench.runs.by_slot();
        assert_eq!(runs.len(), expected, "{runs:?}");
        assert!(runs.values().all(|count| *count == 1), "{runs:?}");
    }
}

#[test]
fn a_paused_schedule_fires_by_hand_and_makes_up_for_nothing() {
    let bench = Bench::new(Duration::from_secs(1));
    let _workers = [bench.worker(), bench.worker()];
    bench.create(minutely().paused()).unwrap();
    bench.engine.advance(10 * MINUTE);
    assert_eq!(bench.runs.all().len(), 0);
    bench.engine.run(bench.schedules().trigger("tick")).unwrap();
    bench.engine.advance(5 * Duration::from_secs(1));
    assert_eq!(bench.runs.all().len(), 1);
    bench.pass_to_minute(30 * Duration::from_secs(1));
    bench.engine.run(bench.schedules().resume("tick")).unwrap();
    bench.engine.advance(2 * MINUTE);
    assert_eq!(bench.runs.all().len(), 3);
    bench.engine.run(bench.schedules().pause("tick")).unwrap();
    bench.engine.advance(5 * MINUTE);
    assert_eq!(bench.runs.all().len(), 3);
    bench.engine.run(bench.schedules().resume("tick")).unwrap();
    bench.engine.run(bench.schedules().delete("tick")).unwrap();
    bench.engine.advance(5 * MINUTE);
    assert_eq!(bench.runs.all().len(), 3);
    assert!(bench.engine.run(bench.schedules().get("tick")).unwrap().is_none());
    assert!(bench.engine.run(bench.schedules().list()).unwrap().is_empty());
}

#[test]
fn a_schedule_is_changed_by_who_has_seen_its_version() {
    let bench = Bench::new(Duration::from_secs(1));
    let _worker = bench.worker();
    bench.create(Schedule::at(std::time::UNIX_EPOCH + 1_000_000 * DAY / 10)).unwrap();
    let exists = bench.create(minutely());
    assert!(matches!(exists, Err(ActionError::ScheduleExists)), "{exists:?}");
    let hourly = |schedule: Schedule| schedule.with_times_of(Schedule::every(HOUR));
    let (engine, schedules) = (&bench.engine, bench.schedules());
    assert_eq!(engine.run(schedules.update("tick", 1, hourly)).unwrap(), 2);
    let conflict = engine.run(schedules.update("tick", 1, hourly));
    let is_conflict = matches!(conflict, Err(ActionError::VersionConflict { current: 2 }));
    assert!(is_conflict, "{conflict:?}");
    engine.advance(24 * HOUR + MINUTE);
    assert_eq!(bench.runs.by_slot().len(), 24);
    let never = engine
        .run(schedules.update("tick", 2, |it| it.with_times_of(Schedule::cron("0 0 30 2 *"))));
    assert!(never.unwrap_err().to_string().contains("never fires"));
    let wrong = bench.create(Schedule::cron("whenever")).unwrap_err().to_string();
    assert!(wrong.contains("already"), "{wrong}");
    let task = || engine.client().submission("tasks", &text("tick"));
    let refused = engine.run(schedules.create("a/b", minutely(), task()));
    assert!(matches!(refused, Err(ActionError::InvalidSchedule(_))), "{refused:?}");
    let keyed = engine.run(schedules.create("keyed", minutely(), task().idempotency_key("k")));
    assert!(matches!(keyed, Err(ActionError::ScheduleSets(_))), "{keyed:?}");
    let elsewhere = engine.client().submission("mails", &text("tick"));
    let elsewhere = engine.run(schedules.create("elsewhere", minutely(), elsewhere)).unwrap_err();
    let said = "the task belongs to `persistent://public/default/mails`, but these are the schedules of `persistent://public/default/tasks`";
    assert_eq!(elsewhere.to_string(), said);
    let missing = engine.run(schedules.pause("nobody"));
    assert!(matches!(missing, Err(ActionError::NoSuchSchedule)), "{missing:?}");
}
