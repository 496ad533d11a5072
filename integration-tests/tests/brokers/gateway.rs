//! The gateway with a real broker: it creates, lists and deletes queues, passes tasks through two
//! gateways, and reports a queue that does not exist.
//!
//! The broker is that of `LONGHAUL_TEST_BROKER`.

mod cut_off;
mod deleted;
mod ends;
mod outage;
mod types;
mod wrong;

use anyhow::{Context, Result, ensure};
use integration_tests::generated::{GeneratedClients, GeneratorLibrary};
use integration_tests::sandbox::{Broker, Sandbox};
use integration_tests::say;
use longhaul::{Client, TaskContext, Text, processor_fn};
use longhaul_server::{Server, ServerConfig};
use reqwest::Method;
use serde_json::{Value, json};
use std::time::Duration;

/// The limit for everything that is expected to happen.
const PATIENCE: Duration = Duration::from_secs(60);

struct Gateway {
    server: Server,
    http: reqwest::Client,
}

impl Gateway {
    async fn start(sandbox: &Sandbox, change: impl FnOnce(&mut ServerConfig)) -> Result<Self> {
        let change = |config: &mut ServerConfig| {
            // The queues of other tests have settings of their own.
            config.look_after_all = false;
            change(config);
        };
        Self::at(sandbox.service_url(), sandbox, change).await
    }

    /// A gateway that looks after all queues, which is the default.
    async fn of(broker: &Broker) -> Result<Self> {
        Self::at(broker.service_url(), broker.sandbox(), |_| {}).await
    }

    /// A gateway in front of the broker at this URL, with the admin API of the sandbox.
    async fn at(
        service_url: &str,
        sandbox: &Sandbox,
        change: impl FnOnce(&mut ServerConfig),
    ) -> Result<Self> {
        let builder = Client::builder(service_url);
        let client = builder.admin_url(sandbox.admin().url()).connect().await?;
        let mut config = ServerConfig::default();
        config.listen = "127.0.0.1:0".parse()?;
        change(&mut config);
        let server = Server::start(client, config).await?;
        Ok(Self { server, http: reqwest::Client::new() })
    }

    /// The status and the body of the answer to a request.
    async fn call(&self, method: Method, path: &str, body: Value) -> Result<(u16, Value)> {
        let url = format!("{}/v1/queues{path}", self.server.url());
        let answer = self.http.request(method, url).json(&body).send().await?;
        let status = answer.status().as_u16();
        Ok((status, answer.json().await.unwrap_or_default()))
    }

    async fn get(&self, path: &str) -> Result<(u16, Value)> {
        self.call(Method::GET, path, json!({})).await
    }
}

/// A name that no other test uses.
fn name(sandbox: &Sandbox) -> Result<String> {
    let topic = sandbox.topic("gateway");
    Ok(topic.rsplit_once('/').context("it has a namespace")?.1.to_owned())
}

#[tokio::test]
async fn a_queue_is_made_used_through_two_gateways_and_deleted() -> Result<()> {
    let Some(sandbox) = Sandbox::from_env().await? else { return Ok(()) };
    let queue = name(&sandbox)?;
    let one = Gateway::start(&sandbox, |_| {}).await?;
    let other = Gateway::start(&sandbox, |_| {}).await?;
    let path = format!("/{queue}");
    let (status, made) = one
        .call(Method::PUT, &path, json!({"partitions": 2, "levels": true, "defaults": "moab"}))
        .await?;
    ensure!(status == 200 && made["steps"].as_array().is_some_and(|it| it.len() > 3), "{made}");
    let (status, again) = other
        .call(Method::PUT, &path, json!({"partitions": 2, "levels": true, "defaults": "moab"}))
        .await?;
    ensure!(status == 200 && again["steps"] == json!([]), "everything is right already: {again}");
    let (_, shown) = other.get(&path).await?;
    let settings = json!({"paused": false, "max_attempts": 1, "expires_after": "PT336H", "dead_letters": {"enabled": false}});
    ensure!(shown["version"] == 1 && shown["settings"] == settings, "{shown}");
    let (_, listed) = other.get("").await?;
    ensure!(listed["queues"].as_array().is_some_and(|it| it.contains(&json!(queue))), "{listed}");
    ensure!(
        !listed.to_string().contains(&format!("{queue}-high")),
        "a level is no queue: {listed}"
    );

    let tasks = format!("/{queue}/tasks");
    let task = json!({"payload": "hello", "idempotency_key": "once", "priority": "high"});
    let (status, first) = one.call(Method::POST, &tasks, task.clone()).await?;
    ensure!(status == 201, "{first}");
    let (_, second) = other.call(Method::POST, &tasks, task).await?;
    ensure!(first["id"] == second["id"], "one key, one task: {first} {second}");
    let id = first["id"].as_str().context("it has an id")?.to_owned();
    let wait = format!("{tasks}/{id}/wait?timeout=1s");
    ensure!(one.get(&wait).await?.0 == 204, "nobody works yet");

    let client = Client::builder(sandbox.service_url()).connect().await?;
    let shout = processor_fn(async |text: Text, _: TaskContext| Ok(Text(text.0.to_uppercase())));
    let worker = client.worker(format!("public/default/{queue}"), shout);
    let worker = worker.levels(longhaul::Levels::strict()).heartbeat(Duration::from_secs(1));
    let worker = worker.start().await?;
    for gateway in [&one, &other] {
        let (status, over) = gateway.get(&format!("{tasks}/{id}/wait")).await?;
        ensure!(status == 200 && over["status"] == json!("completed"), "{over}");
        let url = format!("{}/v1/queues{tasks}/{id}/result", gateway.server.url());
        let result = gateway.http.get(url).send().await?.bytes().await?;
        ensure!(result == "HELLO", "{result:?}");
    }
    worker.drain(PATIENCE).await?;

    ensure!(other.call(Method::DELETE, &format!("{path}?reason=test"), json!({})).await?.0 == 204);
    let (_, listed) = one.get("").await?;
    ensure!(!listed["queues"].as_array().is_some_and(|it| it.contains(&json!(queue))), "{listed}");
    ensure!(other.call(Method::DELETE, &path, json!({})).await?.0 == 404, "it is gone");
    ensure!(one.server.drain(PATIENCE).await && other.server.drain(PATIENCE).await, "in order");
    Ok(())
}

#[tokio::test]
async fn a_queue_that_does_not_exist_is_an_error_unless_it_is_to_be_made() -> Result<()> {
    let Some(sandbox) = Sandbox::from_env().await? else { return Ok(()) };
    let (queue, wanted) = (name(&sandbox)?, name(&sandbox)?);
    let strict = Gateway::start(&sandbox, |_| {}).await?;
    for (method, path, body) in [
        (Method::POST, format!("/{queue}/tasks"), json!({"payload": "a"})),
        (Method::POST, format!("/{queue}/tasks:batch"), json!({"tasks": [{"payload": "a"}]})),
        (Method::GET, format!("/{queue}"), json!({})),
        (Method::GET, format!("/{queue}/tasks"), json!({})),
        (Method::GET, format!("/{queue}/tasks/1:2:-1/wait"), json!({})),
        (Method::GET, format!("/{queue}/dead"), json!({})),
        (Method::GET, format!("/{queue}/events"), json!({})),
        (Method::POST, format!("/{queue}:pause"), json!({})),
        (Method::GET, format!("/{queue}/schedules"), json!({})),
    ] {
        let (status, problem) = strict.call(method.clone(), &path, body).await?;
        ensure!(
            status == 404 && problem["code"] == json!("queue_not_found"),
            "{method} {path}: {problem}"
        );
        ensure!(
            problem["detail"].as_str().is_some_and(|it| it.contains("PUT /v1/queues/")),
            "{problem}"
        );
    }
    let (_, listed) = strict.get("").await?;
    ensure!(!listed.to_string().contains(&queue), "nothing was made: {listed}");

    let lenient = Gateway::start(&sandbox, |config| config.create_queues = true).await?;
    let (status, made) =
        lenient.call(Method::POST, &format!("/{wanted}/tasks"), json!({"payload": "a"})).await?;
    ensure!(status == 201, "{made}");
    let (_, counts) = strict.get(&format!("/{wanted}/counts")).await?;
    ensure!(counts["total"] == json!(1), "{counts}");
    Ok(())
}

/// Tasks of a priority without a topic would wait for ever.
#[tokio::test]
async fn a_queue_without_levels_takes_no_priorities_and_can_get_them() -> Result<()> {
    let Some(sandbox) = Sandbox::from_env().await? else { return Ok(()) };
    let queue = name(&sandbox)?;
    let gateway = Gateway::start(&sandbox, |_| {}).await?;
    let (path, tasks) = (format!("/{queue}"), format!("/{queue}/tasks"));
    ensure!(gateway.call(Method::PUT, &path, json!({})).await?.0 == 200);
    let urgent = json!({"payload": "a", "priority": "high"});
    let (status, problem) = gateway.call(Method::POST, &tasks, urgent.clone()).await?;
    ensure!(status == 409 && problem["code"] == json!("queue_has_no_levels"), "{problem}");
    let replay = json!({"all": true, "changes": {"priority": "high"}});
    let (status, problem) =
        gateway.call(Method::POST, &format!("{path}/dead:replay"), replay.clone()).await?;
    ensure!(status == 409 && problem["code"] == json!("queue_has_no_levels"), "{problem}");
    ensure!(gateway.call(Method::PUT, &path, json!({"levels": true})).await?.0 == 200);
    let (status, replayed) =
        gateway.call(Method::POST, &format!("{path}/dead:replay"), replay).await?;
    ensure!(status == 200 && replayed["outcomes"] == json!([]), "{replayed}");
    let (status, submitted) = gateway.call(Method::POST, &tasks, urgent).await?;
    ensure!(status == 201, "{submitted}");
    let (_, listed) = gateway.get(&format!("{tasks}?level=high")).await?;
    ensure!(listed["tasks"][0]["id"] == submitted["id"], "{listed}");
    Ok(())
}

/// The OpenAPI document is complete and correct: the clients that a common generator makes of it
/// compile and work, and each answer is as described.
#[tokio::test]
async fn clients_that_are_generated_from_the_document_work_with_leases() -> Result<()> {
    let Some(sandbox) = Sandbox::from_env().await? else { return Ok(()) };
    let Some(clients) = GeneratedClients::prepare().await? else { return Ok(()) };
    let gateway = Gateway::start(&sandbox, |_| {}).await?;
    let url = gateway.server.url();
    let lines = clients.work(GeneratorLibrary::OkHttp, &url, &name(&sandbox)?).await?;
    let expected = [
        "leased true 1 hello",
        "kept alive, cancelled: false generated",
        "completed 1",
        "HELLO",
        "RESULT_OK",
        "failed",
        "dead: Processing error: it is broken",
        "nothing to lease: true",
        "404 task_not_found",
        "tasks: 2 2",
    ];
    ensure!(lines == expected, "{lines:#?}");
    let lines = clients.work(GeneratorLibrary::Native, &url, &name(&sandbox)?).await?;
    let expected = [
        "leased true hello",
        "kept alive, cancelled: false, longer: true",
        "completed 1",
        "HELLO",
        "nothing to lease: true",
        "404 true",
    ];
    ensure!(lines == expected, "{lines:#?}");
    Ok(())
}
