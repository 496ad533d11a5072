//! Follows the topics of a queue for a view.

use super::table::{TableSource, TaskTable};
use crate::client::partition;
use crate::client::service::BackgroundTasks;
use crate::clock::Clock;
use crate::supervise::{Connections, KeptFollower, Monitor, SessionSupervisor, recount};
use crate::topics::TopicNames;
use crate::transport::{Follow, Message, Start, Transport, TransportError, TransportErrorKind};
use longhaul_core::task::Position;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::watch;

/// The most messages read while the table is locked.
const TOGETHER_MAX: usize = 256;

/// The tasks of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::client) enum ViewScope {
    /// All tasks, including unclaimed ones: the task topic is read, too.
    All,
    /// The tasks on the ledger and the metadata topic.
    Claimed,
}

/// The partitions of a view, each with its own service.
#[derive(Debug)]
pub(super) struct ViewPartitions {
    transport: Arc<dyn Transport>,
    connections: Arc<Connections>,
    names: TopicNames,
    scope: ViewScope,
    java_attempts: Option<u32>,
    shared: Mutex<BTreeMap<i32, Arc<SharedTable>>>,
    services: BackgroundTasks,
}

/// One partition, shared by its service and its readers.
#[derive(Debug)]
pub(super) struct SharedTable {
    table: Mutex<TaskTable>,
    state: watch::Sender<TableReadState>,
}

#[derive(Clone, Debug)]
enum TableReadState {
    /// Reads the content that the topics had at the start.
    CatchingUp,
    Following,
    /// A topic cannot be followed.
    Broken(TransportError),
}

impl SharedTable {
    pub(super) fn new(table: TaskTable) -> Self {
        Self { table: Mutex::new(table), state: watch::channel(TableReadState::CatchingUp).0 }
    }

    pub(super) fn table(&self) -> MutexGuard<'_, TaskTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ViewPartitions {
    /// Whether these are the partitions of this queue, by this transport, and have these tasks.
    pub(super) fn follows(
        &self,
        transport: &Arc<dyn Transport>,
        names: &TopicNames,
        scope: ViewScope,
    ) -> bool {
        Arc::ptr_eq(&self.transport, transport)
            && self.names.task == names.task
            && (self.scope == ViewScope::All || scope == ViewScope::Claimed)
    }

    /// Follows this many partitions, and those added later.
    pub(super) fn open(
        transport: Arc<dyn Transport>,
        connections: Arc<Connections>,
        names: TopicNames,
        scope: ViewScope,
        count: Option<u32>,
        java_attempts: Option<u32>,
    ) -> Arc<Self> {
        let (shared, services) = (Mutex::default(), BackgroundTasks::default());
        let all = Arc::new(Self {
            transport,
            connections,
            names,
            scope,
            java_attempts,
            shared,
            services,
        });
        match count {
            None => all.follow(-1),
            Some(count) => {
                all.grow_to(count);
                all.services.spawn(watch_growth(Arc::downgrade(&all), all.monitor()));
            }
        }
        all
    }

    /// The full name of the task topic.
    #[cfg(feature = "metrics")]
    pub(super) fn queue(&self) -> &str {
        &self.names.task
    }

    /// Waits until all partitions have caught up.
    pub(super) async fn ready(&self) -> Result<(), TransportError> {
        let states: Vec<_> = self.lock().values().map(|shared| shared.state.subscribe()).collect();
        for mut state in states {
            let reached =
                state.wait_for(|state| !matches!(state, TableReadState::CatchingUp)).await;
            if let Ok(reached) = reached
                && let TableReadState::Broken(error) = &*reached
            {
                return Err(error.clone());
            }
        }
        Ok(())
    }

    /// The partitions, in order.
    pub(super) fn all(&self) -> Result<Vec<Arc<SharedTable>>, TransportError> {
        let all: Vec<Arc<SharedTable>> = self.lock().values().cloned().collect();
        for shared in &all {
            if let TableReadState::Broken(error) = &*shared.state.borrow() {
                return Err(error.clone());
            }
        }
        Ok(all)
    }

    fn grow_to(&self, count: u32) {
        for index in 0..i32::try_from(count).unwrap_or(i32::MAX) {
            if !self.lock().contains_key(&index) {
                self.follow(index);
            }
        }
    }

    fn follow(&self, index: i32) {
        let shared = Arc::new(SharedTable::new(TaskTable::new(index, self.java_attempts)));
        let topics = [
            (TableSource::Ledger, &self.names.ledger, true),
            (TableSource::Metadata, &self.names.metadata, true),
            (TableSource::Tasks, &self.names.task, false),
        ];
        let followed = topics
            .into_iter()
            .filter(|(source, ..)| *source != TableSource::Tasks || self.scope == ViewScope::All);
        let readers = followed.map(|(source, topic, compacted)| {
            let topic = partition(topic.clone(), index);
            let service = SessionSupervisor::of_client(&self.transport, &topic, &self.connections);
            let follow = Follow { start: Start::Earliest, compacted };
            TableReader {
                source,
                follower: KeptFollower::new(service, follow),
                shared: Arc::clone(&shared),
            }
        });
        self.services.spawn(serve(readers.collect(), Arc::clone(&shared)));
        self.lock().insert(index, shared);
    }

    fn monitor(&self) -> Monitor {
        Monitor::new(&self.connections)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<i32, Arc<SharedTable>>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks for new partitions until the view is dropped.
async fn watch_growth(view: Weak<ViewPartitions>, monitor: Monitor) {
    loop {
        let Some(all) = view.upgrade() else { return };
        let (transport, names) = (Arc::clone(&all.transport), all.names.clone());
        let scope = all.scope;
        drop(all);
        let topics = [names.ledger, names.task];
        let [ledger, tasks] = recount(transport, Clock::System, topics, Some(&monitor)).await;
        let Some(all) = view.upgrade() else { return };
        match (scope, ledger, tasks) {
            (ViewScope::Claimed, Some(count), _) => all.grow_to(count),
            (ViewScope::All, Some(ledger), Some(tasks)) => all.grow_to(ledger.min(tasks)),
            _ => {}
        }
    }
}

/// Follows the topics of one partition.
async fn serve(mut readers: Vec<TableReader>, shared: Arc<SharedTable>) {
    for reader in &mut readers {
        if let Err(error) = reader.catch_up().await {
            shared.state.send_replace(TableReadState::Broken(error));
            return;
        }
    }
    shared.state.send_replace(TableReadState::Following);
    let following = readers.into_iter().map(|reader| Box::pin(reader.follow()));
    let (error, ..) = futures::future::select_all(following).await;
    shared.state.send_replace(TableReadState::Broken(error));
}

/// Reads one topic of a partition.
struct TableReader {
    source: TableSource,
    follower: KeptFollower,
    shared: Arc<SharedTable>,
}

impl TableReader {
    /// Reads the current content of the topic.
    async fn catch_up(&mut self) -> Result<(), TransportError> {
        let mut end = self.follower.open_persistently().await?;
        let mut read: Option<Position> = None;
        while read < end {
            match self.follower.next_up_to(Some(&mut end)).await {
                Ok(Some(message)) => read = Some(self.take(&message)),
                Ok(None) => {}
                Err(error) if error.kind == TransportErrorKind::Unreachable => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Follows the topic until that fails.
    async fn follow(mut self) -> TransportError {
        loop {
            match self.follower.next().await {
                Ok(message) => {
                    self.take(&message);
                }
                Err(error) if error.kind == TransportErrorKind::Unreachable => {}
                Err(error) => return error,
            }
        }
    }

    /// Reads a message, and the others already received. Returns the last position.
    fn take(&mut self, message: &Message) -> Position {
        let mut table = self.shared.table();
        table.read(self.source, message);
        let mut last = message.position;
        for _ in 1..TOGETHER_MAX {
            let Some(message) = self.follower.more() else { break };
            table.read(self.source, &message);
            last = message.position;
        }
        last
    }
}
