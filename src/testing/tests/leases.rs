//! Leases: any gateway takes what is said of a lease, and a lease outlives the gateway that has
//! granted it.

use super::*;
use crate::lease::{KeepAlive, Lease, LeaseOutcome, LeaseRequest, LeaseToken, Leases, ReportError};
use crate::ops::{DeadLetterFilter, QueueSettings};
use crate::{FailureCause, Levels, Priority, Progress, Submission, TaskState};
use bytes::Bytes;

mod attempts;
mod ends;
mod limits;
mod named;
mod offers;
mod random;
mod troubles;
mod types;

const TOPIC: &str = "tasks";
const LEASE_TIME: Duration = Duration::from_secs(30);
const WAIT: Duration = Duration::from_secs(30);

/// One that may not have read the ledger yet.
fn fresh_gateway(engine: &TestEngine) -> Leases {
    let settings = |config: &mut crate::WorkerConfig| {
        (config.heartbeat, config.self_fence) = (Duration::from_secs(10), Duration::from_secs(600));
        config.ledger_retention = Duration::from_secs(3600);
    };
    let builder = engine.client().leases(TOPIC).lease_time(LEASE_TIME).settings(settings);
    engine.run(builder.start()).unwrap()
}

fn gateway(engine: &TestEngine) -> Leases {
    let leases = fresh_gateway(engine);
    engine.run(leases.ready());
    leases
}

fn ask(engine: &TestEngine, leases: &Leases, worker: &str) -> Option<Lease> {
    let request = LeaseRequest::of(worker).wait(WAIT);
    engine.run(leases.lease(request)).unwrap().pop()
}

fn lease(engine: &TestEngine, leases: &Leases) -> Lease {
    ask(engine, leases, "ann").expect("a lease")
}

fn succeed(engine: &TestEngine, leases: &Leases, token: &LeaseToken) -> Result<(), ReportError> {
    engine.run(leases.report(token, LeaseOutcome::Succeeded(Bytes::from_static(b"done"))))
}

fn failed() -> LeaseOutcome {
    LeaseOutcome::Failed { message: "no luck".to_owned(), fatal: false, retry_after: None }
}

#[test]
fn a_task_is_leased_and_its_result_is_that_of_the_report() {
    let engine = TestEngine::new();
    let leases = gateway(&engine);
    assert_eq!(engine.run(leases.lease(LeaseRequest::of("ann"))).unwrap().len(), 0);
    let task = engine.submit(TOPIC, &text("work"));
    let lease = lease(&engine, &leases);
    assert_eq!(
        (lease.task.clone(), lease.attempt, &lease.payload[..]),
        (task.clone(), 1, &b"work"[..])
    );
    let view = engine.run(leases.find(&task.id)).unwrap().unwrap();
    assert_eq!((view.token, view.worker.as_str()), (lease.token, "ann"));
    succeed(&engine, &leases, &lease.token).unwrap();
    assert_eq!(engine.wait::<Text>(&task).unwrap(), text("done"));
    engine.assert_transitions(&task, ["PROCESSING 1", "COMPLETED 1"]);
    assert_eq!(engine.run(leases.find(&task.id)).unwrap(), None);
    // Told once more, as a holder does that has missed the answer.
    succeed(&engine, &leases, &lease.token).unwrap();
    let again = engine.run(leases.report(&lease.token, failed()));
    assert_eq!(again, Err(ReportError::Ended { state: TaskState::Completed, outcome: None }));
}

#[test]
fn whoever_looks_sees_who_holds_a_lease() {
    let engine = TestEngine::new();
    let leases = gateway(&engine);
    let task = engine.submit(TOPIC, &text("work"));
    let before = engine.now_ms();
    let lease = lease(&engine, &leases);
    let view = engine.run(engine.client().queue(TOPIC).tasks()).unwrap();
    let info = || view.get(task.id).unwrap().unwrap();
    let shown = info().lease.unwrap();
    assert_eq!((&*shown.worker, shown.lease_time), ("ann", LEASE_TIME));
    assert!((30_000..31_000).contains(&(shown.expires_ms - before)), "{shown:?}");
    let shown = engine.run(engine.client().get(&task)).unwrap().unwrap();
    assert_eq!(shown.worker.unwrap().name, "ann");
    engine.advance(Duration::from_secs(20));
    engine.run(leases.keep_alive(&lease.token, KeepAlive::default())).unwrap();
    engine.advance(Duration::from_secs(1));
    assert!(info().lease.unwrap().expires_ms - before > 50_000);
    succeed(&engine, &leases, &lease.token).unwrap();
    engine.advance(Duration::from_secs(1));
    assert_eq!(info().lease, None);
}

/// A gateway leased each task for 30 s, whatever the task and its queue said; and a holder that said
/// on time that it is alive failed, since it had reported no progress.
#[test]
fn a_lease_lasts_as_its_request_says_or_its_task_or_its_queue() {
    let engine = TestEngine::new();
    let leases = gateway(&engine);
    let submit = |limit: Option<u64>| {
        let task = engine.client().submission(TOPIC, &text("work"));
        let limit = limit.map(Duration::from_secs);
        let task = limit.into_iter().fold(task, Submission::no_progress_timeout);
        engine.run(task.send()).unwrap();
        engine.advance(Duration::from_secs(1));
    };
    submit(None);
    assert_eq!(lease(&engine, &leases).lease_time, LEASE_TIME);
    submit(Some(5));
    let held = lease(&engine, &leases);
    assert_eq!(held.lease_time, Duration::from_secs(5));
    submit(Some(5));
    let request = LeaseRequest::of("ann").wait(WAIT).lease_time(Duration::from_secs(50));
    let longer = engine.run(leases.lease(request)).unwrap().pop().unwrap();
    assert_eq!(longer.lease_time, Duration::from_secs(50));
    for _ in 0..10 {
        engine.advance(Duration::from_secs(3));
        let kept = engine.run(leases.keep_alive(&held.token, KeepAlive::default())).unwrap();
        assert_eq!((kept.lease_time, kept.cancelled), (Duration::from_secs(5), false));
    }
    succeed(&engine, &leases, &held.token).unwrap();
    succeed(&engine, &leases, &longer.token).unwrap();
    let set = |it: &mut QueueSettings| it.no_progress_timeout = Some(Duration::from_secs(7));
    engine.run(engine.client().queue(TOPIC).update(0, set)).unwrap();
    engine.advance(Duration::from_secs(60));
    submit(None);
    assert_eq!(lease(&engine, &leases).lease_time, Duration::from_secs(7));
}

/// A sample worker with a lease of a second lost it by waiting for the answers to its keep-alives:
/// each waited until its checkpoint was stored.
#[test]
fn a_lease_is_not_lost_by_waiting_for_checkpoints() {
    let engine = TestEngine::new();
    let leases = gateway(&engine);
    let task = engine.submit(TOPIC, &text("work"));
    let second = Duration::from_secs(1);
    let request = LeaseRequest::of("ann").wait(WAIT).lease_time(second);
    let lease = engine.run(leases.lease(request)).unwrap().pop().unwrap();
    let mut stored = 0;
    for number in 0..20 {
        let checkpoint = Some(Bytes::from(number.to_string()));
        let keep = KeepAlive { checkpoint, ..KeepAlive::default() };
        let kept = engine.run(leases.keep_alive(&lease.token, keep)).unwrap();
        stored += usize::from(kept.checkpoint_stored.unwrap());
    }
    assert!(stored > 0);
    engine.run(leases.report(&lease.token, failed())).unwrap();
    let next = ask(&engine, &leases, "ann").unwrap();
    assert_eq!(next.checkpoint.as_deref(), Some(&b"19"[..]));
    succeed(&engine, &leases, &next.token).unwrap();
    engine.wait::<Text>(&task).unwrap();
}

/// The request does not wait until the gateway has read the ledger.
#[test]
fn the_first_request_of_a_fresh_gateway_gets_what_lies_there() {
    let engine = TestEngine::new();
    for number in 0..3 {
        engine.submit(TOPIC, &text(&number.to_string()));
    }
    let leases = engine.run(engine.client().leases(TOPIC).start()).unwrap();
    let before = engine.time_passed();
    for _ in 0..3 {
        let lease = ask(&engine, &leases, "ann").expect("a lease");
        succeed(&engine, &leases, &lease.token).unwrap();
    }
    let took = engine.time_passed() - before;
    assert!(took < Duration::from_secs(3), "{took:?}");
}

/// Each such request was gone before its claim was read back: of a hundred one after the other two
/// got a lease, and each task had epochs and pauses for nothing.
#[test]
fn a_request_that_does_not_wait_gets_what_is_there() {
    let engine = TestEngine::new();
    let leases = gateway(&engine);
    let tasks: Vec<_> = (0..20)
        .map(|_| engine.run(engine.client().submission(TOPIC, "x").send()).unwrap())
        .collect();
    let request = || LeaseRequest::of("ann");
    for _ in &tasks {
        let lease = engine.run(leases.lease(request())).unwrap().pop().expect("there are tasks");
        succeed(&engine, &leases, &lease.token).unwrap();
    }
    assert!(engine.run(leases.lease(request())).unwrap().is_empty());
    for task in &tasks {
        engine.assert_transitions(task, ["PROCESSING 1", "COMPLETED 1"]);
    }
}

/// A task that only loses its workers ends, too.
#[test]
fn a_lease_that_falls_silent_is_a_failed_attempt_and_its_holder_is_fenced() {
    let engine = TestEngine::new();
    let leases = gateway(&engine);
    let task = engine.submit(TOPIC, &text("work"));
    let first = lease(&engine, &leases);
    engine.advance(LEASE_TIME + Duration::from_secs(1));
    let late = succeed(&engine, &leases, &first.token);
    assert_eq!(late, Err(ReportError::Expired));
    let second = lease(&engine, &leases);
    assert_eq!((second.attempt, second.token.epoch() > first.token.epoch()), (2, true));
    let stale = succeed(&engine, &leases, &first.token);
    assert_eq!(stale, Err(ReportError::StaleLease { current: second.token.epoch() }));
    engine.advance(LEASE_TIME + Duration::from_secs(1));
    lease(&engine, &leases);
    engine.advance(LEASE_TIME + Duration::from_secs(1));
    let end = engine.wait::<Text>(&task).unwrap_err();
    let WaitError::Failed { cause, reason, .. } = &end else { panic!("{end}") };
    assert!(reason.starts_with("Lease expired"), "{reason}");
    assert_eq!(*cause, FailureCause::Lost);
    engine.assert_transitions(
        &task,
        ["PROCESSING 1", "FAILED 1", "PROCESSING 2", "FAILED 2", "PROCESSING 3", "FAILED 3 FINAL"],
    );
    let letters = engine.run(engine.client().queue(TOPIC).dead_letters()).unwrap();
    let page = engine.run(letters.list(&DeadLetterFilter::default(), None, 10)).unwrap();
    assert_eq!(page.letters.len(), 1);
}

/// With levels, a task whose lease had fallen silent while nobody asked for tasks was never leased
/// again.
#[test]
fn what_fell_due_while_nobody_asked_is_leased_to_whoever_asks_next() {
    let engine = TestEngine::new();
    let builder = engine.client().leases(TOPIC).lease_time(LEASE_TIME);
    let leases = engine.run(builder.levels(Levels::strict()).start()).unwrap();
    engine.run(leases.ready());
    let task = engine.submit(TOPIC, &text("work"));
    lease(&engine, &leases);
    engine.advance(LEASE_TIME + Duration::from_secs(60));
    let second = lease(&engine, &leases);
    assert_eq!((second.task, second.attempt), (task, 2));
    succeed(&engine, &leases, &second.token).unwrap();
}

/// With a request for one task every 50 ms, every second task was once one of the normal level,
/// though those of the high level had waited for longer: at each request a normal one was at hand,
/// and a high one was only requested.
#[test]
fn the_higher_level_comes_first_for_who_asks_now_and_then() {
    let engine = TestEngine::new();
    let leases =
        engine.run(engine.client().leases(TOPIC).levels(Levels::strict()).start()).unwrap();
    engine.run(leases.ready());
    let submit = |priority| {
        let submission = engine.client().submission(TOPIC, &text("work")).priority(priority);
        engine.run(submission.send()).unwrap()
    };
    (0..20).for_each(|_| drop(submit(Priority::Normal)));
    let mut topics = Vec::new();
    for round in 0..16 {
        if round == 4 {
            (0..6).for_each(|_| drop(submit(Priority::High)));
            engine.advance(Duration::from_millis(300));
        }
        let lease = lease(&engine, &leases);
        succeed(&engine, &leases, &lease.token).unwrap();
        topics.push(if lease.task.topic.ends_with("-high") { 'h' } else { 'n' });
        engine.advance(Duration::from_millis(50));
    }
    assert_eq!(topics.into_iter().collect::<String>(), "nnnnhhhhhhnnnnnn");
}

#[test]
fn a_lease_goes_on_as_long_as_its_holder_says_so() {
    let engine = TestEngine::new();
    let leases = gateway(&engine);
    let task = engine.submit(TOPIC, &text("work"));
    let lease = lease(&engine, &leases);
    for done in 0..20 {
        engine.advance(LEASE_TIME - Duration::from_secs(1));
        let progress = Some(Progress { done, total: 20, message: String::new() });
        let keep = KeepAlive { progress, ..KeepAlive::default() };
        let kept = engine.run(leases.keep_alive(&lease.token, keep)).unwrap();
        assert_eq!((kept.lease_time, kept.cancelled), (LEASE_TIME, false));
    }
    let shown = engine.run(engine.client().get(&task)).unwrap().unwrap();
    assert_eq!(shown.progress.map(|progress| progress.total), Some(20));
    // An hour, from now on.
    let hour = Duration::from_secs(3600);
    let keep = KeepAlive { lease_time: Some(hour), ..KeepAlive::default() };
    engine.run(leases.keep_alive(&lease.token, keep)).unwrap();
    engine.advance(hour - Duration::from_secs(1));
    succeed(&engine, &leases, &lease.token).unwrap();
    engine.assert_transitions(&task, ["PROCESSING 1", "COMPLETED 1"]);
}

#[test]
fn any_gateway_takes_what_is_said_of_a_lease() {
    let engine = TestEngine::new();
    let (one, other) = (gateway(&engine), gateway(&engine));
    let task = engine.submit(TOPIC, &text("work"));
    let lease = engine.run(async {
        let one = one.lease(LeaseRequest::of("ann").wait(WAIT));
        let other = other.lease(LeaseRequest::of("bob").wait(WAIT));
        tokio::select! { leases = one => leases, leases = other => leases }
    });
    let lease = lease.unwrap().pop().unwrap();
    for round in 0..6 {
        for gateway in [&one, &other] {
            engine.advance(LEASE_TIME - Duration::from_secs(1));
            let checkpoint = Some(Bytes::from(format!("round {round}")));
            let keep = KeepAlive { checkpoint, ..KeepAlive::default() };
            engine.run(gateway.keep_alive(&lease.token, keep)).unwrap();
        }
    }
    engine.run(one.report(&lease.token, failed())).unwrap();
    let second = ask(&engine, &other, "bob").unwrap();
    assert_eq!((second.attempt, second.checkpoint.as_deref()), (2, Some(&b"round 5"[..])));
    succeed(&engine, &one, &second.token).unwrap();
    assert_eq!(engine.wait::<Text>(&task).unwrap(), text("done"));
    engine.advance(Duration::from_secs(120));
    let transitions = engine.transitions(&task);
    assert_eq!(transitions, ["PROCESSING 1", "FAILED 1", "PROCESSING 2", "COMPLETED 2"]);
}

#[test]
fn a_lease_outlives_the_gateway_that_has_granted_it() {
    let engine = TestEngine::new();
    let (one, other) = (gateway(&engine), gateway(&engine));
    let task = engine.submit(TOPIC, &text("work"));
    let kept = lease(&engine, &one);
    drop(one);
    engine.advance(LEASE_TIME - Duration::from_secs(2));
    let kept_on = engine.run(other.keep_alive(&kept.token, KeepAlive::default())).unwrap();
    assert!(!kept_on.cancelled);
    engine.advance(LEASE_TIME - Duration::from_secs(2));
    succeed(&engine, &other, &kept.token).unwrap();
    assert_eq!(engine.wait::<Text>(&task).unwrap(), text("done"));
    // And after a restart of all of them.
    let task = engine.submit(TOPIC, &text("work"));
    let kept = lease(&engine, &other);
    drop(other);
    let third = gateway(&engine);
    assert_eq!(engine.run(third.find(&task.id)).unwrap().unwrap().worker, "ann");
    succeed(&engine, &third, &kept.token).unwrap();
    assert_eq!(engine.wait::<Text>(&task).unwrap(), text("done"));
}

/// A gateway that took a lease over began its budget anew: a task of a minute ran for as long as
/// gateways died in time.
#[test]
fn a_budget_goes_on_at_the_gateway_that_takes_over() {
    let engine = TestEngine::new();
    let (one, other) = (gateway(&engine), gateway(&engine));
    let task = engine.client().submission(TOPIC, &text("work"));
    let task = task.max_duration(Duration::from_secs(60)).max_attempts(1);
    let task = engine.run(task.send()).unwrap();
    let lease = lease(&engine, &one);
    let granted = engine.time_passed();
    drop(one);
    let mut cancelled_after = None;
    for _ in 0..9 {
        engine.advance(Duration::from_secs(10));
        let Ok(kept) = engine.run(other.keep_alive(&lease.token, KeepAlive::default())) else {
            break;
        };
        if kept.cancelled && cancelled_after.is_none() {
            cancelled_after = Some((engine.time_passed() - granted).as_secs());
        }
    }
    assert_eq!(cancelled_after, Some(60), "{:?}", engine.transitions(&task));
}

/// Only the gateway that had granted a lease showed how it ended. Where that was gone a success
/// which another one had confirmed was shown 20 s later.
#[test]
fn who_ends_a_lease_shows_it_at_once() {
    let engine = TestEngine::new();
    let (one, other, third) = (gateway(&engine), gateway(&engine), gateway(&engine));
    let done = engine.submit(TOPIC, &text("work"));
    let done_by = lease(&engine, &one);
    let fails = engine.client().submission(TOPIC, &text("fails")).max_attempts(1);
    let fails = engine.run(fails.send()).unwrap();
    let fails_by = lease(&engine, &one);
    let silent = engine.client().submission(TOPIC, &text("is silent")).max_attempts(1);
    let silent = engine.run(silent.send()).unwrap();
    lease(&engine, &one);
    drop(one);
    succeed(&engine, &other, &done_by.token).unwrap();
    engine.run(third.report(&fails_by.token, failed())).unwrap();
    engine.assert_transitions(&done, ["PROCESSING 1", "COMPLETED 1"]);
    engine.assert_transitions(&fails, ["PROCESSING 1", "FAILED 1 FINAL"]);
    engine.advance(LEASE_TIME + Duration::from_secs(2));
    engine.assert_transitions(&silent, ["PROCESSING 1", "FAILED 1 FINAL"]);
    let letters = || {
        let letters = engine.run(engine.client().queue(TOPIC).dead_letters()).unwrap();
        let page = engine.run(letters.list(&DeadLetterFilter::new(), None, 10)).unwrap();
        let mut tasks: Vec<_> = page.letters.iter().map(|letter| letter.task.id).collect();
        tasks.sort();
        tasks
    };
    assert_eq!(letters(), [fails.id, silent.id]);
    // No gateway shows any of it again, also after a restart of all of them.
    engine.advance(Duration::from_secs(60));
    drop((other, third));
    let _fourth = gateway(&engine);
    engine.advance(Duration::from_secs(120));
    engine.assert_transitions(&done, ["PROCESSING 1", "COMPLETED 1"]);
    engine.assert_transitions(&fails, ["PROCESSING 1", "FAILED 1 FINAL"]);
    engine.assert_transitions(&silent, ["PROCESSING 1", "FAILED 1 FINAL"]);
    assert_eq!(letters(), [fails.id, silent.id]);
}

/// Within a second of its deadline, with nobody asking for tasks.
#[test]
fn another_gateway_ends_the_silent_lease_of_one_that_is_gone() {
    let engine = TestEngine::new();
    let (one, other) = (gateway(&engine), gateway(&engine));
    let task = engine.submit(TOPIC, &text("work"));
    let lease = lease(&engine, &one);
    let granted = engine.time_passed();
    drop(one);
    engine.advance(LEASE_TIME + Duration::from_secs(2));
    engine.assert_transitions(&task, ["PROCESSING 1", "FAILED 1"]);
    let failed_at = engine.transitions(&task)[1].at;
    let after = failed_at - granted;
    assert!((LEASE_TIME..LEASE_TIME + Duration::from_secs(1)).contains(&after), "{after:?}");
    assert_eq!(succeed(&engine, &other, &lease.token), Err(ReportError::Expired));
}

#[test]
fn a_lease_is_told_of_the_cancellation_of_its_task() {
    let engine = TestEngine::new();
    let leases = gateway(&engine);
    let task = engine.submit(TOPIC, &text("work"));
    let lease = lease(&engine, &leases);
    engine.run(engine.client().cancel(&task)).unwrap();
    engine.advance(Duration::from_secs(1));
    let kept = engine.run(leases.keep_alive(&lease.token, KeepAlive::default())).unwrap();
    assert!(kept.cancelled);
    let told = succeed(&engine, &leases, &lease.token);
    let outcome = Some(TaskOutcome::Cancelled);
    assert_eq!(told, Err(ReportError::Ended { state: TaskState::Failed, outcome }));
    engine.assert_transitions(&task, ["PROCESSING 1", "FAILED 1 CANCELLED"]);
}

#[test]
fn who_gives_up_waiting_takes_no_lease_with_it() {
    let engine = TestEngine::new();
    let leases = gateway(&engine);
    engine.run(async {
        let asked = leases.lease(LeaseRequest::of("ann").wait(WAIT));
        tokio::select! {
            biased;
            _ = asked => panic!("there is nothing"),
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
    });
    let task = engine.submit(TOPIC, &text("work"));
    let found = ask(&engine, &leases, "bob").unwrap();
    assert_eq!((found.task, found.attempt), (task, 1));
}

#[test]
fn what_is_no_lease_is_refused_with_its_reason() {
    let engine = TestEngine::new();
    let leases = gateway(&engine);
    let owner = "000000000000000000000000000000ab";
    let token: LeaseToken = format!("900:7:-1/1/{owner}").parse().unwrap();
    assert_eq!(succeed(&engine, &leases, &token), Err(ReportError::NotFound));
    let task = engine.submit(TOPIC, &text("work"));
    let lease = lease(&engine, &leases);
    let token = format!("{}/{}/{owner}", task.id, lease.token.epoch()).parse().unwrap();
    assert_eq!(succeed(&engine, &leases, &token), Err(ReportError::NotOwner));
    let bytes = 65_537;
    let keep = KeepAlive { checkpoint: Some(vec![0; bytes].into()), ..KeepAlive::default() };
    let refused = engine.run(leases.keep_alive(&lease.token, keep));
    assert_eq!(refused, Err(ReportError::TooLarge { bytes, max: 65_536 }));
    let huge = LeaseOutcome::Succeeded(vec![0; 2_000_000].into());
    let refused = engine.run(leases.report(&lease.token, huge));
    assert_eq!(refused, Err(ReportError::TooLarge { bytes: 2_000_000, max: 1024 * 1024 }));
    succeed(&engine, &leases, &lease.token).unwrap();
}

#[test]
fn a_drain_leaves_leases_to_others() {
    let engine = TestEngine::new();
    let (one, other) = (gateway(&engine), gateway(&engine));
    let task = engine.submit(TOPIC, &text("work"));
    let lease = lease(&engine, &one);
    let before = engine.time_passed();
    engine.run(one.drain(Duration::from_secs(10))).unwrap();
    assert!(engine.time_passed() - before < Duration::from_secs(10));
    succeed(&engine, &other, &lease.token).unwrap();
    assert_eq!(engine.wait::<Text>(&task).unwrap(), text("done"));
    engine.assert_transitions(&task, ["PROCESSING 1", "COMPLETED 1"]);
}

/// The holder of a lease was told that its task was cancelled only by the gateway that looked after
/// the lease when the request came. If the next keep-alive went to another gateway, the holder went
/// on, and the task completed.
#[test]
fn a_holder_that_turns_to_another_gateway_is_told_of_an_earlier_cancellation() {
    let engine = TestEngine::new();
    let (one, other) = (gateway(&engine), gateway(&engine));
    let task = engine.submit(TOPIC, &text("work"));
    let lease = lease(&engine, &one);
    engine.run(engine.client().cancel(&task)).unwrap();
    engine.advance(Duration::from_secs(1));
    let kept = engine.run(other.keep_alive(&lease.token, KeepAlive::default())).unwrap();
    assert!(kept.cancelled);
    engine.run(other.report(&lease.token, failed())).unwrap();
    engine.advance(Duration::from_secs(1));
    engine.assert_transitions(&task, ["PROCESSING 1", "FAILED 1 CANCELLED"]);
}

/// A holder that does not heed the cancellation, and turns to another gateway each time, had its
/// grace anew each time.
#[test]
fn the_grace_of_a_cancelled_lease_does_not_begin_anew_at_each_gateway() {
    let engine = TestEngine::new();
    let both = [gateway(&engine), gateway(&engine)];
    let task = engine.submit(TOPIC, &text("work"));
    let lease = lease(&engine, &both[0]);
    engine.run(engine.client().cancel(&task)).unwrap();
    for gateway in both.iter().cycle().skip(1).take(20) {
        engine.advance(Duration::from_secs(3));
        drop(engine.run(gateway.keep_alive(&lease.token, KeepAlive::default())));
    }
    engine.assert_transitions(&task, ["PROCESSING 1", "FAILED 1 CANCELLED"]);
}
