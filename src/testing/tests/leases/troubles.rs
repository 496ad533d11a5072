//! Leases when the log is slow, or a gateway is.

use super::*;
use longhaul_core::task::TaskId;
use longhaul_memory::Loss;
use longhaul_transport::TopicPartition;
use std::collections::BTreeSet;

fn ledger() -> TopicPartition {
    TopicPartition { topic: "persistent://public/default/tasks-ledger".to_owned(), partition: -1 }
}

fn lease_of_one(engine: &TestEngine, one: &Leases) -> (TaskRef, Lease) {
    let task = engine.submit(TOPIC, &text("work"));
    (task, lease(engine, one))
}

/// A gateway that does not read the log does not know that others have renewed a lease since. It
/// ended the lease all the same, by its own clock: after half a minute in which it stood still it
/// failed every attempt whose holder had turned to another gateway in the meantime.
#[test]
fn a_gateway_that_does_not_read_ends_no_lease_that_another_one_has_renewed() {
    let engine = TestEngine::new();
    let one = gateway(&engine);
    let (task, lease) = lease_of_one(&engine, &one);
    let other = gateway(&engine);
    engine.broker.silence_followers(&ledger(), Duration::from_secs(50));
    for silent in [true, false] {
        engine.advance(LEASE_TIME - Duration::from_secs(10));
        let told = engine.run(other.keep_alive(&lease.token, KeepAlive::default()));
        // While it does not read, either, it cannot say that the lease goes on. But it does.
        assert_eq!(told.is_err(), silent, "{told:?}");
        assert!(matches!(told, Ok(_) | Err(ReportError::Unavailable)), "{told:?}");
    }
    engine.advance(Duration::from_secs(15));
    succeed(&engine, &other, &lease.token).unwrap();
    assert_eq!(engine.wait::<Text>(&task).unwrap(), text("done"));
    engine.assert_transitions(&task, ["PROCESSING 1", "COMPLETED 1"]);
}

/// Two keep-alives at once at two gateways: each takes the lease over from the other one. Whoever
/// was last told its holder that the lease had expired, and its holder dropped an hour of work
/// under a lease that went on.
#[test]
fn no_keep_alive_is_told_that_a_lease_has_expired_which_goes_on() {
    let engine = TestEngine::new();
    let (one, other) = (gateway(&engine), gateway(&engine));
    let (task, lease) = lease_of_one(&engine, &one);
    for _ in 0..50 {
        let keep = |gateway: &Leases| {
            let (gateway, token) = (gateway.clone(), lease.token);
            async move { gateway.keep_alive(&token, KeepAlive::default()).await }
        };
        let told = engine.run(async { tokio::join!(keep(&one), keep(&other), keep(&one)) });
        for told in [told.0, told.1, told.2] {
            assert!(matches!(told, Ok(_) | Err(ReportError::Unavailable)), "{told:?}");
        }
        engine.advance(Duration::from_secs(1));
    }
    succeed(&engine, &one, &lease.token).unwrap();
    assert_eq!(engine.wait::<Text>(&task).unwrap(), text("done"));
}

/// A gateway that could not read the log, such as one that was started while the broker was away,
/// told the holder of a lease after five seconds that there is no such task: its work was lost.
#[test]
fn nobody_is_told_that_there_is_no_task_by_a_gateway_that_cannot_read() {
    let engine = TestEngine::new();
    let one = gateway(&engine);
    let (task, lease) = lease_of_one(&engine, &one);
    engine.broker.take_away(&ledger().topic, Duration::from_secs(12), Loss::Error);
    let other = fresh_gateway(&engine);
    assert_eq!(succeed(&engine, &other, &lease.token), Err(ReportError::Unavailable));
    assert_eq!(engine.run(other.find(&task.id)), Err(ReportError::Unavailable));
    let mut told = (0..10).map(|_| succeed(&engine, &other, &lease.token));
    assert_eq!(told.find(|told| *told != Err(ReportError::Unavailable)), Some(Ok(())));
    assert_eq!(engine.wait::<Text>(&task).unwrap(), text("done"));
    engine.assert_transitions(&task, ["PROCESSING 1", "COMPLETED 1"]);
}

/// A topic was away, and with it the messages of more tasks whose leases were over than are read at
/// once: until it came back no lease of any other topic was ended.
#[test]
fn leases_whose_messages_cannot_be_read_keep_no_others_from_being_ended() {
    let engine = TestEngine::new();
    let gateway = || {
        let builder = engine.client().leases(TOPIC).lease_time(LEASE_TIME);
        let leases = engine.run(builder.levels(Levels::strict()).start()).unwrap();
        engine.run(leases.ready());
        leases
    };
    let (one, other) = (gateway(), gateway());
    let submit = |priority| {
        let submission = engine.client().submission(TOPIC, &text("work")).priority(priority);
        engine.run(submission.send()).unwrap()
    };
    let away: BTreeSet<TaskId> = (0..70).map(|_| submit(Priority::High).id).collect();
    let leased: BTreeSet<TaskId> = (0..70).map(|_| lease(&engine, &one).task.id).collect();
    assert_eq!(leased, away);
    let task = submit(Priority::Normal);
    assert_eq!(lease(&engine, &one).task, task);
    drop(one);
    let topic = "persistent://public/default/tasks-high";
    engine.broker().take_away(topic, Duration::from_secs(3_600), Loss::Error);
    engine.advance(LEASE_TIME + Duration::from_secs(60));
    let again = lease(&engine, &other);
    assert_eq!((again.task, again.attempt), (task, 2));
}

/// An attempt that another gateway ended was in no metric, so that no alert knew of it; then each
/// counted as lost, a cancelled one too.
#[cfg(feature = "metrics")]
#[test]
fn an_attempt_that_another_gateway_ends_is_counted_as_it_ended() {
    for (is_cancelled, outcome) in [(false, "lost"), (true, "cancelled")] {
        let notes = crate::telemetry::tests::Notes::default();
        let _guard = metrics::set_default_local_recorder(&notes);
        let engine = TestEngine::new();
        let [one, _other] = offers::gateways(&engine);
        let (task, _lease) = lease_of_one(&engine, &one);
        drop(one);
        if is_cancelled {
            engine.run(engine.client().cancel(&task)).unwrap();
        }
        engine.advance(Duration::from_secs(600));
        let name = format!("longhaul_attempts_total{{queue={},outcome={outcome}}}", task.topic);
        assert_eq!(notes.get(&name), Some(1.0), "{outcome}");
    }
}

/// A busy gateway that stopped let go of the leases that nobody had got, so each stood until it
/// expired and cost an attempt. They were given back before the drain began, and looked at later.
#[test]
fn a_gateway_that_drains_gives_back_what_nobody_got() {
    let engine = TestEngine::new();
    let (one, other) = (gateway(&engine), gateway(&engine));
    let count = 400;
    for _ in 0..count {
        engine.submit(TOPIC, &text("work"));
    }
    let leased = |leases: &Leases| {
        let mut leased = Vec::new();
        while leased.len() < count {
            let request = LeaseRequest::of("ann").wait(Duration::from_secs(5)).count(count);
            let more = engine.run(leases.lease(request)).unwrap();
            assert!(!more.is_empty(), "{} of {count}", leased.len());
            leased.extend(more);
        }
        leased
    };
    for lease in leased(&one) {
        one.give_back(&[lease.token]);
    }
    engine.run(one.drain(Duration::ZERO)).unwrap();
    engine.advance(Duration::from_secs(2));
    let again = leased(&other);
    assert!(again.iter().all(|lease| lease.attempt == 1), "no attempt is lost");
}

/// The same for a request that is given up while its claim is on the way.
#[test]
fn a_gateway_that_drains_gives_back_what_it_was_granting() {
    for ms in 0.. {
        let engine = TestEngine::new();
        let (one, other) = (gateway(&engine), gateway(&engine));
        let task = engine.submit(TOPIC, &text("work"));
        let is_granted = engine.run(async {
            let request = one.lease(LeaseRequest::of("ann").wait(WAIT));
            let granted = tokio::time::timeout(Duration::from_millis(ms), request).await;
            one.drain(Duration::ZERO).await.unwrap();
            granted.is_ok()
        });
        if is_granted {
            assert!(ms > 3, "it was on the way for a while");
            return;
        }
        engine.advance(Duration::from_secs(2));
        let again = lease(&engine, &other);
        assert_eq!((&again.task, again.attempt), (&task, 1), "after {ms} ms");
    }
}
