//! Offers: a gateway that was given a task, and is not asked for tasks of its type, says on the
//! ledger that anybody may claim it.
//!
//! A subscription cannot tell the broker which types it wants. What was handed back would come
//! again, to the same one as a rule. An offer is a claim that runs nothing: it takes the next
//! epoch, and the task is in phase RETRY and due from then on. So others claim it as they take up a
//! retry, by its id. Each task is offered once, by whoever received it.
//!
//! On the ledger an offer is a claim PARKED with an empty list: to a worker that knows no offers
//! the task waits for nothing.

use super::hash::NameHash;
use crate::task::Properties;

/// The property that says the type, and the one that says since when the task is ready.
const TYPE: &str = "y";
const READY: &str = "at";

/// The type of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskType(NameHash);

/// What an offer says of its task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Offer {
    /// Its type.
    pub task_type: TaskType,
    /// Since when it is ready, in ms since the epoch: its place in the order of those that wait.
    pub ready_ms: u64,
}

impl TaskType {
    /// Of this name; `None`: of tasks that have none.
    #[must_use]
    pub fn of(name: Option<&str>) -> Self {
        let bytes = name.map(|name| [&b"+"[..], name.as_bytes()]).unwrap_or_default();
        Self(NameHash::of(bytes.into_iter().flatten()))
    }
}

impl Offer {
    /// Writes it as properties of a claim.
    pub(super) fn write(&self, put: &mut dyn FnMut(&'static str, String)) {
        put(TYPE, self.task_type.0.to_string());
        put(READY, self.ready_ms.to_string());
    }

    /// Reads it from the properties of a claim; `None` if that is no offer.
    pub(super) fn read(properties: &Properties) -> Option<Self> {
        let task_type = NameHash::parse(properties.get(TYPE)?)?;
        // Where it is missing the task comes first.
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
