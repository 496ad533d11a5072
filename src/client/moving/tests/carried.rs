//! What a move carries besides the tasks of an unpartitioned queue: partitions, levels, settings,
//! schedules.
use super::*;
use crate::{Levels, Limit, Rate, Schedule};

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn tasks_of_all_levels_and_partitions_are_moved_to_a_queue_with_other_partitions() {
    let stage = Stage::new();
    let (engine, client) = (&stage.engine, stage.engine.client());
    for (queue, partitions) in [(FROM, 3), (TO, 2)] {
        for level in ["", "-high", "-low"] {
            engine.create_partitioned(&format!("{queue}{level}"), partitions);
        }
    }
    let priorities = [Priority::High, Priority::Normal, Priority::Low];
    let submit = |what: &str| {
        let mut tasks = Vec::new();
        for (number, priority) in (0..18).zip(priorities.into_iter().cycle()) {
            let text = format!("{what} {number}");
            let task = client.submission(FROM, &Text(text.clone())).priority(priority);
            tasks.push((text, priority, engine.run(task.send()).unwrap()));
        }
        tasks
    };
    let worker = engine.start(stage.builder(FROM).levels(Levels::strict()));
    let over = submit("over");
    for (_, _, task) in &over {
        let _: Text = engine.wait(task).unwrap();
    }
    engine.run(client.queue(FROM).pause()).unwrap();
    engine.run(worker.drain(Duration::from_secs(5))).unwrap();
    let open = submit("open");
    let (exported, imported, closed) = stage.round(usize::MAX).unwrap();
    assert_eq!((exported.open, exported.over), (18, 18));
    assert_eq!((imported.open, imported.over, &*imported.unmoved), (18, 18, &[][..]));
    assert_eq!(closed, Closed { closed: 18, ..Closed::default() });

    let workers = [FROM, TO].map(|it| engine.start(stage.builder(it).levels(Levels::strict())));
    [FROM, TO].iter().for_each(|queue| stage.resume(queue));
    for (text, priority, task) in over.iter().chain(&open) {
        let copy = stage.here(task);
        let names = client.level_names(&client.names(TO).unwrap(), *priority).unwrap();
        assert_eq!(copy.topic, names.task, "{text}");
        let result: Text = engine.wait(&copy).unwrap();
        assert_eq!(result.0, format!("{text}: done"));
        let queue = if text.starts_with("over") { FROM } else { TO };
        assert_eq!(stage.runs_of(text), [(queue.to_owned(), 1, None)]);
    }
    let partitions = |tasks: &[(String, Priority, TaskRef)]| -> BTreeSet<i32> {
        tasks.iter().map(|(_, _, task)| stage.here(task).id.partition).collect()
    };
    assert_eq!(partitions(&open), BTreeSet::from([0, 1]));
    drop(workers);
}

#[test]
fn a_queue_without_settings_gets_them_and_they_hold_for_what_was_moved() {
    let stage = Stage::new();
    let (engine, client) = (&stage.engine, stage.engine.client());
    let queue = client.queue(FROM);
    let change = queue.update(0, |settings| {
        settings.limit = Limit { max_in_flight: Some(5), rate: Some(Rate::new(100, MINUTE)) };
        settings.per_key.max_in_flight = Some(1);
        let acme = Limit { max_in_flight: Some(2), ..Limit::default() };
        settings.keys.insert("acme".to_owned(), acme);
        settings.max_attempts = Some(7);
        settings.expires_after = Some(60 * MINUTE);
    });
    engine.run(change).unwrap();
    engine.run(client.queue(FROM).pause()).unwrap();
    let tasks: Vec<_> =
        (0..6).map(|number| (format!("slow {number}"), ["acme", "other"][number % 2])).collect();
    for (text, key) in &tasks {
        let task = client.submission(FROM, &Text(text.clone())).limit_key(*key);
        engine.run(task.send()).unwrap();
    }
    stage.round(usize::MAX).unwrap();
    let settings = |queue| engine.run(client.queue(queue).settings()).unwrap().settings;
    assert_eq!(settings(TO), settings(FROM));
    assert!(settings(TO).paused && settings(TO).max_attempts == Some(7));

    let worker = stage.worker(TO);
    stage.resume(TO);
    engine.advance(MINUTE / 2);
    let mut running: Vec<_> = tasks
        .iter()
        .filter(|(text, _)| !stage.runs_of(text).is_empty())
        .map(|(_, key)| *key)
        .collect();
    running.sort_unstable();
    assert_eq!(running, ["acme", "acme", "other"]);

    // A queue with settings keeps them.
    engine.run(client.queue(FROM).update(2, |settings| settings.max_attempts = Some(2))).unwrap();
    stage.round(usize::MAX).unwrap();
    assert_eq!(settings(TO).max_attempts, Some(7));
    drop(worker);
}

/// Workers of both queues fire the slots of the same schedule; the tasks of slots fired at the
/// source are moved in another round.
#[test]
fn each_slot_of_a_schedule_fires_once_wherever_the_schedule_is() {
    let stage = Stage::new();
    let (engine, client) = (&stage.engine, stage.engine.client());
    let workers = [FROM, TO].map(|queue| stage.worker(queue));
    let task = client.submission(FROM, &Text("tick".to_owned()));
    let schedules = client.queue(FROM).schedules();
    engine.run(schedules.create("tick", Schedule::cron("* * * * *"), task)).unwrap();
    let begin_ms = engine.now_ms();
    let slots =
        |from_ms: u64, to_ms: u64| usize::try_from(to_ms / 60_000 - from_ms / 60_000).unwrap();
    engine.advance(3 * MINUTE + MINUTE / 2);
    assert_eq!(stage.runs_of("tick").len(), 3);
    for round in 0..3 {
        engine.run(client.queue(FROM).pause()).unwrap();
        let (_, imported, closed) = stage.round(usize::MAX).unwrap();
        let new = u64::from(round == 0);
        assert_eq!((imported.schedules, imported.kept_schedules.len() as u64), (new, 1 - new));
        assert_eq!(closed.left, []);
        stage.resume(TO);
        engine.advance(2 * MINUTE);
        let runs = stage.runs_of("tick");
        assert_eq!(runs.len(), slots(begin_ms, engine.now_ms()), "{runs:?}");
    }
    let runs = stage.runs_of("tick");
    let here = runs.iter().filter(|(queue, _, _)| queue == FROM).count();
    assert!(here == 3 && runs.iter().all(|(_, attempt, _)| *attempt == 1), "{runs:?}");
    drop(workers);
}
