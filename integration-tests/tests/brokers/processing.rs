//! Workers with the processors of a user, on a broker: threads that do not end, payloads that are
//! too large.
//!
//! The broker is that of `LONGHAUL_TEST_BROKER`.

use anyhow::{Context, Result, ensure};
use integration_tests::audit::read_whole;
use integration_tests::sandbox::Sandbox;
use longhaul::topics::{TopicNames, TopicSettings};
use longhaul::{
    Client, Codec, PayloadError, Raw, SubmitError, TaskContext, TaskOutcome, TaskRef, Text,
    WaitError, blocking_fn,
};
use longhaul_session::{ConnectOptions, PulsarTransport};
use longhaul_transport::{Message, TopicPartition};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;
use tokio::time::timeout;

/// The limit for everything that is expected to happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client on the broker, and the topic of one test; `None` when the environment names no broker.
async fn bench(test: &str) -> Result<Option<(Client, String)>> {
    let Some(sandbox) = Sandbox::from_env().await? else { return Ok(None) };
    Ok(Some((sandbox.client().await?, sandbox.topic(test))))
}

async fn result(client: &Client, task: &TaskRef) -> Result<Text, WaitError> {
    let wait = timeout(PATIENCE, client.wait::<Text>(task)).await;
    wait.unwrap_or(Err(WaitError::Evicted))
}

/// The thread runs until the test lets it end; the worker's only slot is free long before that.
#[tokio::test]
async fn a_kill_frees_the_slot_of_a_thread_that_does_not_end() -> Result<()> {
    let Some((client, topic)) = bench("kill").await? else { return Ok(()) };
    let (end, ends) = mpsc::channel::<()>();
    let (begun, mut begins) = tokio::sync::mpsc::channel(1);
    let ends = Arc::new(Mutex::new(ends));
    let processor = blocking_fn(move |task: Text, _: TaskContext| {
        if task.0 == "stuck" {
            begun.blocking_send(())?;
            // The task ignores its cancellation.
            ends.lock().unwrap_or_else(PoisonError::into_inner).recv().ok();
        }
        Ok(task)
    });
    let worker = client.worker(&topic, processor).concurrency(1).start().await?;
    let stuck = client.submit(&topic, &Text("stuck".to_owned())).await?;
    timeout(PATIENCE, begins.recv()).await?.context("it does not begin")?;
    let next = client.submit(&topic, &Text("next".to_owned())).await?;
    client.cancellation(&stuck).kill().send().await?;
    ensure!(result(&client, &next).await? == Text("next".to_owned()));
    let killed = result(&client, &stuck).await;
    ensure!(
        matches!(
            killed,
            Err(WaitError::Failed { outcome: TaskOutcome::Cancelled, attempts: 1, .. })
        ),
        "{killed:?}"
    );
    ensure!(worker.stats().left_behind == 1, "{:?}", worker.stats());
    end.send(())?;
    worker.drain(PATIENCE).await?;
    Ok(())
}

/// Flips all bits.
struct Flip;

impl Codec for Flip {
    fn name(&self) -> &'static str {
        "flip"
    }

    fn encode(&self, plain: &[u8]) -> Result<Vec<u8>, PayloadError> {
        Ok(plain.iter().map(|byte| !byte).collect())
    }

    fn decode(&self, encoded: &[u8]) -> Result<Vec<u8>, PayloadError> {
        self.encode(encoded)
    }
}

/// All messages on a topic, as text where they are text.
async fn texts(transport: &PulsarTransport, topic: &str) -> Result<Vec<String>> {
    let topic = TopicPartition { topic: topic.to_owned(), partition: -1 };
    let messages = read_whole(transport, &topic).await?;
    ensure!(!messages.is_empty(), "{topic} is empty");
    let text = |message: &Message| String::from_utf8_lossy(&message.payload).into_owned();
    Ok(messages.iter().map(text).collect())
}

#[tokio::test]
async fn what_a_codec_encodes_is_plain_on_no_topic() -> Result<()> {
    let Some(sandbox) = Sandbox::from_env().await? else { return Ok(()) };
    let (url, topic) = (sandbox.service_url(), sandbox.topic("codec"));
    let client = Client::builder(url).admin_url(sandbox.admin().url());
    let client = client.codec(Flip).encode_with("flip").connect().await?;
    let processor = blocking_fn(|task: Text, context: TaskContext| {
        context.checkpoint_blocking(task.0.clone())?;
        Ok(task)
    });
    let worker = client.worker(&topic, processor).start().await?;
    let secret = Text("a secret".to_owned());
    let task = client.submit(&topic, &secret).await?;
    ensure!(result(&client, &task).await? == secret);
    let entry = client.get(&task).await?.context("no entry")?;
    let flipped: Vec<u8> = secret.0.bytes().map(|byte| !byte).collect();
    let (task, result) = (entry.task.as_deref(), entry.result.as_deref());
    ensure!((task, result) == (Some(&flipped[..]), Some(&flipped[..])), "{entry:?}");
    ensure!(entry.codec.as_deref() == Some("flip"));
    worker.drain(PATIENCE).await?;

    let names: TopicNames = topic.parse()?;
    let transport = PulsarTransport::connect(ConnectOptions::new(url)).await?;
    // A Java reader sees Base64 on the metadata topic.
    let base64 = "YSBzZWNyZX";
    for topic in [&names.task, &names.ledger, &names.metadata] {
        let texts = texts(&transport, topic).await?;
        ensure!(!texts.iter().any(|it| it.contains("secret") || it.contains(base64)), "{texts:#?}");
    }
    Ok(())
}

/// A broker does not answer a message that is too large: it closes the connection.
#[tokio::test]
async fn a_payload_above_the_brokers_limit_is_refused_with_both_sizes() -> Result<()> {
    const LIMIT: usize = 5 * 1024 * 1024;
    let Some((client, topic)) = bench("large").await? else { return Ok(()) };
    client.queue(&topic).setup_topics(TopicSettings::default()).await?;
    for size in [LIMIT, 2 * LIMIT] {
        let refused = client.submit(&topic, &Raw(vec![b'x'; size].into())).await;
        let Err(SubmitError::TooLarge { bytes, bytes_max: LIMIT }) = &refused else {
            anyhow::bail!("{refused:?}")
        };
        ensure!((size..size + 1_000).contains(bytes), "{refused:?}");
    }
    // A payload that fits is accepted on the same connection.
    client.submit(&topic, &Raw(vec![b'x'; LIMIT - 10_000].into())).await?;
    Ok(())
}
