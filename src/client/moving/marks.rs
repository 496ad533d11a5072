//! Which tasks of another queue were moved here, and their new ids: marks on the register, one per
//! task.

use super::MoveError;
use crate::client::logs::Logs;
use crate::client::registers::FollowedRegister;
use crate::client::{Client, Queue, TaskRef, partition};
use crate::topics::TopicNames;
use crate::transport::{Follow, Message, Start};
use futures::future::join_all;
use longhaul_core::protocol::register::{
    Moved, MovedKey, MovedMark, QueueTask, RegisterEntry, Stamp,
};
use longhaul_core::register;
use longhaul_core::task::TaskId;
use std::collections::{HashMap, HashSet};

/// The marks of one source.
#[derive(Debug)]
pub(super) struct MovedMarks {
    source: Stamp,
    here: HashMap<QueueTask, MovedMark>,
    /// Tasks that an earlier import may have published under a dedupe key without a mark.
    begun: HashSet<QueueTask>,
    /// The copies here.
    taken: HashSet<QueueTask>,
}

impl MovedMarks {
    /// Reads the marks on a register.
    pub(super) async fn read(
        logs: &Logs,
        queue: &TopicNames,
        source: Stamp,
    ) -> Result<Self, MoveError> {
        let (mut here, mut begun) = (HashMap::new(), HashSet::new());
        each(logs, queue, |moved| {
            let Moved { key: MovedKey { source: of, task }, mark } = moved;
            match mark {
                _ if of != source => {}
                None => _ = begun.insert(task),
                Some(mark) => {
                    begun.remove(&task);
                    here.insert(task, mark);
                }
            }
        })
        .await?;
        let taken = here.values().map(|mark: &MovedMark| mark.to).collect();
        Ok(Self { source, here, begun, taken })
    }

    /// The copy of a task.
    pub(super) fn get(&self, task: QueueTask) -> Option<QueueTask> {
        self.mark(task).map(|mark| mark.to)
    }

    /// Whether a task here is already a copy.
    pub(super) fn is_taken(&self, to: QueueTask) -> bool {
        self.taken.contains(&to)
    }

    pub(super) fn mark(&self, task: QueueTask) -> Option<MovedMark> {
        self.here.get(&task).copied()
    }

    /// The tasks that an earlier import may have published without a mark.
    pub(super) const fn begun(&self) -> &HashSet<QueueTask> {
        &self.begun
    }

    /// All copied tasks that may still run at the source.
    pub(super) fn open(&self) -> impl Iterator<Item = (QueueTask, MovedMark)> {
        let open = self.here.iter().filter(|(_, mark)| mark.is_open());
        open.map(|(task, mark)| (*task, *mark))
    }

    /// Notes that these tasks are about to be published.
    pub(super) async fn begin(
        &self,
        client: &Client,
        register: &FollowedRegister,
        tasks: impl Iterator<Item = QueueTask>,
    ) -> Result<(), MoveError> {
        let begun = |task| Moved { key: MovedKey { source: self.source, task }, mark: None };
        store(client, register, tasks.map(begun)).await
    }

    /// Writes marks, and waits until they are stored.
    pub(super) async fn put(
        &mut self,
        client: &Client,
        register: &FollowedRegister,
        all: Vec<(QueueTask, MovedMark)>,
    ) -> Result<(), MoveError> {
        let entry = |(task, mark): &(QueueTask, MovedMark)| Moved {
            key: MovedKey { source: self.source, task: *task },
            mark: Some(*mark),
        };
        store(client, register, all.iter().map(entry)).await?;
        self.taken.extend(all.iter().map(|(_, mark)| mark.to));
        self.here.extend(all);
        Ok(())
    }
}

/// Writes marks, and waits until they are stored.
async fn store(
    client: &Client,
    register: &FollowedRegister,
    marks: impl Iterator<Item = Moved>,
) -> Result<(), MoveError> {
    let entries: Vec<RegisterEntry> = marks.map(RegisterEntry::Moved).collect();
    let sent = entries.iter().map(|entry| register.put(&client.inner.publishers, entry));
    for stored in join_all(sent).await {
        stored?;
    }
    Ok(())
}

/// Reads all marks of a register.
async fn each(
    logs: &Logs,
    queue: &TopicNames,
    mut take: impl FnMut(Moved),
) -> Result<(), MoveError> {
    let place = partition(queue.register.clone(), -1);
    let follow = Follow { start: Start::Earliest, compacted: true };
    let take = |message: &Message| {
        if let Ok(RegisterEntry::Moved(moved)) = register::read(message) {
            take(moved);
        }
    };
    Ok(logs.read_if_exists(&place, follow, take).await?)
}

impl Queue {
    /// Returns the copies in this queue of tasks with this old id. It is usually one; there are
    /// several if queues were moved here in which the same id meant different tasks. Reads the
    /// register.
    ///
    /// # Errors
    /// When the register cannot be read.
    pub async fn moved(&self, old: TaskId) -> Result<Vec<TaskRef>, MoveError> {
        let (client, queue) = (&self.client, self.names()?);
        let mut found = Vec::new();
        each(&client.logs(), &queue, |moved| {
            if moved.key.task.id == old
                && let Some(MovedMark { to, .. }) = moved.mark
                && !found.contains(&to)
            {
                found.push(to);
            }
        })
        .await?;
        let task = |to: QueueTask| {
            let names = client.level_names(&queue, to.level)?;
            Ok(TaskRef { topic: names.task, id: to.id })
        };
        found.into_iter().map(task).collect()
    }
}
