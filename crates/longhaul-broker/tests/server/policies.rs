//! Policies whose effect is a matter of time.

use crate::client::{Client, PATIENCE, ask, ask_with, encode_publish};
use bytes::BytesMut;
use longhaul_broker::{Broker, BrokerConfig};
use longhaul_wire::frame;
use longhaul_wire::messages::{Command, CommandGetTopicsOfNamespace, CommandPing};
use std::time::{Duration, Instant};
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

/// The first 20 messages are taken at once.
#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "what it is about is a duration")]
async fn a_client_cannot_publish_faster_than_the_rate() {
    let broker = with_policy("publishRate", r#"{"publishThrottlingRateInMsg": 20}"#);
    let mut client = Client::producer(broker.address(), "t").await.unwrap();
    let began = Instant::now();
    for sequence in 0..32 {
        timeout(PATIENCE, client.publish_one(1, sequence, b"x")).await.unwrap().unwrap();
    }
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(10 * 1000 / 20 - 50), "{took:?}");
    broker.shutdown().unwrap();
}

/// Requests that are no publishes ended the pauses of a client, so that it published a thousand
/// messages between two of them. A list of topics waited for room that its own connection held, for
/// ever.
#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "what it is about is a duration")]
async fn a_client_that_does_more_than_publish_keeps_the_rate_too() {
    const MESSAGES: u64 = 600;
    let broker = with_policy("publishRate", r#"{"publishThrottlingRateInMsg": 200}"#);
    let mut client = Client::producer(broker.address(), "t").await.unwrap();
    let began = Instant::now();
    let mut out = BytesMut::new();
    for sequence in 0..MESSAGES {
        encode_publish(1, sequence, b"x", &mut out);
        frame::encode(CommandPing {}, &mut out);
    }
    let (request_id, namespace) = (client.request_id(), "public/default".to_owned());
    frame::encode(
        CommandGetTopicsOfNamespace { request_id, namespace, ..Default::default() },
        &mut out,
    );
    client.write(&out).await.unwrap();
    let (mut receipts, mut is_listed) = (0, false);
    while receipts < MESSAGES || !is_listed {
        match timeout(PATIENCE, client.answer()).await.unwrap().unwrap().command {
            Command::SendReceipt(_) => receipts += 1,
            Command::GetTopicsOfNamespaceResponse(_) => is_listed = true,
            _ => {}
        }
    }
    let took = began.elapsed();
    assert!(took >= Duration::from_millis((MESSAGES - 200) * 1000 / 200 - 50), "{took:?}");
    broker.shutdown().unwrap();
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
