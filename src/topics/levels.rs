//! The levels of a queue: `<T>-high` and `<T>-low` beside its task topic `<T>`. Each is a task topic with a ledger and a metadata topic of
//! its own; register and dead letters are those of `<T>`, for they belong to the queue, whatever a task's priority.

use super::names::{TopicNameError, TopicNames, TopicOverrides};
use std::fmt;

/// Which of the topics of a queue a task goes to: see [`Submission::priority`](crate::Submission::priority). Any producer picks one by its
/// name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Priority {
    /// `<T>-low`.
    Low,
    /// `<T>`, the task topic itself.
    #[default]
    Normal,
    /// `<T>-high`.
    High,
}

impl Priority {
    /// All of them, the highest first.
    pub const ALL: [Self; 3] = [Self::High, Self::Normal, Self::Low];

    /// As text: `high`, `normal` or `low`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Normal => "normal",
            Self::High => "high",
        }
    }

    /// What the name of its task topic ends with.
    pub(crate) const fn suffix(self) -> &'static str {
        match self {
            Self::Low => "-low",
            Self::Normal => "",
            Self::High => "-high",
        }
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl TopicNames {
    /// The name of the task topic of a level of this queue.
    #[must_use]
    pub fn task_of(&self, priority: Priority) -> String {
        format!("{}{}", self.task, priority.suffix())
    }

    /// The topics of a level of this queue. Its register and dead letters are those of this one; ledger and metadata topic may have other
    /// names than the derived ones.
    ///
    /// ```
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

#[cfg(feature = "admin")]
mod setting_up {
    use crate::topics::calls::found;
    use crate::topics::{
        Admin, AdminError, SetupError, SetupReport, TopicNames, TopicSettings, setup,
    };

    /// Makes the topics of a queue and of its levels as the protocol needs them: [`setup`] for each. A level that is new gets as many partitions as
    /// the task topic has.
    ///
    /// # Errors
    /// See [`SetupError`]. Steps already taken stay taken.
    pub async fn setup_levels(
        admin: &Admin,
        queue: &TopicNames,
        levels: &[TopicNames],
        settings: &TopicSettings,
    ) -> Result<SetupReport, SetupError> {
        let mut report = setup(admin, queue, settings).await?;
        for level in levels {
            let settings = like(admin, settings, queue, level).await?;
            let SetupReport { steps, findings } = setup(admin, level, &settings).await?;
            report.steps.extend(steps);
            // What is said of the dead letters was said.
            let said = |finding: &_| report.findings.contains(finding);
            let new: Vec<_> = findings.into_iter().filter(|finding| !said(finding)).collect();
            report.findings.extend(new);
        }
        Ok(report)
    }

    /// The settings for a level: a new one gets as many partitions as the queue's own task topic has.
    pub(crate) async fn like(
        admin: &Admin,
        settings: &TopicSettings,
        queue: &TopicNames,
        level: &TopicNames,
    ) -> Result<TopicSettings, AdminError> {
        let admin = admin.retrying();
        let is_new = found(admin.partitions(&level.task).await)?.is_none();
        if settings.partitions.is_some() || !is_new {
            return Ok(settings.clone());
        }
        let partitions = found(admin.partitions(&queue.task).await)?.flatten();
        Ok(TopicSettings { partitions, ..settings.clone() })
    }
}

#[cfg(feature = "admin")]
pub(crate) use setting_up::like;
#[cfg(feature = "admin")]
pub use setting_up::setup_levels;

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
