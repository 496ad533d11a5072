//! The levels of a queue.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The topic of a queue that a task goes to: see `Submission::priority`. Any producer selects one
/// by the topic's name.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
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

    /// The suffix of its task topic's name.
    #[must_use]
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Low => "-low",
            Self::Normal => "",
            Self::High => "-high",
        }
    }

    /// Splits the name of a task topic into that of its queue and the level, as the suffix says.
    /// A name tells no more than that: whether `runs-high` is a level, or a queue of this name,
    /// depends on whether there is a queue `runs`.
    ///
    /// ```
    /// use longhaul_core::task::Priority;
    ///
    /// assert_eq!(Priority::of_topic("mails-high"), ("mails", Priority::High));
    /// assert_eq!(Priority::of_topic("mails"), ("mails", Priority::Normal));
    /// ```
    #[must_use]
    pub fn of_topic(topic: &str) -> (&str, Self) {
        let split = |level: Self| Some((topic.strip_suffix(level.suffix())?, level));
        [Self::High, Self::Low].into_iter().find_map(split).unwrap_or((topic, Self::Normal))
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
