//! Imports an export into a queue.

use super::file::{check, records, source_of};
use super::ledgers::Ledger;
use super::marks::MovedMarks;
use super::past::{self, EntryWriter};
use super::record::{ExportLine, MovedState, QueueRecord, TaskRecord};
use super::unmarked::Unmarked;
use super::{IMPORT, MoveError, OpenLevel, PAUSED_AFTER, copy};
use crate::chance::system_random;
use crate::client::documents::DocumentAction;
use crate::client::letters::level_in;
use crate::client::registers::FollowedRegister;
use crate::client::{ActionError, Client, Queue, partition};
use crate::topics::{Priority, TopicNames};
use crate::transport::{Consumer, Outgoing, SubscriptionType, TopicPartition};
use bytes::Bytes;
use futures::future::{join_all, try_join_all};
use longhaul_core::ledger;
use longhaul_core::protocol::fold::{Phase, Verdict};
use longhaul_core::protocol::key::{Epoch, OwnerId};
use longhaul_core::protocol::register::{
    Digest, DocumentKind, DocumentName, MovedMark, QueueTask, Stamp,
};
use longhaul_core::settings::QueueSettings;
use longhaul_core::task::{TaskId, view_properties};
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// The number of tasks written together.
const AT_ONCE: usize = 128;

/// The result of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Imported {
    /// Unfinished tasks.
    pub open: u64,
    /// Finished tasks.
    pub over: u64,
    /// Tasks that an earlier import had already written.
    pub known: u64,
    /// Known tasks that had changed at the source since: their copies now match the export.
    pub again: u64,
    /// Tasks whose idempotency key belongs to a task that was started here. That task counts, and
    /// these have no copies.
    pub merged: u64,
    /// Dead letters.
    pub letters: u64,
    /// Schedules.
    pub schedules: u64,
    /// Schedules that were not imported: the queue has one of the same name.
    pub kept_schedules: Vec<String>,
    /// Tasks that were not written, and why: they are still at the source.
    pub unmoved: Vec<Unmoved>,
}

/// A task that was not written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unmoved {
    /// Its id at the source.
    pub task: String,
    /// Why it was not written.
    pub cause: String,
}

impl Queue {
    /// Imports an export into this queue, which must be set up, and pauses the queue. Each task
    /// gets one copy, however often the same export, or a later one of the same queue, is imported.
    /// A repeated import resumes an interrupted one.
    ///
    /// If the queue had no settings it gets the exported ones. It stays paused afterwards:
    /// [`resume`](crate::Queue::resume) it when the tasks are closed at the source.
    ///
    /// # Errors
    /// When the file is not a complete export, or a topic cannot be read or written. Repeating the
    /// import is safe.
    pub async fn import(&self, file: &Path) -> Result<Imported, MoveError> {
        let (client, queue) = (&self.client, self.existing().await?);
        let (head, tasks) = check(file)?;
        let source = source_of(&head)?;
        let register = client.register_of(&queue).await?;
        if register.start_stamp() == Some(source) {
            let cause = "it was exported from this queue".to_owned();
            return Err(MoveError::Form(cause));
        }
        self.pause_for(&head).await?;
        tokio::time::sleep(PAUSED_AFTER).await;
        let mut import = Import {
            levels: client.open_levels(&queue).await?,
            marks: MovedMarks::read(&client.logs(), &queue, source).await?,
            unmarked: Unmarked::new(),
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
        import.read_unmarked().await?;
        import.run(file).await
    }

    /// Pauses the queue, and writes the settings of the export if it has none.
    async fn pause_for(&self, head: &QueueRecord) -> Result<(), MoveError> {
        let stands = self.settings().await?;
        if stands.version > 0 {
            self.pause().await?;
            return Ok(());
        }
        let settings = QueueSettings::read(&head.settings)
            .map_err(|error| ActionError::Invalid(error.to_string()))?;
        let update = self.update(0, |stands| {
            *stands = settings;
            stands.paused = true;
        });
        match update.await {
            Ok(_) => Ok(()),
            Err(ActionError::VersionConflict { .. }) => Ok(self.pause().await.map(drop)?),
            Err(error) => Err(error.into()),
        }
    }
}

/// The owner of the written entries: the same for all moves from this source, and unique to them.
fn writer_of(source: Stamp) -> EntryWriter {
    let Digest(owner) = Digest::of(format!("moved/{source}").as_bytes());
    let run = u32::try_from(system_random() >> 96).unwrap_or_default();
    EntryWriter { owner: OwnerId(owner), run }
}

/// A running import.
pub(super) struct Import {
    pub(super) client: Client,
    queue: TopicNames,
    pub(super) register: FollowedRegister,
    pub(super) source: Stamp,
    pub(super) writer: EntryWriter,
    pub(super) levels: Vec<OpenLevel>,
    pub(super) marks: MovedMarks,
    pub(super) unmarked: Unmarked,
    /// The tasks of the export.
    pub(super) tasks: HashSet<QueueTask>,
    /// Consumers that acknowledge the messages of finished tasks.
    consumers: HashMap<TopicPartition, Box<dyn Consumer>>,
    /// Tasks that stay at the source, and why: mostly their keys belong to finished tasks here.
    pub(super) kept_out: HashMap<QueueTask, String>,
    imported: Imported,
}

/// A task and its copy.
struct Copied {
    record: TaskRecord,
    old: QueueTask,
    new: QueueTask,
    /// A task already held the key: an earlier copy, or another submitter's task.
    held: bool,
    /// An earlier import has written it completely, and the task has changed at the source since.
    again: bool,
}

/// The task here that already held the key.
enum ExistingTaskKind {
    /// The copy, not started by anyone else.
    Copy,
    /// Another submitter's task, which counts in place of the copy.
    Other,
    /// A finished task, which may have ended only because it was moved away from here.
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

    /// Writes the tasks whose awaited tasks are already here. Returns whether it wrote any, and the
    /// rest.
    async fn tasks(&mut self, file: &Path) -> Result<(bool, Vec<Unmoved>), MoveError> {
        let (mut moved, mut unmoved, mut batch) = (false, Vec::new(), Vec::new());
        let ledgers = self.levels.first().and_then(|level| level.ledgers.first());
        let partition = ledgers.map_or(-1, |ledger| ledger.place.partition);
        for record in records(file)? {
            let ExportLine::Task(mut record) = record? else { continue };
            let old = copy::queue_task(&record)?;
            let is_done = self.marks.mark(old).is_some_and(|mark| !record.is_ahead_of(mark));
            if is_done || self.kept_out.contains_key(&old) {
                continue;
            }
            let marks = &self.marks;
            let tasks = &self.tasks;
            if let Err(missing) = copy::rename(&mut record, old.level, marks, tasks, partition) {
                let cause = format!("it waits for {missing}, which does not exist here");
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

    /// Writes tasks completely: message, past, metadata entry, and finally the mark.
    async fn write(&mut self, batch: Vec<(QueueTask, TaskRecord)>) -> Result<(), MoveError> {
        let (mut copied, mut marks) = (Vec::new(), Vec::new());
        let mut taken = HashSet::new();
        self.begin(&batch).await?;
        for it in self.submit(batch).await? {
            if !it.again && (self.marks.is_taken(it.new) || !taken.insert(it.new)) {
                // The task has lost its key to the other one, or waits behind it. The workers at
                // the source handle that.
                let cause = format!("task {}, which was moved as well, holds its key", it.new);
                self.kept_out.insert(it.old, cause);
                continue;
            }
            let over = it.record.state != MovedState::Open;
            let found = self.found(&it).await?;
            // The letter would belong to another submitter's task.
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
            if it.again {
                self.imported.again += 1;
            } else if it.record.state == MovedState::Open {
                self.imported.open += 1;
            } else {
                self.imported.over += 1;
            }
        }
        Ok(())
    }

    /// Which task holds the key of a submitted copy.
    async fn found(&mut self, it: &Copied) -> Result<ExistingTaskKind, MoveError> {
        let (writer, over) = (self.writer, it.record.state != MovedState::Open);
        let ledger = self.ledger(it.new.lane()).await?;
        let (fold, id) = (ledger.fold(it.new.id), it.new.id);
        if !it.held || writer.alone_wrote(&fold) {
            return Ok(ExistingTaskKind::Copy);
        }
        let moved = ledger.tasks.get(&id).is_some_and(|known| known.moved);
        Ok(if !over && (moved || fold.phase == Phase::Sealed) {
            ExistingTaskKind::Over
        } else {
            ExistingTaskKind::Other
        })
    }

    /// Submits all tasks; ordered ones one after the other.
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
        let (message, key) = copy::message(&record, self.source, self.client.wall_ms())?;
        let queue = (&self.queue, old.level);
        let held = self.register.look(|keys| keys.holder(&key.0).is_some());
        let published = self.unmarked.get(&old);
        if let Some(copy) = published.filter(|copy| copy.is_begun) {
            return Ok(Copied { new: copy.task, record, old, held: true, again: false });
        }
        let published = published.map(|copy| copy.task);
        let submit = self.client.submit_keyed(queue, message, key, false, published);
        let task = submit.await.map_err(failed)?;
        // The task that holds a key may be on another level.
        let level = level_in(&task.topic, &self.queue.task);
        let new = QueueTask { level, id: task.id };
        Ok(Copied { new, record, old, held, again: false })
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
                    let busy = "began before its history was written: keep the queue paused";
                    return Err(MoveError::Busy(format!("the copy {} {busy}", key.task)));
                }
            }
        }
        Ok(())
    }

    /// The ledger of a level's partition.
    async fn ledger(&mut self, (level, index): (Priority, i32)) -> Result<&mut Ledger, MoveError> {
        let at = match self.levels.iter().position(|it| it.level == level) {
            Some(at) => at,
            None => {
                let names = self.client.level_names(&self.queue, level)?;
                self.levels.push(OpenLevel { level, names, ledgers: Vec::new() });
                self.levels.len() - 1
            }
        };
        let gone = || MoveError::Form("a level of the queue does not exist".to_owned());
        let open = self.levels.get_mut(at).ok_or_else(gone)?;
        if !open.ledgers.iter().any(|it| it.place.partition == index) {
            let place = partition(open.names.ledger.clone(), index);
            open.ledgers.push(Ledger::open(&self.client, place).await?);
        }
        let found = open.ledgers.iter_mut().find(|it| it.place.partition == index);
        found.ok_or_else(gone)
    }

    /// Publishes the metadata entries of the copies.
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
            stored?;
        }
        Ok(())
    }

    /// Acknowledges the messages of finished tasks. If that fails, a worker does it on delivery.
    async fn acknowledge(&mut self, copied: &[Copied]) {
        let ordered = self.client.queue(&*self.queue.task).settings().await;
        let ordered = ordered.is_ok_and(|it| it.settings.order.is_some());
        let by = if ordered { SubscriptionType::KeyShared } else { SubscriptionType::Shared };
        let subscription = self.client.inner.settings.subscription.clone();
        let mut receipts = Vec::new();
        for it in copied.iter().filter(|it| it.record.state != MovedState::Open) {
            let place = partition(self.queue.task_of(it.new.level), it.new.id.partition);
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
            // The letters of all levels are on one topic, and each names its task's level.
            let Some((old, mark)) = self.of_letter(&letter.task) else {
                let cause = "its dead letter is of a task that is not here".to_owned();
                self.imported.unmoved.push(Unmoved { task: letter.task, cause });
                continue;
            };
            if mark.letter {
                continue;
            }
            let topic = self.queue.task_of(mark.to.level);
            let message = copy::letter(&letter, mark.to.id, &topic);
            let place = partition(self.queue.dead_letters.clone(), -1);
            self.client.inner.publishers.publish(&place, message).await?;
            self.marks
                .put(&self.client, &self.register, vec![(old, MovedMark { letter: true, ..mark })])
                .await?;
            self.imported.letters += 1;
        }
        Ok(())
    }

    fn of_letter(&self, task: &str) -> Option<(QueueTask, MovedMark)> {
        let id: TaskId = task.parse().ok()?;
        Priority::ALL.into_iter().find_map(|level| {
            let old = QueueTask { level, id };
            Some((old, self.marks.mark(old)?))
        })
    }

    /// Writes schedules that are not here yet. No slot fires again: none up to the last slot of
    /// which a task was exported.
    async fn schedules(&mut self, file: &Path) -> Result<(), MoveError> {
        for record in records(file)? {
            let ExportLine::Schedule(schedule) = record? else { continue };
            let name = DocumentName::new(DocumentKind::Schedule, schedule.name.as_str());
            let name = name.map_err(|error| ActionError::Name(error.0))?;
            let (version, stands) = self.register.with_documents(|documents| {
                (documents.version(&name), documents.get(&name).is_some())
            });
            if stands {
                self.imported.kept_schedules.push(schedule.name);
                continue;
            }
            let change = (version, schedule.document);
            let action = DocumentAction { verb: "create", reason: "imported" };
            self.client.change_document(&self.register, &name, change, action).await?;
            self.imported.schedules += 1;
        }
        Ok(())
    }
}
