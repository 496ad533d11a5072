//! The environment of the checks: a broker, a shared gateway, and a queue with workers per check.

use super::candidate::{Candidate, Orders, last_lines};
use super::door::FaultProxy;
use super::gateway::{Recipe, SpawnedGateway};
use anyhow::{Context, bail, ensure};
use longhaul::ops::{HistoryEntry, HistoryEvent};
use longhaul::topics::TopicSettings;
use longhaul::{Client, RetryPolicy, TaskMetadata, TaskRef, Text, Watch, WatchEvent};
use longhaul_broker::{Broker, BrokerConfig};
use longhaul_server::{TokenEntry, TokenFile, TokenScope};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::timeout;

/// The time limit for immediate actions of a worker. Generous, since a machine may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The step by which a worker shows that it has started.
pub(crate) fn begun() -> Value {
    json!({ "progress": [0, 1, "begun"] })
}

#[derive(Debug)]
pub(crate) struct ConformanceEnvironment {
    words: Vec<OsString>,
    client: Client,
    http: reqwest::Client,
    recipe: Recipe,
    gateway: SpawnedGateway,
    /// A token that allows leasing.
    token: String,
    /// A token for the suite's operator actions.
    admin: String,
    folder: TempDir,
    // Last, so that its clients are dropped first.
    _broker: Broker,
}

impl ConformanceEnvironment {
    /// Starts everything that workers need; `words` is the command line of a worker.
    ///
    /// # Errors
    /// When something does not start.
    pub(crate) async fn start(words: &[OsString]) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let broker =
            tokio::task::spawn_blocking(|| Broker::start(BrokerConfig::default())).await??;
        let admin_url = broker.admin_url().context("the broker has no admin API")?;
        let client = Client::builder(broker.service_url()).admin_url(admin_url.clone());
        let client = client.connect().await?;
        let (tokens, token, admin) = tokens(folder.path())?;
        let service_url = broker.service_url().to_owned();
        let listen = "127.0.0.1:0".parse()?;
        let recipe = Recipe { listen, tokens, service_url, admin_url };
        let gateway = SpawnedGateway::start(&recipe).await?;
        let http = reqwest::Client::builder()
            .no_proxy()
            .pool_idle_timeout(Duration::from_secs(5))
            .build()?;
        let words = words.to_vec();
        Ok(Self { words, client, http, recipe, gateway, token, admin, folder, _broker: broker })
    }

    /// Creates a queue for a check, and a proxy in front of the gateway.
    ///
    /// # Errors
    /// When the queue cannot be created.
    pub(crate) async fn scene(&self, name: &str) -> anyhow::Result<Scene<'_>> {
        let queue = name.to_owned();
        self.client.queue(&queue).setup_topics(TopicSettings::default()).await?;
        let door = FaultProxy::open(self.gateway.url(), self.http.clone(), None).await?;
        let watch = self.client.watch(&queue).await?;
        let output = self.folder.path().join(format!("{name}.out"));
        Ok(Scene { stage: self, queue, door, watch, output })
    }
}

/// A file of tokens in this folder; and its tokens, for leasing and for an operator's actions.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn tokens(folder: &Path) -> anyhow::Result<(PathBuf, String, String)> {
    let tokens = folder.join("tokens.json");
    let mut file = TokenFile::open_or_new(&tokens)?;
    let token = file.create(TokenEntry::new("worker", [TokenScope::Work].into()))?;
    let admin = file.create(TokenEntry::new("suite", [TokenScope::Admin].into()))?;
    file.write()?;
    Ok((tokens, token, admin))
}

/// A queue with the known state of its tasks, and its workers.
#[derive(Debug)]
pub(crate) struct Scene<'a> {
    stage: &'a ConformanceEnvironment,
    queue: String,
    pub(crate) door: FaultProxy,
    watch: Watch,
    output: PathBuf,
}

impl Scene<'_> {
    /// Starts a worker behind the proxy.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn worker(&self, orders: &Orders) -> anyhow::Result<Candidate> {
        self.worker_at(self.door.url(), orders)
    }

    /// Starts a worker with these gateways, separated by commas.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn worker_at(&self, gateways: &str, orders: &Orders) -> anyhow::Result<Candidate> {
        self.worker_for(gateways, &self.queue, orders)
    }

    /// Starts a process with a worker for this queue and for that of another scene.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn two_workers(&self, other: &Self, orders: &Orders) -> anyhow::Result<Candidate> {
        let queues = format!("{},{}", self.queue, other.queue);
        self.worker_for(self.door.url(), &queues, orders)
    }

    fn worker_for(
        &self,
        gateways: &str,
        queues: &str,
        orders: &Orders,
    ) -> anyhow::Result<Candidate> {
        let ConformanceEnvironment { words, token, .. } = self.stage;
        let variables = [
            ("LONGHAUL_GATEWAY", gateways),
            ("LONGHAUL_TOKEN", token.as_str()),
            ("LONGHAUL_QUEUE", queues),
        ];
        Candidate::start(words, variables, &self.output, orders)
    }

    /// A second queue for this check.
    ///
    /// # Errors
    /// When it cannot be created.
    pub(crate) async fn second(&self) -> anyhow::Result<Self> {
        self.stage.scene(&format!("{}-second", self.queue)).await
    }

    /// A proxy in front of a gateway that is for this check only.
    ///
    /// # Errors
    /// When it cannot listen.
    pub(crate) async fn door_of(&self, gateway: &SpawnedGateway) -> anyhow::Result<FaultProxy> {
        FaultProxy::open(gateway.url(), self.stage.http.clone(), None).await
    }

    /// Starts a gateway for this check only.
    ///
    /// # Errors
    /// When it does not start.
    pub(crate) async fn gateway(&self) -> anyhow::Result<SpawnedGateway> {
        SpawnedGateway::start(&self.stage.recipe).await
    }

    /// Submits a task whose n-th attempt runs the n-th list of steps, and later ones the last list.
    /// It has up to 3 attempts, almost without pauses.
    ///
    /// # Errors
    /// When it cannot be submitted.
    pub(crate) async fn submit(&self, attempts: &Value) -> anyhow::Result<TaskRef> {
        self.submit_text(&json!({ "attempts": attempts }).to_string()).await
    }

    /// Submits any payload.
    ///
    /// # Errors
    /// When it cannot be submitted.
    pub(crate) async fn submit_text(&self, payload: &str) -> anyhow::Result<TaskRef> {
        self.submit_with(payload, 3).await
    }

    /// Submits any payload with this many attempts.
    ///
    /// # Errors
    /// When it cannot be submitted.
    pub(crate) async fn submit_with(&self, payload: &str, most: u32) -> anyhow::Result<TaskRef> {
        let (base, max) = (Duration::from_millis(100), Duration::from_millis(200));
        let policy = RetryPolicy { base, max, ..RetryPolicy::default() };
        let text = Text(payload.to_owned());
        let submission = self.stage.client.submission(&self.queue, &text);
        Ok(submission.retry(policy).max_attempts(most).send().await?)
    }

    /// Waits for the end of a task.
    ///
    /// # Errors
    /// When it is not over in time; contains its history.
    pub(crate) async fn end(
        &self,
        task: &TaskRef,
        limit: Duration,
    ) -> anyhow::Result<TaskMetadata> {
        let Ok(end) = timeout(limit, self.stage.client.wait_metadata(task)).await else {
            let events = self.events(task).await?;
            bail!("the task did not end within {limit:?}; its history: {events:?}");
        };
        Ok(end?)
    }

    /// Checks that a task ends with this result after this many attempts.
    ///
    /// # Errors
    /// When it ends in another way.
    pub(crate) async fn succeeds(
        &self,
        task: &TaskRef,
        result: &[u8],
        attempts: u32,
    ) -> anyhow::Result<()> {
        self.succeeds_within(PATIENCE, task, result, attempts).await
    }

    /// As `succeeds`, within this time.
    ///
    /// # Errors
    /// When it ends in another way.
    pub(crate) async fn succeeds_within(
        &self,
        limit: Duration,
        task: &TaskRef,
        result: &[u8],
        attempts: u32,
    ) -> anyhow::Result<()> {
        let end = self.end(task, limit).await?;
        let found = end.result.as_deref().map(String::from_utf8_lossy);
        let wanted = String::from_utf8_lossy(result);
        ensure!(
            end.result.as_deref() == Some(result),
            "the task ended with {found:?} ({:?}), not with the result {wanted:?}",
            end.failure_reason
        );
        ensure!(
            end.attempts == attempts,
            "the task took {} attempts, not {attempts}; its history: {:?}",
            end.attempts,
            self.events(task).await?
        );
        Ok(())
    }

    /// The history of a task, without ignored entries.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub(crate) async fn history(&self, task: &TaskRef) -> anyhow::Result<Vec<HistoryEntry>> {
        let history = self.stage.client.queue(&task.topic).history(task.id).await?;
        Ok(history.entries.into_iter().filter(|entry| entry.ignored.is_none()).collect())
    }

    async fn events(&self, task: &TaskRef) -> anyhow::Result<Vec<HistoryEvent>> {
        Ok(self.history(task).await?.into_iter().map(|entry| entry.event).collect())
    }

    /// Waits until a matching entry of a task is shown.
    ///
    /// # Errors
    /// When none is shown within the limit; names the expectation.
    pub(crate) async fn until(
        &mut self,
        task: &TaskRef,
        what: &str,
        limit: Duration,
        fits: impl Fn(&TaskMetadata) -> bool,
    ) -> anyhow::Result<TaskMetadata> {
        let id = task.id.to_string();
        let watch = &mut self.watch;
        let search = async {
            while let Some(event) = watch.next().await {
                let WatchEvent::Updated { metadata, .. } = event? else { continue };
                if metadata.message_id == id && fits(&metadata) {
                    return Ok(metadata);
                }
            }
            bail!("the watch of the queue ended")
        };
        match timeout(limit, search).await {
            Ok(found) => found,
            Err(_) => bail!("the task was not {what} within {limit:?}"),
        }
    }

    /// Waits until a worker has started this attempt of a task and reported it by the step
    /// [`begun`]. The lease alone is not enough: its answer may still be in transit, and the lease
    /// would be lost with it.
    ///
    /// # Errors
    /// When no worker has started it in time.
    pub(crate) async fn until_running(
        &mut self,
        task: &TaskRef,
        attempt: u32,
    ) -> anyhow::Result<()> {
        let fits = |shown: &TaskMetadata| shown.progress.is_some() && shown.attempts == attempt;
        self.until(task, "begun", PATIENCE, fits).await.map(drop)
    }

    /// Cancels a task.
    ///
    /// # Errors
    /// When the request cannot be stored.
    pub(crate) async fn cancel(&self, task: &TaskRef) -> anyhow::Result<()> {
        Ok(self.stage.client.cancel(task).await?)
    }

    /// Takes a task from its worker, as an operator; another attempt follows.
    ///
    /// # Errors
    /// When the gateway refuses.
    pub(crate) async fn take_away(&self, task: &TaskRef) -> anyhow::Result<()> {
        let ConformanceEnvironment { gateway, http, admin, .. } = self.stage;
        let url = gateway.url();
        let url = format!("{url}/v1/queues/{}/tasks/{}:force-release", self.queue, task.id);
        let answer = http.post(url).bearer_auth(admin).send().await?;
        let status = answer.status();
        ensure!(status.is_success(), "{status}: {}", answer.text().await?);
        Ok(())
    }

    /// The last lines of the workers' output.
    pub(crate) fn last_lines(&self) -> String {
        last_lines(&self.output)
    }
}
