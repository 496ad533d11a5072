//! The levels of a queue: `<T>-high` and `<T>-low` beside its task topic `<T>`. Each is a task
//! topic with a ledger and a metadata topic of its own. Register and dead letters are those of
//! `<T>`, because they belong to the queue, whatever a task's priority.

use super::names::{TopicNameError, TopicNames, TopicOverrides};
use crate::task::Priority;

impl TopicNames {
    /// The name of the task topic of a level of this queue.
    #[must_use]
    pub fn task_of(&self, priority: Priority) -> String {
        format!("{}{}", self.task, priority.suffix())
    }

    /// The topics of a level of this queue. Its register and dead letters are those of this queue;
    /// ledger and metadata topic may have other names than the derived ones.
    ///
    /// ```
    /// # mod longhaul { pub use longhaul_core::topics; }
    /// use longhaul::topics::{Priority, TopicNames, TopicOverrides};
    ///
    /// let queue = TopicNames::new("tasks", "longhaul")?;
    /// let high = queue.level(Priority::High, "longhaul", &TopicOverrides::default())?;
    /// assert_eq!(high.task, "persistent://public/default/tasks-high");
    /// assert_eq!(high.ledger, "persistent://public/default/tasks-high-ledger");
    /// assert_eq!(high.dead_letters, queue.dead_letters);
    /// # Ok::<(), longhaul::topics::TopicNameError>(())
    /// ```
    ///
    /// # Errors
    /// As [`TopicNames::with_overrides`].
    pub fn level(
        &self,
        priority: Priority,
        subscription: &str,
        overrides: &TopicOverrides,
    ) -> Result<Self, TopicNameError> {
        if priority == Priority::Normal {
            return Ok(self.clone());
        }
        let overrides = TopicOverrides {
            register: Some(self.register.clone()),
            dead_letters: Some(self.dead_letters.clone()),
            ..overrides.clone()
        };
        let level = Self::with_overrides(&self.task_of(priority), subscription, &overrides)?;
        Ok(Self { priority, ..level })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_has_its_own_ledger_and_the_dead_letters_and_register_of_the_queue() {
        let given = TopicOverrides {
            register: Some("keys".to_owned()),
            dead_letters: Some("dead".to_owned()),
            ..TopicOverrides::default()
        };
        let queue = TopicNames::with_overrides("tasks", "audit", &given).unwrap();
        let none = TopicOverrides::default();
        let level = |priority| queue.level(priority, "audit", &none).unwrap();
        assert_eq!(level(Priority::Normal), queue);
        for (priority, task) in [(Priority::High, "tasks-high"), (Priority::Low, "tasks-low")] {
            let level = level(priority);
            assert_eq!(level.task, format!("persistent://public/default/{task}"));
            assert_eq!(level.priority, priority);
            assert_eq!(
                level.metadata,
                format!("persistent://public/default/{task}-audit-metadata")
            );
            assert_eq!(level.ledger, format!("persistent://public/default/{task}-audit-ledger"));
            assert_eq!(
                (&level.register, &level.dead_letters),
                (&queue.register, &queue.dead_letters)
            );
            assert_eq!(queue.check_apart(&level), Ok(()));
        }
        let ledger =
            TopicOverrides { ledger: Some("other".to_owned()), ..TopicOverrides::default() };
        let level = queue.level(Priority::High, "audit", &ledger).unwrap();
        assert_eq!(level.ledger, "persistent://public/default/other");
    }
}
