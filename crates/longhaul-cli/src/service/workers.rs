//! The workers of a queue.

use crate::clock;
use crate::output::{TableRow, Tone};
use crate::times;
use longhaul::WorkerIdentity;
use serde::Serialize;
use std::collections::BTreeMap;

/// A worker process.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WorkerProcess {
    pub(crate) name: String,
    pub(crate) host: String,
    pub(crate) process: Option<u32>,
    pub(crate) version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) label: String,
    /// Random per start; empty if the worker does not publish it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) instance: String,
    /// It grants leases to workers over HTTP, like a gateway, and runs nothing itself.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) grants_leases: bool,
    /// In ms since the epoch, by its own clock.
    pub(crate) last_heartbeat_ms: Option<u64>,
    /// The number of missed heartbeats since then.
    pub(crate) missed_heartbeats: u64,
    /// Its owner ids, by partition.
    pub(crate) owners: BTreeMap<i32, String>,
    /// Its running tasks.
    pub(crate) running: Vec<String>,
}

impl TableRow for WorkerProcess {
    const HEADS: &'static [&'static str] =
        &["NAME", "HEARTBEAT", "RUNNING", "HOST", "PROCESS", "VERSION", "LABEL"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.name.clone(),
            self.heartbeat(),
            self.running.len().to_string(),
            self.host.clone(),
            self.process.map(|it| it.to_string()).unwrap_or_default(),
            self.version.clone(),
            self.label.clone(),
        ]
    }

    fn tone(&self) -> Tone {
        if self.is_alive() { Tone::Good } else { Tone::Faint }
    }
}

impl WorkerProcess {
    /// Whether it is alive, so that no other worker takes over its tasks.
    pub(crate) const fn is_alive(&self) -> bool {
        self.last_heartbeat_ms.is_some() && self.missed_heartbeats < 2
    }

    /// When it was last heard.
    pub(crate) fn heartbeat(&self) -> String {
        let ago = |ms| times::ago(ms, clock::wall_ms());
        let last = self.last_heartbeat_ms.map_or_else(|| "left".to_owned(), ago);
        match self.missed_heartbeats {
            0 => last,
            missed => format!("{last}, {missed} missed"),
        }
    }
}

/// A worker on one partition, under one owner id.
#[derive(Clone, Debug)]
pub(crate) struct PartitionWorker {
    pub(crate) partition: i32,
    pub(crate) owner: String,
    pub(crate) identity: Option<WorkerIdentity>,
    pub(crate) last_heartbeat_ms: Option<u64>,
    pub(crate) missed_heartbeats: u64,
    /// The names of its running tasks.
    pub(crate) running: Vec<String>,
}

/// Groups owner ids by process: a worker has an owner id per partition, and its identity joins
/// them.
pub(crate) fn by_process(seen: impl Iterator<Item = PartitionWorker>) -> Vec<WorkerProcess> {
    let mut found: BTreeMap<(String, String, Option<u32>, String, String), WorkerProcess> =
        BTreeMap::new();
    for seen in seen {
        let key = match &seen.identity {
            Some(it) => {
                let texts = [&it.name, &it.host, &it.label, &it.instance].map(Clone::clone);
                let [name, host, label, instance] = texts;
                (name, host, it.process, label, instance)
            }
            // Without an identity an owner counts as a worker of its own.
            None => (seen.owner.clone(), String::new(), None, String::new(), String::new()),
        };
        let worker = found.entry(key).or_insert_with(|| of_identity(&seen));
        if seen.last_heartbeat_ms > worker.last_heartbeat_ms {
            worker.last_heartbeat_ms = seen.last_heartbeat_ms;
            worker.missed_heartbeats = seen.missed_heartbeats;
        }
        worker.owners.insert(seen.partition, seen.owner);
        worker.running.extend(seen.running);
    }
    found.into_values().collect()
}

fn of_identity(seen: &PartitionWorker) -> WorkerProcess {
    let Some(identity) = &seen.identity else {
        return WorkerProcess { name: seen.owner.clone(), ..WorkerProcess::default() };
    };
    let WorkerIdentity { name, host, process, version, label, instance, grants_leases, .. } =
        identity.clone();
    WorkerProcess {
        name,
        host,
        process,
        version,
        label,
        instance,
        grants_leases,
        ..WorkerProcess::default()
    }
}
