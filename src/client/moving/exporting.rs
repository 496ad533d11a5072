//! Reads the whole content of a queue as records.

use super::ledgers::Ledger;
use super::reading::LevelReading;
use super::record::{
    EndRecord, ExportLine, ExportRecord, FORM, KeyRecord, LetterRecord, MovedState, QueueRecord,
    ScheduleRecord, TaskRecord,
};
use super::{MoveError, OpenLevel, PAUSED_AFTER};
use crate::client::registers::FollowedRegister;
use crate::client::{Client, DeadLetterFilter, Queue, partition};
use crate::topics::TopicNames;
use crate::transport::Message;
use bytes::Bytes;
use longhaul_core::ledger;
use longhaul_core::protocol::entry::Entry;
use longhaul_core::protocol::entry_set::BatchOutcome;
use longhaul_core::protocol::register::{
    DocumentKind, DocumentName, KeyKind, KeyName, QueueTask, RegisterEntry, Stamp,
};
use longhaul_core::protocol::waits::{DependencyName, WaitsFor};
#[cfg(feature = "schedules")]
use longhaul_core::schedule::{
    Schedule,
    firing::{FiringKey, FiringSlot},
};
use longhaul_core::task::text::AFTER;
use longhaul_core::task::{Priority, TaskId, TaskMetadata, TaskOutcome, TaskState};
use serde_json::Value;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::ops::ControlFlow;

/// The number of letters read per page.
const LETTERS_AT_ONCE: usize = 1_000;

/// An export of a whole queue. See [`Queue::export`].
pub struct Export {
    pub(super) client: Client,
    queue: TopicNames,
    register: FollowedRegister,
    source: Stamp,
    pub(super) levels: Vec<OpenLevel>,
    count: Exported,
}

impl fmt::Debug for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { queue, source, count, .. } = self;
        f.debug_struct("Export")
            .field("queue", queue)
            .field("source", source)
            .field("count", count)
            .finish_non_exhaustive()
    }
}

/// The result of an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exported {
    /// Unfinished tasks.
    pub open: u64,
    /// Finished tasks.
    pub over: u64,
    /// Unhandled dead letters.
    pub letters: u64,
    /// Schedules.
    pub schedules: u64,
    /// Undecodable messages; they have no records.
    pub unreadable: u64,
}

impl Queue {
    /// Opens an export of the whole queue: settings, tasks with their attempts, checkpoints, keys
    /// and metadata entries, dead letters, schedules. It changes nothing, except that a register
    /// that no worker has ever read gets a first entry.
    ///
    /// Records contradict each other if workers run during the export. Pause the queue first, and
    /// either wait for running tasks ([`Export::until_idle`]) or take them from their workers
    /// ([`Export::take_running`]).
    ///
    /// # Errors
    /// When a topic cannot be read.
    pub async fn export(&self) -> Result<Export, MoveError> {
        let (client, queue) = (self.client.clone(), self.existing().await?);
        let register = client.register_of(&queue).await?;
        let source = source_of(&client, &register).await?;
        let levels = client.open_levels(&queue).await?;
        let count = Exported::default();
        Ok(Export { client, queue, register, source, levels, count })
    }

    /// Pauses the queue, waits until its workers have read that, and opens an
    /// [`export`](Self::export).
    ///
    /// # Errors
    /// As [`export`](Self::export), and when the queue cannot be paused.
    pub async fn export_paused(&self) -> Result<Export, MoveError> {
        self.pause().await?;
        tokio::time::sleep(PAUSED_AFTER).await;
        self.export().await
    }
}

/// The unique name of a queue: the stamp of the first entry of its register.
async fn source_of(client: &Client, register: &FollowedRegister) -> Result<Stamp, MoveError> {
    if let Some(start) = register.start_stamp() {
        return Ok(start);
    }
    let registers = &client.inner.registers;
    let start = RegisterEntry::Start(registers.next_stamp());
    registers.publish(&client.inner.publishers, register, &start).await?;
    register
        .start_stamp()
        .ok_or_else(|| MoveError::NotStored("the first entry of the register".to_owned()))
}

impl Export {
    /// Identifies the queue and its cluster. All exports of a queue have the same source.
    #[must_use]
    pub fn source(&self) -> String {
        self.source.to_string()
    }

    /// Writes all records, in an order in which they can be imported. Running tasks are exported as
    /// unfinished ones, with their current attempts used up.
    ///
    /// # Errors
    /// When a topic cannot be read, or `take` fails.
    pub async fn records(
        &mut self,
        mut take: impl FnMut(ExportRecord) -> io::Result<()>,
    ) -> Result<Exported, MoveError> {
        self.count = Exported::default();
        let settings = self.register.with_documents(|documents| {
            documents.get(&DocumentName::queue_settings()).cloned().unwrap_or_default()
        });
        let (source, topic) = (self.source.to_string(), self.queue.task.clone());
        take(ExportRecord(ExportLine::Queue(QueueRecord { form: FORM, source, topic, settings })))?;
        let levels = std::mem::take(&mut self.levels);
        for OpenLevel { level, names, ledgers } in &levels {
            for ledger in ledgers {
                self.partition((*level, names), ledger, ledgers, &mut take).await?;
            }
        }
        self.levels = levels;
        self.letters(&mut take).await?;
        self.schedules(&mut take)?;
        let Exported { open, over, letters, schedules, .. } = self.count;
        take(ExportRecord(ExportLine::End(EndRecord { tasks: open + over, letters, schedules })))?;
        Ok(self.count)
    }

    async fn partition(
        &mut self,
        (level, names): (Priority, &TopicNames),
        ledger: &Ledger,
        ledgers: &[Ledger],
        take: &mut impl FnMut(ExportRecord) -> io::Result<()>,
    ) -> Result<(), MoveError> {
        let (client, index) = (self.client.clone(), ledger.place.partition);
        let logs = client.logs();
        let place = |topic: &String| partition(topic.clone(), index);
        let mut reading = LevelReading::new(level, ledger);
        let metadata = place(&names.metadata);
        logs.read_all(&metadata, |_, message| reading.locate(message)).await?;
        let mut taken = Ok(());
        logs.read(&metadata, |_, message| {
            if let Some(record) = reading.over(message) {
                taken = self.take_task(record, ledgers, take);
            }
            goes_on(&taken)
        })
        .await?;
        std::mem::replace(&mut taken, Ok(()))?;
        for record in self.unshown(&reading, ledger).await? {
            self.take_task(record, ledgers, take)?;
        }
        logs.read(&place(&names.task), |_, message| {
            if message.undecodable.is_some() {
                self.count.unreadable += 1;
            } else if let Some(record) = reading.open(message) {
                taken = self.take_task(record, ledgers, take);
            }
            goes_on(&taken)
        })
        .await?;
        Ok(taken?)
    }

    fn take_task(
        &mut self,
        record: TaskRecord,
        ledgers: &[Ledger],
        take: &mut impl FnMut(ExportRecord) -> io::Result<()>,
    ) -> io::Result<()> {
        if record.state == MovedState::Open {
            self.count.open += 1;
        } else {
            self.count.over += 1;
        }
        let key = self.key_of(&record);
        let record = forget_the_sealed(record, ledgers);
        take(ExportRecord(ExportLine::Task(Box::new(TaskRecord { key, ..record }))))
    }

    /// The idempotency key that a task holds. The key of a dead letter's replay is left out: it
    /// contains an id that means another task elsewhere.
    fn key_of(&self, record: &TaskRecord) -> Option<KeyRecord> {
        let task = QueueTask { level: record.level, id: record.id.parse().ok()? };
        let (name, digest) = self.register.look(|keys| {
            let name = keys.held_by(task)?.clone();
            let digest = keys.holder(&name).and_then(|holding| holding.digest);
            Some((name, digest))
        })?;
        let own =
            name.kind() == KeyKind::Idempotency && !name.text().starts_with(KeyName::OF_REPLAYS);
        let digest = digest.map(|digest| format!("{:032x}", digest.0));
        own.then(|| KeyRecord { text: name.text().to_owned(), digest })
    }

    /// Tasks whose end is only on the ledger, which also has their results.
    async fn unshown(
        &self,
        reading: &LevelReading<'_>,
        ledger: &Ledger,
    ) -> Result<Vec<TaskRecord>, MoveError> {
        let mut unshown = reading.unshown();
        if !unshown.is_empty() {
            let note = |_, message: &Message| add_entry(&mut unshown, ledger, message);
            self.client.logs().read_all(&ledger.place, note).await?;
        }
        Ok(unshown.into_values().collect())
    }

    async fn letters(
        &mut self,
        take: &mut impl FnMut(ExportRecord) -> io::Result<()>,
    ) -> Result<(), MoveError> {
        let letters = self.client.queue(&self.queue.task).dead_letters().await?;
        let mut after = None;
        loop {
            let page = letters.list(&DeadLetterFilter::new(), after, LETTERS_AT_ONCE).await?;
            for letter in page.letters {
                let letter = letters.at(letter.position, letter.task.id).await?;
                let Some(letter) = letter else { continue };
                let (task, properties) = (letter.task.id.to_string(), letter.properties);
                let payload = letter.payload.unwrap_or_default();
                self.count.letters += 1;
                take(ExportRecord(ExportLine::Letter(LetterRecord { task, properties, payload })))?;
            }
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    fn schedules(
        &mut self,
        take: &mut impl FnMut(ExportRecord) -> io::Result<()>,
    ) -> Result<(), MoveError> {
        let all: Vec<(String, Bytes)> = self.register.with_documents(|documents| {
            let all = documents.of(DocumentKind::Schedule);
            all.map(|(name, _, content)| (name.text().to_owned(), content.clone())).collect()
        });
        for (name, document) in all {
            #[cfg(feature = "schedules")]
            let document = self.settled(&name, document);
            self.count.schedules += 1;
            take(ExportRecord(ExportLine::Schedule(ScheduleRecord { name, document })))?;
        }
        Ok(())
    }
}

/// Removes completed, sealed tasks from the tasks that this one waits for. Those without a result
/// are unknown at the target, which has the same effect.
fn forget_the_sealed(mut record: TaskRecord, ledgers: &[Ledger]) -> TaskRecord {
    let completed = |name: &DependencyName| {
        let DependencyName::Task(id) = name else { return false };
        let ledger = ledgers.iter().find(|ledger| ledger.place.partition == id.partition);
        ledger.is_some_and(|it| it.sealed.get(id.entry_id()) == Some(BatchOutcome::Completed))
    };
    if let Some(names) = record.properties.get(AFTER)
        && let Ok(mut list) = WaitsFor::read(names, None)
        && list.names.iter().any(completed)
    {
        list.names.retain(|name| !completed(name));
        record.properties.remove(AFTER);
        if let Ok(names) = list.text().as_ref()
            && !names.is_empty()
        {
            record.properties.insert(AFTER.to_owned(), names.clone());
        }
    }
    if let Some(mut list) = record.waits.as_ref().and_then(|it| WaitsFor::of_content(it.as_bytes()))
    {
        list.names.retain(|name| !completed(name));
        record.waits = Some(list.content());
    }
    record
}

#[cfg(feature = "schedules")]
impl Export {
    /// A schedule without the slots that have already fired: their keys stay on this register. An
    /// unreadable schedule is exported unchanged.
    fn settled(&self, name: &str, document: Bytes) -> Bytes {
        let Ok(mut schedule) = Schedule::read(&document) else { return document };
        let now_ms = self.client.wall_ms();
        self.register.look(|keys| {
            let (from, to) = FiringKey::range(name, false, now_ms);
            let fired = keys.between(KeyKind::Idempotency, from, to).rev();
            let last = fired.filter_map(|(key, _)| FiringKey::parse(key.text())).next();
            schedule.since = schedule.since.max(last.map_or(0, |FiringKey(_, slot)| slot.ms));
            schedule.triggers.retain(|ms| {
                let slot = FiringKey(name, FiringSlot { ms: *ms, by_hand: true }).to_string();
                let key = KeyName::new(KeyKind::Idempotency, slot);
                key.is_ok_and(|key| keys.last_holder(&key).is_none())
            });
        });
        schedule.content().unwrap_or(document)
    }
}

fn goes_on(taken: &io::Result<()>) -> ControlFlow<()> {
    if taken.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
}

/// Adds the metadata entry that the worker would have shown to a task's record, if this ledger
/// entry ended the task.
fn add_entry(unshown: &mut HashMap<TaskId, TaskRecord>, ledger: &Ledger, message: &Message) {
    let Ok(entry) = ledger::read(message) else { return };
    let Some(record) = entry.task().and_then(|id| unshown.get_mut(&id)) else { return };
    let Some(known) = entry.task().and_then(|id| ledger.tasks.get(&id)) else { return };
    let key = match &entry {
        Entry::Done(done) => done.key,
        Entry::Claim(claim) if claim.kind.closes() => claim.key,
        Entry::Claim(_)
        | Entry::Cancel(_)
        | Entry::Heartbeat(_)
        | Entry::Checkpoint(_)
        | Entry::Renewal(_)
        | Entry::Seal(_)
        | Entry::Config(_)
        | Entry::Tombstone(_) => return,
    };
    if (key.epoch, key.owner) != (known.fold.epoch, known.fold.owner) {
        return;
    }
    let content = ledger::content(message).unwrap_or_default();
    let (state, outcome) = match record.state {
        MovedState::Open => return,
        MovedState::Completed => (TaskState::Completed, None),
        MovedState::Failed => (TaskState::Failed, Some(TaskOutcome::Final)),
        MovedState::Cancelled => (TaskState::Failed, Some(TaskOutcome::Cancelled)),
        MovedState::Expired => (TaskState::Failed, Some(TaskOutcome::Expired)),
    };
    let times = (record.claimed, message.publish_time_ms.max(record.claimed));
    let bare = TaskMetadata::new(record.id.clone(), state, record.attempts, times);
    let entry = if outcome.is_none() {
        TaskMetadata { result: Some(content), ..bare }
    } else {
        let reason = String::from_utf8_lossy(&content).into_owned();
        TaskMetadata { failure_reason: Some(reason), outcome, ..bare }
    };
    record.entry = serde_json::to_value(entry).ok().filter(Value::is_object);
}
