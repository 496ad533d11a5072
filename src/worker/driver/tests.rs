//! One driver on the in-memory broker, in paused time, turn by turn.

mod compacting;

use super::lane::PartitionDriver;
use super::*;
use crate::Text;
use crate::gate::ProcessGate;
use crate::transport::{Message, Outgoing};
use crate::worker::handle::Plan;
use crate::worker::processor::{TaskContext, TaskProcessor};
use crate::worker::task_error::TaskError;
use bytes::Bytes;
use longhaul_core::ledger;
use longhaul_core::protocol::entry::{Claim, ClaimKind, Entry, NextAttempt};
use longhaul_core::protocol::key::{Epoch, OwnerId};
use longhaul_core::task::{TaskMetadata, TaskOutcome, TaskState};
use longhaul_memory::{Faults, MemoryBroker, MemoryTransport};
use std::sync::{Mutex, PoisonError};

/// The only lane on a topic without partitions.
const LANE: LaneId = LaneId::new(0, -1);

mod aside;
mod bounds;
mod checkpoints;
mod codecs;
mod dependencies;
mod drained;
mod entries;
mod expiry;
mod intake;
mod keyed;
mod killing;
mod late;
mod levels;
mod limits;
mod lines;
#[cfg(feature = "metrics")]
mod measuring;
mod ordered;
mod overwriting;
mod parked;
mod register;
mod repairing;
mod routing;
mod scheduled;
#[cfg(feature = "schedules")]
mod schedules;
mod sharing;
mod telling;
mod terms;
mod tickets;
mod topics;
#[cfg(feature = "otel")]
mod traced;
mod versions;
mod visits;
mod webhooks;
mod year;

/// The notes of processors.
#[derive(Clone, Default)]
struct Diary(Arc<Mutex<Vec<String>>>);

impl Diary {
    fn note(&self, line: impl Into<String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line.into());
    }

    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Ends at once.
async fn end(_: TaskContext) -> Result<Text, TaskError> {
    Ok(Text("done".to_owned()))
}

/// Ends after this time.
async fn end_after(time: Duration) -> Result<Text, TaskError> {
    tokio::time::sleep(time).await;
    Ok(Text("done".to_owned()))
}

/// Notes the id of the task.
async fn note_id(context: TaskContext, notes: Diary) -> Result<Text, TaskError> {
    notes.note(context.task_id().to_string());
    end(context).await
}

type Body = dyn Fn(TaskContext) -> BoxFuture<'static, Result<Text, TaskError>> + Send + Sync;

struct Scripted(Box<Body>);

impl TaskProcessor for Scripted {
    type Task = Text;
    type Output = Text;

    async fn process(&self, _task: Text, context: TaskContext) -> Result<Text, TaskError> {
        (self.0)(context).await
    }
}

struct Bench {
    broker: MemoryBroker,
    transport: MemoryTransport,
    names: TopicNames,
    driver: WorkerDriver,
    stop_request: watch::Sender<StopRequest>,
    /// Whether the driver has ended.
    ended: bool,
    end: Option<Result<(), WorkerError>>,
    turns: usize,
}

impl Bench {
    /// A worker on a topic with this number of partitions, with this processor.
    fn new<F>(
        config: WorkerConfig,
        partitions: Option<u32>,
        body: impl Fn(TaskContext) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Text, TaskError>> + Send + 'static,
    {
        let broker = MemoryBroker::new(1, Faults::quiet());
        let names: TopicNames = "tasks".parse().unwrap();
        for topic in [&names.task, &names.metadata] {
            broker.create_topic(topic, partitions, false);
        }
        broker.create_topic(&names.ledger, partitions, true);
        broker.create_topic(&names.register, None, true);
        broker.create_topic(&names.dead_letters, None, false);
        Self::on(broker, "worker", config, partitions, body)
    }

    /// A worker whose processor writes to a diary, and the diary.
    fn with_diary<F>(
        config: WorkerConfig,
        partitions: Option<u32>,
        body: impl Fn(TaskContext, Diary) -> F + Send + Sync + 'static,
    ) -> (Self, Diary)
    where
        F: Future<Output = Result<Text, TaskError>> + Send + 'static,
    {
        let diary = Diary::default();
        let notes = diary.clone();
        (Self::new(config, partitions, move |context| body(context, notes.clone())), diary)
    }

    /// A worker of this name on existing topics.
    fn on<F>(
        broker: MemoryBroker,
        name: &'static str,
        config: WorkerConfig,
        partitions: Option<u32>,
        body: impl Fn(TaskContext) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Text, TaskError>> + Send + 'static,
    {
        let names: TopicNames = "tasks".parse().unwrap();
        let transport = broker.connect(name);
        let body = move |context: TaskContext| Box::pin(body(context)) as BoxFuture<'static, _>;
        let plan = Plan::new(config, names.clone(), Scripted(Box::new(body))).unwrap();
        let heartbeat = plan.config.heartbeat;
        let (stop_request, stop_requested) = watch::channel(StopRequest::None);
        let (events, queue) = mpsc::channel(EVENTS_MAX);
        let drain_request = Arc::new(DrainSignal::new(plan.config.drain_limit));
        let env = Environment {
            services: JoinSet::new(),
            drain_request,
            deletion: None,
            transport: Arc::new(transport.clone()),
            clock: broker.clock(),
            // The owner id is drawn from it, so no two workers may have the same.
            rng: fastrand::Rng::with_seed(name.bytes().map(u64::from).sum()),
            gate: ProcessGate::open(),
            bodies: Handle::current(),
            connections: Arc::new(Connections::new(broker.clock())),
            heartbeat,
            events,
            answers: Mailbox::new(),
        };
        let Plan { config, topics, processor } = plan;
        let stats = Arc::default();
        let topics =
            topics.into_iter().map(|(topics, share)| (topics, share, partitions)).collect();
        let driver =
            WorkerDriver::new(env, queue, config, topics, processor, stop_requested, stats);
        let bench = Self {
            broker,
            transport,
            names,
            driver,
            stop_request,
            ended: false,
            end: None,
            turns: 0,
        };
        for partition in bench.driver.lanes.values().map(PartitionDriver::partition) {
            bench.broker.create_subscription(&bench.at(&bench.names.task, partition), "longhaul");
        }
        bench
    }

    fn at(&self, topic: &str, partition: i32) -> TopicPartition {
        TopicPartition { topic: topic.to_owned(), partition }
    }

    fn ledger(&self) -> TopicPartition {
        self.at(&self.names.ledger, -1)
    }

    /// Submits a task with these properties.
    fn submit(&self, properties: &[(&str, &str)]) -> TaskId {
        self.submit_to(&self.names.task, -1, properties)
    }

    /// Submits a task with these properties to one partition of a topic.
    fn submit_to(&self, topic: &str, partition: i32, properties: &[(&str, &str)]) -> TaskId {
        let properties = properties.iter().copied().collect();
        let message = Outgoing { properties, payload: "task".into(), ..Outgoing::default() };
        TaskId::new(self.broker.publish(&self.at(topic, partition), message), partition)
    }

    /// Submits a task with this payload.
    fn submit_payload(&self, payload: impl Into<Bytes>) -> TaskId {
        let message = Outgoing { payload: payload.into(), ..Outgoing::default() };
        TaskId::new(self.broker.publish(&self.at(&self.names.task, -1), message), -1)
    }

    /// Whether the message of this task is acknowledged.
    fn is_acked(&self, task: TaskId) -> bool {
        let at = self.at(&self.names.task, task.partition);
        self.broker.is_acked(&at, "longhaul", task.entry_id())
    }

    /// Number of unacknowledged messages on a topic without partitions.
    fn unfinished(&self) -> usize {
        self.broker.backlog(&self.at(&self.names.task, -1), "longhaul").len()
    }

    /// The dead letters.
    fn letters(&self) -> Vec<Message> {
        self.broker.full_log(&self.at(&self.names.dead_letters, -1))
    }

    /// Tells the worker to drain for this time.
    fn drain_for(&self, time: Duration) {
        let deadline = self.broker.clock().now() + time;
        self.stop_request.send_replace(StopRequest::Drain(deadline));
    }

    /// Writes an entry of another worker or a client to the ledger.
    fn write(&self, entry: &Entry) {
        self.broker.publish(&self.ledger(), ledger::message(entry, b""));
    }

    /// Like `run_for`, for hours. A worker exceeds the turns only if it does something needless
    /// each second.
    async fn run_long(&mut self, time: Duration) {
        for _ in 0..time.as_secs() / 600 {
            self.turns = 0;
            self.run_for(600 * SECOND).await;
        }
    }

    /// Lets the worker run for this time, or until it has ended. Returns the elapsed time.
    async fn run_for(&mut self, time: Duration) -> Duration {
        let clock = self.broker.clock();
        let start = clock.now();
        let until = clock.sleep_until(start + time);
        tokio::pin!(until);
        while !self.ended {
            self.turns += 1;
            assert!(self.turns < 100_000, "it spins");
            tokio::select! {
                biased;
                () = &mut until => break,
                end = self.driver.turn() => {
                    self.ended = end.is_some();
                    self.end = end;
                }
            }
        }
        clock.now().since(start)
    }

    /// The entries of the metadata topic, with their times.
    fn shown(&self) -> Vec<(u64, TaskMetadata)> {
        let log = self.broker.full_log(&self.at(&self.names.metadata, -1));
        let read = |message: &Message| serde_json::from_slice(&message.payload).ok();
        log.iter().filter_map(|entry| Some((entry.publish_time_ms, read(entry)?))).collect()
    }
}

const SECOND: Duration = Duration::from_secs(1);

/// The first attempt stores a checkpoint and fails. The second one notes the checkpoint that it
/// finds and waits for its end.
fn with_checkpoint(config: WorkerConfig) -> (Bench, Diary) {
    Bench::with_diary(config, None, |context, notes| async move {
        if context.attempt() == 1 {
            context.checkpoint("half").await?;
            return Err(TaskError::retry_after(10 * SECOND, "half done"));
        }
        let found = context.last_checkpoint().map(|bytes| String::from_utf8_lossy(bytes));
        notes.note(format!("{found:?} {:?}", context.remaining_budget().is_some()));
        context.cancelled().await;
        notes.note(format!("cancelled {:?}", context.remaining_budget()));
        Ok(Text("done".to_owned()))
    })
}

/// Regression: a single failed read made an attempt begin from zero.
#[tokio::test(start_paused = true)]
async fn a_checkpoint_outlives_reads_that_fail() {
    let (mut bench, diary) = with_checkpoint(WorkerConfig::default());
    bench.submit(&[]);
    bench.run_for(5 * SECOND).await;
    bench.broker.fail_requests(&bench.ledger(), 5);
    bench.run_for(20 * SECOND).await;
    assert_eq!(diary.lines(), ["Some(\"half\") false"]);
}

/// Regression: an attempt could not be halted while its checkpoint was read, and began long after
/// it was cancelled.
#[tokio::test(start_paused = true)]
async fn an_attempt_that_is_over_before_its_body_begins_never_runs() {
    let (mut bench, diary) = with_checkpoint(WorkerConfig::default());
    let task = bench.submit(&[]);
    bench.run_for(5 * SECOND).await;
    bench.broker.fail_requests(&bench.ledger(), 1000);
    // Its second attempt is claimed after ten seconds.
    bench.run_for(8 * SECOND).await;
    bench.write(&Entry::Cancel(task));
    bench.run_for(2 * SECOND).await;
    assert!(diary.lines().is_empty(), "{:?}", diary.lines());
    let shown = bench.shown();
    assert_eq!(shown.last().and_then(|(_, shown)| shown.outcome), Some(TaskOutcome::Cancelled));
}

/// Regression: the budget began to count when the checkpoint had been read, and its remainder
/// counted from before.
#[tokio::test(start_paused = true)]
async fn a_budget_counts_from_the_claim_and_not_from_the_body() {
    let (mut bench, diary) = with_checkpoint(WorkerConfig::default());
    bench.submit(&[("MAX_TASK_DURATION", "PT5S")]);
    bench.run_for(5 * SECOND).await;
    bench.broker.fail_requests(&bench.ledger(), 5);
    bench.run_for(30 * SECOND).await;
    assert_eq!(diary.lines()[..2], ["Some(\"half\") true", "cancelled Some(0ns)"]);
    let shown = bench.shown();
    let of = |attempt| shown.iter().filter(move |(_, shown)| shown.attempts == attempt);
    let times: Vec<u64> = of(2).map(|(at, _)| *at).take(2).collect();
    let took = times[1] - times[0];
    assert!((5000..5100).contains(&took), "{took} ms");
}

/// Regression: in a replicated namespace, a task reached the workers of each cluster under a
/// different id, and ran once in each.
#[tokio::test(start_paused = true)]
async fn a_task_from_another_cluster_is_acknowledged_and_not_run() {
    for run_replicated in [false, true] {
        let config = WorkerConfig { run_replicated, ..WorkerConfig::default() };
        let (mut bench, diary) = Bench::with_diary(config, None, note_id);
        let at = bench.at(&bench.names.task, -1);
        let task = || Outgoing { payload: "task".into(), ..Outgoing::default() };
        let entry = bench.broker.publish_replicated(&at, vec![task(), task()], "elsewhere");
        let ours = bench.submit(&[]);
        bench.run_for(5 * SECOND).await;
        assert!(bench.broker.is_acked(&at, "longhaul", entry));
        let expected = if run_replicated { 3 } else { 1 };
        assert_eq!(diary.lines().len(), expected, "{:?}", diary.lines());
        assert!(diary.lines().contains(&ours.to_string()));
        let skipped = bench.driver.stats.read().replicated;
        assert_eq!(skipped, if run_replicated { 0 } else { 2 });
        bench.run_for(WorkerConfig::default().ledger_retention / 4).await;
        let log = bench.broker.full_log(&bench.ledger());
        let seals = |message: &&Message| matches!(ledger::read(message), Ok(Entry::Seal(_)));
        assert_eq!(log.iter().filter(seals).count(), usize::from(!run_replicated));
    }
}

/// A ledger that is replicated by mistake has entries of another cluster for this cluster's task
/// ids.
#[tokio::test(start_paused = true)]
async fn entries_from_another_cluster_say_nothing_of_our_tasks() {
    let mut bench = Bench::new(WorkerConfig::default(), None, end);
    let task = bench.submit(&[]);
    let message = ledger::message(&Entry::Cancel(task), &[]);
    bench.broker.publish_replicated(&bench.ledger(), vec![message], "elsewhere");
    bench.run_for(5 * SECOND).await;
    let shown = bench.shown();
    assert_eq!(shown.last().unwrap().1.state, TaskState::Completed);
    assert_eq!(bench.driver.stats.read().replicated, 1);
}

/// A processor that reports once a second, for this number of seconds.
async fn report(context: TaskContext, seconds: u64) -> Result<Text, TaskError> {
    for done in 1..=seconds {
        tokio::time::sleep(SECOND).await;
        context.progress(done, seconds, "");
    }
    Ok(Text("done".to_owned()))
}

fn brisk() -> WorkerConfig {
    let (heartbeat, self_fence, keep_alive) = (SECOND, 5 * SECOND, 2 * SECOND);
    WorkerConfig { heartbeat, self_fence, keep_alive, ..WorkerConfig::default() }
}

/// Regression: after a self-fence, until the ledger had been read again, the loop waited for the
/// keep-alive of an attempt that could not be shown yet. Its time was in the past, so the loop used
/// a whole core.
#[tokio::test(start_paused = true)]
async fn a_self_fence_makes_no_busy_loop() {
    let mut bench = Bench::new(brisk(), None, |context| report(context, 600));
    bench.submit(&[]);
    bench.run_for(10 * SECOND).await;
    bench.transport.freeze();
    bench.run_for(4 * SECOND).await;
    bench.turns = 0;
    bench.run_for(60 * SECOND).await;
    assert_eq!(bench.driver.stats.read().self_fenced, 1);
    assert!(bench.turns < 1000, "{} turns", bench.turns);
    bench.transport.thaw();
    bench.run_for(60 * SECOND).await;
    let shown = bench.shown();
    let (at, last) = shown.last().unwrap();
    assert!(bench.broker.clock().wall_ms() - at <= 2000 && last.progress.is_some(), "{last:?}");
}

/// Regression: progress did not wake the loop, and was shown only at its next turn, such as the
/// next heartbeat.
#[tokio::test(start_paused = true)]
async fn progress_is_shown_within_a_second() {
    let config = WorkerConfig { heartbeat: 20 * SECOND, ..WorkerConfig::default() };
    let mut bench = Bench::new(config, None, |context| report(context, 30));
    bench.submit(&[]);
    bench.run_for(20 * SECOND).await;
    let shown = bench.shown();
    let start = shown[0].0;
    let reports = shown.iter().filter_map(|(at, shown)| Some((at, shown.progress.clone()?)));
    let late: Vec<u64> = reports.map(|(at, progress)| at - start - progress.done * 1000).collect();
    assert!(late.len() > 15 && late.iter().all(|late| *late < 1000), "{late:?}");
}

/// Regression: while the metadata topic could not be written, each report of progress, and each
/// failed one, added an entry with the whole task to its queue.
#[tokio::test(start_paused = true)]
async fn one_entry_per_task_is_on_its_way_to_the_metadata_topic() {
    let mut bench = Bench::new(brisk(), None, |context| report(context, 600));
    bench.submit(&[]);
    bench.run_for(5 * SECOND).await;
    let metadata = bench.at(&bench.names.metadata, -1);
    bench.broker.stall_publishes(&metadata, 60 * SECOND);
    for _ in 0..58 {
        bench.run_for(SECOND).await;
        assert!(
            bench.driver.metadata_in_flight <= 1,
            "{} on their way",
            bench.driver.metadata_in_flight
        );
    }
    bench.run_for(6 * SECOND).await;
    let shown = bench.shown();
    let newest = shown.iter().filter_map(|(_, shown)| shown.progress.as_ref()).last().unwrap();
    assert!(newest.done > 60, "{newest:?}");
}

/// Regression: at every turn of a drain all known tasks were searched, including a hundred thousand
/// finished ones. Now the search begins where it last found a task, and must not miss earlier ones.
#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_every_task_that_is_on_its_way() {
    let mut bench = Bench::new(brisk(), Some(3), |context| report(context, 1));
    bench.run_for(2 * SECOND).await;
    for partition in [2, 0, 1] {
        let metadata = bench.at(&bench.names.metadata, partition);
        for _ in 0..3 {
            bench.submit_to(&bench.names.task, partition, &[]);
        }
        bench.broker.stall_publishes(&metadata, Duration::from_millis(2500));
        bench.run_for(Duration::from_millis(700)).await;
    }
    bench.drain_for(60 * SECOND);
    bench.run_for(60 * SECOND).await;
    assert!(bench.ended);
    for partition in 0..3 {
        let tasks = bench.at(&bench.names.task, partition);
        assert!(bench.broker.backlog(&tasks, "longhaul").is_empty());
    }
}

/// Regression: the result of an attempt that another worker took over while its outcome was in
/// flight was kept forever.
#[tokio::test(start_paused = true)]
async fn a_superseded_outcome_is_dropped() {
    let mut bench = Bench::new(WorkerConfig::default(), None, |context| report(context, 5));
    let task = bench.submit(&[]);
    bench.run_for(3 * SECOND).await;
    bench.broker.next_publish(&bench.ledger(), longhaul_memory::PublishFate::Lost);
    bench.run_for(4 * SECOND).await;
    assert_eq!(bench.driver.lanes[-1].ended_attempts.len(), 1);
    let key = OnceKey { task, epoch: Epoch(2), owner: OwnerId(7), serial: 1 };
    let (attempt, kind) = (2, ClaimKind::Run);
    bench.write(&Entry::Claim(Claim::plain(key, attempt, kind)));
    bench.run_for(SECOND).await;
    assert_eq!(bench.driver.lanes[-1].core.machine().fold(task).epoch, Epoch(2));
    assert!(bench.driver.lanes[-1].ended_attempts.len() == 0);
}

/// Regression: a retry that was not yet shown when the worker fenced itself left its reason behind.
#[tokio::test(start_paused = true)]
async fn a_self_fence_drops_what_is_not_shown_any_more() {
    let mut bench = Bench::new(brisk(), None, |context| async move {
        tokio::time::sleep(3 * SECOND).await;
        Err(TaskError::retry_after(600 * SECOND, format!("{}", context.attempt())))
    });
    bench.submit(&[]);
    bench.run_for(2 * SECOND).await;
    bench.broker.stall_publishes(&bench.at(&bench.names.metadata, -1), 60 * SECOND);
    bench.run_for(3 * SECOND).await;
    assert_eq!(bench.driver.lanes[-1].ended_attempts.len(), 1);
    bench.transport.freeze();
    bench.run_for(20 * SECOND).await;
    assert_eq!(bench.driver.stats.read().self_fenced, 1);
    assert!(bench.driver.lanes[-1].ended_attempts.len() == 0);
}

/// Regression: after a drain the metadata topic showed the task as running until another worker
/// took it.
#[tokio::test(start_paused = true)]
async fn a_task_that_a_drain_gives_back_is_not_shown_as_running() {
    let mut bench = Bench::new(WorkerConfig::default(), None, |context| async move {
        context.cancelled().await;
        Ok(Text("never".to_owned()))
    });
    let task = bench.submit(&[]);
    bench.run_for(5 * SECOND).await;
    bench.drain_for(SECOND);
    bench.run_for(30 * SECOND).await;
    assert!(matches!(bench.end, Some(Ok(()))), "{:?}", bench.end);
    let states: Vec<_> = bench.shown().into_iter().map(|(_, shown)| shown).collect();
    let [running, waiting] = &states[..] else { panic!("{states:?}") };
    assert_eq!((running.state, running.attempts), (TaskState::Processing, 1));
    assert_eq!((waiting.state, waiting.attempts), (TaskState::Failed, 0));
    assert!(!waiting.is_terminal() && waiting.next_attempt_at == Some(waiting.last_updated));
    let reason = waiting.failure_reason.as_deref();
    assert_eq!(reason, Some("Given back: the worker was stopped"));
    let fold = bench.driver.lanes[-1].core.machine().fold(task);
    assert_eq!(fold.next_attempt, NextAttempt::AFTER_DRAIN);
}

/// An idle worker with this number of partitions loses its broker at the end of a drain, and is
/// told to stop after `patience`. Returns the time until it has ended.
async fn leave(partitions: u32, patience: Duration) -> Duration {
    let mut bench =
        Bench::new(WorkerConfig::default(), Some(partitions), |context| report(context, 1));
    bench.run_for(SECOND).await;
    bench.transport.freeze();
    let stop_request = bench.stop_request.clone();
    stop_request.send_replace(StopRequest::Drain(bench.broker.clock().now() + 30 * SECOND));
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        tokio::time::sleep(patience).await;
        stop_request.send_replace(StopRequest::Stop);
    });
    let took = bench.run_for(600 * SECOND).await;
    assert!(bench.ended);
    took
}

/// Regression: heartbeat keys were removed one after the other, up to 10 s for each partition, and
/// a stop request had no effect meanwhile.
#[tokio::test(start_paused = true)]
async fn goodbyes_are_said_at_once_and_not_when_told_to_stop() {
    let took = leave(20, 600 * SECOND).await;
    assert!(took <= 10 * SECOND, "{took:?}");
    assert_eq!(leave(20, 2 * SECOND).await, 2 * SECOND);
}
