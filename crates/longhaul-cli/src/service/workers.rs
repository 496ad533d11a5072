//! The workers of a queue.

use crate::clock;
use crate::output::{TableRow, Tone};
use crate::times;
use longhaul_api::task::WorkerBody;
use longhaul_api::worker::QueueWorker;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::time::Duration;

/// A worker process.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct WorkerProcess {
    /// Without an identity its name is its owner id.
    #[serde(flatten)]
    pub(crate) identity: WorkerBody,
    /// In ms since the epoch, by its own clock, as is the next one.
    pub(crate) started_at: Option<u64>,
    pub(crate) last_heartbeat_at: Option<u64>,
    /// The number of missed heartbeats since then.
    pub(crate) missed_heartbeats: u64,
    /// It holds leases, as a worker over HTTP does.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) holds_leases: bool,
    /// Its owner ids, by partition.
    pub(crate) owners: BTreeMap<i32, String>,
    /// Its running tasks.
    pub(crate) running: Vec<String>,
}

impl Deref for WorkerProcess {
    type Target = WorkerBody;

    fn deref(&self) -> &WorkerBody {
        &self.identity
    }
}

impl TableRow for WorkerProcess {
    const HEADS: &'static [&'static str] =
        &["NAME", "HEARTBEAT", "RUNNING", "HOST", "PROCESS", "VERSION", "LABEL", "UP"];
    const DROPS: &'static [usize] = &[5, 4, 6, 7, 3];

    fn cells(&self) -> Vec<String> {
        vec![
            self.name.clone(),
            self.heartbeat(),
            self.running.len().to_string(),
            self.host.clone(),
            self.process.map(|it| it.to_string()).unwrap_or_default(),
            self.version.clone(),
            if self.holds_leases { "over HTTP".to_owned() } else { self.label.clone() },
            self.up(),
        ]
    }

    fn tone(&self) -> Tone {
        if self.is_alive() { Tone::Good } else { Tone::Faint }
    }
}

impl WorkerProcess {
    /// Whether it is alive, so that no other worker takes over its tasks.
    pub(crate) const fn is_alive(&self) -> bool {
        self.last_heartbeat_at.is_some() && self.missed_heartbeats < 2
    }

    /// How long a living worker has been up: until its last heartbeat by its own clock, and since
    /// then by ours.
    fn up(&self) -> String {
        let both = self.last_heartbeat_at.zip(self.started_at).filter(|_| self.is_alive());
        let up = both.map(|(last, started)| {
            let since = clock::wall_ms().saturating_sub(last);
            Duration::from_millis(last.saturating_sub(started).saturating_add(since))
        });
        up.map_or_else(|| "-".to_owned(), times::human)
    }

    /// When it was last heard.
    pub(crate) fn heartbeat(&self) -> String {
        let ago = |ms| times::ago(ms, clock::wall_ms());
        let last = self.last_heartbeat_at.map_or_else(|| "left".to_owned(), ago);
        let draining = if self.draining { ", draining" } else { "" };
        match self.missed_heartbeats {
            0 => format!("{last}{draining}"),
            missed => format!("{last}, {missed} missed{draining}"),
        }
    }
}

/// Groups owner ids by process: a worker has an owner id per partition, and its identity joins
/// them.
pub(crate) fn by_process(seen: impl Iterator<Item = QueueWorker>) -> Vec<WorkerProcess> {
    let mut found: BTreeMap<[String; 4], WorkerProcess> = BTreeMap::new();
    for seen in seen {
        // Without an identity an owner counts as a worker of its own.
        let unnamed = || WorkerBody { name: seen.owner.clone(), ..WorkerBody::default() };
        let identity = seen.worker.unwrap_or_else(unnamed);
        let process = identity.process.map(|it| it.to_string()).unwrap_or_default();
        let WorkerBody { name, host, label, instance, .. } = identity.clone();
        let key = [name, format!("{host} {process}"), label, instance];
        let worker = found
            .entry(key)
            .or_insert_with(|| WorkerProcess { identity: identity.clone(), ..Default::default() });
        // Its partitions say so one after another.
        worker.identity.draining |= identity.draining;
        worker.started_at = worker.started_at.or(seen.started_at);
        if seen.last_heartbeat_at > worker.last_heartbeat_at {
            worker.last_heartbeat_at = seen.last_heartbeat_at;
            worker.missed_heartbeats = seen.missed_heartbeats;
        }
        worker.holds_leases |= seen.holds_leases;
        worker.owners.insert(seen.partition, seen.owner);
        worker.running.extend(seen.running);
    }
    found.into_values().collect()
}
