//! Who holds the leases of a partition, or has held them: each once, for a row names one by its
//! place. A name that no row has any more is dropped. Pure.

use longhaul_core::task::WorkerIdentity;
use std::collections::HashMap;
use std::sync::Arc;

/// See the module's documentation. The place 0 is nobody's.
#[derive(Debug, Default)]
pub(super) struct HolderIndex {
    /// By their places, less 1.
    known: Vec<Option<IndexedHolder>>,
    places: HashMap<Arc<WorkerIdentity>, u32>,
    /// Places that nobody has any more.
    free: Vec<u32>,
}

#[derive(Debug)]
struct IndexedHolder {
    worker: Arc<WorkerIdentity>,
    /// So many rows name this place.
    rows: u32,
}

impl HolderIndex {
    /// Puts the place of this worker where a row names its holder. The one who stood there is
    /// forgotten if no other row names it.
    pub(super) fn set(&mut self, place: &mut u32, worker: Option<WorkerIdentity>) {
        let next = worker.map_or(0, |worker| self.take(worker));
        let before = std::mem::replace(place, next);
        self.release(before);
    }

    /// One row less names this place.
    pub(super) fn release(&mut self, place: u32) {
        let Some(slot) = index(place).and_then(|at| self.known.get_mut(at)) else { return };
        let Some(holder) = slot else { return };
        holder.rows = holder.rows.saturating_sub(1);
        if holder.rows == 0 {
            self.places.remove(&holder.worker);
            *slot = None;
            self.free.push(place);
        }
    }

    pub(super) fn get(&self, place: u32) -> Option<Arc<WorkerIdentity>> {
        let holder = self.known.get(index(place)?)?.as_ref()?;
        Some(Arc::clone(&holder.worker))
    }

    /// The place of a worker, for one row more.
    fn take(&mut self, worker: WorkerIdentity) -> u32 {
        if let Some(place) = self.places.get(&worker) {
            let holder = index(*place).and_then(|at| self.known.get_mut(at)?.as_mut());
            if let Some(holder) = holder {
                holder.rows += 1;
            }
            return *place;
        }
        let worker = Arc::new(worker);
        let place = self.free.pop().unwrap_or_else(|| {
            self.known.push(None);
            u32::try_from(self.known.len()).unwrap_or_default()
        });
        if let Some(slot) = index(place).and_then(|at| self.known.get_mut(at)) {
            *slot = Some(IndexedHolder { worker: Arc::clone(&worker), rows: 1 });
            self.places.insert(worker, place);
        }
        place
    }
}

fn index(place: u32) -> Option<usize> {
    usize::try_from(place).ok()?.checked_sub(1)
}

#[cfg(test)]
impl HolderIndex {
    /// How many rows name each place.
    pub(super) fn counts(&self) -> std::collections::BTreeMap<u32, u32> {
        let rows = |place: u32| self.known[index(place).unwrap()].as_ref().unwrap().rows;
        self.places.values().map(|place| (*place, rows(*place))).collect()
    }

    /// How many places there are, of which some may be free.
    pub(super) const fn places(&self) -> usize {
        self.known.len()
    }
}
