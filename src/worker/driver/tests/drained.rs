//! Workers that are drained from outside, by a drain request on the register.

use super::*;
use crate::worker::of_this_process;
use longhaul_core::protocol::register::{
    Document, DocumentKey, DocumentKind, DocumentName, Entry as RegisterEntry, Stamp,
};
use longhaul_core::register;

fn config(instance: &str) -> WorkerConfig {
    let mut identity = of_this_process("a", "");
    instance.clone_into(&mut identity.instance);
    WorkerConfig { identity, ..WorkerConfig::default() }
}

async fn ten_seconds(_: TaskContext) -> Result<Text, TaskError> {
    tokio::time::sleep(10 * SECOND).await;
    Ok(Text("done".to_owned()))
}

impl Bench {
    /// Has the worker of this instance drain, as a client does.
    fn tell(&self, instance: &str, serial: u64) -> DocumentKey {
        let name = DocumentName::new(DocumentKind::Drain, instance).unwrap();
        let key = DocumentKey { name, version: 1, stamp: Stamp { writer: OwnerId(88), serial } };
        let document = Document { key: key.clone(), content: Bytes::from_static(b"{}") };
        let entry = RegisterEntry::Document(document);
        self.broker.publish(&self.register(), register::message(&entry));
        key
    }

    /// The keys of the drain requests that were removed.
    fn taken_away(&self) -> Vec<DocumentKey> {
        let log = self.broker.full_log(&self.register());
        let of = |message: &Message| match register::read(message) {
            Ok(RegisterEntry::Tombstone(longhaul_core::protocol::register::Key::Document(key))) => {
                Some(key)
            }
            _ => None,
        };
        log.iter().filter_map(of).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_request_has_a_worker_finish_what_runs_and_end() {
    let mut bench = Bench::new(config("mine"), None, ten_seconds);
    bench.submit(&[]);
    bench.run_for(2 * SECOND).await;
    let requests = [bench.tell("mine", 1), bench.tell("mine", 2)];
    bench.run_for(SECOND).await;
    assert!(!bench.ended, "its task runs");
    bench.submit(&[]);
    let took = bench.run_for(60 * SECOND).await;
    assert!((6 * SECOND..9 * SECOND).contains(&took), "{took:?}");
    assert!(matches!(bench.end, Some(Ok(()))), "{:?}", bench.end);
    let states: Vec<_> = bench.shown().into_iter().map(|(_, shown)| shown.state).collect();
    assert_eq!(states, [TaskState::Processing, TaskState::Completed], "it took the second task");
    let mut taken_away = bench.taken_away();
    taken_away.sort();
    assert_eq!(taken_away, requests, "nothing of it stays on the register");
}

/// A worker that hangs with a task would never end.
#[tokio::test(start_paused = true)]
async fn what_does_not_end_in_time_is_given_back() {
    let config = WorkerConfig { drain_limit: 3 * SECOND, ..config("mine") };
    let mut bench = Bench::new(config, None, ten_seconds);
    bench.submit(&[]);
    bench.run_for(2 * SECOND).await;
    bench.tell("mine", 1);
    let took = bench.run_for(60 * SECOND).await;
    assert!((3 * SECOND..4 * SECOND).contains(&took), "{took:?}");
    assert!(matches!(bench.end, Some(Ok(()))), "{:?}", bench.end);
    let log = bench.broker.full_log(&bench.ledger());
    let given_back = |message: &Message| {
        let is_own = |done: &longhaul_core::protocol::entry::Done| {
            done.outcome == Outcome::Released(NextAttempt::AFTER_DRAIN)
        };
        matches!(ledger::read(message), Ok(Entry::Done(done)) if is_own(&done))
    };
    assert_eq!(log.iter().filter(|it| given_back(it)).count(), 1);
}

/// The handle and somebody outside may both ask; neither makes the other's drain longer.
#[tokio::test(start_paused = true)]
async fn of_two_deadlines_the_earlier_one_counts() {
    for (by_handle, expected) in [(SECOND, SECOND), (9 * SECOND, 3 * SECOND)] {
        let config = WorkerConfig { drain_limit: 3 * SECOND, ..config("mine") };
        let mut bench = Bench::new(config, None, ten_seconds);
        bench.submit(&[]);
        bench.run_for(2 * SECOND).await;
        bench.tell("mine", 1);
        let deadline = bench.broker.clock().now() + by_handle;
        bench.stop_request.send_replace(StopRequest::Drain(deadline));
        let took = bench.run_for(60 * SECOND).await;
        assert!((expected..expected + SECOND).contains(&took), "{took:?}");
    }
}

/// It was cut off, or has stood still, when the request was written: it reads it when it reads on,
/// or begins to read.
#[tokio::test(start_paused = true)]
async fn a_worker_that_reads_late_drains_late() {
    let mut bench = Bench::new(config("mine"), None, ten_seconds);
    bench.tell("mine", 1);
    bench.submit(&[]);
    let took = bench.run_for(60 * SECOND).await;
    assert!(bench.ended && took < 30 * SECOND, "{took:?}");

    let mut bench = Bench::new(config("mine"), None, ten_seconds);
    bench.run_for(2 * SECOND).await;
    bench.tell("mine", 1);
    bench.broker.compact(&bench.register());
    let took = bench.run_for(60 * SECOND).await;
    assert!(bench.ended && took < 30 * SECOND, "{took:?}");
}

/// A process that takes the place of a drained one has its name, and drained as well. The requests
/// to others stay for them.
#[tokio::test(start_paused = true)]
async fn a_worker_obeys_no_drain_request_to_another_one() {
    let mut bench = Bench::new(config("mine"), None, ten_seconds);
    bench.tell("theirs", 1);
    bench.run_for(2 * SECOND).await;
    bench.tell("others", 2);
    bench.submit(&[]);
    bench.run_for(60 * SECOND).await;
    assert!(!bench.ended);
    let states: Vec<_> = bench.shown().into_iter().map(|(_, shown)| shown.state).collect();
    assert_eq!(states, [TaskState::Processing, TaskState::Completed]);
    let now = bench.broker.clock().now();
    bench.stop_request.send_replace(StopRequest::Drain(now));
    bench.run_for(20 * SECOND).await;
    assert!(bench.ended && bench.taken_away().is_empty(), "{:?}", bench.taken_away());
}

/// A worker of the last version does not know drain requests, as this one does not know the
/// documents of the next.
#[tokio::test(start_paused = true)]
async fn a_document_that_a_worker_does_not_know_does_no_harm() {
    let mut bench = Bench::new(config("mine"), None, ten_seconds);
    bench.run_for(2 * SECOND).await;
    let name = DocumentName::new(DocumentKind::Drain, "mine").unwrap();
    let key = DocumentKey { name, version: 1, stamp: Stamp { writer: OwnerId(88), serial: 1 } };
    let document = Document { key, content: Bytes::from_static(b"{}") };
    let mut message = register::message(&RegisterEntry::Document(document));
    message.key = message.key.map(|key| key.replacen("doc/drain/", "doc/dismiss/", 1));
    bench.broker.publish(&bench.register(), message);
    bench.submit(&[]);
    bench.run_for(60 * SECOND).await;
    assert!(!bench.ended);
    assert_eq!(bench.driver.stats.read().malformed, 1);
    let states: Vec<_> = bench.shown().into_iter().map(|(_, shown)| shown.state).collect();
    assert_eq!(states, [TaskState::Processing, TaskState::Completed]);
}
