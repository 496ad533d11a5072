//! The examples in `docs/any-language.md`: each is a message that a broker has stored, with times,
//! ledger numbers and owners made the same in every run.
//!
//! With `LONGHAUL_WRITE_DOCS=1` the test writes the page's examples instead of comparing them.

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use longhaul::{
    Client, TaskContext, TaskError, TaskId, TaskProcessor, TaskRef, Text, WorkerHandle,
};
use longhaul_broker::{Broker, BrokerConfig};
use longhaul_session::{ConnectOptions, PulsarTransport};
use longhaul_transport::{
    Batching, Follow, Message, Outgoing, Publisher, Start, TopicPartition, TopicSchema, Transport,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/any-language.md");
const LIMIT: Duration = Duration::from_secs(60);
const DRAIN: Duration = Duration::from_secs(20);
/// The values in the page for values that differ from run to run.
const LEDGER: &str = "17";
const OWNER: &str = "5f0c7a4be1d24f3899a86b1c07d2e3f4";
const OPERATOR: &str = "dave@desk-1";
const TIMES: [(&str, u64); 4] = [
    ("submittedAt", 1_791_999_999_000),
    ("created", 1_792_000_000_000),
    ("lastUpdated", 1_792_000_001_000),
    ("nextAttemptAt", 1_792_000_002_000),
];

/// Does what the first word of a task says.
#[derive(Clone, Default)]
struct Actor {
    /// Notified when the progress of `greet` has been seen.
    seen: Arc<Notify>,
}

impl TaskProcessor for Actor {
    type Task = Text;
    type Output = Text;

    async fn process(&self, task: Text, context: TaskContext) -> Result<Text, TaskError> {
        let first = context.attempt() == 1;
        match task.0.split_once(' ').unwrap_or((&task.0, "")) {
            ("greet", name) => {
                context.progress(1, 2, "looking for words");
                self.seen.notified().await;
                Ok(Text(format!("Hello {name}")))
            }
            ("retry", _) if first => Err(TaskError::retry("the mail server does not answer")),
            ("refuse", _) => Err(TaskError::fatal("there is no such account")),
            ("wait", _) if first => {
                context.cancelled().await;
                Ok(Text::default())
            }
            _ => Ok(Text("done".to_owned())),
        }
    }
}

fn topic(name: &str) -> TopicPartition {
    TopicPartition { topic: format!("persistent://public/default/{name}"), partition: -1 }
}

/// All messages on a topic, from the first one, without end.
struct Log {
    messages: tokio::sync::mpsc::Receiver<Message>,
    read: Vec<Message>,
    _tasks: JoinSet<()>,
}

impl Log {
    async fn follow(transport: &PulsarTransport, name: &str) -> Result<Self> {
        let follow = Follow { start: Start::Earliest, compacted: false };
        let mut follower = transport.follower(&topic(name), follow).await?;
        let (sender, messages) = tokio::sync::mpsc::channel(64);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            while let Ok(message) = follower.next().await {
                if sender.send(message).await.is_err() {
                    return;
                }
            }
        });
        Ok(Self { messages, read: Vec::new(), _tasks: tasks })
    }

    /// The first message for which `is` holds.
    async fn first(&mut self, what: &str, is: impl Fn(&Message) -> bool) -> Result<Message> {
        let found = async {
            loop {
                if let Some(found) = self.read.iter().find(|it| is(it)) {
                    return Ok(found.clone());
                }
                self.read.push(self.messages.recv().await.context("the topic ended")?);
            }
        };
        timeout(LIMIT, found).await.with_context(|| format!("{what} does not come"))?
    }
}

/// The broker, and readers of its topics.
struct Bench {
    broker: Broker,
    client: Client,
    tasks: Box<dyn Publisher>,
    metadata: Log,
    ledger: Log,
    letters: Log,
    /// The examples by name, as they appear in the page.
    examples: BTreeMap<&'static str, String>,
}

impl Bench {
    async fn new() -> Result<Self> {
        let broker = Broker::start(BrokerConfig::default())?;
        let url = broker.service_url();
        let client = Client::connect(url).await?;
        let transport = PulsarTransport::connect(ConnectOptions::new(url)).await?;
        let tasks = topic("tasks");
        let tasks = transport.publisher(&tasks, Batching::Off, TopicSchema::None).await?;
        let metadata = Log::follow(&transport, "tasks-metadata").await?;
        let ledger = Log::follow(&transport, "tasks-ledger").await?;
        let letters = Log::follow(&transport, "tasks-longhaul-DLQ").await?;
        Ok(Self { broker, client, tasks, metadata, ledger, letters, examples: BTreeMap::new() })
    }

    async fn worker(&self, actor: &Actor) -> Result<WorkerHandle> {
        let worker =
            self.client.worker("tasks", actor.clone()).heartbeat(Duration::from_millis(500));
        let brief = Duration::from_millis(100);
        let worker = worker.backoff(brief, brief).retention(Duration::from_secs(1)).start().await?;
        worker.ready().await;
        Ok(worker)
    }

    /// Submits as any client does: a message with properties, without the library.
    async fn submit(&mut self, task: &str, properties: &[(&str, &str)]) -> Result<TaskId> {
        let properties = properties.iter().copied().collect();
        let payload = task.as_bytes().to_vec().into();
        let message = Outgoing { properties, payload, ..Outgoing::default() };
        let receipt = self.tasks.send(message).await?;
        Ok(TaskId::new(receipt.await?, -1))
    }

    /// Waits for an entry of a task on the metadata topic and keeps it as an example.
    async fn show(
        &mut self,
        name: &'static str,
        id: TaskId,
        is: impl Fn(&Value) -> bool,
    ) -> Result<()> {
        let key = id.to_string();
        let found = self.metadata.first(name, |message| {
            let entry = serde_json::from_slice(&message.payload).unwrap_or(Value::Null);
            message.key.as_ref() == Some(&key) && is(&entry)
        });
        let found = found.await?;
        self.examples.insert(name, shown(&found));
        Ok(())
    }
}

/// The worker in the page: the real name is random, and the host is that of the test.
fn worker() -> Value {
    serde_json::json!({ "name": "longhaul-7f3a", "host": "worker-1" })
}

/// A message as the page shows it.
fn shown(message: &Message) -> String {
    let stable_id = |id: &str| match id.split_once(':') {
        Some((ledger, rest)) if ledger.parse::<u64>().is_ok() => format!("{LEDGER}:{rest}"),
        _ => id.to_owned(),
    };
    let mut lines = vec![format!("key: {}", stable_id(message.key.as_deref().unwrap_or_default()))];
    for (name, value) in message.properties.iter() {
        let value = match name {
            "owner" => OWNER.to_owned(),
            "by" => OPERATOR.to_owned(),
            _ => stable_id(value),
        };
        lines.push(format!("property {name}: {value}"));
    }
    let body = match serde_json::from_slice::<Value>(&message.payload) {
        Ok(Value::Object(fields)) => {
            let told = |(name, value): (&String, &Value)| {
                let time = TIMES.iter().find(|(field, _)| field == name);
                let value = match (time, value) {
                    (Some((_, time)), _) => Value::from(*time),
                    _ if name == "worker" => worker(),
                    (None, Value::String(text)) => Value::from(stable_id(text)),
                    (None, value) => value.clone(),
                };
                format!("  \"{name}\": {value}")
            };
            // In the order in which the fields appear in the message.
            let text = String::from_utf8_lossy(&message.payload).into_owned();
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| text.find(&format!("\"{name}\":")));
            let fields: Vec<_> = fields.into_iter().map(told).collect();
            format!("{{\n{}\n}}", fields.join(",\n"))
        }
        _ if message.null => "null".to_owned(),
        _ if message.payload.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ') => {
            String::from_utf8_lossy(&message.payload).into_owned()
        }
        _ => format!("bytes (Base64): {}", BASE64_STANDARD.encode(&message.payload)),
    };
    lines.push(format!("value: {body}"));
    lines.join("\n")
}

/// The page with these examples in it.
fn with_examples(page: &str, examples: &BTreeMap<&'static str, String>) -> Result<String> {
    let mut written = String::new();
    let mut rest = page;
    let mut missing: Vec<_> = examples.keys().copied().collect();
    while let Some((before, after)) = rest.split_once("<!-- example: ") {
        let (name, after) =
            after.split_once(" -->\n```text\n").context("no block behind a mark")?;
        let (_, after) = after.split_once("\n```").with_context(|| format!("{name} has no end"))?;
        let example = examples.get(name).with_context(|| format!("no example {name}"))?;
        missing.retain(|it| *it != name);
        written.push_str(&format!("{before}<!-- example: {name} -->\n```text\n{example}\n```"));
        rest = after;
    }
    ensure!(missing.is_empty(), "the page does not show {missing:?}");
    written.push_str(rest);
    Ok(written)
}

#[tokio::test]
async fn the_page_shows_what_really_stands_on_the_topics() -> Result<()> {
    let mut bench = Bench::new().await?;
    let actor = Actor::default();
    let worker = bench.worker(&actor).await?;
    let field = |name: &'static str, wanted: &'static str| move |it: &Value| it[name] == wanted;
    let waits = |it: &Value| it["nextAttemptAt"].is_number();

    let greet = bench.submit("greet Dave", &[]).await?;
    bench
        .show("claimed", greet, |it| it["state"] == "PROCESSING" && it["progress"].is_null())
        .await?;
    bench.show("progress", greet, |it| it["progress"].is_object()).await?;
    actor.seen.notify_one();
    bench.show("completed", greet, field("state", "COMPLETED")).await?;

    let retry = bench.submit("retry", &[]).await?;
    bench.show("retry", retry, waits).await?;
    let refuse = bench.submit("refuse", &[("customer", "4711")]).await?;
    bench.show("final", refuse, field("outcome", "FINAL")).await?;
    let letter = bench.letters.first("a dead letter", |_| true).await?;
    bench.examples.insert("dead-letter", shown(&letter));
    let slow = bench.submit("wait", &[("MAX_TASK_DURATION", "PT0.2S")]).await?;
    bench.show("over-budget", slow, waits).await?;

    let unlimited = bench.submit("none", &[("MAX_TASK_DURATION", "2 hours")]).await?;
    bench.show("bad-duration", unlimited, field("state", "COMPLETED")).await?;
    let keyed = bench.submit("none", &[("TASK_KEY", "order-4711")]).await?;
    bench.show("keyed", keyed, field("taskKey", "order-4711")).await?;
    let found =
        bench.client.queue("tasks").find("order-4711").await?.context("the key is not found")?;
    ensure!(found.id == keyed, "{found}");

    let cancel = bench.submit("wait", &[]).await?;
    bench.show("claimed-again", cancel, field("state", "PROCESSING")).await?;
    bench.examples.remove("claimed-again");
    let dave = bench.client.clone().acting_as(OPERATOR);
    dave.cancel(&TaskRef::new("tasks", cancel)?).await?;
    let is_cancel = |it: &Message| it.properties.get("k").is_some_and(|kind| kind == "cancel");
    let asked = bench.ledger.first("the request", is_cancel).await?;
    bench.examples.insert("cancel-request", shown(&asked));
    bench.show("cancelled", cancel, field("outcome", "CANCELLED")).await?;
    bench.show("gone", greet, Value::is_null).await?;

    let lost = bench.submit("wait", &[]).await?;
    bench.show("claimed-again", lost, field("state", "PROCESSING")).await?;
    bench.examples.remove("claimed-again");
    // Stops as in a crash.
    worker.stop();
    worker.join().await?;
    let worker = bench.worker(&actor).await?;
    bench.show("worker-lost", lost, |it| it["warning"].is_string()).await?;
    worker.drain(DRAIN).await?;

    let page = std::fs::read_to_string(PAGE)?;
    let expected = with_examples(&page, &bench.examples)?;
    if std::env::var_os("LONGHAUL_WRITE_DOCS").is_some() {
        std::fs::write(PAGE, expected)?;
    } else {
        compare(&page, &expected)?;
    }
    tokio::task::spawn_blocking(move || bench.broker.shutdown()).await??;
    Ok(())
}

/// Reports the first difference between the pages.
fn compare(page: &str, expected: &str) -> Result<()> {
    let differing =
        page.lines().zip(expected.lines()).enumerate().find(|(_, (is, wants))| is != wants);
    if let Some((line, (is, wants))) = differing {
        anyhow::bail!(
            "docs/any-language.md:{}: `{is}`, but it is `{wants}`: LONGHAUL_WRITE_DOCS=1 writes the examples",
            line + 1
        );
    }
    ensure!(
        page == expected,
        "docs/any-language.md is out of date: LONGHAUL_WRITE_DOCS=1 writes the examples"
    );
    Ok(())
}
