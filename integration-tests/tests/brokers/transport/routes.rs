//! Routes to a topic's broker that only a real Pulsar has: its proxy, and brokers that redirect to
//! one another.
//!
//! Each test first asks by hand for the broker's answer to a lookup, so that it cannot pass where
//! the route is not used.

use crate::support::{Broker, within};
use crate::transport::{EARLIEST, follow_to, keys, publish, take};
use anyhow::{Context, Result, bail, ensure};
use bytes::BytesMut;
use integration_tests::sandbox::{
    BrokerKind, Cluster, PULSAR_VERSION, PulsarProxy, Sandbox, pulsar_version,
};
use integration_tests::skip;
use longhaul_session::{ConnectOptions, PulsarTransport};
use longhaul_transport::{Batching, TopicPartition, Transport, TransportErrorKind};
use longhaul_wire::frame;
use longhaul_wire::messages::{
    Command, CommandConnect, CommandLookupTopic, CommandLookupTopicResponse, LookupType,
};
use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const MESSAGE_BYTES_MAX: usize = 5 * 1024 * 1024;

/// A broker's answer to the first lookup of a topic.
#[expect(clippy::wildcard_enum_match_arm, reason = "whatever else comes fails the test")]
async fn look_up(url: &str, topic: &TopicPartition) -> Result<CommandLookupTopicResponse> {
    let host = url.strip_prefix("pulsar://").context("not a pulsar:// URL")?;
    let mut stream = TcpStream::connect(host).await?;
    let connect = CommandConnect {
        client_version: "routes".to_owned(),
        protocol_version: Some(21),
        ..CommandConnect::default()
    };
    let lookup = CommandLookupTopic { topic: topic.to_string(), ..CommandLookupTopic::default() };
    let mut bytes = BytesMut::new();
    frame::encode(connect, &mut bytes);
    stream.write_all(&bytes).await?;
    bytes.clear();
    within("an answer to the lookup", async {
        loop {
            while let Some(frame) = frame::decode(&mut bytes, MESSAGE_BYTES_MAX)? {
                match frame.command {
                    // A proxy accepts no command before it has answered the handshake.
                    Command::Connected(_) => {
                        let mut question = BytesMut::new();
                        frame::encode(lookup.clone(), &mut question);
                        stream.write_all(&question).await?;
                    }
                    Command::LookupResponse(answer) => return Ok(*answer),
                    other => bail!("{url} answers {other:?}"),
                }
            }
            if stream.read_buf(&mut bytes).await? == 0 {
                bail!("{url} hangs up");
            }
        }
    })
    .await?
}

/// Publishes, reads and consumes.
async fn use_topic(transport: &PulsarTransport, topic: &TopicPartition) -> Result<()> {
    let mut consumer = transport.consumer(topic, "s").await?;
    let stored = publish(transport, topic, Batching::On, keys(10)).await?;
    let mut follower = transport.follower(topic, EARLIEST).await?;
    follow_to(&mut follower, *stored.last().context("none was stored")?).await?;
    for message in take(&mut consumer, 10).await? {
        within("an ack's receipt", consumer.ack(message.position.entry_id())).await??;
    }
    Ok(())
}

/// Behind a proxy no broker can be reached directly: the client passes the broker that a lookup
/// names to the proxy.
#[tokio::test]
async fn a_proxy_takes_us_to_the_topics_broker() -> Result<()> {
    let Some(sandbox) = Sandbox::from_env().await? else { return Ok(()) };
    if Sandbox::pulsar_kind()? != Some(BrokerKind::Maven) {
        skip("Pulsar's proxy is started before a broker from Maven artifacts only");
        return Ok(());
    }
    if pulsar_version()? != PULSAR_VERSION {
        skip("Pulsar's proxy comes along with the default version of Pulsar alone");
        return Ok(());
    }
    let topic = Broker::from_env().await?.context("there was one")?.topic("proxied");
    let proxy = PulsarProxy::launch(&sandbox).await?;
    let url = proxy.service_url();
    let answer = look_up(&url, &topic).await;
    let answer = answer.with_context(|| format!("the proxy's log:\n{}", proxy.log_tail()))?;
    ensure!(answer.proxy_through_service_url == Some(true), "{answer:?}");
    ensure!(answer.broker_service_url.as_deref() == Some(sandbox.service_url()), "{answer:?}");

    let transport = PulsarTransport::connect(ConnectOptions::new(&url)).await?;
    use_topic(&transport, &topic).await?;
    // A connection that bypassed the proxy would survive its end.
    let mut consumer = transport.consumer(&topic, "s").await?;
    drop(proxy);
    let Err(lost) = within("the end of the session", consumer.next()).await? else {
        bail!("a delivery");
    };
    ensure!(lost.kind == TransportErrorKind::Unreachable, "{lost}");
    Ok(())
}

/// A broker that does not own any part of a namespace redirects to the one that assigns its parts.
#[tokio::test]
async fn a_broker_that_does_not_own_a_topic_sends_us_on() -> Result<()> {
    if std::env::var("LONGHAUL_TEST_CLUSTER").is_ok_and(|switch| switch == "1") {
        let mut cluster = Cluster::launch().await?;
        follow_redirects(&mut cluster).await
    } else {
        skip("LONGHAUL_TEST_CLUSTER is not 1");
        Ok(())
    }
}

async fn follow_redirects(cluster: &mut Cluster) -> Result<()> {
    let urls: Vec<String> = cluster.service_urls().collect();
    let admin = cluster.admin()?;
    let mut redirects = 0;
    for (number, url) in urls.iter().enumerate() {
        // No broker owns any part of the namespace yet, and our own lookup must not change that.
        let namespace = format!("public/redirects-{number}");
        let policies = json!({ "replication_clusters": ["local"] });
        admin.call(Method::PUT, &format!("namespaces/{namespace}"), Some(&policies)).await?;
        let topic = format!("persistent://{namespace}/topic");
        let topic = TopicPartition { topic, partition: -1 };
        let answer = look_up(url, &topic).await?;
        let is_redirect = answer.response == Some(LookupType::Redirect.into());
        redirects += usize::from(is_redirect);
        let transport = PulsarTransport::connect(ConnectOptions::new(url)).await?;
        use_topic(&transport, &topic).await.with_context(|| format!("by {url}: {answer:?}"))?;
        // Now the topic has an owner that the other broker knows.
        let owner = cluster.owner(&topic.topic).await?;
        for other in urls.iter().filter(|other| urls.get(owner) != Some(other)) {
            let transport = PulsarTransport::connect(ConnectOptions::new(other)).await?;
            use_topic(&transport, &topic).await.with_context(|| format!("by {other}"))?;
        }
    }
    ensure!(redirects > 0, "no broker sent us on");
    Ok(())
}
