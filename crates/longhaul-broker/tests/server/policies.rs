//! Policies whose effect is a matter of time.

use crate::client::{Client, PATIENCE, ask, ask_with};
use longhaul_broker::{Broker, BrokerConfig};
use tokio::time::timeout;

const TOPIC: &str = "/admin/v2/persistent/public/default/t";

fn with_policy(name: &str, value: &str) -> Broker {
    let admin = Some(([127, 0, 0, 1], 0).into());
    let broker = Broker::start(BrokerConfig { admin, ..BrokerConfig::default() }).unwrap();
    assert!(ask(&broker, "PUT", TOPIC).contains(" 204 "));
    let url = broker.admin_url().unwrap();
    let host = url.trim_start_matches("http://");
    let answer = ask_with(host, "POST", &format!("{TOPIC}/{name}"), value);
    assert!(answer.contains(" 204 "), "{answer}");
    broker
}

#[tokio::test]
async fn a_topic_that_nobody_uses_is_deleted() {
    let policy = r#"{"inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up",
        "maxInactiveDurationSeconds": 1, "deleteWhileInactive": true}"#;
    let broker = with_policy("inactiveTopicPolicies", policy);
    let mut client = Client::connect(broker.address()).await.unwrap();
    client.subscribe("t", "s", 1).await.unwrap();
    client.produce("t", 1).await.unwrap();
    client.publish_one(1, 0, b"x").await.unwrap();
    client.flow(1, 10).await.unwrap();
    let ids = client.messages(1).await.unwrap();
    client.ack(1, ids[0].clone(), 9).await.unwrap();
    client.answer().await.unwrap();
    drop(client);
    let gone = tokio::task::spawn_blocking(move || {
        while ask(&broker, "GET", &format!("{TOPIC}/stats")).contains(" 200 ") {}
        broker.shutdown().unwrap();
    });
    timeout(PATIENCE, gone).await.unwrap().unwrap();
}
