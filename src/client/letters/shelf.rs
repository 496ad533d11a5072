//! Selects unhandled letters in one pass over the topic. Pure: takes messages in log order.
//!
//! A letter counts if it comes after all other letters and all marks of its task, which is known
//! only at the end of the topic. So the selection keeps the first matching letters, up to a number,
//! and removes each one that is followed by a mark or a later letter of its task. The memory does
//! not depend on the number of letters.

use super::LetterLocation;
use super::letter::{DeadLetter, DeadLetterFilter};
use crate::letters::{LetterMessageKind, kind};
use crate::transport::Message;
use longhaul_core::task::{Position, Priority, TaskId};
use std::collections::{BTreeMap, HashMap};

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct LetterSelection<'a, T> {
    filter: &'a DeadLetterFilter,
    /// The task topic of the queue, and the level whose letters are selected, if not all.
    of: (&'a str, Option<Priority>),
    /// Maps a letter, and its message, to what is kept of it besides its place.
    keep: fn(&Message, DeadLetter) -> T,
    room: usize,
    kept: BTreeMap<Position, (LetterLocation, T)>,
    of_task: HashMap<TaskId, Position>,
    /// The last letter read while there was room; `None` while there is.
    full_at: Option<Position>,
    last: Option<Position>,
}

impl<'a, T> LetterSelection<'a, T> {
    pub(super) fn new(
        filter: &'a DeadLetterFilter,
        of: (&'a str, Option<Priority>),
        room: usize,
        keep: fn(&Message, DeadLetter) -> T,
    ) -> Self {
        let (kept, of_task) = (BTreeMap::new(), HashMap::new());
        Self { filter, of, keep, room, kept, of_task, full_at: None, last: None }
    }

    /// Reads the next message.
    pub(super) fn take(&mut self, message: &Message) {
        match kind(message) {
            Some(LetterMessageKind::Mark(id)) => drop(self.take_out(id)),
            Some(LetterMessageKind::Letter(id)) => {
                let older = self.take_out(id);
                if self.full_at.is_none() {
                    if self.kept.len() < self.room {
                        self.put(id, message, older);
                    } else {
                        self.full_at = self.last;
                    }
                }
            }
            None => {}
        }
        self.last = Some(message.position);
    }

    fn put(&mut self, id: TaskId, message: &Message, older: Vec<Position>) {
        let (queue, level) = self.of;
        let letter = DeadLetter::read(message, id, queue);
        let task = letter.queue_task(queue);
        if level.is_none_or(|level| level == task.level) && self.filter.takes(&letter) {
            let place = LetterLocation { task, at: message.position, older };
            self.kept.insert(place.at, (place, (self.keep)(message, letter)));
            self.of_task.insert(id, message.position);
        }
    }

    /// Removes the task's kept letter. Returns the positions of all its letters.
    fn take_out(&mut self, id: TaskId) -> Vec<Position> {
        let Some(position) = self.of_task.remove(&id) else { return Vec::new() };
        let mut all = self.kept.remove(&position).map(|(place, _)| place.older).unwrap_or_default();
        all.push(position);
        all
    }

    /// The selected letters in order, and the position behind which the rest begins, if there is
    /// one.
    pub(super) fn finish(self) -> (Vec<(LetterLocation, T)>, Option<Position>) {
        (self.kept.into_values().collect(), self.full_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_core::task::Properties;

    fn at(entry: u64) -> Position {
        Position { ledger: 1, entry, batch_index: None }
    }

    fn id(task: u64) -> TaskId {
        TaskId { ledger: 9, entry: task, partition: -1, batch_index: None }
    }

    /// A letter of this task, or a mark if there is no reason.
    fn message(entry: u64, task: u64, reason: Option<&str>) -> Message {
        let mut properties = Properties::new();
        if let Some(reason) = reason {
            properties.insert("failureReason", reason);
        }
        let key = Some(id(task).to_string());
        Message { key, properties, null: reason.is_none(), ..Message::at(at(entry)) }
    }

    fn list(
        room: usize,
        filter: &DeadLetterFilter,
        messages: &[Message],
    ) -> (Vec<u64>, Option<u64>) {
        let mut shelf =
            LetterSelection::new(filter, ("tasks", None), room, |_, letter| letter.task.id.entry);
        for message in messages {
            shelf.take(message);
        }
        let (tasks, next) = shelf.finish();
        let tasks = tasks.into_iter().map(|(_, task)| task).collect();
        (tasks, next.map(|position| position.entry))
    }

    #[test]
    fn a_letter_counts_until_its_mark_and_the_last_of_a_task_stands_for_all() {
        let all = DeadLetterFilter::new();
        let messages = [
            message(0, 1, Some("a")),
            message(1, 2, Some("b")),
            message(2, 3, Some("a")),
            message(3, 2, None),
            message(4, 1, Some("a")),
        ];
        assert_eq!(list(9, &all, &messages), (vec![3, 1], None));
        assert_eq!(list(9, &DeadLetterFilter::new().reason("b"), &messages), (vec![], None));
        assert_eq!(list(9, &DeadLetterFilter::new().reason("a"), &messages), (vec![3, 1], None));
    }

    /// The pages together have each letter once, whatever the page size.
    #[test]
    fn pages_have_each_letter_once_whatever_their_size() {
        let mut messages: Vec<Message> = Vec::new();
        for task in 0..20 {
            messages.push(message(messages.len() as u64, task, Some("a")));
            if task % 3 == 0 {
                messages.push(message(messages.len() as u64, task / 2, None));
            }
        }
        let all = DeadLetterFilter::new();
        let (expected, _) = list(100, &all, &messages);
        for room in 1..25 {
            let (mut found, mut rest) = (Vec::new(), &messages[..]);
            loop {
                let (page, next) = list(room, &all, rest);
                found.extend(page);
                let Some(next) = next else { break };
                let behind =
                    rest.iter().position(|message| message.position.entry == next).unwrap() + 1;
                assert!(behind > 0);
                rest = &rest[behind..];
            }
            assert_eq!(found, expected, "{room}");
        }
    }
}
