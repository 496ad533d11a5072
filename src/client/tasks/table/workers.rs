//! Who works on the partition. Pure.

use super::{Beat, TaskTable};
use crate::client::tasks::info::WorkerInfo;
use crate::client::tasks::why::MISSED_MAX;
use longhaul_core::protocol::fold::Phase;
use longhaul_core::protocol::key::OwnerId;
use longhaul_core::task::WorkerIdentity;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Workers that lease their tasks, by name and instance.
#[derive(Debug, Default)]
struct Lessees(BTreeMap<(String, String), WorkerInfo>);

impl Lessees {
    fn of(&mut self, partition: i32, worker: WorkerIdentity) -> &mut WorkerInfo {
        let key = (worker.name.clone(), worker.instance.clone());
        self.0.entry(key).or_insert_with(|| WorkerInfo {
            owner: worker.name.clone(),
            identity: Some(Arc::new(worker)),
            holds_leases: true,
            ..silent(partition, String::new())
        })
    }
}

/// A worker of which nothing was heard.
const fn silent(partition: i32, owner: String) -> WorkerInfo {
    WorkerInfo {
        partition,
        owner,
        identity: None,
        started_ms: None,
        max_attempts: None,
        last_heartbeat_ms: None,
        missed_heartbeats: 0,
        holds_leases: false,
        running: Vec::new(),
    }
}

impl TaskTable {
    /// The workers that sent a heartbeat, or run a task, and those that hold a lease or wait for one.
    pub(in crate::client::tasks) fn workers(&self, now_ms: u64) -> Vec<WorkerInfo> {
        let (partition, heartbeat) = (self.partition, self.config.map(|(_, heartbeat)| heartbeat));
        let info = |(owner, beat): (&OwnerId, &Beat)| {
            let info = WorkerInfo {
                identity: beat.identity.clone(),
                started_ms: Some(beat.published_ms.saturating_sub(beat.uptime_ms)),
                max_attempts: beat.max_attempts,
                last_heartbeat_ms: Some(beat.published_ms),
                missed_heartbeats: heartbeat.map_or(0, |every| beat.missed(every, now_ms)),
                ..silent(partition, owner.to_string())
            };
            (*owner, info)
        };
        let mut workers: BTreeMap<OwnerId, WorkerInfo> = self.workers.iter().map(info).collect();
        let mut lessees = self.waiting_for_leases(workers.values());
        for (id, row) in &self.rows {
            let fold = row.fold(&self.owners);
            if fold.phase != Phase::Running || self.ended(*id).is_some() {
                continue;
            }
            let worker = match row.leased.as_deref() {
                None => {
                    let new = || silent(partition, fold.owner.to_string());
                    workers.entry(fold.owner).or_insert_with(new)
                }
                Some(lease) => {
                    let worker = WorkerIdentity::lessee(&*lease.worker, &*lease.instance);
                    let worker = lessees.of(partition, worker);
                    lease.tell(worker, now_ms);
                    worker
                }
            };
            worker.running.push(*id);
        }
        workers.into_values().chain(lessees.0.into_values()).collect()
    }

    /// Those that wait for a lease, as the heartbeats of gateways tell.
    fn waiting_for_leases<'a>(&self, workers: impl Iterator<Item = &'a WorkerInfo>) -> Lessees {
        let mut lessees = Lessees::default();
        for gateway in workers.filter(|it| it.missed_heartbeats < MISSED_MAX) {
            for waiting in gateway.identity.iter().flat_map(|it| &it.waiting) {
                let worker = lessees.of(self.partition, waiting.clone());
                if worker.last_heartbeat_ms < gateway.last_heartbeat_ms {
                    worker.last_heartbeat_ms = gateway.last_heartbeat_ms;
                    worker.missed_heartbeats = gateway.missed_heartbeats;
                }
            }
        }
        lessees
    }
}
