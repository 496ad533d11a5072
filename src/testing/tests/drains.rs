//! Workers that are drained by their names.

use super::*;
use crate::ActionError;
use crate::WorkerHandle;
use crate::lease::{LeaseError, LeaseRequest};
use crate::ops::WorkerInfo;
use crate::transport::TopicPartition;
use longhaul_core::protocol::register::{DocumentKind, Register};

const TOPIC: &str = "tasks";
const MINUTE: Duration = Duration::from_secs(60);

/// A worker of this name that needs a minute for a task, and says who has done it.
fn worker(engine: &TestEngine, name: &'static str) -> WorkerHandle {
    let processor = processor_fn(async move |_: Text, _: TaskContext| -> Outcome {
        tokio::time::sleep(MINUTE).await;
        Ok(text(name))
    });
    let worker = engine.worker(TOPIC, processor).name(name).concurrency(1);
    let worker = engine.start(worker.drain_limit(10 * MINUTE));
    engine.run(worker.ready());
    worker
}

fn names_of_workers(engine: &TestEngine) -> Vec<String> {
    let view = engine.run(engine.client().queue(TOPIC).claimed_tasks()).unwrap();
    let workers = view.workers().unwrap();
    let mut names: Vec<String> =
        workers.iter().filter_map(|it| Some(it.identity.as_ref()?.name.clone())).collect();
    names.sort();
    names
}

/// The drain requests on the register.
fn requests(engine: &TestEngine) -> usize {
    let topic = names(TOPIC).register;
    let log = engine.broker().full_log(&TopicPartition { topic, partition: -1 });
    let mut register = Register::default();
    for message in &log {
        register.apply(&longhaul_core::register::read(message).unwrap(), message.position);
    }
    register.documents().of(DocumentKind::Drain).count()
}

#[test]
fn a_worker_is_drained_by_its_name_and_the_others_go_on() {
    let engine = TestEngine::new();
    let first = worker(&engine, "first");
    let task = engine.submit(TOPIC, &text("one"));
    engine.advance(Duration::from_secs(5));
    let second = worker(&engine, "second");
    let client = engine.client().clone().acting_as("ann");
    let told = engine.run(client.queue(TOPIC).drain_worker("first", "its machine goes")).unwrap();
    assert_eq!((told.name.as_str(), told.process), ("first", Some(std::process::id())));
    engine.run(first.told_to_drain());
    engine.advance(Duration::from_secs(1));
    assert_eq!(requests(&engine), 1, "it stands as long as the worker drains");
    // Once more, by somebody else, before it has left.
    let bob = engine.client().clone().acting_as("bob");
    let owner = {
        let view = engine.run(bob.queue(TOPIC).claimed_tasks()).unwrap();
        let workers = view.workers().unwrap();
        let first = workers.iter().find(|it| it.identity.as_ref().unwrap().name == "first");
        first.unwrap().owner.clone()
    };
    engine.run(bob.queue(TOPIC).drain_worker(&owner, "me too")).unwrap();
    let more = engine.submit(TOPIC, &text("two"));
    engine.run(first.join()).unwrap();
    assert_eq!(engine.wait::<Text>(&task).unwrap(), text("first"), "it has finished its task");
    engine.assert_transitions(&task, ["PROCESSING 1", "COMPLETED 1"]);
    assert_eq!(engine.wait::<Text>(&more).unwrap(), text("second"));
    engine.assert_transitions(&more, ["PROCESSING 1", "COMPLETED 1"]);
    assert_eq!(names_of_workers(&engine), ["second"]);
    assert_eq!(requests(&engine), 0, "nothing of it stays");
    let gone = engine.run(client.queue(TOPIC).drain_worker("first", "")).unwrap_err();
    let ActionError::NoSuchWorker { alive, .. } = &gone else { panic!("{gone}") };
    assert_eq!(alive, &["second"]);
    // One with the same name is another one.
    let third = worker(&engine, "first");
    engine.advance(10 * MINUTE);
    let last = [(); 2].map(|()| engine.submit(TOPIC, &text("three")));
    let mut done = last.map(|task| engine.wait::<Text>(&task).unwrap().0);
    done.sort();
    assert_eq!(done, ["first", "second"]);
    let log = engine.run(client.queue(TOPIC).action_log(10)).unwrap();
    let log: Vec<_> = log
        .iter()
        .map(|it| (it.task.as_ref(), it.worker.as_deref(), &*it.operator, &*it.action, &*it.reason))
        .collect();
    assert_eq!(log, [(None, Some("first"), "ann", "drain", "its machine goes")]);
    drop((second, third));
}

/// A worker that drained for an hour was listed like one that takes tasks.
#[test]
fn a_worker_says_that_it_drains_in_its_next_heartbeat() {
    let engine = TestEngine::new();
    let processor = processor_fn(async |_: Text, _: TaskContext| -> Outcome {
        tokio::time::sleep(MINUTE).await;
        Ok(text("done"))
    });
    let second = Duration::from_secs(1);
    let worker = engine.start(engine.worker(TOPIC, processor).name("first").heartbeat(second));
    engine.submit(TOPIC, &text("one"));
    engine.advance(5 * second);
    let queue = engine.client().queue(TOPIC);
    let drains = || {
        let view = engine.run(queue.claimed_tasks()).unwrap();
        let workers = view.workers().unwrap();
        workers.iter().map(|it| it.identity.as_ref().unwrap().draining).collect::<Vec<_>>()
    };
    assert_eq!(drains(), [false]);
    engine.run(queue.drain_worker("first", "")).unwrap();
    engine.advance(2 * second);
    assert_eq!(drains(), [true]);
    engine.run(worker.join()).unwrap();
}

/// The worker died before it could remove the request. Whoever drains another one does, when it is
/// sure that it does not come back.
#[test]
fn a_request_to_a_dead_worker_is_removed_by_the_next_one_who_drains() {
    let engine = TestEngine::new();
    let first = worker(&engine, "first");
    let others = ["second", "third", "fourth"].map(|name| worker(&engine, name));
    engine.submit(TOPIC, &text("one"));
    engine.advance(Duration::from_secs(5));
    let [second, third, fourth] = others;
    let client = engine.client();
    // The worker with the task is told to drain, and dies with it.
    engine.run(client.queue(TOPIC).drain_worker("first", "")).unwrap();
    drop(first);
    engine.run(client.queue(TOPIC).drain_worker("second", "")).unwrap();
    engine.run(second.join()).unwrap();
    assert_eq!(requests(&engine), 1, "the first one may be cut off");
    engine.advance(2 * DAY);
    assert_eq!(names_of_workers(&engine), ["fourth", "third"]);
    engine.run(client.queue(TOPIC).drain_worker("third", "")).unwrap();
    engine.run(third.join()).unwrap();
    assert_eq!(requests(&engine), 0);
    drop(fourth);
}

/// A worker of several queues is one process: its name is known in each of them.
#[test]
fn a_worker_of_several_queues_and_levels_leaves_them_all() {
    let engine = TestEngine::new();
    let processor = processor_fn(async |task: Text, _: TaskContext| -> Outcome { Ok(task) });
    let builder = engine.worker(TOPIC, processor).name("first");
    let worker = engine.start(builder.levels(crate::Levels::strict()).also("letters"));
    engine.run(worker.ready());
    let refused =
        engine.run(engine.client().queue("tasks-high").drain_worker("first", "")).unwrap_err();
    assert!(matches!(refused, ActionError::Level(_)), "{refused}");
    engine.run(engine.client().queue("letters").drain_worker("first", "")).unwrap();
    engine.run(worker.join()).unwrap();
    assert!(names_of_workers(&engine).is_empty());
}

/// Operators could drain no worker that leases its tasks, and saw none that had nothing to do.
#[test]
fn a_worker_behind_any_gateway_is_listed_and_drained_whether_it_works_or_waits() {
    let engine = TestEngine::new();
    let gateways = [(); 2].map(|()| engine.run(engine.client().leases(TOPIC).start()).unwrap());
    let [one, other] = &gateways;
    engine.run(async { tokio::join!(one.ready(), other.ready()) });
    let request =
        |instance: &str| LeaseRequest::of("ann").instance(instance).wait(DAY).lease_time(2 * DAY);
    let drain = async |id: &str| engine.client().queue(TOPIC).drain_worker(id, "").await;
    engine.submit(TOPIC, &text("one"));
    let lease = engine.run(one.lease(request("a1"))).unwrap().pop().unwrap();
    assert_eq!(engine.run(drain("ann")).unwrap().instance, "a1");
    // It asks another gateway for more, and keeps what it has.
    assert_eq!(engine.run(other.lease(request("a1"))).unwrap_err(), LeaseError::Drained);
    let keep = crate::lease::KeepAlive::default();
    engine.run(other.keep_alive(&lease.token, keep)).unwrap();
    // Another start of the same worker, which waits.
    let waits = one.lease(request("a2"));
    let drained = async {
        let view = engine.client().queue(TOPIC).claimed_tasks().await.unwrap();
        let is_it = |it: &WorkerInfo| it.identity.as_ref().is_some_and(|it| it.instance == "a2");
        while !view.workers().unwrap().iter().any(is_it) {
            tokio::time::sleep(MINUTE).await;
        }
        let twins = drain("ann").await.unwrap_err();
        assert!(twins.to_string().ends_with("use the id of one, a1, a2"), "{twins}");
        drain("a2").await.unwrap();
        engine.time_passed()
    };
    let (refused, told) = engine.run(async { tokio::join!(waits, drained) });
    assert_eq!(refused.unwrap_err(), LeaseError::Drained);
    assert!(engine.time_passed() - told < MINUTE, "it need not ask again to be told");
    // The third start is another worker.
    engine.submit(TOPIC, &text("two"));
    assert_eq!(engine.run(other.lease(request("a3"))).unwrap().len(), 1);
    // Nobody is told any more.
    engine.advance(2 * DAY);
    let _own = worker(&engine, "own");
    engine.advance(Duration::from_secs(1));
    engine.run(drain("own")).unwrap();
    assert_eq!(requests(&engine), 1, "that of the worker that drains now");
}

/// A gateway would open the queue anew when it is asked for the next lease, and a holder of leases
/// that says no instance cannot be told apart from its next start.
#[test]
fn a_gateway_and_who_works_behind_it_are_not_drained() {
    let engine = TestEngine::new();
    let leases = engine.run(engine.client().leases(TOPIC).start()).unwrap();
    engine.run(leases.ready());
    engine.submit(TOPIC, &text("one"));
    let request = LeaseRequest::of("ann").wait(MINUTE);
    let _lease = engine.run(leases.lease(request)).unwrap().pop().unwrap();
    let drain =
        |name: &str| engine.run(engine.client().queue(TOPIC).drain_worker(name, "")).unwrap_err();
    let view = engine.run(engine.client().queue(TOPIC).claimed_tasks()).unwrap();
    let workers = view.workers().unwrap();
    let gateway = &workers[0];
    assert!(gateway.identity.as_ref().unwrap().grants_leases);
    let refused = drain(&gateway.owner);
    assert!(matches!(refused, ActionError::GrantsLeases(_)), "{refused}");
    assert!(refused.to_string().contains("SIGTERM"), "{refused}");
    let refused = drain("ann");
    assert!(matches!(refused, ActionError::HoldsLeases(_)), "{refused}");
    assert!(matches!(drain("bob"), ActionError::NoSuchWorker { .. }));
    assert!(!leases.has_ended());
}

/// A view of another queue answered for this one: a worker was told to drain that another queue
/// had, and no task was known.
#[test]
fn a_view_of_another_queue_is_not_asked() {
    let engine = TestEngine::new();
    let _here = worker(&engine, "here");
    let task = engine.submit(TOPIC, &text("one"));
    let elsewhere =
        engine.worker("elsewhere", processor_fn(async |_: Text, _: TaskContext| Ok(())));
    let elsewhere = engine.start(elsewhere.name("elsewhere"));
    engine.run(elsewhere.ready());
    engine.advance(Duration::from_secs(1));
    let view = engine.run(engine.client().queue("elsewhere").tasks()).unwrap();
    let queue = engine.client().queue(TOPIC).with_view(&view);
    assert!(engine.run(queue.why(task.id)).unwrap().is_some());
    let refused = engine.run(queue.drain_worker("elsewhere", "")).unwrap_err();
    assert!(matches!(refused, ActionError::NoSuchWorker { .. }), "{refused}");
    // A view of the claimed tasks names the workers and not each task.
    let claimed = engine.run(engine.client().queue(TOPIC).claimed_tasks()).unwrap();
    let queue = engine.client().queue(TOPIC).with_view(&claimed);
    let waiting = engine.submit(TOPIC, &text("two"));
    engine.advance(Duration::from_secs(1));
    assert!(claimed.get(waiting.id).unwrap().is_none());
    assert!(engine.run(queue.why(waiting.id)).unwrap().is_some());
    assert_eq!(engine.run(queue.drain_worker("here", "")).unwrap().name, "here");
}
