//! Policies: what they are, and how those of topic, namespace and broker combine. Pure.
//!
//! Those that the broker obeys are typed; all others of Pulsar's are kept as they were given, so
//! that tools read back what they have set.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// How long messages stay that every subscription has acknowledged. They may go as soon as one of
/// the two is exceeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Retention {
    /// -1 is for ever, 0 not at all.
    #[serde(rename = "retentionTimeInMinutes")]
    pub(crate) minutes: i64,
    /// -1 is without limit, 0 nothing.
    #[serde(rename = "retentionSizeInMB")]
    pub(crate) megabytes: i64,
}

impl Retention {
    /// Whether neither of the two ever lets anything go.
    pub(crate) const fn is_endless(self) -> bool {
        self.minutes < 0 && self.megabytes < 0
    }

    /// What was published before this, in ms since 1970, is too old to stay; `None` when nothing
    /// ever is.
    #[must_use]
    pub(crate) fn oldest_ms(&self, now: u64) -> Option<u64> {
        let minutes = u64::try_from(self.minutes).ok()?;
        Some(now.saturating_sub(minutes.saturating_mul(60_000)))
    }
}

/// What happens to producers when a subscription's backlog is over its quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BacklogAction {
    /// Their PRODUCER command waits.
    ProducerRequestHold,
    /// They are refused.
    ProducerException,
    /// The slowest subscription loses its oldest messages.
    ConsumerBacklogEviction,
}

/// How large a subscription's backlog may become.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BacklogQuota {
    /// In bytes; -1 is without limit.
    #[serde(rename = "limitSize", default = "unlimited")]
    pub(crate) limit_bytes: i64,
    /// Age of the oldest message in seconds; -1 is without limit.
    #[serde(rename = "limitTime", default = "unlimited")]
    pub(crate) limit_s: i64,
    /// What happens then.
    pub(crate) policy: BacklogAction,
}

const fn unlimited() -> i64 {
    -1
}

/// When a topic that nobody uses is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InactiveTopics {
    /// Which topics.
    pub(crate) inactive_topic_delete_mode: InactiveMode,
    /// For how long nobody must have used it.
    #[serde(rename = "maxInactiveDurationSeconds")]
    pub(crate) max_inactive_s: i64,
    /// Whether at all.
    pub(crate) delete_while_inactive: bool,
}

/// Which inactive topics are deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum InactiveMode {
    /// Those without subscriptions.
    DeleteWhenNoSubscriptions,
    /// Also those whose subscriptions have read everything.
    DeleteWhenSubscriptionsCaughtUp,
}

/// Whether topics come into being when a client uses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AutoTopicCreation {
    /// Whether at all.
    pub(crate) allow_auto_topic_creation: bool,
    /// With partitions or without.
    #[serde(default)]
    pub(crate) topic_type: TopicType,
    /// How many partitions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) default_num_partitions: Option<u32>,
}

/// Kinds of topics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum TopicType {
    /// With partitions.
    #[serde(rename = "partitioned")]
    Partitioned,
    /// Without.
    #[default]
    #[serde(rename = "non-partitioned")]
    NonPartitioned,
}

/// Sets or unsets one policy.
pub(crate) type PolicyChange = Box<dyn FnOnce(&mut Policies) + Send>;

/// What is set on one level. Kept by the broker in this JSON, so fields are only ever added.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Policies {
    /// How long messages stay that every subscription has acknowledged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retention: Option<Retention>,
    /// Whether the broker drops what a producer sends twice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) deduplication: Option<bool>,
    /// Size of the uncompacted part at which the broker compacts by itself; 0 is never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) compaction_threshold_bytes: Option<u64>,
    /// Age at which the broker itself acknowledges a message; 0 is never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message_ttl_s: Option<u64>,
    /// Unacknowledged messages at which a consumer gets no more; 0 is without limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) unacked_per_consumer: Option<u64>,
    /// Unacknowledged messages at which a subscription gets no more; 0 is without limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) unacked_per_subscription: Option<u64>,
    /// How large a backlog may become.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) backlog_quota: Option<BacklogQuota>,
    /// How old the oldest message of a backlog may become.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) backlog_age: Option<BacklogQuota>,
    /// When a topic that nobody uses is deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) inactive_topics: Option<InactiveTopics>,
    /// Whether topics come into being by use. Has no meaning on a topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) auto_topic_creation: Option<AutoTopicCreation>,
    /// Policies that the broker keeps without obeying, by their name in Pulsar's paths.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) other: BTreeMap<String, Value>,
}

impl Policies {
    /// Whether producers without a schema are refused where the topic has one.
    pub(crate) fn enforces_schemas(&self) -> bool {
        self.other.get("schemaValidationEnforced").and_then(Value::as_bool).unwrap_or_default()
    }

    /// These, and where they say nothing, those of the level below.
    #[must_use]
    pub(crate) fn over(&self, below: &Self) -> Self {
        let mut other = below.other.clone();
        other.extend(self.other.clone());
        Self {
            retention: self.retention.or(below.retention),
            deduplication: self.deduplication.or(below.deduplication),
            compaction_threshold_bytes: self
                .compaction_threshold_bytes
                .or(below.compaction_threshold_bytes),
            message_ttl_s: self.message_ttl_s.or(below.message_ttl_s),
            unacked_per_consumer: self.unacked_per_consumer.or(below.unacked_per_consumer),
            unacked_per_subscription: self
                .unacked_per_subscription
                .or(below.unacked_per_subscription),
            backlog_quota: self.backlog_quota.or(below.backlog_quota),
            backlog_age: self.backlog_age.or(below.backlog_age),
            inactive_topics: self.inactive_topics.or(below.inactive_topics),
            auto_topic_creation: self.auto_topic_creation.or(below.auto_topic_creation),
            other,
        }
    }
}

/// The policies of a topic, of its namespace, and what the broker does where neither says anything.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PolicyLevels {
    /// Set on the topic.
    pub(crate) topic: Policies,
    /// Set on its namespace.
    pub(crate) namespace: Policies,
    /// The broker's defaults.
    pub(crate) broker: Policies,
}

impl PolicyLevels {
    /// What is in force.
    #[must_use]
    pub(crate) fn applied(&self) -> Policies {
        self.topic.over(&self.namespace).over(&self.broker)
    }
}

/// What a role may do in a namespace. Those that the broker knows no use for are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AuthAction {
    /// Publish.
    Produce,
    /// Subscribe, read, acknowledge.
    Consume,
    /// Manage functions.
    Functions,
    /// Manage sources.
    Sources,
    /// Manage sinks.
    Sinks,
    /// Manage packages.
    Packages,
}

/// Who may use a namespace. From the first grant on, also after it was revoked, only who is named
/// here; before that the broker's configuration says whether everybody may.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Grants {
    roles: Option<BTreeMap<String, Vec<AuthAction>>>,
}

impl Grants {
    /// Lets a role do these and nothing else.
    pub(crate) fn grant(&mut self, role: &str, mut actions: Vec<AuthAction>) {
        actions.sort_unstable();
        actions.dedup();
        self.roles.get_or_insert_default().insert(role.to_owned(), actions);
    }

    /// Takes all grants from a role.
    pub(crate) fn revoke(&mut self, role: &str) {
        self.roles.get_or_insert_default().remove(role);
    }

    /// Whether anybody was ever granted anything.
    #[must_use]
    pub(crate) const fn is_closed(&self) -> bool {
        self.roles.is_some()
    }

    /// Whether the role may do this; `None` while nobody was ever granted anything. Superusers are
    /// not asked for.
    #[must_use]
    pub(crate) fn allow(&self, role: &str, action: AuthAction) -> Option<bool> {
        let roles = self.roles.as_ref()?;
        Some(roles.get(role).is_some_and(|actions| actions.contains(&action)))
    }

    /// These and others together.
    #[must_use]
    pub(crate) fn and(mut self, others: &Self) -> Self {
        for (role, actions) in others.roles.iter().flatten() {
            let own = self.roles.get_or_insert_default().entry(role.clone()).or_default();
            own.extend_from_slice(actions);
            own.sort_unstable();
            own.dedup();
        }
        // Where something was granted once, nothing is open to everybody.
        if others.is_closed() {
            self.roles.get_or_insert_default();
        }
        self
    }

    /// What was granted, by role.
    #[must_use]
    pub(crate) fn shown(self) -> BTreeMap<String, Vec<AuthAction>> {
        self.roles.unwrap_or_default()
    }
}
