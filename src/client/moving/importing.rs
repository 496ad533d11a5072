//! Writes what an export holds to a queue.

use super::file::{check, records, source_of};
use super::ledgers::Ledger;
use super::marks::{MovedMark, MovedMarks};
use super::past::{self, EntryWriter};
use super::record::{ExportLevel, ExportLine, MovedState, QueueRecord, TaskRecord};
use super::{IMPORT, MoveError, OpenLevel, PAUSED_AFTER, copy};
use crate::chance::system_random;
use crate::client::registers::FollowedRegister;
use crate::client::{Client, DocumentError, Queue, partition};
use crate::topics::{Priority, TopicNames};
use crate::transport::{Consumer, Outgoing, SubscriptionType, TopicPartition};
use bytes::Bytes;
use futures::future::{join_all, try_join_all};
use longhaul_core::ledger;
use longhaul_core::protocol::fold::{Phase, Verdict};
use longhaul_core::protocol::key::{Epoch, OwnerId};
use longhaul_core::protocol::register::{Digest, DocumentKind, DocumentName, QueueTask, Stamp};
use longhaul_core::settings::QueueSettings;
use longhaul_core::task::{TaskId, view_properties};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

/// Tasks that are written at once.
const AT_ONCE: usize = 128;

/// What was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Imported {
    /// Tasks that are to be run.
    pub open: u64,
    /// Tasks that are over.
    pub over: u64,
    /// Tasks of the export that were here already, by an earlier import.
    pub known: u64,
    /// Those of them that had gone on where they were: their copies are now as the export says.
    pub again: u64,
    /// Tasks whose idempotency key another task holds that was begun here: that one counts, and
    /// they have no copies.
    pub merged: u64,
    /// Dead letters.
    pub letters: u64,
    /// Schedules.
    pub schedules: u64,
    /// Schedules that stay as they are here: there was one of this name.
    pub kept_schedules: Vec<String>,
    /// Tasks that were not written, and why: they are still where they were.
    pub unmoved: Vec<Unmoved>,
}

/// A task that was not written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unmoved {
    /// Its id where it was exported.
    pub task: String,
    /// Why not.
    pub cause: String,
}

impl Queue {
    /// Writes an export to this queue, which is set up already, and pauses it meanwhile. Each task has one copy, however often the same export, or a later one of the same
    /// queue, is imported; what was interrupted goes on.
    ///
    /// The queue has the exported settings then if it had none, and is still paused:
    /// [`resume`](crate::Queue::resume) it when the tasks are closed where they were.
    ///
    /// # Errors
    /// When the file is no whole export, or a topic cannot be read or written. To import again is
    /// safe.
    pub async fn import(&self, file: &Path) -> Result<Imported, MoveError> {
        let (client, queue) = (&self.client, self.existing::<MoveError>().await?);
        let (head, tasks) = check(file)?;
        let source = source_of(&head)?;
        let register = client.register_of(&queue).await?;
        if register.look_at_start() == Some(source) {
            let cause = "it was exported from this queue".to_owned();
            return Err(MoveError::Form(cause));
        }
        self.pause_for(&head).await?;
        tokio::time::sleep(PAUSED_AFTER).await;
        let import = Import {
            levels: client.open_levels(&queue).await?,
            marks: MovedMarks::read(&client.logs(), &queue, source).await?,
            writer: writer_of(source),
            client: client.clone(),
            queue,
            register,
            source,
            tasks,
            consumers: HashMap::new(),
            kept_out: HashMap::new(),
            imported: Imported::default(),
        };
        import.run(file).await
    }

    /// Pauses the queue, and gives it the settings of the export if it has none.
    async fn pause_for(&self, head: &QueueRecord) -> Result<(), MoveError> {
        let stands = self.settings().await?;
        if stands.version > 0 {
            self.pause().await?;
            return Ok(());
        }
        let settings = QueueSettings::read(&head.settings)
            .map_err(|error| DocumentError::Invalid(error.to_string()))?;
        let update = self.update(0, |stands| {
            *stands = settings;
            stands.paused = true;
        });
        match update.await {
            Ok(_) => Ok(()),
            Err(DocumentError::VersionConflict { .. }) => Ok(self.pause().await.map(drop)?),
            Err(error) => Err(error.into()),
        }
    }
}

/// The owner of what is written: the same for all moves from this source, and nobody else's.
fn writer_of(source: Stamp) -> EntryWriter {
    let Digest(owner) = Digest::of(format!("moved/{source}").as_bytes());
    let run = u32::try_from(system_random() >> 96).unwrap_or_default();
    EntryWriter { owner: OwnerId(owner), run }
}

/// An import under way.
struct Import {
    client: Client,
    queue: TopicNames,
    register: FollowedRegister,
    source: Stamp,
    writer: EntryWriter,
    levels: Vec<OpenLevel>,
    marks: MovedMarks,
    /// Those of the export.
    tasks: HashSet<QueueTask>,
    /// By which messages of tasks that are over are acknowledged.
    consumers: HashMap<TopicPartition, Box<dyn Consumer>>,
    /// Those whose keys belong to tasks that are over here, and why they stay where they are.
    kept_out: HashMap<QueueTask, String>,
    imported: Imported,
}

/// A task and its copy.
struct Copied {
    record: TaskRecord,
    old: QueueTask,
    new: QueueTask,
    /// Some task held the key before: an earlier copy, or one of somebody else.
    held: bool,
    /// An earlier import has written it as a whole, and the task has gone on since.
    again: bool,
}

/// What stands here of a task whose key somebody held before.
enum ExistingTaskKind {
    /// Its copy, which nobody else has begun.
    Copy,
    /// A task of somebody else, which counts in its place.
    Other,
    /// One that is over, and perhaps only because it was moved away from here.
    Over,
}

impl Import {
    async fn run(mut self, file: &Path) -> Result<Imported, MoveError> {
        self.imported.known =
            self.tasks.iter().filter(|task| self.marks.get(**task).is_some()).count() as u64;
        // A task may wait for one that comes later in the file.
        loop {
            let (moved, unmoved) = self.tasks(file).await?;
            if unmoved.is_empty() || !moved {
                self.imported.unmoved = unmoved;
                break;
            }
        }
        let kept_out = std::mem::take(&mut self.kept_out).into_iter();
        let kept_out = kept_out.map(|(old, cause)| Unmoved { task: old.id.to_string(), cause });
        self.imported.unmoved.extend(kept_out);
        self.letters(file).await?;
        self.schedules(file).await?;
        Ok(self.imported)
    }

    /// Writes the tasks that wait for nothing that is not here. Returns whether there were any, and
    /// those that are left.
    async fn tasks(&mut self, file: &Path) -> Result<(bool, Vec<Unmoved>), MoveError> {
        let (mut moved, mut unmoved, mut batch) = (false, Vec::new(), Vec::new());
        let ledgers = self.levels.first().and_then(|level| level.ledgers.first());
        let partition = ledgers.map_or(-1, |ledger| ledger.place.partition);
        for record in records(file)? {
            let ExportLine::Task(mut record) = record? else { continue };
            let old = copy::queue_task(&record)?;
            let is_done = self.marks.mark(old).is_some_and(|mark| !mark.is_behind(&record));
            if is_done || self.kept_out.contains_key(&old) {
                continue;
            }
            let marks = &self.marks;
            let tasks = &self.tasks;
            if let Err(missing) = copy::rename(&mut record, old.level, marks, tasks, partition) {
                let cause = format!("it waits for {missing}, which is not here");
                unmoved.push(Unmoved { task: record.id, cause });
                continue;
            }
            moved = true;
            batch.push((old, *record));
            if batch.len() >= AT_ONCE {
                self.write(std::mem::take(&mut batch)).await?;
            }
        }
        if !batch.is_empty() {
            self.write(batch).await?;
        }
        Ok((moved, unmoved))
    }

    /// Writes tasks as a whole: message, past, entry on the metadata topic, and last the mark.
    async fn write(&mut self, batch: Vec<(QueueTask, TaskRecord)>) -> Result<(), MoveError> {
        let (mut copied, mut marks) = (Vec::new(), Vec::new());
        let mut taken = HashSet::new();
        for it in self.submit(batch).await? {
            if !it.again && (self.marks.is_taken(it.new) || !taken.insert(it.new)) {
                // It has lost its key to that one, or waits behind it. Whoever works where it is
                // sees to that.
                let cause = format!("task {}, which was moved as well, holds its key", it.new);
                self.kept_out.insert(it.old, cause);
                continue;
            }
            let over = it.record.state != MovedState::Open;
            let found = self.found(&it).await?;
            // A letter would be one of somebody else's task.
            let letter = matches!(found, ExistingTaskKind::Other);
            let epoch = Epoch(if over { 0 } else { it.record.epoch });
            let mark = (it.old, MovedMark { to: it.new, over, letter, epoch, closed: false });
            match found {
                ExistingTaskKind::Copy => copied.push(it),
                ExistingTaskKind::Other => self.imported.merged += 1,
                ExistingTaskKind::Over => {
                    let cause = format!("its key belongs to task {} here, which is over", it.new);
                    self.kept_out.insert(it.old, cause);
                    continue;
                }
            }
            marks.push(mark);
        }
        self.write_pasts(&copied).await?;
        self.show(&copied).await?;
        self.acknowledge(&copied).await;
        self.marks.put(&self.client, &self.register, marks).await?;
        for it in &copied {
            match it.record.state {
                _ if it.again => self.imported.again += 1,
                MovedState::Open => self.imported.open += 1,
                MovedState::Completed
                | MovedState::Failed
                | MovedState::Cancelled
                | MovedState::Expired => {
                    self.imported.over += 1;
                }
            }
        }
        Ok(())
    }

    /// What stands here of a task that was submitted.
    async fn found(&mut self, it: &Copied) -> Result<ExistingTaskKind, MoveError> {
        let (owner, over) = (self.writer.owner, it.record.state != MovedState::Open);
        let ledger = self.ledger(it.new.lane()).await?;
        let (fold, id) = (ledger.fold(it.new.id), it.new.id);
        let own = fold.phase != Phase::Sealed && (fold.epoch == Epoch(0) || fold.owner == owner);
        if !it.held || own {
            return Ok(ExistingTaskKind::Copy);
        }
        let moved = ledger.tasks.get(&id).is_some_and(|known| known.moved);
        Ok(if !over && (moved || fold.phase == Phase::Sealed) {
            ExistingTaskKind::Over
        } else {
            ExistingTaskKind::Other
        })
    }

    /// Submits all of them, those with an order one after the other.
    async fn submit(&self, batch: Vec<(QueueTask, TaskRecord)>) -> Result<Vec<Copied>, MoveError> {
        let (ordered, others): (Vec<_>, Vec<_>) =
            batch.into_iter().partition(|(_, record)| copy::is_ordered(record));
        let mut copied = Vec::new();
        for it in ordered {
            copied.push(self.submit_one(it).await?);
        }
        copied.extend(try_join_all(others.into_iter().map(|it| self.submit_one(it))).await?);
        Ok(copied)
    }

    async fn submit_one(
        &self,
        (old, record): (QueueTask, TaskRecord),
    ) -> Result<Copied, MoveError> {
        if let Some(mark) = self.marks.mark(old) {
            return Ok(Copied { new: mark.to, record, old, held: true, again: true });
        }
        let failed = |error| MoveError::Submit { task: record.id.clone(), error };
        let copy::KeyedMessage { message, key } =
            copy::message(&record, self.source, self.client.wall_ms())?;
        let queue = (&self.queue, old.level);
        let held = self.register.look(|keys| keys.holder(&key.0).is_some());
        let task = self.client.submit_keyed(queue, message, key, false).await.map_err(failed)?;
        let level = self.level_of(&task.topic, old)?;
        let new = QueueTask { level, id: task.id };
        Ok(Copied { new, record, old, held, again: false })
    }

    /// The level of the task that holds a key may be another one.
    fn level_of(&self, topic: &str, old: QueueTask) -> Result<Priority, MoveError> {
        for level in ExportLevel::ALL {
            let names = self.client.level_names(&self.queue, level.priority())?;
            if names.task == topic {
                return Ok(level.priority());
            }
        }
        Ok(old.level)
    }

    async fn write_pasts(&mut self, copied: &[Copied]) -> Result<(), MoveError> {
        let (client, writer, now_ms) = (self.client.clone(), self.writer, self.client.wall_ms());
        let places: HashSet<_> = copied.iter().map(|it| it.new.lane()).collect();
        for lane in places {
            let ledger = self.ledger(lane).await?;
            let mut entries = Vec::new();
            for it in copied.iter().filter(|it| it.new.lane() == lane) {
                let id = it.new.id;
                let past = past::entries(&it.record, (id, &ledger.fold(id)), writer, now_ms)?;
                let message = |(key, entry, content): (_, _, Bytes)| {
                    let entry = ledger::message(&entry, &content);
                    (key, ledger::signed(entry, &client.operator, IMPORT))
                };
                entries.extend(past.into_iter().map(message));
            }
            for (key, verdict) in ledger.write(&client, entries).await? {
                if verdict != Verdict::Accepted {
                    let busy = "was begun while its past was written: is the queue still paused?";
                    return Err(MoveError::Busy(format!("the copy {} {busy}", key.task)));
                }
            }
        }
        Ok(())
    }

    /// The ledger of a lane.
    async fn ledger(
        &mut self,
        (priority, index): (Priority, i32),
    ) -> Result<&mut Ledger, MoveError> {
        let level = ExportLevel::of(priority);
        let at = match self.levels.iter().position(|it| it.level == level) {
            Some(at) => at,
            None => {
                let names = self.client.level_names(&self.queue, priority)?;
                self.levels.push(OpenLevel { level, names, ledgers: Vec::new() });
                self.levels.len() - 1
            }
        };
        let gone = || MoveError::Form("a level of the queue is gone".to_owned());
        let open = self.levels.get_mut(at).ok_or_else(gone)?;
        if !open.ledgers.iter().any(|it| it.place.partition == index) {
            let place = partition(open.names.ledger.clone(), index);
            open.ledgers.push(Ledger::open(&self.client, place).await?);
        }
        let found = open.ledgers.iter_mut().find(|it| it.place.partition == index);
        found.ok_or_else(gone)
    }

    /// Shows what the metadata topic showed of each.
    async fn show(&mut self, copied: &[Copied]) -> Result<(), MoveError> {
        let mut shown = Vec::new();
        for it in copied {
            let Some(entry) = copy::shown(&it.record, it.new.id, &self.marks) else { continue };
            let names = self.client.level_names(&self.queue, it.new.level)?;
            let place = partition(names.metadata, it.new.id.partition);
            let Epoch(epoch) = self.ledger(it.new.lane()).await?.fold(it.new.id).epoch;
            let message = Outgoing {
                key: Some(it.new.id.to_string()),
                properties: view_properties(epoch.max(1), self.writer.owner),
                payload: entry.into(),
                ..Outgoing::default()
            };
            shown.push((place, message));
        }
        let publishers = &self.client.inner.publishers;
        let sent = shown.iter().map(|(place, it)| publishers.publish(place, it.clone()));
        for stored in join_all(sent).await {
            stored.map_err(MoveError::of_publish)?;
        }
        Ok(())
    }

    /// Acknowledges the messages of those that are over. Where that fails a worker does it when the
    /// message is delivered.
    async fn acknowledge(&mut self, copied: &[Copied]) {
        let ordered = self.client.queue(&*self.queue.task).settings().await;
        let ordered = ordered.is_ok_and(|it| it.settings.order.is_some());
        let by = if ordered { SubscriptionType::KeyShared } else { SubscriptionType::Shared };
        let subscription = self.client.inner.settings.subscription.clone();
        let mut receipts = Vec::new();
        for it in copied.iter().filter(|it| it.record.state != MovedState::Open) {
            let Ok(names) = self.client.level_names(&self.queue, it.new.level) else { continue };
            let place = partition(names.task, it.new.id.partition);
            if !self.consumers.contains_key(&place) {
                let opened = self.client.inner.transport.subscribe(&place, &subscription, by).await;
                match opened {
                    Ok(consumer) => drop(self.consumers.insert(place.clone(), consumer)),
                    Err(error) => {
                        tracing::debug!(%error, "messages of tasks that are over are left to the workers");
                        return;
                    }
                }
            }
            if let Some(consumer) = self.consumers.get_mut(&place) {
                receipts.push(consumer.ack(it.new.id.entry_id()));
            }
        }
        for receipt in receipts {
            if let Err(error) = receipt.await {
                tracing::debug!(%error, "the message of a task that is over is left to the workers");
            }
        }
    }

    async fn letters(&mut self, file: &Path) -> Result<(), MoveError> {
        for record in records(file)? {
            let ExportLine::Letter(letter) = record? else { continue };
            // The letters of all levels are on one topic, and name the task's.
            let Some((old, mark)) = self.of_letter(&letter.task) else {
                let cause = "its dead letter is of a task that is not here".to_owned();
                self.imported.unmoved.push(Unmoved { task: letter.task, cause });
                continue;
            };
            if mark.letter {
                continue;
            }
            let topic = self.client.level_names(&self.queue, mark.to.level)?.task;
            let message = copy::letter(&letter, mark.to.id, &topic);
            let place = partition(self.queue.dead_letters.clone(), -1);
            let stored = self.client.inner.publishers.publish(&place, message).await;
            stored.map_err(MoveError::of_publish)?;
            self.marks
                .put(&self.client, &self.register, vec![(old, MovedMark { letter: true, ..mark })])
                .await?;
            self.imported.letters += 1;
        }
        Ok(())
    }

    fn of_letter(&self, task: &str) -> Option<(QueueTask, MovedMark)> {
        let id: TaskId = task.parse().ok()?;
        ExportLevel::ALL.into_iter().find_map(|level| {
            let old = QueueTask { level: level.priority(), id };
            Some((old, self.marks.mark(old)?))
        })
    }

    /// Writes schedules that are not here. Slots that have fired do not fire again: none before the
    /// last one of which a task was exported.
    async fn schedules(&mut self, file: &Path) -> Result<(), MoveError> {
        for record in records(file)? {
            let ExportLine::Schedule(schedule) = record? else { continue };
            let name = DocumentName::new(DocumentKind::Schedule, schedule.name.as_str());
            let name = name.map_err(|error| DocumentError::Name(error.0))?;
            let (version, stands) = self.register.look_at_documents(|documents| {
                (documents.version(&name), documents.get(&name).is_some())
            });
            if stands {
                self.imported.kept_schedules.push(schedule.name);
                continue;
            }
            let change = (version, schedule.document);
            self.client.change_document(&self.register, &name, change).await?;
            self.imported.schedules += 1;
        }
        Ok(())
    }
}

/// The entry of a task as JSON, to be changed field by field: what a later version has written
/// stays.
pub(super) type JsonFields = serde_json::Map<String, Value>;

/// Properties of a message.
pub(super) type PropertyMap = BTreeMap<String, String>;
