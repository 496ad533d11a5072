//! `bytes`: what a task, and each of its entries, takes on its topics.

use crate::meter::Figures;
use crate::sitting::Sitting;
use crate::stage::{Stage, Topics};
use crate::worker::{Plan, Work, Worker};
use anyhow::{Result, bail, ensure};
use clap::Args;
use integration_tests::{say, stopwatch};
use longhaul::{TaskMetadata, TaskState};
use longhaul_transport::Message;
use longhaul_wire::batch::BatchBuilder;
use longhaul_wire::messages::{KeyValue, SingleMessageMetadata};
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;
use tokio::time::sleep;

/// R and the retention of the metadata topic: after that long the keys of a task go from both
/// topics.
const RETENTION: Duration = Duration::from_secs(60);
const KEEP_ALIVE: Duration = Duration::from_secs(1);
/// For so long a task runs.
const RUN: Duration = Duration::from_secs(5);
/// How long it may take until all keys have gone, and how often that is looked at.
const GONE_LIMIT: Duration = Duration::from_secs(180);
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// A finished task has two keys on the ledger: claim and end.
const KEYS: usize = 2;

/// What each task and each entry of it takes on task topic, ledger (C) and metadata topic (M), in
/// bytes.
///
/// All tasks of a size run at the same time for 5 s with a keep-alive each second; they have ended
/// for a minute when their keys are removed from both topics. Then the topics are read. An entry is
/// counted with its key, its properties, and its share of what the broker stores around the entries
/// of the topic; an entry of the ledger shares that with those in the same batch. `of a task` is
/// what a task takes that ends before its first keep-alive, tombstones included. Heartbeats belong
/// to a worker: one every H (10 s) and partition.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    sitting: Sitting,
    /// Bytes of a task: one line for each.
    #[arg(long, value_delimiter = ',', default_values_t = [100, 1024, 10 * 1024, 1024 * 1024])]
    bytes: Vec<usize>,
    /// Bytes of each result.
    #[arg(long, default_value_t = 0)]
    result: usize,
    /// Tasks of each size.
    #[arg(long, default_value_t = 200)]
    tasks: usize,
}

impl Options {
    pub(crate) async fn run(&self) -> Result<()> {
        self.sitting
            .run_rows("bytes", 1, async |stage| {
                let mut rows = Vec::new();
                for bytes in &self.bytes {
                    let name = format!("tasks of {bytes}, results of {}", self.result);
                    rows.push((name, measure(stage, self, *bytes).await?));
                }
                Ok(rows)
            })
            .await
    }
}

async fn measure(stage: &Stage, options: &Options, bytes: usize) -> Result<Figures> {
    let Options { sitting, result, tasks, .. } = options;
    let topics = stage.topics_for("bytes", None, Some(RETENTION)).await?;
    stage.fill(&topics, *tasks, bytes).await?;
    // Read before anything is acknowledged, since acknowledged messages do not stay.
    let task = Stored::read(stage, &topics, &topics.names.task, |_| Ok("task")).await?;
    let plan = Plan {
        work: Work::Sleep,
        expected: *tasks,
        result: *result,
        retention: Some(RETENTION),
        keep_alive: Some(KEEP_ALIVE),
        ..Plan::new(stage, &topics, *tasks)
    };
    let mut worker = Worker::start(&plan, sitting.under.as_deref()).await?;
    worker.started().await?;
    sleep(RUN).await;
    worker.release()?;
    stage.acknowledged(&topics).await?;
    say("the tasks have ended, their keys are to go");
    let (ledger, view) = all_gone(stage, &topics, *tasks).await?;
    worker.end().await?;
    for (topic, kind, expected) in
        [(&ledger, "C claim", *tasks), (&ledger, "C end", *tasks), (&view, "M COMPLETED", *tasks)]
    {
        let found = topic.kinds.get(kind).map_or(0, |it| it.count);
        // A machine that is busy may have had a task released and claimed again.
        ensure!(found >= expected, "{found} of {kind}, and not {expected}: {topic:?}");
    }
    Ok(figures(&task, &ledger, &view, *tasks))
}

/// Waits until every task has its tombstones, and returns what stands on ledger and metadata topic.
async fn all_gone(stage: &Stage, topics: &Topics, tasks: usize) -> Result<(Stored, Stored)> {
    let elapsed = stopwatch();
    while elapsed() < GONE_LIMIT {
        sleep(LOOK_EVERY).await;
        let ledger = Stored::read(stage, topics, &topics.names.ledger, of_ledger).await?;
        let mut running = HashSet::new();
        let kind = |message: &Message| of_view(message, &mut running);
        let view = Stored::read(stage, topics, &topics.names.metadata, kind).await?;
        let gone = |topic: &Stored, kind| topic.kinds.get(kind).map_or(0, |it| it.count);
        if gone(&ledger, C_TOMBSTONE) >= KEYS * tasks && gone(&view, M_TOMBSTONE) >= tasks {
            return Ok((ledger, view));
        }
    }
    bail!("tasks that keep their keys for {GONE_LIMIT:?}")
}

const C_TOMBSTONE: &str = "C tombstone";
const M_TOMBSTONE: &str = "M tombstone";
/// Of a worker and not of a task.
const C_HEARTBEAT: &str = "C heartbeat";
const C_SETTINGS: &str = "C settings";
const M_KEEP_ALIVE: &str = "M keep-alive";

fn of_ledger(message: &Message) -> Result<&'static str> {
    if message.null {
        return Ok(C_TOMBSTONE);
    }
    Ok(match message.properties.get("k") {
        Some("claim") => "C claim",
        Some("done") => "C end",
        Some("seal") => "C seal",
        Some("hb") => C_HEARTBEAT,
        Some("cfg") => C_SETTINGS,
        other => bail!("an entry on the ledger that no calm task has: {other:?}"),
    })
}

/// The first entry of a running task shows its start, each later one keeps it alive.
fn of_view(message: &Message, running: &mut HashSet<String>) -> Result<&'static str> {
    if message.null {
        return Ok(M_TOMBSTONE);
    }
    let entry: TaskMetadata = serde_json::from_slice(&message.payload)?;
    Ok(match entry.state {
        TaskState::Processing if running.insert(entry.message_id) => "M PROCESSING",
        TaskState::Processing => M_KEEP_ALIVE,
        TaskState::Completed => "M COMPLETED",
        other @ (TaskState::New | TaskState::Failed | TaskState::Unknown) => {
            bail!("an entry on the metadata topic that no calm task has: {other:?}")
        }
    })
}

/// Entries of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Kind {
    count: usize,
    bytes: usize,
}

/// What stands on a topic, by kind.
#[derive(Debug)]
struct Stored {
    kinds: BTreeMap<&'static str, Kind>,
    /// What the broker stores for each entry beyond that.
    around: f64,
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
impl Stored {
    async fn read(
        stage: &Stage,
        topics: &Topics,
        topic: &str,
        mut kind: impl FnMut(&Message) -> Result<&'static str>,
    ) -> Result<Self> {
        let mut kinds: BTreeMap<&'static str, Kind> = BTreeMap::new();
        let stored = stage.stored_bytes(topics, topic).await?;
        let take = |message: &Message| {
            let of = kinds.entry(kind(message)?).or_default();
            *of = Kind { count: of.count + 1, bytes: of.bytes + bytes_of(message) };
            Ok(())
        };
        stage.read(&topics.parts(topic), take).await?;
        let sum = |of: fn(&Kind) -> usize| kinds.values().map(of).sum::<usize>() as f64;
        let around = (stored - sum(|it| it.bytes)) / sum(|it| it.count).max(1.0);
        Ok(Self { kinds, around })
    }

    /// Bytes of one entry of this kind.
    fn each(&self, kind: &str) -> f64 {
        let Some(of) = self.kinds.get(kind) else { return 0.0 };
        of.bytes as f64 / of.count as f64 + self.around
    }

    /// Bytes of all entries but those of some kinds, for each task.
    fn of_a_task(&self, but_for: &[&str], tasks: usize) -> f64 {
        let kinds = self.kinds.iter().filter(|(name, _)| !but_for.contains(name));
        let bytes = kinds.map(|(_, it)| it.bytes as f64 + it.count as f64 * self.around);
        bytes.sum::<f64>() / tasks as f64
    }
}

/// What a message takes in a batch.
fn bytes_of(message: &Message) -> usize {
    let properties = message.properties.iter();
    let metadata = SingleMessageMetadata {
        properties: properties
            .map(|(key, value)| KeyValue::new(key.to_owned(), value.to_owned()))
            .collect(),
        partition_key: message.key.clone(),
        null_value: message.null.then_some(true),
        ..SingleMessageMetadata::default()
    };
    let mut batch = BatchBuilder::default();
    batch.push(metadata, &message.payload);
    batch.size()
}

fn figures(task: &Stored, ledger: &Stored, view: &Stored, tasks: usize) -> Figures {
    let mut figures = Figures::default();
    figures.put("T task", task.each("task"));
    for kind in ["C claim", "C end", C_TOMBSTONE, C_HEARTBEAT] {
        figures.put(kind, ledger.each(kind));
    }
    for kind in ["M PROCESSING", M_KEEP_ALIVE, "M COMPLETED", M_TOMBSTONE] {
        figures.put(kind, view.each(kind));
    }
    let of_ledger = ledger.of_a_task(&[C_HEARTBEAT, C_SETTINGS], tasks);
    let of_view = view.of_a_task(&[M_KEEP_ALIVE], tasks);
    figures.put("C of a task", of_ledger);
    figures.put("M of a task", of_view);
    figures.put("all of a task", task.of_a_task(&[], tasks) + of_ledger + of_view);
    figures
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use longhaul_transport::Position;

    fn message(key: &str, payload: &str, null: bool) -> Message {
        let position = Position { ledger: 1, entry: 1, batch_index: None };
        let payload = Bytes::copy_from_slice(payload.as_bytes());
        Message { key: Some(key.to_owned()), payload, null, ..Message::at(position) }
    }

    #[test]
    fn a_task_that_is_shown_again_is_kept_alive() {
        let mut running = HashSet::new();
        let json = |id: &str, state: &str| {
            format!(
                r#"{{"messageId":"{id}","state":"{state}","created":1,"lastUpdated":2,"attempts":1}}"#
            )
        };
        let shown =
            [("a", "PROCESSING"), ("b", "PROCESSING"), ("a", "PROCESSING"), ("a", "COMPLETED")];
        let kinds = shown.map(|(id, state)| {
            of_view(&message(id, &json(id, state), false), &mut running).unwrap()
        });
        assert_eq!(kinds, ["M PROCESSING", "M PROCESSING", M_KEEP_ALIVE, "M COMPLETED"]);
        assert_eq!(of_view(&message("a", "", true), &mut running).unwrap(), M_TOMBSTONE);
    }

    #[test]
    fn an_entry_is_counted_with_key_properties_and_its_share_of_the_rest() {
        let mut claim = message("key", "body", false);
        let bare = bytes_of(&claim);
        claim.properties.insert("k", "claim");
        // Each property has a tag and a length for itself, its name and its value.
        assert_eq!(bytes_of(&claim), bare + 6 + "k".len() + "claim".len());
        let kinds = [
            ("C claim", Kind { count: 2, bytes: 100 }),
            (C_HEARTBEAT, Kind { count: 1, bytes: 70 }),
        ];
        let topic = Stored { kinds: kinds.into_iter().collect(), around: 10.0 };
        assert!((topic.each("C claim") - 60.0).abs() < f64::EPSILON);
        assert!((topic.of_a_task(&[C_HEARTBEAT], 2) - 60.0).abs() < f64::EPSILON);
    }
}
