//! The metadata topic as a watcher reads it, byte for byte, with checks that hold for every entry
//! in any test.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use longhaul::{TaskId, TaskMetadata};
use longhaul_session::PulsarTransport;
use longhaul_transport::clock::Clock;
use longhaul_transport::{Follow, Message, Start, TopicPartition, Transport, TransportError};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// The time limit for anything that should happen. Generous, since a machine may be loaded.
pub const LIMIT: Duration = Duration::from_secs(90);

/// The most entries queued for the test.
const QUEUE_MAX: usize = 1024;

/// An entry of the metadata topic.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The task, from the key.
    pub task: TaskId,
    /// Properties of the message.
    pub properties: BTreeMap<String, String>,
    /// The content; `None` for a tombstone.
    pub metadata: Option<TaskMetadata>,
    /// The raw value.
    pub json: String,
}

impl Shown {
    /// Reads a message of a metadata topic.
    ///
    /// # Errors
    /// It is not an entry, or its content belongs to another key.
    pub fn read(message: &Message) -> Result<Self> {
        let key = message.key.as_deref().context("an entry without key")?;
        let task: TaskId = key.parse()?;
        let json = String::from_utf8(message.payload.to_vec())?;
        let properties = message.properties.to_map();
        if message.null {
            ensure!(json.is_empty(), "a tombstone of {key} with a value: {json}");
            return Ok(Self { task, properties, metadata: None, json });
        }
        let metadata: TaskMetadata = serde_json::from_str(&json).with_context(|| json.clone())?;
        ensure!(metadata.message_id == key, "under the key {key}: {json}");
        ensure!(!json.contains(":null"), "nulls are left out: {json}");
        let names: Vec<_> = properties.keys().map(String::as_str).collect();
        ensure!(names == ["epoch", "owner"], "properties of {key}: {properties:?}");
        Ok(Self { task, properties, metadata: Some(metadata), json })
    }

    /// The epoch of the entry; 0 for a tombstone.
    #[must_use]
    pub fn epoch(&self) -> u32 {
        self.properties.get("epoch").and_then(|epoch| epoch.parse().ok()).unwrap_or_default()
    }

    /// Checks two consecutive entries of a task, at `now_ms`.
    fn follows(&self, before: Option<&Self>, now_ms: u64) -> Result<()> {
        let Some(entry) = &self.metadata else { return Ok(()) };
        ensure!(entry.created <= entry.last_updated, "updated before it was created: {self}");
        ensure!(entry.last_updated <= now_ms, "updated in the future: {self}");
        let Some(before) = before else { return Ok(()) };
        let earlier = before.metadata.as_ref().with_context(|| format!("after its end: {self}"))?;
        ensure!(earlier.created == entry.created, "created changes: {before}, {self}");
        ensure!(earlier.last_updated <= entry.last_updated, "time goes back: {before}, {self}");
        ensure!(before.epoch() <= self.epoch(), "epochs go back: {before}, {self}");
        ensure!(earlier.task.is_none() || earlier.task == entry.task, "the task changes: {self}");
        Ok(())
    }
}

impl fmt::Display for Shown {
    /// `FAILED 1 FINAL: reason`, `COMPLETED 2: result`, `tombstone`: the form in which sequences
    /// are compared.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(entry) = &self.metadata else { return f.write_str("tombstone") };
        let state = format!("{:?}", entry.state).to_uppercase();
        write!(f, "{state} {}", entry.attempts)?;
        if let Some(outcome) = entry.outcome {
            write!(f, " {}", format!("{outcome:?}").to_uppercase())?;
        }
        if let Some(result) = &entry.result {
            write!(f, ": {}", String::from_utf8_lossy(result))?;
        }
        if let Some(reason) = &entry.failure_reason {
            write!(f, ": {reason}")?;
        }
        Ok(())
    }
}

/// Follows all partitions of a metadata topic from the first entry on.
#[derive(Debug)]
pub struct View {
    entries: mpsc::Receiver<Result<Message, TransportError>>,
    /// The entries seen, by task.
    seen: BTreeMap<TaskId, Vec<Shown>>,
    followers: JoinSet<()>,
}

impl View {
    /// Starts to follow.
    ///
    /// # Errors
    /// The topic cannot be followed.
    pub async fn open(transport: &PulsarTransport, parts: Vec<TopicPartition>) -> Result<Self> {
        let (queue, entries) = mpsc::channel(QUEUE_MAX);
        let mut followers = JoinSet::new();
        for part in parts {
            let follow = Follow { start: Start::Earliest, compacted: false };
            let mut follower = transport.follower(&part, follow).await?;
            let queue = queue.clone();
            followers.spawn(async move {
                loop {
                    let next = follower.next().await;
                    let ended = next.is_err();
                    if queue.send(next).await.is_err() || ended {
                        return;
                    }
                }
            });
        }
        Ok(Self { entries, seen: BTreeMap::new(), followers })
    }

    /// The next entry of any task.
    ///
    /// # Errors
    /// None comes within [`LIMIT`], or it breaks a general rule.
    pub async fn next(&mut self) -> Result<Shown> {
        let next = timeout(LIMIT, self.entries.recv()).await;
        let message =
            next.map_err(|_| anyhow!("no entry within {LIMIT:?}"))?.context("no follower")??;
        let shown = Shown::read(&message)?;
        let history = self.seen.entry(shown.task).or_default();
        shown.follows(history.last(), Clock::System.wall_ms())?;
        history.push(shown.clone());
        Ok(shown)
    }

    /// Reads until an entry of the task is seen whose text begins with `what`, in the form of
    /// [`Shown`].
    ///
    /// # Errors
    /// It does not come, or an entry breaks a rule.
    pub async fn until(&mut self, task: TaskId, what: &str) -> Result<()> {
        while !self.lines(task).iter().any(|line| line.starts_with(what)) {
            self.next().await.with_context(|| {
                format!("waiting for {what} of {task}, which has {:?}", self.lines(task))
            })?;
        }
        Ok(())
    }

    /// As [`until`](Self::until), for each of these tasks.
    ///
    /// # Errors
    /// As [`until`](Self::until).
    pub async fn until_all(&mut self, tasks: &[TaskId], what: &str) -> Result<()> {
        for task in tasks {
            self.until(*task, what).await?;
        }
        Ok(())
    }

    /// Checks that no entry comes.
    ///
    /// # Errors
    /// One comes.
    pub async fn nothing_for(&mut self, silence: Duration) -> Result<()> {
        match timeout(silence, self.entries.recv()).await {
            Err(_) => Ok(()),
            Ok(Some(message)) => bail!("unexpected entry {}", Shown::read(&message?)?),
            Ok(None) => bail!("no follower"),
        }
    }

    /// All entries of a task seen so far.
    #[must_use]
    pub fn entries(&self, task: TaskId) -> &[Shown] {
        self.seen.get(&task).map_or(&[], Vec::as_slice)
    }

    /// The entries as texts.
    #[must_use]
    pub fn lines(&self, task: TaskId) -> Vec<String> {
        self.entries(task).iter().map(ToString::to_string).collect()
    }

    /// Stops following.
    pub async fn close(mut self) {
        self.followers.shutdown().await;
    }
}
