//! `gateway`: callers that speak HTTP to one gateway, each on a connection of its own.

mod http;
mod process;

pub(crate) use process::{GatewayArgs, run as run_process};

use crate::meter::{Figures, Meter, Times, cpu_s, memory_mib};
use crate::sitting::{Row, Sitting};
use crate::stage::{Stage, Topics};
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use clap::Args;
use futures::future::try_join_all;
use http::Connection;
use integration_tests::stopwatch;
use process::Gateway;
use serde::Deserialize;
use serde_json::json;
use std::cell::{Cell, RefCell};
use std::time::Duration;
use tokio::time::{interval, sleep};

/// How long the long polls have to be sent, and again to be answered.
const SETTLING_S: u64 = 8;

/// Connections that are opened at the same time.
const OPENED_AT_ONCE: usize = 500;

/// Tasks that are submitted over HTTP, then leased and reported one by one: requests/s and their
/// milliseconds. A lease is one request and its report another, and so is its confirmation. Then tasks at a steady pace while
/// somebody waits: milliseconds from the submit to the lease. Then long polls that get nothing.
///
/// Gateway and broker are processes of their own; `caller` is the CPU time of this program, which
/// shares the machine with them.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    sitting: Sitting,
    /// Tasks of a row; a tenth of it for one connection.
    #[arg(long, default_value_t = 100_000)]
    tasks: usize,
    /// Bytes of each payload.
    #[arg(long, default_value_t = 100)]
    bytes: usize,
    /// Connections at once; a row each.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 10, 100])]
    connections: Vec<usize>,
    /// Confirm each lease before its report, as the packages do: one request more per task.
    #[arg(long)]
    confirms: bool,
    /// Tasks a second of the steady pace.
    #[arg(long, default_value_t = 100)]
    pace: u32,
    /// Tasks of the steady pace.
    #[arg(long, default_value_t = 1_000)]
    paced: usize,
    /// Long polls that get nothing, each on a connection of its own.
    #[arg(long, default_value_t = 10_000)]
    idle: usize,
    /// Seconds for which they wait.
    #[arg(long, default_value_t = 20)]
    idle_seconds: u64,
}

impl Options {
    pub(crate) async fn run(&self) -> Result<()> {
        self.sitting.run_rows("gateway", 1, async |stage| measure(stage, self).await).await
    }
}

async fn measure(stage: &Stage, options: &Options) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for connections in &options.connections {
        let run = Run::start(stage, options, *connections).await?;
        rows.push((format!("{connections} connections"), run.measure().await?));
    }
    if options.paced > 0 {
        let run = Run::start(stage, options, 2).await?;
        rows.push((format!("{} tasks/s", options.pace), run.measure_pace().await?));
    }
    if options.idle > 0 {
        let run = Run::start(stage, options, options.idle).await?;
        rows.push((format!("{} long polls", options.idle), run.measure_idle().await?));
    }
    Ok(rows)
}

/// A gateway with a queue of its own, and connections to it.
struct Run<'a> {
    stage: &'a Stage,
    options: &'a Options,
    topics: Topics,
    queue: String,
    gateway: Gateway,
    connections: Vec<Connection>,
}

#[derive(Deserialize)]
struct Leased {
    leases: Vec<Lease>,
}

#[derive(Deserialize)]
struct Lease {
    lease: String,
}

impl Lease {
    fn of(answer: &Bytes) -> Result<Self> {
        let mut leased: Leased = serde_json::from_slice(answer)?;
        leased.leases.pop().context("an answer without a lease")
    }

    fn confirmation(&self) -> Bytes {
        json!({ "leases": [self.lease] }).to_string().into()
    }

    fn report(&self) -> Result<Bytes> {
        let report = json!({ "lease": self.lease, "status": "SUCCEEDED", "result": "done" });
        Ok(serde_json::to_vec(&report)?.into())
    }
}

fn request(wait: &str, confirms: bool) -> Bytes {
    json!({ "worker": "bench", "wait": wait, "confirms": confirms }).to_string().into()
}

impl<'a> Run<'a> {
    async fn start(stage: &'a Stage, options: &'a Options, connections: usize) -> Result<Self> {
        let topics = stage.topics("gateway", None).await?;
        let queue = topics.names.task.rsplit('/').next().context("a topic has a name")?.to_owned();
        let gateway = Gateway::start(stage, options.sitting.under.as_deref()).await?;
        let mut opened = Vec::new();
        while opened.len() < connections {
            let next = OPENED_AT_ONCE.min(connections - opened.len());
            opened
                .extend(try_join_all((0..next).map(|_| Connection::open(gateway.address))).await?);
        }
        Ok(Self { stage, options, topics, queue, gateway, connections: opened })
    }

    fn path(&self, rest: &str) -> String {
        format!("/v1/queues/{}/{rest}", self.queue)
    }

    fn meter(&self) -> Result<Meter> {
        let broker = self.stage.broker_process().into_iter().collect();
        let gateway = vec![self.gateway.process];
        Meter::start([
            ("caller", vec![std::process::id()]),
            ("gateway", gateway),
            ("broker", broker),
        ])
    }

    async fn measure(mut self) -> Result<Figures> {
        let tasks = self.options.tasks / if self.connections.len() == 1 { 10 } else { 1 };
        // The publisher is opened by the first one.
        self.submit(1).await?;
        let meter = self.meter()?;
        let submitted = self.submit(tasks).await?;
        let mut figures = Figures::default();
        figures.put_all("enqueue", meter.read("", tasks)?);
        figures.put_times("enqueue", &submitted);
        let found = self.stage.backlog(&self.topics).await?;
        ensure!(found == tasks + 1, "of {} tasks {found} are on the topic", tasks + 1);
        // The gateway joins the ledger by the first one.
        self.lease(1).await?;
        let meter = self.meter()?;
        let (leased, reported) = self.lease(tasks).await?;
        figures.put_all("lease+report", meter.read("", tasks)?);
        figures.put_times("lease", &leased);
        figures.put_times("report", &reported);
        self.stage.acknowledged(&self.topics).await?;
        figures.put("gateway peak RSS MiB", memory_mib(self.gateway.process, "VmHWM")?);
        Ok(figures)
    }

    /// Submits so many tasks over all connections.
    async fn submit(&mut self, tasks: usize) -> Result<Times> {
        let body = self.task();
        let path = self.path("tasks");
        let mut times = Times::new()?;
        let step = async |connection: &mut Connection| {
            let elapsed = stopwatch();
            connection.post(&path, body.clone()).await?;
            anyhow::Ok(elapsed())
        };
        self.each(tasks, step, |took| times.record(took)).await?;
        Ok(times)
    }

    /// Leases so many tasks over all connections, and reports each as done.
    async fn lease(&mut self, tasks: usize) -> Result<(Times, Times)> {
        let confirms = self.options.confirms;
        let (path, ask) = (self.path("leases"), request("10s", confirms));
        let (confirm, report) = (self.path("leases:confirm"), self.path("leases:report"));
        let (mut leases, mut reports) = (Times::new()?, Times::new()?);
        let step = async |connection: &mut Connection| {
            let elapsed = stopwatch();
            let answer = connection.post(&path, ask.clone()).await?;
            let leased = elapsed();
            let lease = Lease::of(&answer.context("no task came in time")?)?;
            if confirms {
                connection.post(&confirm, lease.confirmation()).await?;
            }
            let elapsed = stopwatch();
            connection.post(&report, lease.report()?).await?;
            anyhow::Ok((leased, elapsed()))
        };
        let note = |(leased, reported)| {
            leases.record(leased)?;
            reports.record(reported)
        };
        self.each(tasks, step, note).await?;
        Ok((leases, reports))
    }

    fn task(&self) -> Bytes {
        json!({ "payload": "x".repeat(self.options.bytes) }).to_string().into()
    }

    /// Does a step so many times, by all connections at once.
    async fn each<T>(
        &mut self,
        times: usize,
        step: impl AsyncFn(&mut Connection) -> Result<T>,
        note: impl FnMut(T) -> Result<()>,
    ) -> Result<()> {
        let (left, note, step) = (Cell::new(times), RefCell::new(note), &step);
        let by_one = async |connection: &mut Connection| {
            while let Some(rest) = left.get().checked_sub(1) {
                left.set(rest);
                let done = step(connection).await?;
                (note.borrow_mut())(done)?;
            }
            anyhow::Ok(())
        };
        try_join_all(self.connections.iter_mut().map(by_one)).await?;
        Ok(())
    }

    async fn measure_pace(mut self) -> Result<Figures> {
        let (mut waiter, mut caller) = (self.connections.pop(), self.connections.pop());
        let (waiter, caller) = (waiter.as_mut().context("two")?, caller.as_mut().context("two")?);
        let (tasks, leases) = (self.path("tasks"), self.path("leases"));
        let (report, body) = (self.path("leases:report"), self.task());
        let mut times = Times::new()?;
        let mut ticks = interval(Duration::from_secs(1) / self.options.pace);
        let warm = self.options.paced / 10;
        let meter = self.meter()?;
        for number in 0..warm + self.options.paced {
            ticks.tick().await;
            let waits = waiter.post(&leases, request("10s", false));
            let submits = async {
                let elapsed = stopwatch();
                caller.post(&tasks, body.clone()).await?;
                anyhow::Ok(elapsed)
            };
            // The request is sent first: it waits when the task comes.

            let (answer, elapsed) = tokio::try_join!(biased; waits, submits)?;
            if number >= warm {
                times.record(elapsed())?;
            }
            let lease = Lease::of(&answer.context("no task came in time")?)?;
            caller.post(&report, lease.report()?).await?;
        }
        let mut figures = meter.read("tasks", warm + self.options.paced)?;
        figures.put_times("from submit", &times);
        Ok(figures)
    }

    async fn measure_idle(mut self) -> Result<Figures> {
        // The gateway has joined the ledger, and every connection was asked for something.
        self.submit(1).await?;
        self.lease(1).await?;
        let gateway = self.gateway.process;
        let before = memory_mib(gateway, "VmRSS")?;
        let seconds = self.options.idle_seconds;
        let (path, ask) =
            (self.path("leases"), request(&format!("{}s", seconds + SETTLING_S), false));
        let polls = try_join_all(self.connections.iter_mut().map(|it| it.post(&path, ask.clone())));
        let watch = async {
            sleep(Duration::from_secs(SETTLING_S / 2)).await;
            let cpu = cpu_s(gateway)?;
            sleep(Duration::from_secs(seconds)).await;
            anyhow::Ok((cpu_s(gateway)? - cpu, memory_mib(gateway, "VmRSS")?))
        };
        let (answers, (cpu, after)) = tokio::try_join!(polls, watch)?;
        ensure!(answers.iter().all(Option::is_none), "a long poll got a task");
        let mut figures = Figures::default();
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let (count, span) = (answers.len() as f64, seconds as f64);
        figures.put("KiB each", (after - before) * 1024.0 / count);
        figures.put("CPU %", cpu / span * 100.0);
        figures.put("gateway RSS MiB", after);
        Ok(figures)
    }
}
