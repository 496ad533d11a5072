//! Drains workers from outside: a drain request is stored on the register of the queue, addressed
//! to one process.
//!
//! A drain request is a document of its own kind, named by the worker's instance. The instance is
//! random per start, so a request never reaches a later worker of the same name. The worker removes
//! its request when it has drained. If it dies first, a later drain of another worker of the queue
//! removes the request, after a day; so it does for workers that lease their tasks, whose requests
//! for leases are refused from then on.

use super::documents::DocumentAction;
use super::registers::FollowedRegister;
use super::tasks::{ViewScope, WorkerInfo};
use super::{ActionError, Client, Queue};
use crate::clock::Clock;
use bytes::Bytes;
use longhaul_core::protocol::register::{DocumentKey, DocumentKind, DocumentName};
use longhaul_core::task::{WorkerIdentity, text};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How long a request is kept for a worker that is gone without removing it: the worker may be cut
/// off and come back.
const KEPT_MS: u64 = 24 * 3600 * 1000;

/// The content of a drain request. It is only for people: the worker goes by the document's name.
/// The log of actions takes operator and reason from the properties of the entry.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DrainRequest {
    pub(super) worker: String,
    operator: String,
    #[serde(default)]
    reason: String,
    at_ms: u64,
}

impl DrainRequest {
    pub(super) fn read(content: &[u8]) -> Option<Self> {
        serde_json::from_slice(content).ok()
    }
}

impl Queue {
    /// Drains a worker, wherever it runs: it takes no new tasks, lets running ones end, and
    /// releases those that still run after its [`drain_limit`](crate::WorkerConfig::drain_limit).
    /// Then it ends, as by its own [handle](crate::WorkerHandle::drain) or a SIGTERM. A worker of
    /// several queues leaves all of them. Name the worker by its name, one of its owner ids or its
    /// instance, as [`TaskView::workers`](crate::ops::TaskView::workers) shows them. Returns the
    /// worker's identity; the view shows when it has left.
    ///
    /// The queue is named by its task topic, without a priority. The [log of
    /// actions](Self::action_log) records the operator and the reason. Draining a worker that
    /// already drains changes nothing.
    ///
    /// # Errors
    /// When there is no such worker, or it cannot be drained by its name.
    pub async fn drain_worker(
        &self,
        name: &str,
        reason: impl Into<String>,
    ) -> Result<Arc<WorkerIdentity>, ActionError> {
        let (client, names) = (&self.client, self.names()?);
        client.refuse_level(&names).await?;
        let view = self.view(ViewScope::Claimed).await?;
        let workers = view.workers()?;
        let (found, document) = find(&workers, name)?;
        let register = client.register_of(&names).await?;
        let request = DrainRequest {
            worker: found.name.clone(),
            operator: client.operator.to_string(),
            reason: text::shortened(reason.into()),
            at_ms: client.wall_ms(),
        };
        let content = serde_json::to_vec(&request)
            .map_err(|error| ActionError::Invalid(error.to_string()))?;
        let action = DocumentAction { verb: "drain", reason: &request.reason };
        let first = (0, Bytes::from(content));
        match client.change_document(&register, &document, first, action).await {
            // A conflict means that the request already exists.
            Ok(_) | Err(ActionError::VersionConflict { .. }) => {}
            Err(error) => return Err(error),
        }
        client.remove_old_requests(&register, &workers).await;
        Ok(found)
    }
}

impl Client {
    /// Removes requests of workers that are gone without removing them.
    async fn remove_old_requests(&self, register: &FollowedRegister, workers: &[WorkerInfo]) {
        let alive: BTreeSet<DocumentName> = workers.iter().filter_map(document_of).collect();
        let now_ms = self.wall_ms();
        let is_old = |content: &Bytes| {
            DrainRequest::read(content)
                .is_none_or(|request| request.at_ms.saturating_add(KEPT_MS) < now_ms)
        };
        let old: Vec<DocumentKey> = register.with_documents(|documents| {
            let requests = documents.of(DocumentKind::Drain);
            let old =
                requests.filter(|(name, _, request)| !alive.contains(*name) && is_old(request));
            old.flat_map(|(name, ..)| documents.entries(name)).collect()
        });
        self.remove_outdated(register, old).await;
    }

    pub(super) fn wall_ms(&self) -> u64 {
        self.clock().wall_ms()
    }

    /// The client's clock: the test engine's in a test engine, else the system's.
    pub(super) fn clock(&self) -> Clock {
        #[cfg(feature = "testing")]
        if let Some(engine) = &self.inner.settings.engine {
            return engine.clock();
        }
        Clock::System
    }
}

/// The request for the drain of this worker; `None` if it has no instance.
fn document_of(worker: &WorkerInfo) -> Option<DocumentName> {
    let identity = worker.identity.as_ref()?;
    let instance = identity.instance.as_str();
    match worker.holds_leases {
        _ if instance.is_empty() => None,
        true => Some(DocumentName::drain_of_lessee(identity)),
        false => DocumentName::new(DocumentKind::Drain, instance).ok(),
    }
}

/// Finds the one worker of this name, and the request for its drain.
fn find(
    workers: &[WorkerInfo],
    name: &str,
) -> Result<(Arc<WorkerIdentity>, DocumentName), ActionError> {
    let (leasing, own): (Vec<_>, Vec<_>) = workers
        .iter()
        .filter(|worker| worker.last_heartbeat_ms.is_some())
        .filter(|worker| worker.holds_leases || document_of(worker).is_some())
        .partition(|worker| worker.holds_leases);
    // Anybody may call one that leases its tasks like another worker, which comes first.
    let found = match the_one(&own, name)? {
        None => the_one(&leasing, name)?,
        found => found,
    };
    let Some(worker) = found else {
        let shown = |worker: &&WorkerInfo| {
            let said = worker.identity.as_ref().map(|said| said.name.clone());
            said.filter(|name| !name.is_empty()).unwrap_or_else(|| worker.owner.clone())
        };
        let alive: BTreeSet<String> = own.iter().chain(&leasing).map(shown).collect();
        let alive = alive.into_iter().collect();
        return Err(ActionError::NoSuchWorker { name: name.to_owned(), alive });
    };
    match (&worker.identity, document_of(worker)) {
        (Some(said), _) if said.grants_leases => Err(ActionError::GrantsLeases(name.to_owned())),
        (Some(said), Some(document)) => Ok((Arc::clone(said), document)),
        (Some(_), None) | (None, _) => Err(ActionError::HoldsLeases(name.to_owned())),
    }
}

/// The one of these that has this name, owner id or instance; `None` if none has it.
fn the_one<'a>(
    workers: &[&'a WorkerInfo],
    name: &str,
) -> Result<Option<&'a WorkerInfo>, ActionError> {
    let is_it = |worker: &&&WorkerInfo| {
        let said = worker.identity.as_ref();
        worker.owner == name || said.is_some_and(|said| said.name == name || said.instance == name)
    };
    // The partitions of one process have one request.
    let process = |worker: &WorkerInfo| match document_of(worker) {
        Some(document) => document.to_string(),
        None => worker.owner.clone(),
    };
    let found: BTreeMap<String, &WorkerInfo> =
        workers.iter().filter(is_it).map(|worker| (process(worker), *worker)).collect();
    if found.len() > 1 {
        let id = |worker: &WorkerInfo| match worker.holds_leases {
            true => worker.process().to_owned(),
            false => worker.owner.clone(),
        };
        let owners = found.into_values().map(id).collect();
        return Err(ActionError::AmbiguousWorker { name: name.to_owned(), owners });
    }
    Ok(found.into_values().next())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(owner: &str, identity: WorkerIdentity) -> WorkerInfo {
        let identity = (identity != WorkerIdentity::default()).then(|| Arc::new(identity));
        WorkerInfo {
            partition: -1,
            owner: owner.to_owned(),
            identity,
            started_ms: None,
            max_attempts: None,
            last_heartbeat_ms: Some(1),
            missed_heartbeats: 0,
            holds_leases: false,
            running: Vec::new(),
        }
    }

    fn named(name: &str, instance: &str) -> WorkerIdentity {
        let mut identity = WorkerIdentity::named(name);
        instance.clone_into(&mut identity.instance);
        identity
    }

    #[test]
    fn a_worker_is_found_by_its_name_an_owner_id_and_its_instance() {
        let workers = [
            worker("o1", named("a", "i1")),
            worker("o2", named("a", "i1")),
            worker("o3", named("b", "i2")),
        ];
        for name in ["a", "o1", "o2", "i1"] {
            assert_eq!(find(&workers, name).unwrap().0.instance, "i1", "{name}");
        }
        let mut left = workers;
        left[2].last_heartbeat_ms = None;
        let error = find(&left, "b").unwrap_err().to_string();
        let said = "no worker `b` works on the queue; its workers are a";
        assert_eq!(error, said);
        let error = find(&[], "b").unwrap_err().to_string();
        assert!(error.ends_with("it has no workers now"), "{error}");
    }

    /// A killed pod has the same name as its successor.
    #[test]
    fn of_two_workers_with_one_name_none_is_taken_for_the_other() {
        let workers = [worker("o1", named("a", "i1")), worker("o2", named("a", "i2"))];
        let error = find(&workers, "a").unwrap_err();
        assert!(matches!(&error, ActionError::AmbiguousWorker { owners, .. } if owners.len() == 2));
        assert!(error.to_string().ends_with("use the id of one, o1, o2"), "{error}");
        assert_eq!(find(&workers, "o2").unwrap().0.instance, "i2");
    }

    #[test]
    fn who_cannot_obey_is_told_apart() {
        let mut gateway = named("g", "i1");
        gateway.grants_leases = true;
        let lessee = |name: &str, instance: &str| WorkerInfo {
            holds_leases: true,
            ..worker(name, named(name, instance))
        };
        let workers = [
            worker("o1", gateway),
            worker("o2", named("nameless", "")),
            worker("o3", named("", "")),
            worker("o4", named("native", "i4")),
            lessee("py", ""),
            lessee("js", "i7"),
            // Whoever has a token for leases could keep a worker from being drained.
            lessee("native", ""),
            lessee("i4", "i8"),
            // Or have another one drained in its place.
            lessee("bad", "i4"),
        ];
        assert!(matches!(find(&workers, "g"), Err(ActionError::GrantsLeases(_))));
        assert!(matches!(find(&workers, "py"), Err(ActionError::HoldsLeases(_))));
        for name in ["native", "i4", "o4"] {
            assert_eq!(find(&workers, name).unwrap().0.instance, "i4", "{name}");
        }
        let drains = |name: &str| find(&workers, name).unwrap().1;
        let native = DocumentName::new(DocumentKind::Drain, "i4").unwrap();
        let lessee = |name: &str, instance: &str| {
            DocumentName::drain_of_lessee(&WorkerIdentity::lessee(name, instance))
        };
        assert_eq!(drains("native"), native);
        for (name, of) in [("js", "js"), ("i7", "js"), ("bad", "bad")] {
            let instance = if of == "js" { "i7" } else { "i4" };
            assert_eq!(drains(name), lessee(of, instance), "{name}");
        }
        assert_ne!(lessee("a", "i7"), lessee("js", "i7"));
        for name in ["nameless", "o3"] {
            let error = find(&workers, name).unwrap_err();
            assert!(matches!(error, ActionError::NoSuchWorker { .. }), "{name}: {error}");
        }
    }
}
