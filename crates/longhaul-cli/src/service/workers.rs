//! Who works on a queue.

use super::Pulsar;
use super::tasks::named;
use crate::clock;
use crate::output::{Row, Tone};
use crate::times;
use longhaul::{TaskRef, WorkerIdentity, WorkerInfo};
use serde::Serialize;
use std::collections::BTreeMap;

/// Answers questions about workers.
pub(crate) trait Workers {
    /// The workers of a queue, by name.
    async fn workers(&self, queue: &str) -> anyhow::Result<Vec<Worker>>;
}

/// A worker process.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Worker {
    pub(crate) name: String,
    pub(crate) host: String,
    pub(crate) process: Option<u32>,
    pub(crate) version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) label: String,
    /// Ms since the epoch, by its own clock.
    pub(crate) last_heartbeat_ms: Option<u64>,
    /// Its owner ids, by partition.
    pub(crate) owners: BTreeMap<i32, String>,
    /// What it runs.
    pub(crate) running: Vec<String>,
}

impl Row for Worker {
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
        if self.last_heartbeat_ms.is_some() { Tone::Good } else { Tone::Faint }
    }
}

impl Worker {
    /// When it was heard of last.
    pub(crate) fn heartbeat(&self) -> String {
        let ago = |ms| times::ago(ms, clock::wall_ms());
        self.last_heartbeat_ms.map_or_else(|| "left".to_owned(), ago)
    }
}

impl Workers for Pulsar {
    async fn workers(&self, queue: &str) -> anyhow::Result<Vec<Worker>> {
        let view = self.client.claimed_tasks(queue).await?;
        Ok(by_process(queue, view.workers()?))
    }
}

/// A worker has an owner id for each partition; its identity says which of them are one process.
fn by_process(queue: &str, infos: Vec<WorkerInfo>) -> Vec<Worker> {
    let mut found: BTreeMap<(String, String, Option<u32>, String), Worker> = BTreeMap::new();
    for info in infos {
        let key = match &info.identity {
            Some(it) => (it.name.clone(), it.host.clone(), it.process, it.label.clone()),
            // It has not said who it is: it stands for itself.
            None => (info.owner.clone(), String::new(), None, String::new()),
        };
        let worker = found.entry(key).or_insert_with(|| of_identity(&info));
        worker.last_heartbeat_ms = worker.last_heartbeat_ms.max(info.last_heartbeat_ms);
        worker.owners.insert(info.partition, info.owner);
        let name = |id| TaskRef::new(queue, id).map_or_else(|_| id.to_string(), |it| named(&it));
        worker.running.extend(info.running.into_iter().map(name));
    }
    found.into_values().collect()
}

fn of_identity(info: &WorkerInfo) -> Worker {
    let Some(identity) = info.identity.as_deref() else {
        return Worker { name: info.owner.clone(), ..Worker::default() };
    };
    let WorkerIdentity { name, host, process, version, label, .. } = identity.clone();
    Worker { name, host, process, version, label, ..Worker::default() }
}
