//! Follows the topics of a queue for a view.

use super::table::{TableSource, TaskTable};
use crate::client::folded::{FoldProgress, Folded, Folding};
use crate::client::logs::{LogReader, Logs};
use crate::client::partition;
use crate::client::service::BackgroundTasks;
use crate::clock::Clock;
use crate::supervise::{Monitor, recount};
use crate::topics::TopicNames;
use crate::transport::{Message, TopicPartition, TransportError};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The most messages read while the table is locked.
const TOGETHER_MAX: usize = 256;

/// The tasks of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::client) enum ViewScope {
    /// The tasks on the ledger.
    Ledger,
    /// The tasks on the ledger and the metadata topic.
    Claimed,
    /// All tasks, including unclaimed ones: the task topic is read, too.
    All,
}

/// The partitions of a view, each with its own service.
#[derive(Debug)]
pub(super) struct ViewPartitions {
    pub(super) logs: Logs,
    pub(super) names: TopicNames,
    pub(super) scope: ViewScope,
    shared: Mutex<BTreeMap<i32, SharedTable>>,
    services: BackgroundTasks,
}

/// One partition, shared by its service and its readers.
pub(super) type SharedTable = Folded<TaskTable, ()>;

impl ViewPartitions {
    /// Follows this many partitions, and those added later.
    pub(super) fn open(
        logs: Logs,
        names: TopicNames,
        scope: ViewScope,
        count: Option<u32>,
    ) -> Arc<Self> {
        let (shared, services) = (Mutex::default(), BackgroundTasks::default());
        let all = Arc::new(Self { logs, names, scope, shared, services });
        match count {
            None => all.follow(-1),
            Some(count) => {
                all.grow_to(count);
                all.services.spawn(watch_growth(Arc::downgrade(&all), all.logs.monitor()));
            }
        }
        all
    }

    /// Waits until all partitions have caught up.
    pub(super) async fn ready(&self) -> Result<(), TransportError> {
        let all: Vec<SharedTable> = self.lock().values().cloned().collect();
        for shared in all {
            shared.read(&self.names.task).await?;
        }
        Ok(())
    }

    /// The partitions, in order.
    pub(super) fn all(&self) -> Result<Vec<SharedTable>, TransportError> {
        let all: Vec<SharedTable> = self.lock().values().cloned().collect();
        match all.iter().find_map(Folded::failure) {
            Some(error) => Err(error),
            None => Ok(all),
        }
    }

    fn grow_to(&self, count: u32) {
        for index in 0..i32::try_from(count).unwrap_or(i32::MAX) {
            if !self.lock().contains_key(&index) {
                self.follow(index);
            }
        }
    }

    fn follow(&self, index: i32) {
        let (shared, folding) = Folded::new(TaskTable::new(index));
        let topics = [
            (ViewScope::Ledger, TableSource::Ledger, &self.names.ledger, true),
            (ViewScope::Claimed, TableSource::Metadata, &self.names.metadata, true),
            (ViewScope::All, TableSource::Tasks, &self.names.task, false),
        ];
        let followed = topics.into_iter().filter(|(scope, ..)| *scope <= self.scope);
        let followed = followed.map(|(_, source, topic, compacted)| {
            (source, partition(topic.clone(), index), compacted)
        });
        self.services.spawn(serve(self.logs.clone(), followed.collect(), folding));
        self.lock().insert(index, shared);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<i32, SharedTable>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks for new partitions until the view is dropped.
async fn watch_growth(view: Weak<ViewPartitions>, monitor: Monitor) {
    loop {
        let Some(all) = view.upgrade() else { return };
        let (transport, names) = (Arc::clone(&all.logs.transport), all.names.clone());
        let scope = all.scope;
        drop(all);
        let topics = [names.ledger, names.task];
        let [ledger, tasks] = recount(transport, Clock::System, topics, Some(&monitor)).await;
        let Some(all) = view.upgrade() else { return };
        match (scope, ledger, tasks) {
            (ViewScope::Ledger | ViewScope::Claimed, Some(count), _) => all.grow_to(count),
            (ViewScope::All, Some(ledger), Some(tasks)) => all.grow_to(ledger.min(tasks)),
            _ => {}
        }
    }
}

/// Follows the topics of one partition. Each has its source, and whether it is read compacted.
async fn serve(
    logs: Logs,
    topics: Vec<(TableSource, TopicPartition, bool)>,
    folding: Folding<TaskTable, ()>,
) {
    let folding = Arc::new(folding);
    let opening = async {
        let mut readers = Vec::new();
        for (source, topic, compacted) in topics {
            let log = logs.open(&topic, compacted).await?;
            let mut reader = TableReader { source, log, folding: Arc::clone(&folding) };
            while let Some(message) = reader.log.next().await? {
                reader.take(&message);
            }
            readers.push(reader);
        }
        Ok(readers)
    };
    let error = match opening.await {
        Ok(readers) => {
            folding.tell(FoldProgress::To(()));
            let following = readers.into_iter().map(|reader| Box::pin(reader.follow()));
            futures::future::select_all(following).await.0
        }
        Err(error) => error,
    };
    folding.tell(FoldProgress::Failed(error));
}

/// Reads one topic of a partition.
struct TableReader {
    source: TableSource,
    log: LogReader,
    folding: Arc<Folding<TaskTable, ()>>,
}

impl TableReader {
    /// Follows the topic until that fails.
    async fn follow(mut self) -> TransportError {
        loop {
            match self.log.follow().await {
                Ok(message) => self.take(&message),
                Err(error) => return error,
            }
        }
    }

    /// Reads a message, and the others already received.
    fn take(&mut self, message: &Message) {
        let mut table = self.folding.lock();
        table.read(self.source, message);
        for _ in 1..TOGETHER_MAX {
            let Some(message) = self.log.more() else { break };
            table.read(self.source, &message);
        }
    }
}
