//! Policies, and how those of topic, namespace and broker combine. Pure.
//!
//! Only policies that the broker obeys are stored.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Name of the only cluster, as in Pulsar's standalone mode.
pub(crate) const CLUSTER: &str = "standalone";

/// Properties of a subscription or of a schema.
pub(crate) type ResourceProperties = BTreeMap<String, String>;

/// Administrators and allowed clusters of a tenant, in Pulsar's JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Tenant {
    /// Roles that may do everything in the tenant's namespaces.
    pub(crate) admin_roles: BTreeSet<String>,
    /// There is only one cluster.
    pub(crate) allowed_clusters: BTreeSet<String>,
}

impl Default for Tenant {
    fn default() -> Self {
        Self {
            admin_roles: BTreeSet::new(),
            allowed_clusters: BTreeSet::from([CLUSTER.to_owned()]),
        }
    }
}

/// How long messages are kept that every subscription has acknowledged. They may be removed as soon
/// as one of the limits is exceeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Retention {
    /// -1 means for ever, 0 not at all.
    #[serde(rename = "retentionTimeInMinutes")]
    pub(crate) minutes: i64,
    /// -1 is unlimited, 0 means nothing.
    #[serde(rename = "retentionSizeInMB")]
    pub(crate) megabytes: i64,
}

impl Retention {
    /// Whether both limits are unlimited.
    pub(crate) const fn is_endless(self) -> bool {
        self.minutes < 0 && self.megabytes < 0
    }

    /// Publish time, in ms since 1970, before which messages are too old to keep; `None` if none
    /// are.
    #[must_use]
    pub(crate) fn oldest_ms(&self, now: u64) -> Option<u64> {
        let minutes = u64::try_from(self.minutes).ok()?;
        Some(now.saturating_sub(minutes.saturating_mul(60_000)))
    }
}

/// The action when a subscription's backlog is over its quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BacklogAction {
    /// The PRODUCER command waits.
    ProducerRequestHold,
    /// Producers are refused.
    ProducerException,
    /// The slowest subscription loses its oldest messages.
    ConsumerBacklogEviction,
}

/// Limits of a subscription's backlog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BacklogQuota {
    /// In bytes; -1 is unlimited.
    #[serde(rename = "limitSize", default = "unlimited")]
    pub(crate) limit_bytes: i64,
    /// Age of the oldest message in seconds; -1 is unlimited.
    #[serde(rename = "limitTime", default = "unlimited")]
    pub(crate) limit_s: i64,
    /// The action.
    pub(crate) policy: BacklogAction,
}

const fn unlimited() -> i64 {
    -1
}

/// When an unused topic is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InactiveTopics {
    /// Which topics are deleted.
    pub(crate) inactive_topic_delete_mode: InactiveMode,
    /// How long the topic must be unused.
    #[serde(rename = "maxInactiveDurationSeconds")]
    pub(crate) max_inactive_s: i64,
    /// Whether unused topics are deleted.
    pub(crate) delete_while_inactive: bool,
}

/// Which unused topics are deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum InactiveMode {
    /// Topics without subscriptions.
    DeleteWhenNoSubscriptions,
    /// Also topics whose subscriptions have read everything.
    DeleteWhenSubscriptionsCaughtUp,
}

/// Whether topics are created when a client uses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AutoTopicCreation {
    /// Whether topics are created.
    pub(crate) allow_auto_topic_creation: bool,
    /// With partitions or without.
    #[serde(default)]
    pub(crate) topic_type: TopicType,
    /// Number of partitions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) default_num_partitions: Option<u32>,
}

/// Kind of a topic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum TopicType {
    /// With partitions.
    #[serde(rename = "partitioned")]
    Partitioned,
    /// Without partitions.
    #[default]
    #[serde(rename = "non-partitioned")]
    NonPartitioned,
}

/// Sets or unsets one policy.
pub(crate) type PolicyChange = Box<dyn FnOnce(&mut Policies) + Send>;

/// The policies of one level. The broker stores them in this JSON, so fields are only ever added.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Policies {
    /// How long messages are kept that every subscription has acknowledged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retention: Option<Retention>,
    /// Whether the broker drops messages that a producer sends twice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) deduplication: Option<bool>,
    /// Size of the uncompacted part at which the broker compacts by itself; 0 means never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) compaction_threshold_bytes: Option<u64>,
    /// Age at which the broker itself acknowledges a message; 0 means never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message_ttl_s: Option<u64>,
    /// Unacknowledged messages at which a consumer receives no more; 0 is unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) unacked_per_consumer: Option<u64>,
    /// Unacknowledged messages at which a subscription receives no more; 0 is unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) unacked_per_subscription: Option<u64>,
    /// Limit of a backlog's size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) backlog_quota: Option<BacklogQuota>,
    /// Limit of the age of a backlog's oldest message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) backlog_age: Option<BacklogQuota>,
    /// When an unused topic is deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) inactive_topics: Option<InactiveTopics>,
    /// Whether topics are created on use. Has no meaning on a topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) auto_topic_creation: Option<AutoTopicCreation>,
    /// Whether producers without a schema are refused if the topic has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) enforces_schemas: Option<bool>,
    /// Limits on numbers of things, by their name in Pulsar's paths; 0 and less is none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) limits: BTreeMap<String, i64>,
}

impl Policies {
    /// The limit on a number of things, by its name in Pulsar's paths.
    pub(crate) fn limit(&self, name: &str) -> Option<usize> {
        let limit = self.limits.get(name).copied()?;
        usize::try_from(limit).ok().filter(|&limit| limit > 0)
    }

    /// Sets or unsets a limit.
    pub(crate) fn set_limit(&mut self, name: &str, limit: Option<i64>) {
        match limit {
            Some(limit) => drop(self.limits.insert(name.to_owned(), limit)),
            None => drop(self.limits.remove(name)),
        }
    }

    /// These policies; unset ones are taken from the level below.
    #[must_use]
    pub(crate) fn over(&self, below: &Self) -> Self {
        let mut limits = below.limits.clone();
        limits.extend(self.limits.clone());
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
            enforces_schemas: self.enforces_schemas.or(below.enforces_schemas),
            limits,
        }
    }
}

/// The policies of a topic, of its namespace, and the broker's defaults.
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
    /// The effective policies.
    #[must_use]
    pub(crate) fn applied(&self) -> Policies {
        self.topic.over(&self.namespace).over(&self.broker)
    }
}

/// A permission of a role in a namespace. Permissions that the broker does not use are stored.
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

/// The grants of a namespace. From the first grant on, even after it was revoked, only roles with a
/// grant may use the namespace. Before that, the broker's configuration decides whether every role
/// may.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Grants {
    roles: Option<BTreeMap<String, Vec<AuthAction>>>,
}

impl Grants {
    /// Sets the permissions of a role.
    pub(crate) fn grant(&mut self, role: &str, mut actions: Vec<AuthAction>) {
        actions.sort_unstable();
        actions.dedup();
        self.roles.get_or_insert_default().insert(role.to_owned(), actions);
    }

    /// Removes all permissions of a role.
    pub(crate) fn revoke(&mut self, role: &str) {
        self.roles.get_or_insert_default().remove(role);
    }

    /// Whether there was ever a grant.
    #[must_use]
    pub(crate) const fn is_closed(&self) -> bool {
        self.roles.is_some()
    }

    /// Whether the role may do this; `None` if there was never a grant. Superusers need no grant.
    #[must_use]
    pub(crate) fn allow(&self, role: &str, action: AuthAction) -> Option<bool> {
        let roles = self.roles.as_ref()?;
        Some(roles.get(role).is_some_and(|actions| actions.contains(&action)))
    }

    /// Combines these grants with others.
    #[must_use]
    pub(crate) fn and(mut self, others: &Self) -> Self {
        for (role, actions) in others.roles.iter().flatten() {
            let own = self.roles.get_or_insert_default().entry(role.clone()).or_default();
            own.extend_from_slice(actions);
            own.sort_unstable();
            own.dedup();
        }
        // After any grant, nothing is open to every role.
        if others.is_closed() {
            self.roles.get_or_insert_default();
        }
        self
    }

    /// The grants by role.
    #[must_use]
    pub(crate) fn shown(self) -> BTreeMap<String, Vec<AuthAction>> {
        self.roles.unwrap_or_default()
    }
}
