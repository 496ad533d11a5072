//! Submits tasks.

use crate::wait::until;
use anyhow::{Result, anyhow};
use longhaul::TaskId;
use longhaul_session::PulsarTransport;
use longhaul_transport::{
    Batching, Outgoing, Publisher, Receipt, TopicPartition, TopicSchema, Transport,
};
use std::cell::Cell;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::sleep;

/// The most publishes awaiting receipts.
const UNDERWAY_MAX: usize = 1_000;
/// The pause before a lost publisher is replaced.
const AGAIN: Duration = Duration::from_millis(300);

/// A task for the example `scripted`.
#[derive(Clone, Debug)]
pub(super) struct Script {
    steps: String,
    key: Option<String>,
    properties: Vec<(String, String)>,
}

impl Script {
    /// The steps of the attempts, separated by `|`.
    pub(super) fn new(steps: impl Into<String>) -> Self {
        Self { steps: steps.into(), key: None, properties: Vec::new() }
    }

    /// Sleeps, then completes.
    pub(super) fn sleep(ms: u64) -> Self {
        Self::new(format!("sleep {ms},ok slept"))
    }

    /// Releases its attempt this many times, each time for a second, then completes.
    pub(super) fn poll(count: u32) -> Self {
        Self::new(format!("poll {count} 1000,ok polled"))
    }

    /// Gives the task a budget, an ISO 8601 duration.
    pub(super) fn budget(self, budget: &str) -> Self {
        self.property("MAX_TASK_DURATION", budget)
    }

    /// Gives its message a key.
    pub(super) fn key(self, key: String) -> Self {
        Self { key: Some(key), ..self }
    }

    /// Adds a property to its message.
    pub(super) fn property(mut self, name: &str, value: impl Into<String>) -> Self {
        self.properties.push((name.to_owned(), value.into()));
        self
    }

    pub(super) fn message(&self) -> Outgoing {
        Outgoing {
            key: self.key.clone(),
            properties: self.properties.iter().cloned().collect(),
            payload: format!("{:08x}|{}", fastrand::u32(..), self.steps).into(),
            ..Outgoing::default()
        }
    }
}

/// Publishes messages, many at a time, and returns their ids in order.
pub(super) async fn send(
    transport: &PulsarTransport,
    topic: &TopicPartition,
    scripts: Vec<Script>,
) -> Result<Vec<TaskId>> {
    let mut publisher = transport.publisher(topic, Batching::Off, TopicSchema::None).await?;
    let mut flow = Flow::default();
    for script in scripts {
        flow.put(&mut publisher, script.message()).await?;
    }
    flow.finish().await
}

/// Publishes in progress, in order.
#[derive(Default)]
pub(super) struct Flow {
    receipts: VecDeque<Receipt>,
    ids: Vec<TaskId>,
}

impl Flow {
    /// Publishes one message; waits while too many are in progress.
    pub(super) async fn put(
        &mut self,
        publisher: &mut Box<dyn Publisher>,
        message: Outgoing,
    ) -> Result<()> {
        self.receipts.push_back(publisher.send(message).await?);
        while self.receipts.len() > UNDERWAY_MAX {
            self.take().await?;
        }
        Ok(())
    }

    async fn take(&mut self) -> Result<()> {
        if let Some(receipt) = self.receipts.pop_front() {
            self.ids.push(TaskId::new(receipt.await?, -1));
        }
        Ok(())
    }

    /// Waits for all receipts.
    pub(super) async fn finish(mut self) -> Result<Vec<TaskId>> {
        while !self.receipts.is_empty() {
            self.take().await?;
        }
        Ok(self.ids)
    }
}

/// Controls a load that continues through all failures.
#[derive(Debug, Default)]
pub(super) struct Load {
    /// Tasks with a receipt. Failed ones may be stored all the same; then they are normal tasks.
    submitted: Cell<usize>,
    ended: Cell<bool>,
}

impl Load {
    /// Waits until this many more tasks have a receipt: the broker is back, and so is the load.
    pub(super) async fn more(&self, count: usize, limit: Duration) -> Result<()> {
        let goal = self.submitted.get() + count;
        let come = async || Ok((self.submitted.get() >= goal).then_some(()));
        until("tasks submitted", limit, come).await
    }

    pub(super) fn end(&self) {
        self.ended.set(true);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.get()
    }

    /// Submits tasks one after the other, with a pause, until the load is ended. Several may run
    /// concurrently.
    pub(super) async fn run(
        &self,
        transport: &PulsarTransport,
        topic: &TopicPartition,
        pause: Duration,
        mut script: impl FnMut() -> Script,
    ) {
        let mut publisher = None;
        while !self.has_ended() {
            if submit_one(transport, topic, &mut publisher, &script()).await.is_ok() {
                self.submitted.set(self.submitted.get() + 1);
                sleep(pause).await;
            } else {
                publisher = None;
                sleep(AGAIN).await;
            }
        }
    }
}

pub(super) async fn submit_one(
    transport: &PulsarTransport,
    topic: &TopicPartition,
    publisher: &mut Option<Box<dyn Publisher>>,
    script: &Script,
) -> Result<TaskId> {
    if publisher.is_none() {
        *publisher = Some(transport.publisher(topic, Batching::Off, TopicSchema::None).await?);
    }
    let publisher = publisher.as_mut().ok_or_else(|| anyhow!("no publisher"))?;
    let receipt = publisher.send(script.message()).await?;
    Ok(TaskId::new(receipt.await?, -1))
}
