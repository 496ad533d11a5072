//! Unit tests for your own processors: real workers and a real client in one test, without a
//! broker, in simulated time. Needs the feature `testing`. The interface is stable.
//!
//! [`TestEngine`] is the broker, the clock and the runtime of one test; [`Transition`] is a step of
//! a task.
//!
#![doc = include_str!("../../docs/testing.md")]
#![doc = include_str!("../../docs/dependencies.md")]

mod clock;
mod engine_ref;
mod transition;

#[cfg(test)]
mod tests;

/// Starts workers in the project's own simulation. Not a stable interface.
#[doc(hidden)]
pub use crate::worker::{Plan, Surroundings, prepare};
pub(crate) use engine_ref::EngineRef;
pub use transition::Transition;

use clock::EngineClock;

use crate::topics::{DEFAULT_SUBSCRIPTION, TopicNames};
use crate::transport::TopicPartition;
use crate::worker::{TaskProcessor, WorkerBuilder, WorkerHandle, chain};
use crate::{Client, TaskRef, ToPayload, WaitError};
use longhaul_core::task::FromPayload;
use longhaul_memory::{Faults, MemoryBroker};
use longhaul_transport::clock::Clock;
use std::fmt::Write;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;

/// The default limit on the simulated time of a wait: 30 days.
const TIME_LIMIT: Duration = Duration::from_secs(30 * 24 * 3600);

/// The default limit on the real time of a call. A call needs milliseconds; one that needs minutes
/// will never end.
const REAL_TIME_LIMIT: Duration = Duration::from_secs(120);

/// An in-memory broker, simulated time, and a runtime for the workers and clients of one test.
///
/// Time passes only while a method of the engine runs. When everything waits, the clock jumps to
/// the next timer, so a pause of a day takes no time. A test takes the same steps in each run.
///
/// Methods panic when a test goes wrong, with the steps that led there: they are for tests only.
///
/// ```
/// use longhaul::testing::TestEngine;
/// use longhaul::{TaskContext, TaskError, Text, processor_fn};
///
/// let engine = TestEngine::new();
/// let shout = processor_fn(async |text: Text, _: TaskContext| Ok(Text(text.0.to_uppercase())));
/// let _worker = engine.start(engine.worker("tasks", shout));
/// let task = engine.submit("tasks", &Text("hello".to_owned()));
/// assert_eq!(engine.wait::<Text>(&task).unwrap().0, "HELLO");
/// assert_eq!(engine.transitions(&task), ["PROCESSING 1", "COMPLETED 1"]);
/// # Ok::<(), TaskError>(())
/// ```
#[derive(Debug)]
pub struct TestEngine {
    runtime: Runtime,
    broker: MemoryBroker,
    clock: &'static EngineClock,
    client: Client,
    limit: Duration,
    real_limit: Duration,
    start_ms: u64,
}

/// The limit that ended a wait.
#[derive(Clone, Copy, Debug)]
enum WaitLimit {
    /// The limit on simulated time.
    Simulated,
    /// The limit on real time.
    Real,
}

impl Default for TestEngine {
    fn default() -> Self {
        Self::new()
    }
}

impl TestEngine {
    /// An engine without topics, workers and tasks. Topics are created on first use, unpartitioned.
    ///
    /// # Panics
    /// Inside an async test, such as one with `#[tokio::test]`: the engine has its own runtime.
    /// Await futures with [`run`](Self::run).
    #[must_use]
    #[track_caller]
    pub fn new() -> Self {
        assert!(
            Handle::try_current().is_err(),
            "a TestEngine has a runtime of its own: use it in a plain `#[test]`, and await with `engine.run(..)`"
        );
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => panic!("no runtime for the test: {error}"),
        };
        let entered = runtime.enter();
        // Like the Pulsar session, which requests each delivery.
        let broker = MemoryBroker::new(1, Faults { prefetch: 0, ..Faults::quiet() });
        broker
            .look_after_itself(|topic| topic.ends_with("-ledger") || topic.ends_with("-register"));
        let clock = EngineClock::start(broker.clock());
        let transport = Arc::new(broker.connect("client"));
        let client = Client::in_engine(EngineRef::new(&broker, clock), transport);
        let start_ms = broker.clock().wall_ms();
        drop(entered);
        Self {
            runtime,
            broker,
            clock,
            client,
            limit: TIME_LIMIT,
            real_limit: REAL_TIME_LIMIT,
            start_ms,
        }
    }

    /// Sets the simulated time after which a wait fails. Default: 30 days.
    #[must_use]
    pub const fn time_limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Sets the real time after which a call fails. Default: 2 minutes. A processor that never
    /// waits stops the simulated clock. A processor that blocks the thread, without an `await`,
    /// cannot be interrupted.
    #[must_use]
    pub const fn real_time_limit(mut self, limit: Duration) -> Self {
        self.real_limit = limit;
        self
    }

    /// Creates a task topic with this many partitions, and the topics that belong to it. Only
    /// needed for partitioned topics.
    ///
    /// # Panics
    /// When the name is not that of a task topic.
    #[track_caller]
    pub fn create_partitioned(&self, task_topic: &str, partitions: u32) {
        let names = names(task_topic);
        let _entered = self.runtime.enter();
        for (topic, deduplication) in
            [(&names.task, false), (&names.metadata, false), (&names.ledger, true)]
        {
            self.broker.create_topic(topic, Some(partitions), deduplication);
        }
    }

    /// The broker, for injecting faults. Not for users' tests.
    #[doc(hidden)]
    pub const fn broker(&self) -> &MemoryBroker {
        &self.broker
    }

    /// The client of the test. All of [`Client`] works except the admin API. Workers that it builds
    /// start in this engine.
    #[must_use]
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// Builds a worker on this topic: [`Client::worker`]. Start it with [`start`](Self::start).
    pub fn worker<P: TaskProcessor>(
        &self,
        task_topic: impl Into<String>,
        processor: P,
    ) -> WorkerBuilder<P> {
        self.client.worker(task_topic, processor)
    }

    /// Starts a worker. Dropping the handle ends it like a crash; `engine.run(worker.drain(..))`
    /// drains it.
    ///
    /// # Panics
    /// When the worker does not start, with the reason.
    #[must_use = "dropping the handle ends the worker"]
    #[track_caller]
    pub fn start<P: TaskProcessor>(&self, worker: WorkerBuilder<P>) -> WorkerHandle {
        match self.run(worker.start()) {
            Ok(handle) => handle,
            Err(error) => panic!("the worker does not start: {}", chain(&error)),
        }
    }

    /// Submits a task. For a task with properties:
    /// `engine.run(engine.client().submission(..).send())`.
    ///
    /// # Panics
    /// When it cannot be submitted, with the reason.
    #[track_caller]
    pub fn submit<T: ToPayload + ?Sized>(&self, topic: &str, task: &T) -> TaskRef {
        match self.run(self.client.submit(topic, task)) {
            Ok(task) => task,
            Err(error) => panic!("the task is not submitted: {}", chain(&error)),
        }
    }

    /// Advances time until the task is over: [`Client::wait`].
    ///
    /// # Errors
    /// As [`Client::wait`]: how the task ended, if not with a result.
    ///
    /// # Panics
    /// When the task is not over within the [limit](Self::time_limit), with its steps so far.
    #[track_caller]
    pub fn wait<R: FromPayload>(&self, task: &TaskRef) -> Result<R, WaitError> {
        match self.drive(Some(self.limit), self.client.wait(task)) {
            Ok(result) => result,
            Err(stuck) => {
                panic!("task {} is not over {}. {}", task.id, self.after(stuck), self.steps(task))
            }
        }
    }

    /// Runs a future to its end, and all workers meanwhile.
    ///
    /// # Panics
    /// When it does not end within the [limit](Self::time_limit), or panics itself.
    #[track_caller]
    pub fn run<F: Future>(&self, future: F) -> F::Output {
        match self.drive(Some(self.limit), future) {
            Ok(output) => output,
            Err(stuck) => panic!("the future has not ended {}", self.after(stuck)),
        }
    }

    /// Advances time by this much.
    ///
    /// # Panics
    /// When that takes longer than the [limit on real time](Self::real_time_limit), because a
    /// processor never waits.
    #[track_caller]
    pub fn advance(&self, time: Duration) {
        // The timer must be created inside the runtime.
        let pass = async { tokio::time::sleep(time).await };
        if let Err(stuck) = self.drive(None, pass) {
            panic!("the time does not pass: {}", self.after(stuck));
        }
    }

    /// The simulated time since the engine was created.
    #[must_use]
    pub fn time_passed(&self) -> Duration {
        Duration::from_millis(self.now_ms().saturating_sub(self.start_ms))
    }

    /// The simulated wall clock, in ms since the epoch, for comparison with a task's times.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        Clock::Simulated(self.clock).wall_ms()
    }

    /// Returns the task's steps so far, from its entries on the metadata topic. Entries that only
    /// renew the previous one or add progress are left out.
    ///
    /// Compare them with texts: `assert_eq!(engine.transitions(&task), ["PROCESSING 1", "COMPLETED
    /// 1"])`.
    ///
    /// # Panics
    /// When the task's topic is not of this engine.
    #[must_use]
    #[track_caller]
    pub fn transitions(&self, task: &TaskRef) -> Vec<Transition> {
        let _entered = self.runtime.enter();
        let topic = names(&task.topic).metadata;
        let at = TopicPartition { topic, partition: task.id.partition };
        transition::of_task(&self.broker.full_log(&at), &task.id.to_string(), self.start_ms)
    }

    /// Compares the task's steps with these texts; see [`Transition`] for their form.
    ///
    /// # Panics
    /// When they differ, with both side by side, line by line.
    #[track_caller]
    pub fn assert_transitions<'a>(
        &self,
        task: &TaskRef,
        expected: impl IntoIterator<Item = &'a str>,
    ) {
        let expected: Vec<&str> = expected.into_iter().collect();
        let found = self.transitions(task);
        assert!(
            found == expected,
            "task {} went another way:\n{}",
            task.id,
            transition::side_by_side(&expected, &found)
        );
    }

    /// Runs a future for at most `limit` of simulated time, and never for minutes of real time: a
    /// task that never waits would stop the clock for ever.
    fn drive<F: Future>(&self, limit: Option<Duration>, future: F) -> Result<F::Output, WaitLimit> {
        let (done, watched) = mpsc::channel::<()>();
        let (bark, barked) = oneshot::channel();
        let real_limit = self.real_limit;
        // The thread ends when `done` is dropped. If it cannot be started, only the real-time limit
        // is missing.
        let watch = move || {
            if watched.recv_timeout(real_limit) == Err(mpsc::RecvTimeoutError::Timeout) {
                bark.send(()).ok();
            }
        };
        thread::Builder::new().name("test-engine-watch".to_owned()).spawn(watch).ok();
        let result = self.runtime.block_on(async {
            let over = async {
                match limit {
                    Some(limit) => tokio::time::sleep(limit).await,
                    None => std::future::pending().await,
                }
            };
            let barked = async {
                if barked.await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            let result = tokio::select! {
                biased;
                output = future => Ok(output),
                () = over => Err(WaitLimit::Simulated),
                () = barked => Err(WaitLimit::Real),
            };
            self.clock.stop();
            result
        });
        drop(done);
        result
    }

    /// The exceeded limit, as text.
    fn after(&self, stuck: WaitLimit) -> String {
        match stuck {
            WaitLimit::Simulated => format!(
                "after {:?} of simulated time; `TestEngine::time_limit` sets how long to wait",
                self.limit
            ),
            WaitLimit::Real => format!(
                "after {:?} of real time, {:?} of simulated time since the engine was made: simulated time passes only while every processor waits for \
                 something",
                self.real_limit,
                self.time_passed()
            ),
        }
    }

    /// The steps of a task, for a message.
    fn steps(&self, task: &TaskRef) -> String {
        let found = self.transitions(task);
        if found.is_empty() {
            return "No worker has taken it: is one running on its topic, and is its handle kept?"
                .to_owned();
        }
        let mut text = "Its steps:".to_owned();
        for step in found {
            // Writing to a string cannot fail.
            write!(text, "\n  {step:?}").ok();
        }
        text
    }
}

/// The topics of a task topic, for the default subscription.
#[track_caller]
fn names(task_topic: &str) -> TopicNames {
    match TopicNames::new(task_topic, DEFAULT_SUBSCRIPTION) {
        Ok(names) => names,
        Err(error) => panic!("{error}"),
    }
}
