//! What a run stands on: a broker, topics of its own, tasks on them.

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use integration_tests::sandbox::{Broker, BrokerConfig, BrokerKind, Sandbox};
use longhaul::topics::{Admin, AdminOptions, TopicNames, TopicSettings, setup};
use longhaul::{Client, Raw, Submission};
use longhaul_session::{ConnectOptions, PulsarTransport};
use longhaul_transport::{Follow, Message, Start, TopicPartition, Transport};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// What the sandbox changes in Pulsar to make tests faster, as Pulsar has it by itself.
const STOCK: [(&str, &str); 2] =
    [("journalMaxGroupWaitMSec", "1"), ("managedLedgerNewEntriesCheckDelayInMillis", "10")];
/// The same, with nothing that waits.
const TUNED: [(&str, &str); 2] =
    [("journalMaxGroupWaitMSec", "0"), ("managedLedgerNewEntriesCheckDelayInMillis", "0")];
pub(crate) const MIB: f64 = 1024.0 * 1024.0;
/// Callers that put tasks on a topic where that is not what is measured.
const FILLERS: usize = 256;
/// How long tasks may take to be acknowledged.
const ACKNOWLEDGED_LIMIT: Duration = Duration::from_secs(900);
/// How long a topic that is read to its end may give nothing.
const SILENCE_LIMIT: Duration = Duration::from_secs(60);
/// How often the broker is asked how many are left.
const GLANCE: Duration = Duration::from_millis(20);

/// Starts a broker of this name, or returns none when it is no name of a kind.
pub(crate) async fn launch(name: &str) -> Result<Option<Broker>> {
    let (kind, extra): (_, &[(&str, &str)]) = match name {
        "maven-tuned" => (BrokerKind::Maven, &TUNED),
        name => match BrokerKind::parse(name) {
            Some(BrokerKind::Embedded) => (BrokerKind::Embedded, &[]),
            Some(kind) => (kind, &STOCK),
            None => return Ok(None),
        },
    };
    let extra = extra.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    // The embedded broker is this program once more: nothing else has to be built.
    let own = std::env::current_exe()?.into_os_string();
    let config = BrokerConfig {
        extra: extra.collect(),
        program: Some(vec![own, OsString::from("broker")]),
        ..BrokerConfig::default()
    };
    Broker::launch(kind, config).await.map(Some)
}

/// A broker, and who speaks to it.
pub(crate) struct Stage {
    /// The broker, if it is ours.
    broker: Option<Broker>,
    sandbox: Sandbox,
    admin: Admin,
    pub(crate) client: Client,
    pub(crate) transport: PulsarTransport,
}

impl Stage {
    /// Starts a broker of this name, or takes the one at this service URL.
    pub(crate) async fn open(broker: &str, admin_url: &str) -> Result<Self> {
        let (broker, sandbox) = match launch(broker).await? {
            Some(broker) => {
                // Not a clone: the one in the broker goes with it.
                let admin_url = broker.admin().url().to_owned();
                let sandbox = Sandbox::new(broker.service_url().to_owned(), &admin_url)?;
                (Some(broker), sandbox)
            }
            None if broker.starts_with("pulsar") => {
                (None, Sandbox::new(broker.to_owned(), admin_url)?)
            }
            None => bail!(
                "no broker {broker}: it takes embedded, maven, maven-tuned, docker or pulsar://…"
            ),
        };
        let admin = Admin::new(sandbox.admin().url(), &AdminOptions::default())?;
        let client = Client::connect(sandbox.service_url()).await?;
        let transport =
            PulsarTransport::connect(ConnectOptions::new(sandbox.service_url())).await?;
        Ok(Self { broker, sandbox, admin, client, transport })
    }

    pub(crate) fn service_url(&self) -> &str {
        self.sandbox.service_url()
    }

    pub(crate) fn admin_url(&self) -> &str {
        self.sandbox.admin().url()
    }

    /// The broker's process, where it is known.
    pub(crate) fn broker_process(&self) -> Option<u32> {
        self.broker.as_ref()?.process_id()
    }

    /// MiB that the broker's data take on the disk, where the broker is ours and runs on this
    /// machine.
    pub(crate) fn disk_mib(&self) -> Result<Option<f64>> {
        let folder = self.broker.as_ref().and_then(Broker::folder);
        folder.map(disk_mib).transpose()
    }

    /// Sets up topics that nobody else uses.
    pub(crate) async fn topics(&self, name: &str, partitions: Option<u32>) -> Result<Topics> {
        self.topics_for(name, partitions, None).await
    }

    /// As [`topics`](Self::topics), with a ledger retention.
    pub(crate) async fn topics_for(
        &self,
        name: &str,
        partitions: Option<u32>,
        retention: Option<Duration>,
    ) -> Result<Topics> {
        let names: TopicNames = self.sandbox.topic(name).parse()?;
        let default = TopicSettings::default();
        let ledger_retention = retention.unwrap_or(default.ledger_retention);
        let settings = TopicSettings { partitions, ledger_retention, ..default };
        setup(&self.admin, &names, &settings).await?;
        Ok(Topics { names, partitions, settings })
    }

    /// Replaces the metadata topic by an empty one.
    pub(crate) async fn forget_metadata(&self, topics: &Topics) -> Result<()> {
        self.sandbox.admin().delete_topic(&topics.names.metadata).await?;
        setup(&self.admin, &topics.names, &topics.settings).await?;
        Ok(())
    }

    /// Puts tasks of so many bytes on the topic.
    pub(crate) async fn fill(&self, topics: &Topics, tasks: usize, bytes: usize) -> Result<()> {
        self.submit(topics, tasks, bytes, FILLERS).await
    }

    /// Has the broker close the task topic and everybody's sessions on it, and open it again when
    /// they come.
    pub(crate) async fn unload(&self, topics: &Topics) -> Result<()> {
        self.sandbox.admin().unload(&topics.names.task).await
    }

    /// Puts tasks with this body on the topic. `with` gives each its terms, by its number.
    pub(crate) async fn fill_with(
        &self,
        topics: &Topics,
        tasks: usize,
        body: Bytes,
        with: impl Fn(Submission, usize) -> Submission + Copy + Send + 'static,
    ) -> Result<()> {
        self.submit_body(topics, tasks, body, FILLERS, with).await
    }

    /// Puts tasks of so many bytes on the topic, so many at a time.
    pub(crate) async fn submit(
        &self,
        topics: &Topics,
        tasks: usize,
        bytes: usize,
        callers: usize,
    ) -> Result<()> {
        self.submit_body(topics, tasks, body_of(bytes), callers, |it, _| it).await
    }

    async fn submit_body(
        &self,
        topics: &Topics,
        tasks: usize,
        body: Bytes,
        callers: usize,
        with: impl Fn(Submission, usize) -> Submission + Copy + Send + 'static,
    ) -> Result<()> {
        let next = Arc::new(AtomicUsize::new(0));
        let body = Raw(body);
        let mut running = JoinSet::new();
        for _ in 0..callers {
            let (next, body) = (Arc::clone(&next), body.clone());
            let (client, topic) = (self.client.clone(), topics.names.task.clone());
            running.spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= tasks {
                        return Ok(());
                    }
                    with(client.submission(&topic, &body), number).send().await?;
                }
            });
        }
        while let Some(ended) = running.join_next().await {
            let ended: Result<()> = ended?;
            ended?;
        }
        Ok(())
    }

    /// Messages of the task topic that are not acknowledged.
    pub(crate) async fn backlog(&self, topics: &Topics) -> Result<usize> {
        let mut sum = 0;
        for part in topics.parts(&topics.names.task) {
            sum += usize::try_from(self.sandbox.admin().backlog(&part.to_string()).await?)?;
        }
        Ok(sum)
    }

    /// Bytes of the entries that the broker stores of a topic, its own around them left out.
    pub(crate) async fn stored_bytes(&self, topics: &Topics, topic: &str) -> Result<f64> {
        let mut sum = 0.0;
        for part in topics.parts(topic) {
            let stats = self.sandbox.admin().stats(&part.to_string()).await?;
            let stored = stats.pointer("/storageSize").and_then(Value::as_f64);
            sum += stored.context("no storageSize in the statistics")?;
        }
        Ok(sum)
    }

    /// Waits until all tasks are acknowledged.
    pub(crate) async fn acknowledged(&self, topics: &Topics) -> Result<()> {
        let mut left = None;
        let waiting = async {
            while left != Some(0) {
                sleep(GLANCE).await;
                left = Some(self.backlog(topics).await?);
            }
            Ok(())
        };
        let waited = timeout(ACKNOWLEDGED_LIMIT, waiting).await;
        waited.unwrap_or_else(|_| {
            bail!("tasks that are not acknowledged within {ACKNOWLEDGED_LIMIT:?}: {left:?}")
        })
    }

    /// Reads topics from their first message to their last.
    pub(crate) async fn read(
        &self,
        parts: &[TopicPartition],
        take: impl FnMut(&Message) -> Result<()>,
    ) -> Result<()> {
        self.read_as(Follow { start: Start::Earliest, compacted: false }, parts, take).await
    }

    async fn read_as(
        &self,
        follow: Follow,
        parts: &[TopicPartition],
        mut take: impl FnMut(&Message) -> Result<()>,
    ) -> Result<()> {
        for part in parts {
            let mut follower = self.transport.follower(part, follow).await?;
            let Some(last) = follower.last_position().await? else { continue };
            loop {
                let message = timeout(SILENCE_LIMIT, follower.next()).await;
                let message = message.with_context(|| format!("the end of {part}"))??;
                take(&message)?;
                if message.position >= last {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Has the broker compact ledger and metadata topic at so many bytes.
    pub(crate) async fn compact_at(&self, topics: &Topics, bytes: u64) -> Result<()> {
        for topic in [&topics.names.ledger, &topics.names.metadata] {
            let admin = self.sandbox.admin();
            admin.set_policy(topic, "compactionThreshold", &json!(bytes)).await?;
        }
        Ok(())
    }

    /// Compacts the ledger. The broker refuses that while it does so by itself.
    pub(crate) async fn compact(&self, topics: &Topics) -> Result<()> {
        self.sandbox.admin().compact(&topics.names.ledger).await
    }

    /// Entries of the ledger's compacted view with what has come behind it, and the bytes in them
    /// that its writers chose.
    pub(crate) async fn ledger_view(&self, topics: &Topics) -> Result<(usize, usize)> {
        let (mut entries, mut bytes) = (0, 0);
        let compacted = Follow { start: Start::Earliest, compacted: true };
        let take = |message: &Message| {
            let properties = message.properties.iter().map(|(key, value)| key.len() + value.len());
            let key = message.key.as_ref().map_or(0, String::len);
            entries += 1;
            bytes += key + message.payload.len() + properties.sum::<usize>();
            Ok(())
        };
        self.read_as(compacted, &topics.parts(&topics.names.ledger), take).await?;
        Ok((entries, bytes))
    }

    /// Entries and KiB of the ledger's compacted view, as the broker counts them; zero before its
    /// first compaction.
    pub(crate) async fn compacted_ledger(&self, topics: &Topics) -> Result<(f64, f64)> {
        let mut sum = (0.0, 0.0);
        for part in topics.parts(&topics.names.ledger) {
            let stats = self.sandbox.admin().internal_stats(&part.to_string()).await?;
            let field = |name: &str| {
                let value = stats.pointer(&format!("/compactedLedger/{name}"));
                let value = value.and_then(Value::as_f64);
                value.with_context(|| format!("no {name} of the compacted ledger"))
            };
            // Before the first compaction Pulsar says that it is of less than nothing.
            sum = (sum.0 + field("entries")?.max(0.0), sum.1 + field("size")?.max(0.0) / 1024.0);
        }
        Ok(sum)
    }

    /// Ends the broker as an operator would: what runs it, such as a profiler, then writes what it
    /// has.
    pub(crate) async fn close(mut self) -> Result<()> {
        match &mut self.broker {
            Some(broker) => broker.stop().await,
            None => Ok(()),
        }
    }
}

/// The topics of a run.
pub(crate) struct Topics {
    pub(crate) names: TopicNames,
    partitions: Option<u32>,
    settings: TopicSettings,
}

impl Topics {
    /// The partitions of one of the topics, or the topic itself.
    pub(crate) fn parts(&self, topic: &str) -> Vec<TopicPartition> {
        let part = |partition| TopicPartition { topic: topic.to_owned(), partition };
        match self.partitions {
            None => vec![part(-1)],
            Some(count) => (0..i32::try_from(count).unwrap_or(i32::MAX)).map(part).collect(),
        }
    }
}

/// What a folder and all below it take on the disk, where nobody is kept from removing files
/// meanwhile.
fn disk_mib(folder: &Path) -> Result<f64> {
    /// The unit of a file's blocks, whatever those of the file system are.
    const BLOCK_BYTES: u64 = 512;
    let (mut folders, mut blocks) = (vec![folder.to_owned()], 0);
    while let Some(folder) = folders.pop() {
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(cause) if cause.kind() == ErrorKind::NotFound => continue,
            Err(cause) => return Err(cause).with_context(|| folder.display().to_string()),
        };
        for entry in entries {
            let entry = entry?;
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => folders.push(entry.path()),
                Ok(metadata) => blocks += metadata.blocks(),
                Err(cause) if cause.kind() == ErrorKind::NotFound => {}
                Err(cause) => return Err(cause.into()),
            }
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let bytes = (blocks * BLOCK_BYTES) as f64;
    Ok(bytes / MIB)
}

/// So many bytes.
pub(crate) fn body_of(bytes: usize) -> Bytes {
    Bytes::from(vec![b'x'; bytes])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_files_of_a_folder_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let before = disk_mib(folder.path()).unwrap();
        let below = folder.path().join("below");
        std::fs::create_dir(&below).unwrap();
        std::fs::write(below.join("file"), vec![1; 3 << 20]).unwrap();
        std::fs::File::open(below.join("file")).unwrap().sync_all().unwrap();
        let more = disk_mib(folder.path()).unwrap() - before;
        assert!((3.0..3.1).contains(&more), "{more}");
        assert!(disk_mib(&folder.path().join("absent")).is_ok_and(|it| it == 0.0));
    }
}
