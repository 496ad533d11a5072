//! The levels of a queue, from a client's submit to the end.

use super::*;
use crate::client::{Client, TaskRef};
use crate::topics::{Priority, TopicOverrides};
use crate::worker::shares::Levels;

/// A worker on a queue with levels, and a client of the same broker. The payload of each task is
/// its instruction.
fn on_levels(levels: Levels, diary: &Diary) -> (Bench, Client) {
    let notes = diary.clone();
    let config = WorkerConfig { concurrency: 1, ..WorkerConfig::default() };
    let mut bench = Bench::new(config, None, move |context| {
        notes.note(context.properties()["name"].clone());
        let is_lost = context.properties().contains_key("lost");
        async move {
            tokio::time::sleep(SECOND).await;
            if is_lost { Err(TaskError::fatal("lost")) } else { Ok(Text("done".to_owned())) }
        }
    });
    bench.driver.shares = Shares::new(1);
    bench.driver.shares.add(levels.of(Priority::Normal));
    bench.driver.shares.add_lane(0);
    for priority in [Priority::High, Priority::Low] {
        let none = TopicOverrides::default();
        let names = bench.names.level(priority, "longhaul", &none).unwrap();
        bench.create(&names, None);
        bench.driver.add_topic(names, levels.of(priority), None);
    }
    let client = Client::on_transport(Arc::new(bench.broker.connect("client")));
    (bench, client)
}

async fn submit(client: &Client, name: &str, priority: Priority) -> TaskRef {
    let submission = client.submission("tasks", &Text(name.to_owned())).priority(priority);
    submission.property("name", name).key(name).send().await.unwrap()
}

/// Regression: a level was a separate queue: its worker had to be configured for it, and its dead
/// letters had their own topic.
#[tokio::test(start_paused = true)]
async fn a_priority_picks_the_level_and_whoever_waits_for_the_task_needs_not_know() {
    let diary = Diary::default();
    let (mut bench, client) = on_levels(Levels::strict(), &diary);
    bench.run_for(2 * SECOND).await;
    let blocker = submit(&client, "blocker", Priority::Low).await;
    bench.run_for(SECOND / 2).await;
    let mut tasks = Vec::new();
    for (name, priority, topic) in [
        ("low", Priority::Low, "tasks-low"),
        ("normal", Priority::Normal, "tasks"),
        ("high", Priority::High, "tasks-high"),
    ] {
        let task = submit(&client, name, priority).await;
        assert_eq!(task.topic, format!("persistent://public/default/{topic}"));
        tasks.push(task);
    }
    let mut watch = client.watch("tasks-high").await.unwrap();
    bench.run_for(10 * SECOND).await;
    assert_eq!(diary.lines(), ["blocker", "high", "normal", "low"]);
    for task in tasks.iter().chain([&blocker]) {
        assert_eq!(client.wait::<Text>(task).await.unwrap().0, "done", "{task}");
        assert_eq!(task.to_string().parse::<TaskRef>().unwrap(), *task);
    }
    let found = client.queue("tasks-high").find("high").await.unwrap();
    assert_eq!(found.as_ref(), tasks.last());
    assert!(watch.next().await.unwrap().is_ok());
}

/// Regression: the register named a task only by its id, which does not tell the topic of the
/// queue.
#[tokio::test(start_paused = true)]
async fn of_the_tasks_with_one_key_on_all_levels_one_is_run() {
    let diary = Diary::default();
    let (mut bench, client) = on_levels(Levels::strict(), &diary);
    // Any producer: only the worker binds. The ids of both messages may be the same.
    let by_hand = |bench: &Bench, priority: Priority, name: &str| {
        let none = TopicOverrides::default();
        let topic = bench.names.level(priority, "longhaul", &none).unwrap().task;
        let id = bench.submit_to(&topic, -1, &[("name", name), ("DEDUPE_KEY", "k")]);
        TaskRef { topic, id }
    };
    let first = by_hand(&bench, Priority::High, "first");
    bench.run_for(SECOND / 2).await;
    let second = by_hand(&bench, Priority::Low, "second");
    let keyed = client.submission("tasks", &Text("third".to_owned())).dedupe_key("k");
    assert_eq!(keyed.send().await.unwrap(), first);
    bench.run_for(5 * SECOND).await;
    assert_eq!(diary.lines(), ["first"]);
    let last = client.get(&second).await.unwrap().unwrap();
    assert_eq!(last.duplicate_of, Some(first.id.to_string()));
    let reason = format!("Duplicate of {} of priority high", first.id);
    assert_eq!(last.failure_reason, Some(reason));
    // The end of the first task has released the key.
    let third = by_hand(&bench, Priority::Normal, "third");
    bench.run_for(5 * SECOND).await;
    assert_eq!(diary.lines(), ["first", "third"]);
    assert_ne!(third.topic, first.topic);
}

/// All dead letters of a queue are in one topic.
#[tokio::test(start_paused = true)]
async fn dead_letters_of_a_level_are_those_of_the_queue() {
    let diary = Diary::default();
    let (mut bench, client) = on_levels(Levels::weighted(3, 2, 1), &diary);
    bench.run_for(2 * SECOND).await;
    let mut tasks = Vec::new();
    for priority in Priority::ALL {
        let submission = client.submission("tasks", &Text("task".to_owned())).priority(priority);
        let submission = submission.property("name", "lost").property("lost", "");
        tasks.push(submission.send().await.unwrap());
    }
    bench.run_for(10 * SECOND).await;
    let letters = bench.letters();
    let mut named: Vec<_> = letters.iter().map(|letter| letter.key.clone().unwrap()).collect();
    let mut expected: Vec<_> = tasks.iter().map(|task| task.id.to_string()).collect();
    named.sort();
    expected.sort();
    assert_eq!(named, expected);
}
