//! Who holds the leases of a partition, or has held them: each once, for a row names one by its place. Pure.

use crate::task::WorkerIdentity;
use std::collections::HashMap;
use std::sync::Arc;

/// See the module's documentation. The place 0 is nobody's.
#[derive(Clone, Debug, Default)]
pub(super) struct Holders {
    known: Vec<Arc<WorkerIdentity>>,
    places: HashMap<Arc<WorkerIdentity>, u32>,
}

impl Holders {
    /// The place of a worker.
    pub(super) fn place_of(&mut self, worker: WorkerIdentity) -> u32 {
        if let Some(place) = self.places.get(&worker) {
            return *place;
        }
        let worker = Arc::new(worker);
        self.known.push(Arc::clone(&worker));
        let place = u32::try_from(self.known.len()).unwrap_or_default();
        self.places.insert(worker, place);
        place
    }

    /// The same of one of whom no more than its name is known.
    pub(super) fn place_of_name(&mut self, name: &str) -> u32 {
        self.place_of(WorkerIdentity { name: name.to_owned(), ..WorkerIdentity::default() })
    }

    pub(super) fn get(&self, place: u32) -> Option<Arc<WorkerIdentity>> {
        let at = usize::try_from(place).ok()?.checked_sub(1)?;
        self.known.get(at).cloned()
    }
}
