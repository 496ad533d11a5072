//! The past of a queue from its logs: the entries of a task, the view at an instant, and late
//! writes of zombies.
//!
//! Each call reads the logs of the partitions concerned once, from their start. It needs memory for
//! each task found in them and keeps nothing.

mod silence;
mod task;
mod verify;
mod zombies;

pub use silence::HolderSilence;
pub(super) use silence::missed_in;
pub use task::{HistoryEntry, HistoryEvent, Ignored, TaskHistory};
pub use verify::{BrokenInvariant, Verification};
pub use zombies::Zombie;

use super::logs::MessageOrigin;
use super::tasks::{TableSource, TaskTable, TaskView, ViewScope, partition_indices, partitions_of};
use super::{Client, Queue, ReadError, partition};
use crate::topics::TopicNames;
use crate::transport::Message;
use longhaul_core::task::{Position, TaskId};
use std::ops::ControlFlow;
use task::Collector;
use zombies::Zombies;

/// An instant in the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PastInstant {
    /// In ms since the epoch, by the clocks of the publishers. Everything behind the first later
    /// entry is left out.
    Time(u64),
    /// After this entry of the ledger. Other partitions, and the other topics, are taken at the
    /// time at which it was published.
    Entry {
        /// The partition, or -1.
        partition: i32,
        /// The position of the entry.
        position: Position,
    },
}

impl Queue {
    /// Reads all remaining entries about a task: whether each of them counts, and when the holder
    /// was silent.
    ///
    /// ```no_run
    /// # async fn tell(client: longhaul::Client, task: longhaul::TaskRef) -> Result<(), longhaul::ReadError> {
    /// for entry in client.queue(&task.topic).history(task.id).await?.entries {
    ///     println!("{} {:?} {:?} {:?}", entry.published_ms, entry.epoch, entry.event, entry.ignored);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the logs cannot be read.
    pub async fn history(&self, task: TaskId) -> Result<TaskHistory, ReadError> {
        let names = self.existing().await?;
        let mut collector = Collector::new(task);
        let of = |topic: &String| partition(topic.clone(), task.partition);
        let logs = self.client.logs();
        logs.read_all(&of(&names.metadata), |_, message| collector.read_metadata(message)).await?;
        // Everything published before this time has been read.
        let now_ms = self.client.wall_ms();
        let take = |found, message: &Message| collector.read_ledger(found, message);
        logs.read_all(&of(&names.ledger), take).await?;
        Ok(collector.finish(now_ms))
    }

    /// Lists workers that wrote about tasks after they had been replaced, as far back as the logs
    /// go: which ones, how often, and how late.
    ///
    /// # Errors
    /// When the logs cannot be read.
    pub async fn zombies(&self) -> Result<Vec<Zombie>, ReadError> {
        let names = self.existing().await?;
        let logs = self.client.logs();
        let mut found = Vec::new();
        for index in self.client.past_partitions(&names).await? {
            let mut zombies = Zombies::new(index);
            let of = |topic: &String| partition(topic.clone(), index);
            logs.read_all(&of(&names.ledger), |_, message| zombies.read_ledger(message)).await?;
            let take = |_, message: &Message| zombies.read_metadata(message);
            logs.read_all(&of(&names.metadata), take).await?;
            found.extend(zombies.finish());
        }
        Ok(found)
    }

    /// Returns the state of all claimed tasks at an instant that is still in the log of the ledger.
    /// The view does not change.
    ///
    /// # Errors
    /// When the logs cannot be read, or do not go back so far.
    pub async fn tasks_at(&self, instant: PastInstant) -> Result<TaskView, ReadError> {
        let (client, names) = (&self.client, self.existing().await?);
        let mut tables = Vec::new();
        let at_ms = client.instant_ms(&names, instant).await?;
        for index in client.past_partitions(&names).await? {
            tables.push(client.table_at(&names, index, (at_ms, instant)).await?);
        }
        Ok(TaskView::still(tables, at_ms))
    }
}

impl Client {
    async fn instant_ms(&self, names: &TopicNames, instant: PastInstant) -> Result<u64, ReadError> {
        match instant {
            PastInstant::Time(at_ms) => Ok(at_ms),
            PastInstant::Entry { partition: index, position } => {
                let place = partition(names.ledger.clone(), index);
                let found = self.inner.transport.fetch(&place, position).await?;
                let found = found.ok_or(ReadError::NotInLog { begins_ms: None })?;
                Ok(found.publish_time_ms)
            }
        }
    }

    async fn table_at(
        &self,
        names: &TopicNames,
        index: i32,
        (at_ms, instant): (u64, PastInstant),
    ) -> Result<TaskTable, ReadError> {
        let logs = self.logs();
        let mut table = TaskTable::new(index);
        let ledger = partition(names.ledger.clone(), index);
        let last = match instant {
            PastInstant::Entry { partition, position } if partition == index => Some(position),
            PastInstant::Entry { .. } | PastInstant::Time(_) => None,
        };
        let is_behind = |message: &Message| match last {
            Some(last) => message.position > last,
            None => message.publish_time_ms > at_ms,
        };
        // In the compacted part, entries of that instant may have been replaced by later ones.
        let mut lost_ms = None;
        let mut is_first = true;
        logs.read(&ledger, |found, message| {
            let is_behind = is_behind(message);
            let begins_here = found == MessageOrigin::Log && std::mem::take(&mut is_first);
            let has_lost = found == MessageOrigin::Compacted
                || (begins_here && table.has_read(TableSource::Ledger));
            if is_behind && has_lost {
                lost_ms = Some(message.publish_time_ms);
            }
            take_up_to(&mut table, TableSource::Ledger, message, is_behind)
        })
        .await?;
        if lost_ms.is_some() {
            return Err(ReadError::NotInLog { begins_ms: lost_ms });
        }
        let metadata = partition(names.metadata.clone(), index);
        logs.read(&metadata, |_, message| {
            let is_behind = message.publish_time_ms > at_ms;
            take_up_to(&mut table, TableSource::Metadata, message, is_behind)
        })
        .await?;
        Ok(table)
    }

    pub(super) async fn past_partitions(&self, names: &TopicNames) -> Result<Vec<i32>, ReadError> {
        let count = partitions_of(&self.inner.transport, names, ViewScope::Claimed).await?;
        Ok(partition_indices(count))
    }
}

fn take_up_to(
    table: &mut TaskTable,
    source: TableSource,
    message: &Message,
    is_behind: bool,
) -> ControlFlow<()> {
    if is_behind {
        return ControlFlow::Break(());
    }
    table.read(source, message);
    ControlFlow::Continue(())
}
