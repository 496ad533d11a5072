//! Names of topics.

use std::fmt;

const PERSISTENT: &str = "persistent://";
const PARTITION: &str = "-partition-";
/// Pulsar has no limit of its own; file systems and tools have this one.
pub(crate) const BYTES_MAX: usize = 255;

/// Why a text is not a topic name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// This broker only has persistent topics.
    #[error("`{0}`: non-persistent topics are not supported, use persistent://")]
    NonPersistent(String),
    /// The text does not have the form of a name.
    #[error("`{0}` is not a topic: expected persistent://tenant/namespace/topic, or a topic alone")]
    Form(String),
    /// One of its parts has a character that it must not have, or is empty, or consists of dots.
    #[error(
        "`{0}` is not a topic: tenant, namespace and topic may have letters, digits and -=:._%~@+ and more, but no control characters, blanks or slashes, and are not `.` or `..`"
    )]
    Characters(String),
    /// A partition's name would be too long.
    #[error(
        "a topic's name has at most 255 bytes, that of its partition {1} would have {0}: use a shorter one"
    )]
    LongPartition(usize, u32),
    /// The name is too long.
    #[error("a topic's name has at most 255 bytes, this one has {0}")]
    Long(usize),
}

/// The full name of a topic: `persistent://tenant/namespace/topic`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicName {
    full: String,
    /// End of the namespace in `full`.
    namespace_end: usize,
}

impl TopicName {
    /// Parses a full or short name; a short name belongs to `public/default`.
    ///
    /// # Errors
    /// See [`NameError`].
    pub fn parse(name: &str) -> Result<Self, NameError> {
        let rest = match name.split_once("://") {
            Some(("persistent", rest)) => rest,
            Some(("non-persistent", _)) => return Err(NameError::NonPersistent(shown(name))),
            Some(_) => return Err(NameError::Form(shown(name))),
            None => name,
        };
        let parts: Vec<&str> = rest.split('/').collect();
        let (tenant, namespace, topic) = match parts.as_slice() {
            [topic] if !name.contains("://") => ("public", "default", *topic),
            [tenant, namespace, topic] => (*tenant, *namespace, *topic),
            _ => return Err(NameError::Form(shown(name))),
        };
        if ![tenant, namespace, topic].into_iter().all(is_part) {
            return Err(NameError::Characters(shown(name)));
        }
        let full = format!("{PERSISTENT}{tenant}/{namespace}/{topic}");
        if full.len() > BYTES_MAX {
            return Err(NameError::Long(full.len()));
        }
        let namespace_end = PERSISTENT.len() + tenant.len() + 1 + namespace.len();
        Ok(Self { full, namespace_end })
    }

    /// The full name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.full
    }

    /// `tenant/namespace`.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.full.get(PERSISTENT.len()..self.namespace_end).unwrap_or_default()
    }

    /// The tenant that the namespace belongs to.
    #[must_use]
    pub fn tenant(&self) -> &str {
        self.namespace().split('/').next().unwrap_or_default()
    }

    /// Prefix of the full names of all topics in a namespace.
    pub(crate) fn start_in(namespace: &str) -> String {
        format!("{PERSISTENT}{namespace}/")
    }

    /// The topic and the index of the partition, if the name is that of a partition.
    #[must_use]
    pub fn partition(&self) -> Option<(Self, u32)> {
        let (topic, number) = self.full.rsplit_once(PARTITION)?;
        let index: u32 = number.parse().ok()?;
        // `-partition-007` is an ordinary name.
        let topic = Self { full: topic.to_owned(), namespace_end: self.namespace_end };
        (index.to_string() == number && topic.full.len() > self.namespace_end + 1)
            .then_some((topic, index))
    }

    /// The topic of a partition, or the topic itself.
    #[must_use]
    pub fn whole(&self) -> Self {
        self.partition().map_or_else(|| self.clone(), |(whole, _)| whole)
    }

    /// The partition index as in message ids: -1 for none.
    #[must_use]
    pub fn partition_index(&self) -> i32 {
        self.partition().and_then(|(_, index)| i32::try_from(index).ok()).unwrap_or(-1)
    }

    /// Checks that the topic can have this many partitions: each partition's name must be a valid
    /// topic name.
    ///
    /// # Errors
    /// [`NameError::LongPartition`].
    pub fn check_partitions(&self, count: u32) -> Result<(), NameError> {
        let last = count.saturating_sub(1);
        let length = self.with_partition(last).full.len();
        if length > BYTES_MAX { Err(NameError::LongPartition(length, last)) } else { Ok(()) }
    }

    /// The name of one of its partitions.
    #[must_use]
    pub fn with_partition(&self, index: u32) -> Self {
        Self { full: format!("{}{PARTITION}{index}", self.full), namespace_end: self.namespace_end }
    }
}

impl fmt::Display for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.full)
    }
}

/// Checks the name of a subscription, consumer or producer. Clients choose these names, and they
/// appear in statistics, metrics and logs.
pub(crate) fn check_name(what: &str, name: &str) -> Result<(), String> {
    if name.len() > BYTES_MAX {
        return Err(format!(
            "a {what}'s name has at most {BYTES_MAX} bytes, this one has {}",
            name.len()
        ));
    }
    if name.chars().any(char::is_control) {
        return Err(format!("a {what}'s name has no control characters, `{}` has", shown(name)));
    }
    Ok(())
}

fn is_part(part: &str) -> bool {
    let plain = |letter: char| !letter.is_control() && letter != '\\';
    !part.is_empty() && part != "." && part != ".." && part.chars().all(plain)
}

/// The name for an error text: shortened, and without characters that could harm a terminal or a
/// log.
fn shown(name: &str) -> String {
    name.chars().take(100).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_completed() {
        let name = TopicName::parse("tasks").unwrap();
        assert_eq!(name.as_str(), "persistent://public/default/tasks");
        assert_eq!(name.namespace(), "public/default");
        assert_eq!(TopicName::parse("persistent://a/b/c").unwrap().namespace(), "a/b");
        assert_eq!(TopicName::parse("a b").unwrap().as_str(), "persistent://public/default/a b");
        assert_eq!(TopicName::parse("a/b/c").unwrap().as_str(), "persistent://a/b/c");
    }

    #[test]
    fn partitions_are_told_from_names_that_look_alike() {
        let name = TopicName::parse("tasks").unwrap();
        assert_eq!(name.partition_index(), -1);
        let third = name.with_partition(3);
        assert_eq!(third.as_str(), "persistent://public/default/tasks-partition-3");
        assert_eq!(third.partition(), Some((name, 3)));
        for odd in ["a-partition-03", "a-partition-", "a-partition-x", "-partition-1"] {
            assert_eq!(TopicName::parse(odd).unwrap().partition(), None, "{odd}");
        }
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for bad in [
            "",
            "..",
            "a\nb",
            "persistent://",
            "persistent://a",
            "persistent://a/b",
            "persistent://a/../c",
            "persistent://a/b/c/d",
            "non-persistent://a/b/c",
            "http://a/b/c",
            "a/b",
            "a\\b",
            "persistent:///b/c",
        ] {
            assert!(TopicName::parse(bad).is_err(), "{bad:?}");
        }
        assert!(matches!(TopicName::parse(&"x".repeat(300)), Err(NameError::Long(_))));
        let error = TopicName::parse("a\u{1b}[31mb").unwrap_err().to_string();
        assert!(!error.contains('\u{1b}'), "{error}");
    }
}
