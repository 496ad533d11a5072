//! A gateway with a queue that has an example of everything, and a browser for it.

use anyhow::{Context, Result, ensure};
use integration_tests::browser::Browser;
use integration_tests::sandbox::Sandbox;
use integration_tests::until;
use longhaul::{Client, TaskContext, TaskError, Text, WorkerHandle, processor_fn};
use longhaul_server::{Server, ServerConfig};
use reqwest::Method;
use serde_json::{Value, json};
use std::time::Duration;

/// The limit for everything that is expected to happen.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// A text that would do harm if it became a part of the page.
pub(super) const HOSTILE: &str = "<img src=x onerror=\"window.harmed=1\"><script>window.harmed=1</script></pre></title>\u{202e}gpj.exe\u{7}";

/// The name of the stage's worker.
pub(super) const WORKER: &str = "worker-of-the-stage";

pub(super) struct Stage {
    pub(super) browser: Browser,
    pub(super) queue: String,
    pub(super) client: Client,
    pub(super) sandbox: Sandbox,
    server: Server,
    http: reqwest::Client,
    worker: WorkerHandle,
    /// A task that has completed, one that failed for good with a hostile text, and one that runs.
    pub(super) completed: String,
    pub(super) failed: String,
    pub(super) running: String,
}

/// A gateway with a broker.
pub(super) async fn gateway(
    client: &Client,
    change: impl FnOnce(&mut ServerConfig),
) -> Result<Server> {
    let mut config = ServerConfig::default();
    config.listen = "127.0.0.1:0".parse()?;
    // The queues of other tests have settings of their own.
    config.look_after_all = false;
    change(&mut config);
    Ok(Server::start(client.clone(), config).await?)
}

pub(super) async fn make_queue(server: &Server, queue: &str) -> Result<()> {
    let url = format!("{}/v1/queues/{queue}", server.url());
    let made = reqwest::Client::new().put(url).send().await?;
    ensure!(made.status() == 200, "{}", made.text().await?);
    Ok(())
}

/// Completes a task, fails it for good, or holds it until it is cancelled, as its payload says.
async fn work(task: Text, context: TaskContext) -> Result<Text, TaskError> {
    if task.0.starts_with("hold") {
        context.progress(1, 4, "half way");
        context.cancelled().await;
    }
    if task.0.starts_with("fail") {
        return Err(TaskError::fatal(HOSTILE));
    }
    Ok(Text(task.0))
}

impl Stage {
    pub(super) async fn new(sandbox: &Sandbox, browser: Browser) -> Result<Self> {
        let client = sandbox.client().await?;
        let topic = sandbox.topic("dashboard");
        let queue = topic.rsplit_once('/').context("it has a namespace")?.1.to_owned();
        let server = gateway(&client, |_| {}).await?;
        make_queue(&server, &queue).await?;
        let http = reqwest::Client::new();
        let worker = client.worker(format!("public/default/{queue}"), processor_fn(work));
        let worker = worker.name(WORKER).heartbeat(Duration::from_secs(1)).start().await?;
        let [completed, failed, running] = [String::new(), String::new(), String::new()];
        let stage = Self {
            browser,
            queue,
            client,
            sandbox: sandbox.clone(),
            server,
            http,
            worker,
            completed,
            failed,
            running,
        };
        let completed =
            stage.submit(&format!("{{\"text\": {}}}", json!(HOSTILE)), "completed").await?;
        let failed = stage.submit(&format!("fail {HOSTILE}"), "failed").await?;
        let running = stage.submit("hold", "running").await?;
        let nightly = json!({"schedule": {"cron": "30 2 * * *"}, "task": {"payload": "report"}});
        stage.api(Method::POST, "/schedules/nightly", nightly).await?;
        Ok(Self { completed, failed, running, ..stage })
    }

    /// The API's answer about the queue.
    pub(super) async fn api(&self, method: Method, path: &str, body: Value) -> Result<Value> {
        let url = format!("{}/v1/queues/{}{path}", self.server.url(), self.queue);
        let answer = self.http.request(method, url).json(&body).send().await?;
        let (status, text) = (answer.status(), answer.text().await?);
        ensure!(status.is_success(), "{path}: {status} {text}");
        Ok(serde_json::from_str(&text).unwrap_or_default())
    }

    /// Submits a task and waits until it has this status.
    pub(super) async fn submit(&self, payload: &str, status: &str) -> Result<String> {
        let task = json!({"payload": payload, "type": HOSTILE, "tags": ["eu"], "key": HOSTILE});
        let made = self.api(Method::POST, "/tasks", task).await?;
        let id = made["id"].as_str().context("it has an id")?.to_owned();
        self.until_status(&id, status).await?;
        Ok(id)
    }

    pub(super) async fn until_status(&self, id: &str, status: &str) -> Result<()> {
        let what = format!("{id} becomes {status}");
        until(&what, PATIENCE, async || {
            let found = self.api(Method::GET, &format!("/tasks/{id}"), json!({})).await?;
            Ok((found["status"] == json!(status)).then_some(()))
        })
        .await
    }

    /// The address of a page of the queue, from its path below the queue.
    pub(super) fn place(&self, below: &str) -> String {
        format!("{}/ui/queues/{}{below}", self.server.url(), self.queue)
    }

    pub(super) async fn open(&self, below: &str) -> Result<()> {
        self.browser.open(&self.place(below)).await
    }

    /// Opens an action that asks for a reason, gives one, and confirms.
    pub(super) async fn ask(&self, name: &str, reason: &str) -> Result<()> {
        let details = format!("//main//details[summary[normalize-space()='{name}']]");
        self.browser.click(&format!("{details}/summary")).await?;
        self.browser.write(&format!("{details}//input[@name='reason']"), reason).await?;
        self.browser.click(&format!("{details}//button")).await
    }

    pub(super) async fn press(&self, button: &str) -> Result<()> {
        self.browser.click(&format!("//main//button[normalize-space()='{button}']")).await
    }

    /// Another queue of the gateway, without workers.
    pub(super) async fn make(&self, queue: &str) -> Result<()> {
        make_queue(&self.server, queue).await
    }

    pub(super) fn root(&self) -> String {
        self.server.url()
    }

    pub(super) async fn end(self) -> Result<()> {
        self.browser.quit().await?;
        self.worker.drain(PATIENCE).await?;
        ensure!(self.server.drain(PATIENCE).await, "the gateway ends in order");
        Ok(())
    }
}
