//! The job ids of the dialect `jobs` are UUIDs. These encode the task, so that any gateway decodes them
//! without a table of ids.
//!
//! The id is a UUID of version 8. Its 122 free bits hold, from the highest: the ledger (48 bits),
//! the batch index plus one (12; zero outside of batches), the entry (40), the partition plus one
//! (20), and the level of the queue (2). A task whose numbers do not fit has no id.

use crate::core::TaskName;
use longhaul::{Priority, TaskId};
use uuid::Uuid;

const VERSION: u128 = 8;
const VARIANT: u128 = 0b10;

/// A number in this many bits; `None` if it does not fit.
fn fitting(number: impl Into<u128>, bits: u32) -> Option<u128> {
    let number = number.into();
    (number >> bits == 0).then_some(number)
}

/// The id of a task, if it fits.
pub(super) fn job_id(TaskName { level, id }: TaskName) -> Option<Uuid> {
    let ledger = fitting(id.ledger, 48)?;
    let batch = fitting(id.batch_index.map_or(0, |index| u64::from(index) + 1), 12)?;
    let entry = fitting(id.entry, 40)?;
    let partition = fitting(u64::try_from(i64::from(id.partition) + 1).ok()?, 20)?;
    let level: u128 = match level {
        Priority::Normal => 0,
        Priority::High => 1,
        Priority::Low => 2,
    };
    let low = VARIANT << 62 | entry << 22 | partition << 2 | level;
    Some(Uuid::from_u128(ledger << 80 | VERSION << 76 | batch << 64 | low))
}

/// The task of an id; `None` if the id encodes none.
pub(super) fn task_of(text: &str) -> Option<TaskName> {
    let id = Uuid::parse_str(text).ok()?.as_u128();
    let part = |from: u32, bits: u32| (id >> from) & ((1 << bits) - 1);
    if part(76, 4) != VERSION || part(62, 2) != VARIANT {
        return None;
    }
    let level = match part(0, 2) {
        0 => Priority::Normal,
        1 => Priority::High,
        2 => Priority::Low,
        _ => return None,
    };
    let batch = u32::try_from(part(64, 12)).ok()?;
    let id = TaskId {
        ledger: u64::try_from(part(80, 48)).ok()?,
        entry: u64::try_from(part(22, 40)).ok()?,
        partition: i32::try_from(part(2, 20)).ok()? - 1,
        batch_index: batch.checked_sub(1),
    };
    Some(TaskName { level, id })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(
        level: Priority,
        ledger: u64,
        entry: u64,
        partition: i32,
        batch_index: Option<u32>,
    ) -> TaskName {
        TaskName { level, id: TaskId { ledger, entry, partition, batch_index } }
    }

    #[test]
    fn ids_lead_back_to_their_tasks() {
        let (ledgers, entries) = ([0, 1, 12, (1 << 48) - 1], [0, 7, (1 << 40) - 1]);
        let mut seen = std::collections::BTreeSet::new();
        for level in [Priority::High, Priority::Normal, Priority::Low] {
            for ledger in ledgers {
                for entry in entries {
                    for partition in [-1, 0, 3, (1 << 20) - 2] {
                        for index in [None, Some(0), Some(4_094)] {
                            let task = name(level, ledger, entry, partition, index);
                            let id = job_id(task).unwrap();
                            assert_eq!(id.get_version_num(), 8);
                            assert_eq!(id.get_variant(), uuid::Variant::RFC4122);
                            assert_eq!(task_of(&id.to_string()), Some(task));
                            assert!(seen.insert(id), "{id} stands for two tasks");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn what_does_not_fit_has_no_id() {
        let normal = Priority::Normal;
        for task in [
            name(normal, 1 << 48, 0, 0, None),
            name(normal, u64::MAX, 0, 0, None),
            name(normal, 0, 1 << 40, 0, None),
            name(normal, 0, 0, (1 << 20) - 1, None),
            name(normal, 0, 0, i32::MAX, None),
            name(normal, 0, 0, 0, Some(4_095)),
            name(normal, 0, 0, 0, Some(u32::MAX)),
        ] {
            assert_eq!(job_id(task), None, "{task}");
        }
    }

    #[test]
    fn other_ids_are_those_of_no_task() {
        for text in [
            "",
            "12:0:-1",
            "not-a-uuid",
            "00000000-0000-0000-0000-000000000000",
            "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
            "00000000-0001-8000-8000-000000000003",
            "00000000-0001-8000-c000-000000000000",
        ] {
            assert_eq!(task_of(text), None, "{text}");
        }
        let first = job_id(name(Priority::Normal, 1, 0, -1, None)).unwrap();
        assert_eq!(first.to_string(), "00000000-0001-8000-8000-000000000000");
    }
}
