//! The cause why a task does not run, from the state of its queue's topics. Pure.

use crate::client::tasks::{TaskInfo, TaskStatus, WorkerInfo};
use longhaul_core::facts::TaskFacts;
use longhaul_core::protocol::register::{
    Admission, Gate, GateKind, QueueTask, Register, TicketGrant,
};
use longhaul_core::settings::{Limit, QueueSettings};
use longhaul_core::task::TaskId;
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The most names listed.
const NAMED_MAX: usize = 5;

/// The number of missed heartbeats after which another worker takes a task over.
pub(in crate::client::tasks) const MISSED_MAX: u64 = 2;

/// Why a task does not run, or what keeps it running. All times are in ms since the epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "cause", rename_all = "snake_case")]
#[non_exhaustive]
pub enum WhyCause {
    /// The task is over.
    Over,
    /// A worker runs it.
    Running {
        /// The worker's name, or its owner id if it has none.
        worker: String,
        /// Since when.
        since: u64,
        /// The worker's last heartbeat.
        #[serde(skip_serializing_if = "Option::is_none")]
        last_heartbeat: Option<u64>,
        /// The number of heartbeats that are missing since then. At 2, another worker takes over.
        missed: u64,
        /// The number of other workers that are alive.
        others: usize,
        /// What keeps another worker from taking it over, if this one is silent.
        #[serde(skip_serializing_if = "Option::is_none")]
        held_up_by: Option<Box<Self>>,
    },
    /// A worker that speaks HTTP runs it.
    Leased {
        /// The name that the worker gave.
        worker: String,
        /// Since when.
        since: u64,
        /// Without a keep-alive by then, the attempt is ended as failed.
        expires: u64,
    },
    /// Its end was requested. The next worker that sees it closes it.
    CancelRequested,
    /// It is scheduled.
    Scheduled {
        /// When it may begin.
        at: u64,
    },
    /// Its last attempt failed, and it waits for the next one.
    Retrying {
        /// When the next attempt may begin.
        at: u64,
        /// The attempts so far.
        attempts: u32,
    },
    /// No worker of the queue is alive.
    NoWorker {
        /// The last heartbeat of any worker, if one is on record.
        #[serde(skip_serializing_if = "Option::is_none")]
        last_heartbeat: Option<u64>,
    },
    /// Only gateways serve the queue, and they lease tasks when workers ask them for tasks.
    NoRequest {
        /// The number of gateways.
        gateways: usize,
    },
    /// It waits for other tasks.
    Dependencies {
        /// The first of the tasks that are not over, by id or by `key:` and key.
        open: Vec<String>,
        /// The number of tasks that are not over.
        open_count: usize,
        /// The number of tasks that it waits for.
        total: usize,
    },
    /// It replaces the task that holds its dedupe key, and that task is not over.
    BehindKey {
        /// The key.
        key: String,
        /// The holder.
        holder: String,
    },
    /// Another task holds its key. The next worker that sees it closes it.
    KeyLost {
        /// The key.
        key: String,
        /// The holder.
        holder: String,
    },
    /// The queue runs one task per order key at a time, and an earlier one is not over.
    Order {
        /// The earlier task.
        before: String,
    },
    /// The queue is paused.
    Paused,
    /// A limit on tasks that run at once is reached.
    Limit {
        /// The limit key; absent if the limit is that of the whole queue.
        #[serde(skip_serializing_if = "Option::is_none")]
        key: Option<String>,
        /// The number of tasks that run under the limit.
        running: usize,
        /// The limit.
        limit: u32,
        /// The number of tasks that wait in line before this one.
        ahead: usize,
    },
    /// A limit on starts per time is reached.
    Rate {
        /// The limit key; absent if the limit is that of the whole queue.
        #[serde(skip_serializing_if = "Option::is_none")]
        key: Option<String>,
        /// When the next start is allowed.
        opens: u64,
    },
    /// All slots of all workers are busy.
    NoSlot {
        /// The number of slots.
        slots: u64,
        /// The number of workers.
        workers: usize,
        /// The number of ready tasks before this one.
        ahead: u64,
    },
    /// No limit and no other task holds it back.
    Ready {
        /// The number of live workers.
        workers: usize,
        /// The number of ready tasks before this one.
        ahead: u64,
    },
}

impl WhyCause {
    /// The word of the cause, and its parts as a JSON object. All times are in ms since the epoch.
    #[must_use]
    pub fn parts(&self) -> (String, Value) {
        let mut parts = serde_json::to_value(self).unwrap_or_default();
        let word = parts.as_object_mut().and_then(|parts| parts.remove("cause"));
        (word.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned(), parts)
    }
}

/// The state of a task and of its queue.
#[derive(Debug)]
pub(super) struct Known<'a> {
    pub(super) now_ms: u64,
    pub(super) task: QueueTask,
    /// The name of its task topic.
    pub(super) topic: &'a str,
    pub(super) info: &'a TaskInfo,
    pub(super) facts: &'a TaskFacts,
    pub(super) register: &'a Register,
    pub(super) settings: &'a QueueSettings,
    /// All workers of the level.
    pub(super) workers: &'a [WorkerInfo],
    /// The names of the unfinished tasks that it waits for.
    pub(super) open: Vec<String>,
    /// An earlier unfinished task of its order key.
    pub(super) before: Option<TaskId>,
    /// The number of ready tasks before this one.
    pub(super) ahead: u64,
}

/// Workers by instance.
type LiveWorkers<'a> = BTreeMap<&'a str, LiveWorker>;

/// A worker, over all partitions.
#[derive(Debug, Default)]
struct LiveWorker {
    slots: Option<u32>,
    running: u64,
    is_gateway: bool,
}

impl Known<'_> {
    /// The first applicable cause, in the order in which workers check them.
    pub(super) fn cause(&self) -> WhyCause {
        let (status, live) = (self.info.status, self.live());
        if status.is_terminal() {
            return WhyCause::Over;
        }
        if matches!(status, TaskStatus::Running | TaskStatus::Claimed) {
            return self.running(&live);
        }
        self.held_back(&live).unwrap_or_else(|| self.waiting_for_a_slot(&live))
    }

    fn running(&self, live: &LiveWorkers<'_>) -> WhyCause {
        let since = self.info.changed_ms;
        if let Some(lease) = &self.info.lease {
            let worker = lease.worker.to_string();
            return WhyCause::Leased { worker, since, expires: lease.expires_ms };
        }
        let owner = self.info.owner.clone().unwrap_or_default();
        let named = self.info.worker.as_ref().map(|it| it.name.clone());
        let found = self.workers.iter().find(|worker| worker.owner == owner);
        let own = found.map(WorkerInfo::process);
        let missed = found.map_or(MISSED_MAX, |worker| worker.missed_heartbeats);
        let others = live.keys().filter(|name| own != Some(**name)).count();
        WhyCause::Running {
            worker: named.filter(|name| !name.is_empty()).unwrap_or(owner),
            since,
            last_heartbeat: found.and_then(|worker| worker.last_heartbeat_ms),
            missed,
            others,
            held_up_by: (missed >= MISSED_MAX && others > 0)
                .then(|| self.takeover_held_up(live).map(Box::new))
                .flatten(),
        }
    }

    /// What keeps the live workers from taking over the task of a silent one. A takeover needs what
    /// the start of a task needs.
    fn takeover_held_up(&self, live: &LiveWorkers<'_>) -> Option<WhyCause> {
        let held_up = || self.settings.paused.then_some(WhyCause::Paused).or_else(|| self.limit());
        held_up().or_else(|| {
            let cause = self.waiting_for_a_slot(live);
            (!matches!(cause, WhyCause::Ready { .. })).then_some(cause)
        })
    }

    fn held_back(&self, live: &LiveWorkers<'_>) -> Option<WhyCause> {
        let Self { info, .. } = self;
        if info.cancel_requested {
            return Some(WhyCause::CancelRequested);
        }
        if let Some(at) = info.due_ms.filter(|at| *at > self.now_ms) {
            let (scheduled, attempts) = (info.status == TaskStatus::Scheduled, info.attempts);
            let retrying = WhyCause::Retrying { at, attempts };
            return Some(if scheduled { WhyCause::Scheduled { at } } else { retrying });
        }
        if live.is_empty() {
            let beats = self.workers.iter().filter_map(|worker| worker.last_heartbeat_ms);
            return Some(WhyCause::NoWorker { last_heartbeat: beats.max() });
        }
        self.dependencies()
            .or_else(|| self.key())
            .or_else(|| Some(WhyCause::Order { before: self.before?.to_string() }))
            .or_else(|| self.settings.paused.then_some(WhyCause::Paused))
            .or_else(|| self.limit())
    }

    /// The live workers on the task's partition, with their running tasks on all partitions.
    fn live(&self) -> LiveWorkers<'_> {
        let is_live = |worker: &&WorkerInfo| worker.is_alive();
        let is_here = |worker: &&WorkerInfo| worker.partition == self.task.id.partition;
        let alive = || self.workers.iter().filter(is_live);
        let here: BTreeSet<&str> = alive().filter(is_here).map(WorkerInfo::process).collect();
        let mut live = LiveWorkers::new();
        for worker in alive().filter(|worker| here.contains(worker.process())) {
            let identity = worker.identity.as_deref();
            let known = live.entry(worker.process()).or_default();
            known.slots = identity.and_then(|it| it.slots);
            known.is_gateway = identity.is_some_and(|it| it.grants_leases);
            known.running += worker.running.len() as u64;
        }
        live
    }

    fn dependencies(&self) -> Option<WhyCause> {
        if self.info.status != TaskStatus::Waiting {
            return None;
        }
        let open = self.open.iter().take(NAMED_MAX).cloned().collect();
        let (open_count, total) = (self.open.len(), self.info.waits_for.len());
        Some(WhyCause::Dependencies { open, open_count, total })
    }

    fn key(&self) -> Option<WhyCause> {
        // A task that was claimed before holds its key.
        let name = self.facts.key.as_ref().filter(|_| self.info.epoch == 0)?;
        let key = name.text().to_owned();
        match self.register.keys().admission(name, self.task) {
            Admission::Holds | Admission::Bind => None,
            Admission::Behind(holder) => {
                Some(WhyCause::BehindKey { key, holder: holder.to_string() })
            }
            Admission::Lost(holder) => Some(WhyCause::KeyLost { key, holder: holder.to_string() }),
        }
    }

    fn limit(&self) -> Option<WhyCause> {
        let gates = self.register.gates();
        gates.on_the_way(self.facts.limit_key.as_deref()).find_map(|gate| self.limit_at(&gate))
    }

    fn limit_at(&self, gate: &Gate) -> Option<WhyCause> {
        let gates = self.register.gates();
        let Limit { max_in_flight, .. } = gates.limit(gate);
        // The tickets of a silent worker do not serve a takeover.
        let is_running = self.info.status == TaskStatus::Running;
        let mut tickets = gates.standing_tickets().filter(|_| !is_running);
        let own = tickets.find(|(ticket, topic)| {
            ticket.gate == *gate && ticket.task == self.task.id && *topic == self.topic
        });
        let own = own.map(|(ticket, _)| ticket);
        let key = gate.key.as_deref().map(str::to_owned);
        match gate.kind {
            GateKind::Slots => {
                let (limit, (running, waiting)) = (max_in_flight?, gates.counts(gate));
                let is_full = running >= usize::try_from(limit).unwrap_or(usize::MAX);
                let ahead = match own {
                    Some(ticket) if gates.standing(ticket) != TicketGrant::Waits => return None,
                    Some(ticket) => gates.waiting_before(ticket),
                    // It has no place in line yet: tasks before it get theirs first.
                    None => waiting.max(usize::try_from(self.ahead).unwrap_or(usize::MAX)),
                };
                is_full.then_some(WhyCause::Limit { key, running, limit, ahead })
            }
            GateKind::Pace => {
                let opens = match own.map(|ticket| gates.standing(ticket)) {
                    Some(TicketGrant::From(at_ms)) => at_ms,
                    Some(TicketGrant::Unknown | TicketGrant::Waits) | None => {
                        gates.opens_at(gate, 0, self.now_ms)
                    }
                };
                (opens > self.now_ms).then_some(WhyCause::Rate { key, opens })
            }
        }
    }

    fn waiting_for_a_slot(&self, live: &LiveWorkers<'_>) -> WhyCause {
        let gateways = live.values().filter(|worker| worker.is_gateway).count();
        let (workers, ahead) = (live.len() - gateways, self.ahead);
        if workers == 0 {
            return WhyCause::NoRequest { gateways };
        }
        let own = || live.values().filter(|worker| !worker.is_gateway);
        let slots: Option<u64> = own().map(|it| it.slots.map(u64::from)).sum();
        let is_full =
            |it: &LiveWorker| it.slots.is_some_and(|slots| it.running >= u64::from(slots));
        match slots {
            Some(slots) if own().all(is_full) => WhyCause::NoSlot { slots, workers, ahead },
            Some(_) | None => WhyCause::Ready { workers, ahead },
        }
    }
}
