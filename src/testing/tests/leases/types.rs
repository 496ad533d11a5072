//! Leases of some types of tasks.

use super::*;
use crate::{Priority, Submission, TaskRef};

pub(super) fn submit(engine: &TestEngine, task_type: &str) -> TaskRef {
    submit_as(engine, task_type, |submission| submission)
}

pub(super) fn submit_as(
    engine: &TestEngine,
    task_type: &str,
    change: impl FnOnce(Submission) -> Submission,
) -> TaskRef {
    let submission = engine.client().submission(TOPIC, &text(task_type)).task_type(task_type);
    engine.run(change(submission).send()).unwrap()
}

pub(super) fn of(types: &[&str]) -> LeaseRequest {
    LeaseRequest::of("ann").types(types.iter().copied()).wait(WAIT)
}

/// The lease that a request for these types gets.
pub(super) fn ask_for(engine: &TestEngine, leases: &Leases, types: &[&str]) -> Option<Lease> {
    engine.run(leases.lease(of(types))).unwrap().pop()
}

fn payloads(
    engine: &TestEngine,
    leases: &Leases,
    request: &LeaseRequest,
    count: usize,
) -> Vec<String> {
    let mut payloads = Vec::new();
    while payloads.len() < count {
        let found = engine.run(leases.lease(request.clone())).unwrap();
        assert!(!found.is_empty(), "only {payloads:?}");
        for lease in found {
            payloads.push(String::from_utf8_lossy(&lease.payload).into_owned());
            succeed(engine, leases, &lease.token).unwrap();
        }
    }
    payloads
}

#[test]
fn each_gets_what_it_asks_for_however_much_else_lies_before_it() {
    let engine = TestEngine::new();
    let leases = gateway(&engine);
    for _ in 0..300 {
        submit(&engine, "other");
    }
    let wanted = submit(&engine, "wanted");
    let before = engine.time_passed();
    let lease = ask_for(&engine, &leases, &["unknown", "wanted"]).unwrap();
    assert_eq!(lease.task, wanted);
    assert!(engine.time_passed() - before < Duration::from_secs(5));
    succeed(&engine, &leases, &lease.token).unwrap();
    let others = LeaseRequest::of("bob").count(50).types(["other"]).wait(WAIT);
    assert_eq!(payloads(&engine, &leases, &others, 300), vec!["other"; 300]);
    let all = engine.run(engine.client().queue(TOPIC).verify()).unwrap();
    assert!(all.is_sound(), "{:?}", all.findings);
    // No claim was published in vain.
    engine.assert_transitions(&wanted, ["PROCESSING 1", "COMPLETED 1"]);
}

#[test]
fn a_request_that_waits_is_answered_when_its_type_comes() {
    let engine = TestEngine::new();
    let leases = gateway(&engine);
    let (found, passed) = engine.run(async {
        let begin = engine.time_passed();
        let asked = leases.lease(of(&["b"]));
        let submitted = async {
            for task_type in ["a", "a", "b"] {
                tokio::time::sleep(Duration::from_secs(3)).await;
                let submission = engine.client().submission(TOPIC, &text(task_type));
                submission.task_type(task_type).send().await.unwrap();
            }
        };
        let (found, ()) = tokio::join!(asked, submitted);
        (found.unwrap(), engine.time_passed() - begin)
    });
    assert_eq!(&found[0].payload[..], b"b");
    assert!(passed < Duration::from_secs(10), "{passed:?}");
}

#[test]
fn a_retry_is_leased_to_who_asks_for_its_type_also_by_a_fresh_gateway() {
    let engine = TestEngine::new();
    let one = gateway(&engine);
    let task = submit(&engine, "a");
    let lease = ask_for(&engine, &one, &["a"]).unwrap();
    engine.run(one.report(&lease.token, failed())).unwrap();
    assert!(ask_for(&engine, &one, &["b"]).is_none(), "the wait of thirty seconds is over");
    let lease = ask_for(&engine, &one, &["a"]).unwrap();
    assert_eq!((lease.task.clone(), lease.attempt), (task.clone(), 2));
    drop(one);
    let other = gateway(&engine);
    assert!(ask_for(&engine, &other, &["b"]).is_none(), "its lease falls silent meanwhile");
    engine.advance(Duration::from_secs(10));
    let lease = ask_for(&engine, &other, &["a"]).unwrap();
    assert_eq!((lease.task, lease.attempt), (task, 3));
}

/// One gateway holds what the other one is asked for.
#[test]
fn what_one_gateway_is_not_asked_for_the_other_one_gets() {
    let engine = TestEngine::new();
    let (one, other) = (gateway(&engine), gateway(&engine));
    engine.advance(Duration::from_secs(20));
    for _ in 0..20 {
        submit(&engine, "a");
        submit(&engine, "b");
    }
    let work = |leases: Leases, task_type: &'static str| async move {
        for _ in 0..20 {
            let found = leases.lease(of(&[task_type])).await.unwrap().pop().expect(task_type);
            assert_eq!(&found.payload[..], task_type.as_bytes());
            let done = LeaseOutcome::Succeeded(Bytes::new());
            leases.report(&found.token, done).await.unwrap();
        }
    };
    let before = engine.time_passed();
    engine.run(async { tokio::join!(work(one, "a"), work(other, "b")) });
    let passed = engine.time_passed() - before;
    assert!(passed < Duration::from_secs(5), "{passed:?}");
}

#[test]
fn requests_name_one_to_sixteen_types_that_a_task_may_have() {
    let engine = TestEngine::new();
    let leases = gateway(&engine);
    let (empty, many) = (LeaseRequest::of("ann").types(Vec::<String>::new()), of(&["a"; 17]));
    for request in [empty, many, of(&[""]), of(&[&"t".repeat(129)])] {
        let refused = engine.run(leases.lease(request)).unwrap_err();
        assert_eq!(refused, crate::lease::LeaseError::Types);
    }
    let longest = "t".repeat(128);
    let task = submit(&engine, &longest);
    assert_eq!(ask_for(&engine, &leases, &[longest.as_str(); 16]).unwrap().task, task);
}

/// Tasks of a higher level that no request wants do not go before wanted tasks of a lower level.
#[test]
fn what_nobody_wants_of_a_high_level_is_passed_over() {
    let engine = TestEngine::new();
    let builder = engine.client().leases(TOPIC).levels(Levels::strict());
    let leases = engine.run(builder.start()).unwrap();
    engine.run(leases.ready());
    for _ in 0..50 {
        submit_as(&engine, "other", |it| it.priority(Priority::High));
    }
    for priority in [Priority::Low, Priority::Normal] {
        submit_as(&engine, "wanted", |it| it.priority(priority));
    }
    let before = engine.time_passed();
    let next = |types: &[&str]| {
        let lease = ask_for(&engine, &leases, types).expect("one is there");
        succeed(&engine, &leases, &lease.token).unwrap();
        (String::from_utf8_lossy(&lease.payload).into_owned(), lease.task.topic)
    };
    let wanted =
        |topic: &str| ("wanted".to_owned(), format!("persistent://public/default/{topic}"));
    assert_eq!(next(&["wanted"]), wanted("tasks"));
    assert_eq!(next(&["wanted"]), wanted("tasks-low"));
    assert_eq!(next(&["wanted", "other"]).0, "other");
    assert!(engine.time_passed() - before < Duration::from_secs(5));
    let any = LeaseRequest::of("bob").count(10).wait(WAIT);
    assert_eq!(payloads(&engine, &leases, &any, 49), vec!["other"; 49]);
}
