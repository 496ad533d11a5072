//! Finished tasks without work in progress, stored compactly: a record of fixed size for each, in
//! chunks sorted by id. Data that few tasks have is stored separately.

use super::task::{Stage, Task, TerminalStep, Trail};
use crate::protocol::entry::NextAttempt;
use crate::protocol::fold::{Phase, TaskFold};
use crate::protocol::invariants::OwnRecord;
use crate::protocol::key::{Epoch, OnceKey, OwnerId};
use crate::task::{Position, TaskId};
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;

/// Maximum number of records in a chunk: an insertion or removal moves no more of them.
const CHUNK_MAX: usize = 256;

/// Number of records by which a chunk grows. Tasks end slightly out of order, so most chunks are
/// split once and then stay half full.
const ROOM: usize = 16;

/// The finished tasks. See the module's documentation.
#[derive(Clone, Debug, Default)]
pub(super) struct FinishedTasks {
    /// Each chunk under an id that is not above any of its records.
    chunks: BTreeMap<TaskId, RecordChunk>,
    /// All keys of tasks that have more than a claim and an outcome of their last epoch.
    trails: BTreeMap<TaskId, Trail>,
    /// Positions and keys of the last checkpoints.
    checkpoints: BTreeMap<TaskId, Box<(Position, OnceKey)>>,
    /// The worker that ended a lease granted by another one.
    ended_by: BTreeMap<TaskId, Box<OwnerId>>,
}

/// Records of neighbours, sorted by id.
#[derive(Clone, Debug, Default)]
struct RecordChunk {
    /// The owners, which the records reference by index. Their number is that of the workers active
    /// at the time.
    owners: Vec<OwnerId>,
    records: Vec<FinishedRecord>,
}

/// The record of a finished task.
#[derive(Clone, Debug)]
struct FinishedRecord {
    id: TaskId,
    state_at: Option<Position>,
    state_ms: u64,
    created_ms: u64,
    /// Serial of the accepted claim of the last epoch.
    claim: u64,
    /// Difference from that serial to the accepted outcome's. `None`: the task has other keys,
    /// stored separately.
    done: Option<NonZeroU32>,
    batch_size: Option<NonZeroU32>,
    epoch: Epoch,
    attempt: u32,
    phase: Phase,
    owner: u8,
    /// Whether this worker has closed the task, or had nothing to do for that.
    closed: bool,
    cancel: bool,
    taken_over: bool,
    dead_letter: bool,
    shown: bool,
    acked: bool,
}

impl FinishedTasks {
    /// Whether the task has ended and has no work in progress.
    pub(super) fn takes(task: &Task) -> bool {
        let ended = task.fold.phase.is_terminal() && task.fold.phase != Phase::Sealed;
        let here = task.held || task.payload || task.own_record.started().is_some();
        // An entry with zero tasks does not exist; a record could not tell it from a single task.
        let here = here || task.batch_size == Some(0);
        ended
            && task.stage.is_at_rest()
            && !here
            && task.fold.next_attempt == NextAttempt::default()
    }

    /// Inserts a task that is not in the set and for which [`FinishedTasks::takes`] is true.
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

    /// Removes a task.
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

    /// Removes these tasks; returns them in order.
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
                // The chunk stays under its first id, which may be gone.
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
        // Usually the requested tasks are newer than nearly all finished ones.
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

    /// The key of the first chunk that holds any of these tasks.
    fn chunk_with_any(&self, ids: &RangeInclusive<TaskId>) -> Option<TaskId> {
        let before = self.chunks.range(..ids.start()).next_back();
        let mut chunks = before.into_iter().chain(self.chunks.range(ids.clone()));
        let any = |chunk: &RecordChunk| {
            let (from, to) = chunk.part(ids);
            from < to
        };
        chunks.find(|(_, chunk)| any(chunk)).map(|(first, _)| *first)
    }

    /// The chunk for the task, with room for it.
    fn chunk_for(&mut self, id: TaskId) -> &mut RecordChunk {
        let first = match self.chunks.range(..=id).next_back() {
            Some((first, chunk)) if chunk.records.len() < CHUNK_MAX => *first,
            // Ids grow: a task behind all others begins a new chunk instead of splitting one.
            Some((_, chunk)) if chunk.records.last().is_some_and(|last| last.id < id) => id,
            Some((first, _)) => self.split(*first, id),
            None => self.lower_first(id),
        };
        self.chunks.entry(first).or_default()
    }

    /// Splits a full chunk. Returns the key of the part for the task.
    fn split(&mut self, first: TaskId, id: TaskId) -> TaskId {
        let Some(chunk) = self.chunks.get_mut(&first) else { return first };
        let records = chunk.records.split_off(chunk.records.len() / 2);
        chunk.records.shrink_to_fit();
        let upper = RecordChunk { owners: chunk.owners.clone(), records };
        let Some(second) = upper.records.first().map(|record| record.id) else { return first };
        self.chunks.insert(second, upper);
        if id < second { first } else { second }
    }

    /// Puts a task before all others into the first chunk, if that has room.
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

    /// The task of a record that was removed.
    fn taken(&mut self, record: &FinishedRecord, owner: OwnerId) -> Task {
        let trail = self.trails.remove(&record.id);
        let checkpoint = self.checkpoints.remove(&record.id);
        let ended_by = self.ended_by.remove(&record.id);
        Task { checkpoint, ended_by, ..record.task(owner, trail) }
    }
}

impl RecordChunk {
    /// The index of the task, or where it belongs.
    fn find(&self, id: TaskId) -> Result<usize, usize> {
        self.records.binary_search_by_key(&id, |record| record.id)
    }

    /// The index range of these tasks.
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
        // Tasks end roughly in order of their ids.
        let at = match self.records.last() {
            Some(last) if last.id > record.id => self.find(record.id).unwrap_or_else(|at| at),
            _ => self.records.len(),
        };
        self.records.insert(at, record);
    }

    fn owner(&self, place: u8) -> OwnerId {
        self.owners.get(usize::from(place)).copied().unwrap_or_default()
    }

    /// The index of an owner for a record. There is always one: the chunk has room for a record, so
    /// it references fewer than [`CHUNK_MAX`] owners.
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

    /// Removes the owners that no record references.
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
    /// The task, without the data that few tasks have.
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
