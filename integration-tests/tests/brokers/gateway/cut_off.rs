//! A gateway that cannot reach the broker names one that can: it answers 503 with a hint, on the
//! routes of the dialect `dqueue`.

use super::*;
use integration_tests::sandbox::{BrokerConfig, Proxy};
use integration_tests::until;
use longhaul_server::Dialect;
use reqwest::Response;

const QUEUE: &str = "jobs";

impl Gateway {
    /// A gateway that serves the dialect `dqueue`.
    async fn of_dqueue(service_url: &str, broker: &Broker) -> Result<Self> {
        let of_dqueue = |config: &mut ServerConfig| {
            config.dialects = vec![Dialect::DQueue];
            config.dialect_queue = QUEUE.to_owned();
        };
        Self::at(service_url, broker.sandbox(), of_dqueue).await
    }

    async fn post_dqueue(&self, path: &str, body: Value) -> Result<Response> {
        let url = format!("{}{path}", self.server.url());
        Ok(self.http.post(url).json(&body).send().await?)
    }

    /// Waits until the gateway sees this number of workers of the queue; gateways are workers.
    async fn sees(&self, workers: usize) -> Result<()> {
        until("workers", PATIENCE, async || {
            let (_, listed) = self.get(&format!("/{QUEUE}/workers")).await?;
            let seen = listed.get("workers").and_then(Value::as_array).map_or(0, Vec::len);
            Ok((seen == workers).then_some(()))
        })
        .await
    }
}

fn header(answer: &Response, name: &str) -> Option<String> {
    Some(answer.headers().get(name)?.to_str().ok()?.to_owned())
}

/// Submits a task. A Pulsar that has just started may be too slow for the first attempts: the
/// gateway then reports that the broker is away.
async fn submitted(gateway: &Gateway, payload: &str) -> Result<Response> {
    until("a task is taken", PATIENCE, async || {
        let answer = gateway.post_dqueue("/tasks", json!({"payload": payload})).await?;
        ensure!(matches!(answer.status().as_u16(), 201 | 503), "{answer:?}");
        Ok((answer.status() == 201).then_some(answer))
    })
    .await
}

#[tokio::test]
async fn a_gateway_without_its_broker_names_one_that_has_it() -> Result<()> {
    let Some(mut broker) = Broker::from_env(BrokerConfig::default()).await? else { return Ok(()) };
    let proxy = Proxy::start(broker.service_url(), 1).await?;
    let whole = Gateway::of_dqueue(broker.service_url(), &broker).await?;
    submitted(&whole, "first").await?;
    whole.sees(1).await?;
    let cut = Gateway::of_dqueue(proxy.service_url(), &broker).await?;
    whole.sees(2).await?;
    // When the gateway answers these, it has looked for other gateways.
    cut.sees(2).await?;
    let submitted = submitted(&cut, "second").await?;
    let id = submitted.json::<Value>().await?["id"].as_str().context("it has an id")?.to_owned();

    drop(proxy);
    let wants = json!({"worker_id": "ann", "wait": "1s"});
    for (path, body) in [
        ("/tasks/lease".to_owned(), wants.clone()),
        ("/tasks".to_owned(), json!({"payload": "third"})),
        (format!("/tasks/{id}/ack"), json!({"worker_id": "ann", "lease_id": 1})),
    ] {
        let refused = until("a refusal", PATIENCE, async || {
            let answer = cut.post_dqueue(&path, body.clone()).await?;
            Ok((answer.status() == 503).then_some(answer))
        })
        .await?;
        ensure!(header(&refused, "retry-after").is_some(), "{path}: {refused:?}");
        let hint = header(&refused, "longhaul-gateway");
        ensure!(hint == Some(whole.server.url()), "{path}: {refused:?}");
    }
    // The native API names no gateway.
    let counts = format!("{}/v1/queues/{QUEUE}/counts", cut.server.url());
    let refused = cut.http.get(counts).send().await?;
    ensure!(refused.status() == 503, "{refused:?}");
    ensure!(header(&refused, "longhaul-gateway").is_none(), "{refused:?}");
    // A client that follows the hint gets a lease: of any task that the cut-off gateway had not
    // received before.
    let leased = until("a lease", PATIENCE, async || {
        let answer = whole.post_dqueue("/tasks/lease", wants.clone()).await?;
        Ok((answer.status() == 200).then_some(answer))
    })
    .await?;
    let leased: Value = leased.json().await?;
    let payload = leased["payload"].as_str().context("it has a payload")?;
    ensure!(["first", "second", "third"].contains(&payload), "{leased}");

    // With the broker itself dead no gateway can help, and the gateway reports that in the same
    // way.
    broker.kill().await?;
    let refused = until("a refusal", PATIENCE, async || {
        let answer = whole.post_dqueue("/tasks/lease", wants.clone()).await?;
        Ok((answer.status() == 503).then_some(answer))
    })
    .await?;
    ensure!(header(&refused, "retry-after").is_some(), "{refused:?}");
    Ok(())
}
