//! Other gateways of the same queue, by their heartbeats.

use super::desks::LABEL;
use longhaul::ops::WorkerInfo;
use std::sync::{Mutex, PoisonError};

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
            let url = worker.identity.as_ref()?.label.strip_prefix(LABEL)?;
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
