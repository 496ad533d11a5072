//! Defaults of topics where no policy applies. They depend on the name only, because the broker
//! knows nothing else about a topic's purpose. Pure.

use crate::policies::{
    BacklogAction, BacklogQuota, InactiveMode, InactiveTopics, Policies, Retention,
};
use std::time::Duration;

/// Defaults of topics with certain names, where neither a policy of the topic nor one of its
/// namespace applies. The admin interface shows them as effective policies.
///
/// ```
/// use longhaul_broker::{BrokerConfig, TopicDefaults, TopicPattern};
///
/// let mut config = BrokerConfig::default();
/// config.topic_defaults.push(TopicDefaults {
///     topics: TopicPattern::EndsWith("-events".to_owned()),
///     deduplication: true,
///     compaction_threshold_bytes: None,
///     retention: Some(std::time::Duration::from_secs(3600)),
///     subscription: None,
/// });
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicDefaults {
    /// The topics: unpartitioned ones, and partitioned ones as a whole.
    pub topics: TopicPattern,
    /// Whether the broker drops messages that a producer sends twice.
    pub deduplication: bool,
    /// Uncompacted bytes at which a topic is compacted. `None`: it is not compacted automatically.
    pub compaction_threshold_bytes: Option<u64>,
    /// How long messages are kept that every subscription has acknowledged or that compaction has
    /// processed, in whole minutes and without a limit in size. `None`: acknowledged messages may
    /// be removed at once, and a topic without subscriptions keeps its messages.
    pub retention: Option<Duration>,
    /// A durable subscription that is created with the topic.
    pub subscription: Option<String>,
}

/// Selects topics by name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TopicPattern {
    /// Topics whose names end with this text.
    EndsWith(String),
    /// Topics for which another topic exists whose name is theirs followed by this text.
    Beside(String),
}

/// Defaults for the topics of a task topic `T`: `T`, `T-ledger`, `T-register`, `T-metadata`,
/// `T-longhaul-DLQ`.
pub(crate) fn of_task_topics() -> Vec<TopicDefaults> {
    const THRESHOLD_BYTES: u64 = 64 * 1024 * 1024;
    let history = Some(Duration::from_secs(24 * 3600));
    let nothing = |topics| TopicDefaults {
        topics,
        deduplication: false,
        compaction_threshold_bytes: None,
        retention: None,
        subscription: None,
    };
    let ends = |suffix: &str| nothing(TopicPattern::EndsWith(suffix.to_owned()));
    let compacted = Some(THRESHOLD_BYTES);
    vec![
        TopicDefaults {
            deduplication: true,
            compaction_threshold_bytes: compacted,
            retention: history,
            ..ends("-ledger")
        },
        TopicDefaults {
            deduplication: true,
            compaction_threshold_bytes: compacted,
            retention: history,
            ..ends("-register")
        },
        TopicDefaults {
            compaction_threshold_bytes: compacted,
            retention: history,
            ..ends("-metadata")
        },
        TopicDefaults {
            retention: history,
            subscription: Some("dead-letters".to_owned()),
            ..ends("-DLQ")
        },
        TopicDefaults {
            deduplication: true,
            ..nothing(TopicPattern::Beside("-ledger".to_owned()))
        },
    ]
}

/// The first row that matches this topic; `exists` tells whether a topic exists, with partitions or
/// without.
pub(crate) fn find<'a>(
    defaults: &'a [TopicDefaults],
    topic: &str,
    exists: impl Fn(&str) -> bool,
) -> Option<&'a TopicDefaults> {
    defaults.iter().find(|row| match &row.topics {
        TopicPattern::EndsWith(suffix) => topic.ends_with(suffix.as_str()),
        TopicPattern::Beside(suffix) => exists(&format!("{topic}{suffix}")),
    })
}

/// The topic whose defaults may change when `topic` is created or deleted.
pub(crate) fn neighbours<'a>(
    defaults: &'a [TopicDefaults],
    topic: &'a str,
) -> impl Iterator<Item = &'a str> {
    defaults.iter().filter_map(move |row| match &row.topics {
        TopicPattern::EndsWith(_) => None,
        TopicPattern::Beside(suffix) => topic.strip_suffix(suffix.as_str()),
    })
}

/// The broker's level of the policies. It includes values that hold for every topic, so that
/// readers of the answer need not know the broker.
pub(crate) fn policies(row: Option<&TopicDefaults>) -> Policies {
    let minutes = |time: Duration| i64::try_from(time.as_secs() / 60).unwrap_or(i64::MAX);
    let retention = row.and_then(|row| row.retention);
    // A stalled reader of these topics must not stop workers from publishing, as the quota of other
    // topics would.
    let is_of_workers = row.is_some_and(|row| matches!(row.topics, TopicPattern::EndsWith(_)));
    let policy = BacklogAction::ProducerException;
    let unlimited = BacklogQuota { limit_bytes: -1, limit_s: -1, policy };
    Policies {
        backlog_quota: is_of_workers.then_some(unlimited),
        message_ttl_s: Some(0),
        unacked_per_consumer: Some(0),
        unacked_per_subscription: Some(0),
        inactive_topics: Some(InactiveTopics {
            inactive_topic_delete_mode: InactiveMode::DeleteWhenNoSubscriptions,
            max_inactive_s: 60,
            delete_while_inactive: false,
        }),
        deduplication: Some(row.is_some_and(|row| row.deduplication)),
        compaction_threshold_bytes: Some(
            row.and_then(|row| row.compaction_threshold_bytes).unwrap_or(0),
        ),
        retention: retention.map(|time| Retention { minutes: minutes(time), megabytes: -1 }),
        ..Policies::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_name_or_its_neighbour_finds_the_row() {
        let rows = of_task_topics();
        let exists = |name: &str| name == "persistent://p/d/t-ledger";
        let row = |name: &str| find(&rows, &format!("persistent://p/d/{name}"), exists);
        assert!(
            row("t").is_some_and(|defaults| defaults.deduplication && defaults.retention.is_none())
        );
        assert_eq!(row("u"), None);
        assert_eq!(row("t-ledger-2"), None);
        let found = policies(row("u-metadata"));
        assert_eq!(found.retention, Some(Retention { minutes: 1440, megabytes: -1 }));
        assert_eq!(found.compaction_threshold_bytes, Some(64 << 20));
        assert_eq!((found.deduplication, found.unacked_per_consumer), (Some(false), Some(0)));
        assert_eq!(policies(row("t-register")), policies(row("t-ledger")));
        assert_eq!(policies(None).retention, None);
        let around: Vec<_> = neighbours(&rows, "persistent://p/d/t-ledger").collect();
        assert_eq!(around, ["persistent://p/d/t"]);
    }
}
