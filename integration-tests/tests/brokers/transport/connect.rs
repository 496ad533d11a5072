//! Finding a broker and its topics, or an early error.

use crate::support::{self, Broker};
use crate::transport::{EARLIEST, follow_to, keys, publish, take};
use anyhow::{Context, Result, bail, ensure};
use longhaul_session::{ConnectOptions, PulsarTransport};
use longhaul_transport::{Batching, TopicPartition, Transport, TransportErrorKind};
use std::time::Duration;

#[tokio::test]
async fn partitions_are_counted_and_nothing_is_created() -> Result<()> {
    let Some(broker) = Broker::from_env().await? else { return Ok(()) };
    let (transport, topic) = (broker.connect().await?, broker.topic("partitions"));
    ensure!(transport.partitions(&topic.topic).await?.is_none());
    ensure!(!broker.exists(&topic).await?, "asking has created the topic");
    broker.admin.create_partitioned_topic(&topic.topic, 3).await?;
    ensure!(transport.partitions(&topic.topic).await? == Some(3));
    let short = topic.topic.rsplit('/').next().context("no name")?;
    ensure!(transport.partitions(short).await? == Some(3));
    let partition = TopicPartition { topic: topic.topic.clone(), partition: 2 };
    let stored = publish(&transport, &partition, Batching::Off, keys(2)).await?;
    let mut consumer = transport.consumer(&partition, "s").await?;
    ensure!(take(&mut consumer, 2).await?[1].position == stored[1]);
    let mut follower = transport.follower(&partition, EARLIEST).await?;
    ensure!(follow_to(&mut follower, stored[1]).await?.len() == 2);
    ensure!(transport.fetch(&partition, stored[0]).await?.is_some());
    let plain = broker.topic("unpartitioned");
    publish(&transport, &plain, Batching::Off, keys(1)).await?;
    ensure!(transport.partitions(&plain.topic).await?.is_none());
    Ok(())
}

#[tokio::test]
async fn connecting_fails_soon_and_says_why() -> Result<()> {
    use TransportErrorKind::{Invalid, Refused, Unreachable};
    let Some(broker) = Broker::from_env().await? else { return Ok(()) };
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let silent = silent.local_addr()?.to_string();
    let closed = {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        listener.local_addr()?.to_string()
    };
    let host = broker.url.trim_start_matches("pulsar://").to_owned();
    let admin = broker.admin.url();
    for (url, kind, words) in [
        (format!("pulsar://{closed}"), Unreachable, "refused"),
        (format!("pulsar://{silent}"), Unreachable, "no connection within"),
        (admin.replacen("http", "pulsar", 1), Refused, "HTTP"),
        (format!("pulsar+ssl://{host}"), Unreachable, "TLS"),
        ("pulsar://broker.invalid:6650".to_owned(), Unreachable, "name lookup"),
        ("pulsar://192.0.2.1:6650".to_owned(), Unreachable, ""),
        (admin.to_owned(), Invalid, "scheme"),
        ("broker:6650".to_owned(), Invalid, "not a URL"),
        ("pulsar://broker:port".to_owned(), Invalid, "host and port"),
    ] {
        let started = support::now();
        let Err(error) = PulsarTransport::connect(ConnectOptions::new(&url)).await else {
            bail!("{url}: connected");
        };
        support::note(&format!("{:?}: {error}", started.elapsed()));
        ensure!(error.kind == kind && error.cause.contains(words), "{url}: {error:?}");
        ensure!(error.address.contains(url.rsplit('/').next().unwrap_or("")), "{error:?}");
        ensure!(kind != Unreachable || error.address.starts_with(&url), "{error:?}");
        ensure!(started.elapsed() < Duration::from_secs(10), "{url}: {:?}", started.elapsed());
    }
    // One host of several that answers is enough.
    let transport =
        PulsarTransport::connect(ConnectOptions::new(format!("pulsar://{closed},{host}"))).await?;
    publish(&transport, &broker.topic("hosts"), Batching::Off, keys(1)).await?;
    Ok(())
}
