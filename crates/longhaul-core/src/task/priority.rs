//! The levels of a queue.

use std::fmt;

/// Which of the topics of a queue a task goes to: see `Submission::priority`. Any producer picks
/// one by its name.
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
    #[must_use]
    pub const fn suffix(self) -> &'static str {
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
