//! The current and former lease holders of a partition, each stored once: a row refers to one by
//! its place. A holder without rows is dropped. Pure.

use longhaul_core::task::WorkerIdentity;
use std::collections::HashMap;
use std::sync::Arc;

/// See the module's documentation. Place 0 means no holder.
#[derive(Debug, Default)]
pub(super) struct HolderIndex {
    /// Indexed by place minus 1.
    known: Vec<Option<IndexedHolder>>,
    places: HashMap<Arc<WorkerIdentity>, u32>,
    /// Unused places.
    free: Vec<u32>,
}

#[derive(Debug)]
struct IndexedHolder {
    worker: Arc<WorkerIdentity>,
    /// The number of rows that refer to this place.
    rows: u32,
}

impl HolderIndex {
    /// Sets the holder of a row. The previous holder is dropped if no other row refers to it.
    pub(super) fn set(&mut self, place: &mut u32, worker: Option<WorkerIdentity>) {
        let next = worker.map_or(0, |worker| self.take(worker));
        let before = std::mem::replace(place, next);
        self.release(before);
    }

    /// Removes one row's reference to this place.
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

    /// The place of a worker, with one more reference.
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
    /// The number of rows per place.
    pub(super) fn counts(&self) -> std::collections::BTreeMap<u32, u32> {
        let rows = |place: u32| self.known[index(place).unwrap()].as_ref().unwrap().rows;
        self.places.values().map(|place| (*place, rows(*place))).collect()
    }

    /// The number of places, unused ones included.
    pub(super) const fn places(&self) -> usize {
        self.known.len()
    }
}
