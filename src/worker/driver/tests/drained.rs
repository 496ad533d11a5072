//! Workers that are drained from outside, by a drain request on the register.

use super::*;
use crate::worker::of_this_process;
use longhaul_core::protocol::key::Key;
use longhaul_core::protocol::register::{
    Document, DocumentKey, DocumentKind, DocumentName, RegisterEntry, Stamp,
};
use longhaul_core::register;

fn config(instance: &str) -> WorkerConfig {
    let mut identity = of_this_process("a", "");
    instance.clone_into(&mut identity.instance);
    WorkerConfig { identity, ..WorkerConfig::default() }
}

impl Bench {
    /// Writes a drain request for this instance, as a client does.
    fn tell(&self, instance: &str, serial: u64) -> DocumentKey {
        let name = DocumentName::new(DocumentKind::Drain, instance).unwrap();
        self.write_document(name, 1, serial, "{}")
    }

    /// The tasks whose attempts were given back because of a drain.
    fn given_back(&self) -> Vec<TaskId> {
        let log = self.broker.full_log(&self.ledger());
        let of = |message: &Message| match ledger::read(message) {
            Ok(Entry::Done(done))
                if done.outcome == Outcome::Released(NextAttempt::AFTER_DRAIN) =>
            {
                Some(done.key.task)
            }
            _ => None,
        };
        log.iter().filter_map(of).collect()
    }

    /// The keys of the drain requests that were removed.
    fn taken_away(&self) -> Vec<DocumentKey> {
        let log = self.broker.full_log(&self.register());
        let of = |message: &Message| match register::read(message) {
            Ok(RegisterEntry::Tombstone(
                longhaul_core::protocol::register::RegisterKey::Document(key),
            )) => Some(key),
            _ => None,
        };
        log.iter().filter_map(of).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_request_has_a_worker_finish_what_runs_and_end() {
    let mut bench = Bench::new(config("mine"), None, |_| end_after(10 * SECOND));
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

/// Without a deadline, a worker with a hanging task would never end.
#[tokio::test(start_paused = true)]
async fn what_does_not_end_in_time_is_given_back() {
    let config =
        WorkerConfig { cancel_grace: Duration::ZERO, drain_limit: 3 * SECOND, ..config("mine") };
    let mut bench = Bench::new(config, None, |_| end_after(10 * SECOND));
    let task = bench.submit(&[]);
    bench.run_for(2 * SECOND).await;
    bench.tell("mine", 1);
    let took = bench.run_for(60 * SECOND).await;
    assert!((3 * SECOND..4 * SECOND).contains(&took), "{took:?}");
    assert!(matches!(bench.end, Some(Ok(()))), "{:?}", bench.end);
    assert_eq!(bench.given_back(), [task]);
}

/// The handle and a client may both request a drain. Neither extends the other's deadline.
#[tokio::test(start_paused = true)]
async fn of_two_deadlines_the_earlier_one_counts() {
    for (by_handle, expected) in [(SECOND, SECOND), (9 * SECOND, 3 * SECOND)] {
        let config = WorkerConfig {
            cancel_grace: Duration::ZERO,
            drain_limit: 3 * SECOND,
            ..config("mine")
        };
        let mut bench = Bench::new(config, None, |_| end_after(10 * SECOND));
        bench.submit(&[]);
        bench.run_for(2 * SECOND).await;
        bench.tell("mine", 1);
        bench.drain_for(by_handle);
        let took = bench.run_for(60 * SECOND).await;
        assert!((expected..expected + SECOND).contains(&took), "{took:?}");
    }
}

/// The worker was cut off or stood still when the request was written, and reads it later, or in
/// its first read.
#[tokio::test(start_paused = true)]
async fn a_worker_that_reads_late_drains_late() {
    let mut bench = Bench::new(config("mine"), None, |_| end_after(10 * SECOND));
    bench.tell("mine", 1);
    bench.submit(&[]);
    let took = bench.run_for(60 * SECOND).await;
    assert!(bench.ended && took < 30 * SECOND, "{took:?}");

    let mut bench = Bench::new(config("mine"), None, |_| end_after(10 * SECOND));
    bench.run_for(2 * SECOND).await;
    bench.tell("mine", 1);
    bench.broker.compact(&bench.register());
    let took = bench.run_for(60 * SECOND).await;
    assert!(bench.ended && took < 30 * SECOND, "{took:?}");
}

/// A process that replaces a drained one has the same name and must not drain as well. Requests to
/// others remain for them.
#[tokio::test(start_paused = true)]
async fn a_worker_obeys_no_drain_request_to_another_one() {
    let mut bench = Bench::new(config("mine"), None, |_| end_after(10 * SECOND));
    bench.tell("theirs", 1);
    bench.run_for(2 * SECOND).await;
    bench.tell("others", 2);
    bench.submit(&[]);
    bench.run_for(60 * SECOND).await;
    assert!(!bench.ended);
    let states: Vec<_> = bench.shown().into_iter().map(|(_, shown)| shown.state).collect();
    assert_eq!(states, [TaskState::Processing, TaskState::Completed]);
    bench.drain_for(Duration::ZERO);
    bench.run_for(20 * SECOND).await;
    assert!(bench.ended && bench.taken_away().is_empty(), "{:?}", bench.taken_away());
}

/// A later version may write documents that this one does not know.
#[tokio::test(start_paused = true)]
async fn a_document_that_a_worker_does_not_know_does_no_harm() {
    let mut bench = Bench::new(config("mine"), None, |_| end_after(10 * SECOND));
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

/// Notes its drop.
struct Dropped<F: Fn() -> u64>(Diary, F);

impl<F: Fn() -> u64> Drop for Dropped<F> {
    fn drop(&mut self) {
        self.0.note(format!("dropped after {} s", (self.1)()));
    }
}

/// The reference lets tasks finish for 10 s and then interrupts them. Regression: a processor was
/// dropped at the deadline without notice and could not clean up, although the cancel grace is
/// promised.
#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_its_time_and_then_interrupts_what_runs() {
    let (mut bench, diary) = Bench::with_diary(config("mine"), None, |context, notes| async move {
        let clock = longhaul_memory::simulated_clock(0);
        let begin = clock.now();
        let after = || clock.now().since(begin).as_secs();
        match context.properties()["name"].as_str() {
            "ends" => tokio::time::sleep(9 * SECOND).await,
            "heeds" => {
                context.cancelled().await;
                notes.note(format!("told after {} s", after()));
                tokio::time::sleep(SECOND).await;
                notes.note(format!("cleaned up after {} s", after()));
            }
            _ => {
                let _dropped = Dropped(notes, after);
                std::future::pending().await
            }
        }
        Ok(Text("done".to_owned()))
    });
    bench.run_for(2 * SECOND).await;
    let [ends, heeds, hangs] =
        ["ends", "heeds", "hangs"].map(|name| bench.submit(&[("name", name)]));
    bench.run_for(SECOND / 10).await;
    bench.drain_for(10 * SECOND);
    let took = bench.run_for(60 * SECOND).await;
    assert!(matches!(bench.end, Some(Ok(()))), "{:?}", bench.end);
    let told = ["told after 10 s", "cleaned up after 11 s", "dropped after 15 s"];
    assert_eq!(diary.lines(), told);
    assert!((15 * SECOND..16 * SECOND).contains(&took), "{took:?}");
    assert_eq!(bench.last_of(ends).state, TaskState::Completed);
    assert_eq!(bench.given_back(), [heeds, hangs], "each as soon as it had ended");
    assert_eq!([heeds, hangs].map(|task| bench.last_of(task).attempts), [0; 2], "at no cost");
}

/// The reference closes its consumer and its producers one after the other, and its first error
/// leaves the rest open: they go on receiving tasks that never run.
#[tokio::test(start_paused = true)]
async fn a_partition_that_cannot_be_left_keeps_no_other_from_being_left() {
    for refuses in [true, false] {
        let mut bench = Bench::new(config("mine"), Some(3), |_| end_after(10 * SECOND));
        bench.run_for(5 * SECOND).await;
        let (broker, names) = (bench.broker.clone(), bench.names.clone());
        let ledger = |partition| TopicPartition { topic: names.ledger.clone(), partition };
        if refuses {
            broker.forbid(&ledger(0), true);
        } else {
            broker.stall_publishes(&ledger(0), 30 * SECOND);
        }
        bench.drain_for(Duration::ZERO);
        let took = bench.run_for(60 * SECOND).await;
        assert!(matches!(bench.end, Some(Ok(()))), "{:?}", bench.end);
        assert!(took < 11 * SECOND, "{took:?}");
        let has_left = |partition| {
            let log = broker.full_log(&ledger(partition));
            let goodbye = |message: &Message| {
                matches!(ledger::read(message), Ok(Entry::Tombstone(Key::Heartbeat(_))))
            };
            log.iter().any(goodbye)
        };
        assert_eq!([0, 1, 2].map(has_left), [false, true, true], "{refuses}");
        drop(bench);
        broker.forbid(&ledger(0), false);
        let diary = Diary::default();
        let notes = diary.clone();
        let mut next = Bench::on(broker.clone(), "next", config("next"), Some(3), move |context| {
            notes.note(context.task_id().partition.to_string());
            async { Ok(Text("done".to_owned())) }
        });
        for partition in [0, 1, 2, 0, 1, 2] {
            next.submit_to(&names.task, partition, &[]);
        }
        next.run_for(60 * SECOND).await;
        let mut ran = diary.lines();
        ran.sort();
        assert_eq!(ran, ["0", "0", "1", "1", "2", "2"]);
    }
}
