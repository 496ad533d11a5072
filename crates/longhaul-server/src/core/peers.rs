//! Other gateways of the same queue, by their heartbeats.

use super::desks::LABEL;
use longhaul::WorkerIdentity;
use longhaul::ops::WorkerInfo;
use std::sync::{Mutex, PoisonError};

/// The URL of a worker that is a gateway, as it says itself: a label alone is not enough. Clients do
/// not send a token to a named gateway on another host.
fn gateway_url(worker: &WorkerIdentity) -> Option<&str> {
    worker.label.strip_prefix(LABEL).filter(|_| worker.grants_leases)
}

/// The URLs of gateways, the one last alive first.
#[derive(Debug)]
pub(super) struct Peers {
    own: Option<String>,
    seen: Mutex<Vec<String>>,
}

impl Peers {
    pub(super) fn new(own: Option<String>) -> Self {
        Self { own, seen: Mutex::default() }
    }

    /// Records the gateways among these workers. Without other gateways among them the previous
    /// ones are kept: no better is known.
    pub(super) fn note(&self, workers: &[WorkerInfo]) {
        let gateway = |worker: &WorkerInfo| {
            let url = gateway_url(worker.identity.as_ref()?)?;
            let is_other = !url.is_empty() && self.own.as_deref() != Some(url);
            is_other.then(|| (worker.last_heartbeat_ms, url.to_owned()))
        };
        let mut gateways: Vec<_> = workers.iter().filter_map(gateway).collect();
        gateways.sort_unstable_by(|one, other| other.cmp(one));
        let mut urls: Vec<_> = gateways.into_iter().map(|(_, url)| url).collect();
        urls.dedup();
        if !urls.is_empty() {
            *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = urls;
        }
    }

    /// The gateway last alive.
    pub(super) fn latest(&self) -> Option<String> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).first().cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The label of any worker was enough to be named to callers, who sent their tokens there.
    #[test]
    fn only_who_grants_leases_is_a_gateway() {
        let mut worker = WorkerIdentity::default();
        worker.label = "gateway http://there".to_owned();
        assert_eq!(gateway_url(&worker), None);
        worker.grants_leases = true;
        assert_eq!(gateway_url(&worker), Some("http://there"));
    }
}
