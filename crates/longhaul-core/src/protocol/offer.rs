//! Offers: a gateway that received a task without having a request for its type publishes on the
//! ledger that any worker may claim it.
//!
//! A subscription cannot select types at the broker, and a delivery that is handed back usually
//! returns to the same gateway. An offer is a claim that runs nothing: it takes the next epoch, and
//! the task is in phase RETRY and due from then on. Other workers claim it by its id, like a retry.
//! The worker that received a task offers it once.
//!
//! On the ledger an offer is a claim PARKED with an empty list: for a worker that does not know
//! offers the task waits for nothing.

use super::hash::NameHash;
use crate::task::{Properties, PropertyWriter};

/// The properties for the type, and for the time since which the task is ready.
const TYPE: &str = "y";
const READY: &str = "at";

/// The type of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskType(NameHash);

/// The data of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Offer {
    /// Its type.
    pub task_type: TaskType,
    /// Since when the task is ready, in ms since the epoch: its place in the order of waiting
    /// tasks.
    pub ready_ms: u64,
}

impl TaskType {
    /// The type with this name; `None`: the type of tasks without one.
    #[must_use]
    pub fn of(name: Option<&str>) -> Self {
        let bytes = name.map(|name| [&b"+"[..], name.as_bytes()]).unwrap_or_default();
        Self(NameHash::of(bytes.into_iter().flatten()))
    }
}

impl Offer {
    /// Writes the offer as properties of a claim.
    pub(super) fn write(&self, out: &mut PropertyWriter) {
        out.put(TYPE, self.task_type.0);
        out.put(READY, self.ready_ms);
    }

    /// Reads the offer from the properties of a claim; `None` if it is no offer.
    pub(super) fn read(properties: &Properties) -> Option<Self> {
        let task_type = NameHash::parse(properties.get(TYPE)?)?;
        // If it is missing the task comes first.
        let ready_ms = properties.get(READY).and_then(|ready| ready.parse().ok());
        Some(Self { task_type: TaskType(task_type), ready_ms: ready_ms.unwrap_or_default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_the_same_by_their_names_and_no_type_is_one_of_its_own() {
        assert_eq!(TaskType::of(Some("a")), TaskType::of(Some("a")));
        assert_ne!(TaskType::of(Some("a")), TaskType::of(Some("b")));
        assert_ne!(TaskType::of(Some("")), TaskType::of(None));
        assert_eq!(size_of::<Option<TaskType>>(), 8);
    }
}
