//! All tasks of one partition, from the ledger, the metadata topic and the task topic. Pure: takes
//! messages, answers queries.
//!
//! The ledger decides a task's state, by the library's own fold and seals. The metadata topic adds
//! what the ledger does not have: progress, tags, type, and the end of tasks whose ledger keys are
//! gone. The task topic adds unclaimed tasks. Payloads and results are not kept. Of a failure
//! reason only the beginning is kept, shared by all tasks with the same reason.
//!
//! Messages may be delivered again: a message at or before a topic's last position read changes
//! nothing.

use super::entry::{self, Update, ViewEntry};
use super::info::{TaskCounts, TaskFilter, TaskInfo, TaskStatus};
use super::pool::ValuePool;
use super::row::{OwnerIndex, RowTexts, TaskRow};
use super::series::SeriesBuilder;
use crate::client::history::missed_in;
use crate::client::view::is_late;
use crate::transport::Message;
use longhaul_core::ledger;
use longhaul_core::protocol::entry::{Claim, ClaimKind, Entry};
use longhaul_core::protocol::entry_set::BatchOutcome;
use longhaul_core::protocol::fold::{Phase, Verdict};
use longhaul_core::protocol::key::{Key, OwnerId};
use longhaul_core::protocol::seal::{Seal, Seals};
use longhaul_core::task::terms::Terms;
use longhaul_core::task::{Position, TaskId, WorkerIdentity, text};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{self, Excluded, Included, Unbounded};
use std::sync::Arc;
use std::time::Duration;

/// The topics that fill a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::client) enum TableSource {
    Ledger,
    Metadata,
    Tasks,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(in crate::client) struct TaskTable {
    partition: i32,
    rows: BTreeMap<TaskId, TaskRow>,
    owners: OwnerIndex,
    workers: BTreeMap<OwnerId, Beat>,
    /// The current version of the ledger's settings, and its heartbeat interval.
    config: Option<(u32, Duration)>,
    /// The sealed tasks.
    seals: Seals,
    words: ValuePool<str>,
    holders: ValuePool<WorkerIdentity>,
    /// The last position read of each topic.
    read_to: BTreeMap<TableSource, Position>,
}

/// The last heartbeat of a worker.
#[derive(Debug)]
struct Beat {
    identity: Option<Arc<WorkerIdentity>>,
    published_ms: u64,
    uptime_ms: u64,
    max_attempts: Option<u32>,
}

impl Beat {
    /// The number of heartbeats missed since this one.
    fn missed(&self, every: Duration, now_ms: u64) -> u64 {
        missed_in(Duration::from_millis(now_ms.saturating_sub(self.published_ms)), every)
    }
}

/// The most tags kept per task, as many as a task may have.
const TAGS_MAX: usize = 16;

/// The most characters kept of a reason.
const REASON_CHARS_MAX: usize = 200;

impl TaskTable {
    pub(in crate::client) fn new(partition: i32) -> Self {
        Self { partition, ..Self::default() }
    }

    pub(super) const fn partition(&self) -> i32 {
        self.partition
    }

    /// Reads the next message of a topic.
    pub(in crate::client) fn read(&mut self, source: TableSource, message: &Message) {
        if self.read_to.get(&source).is_some_and(|last| message.position <= *last) {
            return;
        }
        self.read_to.insert(source, message.position);
        match source {
            TableSource::Ledger => self.read_ledger(message),
            TableSource::Metadata => match entry::read(message) {
                Some(ViewEntry::Updated(id, update)) => self.show(id, *update),
                Some(ViewEntry::Evicted(id)) => self.evict(id),
                None => {}
            },
            TableSource::Tasks => self.read_task(message),
        }
    }

    /// The last position read of the ledger.
    pub(super) fn ledger_read_to(&self) -> Option<Position> {
        self.read_to.get(&TableSource::Ledger).copied()
    }

    /// Whether any message of a topic was read.
    pub(in crate::client) fn has_read(&self, source: TableSource) -> bool {
        self.read_to.contains_key(&source)
    }

    fn read_ledger(&mut self, message: &Message) {
        let Ok(entry) = ledger::read(message) else { return };
        match &entry {
            Entry::Heartbeat(heartbeat) => {
                let said =
                    ledger::content(message).and_then(|content| WorkerIdentity::read(&content));
                let known =
                    self.workers.get(&heartbeat.owner).and_then(|worker| worker.identity.clone());
                let same = known.filter(|known| said.as_ref() == Some(known));
                let identity = same.or_else(|| said.map(Arc::new));
                let (uptime_ms, max_attempts) = (heartbeat.uptime_ms, heartbeat.max_attempts);
                let published_ms = message.publish_time_ms;
                let beat = Beat { identity, published_ms, uptime_ms, max_attempts };
                self.workers.insert(heartbeat.owner, beat);
            }
            Entry::Tombstone(Key::Heartbeat(owner)) => drop(self.workers.remove(owner)),
            Entry::Tombstone(Key::Seal(key)) => self.seals.gone(*key),
            Entry::Seal(seal) => self.seal(message.position, seal),
            Entry::Claim(_)
            | Entry::Done(_)
            | Entry::Cancel(_)
            | Entry::Checkpoint(_)
            | Entry::Renewal(_) => {
                if let Some(id) = entry.task() {
                    self.fold(id, &entry, message);
                }
            }
            Entry::Config(config) => {
                let read = (config.version, config.heartbeat);
                self.config = Some(self.config.filter(|known| known.0 > read.0).unwrap_or(read));
            }
            Entry::Tombstone(_) => {}
        }
    }

    fn fold(&mut self, id: TaskId, entry: &Entry, message: &Message) {
        let published_ms = message.publish_time_ms;
        if self.seals.holds(id.entry_id()) {
            return;
        }
        let mut fold = self.rows.get(&id).map(|row| row.fold(&self.owners)).unwrap_or_default();
        if fold.apply(entry) != Verdict::Accepted {
            return;
        }
        let row = self.rows.entry(id).or_default();
        if !row.is_known() && row.created_ms == 0 {
            row.created_ms = published_ms;
        }
        if let Entry::Claim(claim) = entry
            && let Some(base) = claim.base
            && !row.submitted
        {
            row.created_ms = base.created_ms;
        }
        if !matches!(entry, Entry::Checkpoint(_) | Entry::Renewal(_)) {
            row.changed_ms = published_ms;
        }
        row.set_lease(entry, message);
        if let Entry::Claim(Claim { kind: ClaimKind::Run, .. }) = entry {
            let holder = row.leased.as_deref().map(|lease| WorkerIdentity::named(&*lease.worker));
            row.holder = holder.map(|holder| self.holders.share(holder));
        }
        row.set_fold(&fold, &mut self.owners);
    }

    /// Seals tasks. Sealed tasks that the metadata topic does not show are removed.
    fn seal(&mut self, at: Position, seal: &Seal) {
        for range in seal.entries.ranges() {
            let gone = self.rows.range(range.tasks()).filter(|(_, row)| row.shown.is_none());
            let gone: Vec<TaskId> = gone.map(|(id, _)| *id).collect();
            for id in gone {
                self.rows.remove(&id);
            }
        }
        self.seals.read(at, seal);
    }

    fn show(&mut self, id: TaskId, update: Update) {
        let ended = update.shown.phase.is_terminal();
        let before = self.rows.get(&id).and_then(|row| row.shown);
        if let Some(before) = before
            && is_late((before.epoch, before.phase.is_terminal()), (update.epoch, ended))
        {
            return;
        }
        let Update { mut shown, fields, .. } = update;
        shown.epoch = shown.epoch.max(before.map_or(0, |before| before.epoch));
        let tags = fields.tags.into_iter().flatten().take(TAGS_MAX);
        let tags = tags.map(|tag| self.words.share(tag)).collect();
        let task_type = fields.task_type.map(|name| self.words.share(name));
        let key = fields.task_key.map(String::into_boxed_str);
        // As `TaskMetadata::reason`.
        let reason = fields.detail.or(fields.failure_reason);
        let reason = reason.map(|reason| self.words.share(start(&reason)));
        let cause = fields.failure_cause;
        let progress = fields.progress.filter(|_| shown.phase == Phase::Running);
        let waits_for = fields.waits_for.into_boxed_slice();
        let parked = !waits_for.is_empty();
        let texts = RowTexts { tags, task_type, key, progress, waits_for, reason, cause };
        let row = self.rows.entry(id).or_default();
        if !row.submitted {
            row.created_ms = fields.submitted_at.unwrap_or(fields.created);
        }
        if !row.is_claimed() {
            row.changed_ms = fields.last_updated;
        }
        row.show(shown, fields.next_attempt_at.unwrap_or_default(), parked);
        if !row.is_claimed() {
            row.holder = fields.worker.map(|worker| self.holders.share(worker));
        }
        // The writer of an entry may have lost the task's message, and with it tags, type and key:
        // keep those of the previous entry.
        let before = row.texts.take().map(|texts| *texts).unwrap_or_default();
        row.texts = texts.or(before).boxed();
    }

    fn evict(&mut self, id: TaskId) {
        let sealed = self.seals.holds(id.entry_id());
        if let Some(row) = self.rows.get_mut(&id) {
            row.shown = None;
            // A task evicted from the metadata topic has ended, unless the ledger has an unsealed
            // claim of it.
            if sealed || !row.is_claimed() {
                self.rows.remove(&id);
            }
        }
    }

    fn read_task(&mut self, message: &Message) {
        let id = TaskId::new(message.position, self.partition);
        if message.replicated_from.is_some() {
            return;
        }
        let sealed = self.seals.holds(id.entry_id());
        if sealed && !self.rows.contains_key(&id) {
            return;
        }
        let property = |name| message.properties.get(name).filter(|text| !text.is_empty());
        let terms = Terms::read(&message.properties.to_map(), message.publish_time_ms);
        let terms = terms.unwrap_or_default();
        let tags = terms.tags.into_iter().map(|tag| self.words.share(tag)).collect();
        let task_type = property(text::TASK_TYPE).map(|name| self.words.share(name));
        let key = property(text::TASK_KEY).filter(|key| key.len() <= text::TASK_KEY_BYTES_MAX);
        let key = key.map(Into::into);
        let texts = RowTexts { tags, task_type, key, ..RowTexts::default() };
        let row = self.rows.entry(id).or_default();
        row.submitted = true;
        row.created_ms = message.publish_time_ms;
        row.changed_ms = row.changed_ms.max(message.publish_time_ms);
        row.schedule(terms.scheduled_at_ms.unwrap_or_default());
        let before = row.texts.take().map(|texts| *texts).unwrap_or_default();
        row.texts = before.or(texts).boxed();
    }

    fn ended(&self, id: TaskId) -> Option<BatchOutcome> {
        self.seals.ended(id.entry_id())
    }

    /// Appends tasks behind `after` that match the filter to the page, up to `limit` in all.
    /// Returns whether there are more.
    pub(super) fn page(
        &self,
        filter: &TaskFilter,
        after: Option<TaskId>,
        limit: usize,
        now_ms: u64,
        page: &mut Vec<TaskInfo>,
    ) -> bool {
        for (id, row) in self.taken((after.map_or(Unbounded, Excluded), Unbounded), filter, now_ms)
        {
            if page.len() >= limit {
                return true;
            }
            page.push(self.info(*id, row, now_ms));
        }
        false
    }

    /// Up to `limit` tasks before this one that match the filter, newest first.
    pub(super) fn newest(
        &self,
        filter: &TaskFilter,
        before: Option<TaskId>,
        limit: usize,
        now_ms: u64,
    ) -> Vec<TaskInfo> {
        let taken = self.taken((Unbounded, before.map_or(Unbounded, Excluded)), filter, now_ms);
        taken.rev().take(limit).map(|(id, row)| self.info(*id, row, now_ms)).collect()
    }

    /// The number of tasks before each of these that match the filter.
    pub(super) fn counts_before(
        &self,
        filter: &TaskFilter,
        ids: BTreeSet<TaskId>,
        now_ms: u64,
    ) -> Vec<(TaskId, u64)> {
        let (mut count, mut from) = (0, Unbounded);
        let count_up_to = |id: TaskId| {
            count += self.taken((from, Excluded(id)), filter, now_ms).count() as u64;
            from = Included(id);
            (id, count)
        };
        ids.into_iter().map(count_up_to).collect()
    }

    fn taken<'a>(
        &'a self,
        between: (Bound<TaskId>, Bound<TaskId>),
        filter: &'a TaskFilter,
        now_ms: u64,
    ) -> impl DoubleEndedIterator<Item = (&'a TaskId, &'a TaskRow)> {
        self.rows.range(between).filter(move |(id, row)| {
            if !row.is_known() {
                return false;
            }
            let status = row.status(self.ended(**id), now_ms);
            if !filter.takes(status, row.created_ms, row.changed_ms) {
                return false;
            }
            let none = RowTexts::default();
            let texts = row.texts.as_deref().unwrap_or(&none);
            filter.takes_texts(**id, texts, has_reason(status))
        })
    }

    /// Adds the tasks to a series.
    pub(super) fn measure(&self, now_ms: u64, series: &mut SeriesBuilder) {
        for (id, row) in self.rows.iter().filter(|(_, row)| row.is_known()) {
            let status = row.status(self.ended(*id), now_ms);
            series.add(status, row.created_ms, row.changed_ms);
        }
    }

    /// A task's state.
    pub(super) fn get(&self, id: TaskId, now_ms: u64) -> Option<TaskInfo> {
        let row = self.rows.get(&id).filter(|row| row.is_known())?;
        Some(self.info(id, row, now_ms))
    }

    /// Counts the tasks, and all that have ever ended: seals carry the counts of sealed tasks.
    pub(super) fn count(&self, now_ms: u64, counts: &mut TaskCounts) {
        counts.ever_ended = counts.ever_ended.plus(self.seals.counts());
        for (id, row) in self.rows.iter().filter(|(_, row)| row.is_known()) {
            let sealed = self.ended(*id);
            let status = row.status(sealed, now_ms);
            let ready = (status == TaskStatus::Ready).then(|| (*id, row.ready_since_ms()));
            counts.add(status, ready);
            if sealed.is_none() && row.is_claimed() {
                counts.record_end(status);
            }
        }
    }

    fn info(&self, id: TaskId, row: &TaskRow, now_ms: u64) -> TaskInfo {
        let owner = row.owner(&self.owners);
        // For a lease, the worker is the gateway that granted it.
        let granted = |owner: OwnerId| {
            let mut workers = self.workers.iter();
            workers.find(|(worker, _)| owner.is_lease_of(**worker)).map(|(_, beat)| beat)
        };
        let said = owner.and_then(|owner| self.workers.get(&owner).or_else(|| granted(owner)));
        let texts = row.texts.as_deref().cloned().unwrap_or_default();
        let status = row.status(self.ended(id), now_ms);
        let waits = status == TaskStatus::Waiting;
        TaskInfo {
            id,
            status,
            created_ms: row.created_ms,
            changed_ms: row.changed_ms,
            due_ms: row.due_ms(),
            attempts: row.attempts(),
            epoch: row.epoch.0,
            owner: owner.map(|owner| owner.to_string()),
            worker: row.holder.clone().or_else(|| said.and_then(|worker| worker.identity.clone())),
            lease: row.lease(),
            cancel_requested: row.cancel,
            progress: texts.progress,
            waits_for: if waits { texts.waits_for.into_vec() } else { Vec::new() },
            tags: texts.tags.into_vec(),
            task_type: texts.task_type,
            key: texts.key.map(String::from),
            reason: texts.reason.filter(|_| has_reason(status)),
            cause: texts.cause.filter(|_| has_reason(status)),
        }
    }
}

/// While another attempt runs, the reason is that of a previous attempt, which is not shown.
const fn has_reason(status: TaskStatus) -> bool {
    !matches!(status, TaskStatus::Claimed | TaskStatus::Running | TaskStatus::Completed)
}

fn start(reason: &str) -> &str {
    let end = reason.char_indices().nth(REASON_CHARS_MAX).map_or(reason.len(), |(at, _)| at);
    reason.get(..end).unwrap_or(reason)
}

mod workers;

#[cfg(test)]
mod tests;
