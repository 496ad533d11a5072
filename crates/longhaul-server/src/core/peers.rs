//! Other gateways of the same queue, by their heartbeats.

use super::desks::LABEL;
use longhaul::WorkerIdentity;
use longhaul::ops::WorkerInfo;
use std::sync::{Mutex, PoisonError};

/// The URL of a worker that is a gateway, as it says itself: a label alone is not enough.
fn gateway_url(worker: &WorkerIdentity) -> Option<&str> {
    worker.label.strip_prefix(LABEL).filter(|_| worker.grants_leases)
}

/// The URL of the other gateway last alive.
#[derive(Debug, Default)]
pub(super) struct Peers {
    latest: Mutex<Option<String>>,
}

impl Peers {
    /// Records the gateway last alive among these workers, except the one with the URL `own`.
    /// Without another gateway among them the previous one is kept: no better is known.
    pub(super) fn note(&self, workers: &[WorkerInfo], own: Option<&str>) {
        let gateway = |worker: &WorkerInfo| {
            let url = gateway_url(worker.identity.as_ref()?)?;
            let is_other = !url.is_empty() && own != Some(url);
            is_other.then(|| (worker.last_heartbeat_ms, url.to_owned()))
        };
        if let Some((_, url)) = workers.iter().filter_map(gateway).max() {
            *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(url);
        }
    }

    /// The gateway last alive.
    pub(super) fn latest(&self) -> Option<String> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The label of any worker was enough to be named to callers.
    #[test]
    fn only_who_grants_leases_is_a_gateway() {
        let mut worker = WorkerIdentity::default();
        worker.label = "gateway http://there".to_owned();
        assert_eq!(gateway_url(&worker), None);
        worker.grants_leases = true;
        assert_eq!(gateway_url(&worker), Some("http://there"));
    }
}
