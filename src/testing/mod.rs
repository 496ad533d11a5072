//! For unit tests of your own processors: real workers and a real client in one test, without a
//! broker, in simulated time. With the feature `testing`; a stable interface.
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

/// How workers start in the project's own simulation. Not a stable interface.
#[doc(hidden)]
pub use crate::worker::{Plan, Surroundings, prepare};
pub(crate) use engine_ref::EngineRef;
pub use transition::Transition;

use clock::EngineClock;

use crate::topics::{DEFAULT_SUBSCRIPTION, TopicNames};
use crate::transport::TopicPartition;
use crate::worker::{TaskProcessor, WorkerBuilder, WorkerHandle};
use crate::{Client, TaskRef, ToPayload, WaitError};
use longhaul_core::task::FromPayload;
use longhaul_memory::{Faults, MemoryBroker};
use longhaul_transport::clock::Clock;
use std::error::Error;
use std::fmt::{self, Write};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;

/// How much simulated time a wait may take, unless the test says otherwise: 30 days.
const TIME_LIMIT: Duration = Duration::from_secs(30 * 24 * 3600);

/// How much real time a call may take. A call needs milliseconds; one that needs minutes will never
/// end.
const REAL_TIME_LIMIT: Duration = Duration::from_secs(120);

/// A broker in memory, simulated time, and the runtime in which the workers and clients of one test
/// run.
///
/// Time passes only while a method of the engine runs. Whenever nobody has anything to do, the
/// clock jumps to the next timer, so that a pause of a day takes no time. The same test takes the
/// same steps each time.
///
/// Methods panic where a test has gone wrong, with what it did: they are for tests only.
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

/// Why a wait was given up.
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
    /// An engine without topics, workers and tasks. Topics come into being when they are used,
    /// without partitions.
    ///
    /// # Panics
    /// Inside an async test, such as one with `#[tokio::test]`: the engine brings its own runtime.
    /// What is to be awaited is awaited by [`run`](Self::run).
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
        // As the session with Pulsar does, which asks for each delivery.
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

    /// Gives up a wait after this much simulated time, and not after 30 days.
    #[must_use]
    pub const fn time_limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Gives up after this much real time within one call, and not after two minutes. A processor
    /// that never waits for anything keeps the simulated clock from moving. One that blocks the
    /// thread, without an `await`, cannot be given up.
    #[must_use]
    pub const fn real_time_limit(mut self, limit: Duration) -> Self {
        self.real_limit = limit;
        self
    }

    /// Makes a task topic with so many partitions, and the topics that belong to it. Only needed
    /// for a topic with partitions.
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

    /// The broker, for faults that a user's test has no use for.
    #[doc(hidden)]
    pub const fn broker(&self) -> &MemoryBroker {
        &self.broker
    }

    /// The client of the test. All of [`Client`] works but what needs the admin API; workers that
    /// it builds start in this engine.
    #[must_use]
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// A worker on this topic: [`Client::worker`]. Start it with [`start`](Self::start).
    pub fn worker<P: TaskProcessor>(
        &self,
        task_topic: impl Into<String>,
        processor: P,
    ) -> WorkerBuilder<P> {
        self.client.worker(task_topic, processor)
    }

    /// Starts a worker. Dropping the handle ends it as a crash would;
    /// `engine.run(worker.drain(..))` lets it leave in order.
    ///
    /// # Panics
    /// When it does not start, with the reason.
    #[must_use = "dropping the handle ends the worker"]
    #[track_caller]
    pub fn start<P: TaskProcessor>(&self, worker: WorkerBuilder<P>) -> WorkerHandle {
        match self.run(worker.start()) {
            Ok(handle) => handle,
            Err(error) => panic!("the worker does not start: {}", chain(&error)),
        }
    }

    /// Submits a task. One with properties: `engine.run(engine.client().submission(..).send())`.
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

    /// Lets time pass until the task is over: [`Client::wait`].
    ///
    /// # Errors
    /// As [`Client::wait`]: how the task has ended, if not with a result.
    ///
    /// # Panics
    /// When the task is not over within the [limit](Self::time_limit), with the steps that it has
    /// taken.
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

    /// Lets this much time pass.
    ///
    /// # Panics
    /// When it does not pass within the [limit on real time](Self::real_time_limit), because a
    /// processor never waits for anything.
    #[track_caller]
    pub fn advance(&self, time: Duration) {
        // The timer is made where the runtime is.
        let pass = async { tokio::time::sleep(time).await };
        if let Err(stuck) = self.drive(None, pass) {
            panic!("the time does not pass: {}", self.after(stuck));
        }
    }

    /// How much time has passed since the engine was made.
    #[must_use]
    pub fn time_passed(&self) -> Duration {
        Duration::from_millis(self.now_ms().saturating_sub(self.start_ms))
    }

    /// The wall clock of the simulation, in ms since the epoch: what a task's times are compared
    /// with.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        Clock::Simulated(self.clock).wall_ms()
    }

    /// What the task has gone through so far, as its entries on the metadata topic show it to
    /// everybody. An entry that only renews the one before it, or adds progress, is left out.
    ///
    /// They can be compared with texts:
    /// `assert_eq!(engine.transitions(&task), ["PROCESSING 1", "COMPLETED 1"])`.
    ///
    /// # Panics
    /// When the task's topic is none of this engine's.
    #[must_use]
    #[track_caller]
    pub fn transitions(&self, task: &TaskRef) -> Vec<Transition> {
        let _entered = self.runtime.enter();
        let topic = names(&task.topic).metadata;
        let at = TopicPartition { topic, partition: task.id.partition };
        transition::of_task(&self.broker.full_log(&at), &task.id.to_string(), self.start_ms)
    }

    /// Compares what the task has gone through with these texts; see [`Transition`] for their form.
    ///
    /// # Panics
    /// When they differ, with both beside each other, line by line.
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

    /// Runs a future for at most so much simulated time, and never for minutes of real time: a task
    /// that never waits would keep the clock from moving for ever.
    fn drive<F: Future>(&self, limit: Option<Duration>, future: F) -> Result<F::Output, WaitLimit> {
        let (done, watched) = mpsc::channel::<()>();
        let (bark, barked) = oneshot::channel();
        let real_limit = self.real_limit;
        // It ends when `done` is dropped. Without a thread the test is not watched, and no worse
        // for it.
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

    /// When a wait was given up, in words.
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
            // Writing to a text does not fail.
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

/// An error with its causes.
fn chain(error: &dyn Error) -> impl fmt::Display {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        write!(text, ": {error}").ok();
        cause = error.source();
    }
    text
}
