//! The tasks that a worker holds while something cannot be written.

use super::*;
use crate::transport::Consumer;
use crate::worker::session::Consumed;
use longhaul_core::protocol::entry::{Done, Heartbeat};

/// 10 KiB.
const PAYLOAD: &[u8] = &[b'x'; 10 * 1024];

/// The most tasks held beyond the running ones in these tests.
const HELD_MAX: usize = 16 + 1_000;

impl Bench {
    fn submit_many(&self, count: usize) {
        for _ in 0..count {
            self.submit_payload(PAYLOAD);
        }
    }

    pub(super) fn metadata(&self) -> TopicPartition {
        self.at(&self.names.metadata, -1)
    }

    fn load(&self) -> crate::worker::intake::Load {
        self.driver.lanes[-1].load()
    }

    /// Lets the worker run for this time. Returns the most that it held: tasks, bytes.
    async fn most_held(&mut self, seconds: u64) -> (usize, usize) {
        let (mut tasks, mut bytes) = (0, 0);
        for _ in 0..seconds {
            self.turns = 0;
            self.run_for(SECOND).await;
            tasks = tasks.max(self.load().tasks);
            bytes = bytes.max(self.load().bytes);
        }
        (tasks, bytes)
    }

    async fn work_off(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.turns = 0;
            self.run_for(SECOND).await;
            if self.unfinished() == 0 {
                return;
            }
        }
        panic!("{} tasks are left, {:?} held", self.unfinished(), self.load());
    }
}

/// Regression: while no task could be claimed, because own heartbeats did not come back, the task
/// topic went on delivering. Tasks waiting for the next heartbeat were not counted, and the whole
/// backlog came into memory.
#[tokio::test(start_paused = true)]
async fn a_ledger_that_is_away_fills_no_memory() {
    for forbidden in [false, true] {
        let mut bench = Bench::new(WorkerConfig::default(), None, end);
        bench.run_for(5 * SECOND).await;
        let ledger = bench.ledger();
        if forbidden {
            bench.broker.forbid(&ledger, true);
        } else {
            bench.broker.stall_publishes(&ledger, 600 * SECOND);
        }
        // Until then tasks are still claimed, and take slots.
        bench.run_for(30 * SECOND).await;
        bench.submit_many(100_000);
        let (tasks, bytes) = bench.most_held(570).await;
        assert!(tasks <= 32 && bytes <= 32 * PAYLOAD.len(), "{tasks} tasks, {bytes} bytes");
        bench.broker.forbid(&ledger, false);
        for _ in 0..200 {
            bench.turns = 0;
            bench.run_for(SECOND / 10).await;
            if bench.driver.stats.read().started > 100 {
                break;
            }
        }
        assert!(bench.driver.stats.read().started > 100);
    }
}

/// Takes deliveries for this time, as another worker would. Returns the number of tasks.
async fn take(consumer: &mut dyn Consumer, seconds: u64) -> usize {
    let mut taken = BTreeSet::new();
    let until = tokio::time::sleep(Duration::from_secs(seconds));
    tokio::pin!(until);
    loop {
        tokio::select! {
            () = &mut until => return taken.len(),
            message = consumer.next() => taken.insert(message.unwrap().position),
        };
    }
}

/// Regression: a worker that could not claim anything kept its deliveries from other workers.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_claimed_goes_to_other_workers() {
    let mut bench = Bench::new(WorkerConfig::default(), None, end);
    bench.run_for(5 * SECOND).await;
    bench.broker.forbid(&bench.ledger(), true);
    bench.run_for(30 * SECOND).await;
    bench.submit_many(500);
    bench.run_for(10 * SECOND).await;
    let tasks = bench.at(&bench.names.task, -1);
    let other = bench.broker.connect("other");
    let mut consumer = other.consumer(&tasks, "longhaul").await.unwrap();
    let (taken, ()) = tokio::join!(take(&mut *consumer, 60), async {
        bench.run_for(60 * SECOND).await;
    });
    // The client of the in-memory broker keeps up to 3 messages in its own queue, as third-party
    // clients do.
    assert!(taken >= 497, "{taken} of 500");
}

/// Regression: finished tasks whose end could not be shown piled up, with payload and result, as
/// long as tasks came.
#[tokio::test(start_paused = true)]
async fn a_metadata_topic_that_is_away_fills_no_memory() {
    for forbidden in [false, true] {
        let mut bench = Bench::new(brisk(), None, end);
        bench.run_for(5 * SECOND).await;
        let metadata = bench.metadata();
        if forbidden {
            bench.broker.forbid(&metadata, true);
        } else {
            bench.broker.stall_publishes(&metadata, 600 * SECOND);
        }
        bench.submit_many(1_500);
        let (tasks, bytes) = bench.most_held(600).await;
        assert!(tasks <= HELD_MAX + 16, "{tasks} tasks, {bytes} bytes");
        bench.broker.forbid(&metadata, false);
        bench.work_off(300).await;
        assert_eq!(bench.load(), crate::worker::intake::Load::default());
    }
}

/// The same with large results, and with tasks that failed for good while the dead letter topic
/// could not be written.
#[tokio::test(start_paused = true)]
async fn what_is_held_is_bounded_in_bytes() {
    const RESULT: usize = 512 * 1024;
    const MAX: usize = 16 * 1024 * 1024;
    let config = WorkerConfig { held_bytes_max: MAX, ..brisk() };
    let large = |_| async { Ok(Text("x".repeat(RESULT))) };
    let mut bench = Bench::new(config.clone(), None, large);
    bench.run_for(5 * SECOND).await;
    bench.broker.forbid(&bench.metadata(), true);
    bench.submit_many(100);
    let (_, bytes) = bench.most_held(60).await;
    assert!(bytes <= MAX + 32 * RESULT, "{bytes} bytes");
    bench.broker.forbid(&bench.metadata(), false);
    bench.work_off(60).await;

    let fatal = |_| async { Err(TaskError::fatal("broken")) };
    let mut bench = Bench::new(config, None, fatal);
    bench.run_for(5 * SECOND).await;
    let dead_letters = bench.at(&bench.names.dead_letters, -1);
    bench.broker.forbid(&dead_letters, true);
    bench.submit_many(1_500);
    let (tasks, bytes) = bench.most_held(60).await;
    assert!(tasks <= HELD_MAX + 16 && bytes <= MAX, "{tasks} tasks, {bytes} bytes");
    bench.broker.forbid(&dead_letters, false);
    bench.work_off(120).await;
}

/// Regression: tasks that waited for their next attempt kept their payloads, even for a wait of an
/// hour or a day.
#[tokio::test(start_paused = true)]
async fn tasks_that_wait_hold_no_payload() {
    for snooze in [false, true] {
        let mut bench = Bench::new(brisk(), None, move |context: TaskContext| async move {
            let first = context.attempt() == 1 && context.fencing_token().epoch == 1;
            match (first, snooze) {
                (true, true) => Err(TaskError::snooze(600 * SECOND)),
                (true, false) => Err(TaskError::retry_after(600 * SECOND, "later")),
                (false, _) => Ok(Text("done".to_owned())),
            }
        });
        bench.submit_many(500);
        bench.most_held(60).await;
        assert_eq!(bench.driver.stats.read().started, 500);
        assert_eq!(bench.load(), crate::worker::intake::Load::default());
        bench.work_off(900).await;
        let whole = |shown: &TaskMetadata| shown.task.as_ref().is_some_and(|task| task == PAYLOAD);
        let ended = |shown: &TaskMetadata| shown.is_terminal() && whole(shown);
        assert_eq!(bench.shown().iter().filter(|(_, shown)| ended(shown)).count(), 500);
    }
}

/// Regression: the payload of an attempt that was kept through a self-fence, and then turned out to
/// be another worker's, was kept forever.
#[tokio::test(start_paused = true)]
async fn a_payload_that_a_self_fence_kept_does_not_stay() {
    let mut bench = Bench::new(brisk(), None, |context| report(context, 600));
    let task = bench.submit(&[]);
    bench.run_for(5 * SECOND).await;
    bench.transport.freeze();
    bench.run_for(20 * SECOND).await;
    let key = OnceKey { task, epoch: Epoch(2), owner: OwnerId(7), serial: 1 };
    bench.write(&Entry::Claim(Claim::plain(key, 2, ClaimKind::Run)));
    bench.transport.thaw();
    bench.run_for(2 * SECOND).await;
    let lane = &bench.driver.lanes[-1];
    assert!(bench.driver.stats.read().self_fenced >= 1);
    assert_eq!(lane.payloads.len(), 0);
}

/// Regression: a payload of 1 MiB was kept until the end of its task was stored on the metadata
/// topic, which does not show it, while the next task had its slot.
#[tokio::test(start_paused = true)]
async fn a_large_payload_goes_with_the_end_of_its_attempt() {
    for (shown_task_bytes_max, held) in [(1024 * 1024, 1024 * 1024), (64 * 1024, 0)] {
        let config = WorkerConfig { shown_task_bytes_max, ..WorkerConfig::default() };
        let mut bench = Bench::new(config, None, |context| async move {
            // The metadata topic is unavailable by then.
            tokio::time::sleep(2 * SECOND).await;
            end(context).await
        });
        let metadata = bench.metadata();
        let task = bench.submit_payload(vec![b'x'; 1024 * 1024]);
        bench.run_for(SECOND).await;
        bench.broker.stall_publishes(&metadata, 20 * SECOND);
        bench.run_for(10 * SECOND).await;
        let lane = &bench.driver.lanes[-1];
        assert_eq!((lane.payloads.bytes(), lane.ended_attempts.len()), (held, 1));
        bench.run_for(60 * SECOND).await;
        assert!(bench.shown().last().is_some_and(|(_, shown)| shown.is_terminal()));
        assert_eq!(bench.unfinished(), 0);
        let lane = &bench.driver.lanes[-1];
        assert_eq!(lane.payloads.len() + lane.ended_attempts.len(), 0);
        assert!(!lane.metadata.ended.is_bare(task));
    }
}

/// Regression: another worker's finished task was delivered here while its live finisher could not
/// show a different end. The payload was held for a quarter of an hour.
#[tokio::test(start_paused = true)]
async fn a_task_that_waits_for_its_finisher_holds_no_payload() {
    const OTHER: OwnerId = OwnerId(7);
    for outcome in [Outcome::Completed, Outcome::Final] {
        let mut bench = Bench::new(brisk(), None, end);
        let at = bench.at(&bench.names.task, -1);
        bench.broker.forbid(&at, true);
        let task = bench.submit(&[]);
        let key = |serial| OnceKey { task, epoch: Epoch(1), owner: OTHER, serial };
        let kind = ClaimKind::Run;
        let claim = Claim::plain(key(1), 1, kind);
        bench.write(&Entry::Claim(claim));
        bench.write(&Entry::Done(Done { key: key(2), attempt: 1, outcome, writer: None }));
        for second in 1..=20 {
            // Its end is read before its delivery comes.
            bench.broker.forbid(&at, second < 3);
            bench.write(&beat_of(OTHER, second));
            if second == 10 {
                assert_eq!(bench.driver.lanes[-1].payloads.len(), 0);
                // Like a broker that has forgotten its deliveries.
                let again = Consumed::Deliveries(bench.broker.full_log(&at));
                bench.driver.handle_consumed(LANE, again, bench.broker.clock().now());
            }
            bench.run_for(SECOND).await;
        }
        let lane = &bench.driver.lanes[-1];
        assert!(lane.core.machine().task(task).is_some_and(|task| task.held));
        assert_eq!((lane.payloads.len(), bench.shown().len()), (0, 0));
        // The finisher falls silent: the data to show the end is read.
        bench.run_for(20 * SECOND).await;
        let shown: Vec<_> = bench.shown().into_iter().map(|(_, shown)| shown.task).collect();
        assert_eq!(shown, [Some(Bytes::from_static(b"task"))]);
        let letters = bench.letters();
        let letters: Vec<_> = letters.iter().map(|letter| &letter.payload[..]).collect();
        assert_eq!(letters, if outcome == Outcome::Final { vec![b"task"] } else { vec![] });
        assert!(bench.is_acked(task));
        assert_eq!(bench.driver.lanes[-1].payloads.len(), 0);
    }
}

fn beat_of(owner: OwnerId, number: u64) -> Entry {
    Entry::Heartbeat(Heartbeat {
        owner,
        subscription: "longhaul".to_owned(),
        number,
        receipted: 0,
        uptime_ms: 1_000 * number,
        ..Heartbeat::default()
    })
}
