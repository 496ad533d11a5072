//! What topics get where no policy says otherwise: by their names, for the broker knows nothing
//! else of what they are for. Pure.

use crate::admin::policies::{
    BacklogAction, BacklogQuota, InactiveMode, InactiveTopics, Policies, Retention,
};
use std::time::Duration;

/// What topics of some names get, where neither a policy of the topic nor one of its namespace says
/// otherwise. The admin interface shows it as what is in force.
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
    /// Which topics: those without partitions, and partitioned ones as a whole.
    pub topics: TopicPattern,
    /// Whether what a producer sends twice is dropped.
    pub deduplication: bool,
    /// Bytes at which what was not compacted yet is compacted. `None`: never by itself.
    pub compaction_threshold_bytes: Option<u64>,
    /// How long messages stay that every subscription has acknowledged, or compaction has seen, in
    /// whole minutes and of any size. `None`: acknowledged ones may go at once, and a topic without
    /// subscriptions keeps its messages.
    pub retention: Option<Duration>,
    /// A durable subscription that such a topic gets when it is created.
    pub subscription: Option<String>,
}

/// Which topics are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TopicPattern {
    /// Those whose names end so.
    EndsWith(String),
    /// Those beside which there is another one: of the same name with this at its end.
    Beside(String),
}

/// For the topics of a task topic `T`: `T` itself, `T-ledger`, `T-register`, `T-metadata`,
/// `T-longhaul-DLQ`.
pub(crate) fn of_task_topics() -> Vec<TopicDefaults> {
    const THRESHOLD_BYTES: u64 = 64 * 1024 * 1024;
    let history = Some(Duration::from_secs(4 * 3600));
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

/// The first row that is about this topic; `exists` says whether there is a topic, with partitions
/// or without.
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

/// The topic whose defaults may change when this one comes or goes.
pub(crate) fn neighbours<'a>(
    defaults: &'a [TopicDefaults],
    topic: &'a str,
) -> impl Iterator<Item = &'a str> {
    defaults.iter().filter_map(move |row| match &row.topics {
        TopicPattern::EndsWith(_) => None,
        TopicPattern::Beside(suffix) => topic.strip_suffix(suffix.as_str()),
    })
}

/// The broker's level of the policies. What holds for every topic is said, too: who reads it need
/// not know the broker.
pub(crate) fn policies(row: Option<&TopicDefaults>) -> Policies {
    let minutes = |time: Duration| i64::try_from(time.as_secs() / 60).unwrap_or(i64::MAX);
    let retention = row.and_then(|row| row.retention);
    // Whoever reads them and stands still must not keep workers from publishing there, as the quota
    // of other topics would.
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
        assert_eq!(found.retention, Some(Retention { minutes: 240, megabytes: -1 }));
        assert_eq!(found.compaction_threshold_bytes, Some(64 << 20));
        assert_eq!((found.deduplication, found.unacked_per_consumer), (Some(false), Some(0)));
        assert_eq!(policies(row("t-register")), policies(row("t-ledger")));
        assert_eq!(policies(None).retention, None);
        let around: Vec<_> = neighbours(&rows, "persistent://p/d/t-ledger").collect();
        assert_eq!(around, ["persistent://p/d/t"]);
    }
}
