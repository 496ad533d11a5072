//! Checks the logs of a queue against the invariants of the protocol.

use super::{Client, Queue, partition};
use crate::client::ReadError;
use crate::client::logs::{Logs, MessageOrigin};
use crate::client::tasks::{Update, ViewEntry, read_view_entry};
use crate::supervise::count;
use crate::topics::TopicNames;
use crate::transport::{Message, TransportErrorKind};
use longhaul_core::ledger;
use longhaul_core::protocol::invariants::{
    CompactedFolds, EntryLocation, EntryViolation, LogJudge, MetadataEntry,
};
use longhaul_core::protocol::key::{Epoch, parse_owner};
use longhaul_core::task::{Position, TaskId};

/// The most findings that are listed; all are counted.
const TOLD_MAX: usize = 1_000;

/// The result of checking the logs of a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verification {
    /// Ledger entries checked.
    pub ledger_entries: u64,
    /// Ledger messages that are no entries of this version: workers ignore them, too.
    pub malformed: u64,
    /// Metadata entries checked.
    pub metadata_entries: u64,
    /// Metadata entries that came after one of a higher epoch, from a zombie. The protocol allows
    /// them.
    pub late: u64,
    /// Tasks found in the logs.
    pub tasks: u64,
    /// The number of entries that break an invariant.
    pub broken: u64,
    /// The first 1,000 of those entries.
    pub findings: Vec<BrokenInvariant>,
    /// Places with possibly unread entries, as text: the topics of the queue differ in their
    /// partitions.
    pub unread: Vec<String>,
}

impl Verification {
    /// Whether no entry that was read breaks an invariant. This means little if there are
    /// [`unread`](Self::unread) entries.
    #[must_use]
    pub const fn is_sound(&self) -> bool {
        self.broken == 0
    }
}

/// An entry that breaks an invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BrokenInvariant {
    /// The number of the invariant in the documentation of the protocol: `C-01` to `C-23`.
    pub id: &'static str,
    /// The violation, as text.
    pub what: String,
    /// The task.
    pub task: Option<TaskId>,
    /// The partition, or -1.
    pub partition: i32,
    /// Whether the entry is on the metadata topic rather than the ledger.
    pub on_metadata: bool,
    /// The position of the entry.
    pub position: Position,
}

impl BrokenInvariant {
    fn new(partition: i32, finding: &EntryViolation) -> Self {
        let EntryViolation { violation, at, detail } = finding;
        let (on_metadata, position) = match at {
            EntryLocation::Ledger(position) => (false, *position),
            EntryLocation::Metadata(position) => (true, *position),
        };
        let told = if detail.is_empty() { String::new() } else { format!(": {detail}") };
        let what = format!("{}{told}", violation.what);
        Self { id: violation.id, what, task: violation.task, partition, on_metadata, position }
    }
}

impl Queue {
    /// Checks the logs of a queue while workers run. It reads the ledger and the metadata topic,
    /// and checks every remaining entry against the invariants that the logs can show:
    ///
    /// - C-01: a compacted ledger folds to what the log folds to
    /// - C-02: no key is used twice
    /// - C-03: each epoch has one owner
    /// - C-04: nothing is shown as running without an accepted claim
    /// - C-10: no end is shown that the ledger does not have
    /// - C-11: nothing is shown as running after a cancellation
    /// - C-18: only finished tasks are sealed
    /// - C-22: outcomes are only of the owner's own epoch
    /// - C-23: tasks are claimed only when they are due
    ///
    /// The project's own chaos tests use the same checks.
    ///
    /// Memory: some hundred bytes per entry of the partition being read. Set a time limit with
    /// [`tokio::time::timeout`].
    ///
    /// ```no_run
    /// # async fn check(client: longhaul::Client) -> Result<(), longhaul::ReadError> {
    /// let found = client.queue("tasks").verify().await?;
    /// for broken in &found.findings {
    ///     println!("{} of {:?} at {:?}: {}", broken.id, broken.task, broken.position, broken.what);
    /// }
    /// assert!(found.is_sound());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the logs cannot be read.
    pub async fn verify(&self) -> Result<Verification, ReadError> {
        let (client, names) = (&self.client, self.existing().await?);
        let logs = client.logs();
        let unread = client.unread(&names).await?;
        let mut verification = Verification { unread, ..Verification::default() };
        for index in client.past_partitions(&names).await? {
            match verify(&logs, &names, index, &mut verification).await {
                Err(ReadError::Transport(error))
                    if error.kind == TransportErrorKind::NotFound
                        && !verification.unread.is_empty() =>
                {
                    verification.unread.push(format!("partition {index} is not judged: {error}"));
                }
                judged => judged?,
            }
        }
        Ok(verification)
    }
}

impl Client {
    /// Places of entries that are on no partition of the ledger.
    async fn unread(&self, names: &TopicNames) -> Result<Vec<String>, ReadError> {
        let [tasks, ledger, metadata] = [&names.task, &names.ledger, &names.metadata]
            .map(|topic| count(&self.inner.transport, topic));
        let (tasks, ledger, metadata) = futures::try_join!(tasks, ledger, metadata)?;
        let mut unread = Vec::new();
        // A queue grows by its ledger first.
        if tasks.is_none() != ledger.is_none() || tasks > ledger {
            let what = "claims of its tasks on other partitions";
            unread.push(unlike((&names.task, tasks), (&names.ledger, ledger), what));
        }
        if metadata.is_none() != ledger.is_none() || metadata < ledger {
            let what = "entries on other partitions";
            unread.push(unlike((&names.metadata, metadata), (&names.ledger, ledger), what));
        }
        Ok(unread)
    }
}

fn unlike(
    (topic, count): (&str, Option<u32>),
    (ledger, of_ledger): (&str, Option<u32>),
    what: &str,
) -> String {
    let [count, of_ledger] = [count, of_ledger].map(|count| match count {
        None => "no partitions".to_owned(),
        Some(1) => "1 partition".to_owned(),
        Some(count) => format!("{count} partitions"),
    });
    format!("{topic} has {count}, and {ledger} has {of_ledger}: {what} are not judged")
}

async fn verify(
    logs: &Logs,
    names: &TopicNames,
    index: i32,
    verification: &mut Verification,
) -> Result<(), ReadError> {
    // Read the metadata topic first: the ledger, read later, must be ahead of it.
    let mut shown = Vec::new();
    logs.read_all(&partition(names.metadata.clone(), index), |_, message| {
        shown.extend(shown_entry(message).map(|(task, entry)| (message.position, task, entry)));
    })
    .await?;
    let ledger = partition(names.ledger.clone(), index);
    let mut compacted = CompactedFolds::default();
    let mut view = logs.open(&ledger, true).await?;
    while let Some(message) = view.next().await? {
        if let Ok(entry) = ledger::read(&message) {
            compacted.read(message.position, &entry);
        }
    }
    drop(view);
    let mut judge = LogJudge::comparing(compacted);
    logs.read_all(&ledger, |found, message| {
        let Ok(entry) = ledger::read(message) else {
            verification.malformed += 1;
            return;
        };
        let (at, published_ms) = (message.position, message.publish_time_ms);
        let content = ledger::content(message).unwrap_or_default();
        match found {
            MessageOrigin::Compacted => judge.read_kept(at, &entry, &content, published_ms),
            MessageOrigin::Log => drop(judge.read(at, &entry, &content, published_ms)),
        }
        verification.ledger_entries += 1;
    })
    .await?;
    verification.metadata_entries += u64::try_from(shown.len()).unwrap_or(u64::MAX);
    for (at, task, entry) in shown {
        match entry {
            Some(entry) => judge.shown(at, &entry),
            None => judge.evicted(at, task),
        }
    }
    verification.late += u64::try_from(judge.late()).unwrap_or(u64::MAX);
    verification.tasks += u64::try_from(judge.tasks()).unwrap_or(u64::MAX);
    let found = judge.finish();
    verification.broken += u64::try_from(found.len()).unwrap_or(u64::MAX);
    let room = TOLD_MAX.saturating_sub(verification.findings.len());
    let told = found.iter().take(room).map(|finding| BrokenInvariant::new(index, finding));
    verification.findings.extend(told);
    Ok(())
}

/// A task with its new entry; without one it is evicted.
fn shown_entry(message: &Message) -> Option<(TaskId, Option<MetadataEntry>)> {
    let (task, update) = match read_view_entry(message)? {
        ViewEntry::Evicted(task) => return Some((task, None)),
        ViewEntry::Updated(task, update) => (task, *update),
    };
    let Update { shown, epoch, fields } = update;
    let owner = message.properties.get("owner").and_then(parse_owner);
    let entry = MetadataEntry {
        task,
        epoch: epoch.map(Epoch),
        owner,
        phase: shown.phase,
        attempts: shown.attempts,
        created_ms: fields.created,
        // Results are not decoded: how they are shown is checked when nothing runs.
        body: 0,
    };
    Some((task, Some(entry)))
}
