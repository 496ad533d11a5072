//! Operators' actions on a queue, as far back as the logs go.

use crate::client::drains::DrainRequest;
use crate::client::letters::level_in;
use crate::client::{Queue, ReadError, TaskRef, partition};
use crate::letters::{self, LetterMessageKind};
use crate::topics::TopicNames;
use crate::transport::{Follow, Message, Start};
use longhaul_core::protocol::entry::{Entry, Outcome};
use longhaul_core::protocol::register::{
    Document, DocumentKind, Register, RegisterEntry, RegisterVerdict,
};
use longhaul_core::task::{Priority, TaskId, text};
use longhaul_core::{ledger, register};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// The most actions listed.
const ACTIONS_MAX: usize = 10_000;

/// An operator's action on a task, a worker, a schedule or the queue.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct ActionRecord {
    /// When it was published, in ms since the epoch by the operator's wall clock.
    pub published_ms: u64,
    /// The task. Without task, worker and schedule the action was on the queue.
    pub task: Option<TaskRef>,
    /// The name of the drained worker.
    pub worker: Option<String>,
    /// The name of the schedule.
    pub schedule: Option<String>,
    /// The operator: see [`ClientBuilder::operator`](crate::ClientBuilder::operator).
    pub operator: String,
    /// The action: on a task `delete`, `force-fail`, `force-release`, `reschedule`, `supersede`,
    /// `move`, `cancel` or `kill`; on its dead letter `replay`, `purge` or `expire`; on a worker
    /// `drain`; on a schedule `create`, `set`, `update`, `pause`, `resume`, `trigger` or `delete`; on the queue
    /// `update` (of its settings), `repair`, `pause` or `resume`. The task's [history](Queue::history)
    /// tells whether an action on it counted.
    pub action: String,
    /// The reason, as it is shown.
    pub reason: String,
    /// The task that a replay submitted.
    pub replay: Option<TaskRef>,
}

impl Queue {
    /// Lists operators' actions on the queue, its tasks, workers and schedules, with their reasons:
    /// the newest `limit` (at most 10,000), oldest first. On the topic of a level, such as
    /// `tasks-high`, those on its tasks.
    ///
    /// It reads the ledgers of the queue and of its levels, the register and the dead letters as far
    /// back as their logs go: `TopicSettings::history_retention`. It has no time limit and
    /// continues after a broker outage: set one with [`tokio::time::timeout`].
    ///
    /// # Errors
    /// When the logs cannot be read.
    pub async fn action_log(&self, limit: usize) -> Result<Vec<ActionRecord>, ReadError> {
        let own = self.existing().await?;
        let (names, level) = self.client.level_of(&own).await?;
        let topic = (level != Priority::Normal).then(|| own.task.clone());
        let levels = if topic.is_some() { vec![level] } else { Priority::ALL.to_vec() };
        let (client, logs) = (&self.client, self.client.logs());
        let limit = limit.clamp(1, ACTIONS_MAX);
        let mut newest = Newest { limit, topic, heap: BinaryHeap::new() };
        let from_start = Follow { start: Start::Earliest, compacted: false };
        for level in levels {
            let queue = client.queue(&names.task);
            if level != Priority::Normal && !queue.has_level(level).await? {
                continue;
            }
            let names = client.level_names(&names, level)?;
            for index in client.past_partitions(&names).await? {
                let ledger = partition(names.ledger.clone(), index);
                let take = |message: &Message| newest.put(of_ledger(&names.task, message));
                logs.read_if_exists(&ledger, from_start, take).await?;
            }
        }
        let mut marks = LetterActions { queue: &names, letters: HashMap::new() };
        let letters = partition(names.dead_letters.clone(), -1);
        logs.read_if_exists(&letters, from_start, |message| newest.put(marks.read(message)))
            .await?;
        let register = partition(names.register.clone(), -1);
        let mut documents = Register::default();
        let take = |message: &Message| newest.put(of_register(&mut documents, message));
        logs.read_if_exists(&register, from_start, take).await?;
        Ok(newest.heap.into_sorted_vec().into_iter().rev().map(|Reverse(record)| record).collect())
    }
}

/// The newest actions.
struct Newest {
    limit: usize,
    /// Only those on tasks of this topic.
    topic: Option<String>,
    heap: BinaryHeap<Reverse<ActionRecord>>,
}

impl Newest {
    fn put(&mut self, record: Option<ActionRecord>) {
        let of_topic = |record: &ActionRecord| {
            let task = record.task.as_ref().map(|task| &task.topic);
            self.topic.is_none() || task == self.topic.as_ref()
        };
        self.heap.extend(record.filter(of_topic).map(Reverse));
        if self.heap.len() > self.limit {
            self.heap.pop();
        }
    }
}

fn of_ledger(topic: &str, message: &Message) -> Option<ActionRecord> {
    let (operator, action) = ledger::operator(message)?;
    let entry = ledger::read(message).ok()?;
    if matches!(&entry, Entry::Done(done) if matches!(done.outcome, Outcome::Released(_))) {
        // The second entry of a release is not an action of its own.
        return None;
    }
    let reason = ledger::content(message).unwrap_or_default();
    let reason = text::shortened(String::from_utf8_lossy(&reason).into_owned());
    let (operator, action) = (operator.to_owned(), action.to_owned());
    let (published_ms, replay) = (message.publish_time_ms, None);
    let task = Some(TaskRef { topic: topic.to_owned(), id: entry.task()? });
    let (worker, schedule) = (None, None);
    Some(ActionRecord { published_ms, task, worker, schedule, operator, action, reason, replay })
}

/// Reads the marks of dead letters.
struct LetterActions<'a> {
    queue: &'a TopicNames,
    /// The levels of the letters read so far, of other levels than the normal one: a mark does not
    /// say it.
    letters: HashMap<TaskId, Priority>,
}

impl LetterActions<'_> {
    fn read(&mut self, message: &Message) -> Option<ActionRecord> {
        let get = |name| message.properties.get(name);
        let id = match letters::kind(message)? {
            LetterMessageKind::Mark(id) => id,
            LetterMessageKind::Letter(id) => {
                let level = level_in(get("REAL_TOPIC")?, &self.queue.task);
                if level != Priority::Normal {
                    self.letters.insert(id, level);
                }
                return None;
            }
        };
        let level = self.letters.get(&id).copied().unwrap_or_default();
        let topic = self.queue.task_of(level);
        let (operator, action) = ledger::operator(message)?;
        let replay = get("task").and_then(|id| id.parse().ok());
        Some(ActionRecord {
            published_ms: message.publish_time_ms,
            worker: None,
            schedule: None,
            operator: operator.to_owned(),
            action: action.to_owned(),
            reason: get("why").unwrap_or_default().to_owned(),
            replay: replay.map(|id| TaskRef { topic: topic.clone(), id }),
            task: Some(TaskRef { topic, id }),
        })
    }
}

/// A change of the settings or of a schedule, or a drain request: of the entries of one version,
/// only the first counts.
fn of_register(documents: &mut Register, message: &Message) -> Option<ActionRecord> {
    let entry = register::read(message).ok()?;
    let RegisterEntry::Document(Document { key, content }) = &entry else { return None };
    if documents.apply(&entry, message.position) != Some(RegisterVerdict::Accepted) {
        return None;
    }
    let (operator, action) = ledger::operator(message)?;
    let (worker, schedule) = match key.name.kind() {
        DocumentKind::Drain => (Some(DrainRequest::read(content)?.worker), None),
        DocumentKind::Schedule => (None, Some(key.name.text().to_owned())),
        DocumentKind::Settings => (None, None),
    };
    Some(ActionRecord {
        published_ms: message.publish_time_ms,
        task: None,
        worker,
        schedule,
        operator: operator.to_owned(),
        action: action.to_owned(),
        reason: register::reason(message).to_owned(),
        replay: None,
    })
}
