//! Finished tasks about which nothing is being done, in little space: what is left of each is a
//! record of fixed size, in chunks that are sorted by id. What few tasks have beside it is kept
//! apart.

use super::task::{Stage, Task, TerminalStep, Trail};
use crate::protocol::entry::NextAttempt;
use crate::protocol::fold::{Phase, TaskFold};
use crate::protocol::invariants::OwnRecord;
use crate::protocol::key::{Epoch, OnceKey, OwnerId};
use crate::task::{Position, TaskId};
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;

/// So many records are in a chunk at most: one that is put in or taken out moves no more of them.
const CHUNK_MAX: usize = 256;

/// Room is made for so many records at a time. Tasks end a little out of order, so that most chunks
/// are split once and then stay half full.
const ROOM: usize = 16;

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub(super) struct FinishedTasks {
    /// Each under an id that none of its records lies before.
    chunks: BTreeMap<TaskId, RecordChunk>,
    /// Of tasks that have more than a claim and an outcome of their last epoch, all their keys.
    trails: BTreeMap<TaskId, Trail>,
    /// Where the last checkpoints lie, and their keys.
    checkpoints: BTreeMap<TaskId, Box<(Position, OnceKey)>>,
    /// Who has ended a lease that another worker had granted.
    ended_by: BTreeMap<TaskId, Box<OwnerId>>,
}

/// Records of neighbours, sorted by id.
#[derive(Clone, Debug, Default)]
struct RecordChunk {
    /// The owners that the records name by their places here. There are as many as workers have
    /// been at work at that time.
    owners: Vec<OwnerId>,
    records: Vec<FinishedRecord>,
}

/// What is left of a finished task.
#[derive(Clone, Debug)]
struct FinishedRecord {
    id: TaskId,
    state_at: Option<Position>,
    state_ms: u64,
    created_ms: u64,
    /// The serial of the accepted claim of the last epoch.
    claim: u64,
    /// By how much that of the accepted outcome is higher. `None`: the keys are other ones, and
    /// kept apart.
    done: Option<NonZeroU32>,
    batch_size: Option<NonZeroU32>,
    epoch: Epoch,
    attempt: u32,
    phase: Phase,
    owner: u8,
    /// This worker has seen to what follows the end, or had nothing to see to.
    closed: bool,
    cancel: bool,
    taken_over: bool,
    dead_letter: bool,
    shown: bool,
    acked: bool,
}

impl FinishedTasks {
    /// Whether nothing is being done about a task, and it has ended.
    pub(super) fn takes(task: &Task) -> bool {
        let ended = task.fold.phase.is_terminal() && task.fold.phase != Phase::Sealed;
        let here = task.held || task.payload || task.own_record.started().is_some();
        // No entry has no tasks; a record does not tell that from one which came alone.
        let here = here || task.batch_size == Some(0);
        ended
            && task.stage.is_at_rest()
            && !here
            && task.fold.next_attempt == NextAttempt::default()
    }

    /// Puts a task in that is not there, and of which [`FinishedTasks::takes`] is true.
    pub(super) fn insert(&mut self, id: TaskId, task: Task) {
        let (claim, done) = match task.trail.pair(task.fold.epoch, task.fold.owner) {
            Some((claim, done)) => (claim, Some(done)),
            None => {
                self.trails.insert(id, task.trail);
                (0, None)
            }
        };
        if let Some(checkpoint) = task.checkpoint {
            self.checkpoints.insert(id, checkpoint);
        }
        if let Some(ended_by) = task.ended_by {
            self.ended_by.insert(id, ended_by);
        }
        let TaskFold { epoch, attempt, owner, phase, cancel, next_attempt: _ } = task.fold;
        let OwnRecord { dead_letter, shown, acked, .. } = task.own_record;
        let chunk = self.chunk_for(id);
        let record = FinishedRecord {
            id,
            state_at: task.state_at,
            state_ms: task.state_ms,
            created_ms: task.created_ms,
            claim,
            done,
            batch_size: task.batch_size.and_then(NonZeroU32::new),
            epoch,
            attempt,
            phase,
            owner: chunk.place_of(owner),
            closed: task.stage != Stage::Idle,
            cancel,
            taken_over: task.taken_over,
            dead_letter,
            shown,
            acked,
        };
        chunk.insert(record);
    }

    /// A task.
    pub(super) fn get(&self, id: TaskId) -> Option<Task> {
        let (_, chunk) = self.chunks.range(..=id).next_back()?;
        let record = chunk.records.get(chunk.find(id).ok()?)?;
        Some(self.task(chunk, record))
    }

    /// Takes a task out.
    pub(super) fn remove(&mut self, id: TaskId) -> Option<Task> {
        let (first, chunk) = self.chunks.range_mut(..=id).next_back()?;
        let first = *first;
        let at = chunk.find(id).ok()?;
        let record = chunk.records.remove(at);
        let owner = chunk.owner(record.owner);
        if chunk.records.is_empty() {
            self.chunks.remove(&first);
        }
        Some(self.taken(&record, owner))
    }

    /// Takes out these tasks, in order.
    pub(super) fn remove_range(&mut self, ids: &RangeInclusive<TaskId>) -> Vec<(TaskId, Task)> {
        let mut removed = Vec::new();
        while let Some(first) = self.chunk_with_any(ids) {
            let Some(mut chunk) = self.chunks.remove(&first) else { break };
            let (from, to) = chunk.part(ids);
            for record in chunk.records.drain(from..to) {
                let owner = chunk.owners.get(usize::from(record.owner)).copied();
                removed.push((record.id, self.taken(&record, owner.unwrap_or_default())));
            }
            if !chunk.records.is_empty() {
                // It stays under its first id, which need not be there any more.
                self.chunks.insert(first, chunk);
            }
        }
        removed
    }

    /// These tasks, in order.
    pub(super) fn range<'a>(
        &'a self,
        ids: &RangeInclusive<TaskId>,
    ) -> impl Iterator<Item = (TaskId, Task)> + use<'a> {
        let (start, end) = (*ids.start(), *ids.end());
        let before = self.chunks.range(..start).next_back();
        // Most tasks that are asked for are newer than nearly all that have finished.
        let more = self.chunks.last_key_value().is_some_and(|(last, _)| *last >= start);
        let more = more.then(|| self.chunks.range(ids.clone())).into_iter().flatten();
        before.into_iter().chain(more).flat_map(move |(_, chunk)| {
            let (from, to) = chunk.part(&(start..=end));
            let records = chunk.records.get(from..to).unwrap_or_default();
            records.iter().map(move |record| (record.id, self.task(chunk, record)))
        })
    }

    /// All tasks, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (TaskId, Task)> {
        self.chunks.values().flat_map(move |chunk| {
            chunk.records.iter().map(move |record| (record.id, self.task(chunk, record)))
        })
    }

    /// The key of the first chunk that holds any of these.
    fn chunk_with_any(&self, ids: &RangeInclusive<TaskId>) -> Option<TaskId> {
        let before = self.chunks.range(..ids.start()).next_back();
        let mut chunks = before.into_iter().chain(self.chunks.range(ids.clone()));
        let any = |chunk: &RecordChunk| {
            let (from, to) = chunk.part(ids);
            from < to
        };
        chunks.find(|(_, chunk)| any(chunk)).map(|(first, _)| *first)
    }

    /// The chunk that is to hold the task, with room for it.
    fn chunk_for(&mut self, id: TaskId) -> &mut RecordChunk {
        let first = match self.chunks.range(..=id).next_back() {
            Some((first, chunk)) if chunk.records.len() < CHUNK_MAX => *first,
            // Ids grow: what lies behind all that is there begins a chunk, and none is split for
            // it.
            Some((_, chunk)) if chunk.records.last().is_some_and(|last| last.id < id) => id,
            Some((first, _)) => self.split(*first, id),
            None => self.lower_first(id),
        };
        self.chunks.entry(first).or_default()
    }

    /// Splits a full chunk, and returns the key of the part that is to hold the task.
    fn split(&mut self, first: TaskId, id: TaskId) -> TaskId {
        let Some(chunk) = self.chunks.get_mut(&first) else { return first };
        let records = chunk.records.split_off(chunk.records.len() / 2);
        chunk.records.shrink_to_fit();
        let upper = RecordChunk { owners: chunk.owners.clone(), records };
        let Some(second) = upper.records.first().map(|record| record.id) else { return first };
        self.chunks.insert(second, upper);
        if id < second { first } else { second }
    }

    /// What lies before all others goes into the first chunk, if that has room.
    fn lower_first(&mut self, id: TaskId) -> TaskId {
        let room = |entry: &(&TaskId, &RecordChunk)| entry.1.records.len() < CHUNK_MAX;
        let first = self.chunks.first_key_value().filter(room).map(|(first, _)| *first);
        if let Some(chunk) = first.and_then(|first| self.chunks.remove(&first)) {
            self.chunks.insert(id, chunk);
        }
        id
    }

    fn task(&self, chunk: &RecordChunk, record: &FinishedRecord) -> Task {
        let trail = self.trails.get(&record.id).cloned();
        let checkpoint = self.checkpoints.get(&record.id).cloned();
        let ended_by = self.ended_by.get(&record.id).cloned();
        let task = record.task(chunk.owner(record.owner), trail);
        Task { checkpoint, ended_by, ..task }
    }

    /// The task of a record that was taken out.
    fn taken(&mut self, record: &FinishedRecord, owner: OwnerId) -> Task {
        let trail = self.trails.remove(&record.id);
        let checkpoint = self.checkpoints.remove(&record.id);
        let ended_by = self.ended_by.remove(&record.id);
        Task { checkpoint, ended_by, ..record.task(owner, trail) }
    }
}

impl RecordChunk {
    /// Where the task is, or would be.
    fn find(&self, id: TaskId) -> Result<usize, usize> {
        self.records.binary_search_by_key(&id, |record| record.id)
    }

    /// From where to where these tasks are.
    fn part(&self, ids: &RangeInclusive<TaskId>) -> (usize, usize) {
        if self.records.last().is_none_or(|last| last.id < *ids.start()) {
            return (self.records.len(), self.records.len());
        }
        let from = self.records.partition_point(|record| record.id < *ids.start());
        let to = self.records.partition_point(|record| record.id <= *ids.end());
        (from, to.max(from))
    }

    fn insert(&mut self, record: FinishedRecord) {
        if self.records.len() == self.records.capacity() {
            self.records.reserve_exact(ROOM);
        }
        // Tasks end about in order of their ids.
        let at = match self.records.last() {
            Some(last) if last.id > record.id => self.find(record.id).unwrap_or_else(|at| at),
            _ => self.records.len(),
        };
        self.records.insert(at, record);
    }

    fn owner(&self, place: u8) -> OwnerId {
        self.owners.get(usize::from(place)).copied().unwrap_or_default()
    }

    /// The place of an owner that a record is to name. There is one for it: the chunk has room for
    /// a record, so that fewer owners than [`CHUNK_MAX`] are named in it.
    fn place_of(&mut self, owner: OwnerId) -> u8 {
        if let Some(place) = self.owners.iter().position(|known| *known == owner) {
            return u8::try_from(place).unwrap_or_default();
        }
        if self.owners.len() + 1 >= CHUNK_MAX {
            self.forget_owners();
        }
        self.owners.push(owner);
        u8::try_from(self.owners.len() - 1).unwrap_or_default()
    }

    /// Keeps those owners only that a record names.
    fn forget_owners(&mut self) {
        let before = std::mem::take(&mut self.owners);
        for record in &mut self.records {
            let owner = before.get(usize::from(record.owner)).copied().unwrap_or_default();
            let place = self.owners.iter().position(|known| *known == owner).unwrap_or_else(|| {
                self.owners.push(owner);
                self.owners.len() - 1
            });
            record.owner = u8::try_from(place).unwrap_or_default();
        }
    }
}

impl FinishedRecord {
    /// The task, without what few tasks have.
    fn task(&self, owner: OwnerId, trail: Option<Trail>) -> Task {
        let Self { epoch, attempt, phase, cancel, .. } = *self;
        let trail = match self.done {
            Some(done) => Trail::of_pair(epoch, owner, (self.claim, done)),
            None => trail.unwrap_or_default(),
        };
        let mut own_record = OwnRecord::default();
        (own_record.dead_letter, own_record.shown, own_record.acked) =
            (self.dead_letter, self.shown, self.acked);
        let next_attempt = NextAttempt::default();
        Task {
            fold: TaskFold { epoch, attempt, owner, phase, cancel, next_attempt },
            stage: if self.closed { Stage::Closing(TerminalStep::Closed) } else { Stage::Idle },
            batch_size: self.batch_size.map(NonZeroU32::get),
            limits: None,
            gives: None,
            held: false,
            payload: false,
            state_at: self.state_at,
            state_ms: self.state_ms,
            checkpoint: None,
            ended_by: None,
            created_ms: self.created_ms,
            taken_over: self.taken_over,
            lease_ms: None,
            own_record,
            trail,
        }
    }
}

#[cfg(test)]
mod tests;
