//! Who has acted upon the tasks of a queue, as far as the logs go back.

use crate::client::drains::DrainRequest;
use crate::client::history::HistoryError;
use crate::client::history::log::Logs;
use crate::client::{Queue, partition};
use crate::letters::{self, LetterMessageKind};
use crate::transport::{Follow, Message, Start, TransportErrorKind};
use longhaul_core::protocol::entry::{Entry, Outcome};
use longhaul_core::protocol::register::{DocumentKind, Register, RegisterEntry, RegisterVerdict};
use longhaul_core::task::{TaskId, text};
use longhaul_core::{ledger, register};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::ControlFlow;

/// The most actions that are listed.
const ACTIONS_MAX: usize = 10_000;

/// What somebody has done to a task from outside, or to a worker.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct ActionRecord {
    /// When it was published, in ms since the epoch by the wall clock of who did it.
    pub published_ms: u64,
    /// The task, unless it was done to a worker.
    pub task: Option<TaskId>,
    /// The name of the worker that was drained.
    pub worker: Option<String>,
    /// Who did it: see [`ClientBuilder::operator`](crate::ClientBuilder::operator).
    pub operator: String,
    /// What was done: `delete`, `force-fail`, `force-release`, `supersede`, `move`, `cancel` or
    /// `kill`; of its dead letter `replay`, `purge` or `expire`; of a worker `drain`. Whether what
    /// was done to a task counted is in the task's [history](Queue::history).
    pub action: String,
    /// Why, as it is shown.
    pub reason: String,
    /// The task that came of a replay.
    pub replay: Option<TaskId>,
}

impl Queue {
    /// Who has acted upon the tasks of a queue and its workers, and why: the newest `limit` actions
    /// and at most 10,000, the oldest first. It reads the ledger, the register and the dead letters
    /// as far as their logs go back: `TopicSettings::history_retention`. It has no time limit of
    /// its own, and goes on when a broker that could not be reached is back: put a limit around it
    /// with [`tokio::time::timeout`].
    ///
    /// # Errors
    /// When the logs cannot be read.
    pub async fn action_log(&self, limit: usize) -> Result<Vec<ActionRecord>, HistoryError> {
        let names = self.existing::<HistoryError>().await?;
        let logs = self.client.logs();
        let mut newest = Newest { limit: limit.clamp(1, ACTIONS_MAX), heap: BinaryHeap::new() };
        for index in self.client.past_partitions(&names).await? {
            logs.read(&partition(names.ledger.clone(), index), |_, message| {
                newest.put(of_ledger(message));
                ControlFlow::Continue(())
            })
            .await?;
        }
        newest.read(&logs, names.dead_letters, of_letters).await?;
        let mut requests = Register::default();
        newest.read(&logs, names.register, |message| of_register(&mut requests, message)).await?;
        Ok(newest.heap.into_sorted_vec().into_iter().rev().map(|Reverse(record)| record).collect())
    }
}

/// The newest records.
struct Newest {
    limit: usize,
    heap: BinaryHeap<Reverse<ActionRecord>>,
}

impl Newest {
    fn put(&mut self, record: Option<ActionRecord>) {
        self.heap.extend(record.map(Reverse));
        if self.heap.len() > self.limit {
            self.heap.pop();
        }
    }

    /// Takes what stands on a topic without partitions, if there is one.
    async fn read(
        &mut self,
        logs: &Logs,
        topic: String,
        mut of: impl FnMut(&Message) -> Option<ActionRecord>,
    ) -> Result<(), HistoryError> {
        let from_start = Follow { start: Start::Earliest, compacted: false };
        match logs.open_at(&partition(topic, -1), from_start).await {
            Ok(mut log) => {
                while let Some(message) = log.next().await? {
                    self.put(of(&message));
                }
                Ok(())
            }
            Err(error) if error.kind == TransportErrorKind::NotFound => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn of_ledger(message: &Message) -> Option<ActionRecord> {
    let (operator, action) = ledger::operator(message)?;
    let entry = ledger::read(message).ok()?;
    if matches!(&entry, Entry::Done(done) if matches!(done.outcome, Outcome::Released(_))) {
        // The second entry of a release.
        return None;
    }
    let reason = ledger::content(message).unwrap_or_default();
    let reason = text::shortened(String::from_utf8_lossy(&reason).into_owned());
    let (operator, action) = (operator.to_owned(), action.to_owned());
    let (published_ms, replay) = (message.publish_time_ms, None);
    let (task, worker) = (Some(entry.task()?), None);
    Some(ActionRecord { published_ms, task, worker, operator, action, reason, replay })
}

fn of_letters(message: &Message) -> Option<ActionRecord> {
    let Some(LetterMessageKind::Mark(task)) = letters::kind(message) else { return None };
    let (operator, action) = ledger::operator(message)?;
    let get = |name| message.properties.get(name);
    Some(ActionRecord {
        published_ms: message.publish_time_ms,
        task: Some(task),
        worker: None,
        operator: operator.to_owned(),
        action: action.to_owned(),
        reason: get("why").unwrap_or_default().to_owned(),
        replay: get("task").and_then(|id| id.parse().ok()),
    })
}

/// A drain request: the first one of each worker counts.
fn of_register(requests: &mut Register, message: &Message) -> Option<ActionRecord> {
    let entry = register::read(message).ok()?;
    let RegisterEntry::Document(document) = &entry else { return None };
    let is_request = document.key.name.kind() == DocumentKind::Drain;
    if !is_request || requests.apply(&entry, message.position) != Some(RegisterVerdict::Accepted) {
        return None;
    }
    let request = DrainRequest::read(&document.content)?;
    Some(ActionRecord {
        published_ms: message.publish_time_ms,
        task: None,
        worker: Some(request.worker),
        operator: request.operator,
        action: "drain".to_owned(),
        reason: request.reason,
        replay: None,
    })
}
