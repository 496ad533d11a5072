//! A long course of tasks, measured step by step: what grows with the tasks that have been.

use crate::meter::{Figures, cpu_s, memory_mib, seconds_between};
use crate::sitting::Row;
use crate::stage::{Stage, Topics};
use crate::worker::{Ended, Plan, Worker};
use anyhow::{Context, Result};
use integration_tests::{say, stopwatch};
use std::cell::Cell;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval, sleep};

/// Tasks that wait or run at most: what grows must not be those that wait.
const AHEAD_MAX: usize = 20_000;
/// Tasks that are submitted before the submitter looks how far the workers are.
const BATCH: usize = 1_000;
/// Pause of the submitter when it is that far ahead.
const PAUSE: Duration = Duration::from_millis(20);
/// How often the workers are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What is to be done.
pub(crate) struct Course<'a> {
    pub(crate) stage: &'a Stage,
    pub(crate) topics: &'a Topics,
    /// What each worker is told.
    pub(crate) plan: Plan,
    pub(crate) workers: usize,
    /// Tasks in all, of so many bytes each.
    pub(crate) tasks: usize,
    pub(crate) bytes: usize,
    /// Tasks of a step.
    pub(crate) step: usize,
    /// Pause between two restarts, of one worker after the other.
    pub(crate) restart_every: Option<Duration>,
    pub(crate) under: Option<&'a str>,
}

/// What is there when all tasks are done.
pub(crate) struct Finish {
    /// A line for each step, by the tasks that were done at its end.
    pub(crate) rows: Vec<Row>,
    /// The workers that still run.
    pub(crate) workers: Vec<Worker>,
    /// What those have counted that were restarted.
    pub(crate) ended: Vec<Ended>,
}

impl Course<'_> {
    /// Runs all tasks.
    pub(crate) async fn run(&self) -> Result<Finish> {
        let (submitted, done) = (Cell::new(0), Cell::new(0));
        let mut watch = Watch::start(self).await?;
        tokio::try_join!(self.submit(&submitted, &done), watch.watch(&submitted, &done))?;
        let Watch { rows, workers, ended, .. } = watch;
        Ok(Finish { rows, workers, ended })
    }

    /// Submits as fast as the workers follow.
    async fn submit(&self, submitted: &Cell<usize>, done: &Cell<usize>) -> Result<()> {
        while submitted.get() < self.tasks {
            if submitted.get() >= done.get() + AHEAD_MAX {
                sleep(PAUSE).await;
                continue;
            }
            let batch = BATCH.min(self.tasks - submitted.get());
            self.stage.fill(self.topics, batch, self.bytes).await?;
            submitted.set(submitted.get() + batch);
        }
        Ok(())
    }
}

/// What is seen of the workers.
struct Watch<'a> {
    course: &'a Course<'a>,
    workers: Vec<Worker>,
    ended: Vec<Ended>,
    rows: Vec<Row>,
    /// CPU time of workers that have ended, and of all parts at the start of the step.
    ended_cpu_s: f64,
    before_cpu_s: (f64, f64),
    /// Of the step: its tasks so far, its time, the most memory of a worker, how long workers took
    /// to start.
    begun_at: usize,
    elapsed: Box<dyn Fn() -> Duration>,
    peak_mib: f64,
    slowest_start_ms: Option<f64>,
}

impl<'a> Watch<'a> {
    async fn start(course: &'a Course<'a>) -> Result<Self> {
        let mut watch = Self {
            course,
            workers: Vec::new(),
            ended: Vec::new(),
            rows: Vec::new(),
            ended_cpu_s: 0.0,
            before_cpu_s: (0.0, 0.0),
            begun_at: 0,
            elapsed: Box::new(stopwatch()),
            peak_mib: 0.0,
            slowest_start_ms: None,
        };
        watch.add(course.workers).await?;
        watch.begin_step(0)?;
        Ok(watch)
    }

    async fn add(&mut self, count: usize) -> Result<()> {
        for worker in Worker::start_all(count, &self.course.plan, self.course.under).await? {
            let took_ms = seconds_between(worker.spawned_ns, worker.ready_ns) * 1e3;
            let slowest = self.slowest_start_ms.unwrap_or_default().max(took_ms);
            self.slowest_start_ms = Some(slowest);
            self.workers.push(worker);
        }
        Ok(())
    }

    /// Looks, and restarts workers, until all tasks are acknowledged.
    async fn watch(&mut self, submitted: &Cell<usize>, done: &Cell<usize>) -> Result<()> {
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut restarts = self.course.restart_every.map(interval);
        if let Some(restarts) = &mut restarts {
            // The first one comes at once.
            restarts.tick().await;
        }
        while done.get() < self.course.tasks {
            let restart = async {
                match &mut restarts {
                    Some(restarts) => restarts.tick().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = looks.tick() => self.look(submitted, done).await?,
                _ = restart => self.restart().await?,
            }
        }
        Ok(())
    }

    async fn look(&mut self, submitted: &Cell<usize>, done: &Cell<usize>) -> Result<()> {
        // In this order: what is submitted meanwhile must not count as done.
        let so_far = submitted.get();
        let left = self.course.stage.backlog(self.course.topics).await?;
        done.set(done.get().max(so_far.saturating_sub(left)));
        for worker in &self.workers {
            self.peak_mib = self.peak_mib.max(memory_mib(worker.process, "VmRSS")?);
        }
        if done.get() >= self.boundary() {
            self.end_step(done.get()).await?;
            self.begin_step(done.get())?;
        }
        Ok(())
    }

    /// Tasks that are done at the end of the step.
    fn boundary(&self) -> usize {
        let Course { step, tasks, .. } = self.course;
        (step * (self.rows.len() + 1)).min(*tasks)
    }

    fn begin_step(&mut self, at: usize) -> Result<()> {
        self.before_cpu_s = self.cpu_s()?;
        self.begun_at = at;
        self.elapsed = Box::new(stopwatch());
        self.peak_mib = 0.0;
        Ok(())
    }

    async fn end_step(&mut self, at: usize) -> Result<()> {
        let took = (self.elapsed)().as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "for people")]
        let tasks = (at - self.begun_at) as f64;
        let (workers_cpu_s, broker_cpu_s) = self.cpu_s()?;
        let stage = self.course.stage;
        let mut figures = Figures::default();
        figures.put("tasks/s", tasks / took);
        figures.put("worker µs", (workers_cpu_s - self.before_cpu_s.0) / tasks * 1e6);
        figures.put("worker RSS MiB", self.peak_mib);
        if let Some(slowest) = self.slowest_start_ms.take() {
            figures.put("slowest start ms", slowest);
        }
        if let Some(broker) = stage.broker_process() {
            figures.put("broker µs", (broker_cpu_s - self.before_cpu_s.1) / tasks * 1e6);
            figures.put("broker RSS MiB", memory_mib(broker, "VmRSS")?);
        }
        if let Some(disk_mib) = stage.disk_mib()? {
            figures.put("disk MiB", disk_mib);
        }
        let (entries, kib) = stage.compacted_ledger(self.course.topics).await?;
        figures.put("ledger view entries", entries);
        figures.put("ledger view KiB", kib);
        say(&format!("{at} of {} tasks are done", self.course.tasks));
        self.rows.push((format!("to {}", self.boundary()), figures));
        Ok(())
    }

    /// CPU time of all workers there ever were, and of the broker.
    fn cpu_s(&self) -> Result<(f64, f64)> {
        let workers = self.workers.iter().map(|worker| cpu_s(worker.process));
        let workers: f64 = workers.sum::<Result<f64>>()?;
        let broker = self.course.stage.broker_process().map_or(Ok(0.0), cpu_s)?;
        Ok((self.ended_cpu_s + workers, broker))
    }

    /// Has the oldest worker drain and end, and starts another one in its place.
    async fn restart(&mut self) -> Result<()> {
        let oldest = self.workers.remove(0);
        self.ended_cpu_s += cpu_s(oldest.process)?;
        self.ended.push(oldest.end().await.context("the end of a worker")?);
        self.add(1).await
    }
}
