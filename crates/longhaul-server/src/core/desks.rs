//! Grants and looks after leases: one [`Leases`] per queue, its desk. It is opened on first use, and
//! in the background for queues that need one, so that silent leases end even without requests. It
//! is closed when nobody uses it, since each takes memory and a connection.

use super::desk_threads::DeskThreads;
use super::idle::{DeskUsage, least_recently_used};
use super::{QueueName, ServiceError};
use crate::clock::{self, Stopwatch};
use crate::config::{Dialect, ServerConfig};
use futures::future::{BoxFuture, FutureExt, Shared};
use longhaul::lease::Leases;
use longhaul::{Client, LedgerConfigError, LedgerTimes, Levels, RetryPolicy, WorkerError};
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio_util::task::TaskTracker;

/// The prefix of a gateway's URL in the label of its heartbeats.
pub(super) const LABEL: &str = "gateway ";

/// The lease time of a dialect.
pub(crate) const DIALECT_LEASE_TIME: Duration = Duration::from_secs(30);

/// The number of attempts of a job of the dialect `jobs`.
pub(crate) const DIALECT_TRIES: u32 = 3;

/// The most queues whose ledger settings are kept.
const LEDGERS_MAX: usize = 10_000;

type DeskOpening = Shared<BoxFuture<'static, Result<Leases, Arc<WorkerError>>>>;

#[derive(Debug)]
struct DeskSlot {
    opening: DeskOpening,
    /// It leases tasks of all priorities.
    levels: bool,
    /// Since the last request.
    asked: Stopwatch,
    /// Shared with the requests in progress.
    users: Arc<()>,
    /// The queue had a lease or a schedule when that was last read.
    has_duties: bool,
}

/// A desk in use: it is not closed for another queue, or as idle, before this is dropped.
pub(super) struct Desk {
    leases: Leases,
    _user: Arc<()>,
}

impl Deref for Desk {
    type Target = Leases;

    fn deref(&self) -> &Leases {
        &self.leases
    }
}

impl DeskSlot {
    fn usage(&self) -> DeskUsage {
        let is_used = Arc::strong_count(&self.users) > 1;
        let is_at_work = match self.opening.peek() {
            None => true,
            Some(Ok(leases)) => leases.stats().running > 0,
            Some(Err(_)) => false,
        };
        let (is_busy, unasked) = (is_used || is_at_work, self.asked.read());
        DeskUsage { is_busy, has_duties: self.has_duties, unasked }
    }
}

/// The open desks, by queue.
#[derive(Debug)]
pub(super) struct Desks {
    client: Client,
    config: Arc<ServerConfig>,
    max: usize,
    open: Mutex<HashMap<QueueName, DeskSlot>>,
    /// The ledger settings of queues whose workers do not use the defaults.
    ledgers: Mutex<HashMap<QueueName, LedgerTimes>>,
    /// `None` before the first desk, or if they cannot be started: then each desk has its own.
    threads: OnceLock<Option<DeskThreads>>,
    tasks: TaskTracker,
}

/// The backoff of the dialect `jobs`: uniform in 0 to min(5·2^(n−1), 30) s after the n-th attempt.
pub(crate) const fn dialect_backoff() -> RetryPolicy {
    RetryPolicy::exponential(Duration::from_secs(5), Duration::from_secs(30))
}

impl Desks {
    pub(super) fn new(client: Client, config: Arc<ServerConfig>) -> Self {
        Self {
            client,
            max: config.limits.leased_queues,
            config,
            open: Mutex::default(),
            ledgers: Mutex::default(),
            threads: OnceLock::new(),
            tasks: TaskTracker::new(),
        }
    }

    /// The desk of a queue. The first caller waits until it has connected; if that caller gives up,
    /// it connects all the same.
    pub(super) async fn of(
        &self,
        queue: &QueueName,
        topic: &str,
        levels: bool,
    ) -> Result<Desk, ServiceError> {
        if let Some(ended) = self.ended(queue) {
            let end = self.end_of(queue, &ended).await;
            end.map_err(|error| ServiceError::Leases(Arc::new(error)))?;
        }
        let (opening, user) = self.opening(queue, topic, levels)?;
        let opened = opening.clone().await;
        if opened.is_err() {
            self.forget(queue, &opening);
        }
        let leases = opened.map_err(ServiceError::Leases)?;
        Ok(Desk { leases, _user: user })
    }

    /// Removes and returns the desk of a queue if it has ended.
    fn ended(&self, queue: &QueueName) -> Option<Leases> {
        let mut open = self.lock();
        let found = open.get(queue)?.opening.peek()?.as_ref().ok()?.clone();
        found.has_ended().then(|| open.remove(queue))?;
        Some(found)
    }

    /// Returns why a desk has ended, unless a new one may succeed: with the settings on the ledger,
    /// if those have refused it.
    async fn end_of(&self, queue: &QueueName, ended: &Leases) -> Result<(), WorkerError> {
        match ended.drain(Duration::ZERO).await {
            Err(WorkerError::Refused(LedgerConfigError::Differs { ledger, .. })) => {
                tracing::info!(%queue, ?ledger, "adopting the settings of the queue's ledger");
                let mut known = self.ledgers.lock().unwrap_or_else(PoisonError::into_inner);
                if known.len() < LEDGERS_MAX || known.contains_key(queue) {
                    known.insert(queue.clone(), ledger);
                }
                Ok(())
            }
            // It has been created again since.
            Err(WorkerError::QueueDeleted) => Ok(()),
            ended => ended,
        }
    }

    /// Whether the desk of a queue is open or opening.
    pub(super) fn has(&self, queue: &QueueName) -> bool {
        self.lock().get(queue).is_some_and(|slot| !has_ended(&slot.opening))
    }

    /// Whether half of the limit is free, so that opening a desk that no request needs leaves room
    /// for those that one does.
    pub(super) fn has_room(&self) -> bool {
        self.lock().len() < self.max.div_ceil(2)
    }

    /// Whether so many queues are so few that all of them may be open.
    pub(super) const fn has_room_for(&self, queues: usize) -> bool {
        queues <= self.max / 2
    }

    /// Keeps the desk of a queue open that has a lease or a schedule.
    pub(super) fn keep(&self, queue: &QueueName) {
        if let Some(slot) = self.lock().get_mut(queue) {
            (slot.asked, slot.has_duties) = (clock::stopwatch(), true);
        }
    }

    /// The queues whose desks nobody has asked for this long.
    pub(super) fn idle(&self, idle: Duration) -> Vec<QueueName> {
        let open = self.lock();
        let queues = open.iter().filter(|(_, slot)| slot.usage().is_idle(idle));
        queues.map(|(queue, _)| queue.clone()).collect()
    }

    /// Closes the desk of a queue without duties, unless somebody has asked for it meanwhile.
    pub(super) fn close_idle(&self, queue: &QueueName, idle: Duration) {
        let mut open = self.lock();
        if open.get(queue).is_some_and(|slot| slot.usage().is_idle(idle)) {
            self.leave(queue, open.remove(queue));
        }
    }

    /// Drains a desk in the background.
    fn leave(&self, queue: &QueueName, slot: Option<DeskSlot>) {
        let Some(Some(Ok(leases))) = slot.map(|slot| slot.opening.now_or_never()) else { return };
        let queue = queue.clone();
        self.tasks.spawn(async move {
            tracing::debug!(%queue, "desk closed: unused");
            if let Err(error) = leases.drain(Duration::ZERO).await {
                tracing::info!(%queue, %error, "desk of a queue did not drain");
            }
        });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<QueueName, DeskSlot>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a desk for the queue may be opened: there is none, and the gateway grants leases.
    pub(super) fn may_open(&self, queue: &QueueName) -> bool {
        self.max > 0 && !self.has(queue)
    }

    /// Closes the desk of a queue to be deleted: it would create the topics anew.
    pub(super) fn close(&self, queue: &QueueName) {
        self.lock().remove(queue);
    }

    /// Drains all desks. The leases continue: other gateways look after them.
    pub(super) async fn drain(&self, deadline: Duration) {
        let open = std::mem::take(&mut *self.lock());
        let drains = open.into_iter().map(|(queue, slot)| async move {
            let Some(Ok(leases)) = slot.opening.now_or_never() else { return };
            if let Err(error) = leases.drain(deadline).await {
                tracing::warn!(%queue, %error, "leases of a queue were not handed over");
            }
        });
        futures::future::join_all(drains).await;
    }

    /// Returns the existing desk, unless it has ended, or the queue has got topics for priorities
    /// since.
    fn opening(
        &self,
        queue: &QueueName,
        topic: &str,
        levels: bool,
    ) -> Result<(DeskOpening, Arc<()>), ServiceError> {
        let mut open = self.lock();
        let found = open.get_mut(queue).filter(|slot| slot.levels >= levels);
        if let Some(slot) = found.filter(|slot| !has_ended(&slot.opening)) {
            slot.asked = clock::stopwatch();
            return Ok((slot.opening.clone(), Arc::clone(&slot.users)));
        }
        if open.len() >= self.max && !open.contains_key(queue) {
            let desks = open.iter().map(|(queue, slot)| (queue, slot.usage()));
            let idle = least_recently_used(desks).cloned();
            let idle = idle.ok_or(ServiceError::ManyQueues(self.max))?;
            self.leave(&idle, open.remove(&idle));
        }
        let ServerConfig { dialects, dialect_queue, .. } = &*self.config;
        let url = self.config.advertised_url.as_deref().unwrap_or_default();
        let known = self.ledgers.lock().unwrap_or_else(PoisonError::into_inner).get(queue).copied();
        let is_dialect = queue.as_str() == dialect_queue && !dialects.is_empty();
        let mut builder = self.client.leases(topic).settings(|config| {
            config.label = format!("{LABEL}{url}");
            if let Some(known) = known {
                config.heartbeat = known.heartbeat;
                config.ledger_retention = known.ledger_retention;
                config.self_fence = known.self_fence;
            }
            if is_dialect && dialects.contains(&Dialect::Jobs) {
                (config.max_attempts, config.backoff) = (DIALECT_TRIES, dialect_backoff());
            }
        });
        if is_dialect {
            builder = builder.lease_time(DIALECT_LEASE_TIME).expired_at_once(true);
        }
        if levels {
            builder = builder.levels(Levels::strict());
        }
        let threads = self.threads.get_or_init(|| DeskThreads::start().ok());
        if let Some(runtime) = threads.as_ref().and_then(DeskThreads::next) {
            builder = builder.runtime(runtime);
        }
        let opening = async move { builder.start().await.map_err(Arc::new) }.boxed().shared();
        self.tasks.spawn(opening.clone().map(drop));
        let (users, asked) = (Arc::new(()), clock::stopwatch());
        let user = Arc::clone(&users);
        let slot = DeskSlot { opening: opening.clone(), levels, asked, users, has_duties: false };
        open.insert(queue.clone(), slot);
        Ok((opening, user))
    }

    fn forget(&self, queue: &QueueName, opening: &DeskOpening) {
        let mut open = self.lock();
        if open.get(queue).is_some_and(|slot| slot.opening.ptr_eq(opening)) {
            open.remove(queue);
        }
    }
}

fn has_ended(opening: &DeskOpening) -> bool {
    opening.peek().is_some_and(|opened| opened.as_ref().map_or(true, Leases::has_ended))
}
