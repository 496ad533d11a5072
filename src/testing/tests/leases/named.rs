//! The name of whoever has held a lease is shown when that is over, too.

use super::*;
use crate::ops::{HistoryEvent, TaskFilter};
use crate::{TaskRef, WatchEvent, WatchFrom};

/// The present or last holder of a task, by the metadata topic and by a view.
fn named(engine: &TestEngine, task: &TaskRef) -> [Option<String>; 2] {
    let client = engine.client();
    let shown = engine.run(client.get(task)).unwrap();
    let view = engine.run(client.queue(TOPIC).tasks()).unwrap();
    let listed = view.list(&TaskFilter::new(), None, 10).unwrap().tasks;
    let listed = listed.into_iter().find(|it| it.id == task.id);
    [
        shown.and_then(|it| it.worker).map(|it| it.name),
        listed.and_then(|it| it.worker).map(|it| it.name.clone()),
    ]
}

#[track_caller]
fn assert_named(engine: &TestEngine, task: &TaskRef, name: &str) {
    assert_eq!(named(engine, task), [Some(name.to_owned()), Some(name.to_owned())]);
}

/// While the lease ran its worker was shown, and then the gateway that had granted it.
#[test]
fn who_has_held_a_lease_is_shown_when_it_is_over() {
    let engine = TestEngine::new();
    let [one, other] = [gateway(&engine), gateway(&engine)];
    let task = engine.submit(TOPIC, &text("work"));
    let mut watch =
        engine.run(engine.client().queue(TOPIC).watch_from(WatchFrom::Earliest)).unwrap();
    let first = ask(&engine, &one, "ann").unwrap();
    engine.advance(Duration::from_secs(1));
    assert_named(&engine, &task, "ann");
    engine.run(other.report(&first.token, failed())).unwrap();
    engine.advance(Duration::from_secs(1));
    assert_named(&engine, &task, "ann");
    let second = ask(&engine, &other, "bob").unwrap();
    succeed(&engine, &one, &second.token).unwrap();
    assert_named(&engine, &task, "bob");
    let mut told = Vec::new();
    while !told.last().is_some_and(|(state, _)| *state == TaskState::Completed) {
        if let Some(Ok(WatchEvent::Updated { metadata, .. })) = engine.run(watch.next()) {
            told.push((metadata.state, metadata.worker.map(|it| it.name).unwrap_or_default()));
        }
    }
    told.dedup();
    let [runs, fails] = [TaskState::Processing, TaskState::Failed];
    let of = |state, name: &str| (state, name.to_owned());
    let (first, second) = ([of(runs, "ann"), of(fails, "ann")], of(TaskState::Completed, "bob"));
    assert!(told.starts_with(&first) && told.ends_with(&[second]), "{told:?}");
    // The gateways are gone, and the ledger is sealed when the next one has been there for a while.
    drop((one, other));
    assert_named(&engine, &task, "bob");
    let _next = gateway(&engine);
    engine.advance(Duration::from_secs(4 * 3600));
    assert_named(&engine, &task, "bob");
}

/// The gateway that wrote the end dies before it is shown, and another gateway shows it.
#[test]
fn who_has_held_a_lease_is_shown_by_another_gateway_than_that_which_has_ended_it() {
    let engine = TestEngine::new();
    let [one, other] = [gateway(&engine), gateway(&engine)];
    let task = engine.submit(TOPIC, &text("work"));
    drop(ask(&engine, &one, "ann").unwrap());
    drop(one);
    // Its time runs out three times.
    for name in ["bob", "carl"] {
        engine.advance(3 * LEASE_TIME);
        assert!(ask(&engine, &other, name).is_some(), "{name}");
    }
    engine.advance(3 * LEASE_TIME);
    assert_named(&engine, &task, "carl");
}

/// A task that runs at a worker of its own after that is not shown as leased.
#[test]
fn a_worker_that_runs_the_task_next_is_shown_itself() {
    let engine = TestEngine::new();
    let one = gateway(&engine);
    let task = engine.submit(TOPIC, &text("work"));
    let first = ask(&engine, &one, "ann").unwrap();
    engine.run(one.report(&first.token, failed())).unwrap();
    drop(one);
    let worker = engine.worker(TOPIC, processor_fn(async |task: Text, _| Ok(task)));
    let worker = worker.name("mailer-1").settings(|config| {
        (config.heartbeat, config.self_fence) = (Duration::from_secs(10), Duration::from_secs(600));
        config.ledger_retention = Duration::from_secs(3600);
    });
    let _worker = engine.start(worker);
    engine.wait::<Text>(&task).unwrap();
    assert_eq!(named(&engine, &task), [None, Some("mailer-1".to_owned())]);
}

/// Keep-alives and reports had 32 hexadecimal digits.
#[test]
fn the_history_names_who_has_granted_a_lease_and_who_has_held_it() {
    let engine = TestEngine::new();
    let [one, other] = [gateway(&engine), gateway(&engine)];
    let task = engine.submit(TOPIC, &text("work"));
    let lease = ask(&engine, &one, "ann").unwrap();
    engine.advance(Duration::from_secs(10));
    engine.run(other.keep_alive(&lease.token, KeepAlive::default())).unwrap();
    succeed(&engine, &one, &lease.token).unwrap();
    let history = engine.run(engine.client().queue(&task.topic).history(task.id)).unwrap();
    let mut heard = Vec::new();
    for entry in history.entries {
        let worker = entry.worker.unwrap_or_else(|| panic!("{:?}", entry.event));
        if let HistoryEvent::Leased { .. } = entry.event {
            assert!(worker.grants_leases, "{worker:?}");
            continue;
        }
        assert_eq!(worker.name, "ann", "{:?}", entry.event);
        heard.push(entry.event);
    }
    assert!(heard.iter().any(|it| matches!(it, HistoryEvent::Renewed { .. })), "{heard:?}");
    assert!(heard.iter().any(|it| matches!(it, HistoryEvent::Shown { .. })), "{heard:?}");
    assert!(heard.contains(&HistoryEvent::Completed), "{heard:?}");
}
