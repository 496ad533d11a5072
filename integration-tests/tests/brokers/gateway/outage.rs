//! A gateway whose broker dies reports that within seconds, to requests in progress and to new
//! ones, and recovers when the broker is back.

use super::*;
use integration_tests::sandbox::BrokerConfig;
use integration_tests::{stopwatch, until};
use reqwest::Response;

/// A gateway that has lost its broker answers after 2 s by default; a client of the broker gives up
/// after 20 to 30 s.
const SOON: Duration = Duration::from_secs(10);

impl Gateway {
    /// The status of a probe.
    async fn probe(&self, path: &str) -> Result<u16> {
        let answer = self.http.get(format!("{}{path}", self.server.url())).send().await?;
        Ok(answer.status().as_u16())
    }

    /// Sends a request that is refused because the broker is away, with a time to retry after.
    async fn refused(&self, method: Method, path: &str, body: Value) -> Result<Value> {
        let url = format!("{}/v1/queues{path}", self.server.url());
        let answer = self.http.request(method, url).json(&body).send().await?;
        let (status, headers) = (answer.status(), answer.headers().clone());
        let problem: Value = answer.json().await?;
        ensure!(status == 503 && headers.contains_key("retry-after"), "{path}: {status} {problem}");
        Ok(problem)
    }
}

/// Reads events until one of this kind comes.
async fn event(stream: &mut Response, kind: &str) -> Result<()> {
    let reading = async {
        let mut read = String::new();
        while !read.contains(&format!("event: {kind}\n")) {
            let chunk = stream.chunk().await?.context("the stream has ended")?;
            read.push_str(std::str::from_utf8(&chunk)?);
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(PATIENCE, reading).await.with_context(|| format!("no event {kind}"))?
}

#[tokio::test]
async fn a_gateway_whose_broker_is_dead_says_so_soon_and_is_itself_again() -> Result<()> {
    let Some(mut broker) = Broker::from_env(BrokerConfig::default()).await? else { return Ok(()) };
    let gateway = Gateway::start(broker.sandbox(), |_| {}).await?;
    ensure!(gateway.call(Method::PUT, "/jobs", json!({})).await?.0 == 200);
    let (status, task) = gateway.call(Method::POST, "/jobs/tasks", json!({"payload": "a"})).await?;
    ensure!(status == 201, "{task}");
    let id = task["id"].as_str().context("it has an id")?;
    ensure!(gateway.get("/jobs/counts").await?.0 == 200, "a view is open");
    let url = format!("{}/v1/queues/jobs/events", gateway.server.url());
    let mut stream = gateway.http.get(url).send().await?;
    event(&mut stream, "caught-up").await?;
    ensure!(gateway.probe("/readyz").await? == 200);

    // Requests in progress.
    let wait = format!("/jobs/tasks/{id}/wait?timeout=30s");
    let long = json!({"worker": "ann", "types": ["none"], "wait": "30s"});
    let polls = async {
        tokio::try_join!(
            gateway.refused(Method::GET, &wait, json!({})),
            gateway.refused(Method::POST, "/jobs/leases", long),
        )
    };
    let killed = async {
        // The answer to this later request shows that both requests wait at the gateway.
        ensure!(gateway.get("/jobs/counts").await?.0 == 200);
        broker.kill().await?;
        Ok(stopwatch())
    };
    let (polled, since) = tokio::try_join!(polls, killed)?;
    ensure!(since() < SOON, "long polls took {:?}", since());
    for problem in [&polled.0, &polled.1] {
        ensure!(problem["code"] == json!("broker_unreachable"), "{problem}");
    }
    event(&mut stream, "broker-lost").await?;

    // New requests.
    for (method, path, body) in [
        (Method::POST, "/jobs/tasks".to_owned(), json!({"payload": "b"})),
        (Method::GET, format!("/jobs/tasks/{id}"), json!({})),
        (Method::GET, "/jobs/tasks".to_owned(), json!({})),
        (Method::GET, "/jobs/counts".to_owned(), json!({})),
        (Method::GET, "/jobs/dead".to_owned(), json!({})),
        (Method::GET, String::new(), json!({})),
        (Method::POST, "/jobs/leases".to_owned(), json!({"worker": "ann", "wait": "30s"})),
        (Method::PUT, "/other".to_owned(), json!({})),
        (Method::GET, "/never-asked-for/tasks".to_owned(), json!({})),
        (Method::GET, "/jobs/events".to_owned(), json!({})),
    ] {
        let took = stopwatch();
        let problem = gateway.refused(method, &path, body).await?;
        ensure!(problem["code"] == json!("broker_unreachable"), "{path}: {problem}");
        ensure!(took() < SOON, "{path} took {:?}", took());
    }
    ensure!(gateway.probe("/readyz").await? == 503);
    ensure!(gateway.probe("/livez").await? == 200 && gateway.probe("/healthz").await? == 200);
    let metrics = format!("{}/metrics", gateway.server.url());
    let metrics = gateway.http.get(metrics).send().await?.text().await?;
    ensure!(metrics.contains("longhaul_broker_lost_total "), "{metrics}");

    // The gateway becomes ready again without any request that needs the broker.
    broker.start().await?;
    until("readiness", PATIENCE, async || {
        Ok((gateway.probe("/readyz").await? == 200).then_some(()))
    })
    .await?;
    event(&mut stream, "broker-back").await?;
    // A Pulsar that has just started answers before it serves its topics.
    until("a submission", PATIENCE, async || {
        let task = json!({"payload": "b"});
        let (status, answer) = gateway.call(Method::POST, "/jobs/tasks", task).await?;
        ensure!(status == 201 || status == 503, "{status} {answer}");
        Ok((status == 201).then_some(()))
    })
    .await?;
    ensure!(gateway.server.drain(PATIENCE).await, "in order");
    Ok(())
}

/// Many requests come at once for a queue that the gateway does not know yet. Once the first was
/// told that the admin API does not answer, and the others that there is no such queue.
#[tokio::test]
async fn a_queue_that_nobody_can_tell_of_is_not_said_to_be_missing() -> Result<()> {
    const REQUESTS: usize = 20;
    let Some(sandbox) = Sandbox::from_env().await? else { return Ok(()) };
    let admin = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", admin.local_addr()?);
    let client = Client::builder(sandbox.service_url()).admin_url(url).connect().await?;
    let mut config = ServerConfig::default();
    config.listen = "127.0.0.1:0".parse()?;
    config.look_after_all = false;
    let server = Server::start(client, config).await?;
    let gateway = Gateway { server, http: reqwest::Client::new() };
    let hanging_up = async {
        loop {
            let Ok((connection, _)) = admin.accept().await else { return };
            // The other requests come meanwhile.
            tokio::time::sleep(Duration::from_millis(300)).await;
            drop(connection);
        }
    };
    let queue = name(&sandbox)?;
    let path = format!("/{queue}/tasks");
    let asked = (0..REQUESTS).map(|_| gateway.refused(Method::GET, &path, json!({})));
    let asked = futures::future::try_join_all(asked);
    let problems = tokio::select! {
        problems = asked => problems?,
        () = hanging_up => anyhow::bail!("the admin API has ended"),
    };
    for problem in problems {
        ensure!(problem["code"] == json!("broker_unreachable"), "{problem}");
    }
    Ok(())
}

/// With its broker dead the gateway cannot leave its queues, and still ends.
#[tokio::test]
async fn a_gateway_whose_broker_is_dead_ends_within_its_time() -> Result<()> {
    let Some(mut broker) = Broker::from_env(BrokerConfig::default()).await? else { return Ok(()) };
    let gateway = Gateway::start(broker.sandbox(), |_| {}).await?;
    ensure!(gateway.call(Method::PUT, "/jobs", json!({})).await?.0 == 200);
    let leases = json!({"worker": "ann", "wait": "0s"});
    let (status, none) = gateway.call(Method::POST, "/jobs/leases", leases).await?;
    ensure!(status == 204, "{none}");
    let url = format!("{}/v1/queues/jobs/events", gateway.server.url());
    let mut stream = gateway.http.get(url).send().await?;
    event(&mut stream, "caught-up").await?;
    broker.kill().await?;
    event(&mut stream, "broker-lost").await?;
    let (limit, took) = (Duration::from_secs(12), stopwatch());
    gateway.server.drain(limit).await;
    ensure!(took() <= limit + Duration::from_secs(1), "it took {:?} of {limit:?}", took());
    Ok(())
}
