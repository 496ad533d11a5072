//! `compare`: the embedded broker beside a real Pulsar, through the plain client crate.

#![expect(clippy::large_futures, reason = "those of the crate `pulsar` are")]

use crate::stage;
use anyhow::{Context, Result};
use clap::Args;
use futures::{StreamExt, TryStreamExt};
use hdrhistogram::Histogram;
use integration_tests::sandbox::{Broker, BrokerConfig, BrokerKind, Sandbox};
use integration_tests::stopwatch;
use pulsar::consumer::{ConsumerOptions, InitialPosition};
use pulsar::{Consumer, Producer, Pulsar, SubType, TokioExecutor};
use std::collections::VecDeque;
use std::io::Write;
use std::time::Duration;

const BODY_BYTES: usize = 100;
const IN_FLIGHT: [(usize, usize); 4] = [(1, 1_000), (10, 5_000), (100, 20_000), (1000, 40_000)];
const CONSUMED: usize = 20_000;
const LATENCIES: usize = 500;

/// The embedded broker beside a real Pulsar, through the plain client crate, in one sitting.
///
/// Both brokers run for the whole time and are measured in turn; what is printed is the median of
/// the rounds, and the ratio. A third one, with Pulsar's own settings, is measured for latency
/// only: the sandbox's settings make Pulsar faster than it is out of the box. Java 17 and Maven are
/// needed; the first time 235 MB are fetched.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// How often each row is measured.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

pub(crate) async fn run(options: &Options) -> Result<()> {
    let rounds = options.rounds;
    let ours = stage::launch("embedded").await?.context("an embedded broker")?;
    let theirs = Broker::launch(BrokerKind::Maven, BrokerConfig::default()).await?;
    let plain = stage::launch("maven").await?.context("a Pulsar")?;
    writeln!(std::io::stdout(), "| row | embedded | Pulsar | ratio |\n|---|---|---|---|")?;
    for (in_flight, count) in IN_FLIGHT {
        let run = async |it: &Broker| publish(it.sandbox(), in_flight, count).await;
        compare(&format!("publish/s, {in_flight} in flight"), rounds, &ours, &theirs, run).await?;
    }
    let run = async |it: &Broker| consume(it.sandbox()).await;
    compare("consume and ack/s", rounds, &ours, &theirs, run).await?;
    for (name, part) in [("p50", 0.5), ("p99", 0.99)] {
        let run = async |it: &Broker| latency(it.sandbox(), part).await;
        compare(&format!("publish to receive, {name} ms"), rounds, &ours, &theirs, run).await?;
        let run = async |it: &Broker| latency(it.sandbox(), part).await;
        let row = format!("the same, Pulsar's own settings, {name} ms");
        compare(&row, rounds, &ours, &plain, run).await?;
    }
    Ok(())
}

async fn compare(
    row: &str,
    rounds: usize,
    ours: &Broker,
    theirs: &Broker,
    run: impl AsyncFn(&Broker) -> Result<f64>,
) -> Result<()> {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        a.push(run(ours).await?);
        b.push(run(theirs).await?);
    }
    let (a, b) = (median(a), median(b));
    writeln!(std::io::stdout(), "| {row} | {a:.2} | {b:.2} | {:.2} |", a / b)?;
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

async fn connect(sandbox: &Sandbox) -> Result<Pulsar<TokioExecutor>> {
    Ok(Pulsar::builder(sandbox.service_url(), TokioExecutor)
        .with_outbound_channel_size(4096)
        .build()
        .await?)
}

async fn producer(pulsar: &Pulsar<TokioExecutor>, topic: &str) -> Result<Producer<TokioExecutor>> {
    Ok(pulsar.producer().with_topic(topic).build().await?)
}

async fn consumer(
    pulsar: &Pulsar<TokioExecutor>,
    topic: &str,
) -> Result<Consumer<Vec<u8>, TokioExecutor>> {
    let options = ConsumerOptions::default().with_initial_position(InitialPosition::Earliest);
    let builder = pulsar.consumer().with_topic(topic).with_subscription("s");
    Ok(builder.with_subscription_type(SubType::Shared).with_options(options).build().await?)
}

/// Sends `count` messages, so many of them without a receipt at a time. Returns messages per
/// second.
async fn send_all(
    producer: &mut Producer<TokioExecutor>,
    in_flight: usize,
    count: usize,
) -> Result<f64> {
    let elapsed = stopwatch();
    let mut waiting = VecDeque::with_capacity(in_flight);
    for _ in 0..count {
        if waiting.len() == in_flight {
            let oldest = waiting.pop_front().context("something is under way")?;
            oldest.await?;
        }
        waiting.push_back(producer.send_non_blocking(vec![7; BODY_BYTES]).await?);
    }
    for receipt in waiting {
        receipt.await?;
    }
    Ok(rate(count, elapsed()))
}

async fn publish(sandbox: &Sandbox, in_flight: usize, count: usize) -> Result<f64> {
    let pulsar = connect(sandbox).await?;
    let mut producer = producer(&pulsar, &sandbox.topic("publish")).await?;
    send_all(&mut producer, in_flight, count / 10).await?;
    send_all(&mut producer, in_flight, count).await
}

async fn consume(sandbox: &Sandbox) -> Result<f64> {
    let topic = sandbox.topic("consume");
    let pulsar = connect(sandbox).await?;
    let mut consumer = consumer(&pulsar, &topic).await?;
    // On a connection of its own: the crate's consumer and producer would wait for each other's
    // packets.
    let publisher = connect(sandbox).await?;
    let mut producer = producer(&publisher, &topic).await?;
    send_all(&mut producer, 1000, CONSUMED).await?;
    let elapsed = stopwatch();
    for _ in 0..CONSUMED {
        let message = consumer.next().await.context("the consumer has ended")??;
        consumer.ack(&message).await?;
    }
    Ok(rate(CONSUMED, elapsed()))
}

/// One message at a time, from before the publish until it is received; in ms.
async fn latency(sandbox: &Sandbox, part: f64) -> Result<f64> {
    let topic = sandbox.topic("latency");
    let pulsar = connect(sandbox).await?;
    let mut consumer = consumer(&pulsar, &topic).await?;
    let publisher = connect(sandbox).await?;
    let mut producer = producer(&publisher, &topic).await?;
    let mut times = Histogram::<u64>::new(3)?;
    for round in 0..LATENCIES + 100 {
        let elapsed = stopwatch();
        let receipt = producer.send_non_blocking(vec![7; BODY_BYTES]).await?;
        let message = consumer.try_next().await?.context("the consumer has ended")?;
        if round >= 100 {
            times.record(u64::try_from(elapsed().as_micros())?)?;
        }
        receipt.await?;
        consumer.ack(&message).await?;
    }
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let millis = times.value_at_quantile(part) as f64 / 1000.0;
    Ok(millis)
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn rate(count: usize, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64()
}
