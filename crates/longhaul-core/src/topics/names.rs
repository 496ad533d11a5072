//! The names of the topics that belong to a task topic, and the rules for a name.
//!
//! Every name returned by this module is full: `persistent://tenant/namespace/local`. Two topics of
//! one set are never the same, because an entry of one kind on the topic of another would be
//! misread.

use crate::task::Priority;
use longhaul_types::classified;
use longhaul_types::error::{Class, ErrorKind};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// The default subscription of workers. The names of its topics do not include a subscription.
pub const DEFAULT_SUBSCRIPTION: &str = "longhaul";

/// The subscription that set-up creates on the dead letters, so that each is kept until a person
/// has handled and acknowledged it. Any other durable subscription works as well.
pub const DEAD_LETTER_SUBSCRIPTION: &str = "dead-letters";

/// Maximum length of a full topic name, in bytes. Percent-encoded in the URL of an admin call it
/// still fits into the 8 KiB that brokers and proxies allow for a request's head.
pub const TOPIC_NAME_BYTES_MAX: usize = 512;

const SCHEME: &str = "persistent://";
const DEFAULT_TENANT: &str = "public";
const DEFAULT_NAMESPACE: &str = "default";
const PARTITION_SUFFIX: &str = "-partition-";
/// Suffixes of the topics that belong to a task topic and are no task topics themselves.
const COMPANIONS: [&str; 3] = ["-metadata", "-ledger", "-register"];

/// Why a name is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TopicNameError {
    /// The name is empty.
    #[error("a topic name must not be empty")]
    Empty,
    /// `non-persistent://…`, or a scheme that Pulsar does not know.
    #[error("`{0}` is not a persistent topic: tasks would be lost with the broker's memory")]
    NotPersistent(String),
    /// `topic://…` or `segment://…`, a scalable topic of Pulsar 5.
    #[error(
        "`{0}` is a scalable topic of Pulsar 5, but tasks need a persistent topic: use a topic that was not migrated"
    )]
    Scalable(String),
    /// Neither `topic`, `tenant/namespace/topic` nor `persistent://tenant/namespace/topic`.
    #[error(
        "`{0}` is not a topic name: expected `topic`, `tenant/namespace/topic` or `persistent://tenant/namespace/topic`"
    )]
    Shape(String),
    /// A part of the name contains characters that Pulsar, or a URL, does not support safely.
    #[error("`{name}` is not a topic name: {problem}")]
    Part {
        /// The name, with control characters escaped.
        name: String,
        /// The problem and the part.
        problem: &'static str,
    },
    /// It is the name of one partition instead of the whole topic.
    #[error("`{0}` is one partition of a topic: use the name of the topic, without `-partition-…`")]
    Partition(String),
    /// More than [`TOPIC_NAME_BYTES_MAX`] bytes.
    #[error(
        "the topic name has {bytes} bytes, more than the {TOPIC_NAME_BYTES_MAX} allowed: `{start}…`"
    )]
    TooLong {
        /// Length of the full name.
        bytes: usize,
        /// The beginning of the name.
        start: String,
    },
    /// The subscription is empty, or cannot be part of a topic name.
    #[error("`{name}` is not a subscription name: {problem}")]
    Subscription {
        /// The name, with control characters escaped.
        name: String,
        /// The problem.
        problem: &'static str,
    },
    /// The name has the suffix of a metadata topic, ledger or register: a task there would be lost,
    /// or would replace an entry.
    #[error("`{name}` belongs to the task topic `{of}`: use the name of the task topic")]
    Companion {
        /// Full name.
        name: String,
        /// The task topic that it would belong to.
        of: String,
    },
    /// Two topics of the set, or of a worker's task topics, have the same name.
    #[error(
        "`{0}` is given twice: the topics of one task topic, and the task topics of one worker, must all differ"
    )]
    Twice(String),
    /// A worker has too many task topics.
    #[error("a worker has at most {0} task topics")]
    TooMany(usize),
}

classified!(TopicNameError);

impl TopicNameError {
    /// Its kind and its code, for the errors that contain it.
    #[doc(hidden)]
    #[must_use]
    pub const fn class(&self) -> Class {
        (ErrorKind::Invalid, "queue_name_invalid")
    }
}

/// The parts of a full topic name, borrowed from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicParts<'a> {
    /// The tenant.
    pub tenant: &'a str,
    /// The namespace in the tenant.
    pub namespace: &'a str,
    /// The name in the namespace.
    pub local: &'a str,
}

impl<'a> TopicParts<'a> {
    /// Parses a short or a full name of a topic or of one partition.
    ///
    /// # Errors
    /// It is not the name of a topic.
    pub fn parse(name: &'a str) -> Result<Self, TopicNameError> {
        if name.is_empty() {
            return Err(TopicNameError::Empty);
        }
        let shown = || name.escape_debug().to_string();
        let (path, scheme) = match name.split_once("://") {
            None => (name, false),
            Some(("persistent", path)) => (path, true),
            Some(("topic" | "segment", _)) => return Err(TopicNameError::Scalable(shown())),
            Some(_) => return Err(TopicNameError::NotPersistent(shown())),
        };
        let parts: Vec<&str> = path.split('/').collect();
        let parts = match *parts.as_slice() {
            [local] if !scheme => {
                Self { tenant: DEFAULT_TENANT, namespace: DEFAULT_NAMESPACE, local }
            }
            [tenant, namespace, local] => Self { tenant, namespace, local },
            _ => return Err(TopicNameError::Shape(shown())),
        };
        let problem = namespace_problem(parts.tenant)
            .or_else(|| namespace_problem(parts.namespace))
            .or_else(|| local_problem(parts.local));
        if let Some(problem) = problem {
            return Err(TopicNameError::Part { name: shown(), problem });
        }
        let bytes =
            SCHEME.len() + parts.tenant.len() + parts.namespace.len() + parts.local.len() + 2;
        if bytes > TOPIC_NAME_BYTES_MAX {
            let start = name.chars().take(64).collect();
            return Err(TopicNameError::TooLong { bytes, start });
        }
        Ok(parts)
    }

    /// Whether this is the name of one partition.
    fn is_partition(self) -> bool {
        self.local.rsplit_once(PARTITION_SUFFIX).is_some_and(|(_, index)| {
            !index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit())
        })
    }
}

impl fmt::Display for TopicParts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}/{}", self.tenant, self.namespace, self.local)
    }
}

/// The characters that Pulsar allows in tenants and namespaces.
fn namespace_problem(part: &str) -> Option<&'static str> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '=' | ':' | '.');
    if part.is_empty() {
        Some("the tenant or the namespace is empty")
    } else if part == "." || part == ".." {
        Some("the tenant or the namespace would vanish from a URL")
    } else if part.chars().all(allowed) {
        None
    } else {
        Some("tenant and namespace may hold only letters, digits and `_-=:.`")
    }
}

/// Pulsar allows almost anything here; the refused characters get lost or changed on the way
/// through the admin API.
fn local_problem(part: &str) -> Option<&'static str> {
    if part.trim().is_empty() {
        Some("the topic's own name is empty")
    } else if part.trim().len() != part.len() {
        Some("it begins or ends with white space")
    } else if part == "." || part == ".." {
        Some("it would vanish from a URL")
    } else if part.chars().any(char::is_control) {
        Some("it holds a control character")
    } else if part.contains('%') {
        Some("brokers decode `%` more than once")
    } else if part.contains(['?', '#', '\\']) {
        Some("it holds one of `?#\\`")
    } else {
        None
    }
}

/// Checks a subscription's name, which becomes part of topic names and has the same rules.
///
/// # Errors
/// The name is empty, too long, or has a character that is not allowed in topic names.
pub fn check_subscription(name: &str) -> Result<(), TopicNameError> {
    let problem = if name.is_empty() {
        Some("it is empty")
    } else if name.contains('/') {
        Some("it holds a `/`")
    } else if name.len() > TOPIC_NAME_BYTES_MAX / 2 {
        Some("it is too long")
    } else {
        local_problem(name)
    };
    match problem {
        None => Ok(()),
        Some(problem) => {
            let name = name.chars().take(64).flat_map(char::escape_debug).collect();
            Err(TopicNameError::Subscription { name, problem })
        }
    }
}

/// Refuses a name that looks like the metadata topic or the ledger of another task topic: the tasks
/// were meant for that one.
fn check_task_topic(task: &str) -> Result<(), TopicNameError> {
    let belongs_to = COMPANIONS.into_iter().find_map(|suffix| task.strip_suffix(suffix));
    match belongs_to.filter(|task| !task.ends_with('/')) {
        None => Ok(()),
        Some(of) => Err(TopicNameError::Companion { name: task.to_owned(), of: of.to_owned() }),
    }
}

/// The full name of a topic, as opposed to one of its partitions.
///
/// # Errors
/// If the name is not that of a persistent topic; see [`TopicNameError`].
fn full_name(name: &str) -> Result<String, TopicNameError> {
    let parts = TopicParts::parse(name)?;
    if parts.is_partition() {
        return Err(TopicNameError::Partition(name.to_owned()));
    }
    Ok(parts.to_string())
}

/// The topics of one task topic and one subscription, by their full names.
///
/// ```
/// # mod longhaul { pub use longhaul_core::topics; }
/// use longhaul::topics::TopicNames;
///
/// let names: TopicNames = "tasks".parse()?;
/// assert_eq!(names.task, "persistent://public/default/tasks");
/// assert_eq!(names.ledger, "persistent://public/default/tasks-ledger");
/// # Ok::<(), longhaul::topics::TopicNameError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopicNames {
    /// The topic to which tasks are submitted.
    pub task: String,
    /// Public state of each task, for watchers.
    pub metadata: String,
    /// Claims and outcomes, on which workers decide.
    pub ledger: String,
    /// Data of the queue rather than of one task, such as idempotency keys.
    pub register: String,
    /// Tasks that failed for good.
    pub dead_letters: String,
    /// The level of the task topic in its queue: see [`TopicNames::level`].
    pub priority: Priority,
}

/// Names that differ from the derived ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicOverrides {
    /// Instead of `<T>-metadata`. The Java reference calls it `<T>-state` in its code.
    pub metadata: Option<String>,
    /// Instead of `<T>-ledger`.
    pub ledger: Option<String>,
    /// Instead of `<T>-register`.
    pub register: Option<String>,
    /// Instead of `<T>-<subscription>-DLQ`.
    pub dead_letters: Option<String>,
}

impl TopicOverrides {
    /// The overrides for a task topic, from a map by full names. An invalid name has none; using it
    /// is the error.
    pub fn of(known: &BTreeMap<String, Self>, task: &str) -> Self {
        full_name(task).ok().and_then(|task| known.get(&task)).cloned().unwrap_or_default()
    }
}

impl TopicNames {
    /// Derives the names from those of the task topic and the subscription.
    ///
    /// Two subscriptions of one task topic share only the tasks: the names of the other topics
    /// contain the subscription. The default subscription is left out, except from the dead
    /// letters, which follow Pulsar's convention.
    ///
    /// # Errors
    /// If one of the names, given or derived, is not usable; see [`TopicNameError`].
    pub fn new(task: &str, subscription: &str) -> Result<Self, TopicNameError> {
        Self::with_overrides(task, subscription, &TopicOverrides::default())
    }

    /// Like [`TopicNames::new`], with some names given. A short name means `public/default` there,
    /// too.
    ///
    /// # Errors
    /// As [`TopicNames::new`], and if two topics would have the same name.
    pub fn with_overrides(
        task: &str,
        subscription: &str,
        overrides: &TopicOverrides,
    ) -> Result<Self, TopicNameError> {
        check_subscription(subscription)?;
        let task = full_name(task)?;
        check_task_topic(&task)?;
        let infix = if subscription == DEFAULT_SUBSCRIPTION {
            String::new()
        } else {
            format!("-{subscription}")
        };
        let name = |given: &Option<String>, derived: String| {
            full_name(given.as_deref().unwrap_or(&derived))
        };
        let names = Self {
            metadata: name(&overrides.metadata, format!("{task}{infix}-metadata"))?,
            ledger: name(&overrides.ledger, format!("{task}{infix}-ledger"))?,
            register: name(&overrides.register, format!("{task}{infix}-register"))?,
            dead_letters: name(&overrides.dead_letters, format!("{task}-{subscription}-DLQ"))?,
            task,
            priority: Priority::Normal,
        };
        names.check_distinct()?;
        Ok(names)
    }

    /// Checks that two task topics of a worker share no topics except, perhaps, dead letters and
    /// register.
    ///
    /// # Errors
    /// The first topic that both have.
    pub fn check_apart(&self, other: &Self) -> Result<(), TopicNameError> {
        let own = [&self.task, &self.metadata, &self.ledger];
        let theirs = [&other.task, &other.metadata, &other.ledger];
        let shared = [(&self.register, &other.register), (&self.dead_letters, &other.dead_letters)];
        let twice = own
            .into_iter()
            .find(|name| theirs.contains(name) || shared.iter().any(|(_, shared)| shared == name))
            .or_else(|| {
                theirs.into_iter().find(|name| shared.iter().any(|(shared, _)| shared == name))
            });
        twice.map_or(Ok(()), |name| Err(TopicNameError::Twice(name.clone())))
    }

    fn check_distinct(&self) -> Result<(), TopicNameError> {
        let mut all =
            [&self.task, &self.metadata, &self.ledger, &self.register, &self.dead_letters];
        all.sort_unstable();
        match all.iter().zip(all.iter().skip(1)).find(|(one, next)| one == next) {
            Some((name, _)) => Err(TopicNameError::Twice((*name).clone())),
            None => Ok(()),
        }
    }
}

impl FromStr for TopicNames {
    type Err = TopicNameError;

    /// The names for a task topic and the default subscription.
    fn from_str(task: &str) -> Result<Self, TopicNameError> {
        Self::new(task, DEFAULT_SUBSCRIPTION)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_full_names_mean_the_same_topic() {
        let full = "persistent://public/default/tasks";
        for name in ["tasks", "public/default/tasks", full] {
            assert_eq!(full_name(name).unwrap(), full, "{name}");
        }
        assert_eq!(full_name("acme/prod/a b+c").unwrap(), "persistent://acme/prod/a b+c");
    }

    #[test]
    fn names_are_derived_without_the_default_subscription() {
        let names = TopicNames::new("acme/prod/tasks", "longhaul").unwrap();
        assert_eq!(names.task, "persistent://acme/prod/tasks");
        assert_eq!(names.metadata, "persistent://acme/prod/tasks-metadata");
        assert_eq!(names.ledger, "persistent://acme/prod/tasks-ledger");
        assert_eq!(names.register, "persistent://acme/prod/tasks-register");
        assert_eq!(names.dead_letters, "persistent://acme/prod/tasks-longhaul-DLQ");
    }

    #[test]
    fn another_subscription_gets_topics_of_its_own() {
        let names = TopicNames::new("tasks", "audit").unwrap();
        assert_eq!(names.metadata, "persistent://public/default/tasks-audit-metadata");
        assert_eq!(names.ledger, "persistent://public/default/tasks-audit-ledger");
        assert_eq!(names.register, "persistent://public/default/tasks-audit-register");
        assert_eq!(names.dead_letters, "persistent://public/default/tasks-audit-DLQ");
    }

    #[test]
    fn each_name_can_be_given() {
        let overrides = TopicOverrides {
            metadata: Some("acme/prod/tasks-state".to_owned()),
            ledger: Some("l".to_owned()),
            register: Some("r".to_owned()),
            dead_letters: Some("persistent://acme/dead/d".to_owned()),
        };
        let names = TopicNames::with_overrides("tasks", "longhaul", &overrides).unwrap();
        assert_eq!(names.metadata, "persistent://acme/prod/tasks-state");
        assert_eq!(names.ledger, "persistent://public/default/l");
        assert_eq!(names.register, "persistent://public/default/r");
        assert_eq!(names.dead_letters, "persistent://acme/dead/d");
    }

    #[test]
    fn two_topics_of_a_set_are_never_the_same() {
        let overrides =
            TopicOverrides { ledger: Some("tasks-metadata".to_owned()), ..Default::default() };
        let refused = TopicNames::with_overrides("tasks", "longhaul", &overrides);
        let name = "persistent://public/default/tasks-metadata".to_owned();
        assert_eq!(refused, Err(TopicNameError::Twice(name)));
    }

    #[test]
    fn two_task_topics_share_dead_letters_and_register_at_most() {
        let names = |task: &str, change: fn(&mut TopicNames, &TopicNames)| {
            let mut names: TopicNames = task.parse().unwrap();
            change(&mut names, &"tasks".parse().unwrap());
            names
        };
        let apart = |other: TopicNames| {
            let tasks: TopicNames = "tasks".parse().unwrap();
            let judged = [tasks.check_apart(&other), other.check_apart(&tasks)];
            assert_eq!(judged[0].is_ok(), judged[1].is_ok());
            judged[0].is_ok()
        };
        assert!(apart(names("orders", |_, _| {})));
        assert!(apart(names("orders", |names, tasks| names.register = tasks.register.clone())));
        assert!(apart(
            names("orders", |names, tasks| names.dead_letters = tasks.dead_letters.clone())
        ));
        assert!(!apart(names("tasks", |_, _| {})));
        assert!(!apart(names("orders", |names, tasks| names.ledger = tasks.ledger.clone())));
        assert!(
            !apart(names("orders", |names, tasks| names.dead_letters = tasks.metadata.clone()))
        );
        assert!(!apart(names("orders", |names, tasks| names.task = tasks.register.clone())));
    }

    #[test]
    fn names_that_are_not_topics_are_refused_in_words() {
        let cases = [
            ("", "must not be empty"),
            ("non-persistent://public/default/t", "not a persistent topic"),
            ("http://public/default/t", "not a persistent topic"),
            ("topic://public/default/t", "a scalable topic of Pulsar 5"),
            ("segment://public/default/t/0000-7fff-1", "a scalable topic of Pulsar 5"),
            ("persistent://t", "expected `topic`"),
            ("default/t", "expected `topic`"),
            ("tenant/cluster/namespace/t", "expected `topic`"),
            ("//t", "the tenant or the namespace is empty"),
            ("../default/t", "vanish from a URL"),
            ("pub lic/default/t", "only letters, digits"),
            ("public/default/", "own name is empty"),
            ("..", "vanish from a URL"),
            (" t", "white space"),
            ("a\nb", "control character"),
            ("a%2Fb", "more than once"),
            ("a?b", "one of `?#\\`"),
            ("tasks-partition-0", "is one partition of a topic"),
            ("persistent://public/default/tasks-partition-12", "is one partition of a topic"),
        ];
        for (name, words) in cases {
            let refused = full_name(name).unwrap_err().to_string();
            assert!(refused.contains(words), "{name:?}: {refused}");
            assert!(!refused.contains('\n'), "{name:?}: {refused}");
        }
    }

    /// Earlier, a task that was submitted to `tasks-metadata` was stored there and never run.
    #[test]
    fn what_belongs_to_a_task_topic_is_none() {
        for name in ["tasks-metadata", "a/b/tasks-audit-ledger", "tasks-register"] {
            let refused = TopicNames::new(name, "longhaul").unwrap_err();
            assert!(matches!(refused, TopicNameError::Companion { .. }), "{refused:?}");
        }
        let refused = TopicNames::new("tasks-ledger", "longhaul").unwrap_err().to_string();
        assert!(refused.contains("belongs to the task topic `persistent://public/default/tasks`"));
        for name in ["metadata", "-ledger", "tasks-metadata-2"] {
            assert!(TopicNames::new(name, "longhaul").is_ok(), "{name}");
        }
    }

    #[test]
    fn a_name_that_only_resembles_a_partition_is_a_topic() {
        for name in ["x-partition-", "x-partition-a", "x-partition-1-y", "partition-1"] {
            assert!(full_name(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn the_longest_name_counts_with_what_is_derived_from_it() {
        let prefix = "persistent://public/default/".len();
        let longest = "t".repeat(TOPIC_NAME_BYTES_MAX - prefix);
        assert!(full_name(&longest).is_ok());
        let refused = TopicNames::new(&longest, "longhaul");
        assert!(matches!(refused, Err(TopicNameError::TooLong { .. })), "{refused:?}");
        assert!(matches!(full_name(&format!("{longest}t")), Err(TopicNameError::TooLong { .. })));
    }

    #[test]
    fn subscriptions_that_cannot_be_part_of_a_name_are_refused() {
        for subscription in ["", "a/b", "a\tb", "50%", " a", &"s".repeat(400)] {
            let refused = TopicNames::new("tasks", subscription);
            let refused = refused.unwrap_err();
            assert!(matches!(refused, TopicNameError::Subscription { .. }), "{subscription:?}");
        }
    }
}
