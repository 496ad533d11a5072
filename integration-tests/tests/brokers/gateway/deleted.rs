//! A queue that is deleted at one gateway while another one looks after it.

use super::*;
use integration_tests::sandbox::BrokerConfig;
use integration_tests::until;

/// The topics of the default namespace whose names begin with that of the queue.
async fn topics_of(gateway: &Gateway, broker: &Broker, queue: &str) -> Result<Vec<String>> {
    let url = format!("{}/admin/v2/persistent/public/default", broker.admin().url());
    let all: Vec<String> = gateway.http.get(url).send().await?.json().await?;
    let prefix = format!("persistent://public/default/{queue}");
    Ok(all.into_iter().filter(|topic| topic.starts_with(&prefix)).collect())
}

/// The sessions of the other gateway's desk, and of its view of the tasks, opened their topics again
/// and so created them, without their policies.
#[tokio::test]
async fn a_deleted_queue_does_not_come_back_by_another_gateway() -> Result<()> {
    let Some(broker) = Broker::from_env(BrokerConfig::default()).await? else { return Ok(()) };
    let (one, other) = (Gateway::of(&broker).await?, Gateway::of(&broker).await?);
    for queue in ["plain", "levels"] {
        let made = json!({"levels": queue == "levels"});
        ensure!(one.call(Method::PUT, &format!("/{queue}"), made.clone()).await?.0 == 200);
        let leases = format!("/{queue}/leases");
        let asks = json!({"worker": "ann"});
        let tasks = format!("/{queue}/tasks");
        for gateway in [&one, &other] {
            let (status, leased) = gateway.call(Method::POST, &leases, asks.clone()).await?;
            ensure!(status == 204, "{status} {leased}");
            let (status, listed) = gateway.get(&tasks).await?;
            ensure!(status == 200, "{status} {listed}");
        }
        let deletion = format!("/{queue}?reason=test");
        let (status, deleted) = one.call(Method::DELETE, &deletion, json!({})).await?;
        ensure!(status == 204, "{status} {deleted}");
        until("the other gateway knows that the queue is gone", PATIENCE, async || {
            let (status, _) = other.call(Method::POST, &leases, asks.clone()).await?;
            Ok((status == 404).then_some(()))
        })
        .await?;
        // Sessions are opened again within 5 s. No event tells that none was.
        for _ in 0..60 {
            let left = topics_of(&one, &broker, queue).await?;
            ensure!(left.is_empty(), "{left:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }

        // It can be created again, and both gateways use it.
        let (status, made) = one.call(Method::PUT, &format!("/{queue}"), made).await?;
        ensure!(status == 200, "{status} {made}");
        let (status, task) = one.call(Method::POST, &tasks, json!({"payload": "a"})).await?;
        ensure!(status == 201, "{task}");
        let asks = json!({"worker": "ann", "wait": "30s"});
        let (status, leased) = other.call(Method::POST, &leases, asks).await?;
        ensure!(status == 200, "{leased}");
    }
    Ok(())
}
