//! Names of queues, and the topics that they stand for.

use std::fmt;

/// The longest name of a queue.
const BYTES_MAX: usize = 128;

/// Endings that belong to topics beside a task topic.
const COMPANIONS: [&str; 6] = ["-metadata", "-ledger", "-register", "-DLQ", "-high", "-low"];

/// The name of a queue: a task topic in the gateway's namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct QueueName(String);

/// A text is no name of a queue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum QueueNameError {
    /// It has another form.
    #[error(
        "the name of a queue has 1 to {BYTES_MAX} characters of `-`, `_`, digits and letters; this one has {0}"
    )]
    Form(String),
    /// Topics with such names belong to another queue.
    #[error("a queue's name does not end with `{0}`, as the topics do that belong to a queue")]
    Companion(&'static str),
}

impl QueueName {
    pub(crate) fn parse(text: &str) -> Result<Self, QueueNameError> {
        if text.is_empty() || text.len() > BYTES_MAX {
            return Err(QueueNameError::Form(format!("{} bytes", text.len())));
        }
        let is_bad = |it: &char| !(it.is_ascii_alphanumeric() || matches!(it, '-' | '_'));
        if let Some(bad) = text.chars().find(is_bad) {
            return Err(QueueNameError::Form(format!("`{}`", bad.escape_default())));
        }
        if let Some(ending) = COMPANIONS.into_iter().find(|ending| text.ends_with(ending)) {
            return Err(QueueNameError::Companion(ending));
        }
        let partition = text.rsplit_once("-partition-").map(|(_, index)| index);
        if partition.is_some_and(|it| !it.is_empty() && it.bytes().all(|it| it.is_ascii_digit())) {
            return Err(QueueNameError::Companion("-partition-N"));
        }
        Ok(Self(text.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_words_that_no_other_topic_has() {
        for good in ["a", "tasks", "My_queue-2", &"q".repeat(128), "highway", "x-lowlands"] {
            assert_eq!(QueueName::parse(good).map(|it| it.to_string()), Ok(good.to_owned()));
        }
        for bad in ["", &"q".repeat(129), "a/b", "a.b", "a b", "ä", "a\0", "..", "a%2f", "a\n"] {
            assert!(matches!(QueueName::parse(bad), Err(QueueNameError::Form(_))), "{bad:?}");
        }
        for taken in [
            "a-metadata",
            "a-ledger",
            "a-register",
            "a-longhaul-DLQ",
            "a-high",
            "a-low",
            "a-partition-3",
        ] {
            let refused = QueueName::parse(taken);
            assert!(matches!(refused, Err(QueueNameError::Companion(_))), "{taken}");
        }
    }
}
