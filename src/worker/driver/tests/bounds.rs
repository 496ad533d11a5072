//! Edge cases of ends, slots and ids.

use super::*;
use crate::clock::Clock;
use longhaul_core::protocol::fold::Phase;

/// Regression: owner ids came from a 64-bit generator that was seeded with the time and the thread,
/// so workers that started at once on equal machines could draw the same id.
#[tokio::test(start_paused = true)]
async fn owner_ids_do_not_come_from_the_seed_but_in_a_simulation() {
    for (clock, same) in [(Clock::System, false), (longhaul_memory::simulated_clock(0), true)] {
        let draw = || {
            let mut bench = Bench::new(WorkerConfig::default(), None, end);
            bench.driver.env.clock = clock;
            bench.driver.env.rng = fastrand::Rng::with_seed(1);
            [0; 100].map(|_| PartitionDriver::draw_owner(&mut bench.driver.env).0)
        };
        let (first, second) = (draw(), draw());
        let all: BTreeSet<u128> = first.iter().chain(&second).copied().collect();
        assert_eq!((all.len(), first == second), if same { (100, true) } else { (200, false) });
    }
}

/// Regression: a worker that read the ledger anew limited waits to the longest backoff. A task that
/// had asked for an hour ran after 5 minutes.
#[tokio::test(start_paused = true)]
async fn a_long_delay_outlives_a_bootstrap() {
    let mut bench = Bench::new(brisk(), None, |context: TaskContext| async move {
        match context.attempt() {
            1 => Err(TaskError::retry_after(3600 * SECOND, "in an hour")),
            _ => Ok(Text("done".to_owned())),
        }
    });
    bench.submit(&[]);
    bench.run_for(5 * SECOND).await;
    bench.transport.freeze();
    bench.run_for(20 * SECOND).await;
    bench.transport.thaw();
    bench.turns = 0;
    bench.run_for(3500 * SECOND).await;
    let stats = bench.driver.stats.read();
    assert!(stats.self_fenced >= 1 && stats.started == 1, "{stats:?}");
    bench.run_for(120 * SECOND).await;
    assert_eq!(bench.driver.stats.read().started, 2);
}

/// Regression: a drain that gave up with outcomes and acks still in flight reported success.
#[tokio::test(start_paused = true)]
async fn a_drain_that_gave_up_says_so() {
    let mut bench = Bench::new(WorkerConfig::default(), None, |context| report(context, 3));
    let task = bench.submit(&[]);
    bench.run_for(SECOND).await;
    bench.transport.freeze();
    bench.run_for(5 * SECOND).await;
    bench.drain_for(Duration::ZERO);
    bench.run_for(60 * SECOND).await;
    assert!(matches!(bench.end, Some(Err(WorkerError::DrainGaveUp(Some(id)))) if id == task));

    let mut bench = Bench::new(WorkerConfig::default(), None, end);
    bench.submit(&[]);
    bench.run_for(5 * SECOND).await;
    bench.drain_for(Duration::ZERO);
    bench.run_for(60 * SECOND).await;
    assert!(matches!(bench.end, Some(Ok(()))));
}

/// Regression: a follower, publisher or consumer that panicked was logged and not restarted. The
/// worker held its tasks and waited, until its heartbeats were missed or forever.
#[tokio::test(start_paused = true)]
async fn a_worker_one_of_whose_services_panics_ends_and_says_so() {
    let mut bench = Bench::new(WorkerConfig::default(), None, end);
    bench.run_for(SECOND).await;
    bench.driver.env.services.spawn(async { std::panic::resume_unwind(Box::new("no follower")) });
    bench.run_for(SECOND).await;
    let Some(Err(end)) = bench.end else { panic!("{:?}", bench.end) };
    assert!(end.to_string().contains("no follower"));
}

/// Regression: an attempt without its payload started with an empty one, so a raw processor
/// completed the task with a wrong result.
#[tokio::test(start_paused = true)]
async fn a_missing_payload_is_read_and_never_taken_for_an_empty_one() {
    let mut bench = Bench::new(WorkerConfig::default(), None, end);
    bench.run_for(5 * SECOND).await;
    bench.broker.stall_publishes(&bench.ledger(), SECOND);
    let task = bench.submit(&[]);
    bench.run_for(SECOND / 2).await;
    let lane = bench.driver.lanes.get_mut(&LANE).unwrap();
    assert!(lane.payloads.remove(task).is_some());
    bench.run_for(10 * SECOND).await;
    let shown = bench.shown();
    let (_, last) = shown.last().unwrap();
    assert_eq!((last.attempts, last.task.as_deref()), (1, Some(&b"task"[..])));
    let fold = bench.driver.lanes[-1].core.machine().fold(task);
    assert_eq!((fold.phase, fold.epoch), (Phase::Completed, Epoch(2)));
}

struct Panics;

impl ErasedProcessor for Panics {
    fn run(
        self: Arc<Self>,
        _: Bytes,
        _: TaskContext,
    ) -> BoxFuture<'static, Result<Bytes, TaskError>> {
        panic!("before its future")
    }
}

/// Regression: an attempt that panicked outside of its body vanished: its slot was lost, and its
/// task looked alive.
#[tokio::test(start_paused = true)]
async fn an_attempt_that_panics_outside_of_its_body_has_failed() {
    let config = WorkerConfig { concurrency: 1, ..WorkerConfig::default() };
    let mut bench = Bench::new(config, None, end);
    bench.driver.processor = Arc::new(Panics);
    let task = bench.submit(&[]);
    bench.run_for(60 * SECOND).await;
    let fold = bench.driver.lanes[-1].core.machine().fold(task);
    assert_eq!((fold.phase, fold.attempt), (Phase::Final, 3));
    assert_eq!(bench.driver.slots.free(), 1);
}

/// Regression: if the processors' runtime shut down before its worker, each task lost all its
/// attempts within a second.
#[tokio::test(start_paused = true)]
async fn a_body_that_is_aborted_costs_no_attempt() {
    let mut bench = Bench::new(WorkerConfig::default(), None, end);
    let gone = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let alive = std::mem::replace(&mut bench.driver.env.bodies, gone.handle().clone());
    gone.shutdown_background();
    let task = bench.submit(&[]);
    bench.run_for(60 * SECOND).await;
    let fold = bench.driver.lanes[-1].core.machine().fold(task);
    assert_eq!((fold.phase, fold.attempt), (Phase::Retry, 0));
    assert!((3..20).contains(&fold.epoch.0), "{fold:?}");
    bench.driver.env.bodies = alive;
    bench.run_for(20 * SECOND).await;
    let fold = bench.driver.lanes[-1].core.machine().fold(task);
    assert_eq!((fold.phase, fold.attempt), (Phase::Completed, 1));
}

/// Regression: every entry on a partition of the ledger was folded there. A task of another
/// partition could be started by it, and its slot was never freed, because its end was looked for
/// in that partition.
#[tokio::test(start_paused = true)]
async fn entries_of_another_partitions_tasks_are_not_folded() {
    let mut bench = Bench::new(brisk(), Some(2), end);
    bench.run_for(2 * SECOND).await;
    let task = TaskId { ledger: 1, entry: 1, partition: 1, batch_index: None };
    let key = OnceKey { task, epoch: Epoch(1), owner: OwnerId(7), serial: 1 };
    let claim = Claim::plain(key, 1, ClaimKind::Run);
    let message = ledger::message(&Entry::Claim(claim), b"");
    bench.broker.publish(&bench.at(&bench.names.ledger, 0), message);
    bench.run_for(2 * SECOND).await;
    assert!(bench.driver.lanes[0].core.machine().task(task).is_none());
    assert_eq!(bench.driver.stats.read().malformed, 1);
}

/// Regression: a task of 1 MiB that reported progress once a second was written to the metadata
/// topic as often, with its payload.
#[tokio::test(start_paused = true)]
async fn a_large_task_shows_its_progress_less_often_where_it_is_shown_at_all() {
    for (shown_task_bytes_max, carries, shows) in
        [(1024 * 1024, true, 4..=8), (64 * 1024, false, 60..=101)]
    {
        let config = WorkerConfig { shown_task_bytes_max, ..WorkerConfig::default() };
        let mut bench = Bench::new(config, None, |context| report(context, 100));
        bench.submit_payload(vec![b'x'; 1024 * 1024]);
        bench.run_for(120 * SECOND).await;
        let shown = bench.shown();
        let running = shown.iter().filter(|(_, shown)| shown.progress.is_some()).count();
        assert!(shows.contains(&running), "{running} with at most {shown_task_bytes_max} bytes");
        let last = &shown.last().unwrap().1;
        assert!(last.is_terminal() && shown.iter().all(|(_, it)| it.task.is_some() == carries));
    }
}

/// Regression: a worker whose ledger was deleted and created anew continued with its view of the
/// old one. Its outcome, of an epoch that only it knew, was never accepted, and the task never
/// ended.
#[tokio::test(start_paused = true)]
async fn a_ledger_that_was_deleted_is_told_and_what_takes_its_place_counts() {
    use crate::supervise::ConnectionState;
    use longhaul_memory::Loss;
    let mut bench = Bench::new(brisk(), None, |context| report(context, 100));
    let task = bench.submit(&[]);
    bench.run_for(5 * SECOND).await;
    let name = bench.names.ledger.clone();
    bench.broker.delete_topic(&name, Loss::Error);
    bench.run_for(10 * SECOND).await;
    let state = bench.driver.env.connections.state();
    assert!(matches!(state, ConnectionState::Refused { .. }), "{state:?}");
    assert_eq!(bench.driver.stats.read().ledgers_lost, 1);
    assert!(!bench.driver.stats.is_ready(1));
    bench.broker.create_topic(&name, None, true);
    bench.turns = 0;
    bench.run_for(120 * SECOND).await;
    let state = bench.driver.env.connections.state();
    assert!(matches!(state, ConnectionState::Connected), "{state:?}");
    assert!(bench.driver.stats.is_ready(1));
    let fold = bench.driver.lanes[-1].core.machine().fold(task);
    assert_eq!(fold.phase, Phase::Completed);
    assert_eq!(bench.driver.stats.read().ledgers_lost, 1);
}

/// Regression: no worker noticed a ledger that was deleted and at once created anew by the broker,
/// because positions only grow. A worker continued after its last position in the old ledger, with
/// settings and claims that were stored nowhere any more.
#[tokio::test(start_paused = true)]
async fn a_ledger_that_is_another_one_is_told_and_counts() {
    use longhaul_memory::Loss;
    let mut bench = Bench::new(brisk(), None, |context| report(context, 30));
    let task = bench.submit(&[]);
    bench.run_for(5 * SECOND).await;
    // It is the same one after an unload, and after it was compacted and trimmed.
    bench.broker.compact(&bench.ledger());
    bench.broker.trim(&bench.ledger());
    bench.broker.unload(&bench.ledger(), Loss::Error);
    bench.run_for(5 * SECOND).await;
    assert_eq!(bench.driver.stats.read().ledgers_lost, 0);
    bench.broker.replace_topic(&bench.names.ledger.clone(), Loss::Error);
    bench.turns = 0;
    bench.run_for(2 * SECOND).await;
    assert_eq!(bench.driver.stats.read().ledgers_lost, 1);
    bench.turns = 0;
    bench.run_for(120 * SECOND).await;
    let stats = bench.driver.stats.read();
    assert_eq!((stats.ledgers_lost, stats.started), (1, 2), "once for each ledger");
    assert!(bench.driver.stats.is_ready(1));
    let fold = bench.driver.lanes[-1].core.machine().fold(task);
    assert_eq!((fold.phase, fold.epoch), (Phase::Completed, Epoch(1)));
    let log = bench.broker.full_log(&bench.ledger());
    let settings = |message: &Message| matches!(ledger::read(message), Ok(Entry::Config(_)));
    assert_eq!(log.iter().filter(|message| settings(message)).count(), 1, "it has its settings");
}

/// Regression: without permission for the metadata topic or the ledger, a worker looked like one
/// that has briefly lost its connection.
#[tokio::test(start_paused = true)]
async fn a_permission_that_is_missing_is_one_clear_state() {
    use crate::supervise::ConnectionState;
    let mut bench = Bench::new(brisk(), None, end);
    bench.run_for(2 * SECOND).await;
    for topic in [bench.at(&bench.names.metadata, -1), bench.ledger()] {
        let before = bench.driver.env.connections.refusals();
        bench.broker.forbid(&topic, true);
        bench.run_for(4 * SECOND).await;
        let state = bench.driver.env.connections.state();
        let ConnectionState::Refused { cause, .. } = &state else { panic!("{state:?}") };
        assert_eq!(cause.cause, "no permission");
        assert!(cause.address.ends_with(&topic.to_string()), "{cause}");
        assert_eq!(bench.driver.env.connections.refusals(), before + 1);
        bench.broker.forbid(&topic, false);
        bench.run_for(10 * SECOND).await;
        let state = bench.driver.env.connections.state();
        assert!(matches!(state, ConnectionState::Connected), "{state:?}");
    }
}

/// Regression: claims that the ledger refused, one by one in a continuing session, were retried
/// each second without a log line. Nothing ran, without any visible reason.
#[tokio::test(start_paused = true)]
async fn claims_that_are_refused_are_told_once_and_counted() {
    let mut bench = Bench::new(WorkerConfig::default(), None, end);
    bench.run_for(2 * SECOND).await;
    bench.broker.set_faults(Faults { publish_refused: 1.0, ..Faults::quiet() });
    bench.submit(&[]);
    bench.run_for(8 * SECOND).await;
    let stats = bench.driver.stats.read();
    assert_eq!((stats.refusals, stats.started), (1, 0), "{stats:?}");
    bench.broker.set_faults(Faults::quiet());
    bench.run_for(30 * SECOND).await;
    let stats = bench.driver.stats.read();
    assert_eq!((stats.refusals, stats.started), (1, 1), "{stats:?}");
}
