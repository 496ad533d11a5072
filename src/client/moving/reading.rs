//! The state of the tasks of one partition, from its ledger, its metadata topic and its task topic.
//! Pure: takes messages, gives records.

use super::closing::says_moved;
use super::ledgers::{KnownTask, Ledger};
use super::record::{MovedState, TaskRecord};
use crate::client::tasks::task_of;
use crate::transport::Message;
use longhaul_core::protocol::entry::AttemptCause;
use longhaul_core::protocol::fold::Phase;
use longhaul_core::protocol::invariants::phase_of;
use longhaul_core::task::terms::Terms;
use longhaul_core::task::text::{DELAY, SCHEDULED_AT};
use longhaul_core::task::{Position, Priority, TaskId, TaskMetadata};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, HashSet};

/// See the module's documentation.
pub(super) struct LevelReading<'a> {
    level: Priority,
    ledger: &'a Ledger,
    /// The position of each task's last entry on the metadata topic.
    shown: HashMap<TaskId, Position>,
    /// The finished tasks, by the metadata topic.
    pub(super) over: HashSet<TaskId>,
    /// The entries of the unfinished ones.
    entries: HashMap<TaskId, Value>,
}

impl<'a> LevelReading<'a> {
    pub(super) fn new(level: Priority, ledger: &'a Ledger) -> Self {
        let (shown, over, entries) = (HashMap::new(), HashSet::new(), HashMap::new());
        Self { level, ledger, shown, over, entries }
    }

    fn partition(&self) -> i32 {
        self.ledger.place.partition
    }

    /// Reads a message of the metadata topic in the first pass.
    pub(super) fn locate(&mut self, message: &Message) {
        let Some(id) = task_of(message) else { return };
        if message.null || message.payload.is_empty() {
            self.shown.remove(&id);
        } else {
            self.shown.insert(id, message.position);
        }
    }

    /// Reads the same message in the second pass: returns the record of a finished task, if this is
    /// its last entry.
    pub(super) fn over(&mut self, message: &Message) -> Option<TaskRecord> {
        let id = task_of(message)?;
        if self.shown.get(&id) != Some(&message.position) {
            return None;
        }
        let entry: TaskMetadata = serde_json::from_slice(&message.payload).ok()?;
        let value = serde_json::from_slice(&message.payload).ok()?;
        let fold = self.ledger.fold(id);
        let state = match MovedState::of(fold.phase) {
            Some(state) => Some(state),
            None if fold.epoch.0 > 0 && fold.phase != Phase::Sealed => None,
            None => MovedState::of(phase_of(entry.state, entry.outcome)),
        };
        let Some(state) = state else {
            self.entries.insert(id, without_payload(value));
            return None;
        };
        self.over.insert(id);
        let moved = match self.ledger.tasks.get(&id) {
            Some(known) => known.moved,
            None => entry.failure_reason.as_deref().is_some_and(says_moved),
        };
        if moved {
            return None;
        }
        let record = TaskRecord::new(id, self.level, state);
        Some(TaskRecord {
            attempts: entry.attempts,
            claimed: entry.created,
            entry: Some(value),
            ..record
        })
    }

    /// Finished tasks on the ledger that the metadata topic does not show.
    pub(super) fn unshown(&self) -> HashMap<TaskId, TaskRecord> {
        let unshown =
            self.ledger.tasks.iter().filter(|(id, it)| !it.moved && !self.over.contains(id));
        let record = |(id, known): (&TaskId, &KnownTask)| {
            let record = TaskRecord::new(*id, self.level, MovedState::of(known.fold.phase)?);
            let (attempts, claimed) = (known.fold.attempt, known.claimed_ms);
            Some((*id, TaskRecord { attempts, claimed, ..record }))
        };
        unshown.filter_map(record).collect()
    }

    /// Reads a message of the task topic: returns the record of an unfinished task.
    pub(super) fn open(&mut self, message: &Message) -> Option<TaskRecord> {
        let id = TaskId::new(message.position, self.partition());
        if message.replicated_from.is_some()
            || self.ledger.fold(id).phase.is_terminal()
            || self.over.contains(&id)
        {
            return None;
        }
        let known = self.ledger.tasks.get(&id).cloned().unwrap_or_default();
        let KnownTask { fold, claim, claimed_ms: claimed, waits, checkpoint, .. } = known;
        let mut properties = message.properties.to_map();
        let published = message.publish_time_ms;
        absolute(&mut properties, published);
        // A task that was taken from its worker has used up its attempt.
        let waiting = fold.phase == Phase::Retry && !fold.is_offered();
        let epoch = fold.epoch.0.saturating_sub(u32::from(fold.phase == Phase::Running));
        Some(TaskRecord {
            epoch,
            published,
            claimed,
            attempts: fold.attempt,
            due: if waiting { fold.next_attempt.at_ms } else { 0 },
            goes_on: waiting && fold.next_attempt.after == AttemptCause::Drain,
            waits,
            checkpoint,
            limits: claim.map(|claim| claim.limits).unwrap_or_default(),
            properties,
            payload: Some(message.payload.clone()),
            entry: self.entries.remove(&id),
            ..TaskRecord::new(id, self.level, MovedState::Open)
        })
    }
}

/// Removes the payload: for a task that is to run, the message carries it.
fn without_payload(mut entry: Value) -> Value {
    if let Some(fields) = entry.as_object_mut() {
        fields.remove("task");
    }
    entry
}

/// Replaces a delay by an absolute time: a delay counts from publishing, which is later for the
/// copy. An unreadable delay stays.
fn absolute(properties: &mut BTreeMap<String, String>, published_ms: u64) {
    if !properties.contains_key(DELAY) {
        return;
    }
    let at_ms = Terms::read(properties, published_ms).and_then(|terms| terms.scheduled_at_ms);
    if let Some(at_ms) = at_ms {
        properties.remove(DELAY);
        properties.insert(SCHEDULED_AT.to_owned(), at_ms.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_becomes_the_instant_at_which_it_ends() {
        let properties = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        for (before, after) in [
            (
                &[("DELAY", "PT1.5S"), ("customer", "7")][..],
                &[("SCHEDULED_AT", "6500"), ("customer", "7")][..],
            ),
            (&[("DELAY", "PT1S"), ("SCHEDULED_AT", "9000")], &[("SCHEDULED_AT", "9000")]),
            (&[("DELAY", "soon")], &[("DELAY", "soon")]),
            (&[("SCHEDULED_AT", "9000")], &[("SCHEDULED_AT", "9000")]),
        ] {
            let mut moved = properties(before);
            absolute(&mut moved, 5_000);
            assert_eq!(moved, properties(after));
        }
    }
}
