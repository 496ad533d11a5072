//! The levels of a queue.

use std::fmt;

/// The topic of a queue that a task goes to: see `Submission::priority`. Any producer selects one
/// by the topic's name.
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

    /// The suffix of its task topic's name.
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
