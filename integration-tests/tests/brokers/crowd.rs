//! Gateways beside each other, while they are killed and started again: workers in any language get each task done once, whatever gateway they ask.
//!
//! The judges are what the callers were answered, and the invariants over the logs. `LONGHAUL_TEST_CROWD=1` makes it the size of the issue that asked for
//! it: 2,000 tasks, 50 workers, a kill every 5 s.

use anyhow::{Context, Result, bail, ensure};
use integration_tests::sandbox::Sandbox;
use longhaul::topics::TopicSettings;
use longhaul::{Client, TaskFilter, TaskStatus, Text};
use longhaul_server::{Server, ServerConfig};
use reqwest::StatusCode;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{interval, sleep, timeout};
use tokio_util::sync::CancellationToken;

/// How long all of it may take.
const PATIENCE: Duration = Duration::from_secs(300);

/// The silence that ends a lease here.
const LEASE_TIME: Duration = Duration::from_secs(1);

/// How large a crowd is.
#[derive(Clone, Copy)]
struct Size {
    tasks: usize,
    workers: u64,
    kill_every: Duration,
}

impl Size {
    fn from_env() -> Self {
        if std::env::var_os("LONGHAUL_TEST_CROWD").is_some() {
            Self { tasks: 2_000, workers: 50, kill_every: Duration::from_secs(5) }
        } else {
            Self { tasks: 60, workers: 6, kill_every: Duration::from_secs(2) }
        }
    }
}

/// Two gateways, of which one at a time may be gone.
struct Gateways {
    sandbox: Sandbox,
    running: RwLock<BTreeMap<usize, Arc<Server>>>,
}

impl Gateways {
    async fn start(sandbox: Sandbox) -> Result<Arc<Self>> {
        let gateways = Arc::new(Self { sandbox, running: RwLock::default() });
        for number in 0..2 {
            gateways.begin(number).await?;
        }
        Ok(gateways)
    }

    async fn begin(&self, number: usize) -> Result<()> {
        let client = Client::builder(self.sandbox.service_url());
        let client = client.admin_url(self.sandbox.admin().url()).connect().await?;
        let mut config = ServerConfig::default();
        config.listen.set_port(0);
        // The queues of other tests have settings of their own.
        config.look_after_all = false;
        let server = Arc::new(Server::start(client, config).await?);
        let mut running = self.running.write().unwrap_or_else(PoisonError::into_inner);
        running.insert(number, server);
        Ok(())
    }

    /// As a crash does: nothing is said to anybody.
    fn kill(&self, number: usize) {
        let mut running = self.running.write().unwrap_or_else(PoisonError::into_inner);
        running.remove(&number);
    }

    fn any(&self) -> Option<String> {
        let running = self.running.read().unwrap_or_else(PoisonError::into_inner);
        let first = fastrand::usize(..2);
        let found = [first, 1 - first].into_iter().find_map(|number| running.get(&number));
        found.map(|server| server.url())
    }
}

/// What the workers of a crowd were answered.
#[derive(Debug, Default)]
struct Told {
    /// Successes that were said to count, by task.
    succeeded: BTreeMap<String, usize>,
    /// Successes whose answer was lost with a gateway: they may count or not.
    unknown: BTreeSet<String>,
    failed: usize,
    stale: usize,
    leases: usize,
}

struct Crowd {
    gateways: Arc<Gateways>,
    http: reqwest::Client,
    queue: String,
    told: Mutex<Told>,
    over: CancellationToken,
}

impl Crowd {
    async fn post(&self, path: &str, body: &Value) -> Option<(StatusCode, Value)> {
        let url = format!("{}/v1/queues/{}/{path}", self.gateways.any()?, self.queue);
        let answer = self.http.post(url).json(body).send().await.ok()?;
        let status = answer.status();
        Some((status, answer.json().await.unwrap_or_default()))
    }

    fn told(&self, note: impl FnOnce(&mut Told)) {
        note(&mut self.told.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Works until all is over: of its tasks 60 % succeed, 20 % fail, and 20 % hang until their lease has expired.
    async fn work(self: Arc<Self>, number: u64) -> Result<()> {
        let ask = json!({
            "worker": format!("worker-{number}"),
            "wait": "2s",
            "lease_time": format!("{}ms", LEASE_TIME.as_millis()),
        });
        while !self.over.is_cancelled() {
            let Some((StatusCode::OK, found)) = self.post("leases", &ask).await else {
                sleep(Duration::from_millis(20)).await;
                continue;
            };
            let leases = found.get("leases").and_then(Value::as_array);
            for lease in leases.context("no leases")? {
                let text = |name| lease.get(name).and_then(Value::as_str).context("a text");
                let (id, task) = (text("lease")?, text("task")?.to_owned());
                self.told(|told| told.leases += 1);
                self.handle(id, task).await?;
            }
        }
        Ok(())
    }

    async fn handle(&self, lease: &str, task: String) -> Result<()> {
        let chance = fastrand::u8(..100);
        let fails = chance < 20;
        if chance >= 80 {
            sleep(LEASE_TIME * 2).await;
        }
        let report = if fails {
            json!({ "lease": lease, "status": "FAILED", "reason": "no luck", "retry_after": "10ms" })
        } else {
            json!({ "lease": lease, "status": "SUCCEEDED", "result": "done" })
        };
        // Told again until somebody answers, as any worker would.
        let mut lost = false;
        for _ in 0..100 {
            match self.post("leases:report", &report).await {
                Some((StatusCode::OK, _)) if fails => {
                    self.told(|told| told.failed += 1);
                }
                Some((StatusCode::OK, _)) => {
                    self.told(|told| *told.succeeded.entry(task.clone()).or_default() += 1);
                }
                Some((StatusCode::CONFLICT, problem)) => {
                    let code = problem.get("code").and_then(Value::as_str).unwrap_or_default();
                    let known = [
                        "stale_lease_id",
                        "not_current_lease_owner",
                        "lease_expired",
                        "task_ended",
                    ];
                    ensure!(known.contains(&code), "{problem}");
                    self.told(|told| {
                        told.stale += 1;
                        if lost && !fails {
                            told.unknown.insert(task.clone());
                        }
                    });
                }
                Some((StatusCode::NOT_FOUND, problem)) => bail!("a lease is unknown: {problem}"),
                Some(_) | None => {
                    lost = true;
                    sleep(Duration::from_millis(50)).await;
                    continue;
                }
            }
            return Ok(());
        }
        self.told(|told| {
            told.unknown.insert(task);
        });
        Ok(())
    }
}

async fn kill_in_turn(
    gateways: Arc<Gateways>,
    every: Duration,
    over: CancellationToken,
) -> Result<usize> {
    let mut kills = 0;
    let mut ticks = interval(every);
    ticks.tick().await;
    loop {
        tokio::select! {
            () = over.cancelled() => return Ok(kills),
            _ = ticks.tick() => {
                gateways.kill(kills % 2);
                sleep(Duration::from_millis(300)).await;
                gateways.begin(kills % 2).await?;
                kills += 1;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_gets_each_task_done_once_while_gateways_are_killed() -> Result<()> {
    let Some(sandbox) = Sandbox::from_env().await? else { return Ok(()) };
    let size = Size::from_env();
    let topic = sandbox.topic("crowd");
    let client = Client::builder(sandbox.service_url()).admin_url(sandbox.admin().url());
    let client = client.connect().await?;
    client.setup_topics_with(&topic, TopicSettings::default()).await?;
    let queue = topic.rsplit('/').next().context("a topic has a name")?.to_owned();
    let gateways = Gateways::start(sandbox).await?;
    let over = CancellationToken::new();
    let http = reqwest::Client::builder().timeout(Duration::from_secs(15)).build()?;
    let crowd = Arc::new(Crowd {
        gateways: Arc::clone(&gateways),
        http,
        queue,
        told: Mutex::default(),
        over: over.clone(),
    });
    for number in 0..size.tasks {
        client.submit(&topic, &Text(number.to_string())).await?;
    }
    let mut working = JoinSet::new();
    for number in 0..size.workers {
        working.spawn(Arc::clone(&crowd).work(number));
    }
    let mut killing = JoinSet::new();
    killing.spawn(kill_in_turn(Arc::clone(&gateways), size.kill_every, over.clone()));
    let view = client.tasks(&topic).await?;
    let all_over = async {
        loop {
            let counts = view.counts()?;
            let over = counts.of(TaskStatus::Completed) + counts.of(TaskStatus::Failed);
            if over >= size.tasks as u64 {
                return anyhow::Ok(());
            }
            sleep(Duration::from_millis(100)).await;
        }
    };
    let ended = timeout(PATIENCE, all_over).await;
    over.cancel();
    ended.with_context(|| format!("not over: {:?}", view.counts()))??;
    let kills = killing.join_next().await.context("nobody has killed")???;
    while let Some(worked) = working.join_next().await {
        worked??;
    }
    judge(&client, &topic, size, kills, &crowd).await
}

async fn judge(
    client: &Client,
    topic: &str,
    size: Size,
    kills: usize,
    crowd: &Crowd,
) -> Result<()> {
    let told = std::mem::take(&mut *crowd.told.lock().unwrap_or_else(PoisonError::into_inner));
    let verified = client.verify(topic).await?;
    ensure!(verified.broken == 0, "{:?}", verified.findings);
    ensure!(verified.tasks == size.tasks as u64, "{} tasks", verified.tasks);
    let view = client.tasks(topic).await?;
    let (mut completed, mut place) = (BTreeSet::new(), None);
    loop {
        let page = view.list(&TaskFilter::new(), place, 500)?;
        for task in &page.tasks {
            ensure!(task.attempts <= 3, "{task:?}");
            ensure!(matches!(task.status, TaskStatus::Completed | TaskStatus::Failed), "{task:?}");
            if task.status == TaskStatus::Completed {
                completed.insert(task.id.to_string());
            }
        }
        place = page.next;
        if place.is_none() {
            break;
        }
    }
    let confirmed: BTreeSet<String> = told.succeeded.keys().cloned().collect();
    let lost: Vec<_> = confirmed.difference(&completed).collect();
    ensure!(lost.is_empty(), "successes that were confirmed do not count: {lost:?}");
    ensure!(
        told.succeeded.values().all(|count| *count == 1),
        "two successes of a task were confirmed"
    );
    let unexplained: Vec<_> = completed
        .iter()
        .filter(|task| !confirmed.contains(*task) && !told.unknown.contains(*task))
        .collect();
    ensure!(unexplained.is_empty(), "tasks were completed by nobody: {unexplained:?}");
    // A floor on what must have happened.
    ensure!(kills >= 1 && told.stale > 0 && told.failed > 0, "{kills} kills, {told:?}");
    say(&format!(
        "crowd: {} tasks, {} leases, {kills} kills, {} completed, {} failed reports, {} stale ones",
        size.tasks,
        told.leases,
        completed.len(),
        told.failed,
        told.stale
    ));
    Ok(())
}

#[expect(clippy::print_stderr, reason = "a test says what it measured")]
fn say(figures: &str) {
    eprintln!("{figures}");
}
