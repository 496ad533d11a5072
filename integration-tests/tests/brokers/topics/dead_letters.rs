//! Dead letters stay until they are handled, whatever else the broker deletes.

use anyhow::{Result, ensure};
use integration_tests::bench::Bench;
use integration_tests::sandbox::{Broker, BrokerConfig, BrokerKind};
use integration_tests::script::Scripted;
use longhaul::topics::DEAD_LETTER_SUBSCRIPTION;
use longhaul::{Client, Text};
use longhaul_transport::{Batching, Message, Outgoing, TopicPartition, TopicSchema, Transport};
use std::collections::BTreeSet;
use std::time::Duration;

const LETTERS: usize = 20;
/// The limit for steps that the broker or a worker completes within seconds.
const LIMIT: Duration = Duration::from_secs(60);

/// A stock Pulsar that trims every second and deletes a topic after ten idle seconds instead of
/// after a minute or two. Set-up itself must take less than that between creating a topic and
/// marking it as permanent.
fn hasty() -> BrokerConfig {
    let settings = [
        ("brokerDeleteInactiveTopicsFrequencySeconds", "1"),
        ("brokerDeleteInactiveTopicsMaxInactiveDurationSeconds", "10"),
        ("retentionCheckIntervalInSeconds", "1"),
        ("managedLedgerMaxEntriesPerLedger", "5"),
        ("managedLedgerMinLedgerRolloverTimeMinutes", "0"),
    ];
    let extra = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    BrokerConfig { extra, ..BrokerConfig::default() }
}

/// A stock Pulsar once deleted the idle topic with all dead letters 79 s after the last worker had
/// gone, because set-up did not know the topic. The test also puts the same messages on a topic
/// without set-up: once the broker has deleted that one, it could have deleted the dead letters
/// too.
#[tokio::test]
async fn dead_letters_outlive_the_workers() -> Result<()> {
    let Some(kind) = BrokerKind::from_env()? else { return Ok(()) };
    let mut broker = Broker::launch(kind, hasty()).await?;
    let bench = Bench::on(broker.sandbox().clone(), "letters", None).await?;

    let worker = bench.worker(Scripted::default()).await?.start().await?;
    let client = Client::connect(bench.service_url()).await?;
    let mut ids = BTreeSet::new();
    for _ in 0..LETTERS {
        let task = client.submit(&bench.names().task, &Text("0|fatal broken".to_owned())).await?;
        ids.insert(task.id.to_string());
    }
    bench.all_acknowledged().await?;
    worker.drain(LIMIT).await?;
    drop(client);

    let letters = TopicPartition { topic: bench.names().dead_letters.clone(), partition: -1 };
    if kind == BrokerKind::Embedded {
        // The embedded broker does not delete idle topics, and trims at once.
        broker.admin().unload(&letters.topic).await?;
    } else {
        let control = TopicPartition { topic: format!("{}-control", letters.topic), partition: -1 };
        leave_behind(&bench, &control).await?;
        broker.admin().gone(&control.topic).await?;
    }
    broker.stop().await?;
    broker.start().await?;

    let left = waiting(&bench, &letters, LETTERS).await?;
    ensure!(left == ids, "{} of {LETTERS} dead letters are left", left.len());
    Ok(())
}

/// Publishes to a topic that the broker creates by itself, and disconnects.
async fn leave_behind(bench: &Bench, topic: &TopicPartition) -> Result<()> {
    let mut publisher =
        bench.transport().publisher(topic, Batching::Off, TopicSchema::None).await?;
    for _ in 0..LETTERS {
        let message = Outgoing { payload: "broken".into(), ..Outgoing::default() };
        publisher.send(message).await?.await?;
    }
    Ok(())
}

/// The tasks whose dead letters are not handled yet.
async fn waiting(bench: &Bench, topic: &TopicPartition, count: usize) -> Result<BTreeSet<String>> {
    let mut consumer = bench.transport().consumer(topic, DEAD_LETTER_SUBSCRIPTION).await?;
    consumer.request(count);
    let mut ids = BTreeSet::new();
    while ids.len() < count {
        let Ok(delivered) = tokio::time::timeout(LIMIT, consumer.next()).await else { break };
        let Message { key, .. } = delivered?;
        ids.extend(key);
    }
    Ok(ids)
}
