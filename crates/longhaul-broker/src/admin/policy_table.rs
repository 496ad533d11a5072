//! The table of policies: one row per policy, which determines paths, JSON and refusals. Pure.
//!
//! Pulsar names a policy in up to three ways: below a topic, below a namespace, and as a key in the
//! policies of a namespace. Users rely on the policies that they set, so a value that this broker
//! does not obey and that would change anything is refused. Tools set all policies at once, so a
//! value that asks for what this broker does anyway, such as a rate without a limit, is accepted. It
//! is not stored.

mod namespace;

use super::unobeyed::{
    excludes, is_elsewhere, is_false, is_limit, is_natural, is_rate, is_set, is_strict,
};
use super::values::AdminCallError;
use crate::policies::{
    AutoTopicCreation, CLUSTER, InactiveTopics, Policies, PolicyChange, Retention, TopicType,
};
use namespace::quotas;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub(super) use namespace::{of_namespace, read_namespace};

/// A row of the table.
#[derive(Debug)]
pub(super) struct PolicyRow {
    /// Name below a topic; empty if there is none.
    topic: &'static str,
    /// Name below a namespace; empty if there is none.
    namespace: &'static str,
    /// Key in the policies of a namespace; empty if there is none.
    key: &'static str,
    kind: PolicyKind,
    /// The value that Pulsar shows for a namespace without the policy, if it shows one.
    unset: Option<fn() -> Value>,
}

/// What the broker does about a policy.
#[derive(Clone, Copy, Debug)]
enum PolicyKind {
    /// The broker obeys it. The value has its own field in [`Policies`].
    Obeyed {
        read: fn(Value) -> Result<PolicyChange, AdminCallError>,
        show: fn(&Policies) -> Option<Value>,
    },
    /// The broker obeys it: a limit on a number of things.
    Limit,
    /// The broker does not obey it, and refuses each value that would change what it does.
    Refused { shape: JsonShape, if_so: fn(&Value) -> bool, why: &'static str },
}

/// JSON shape of a value: a check for it, and its name.
type JsonShape = (fn(&Value) -> bool, &'static str);

const OBJECT: JsonShape = (Value::is_object, "an object");
const NUMBER: JsonShape = (Value::is_i64, "a whole number");
const FLAG: JsonShape = (Value::is_boolean, "true or false");
const WORD: JsonShape = (Value::is_string, "a text");
/// A list, on its own or in an object.
const LIST: JsonShape = (|value| value.is_array() || value.is_object(), "a list");

/// The level of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PolicyScope {
    /// A topic.
    Topic,
    /// A namespace.
    Namespace,
}

/// A policy that is obeyed: its names, its field, and how its JSON is read.
macro_rules! obeyed {
    ($topic:expr, $namespace:expr, $key:expr, $field:ident, $read:expr) => {
        PolicyRow {
            topic: $topic,
            namespace: $namespace,
            key: $key,
            kind: PolicyKind::Obeyed {
                read: |value| {
                    let value = $read(value)?;
                    Ok(Box::new(move |policies: &mut Policies| policies.$field = value))
                },
                show: |policies| policies.$field.map(|value| json!(value)),
            },
            unset: None,
        }
    };
}

/// A limit on a number of things.
const fn limit(topic: &'static str, namespace: &'static str, key: &'static str) -> PolicyRow {
    PolicyRow { topic, namespace, key, kind: PolicyKind::Limit, unset: None }
}

/// A policy that the broker does not have.
const fn refused(
    [topic, namespace, key]: [&'static str; 3],
    shape: JsonShape,
    if_so: fn(&Value) -> bool,
    why: &'static str,
) -> PolicyRow {
    let kind = PolicyKind::Refused { shape, if_so, why };
    PolicyRow { topic, namespace, key, kind, unset: None }
}

impl PolicyRow {
    /// Sets the value that is shown for a namespace without the policy.
    const fn unset(self, unset: fn() -> Value) -> Self {
        Self { unset: Some(unset), ..self }
    }
}

const RATES: &str =
    "this broker has no limits on rates: limit what a consumer has not acknowledged";

/// Maximum number of partitions of a topic.
const COUNT_MAX: u64 = crate::machine::PARTITIONS_MAX as u64;
const CLUSTERS: &str = "this broker is the only cluster, standalone: nothing is replicated";
const OFFLOAD: &str = "this broker keeps all messages on its own disk";

const POLICIES: &[PolicyRow] = &[
    obeyed!("retention", "retention", "retention_policies", retention, retention),
    obeyed!("deduplicationEnabled", "deduplication", "deduplicationEnabled", deduplication, parse),
    obeyed!(
        "compactionThreshold",
        "compactionThreshold",
        "compaction_threshold",
        compaction_threshold_bytes,
        |value| natural("compactionThreshold", value)
    ),
    obeyed!("messageTTL", "messageTTL", "message_ttl_in_seconds", message_ttl_s, |value| natural(
        "message TTL",
        value
    )),
    obeyed!(
        "maxUnackedMessagesOnConsumer",
        "maxUnackedMessagesPerConsumer",
        "max_unacked_messages_per_consumer",
        unacked_per_consumer,
        |value| natural("maxUnackedMessagesOnConsumer", value)
    ),
    obeyed!(
        "maxUnackedMessagesOnSubscription",
        "maxUnackedMessagesPerSubscription",
        "max_unacked_messages_per_subscription",
        unacked_per_subscription,
        |value| natural("maxUnackedMessagesOnSubscription", value)
    ),
    BACKLOG_QUOTA,
    obeyed!(
        "inactiveTopicPolicies",
        "inactiveTopicPolicies",
        "inactive_topic_policies",
        inactive_topics,
        inactive
    ),
    obeyed!("", "autoTopicCreation", "autoTopicCreationOverride", auto_topic_creation, creation),
    // If true, producers without a schema are refused.
    obeyed!(
        "schemaValidationEnforced",
        "schemaValidationEnforced",
        "schema_validation_enforced",
        enforces_schemas,
        parse
    )
    .unset(|| json!(false)),
    refused(
        [
            "autoSubscriptionCreation",
            "autoSubscriptionCreation",
            "autoSubscriptionCreationOverride",
        ],
        OBJECT,
        |value| is_false(value, "allowAutoSubscriptionCreation"),
        "this broker creates subscriptions for consumers: use grants to say who may consume",
    ),
    refused(
        ["delayedDelivery", "delayedDelivery", "delayed_delivery_policies"],
        OBJECT,
        |value| {
            let most = value.get("maxDeliveryDelayInMillis");
            is_false(value, "active") || most.is_some_and(is_limit)
        },
        "this broker delivers a delayed message at its time",
    ),
    refused(["dispatchRate", "dispatchRate", "topicDispatchRate"], OBJECT, is_rate, RATES),
    refused(
        ["publishRate", "publishRate", "publishMaxMessageRate"],
        OBJECT,
        is_rate,
        "this broker has no limits on rates: bound a topic with backlogQuota",
    ),
    refused(
        ["replicatorDispatchRate", "replicatorDispatchRate", "replicatorDispatchRate"],
        OBJECT,
        is_rate,
        RATES,
    ),
    refused(["subscribeRate", "subscribeRate", "clusterSubscribeRate"], OBJECT, is_rate, RATES),
    refused(
        ["subscriptionDispatchRate", "subscriptionDispatchRate", "subscriptionDispatchRate"],
        OBJECT,
        is_rate,
        RATES,
    ),
    limit("maxConsumers", "maxConsumersPerTopic", "max_consumers_per_topic"),
    limit(
        "maxConsumersPerSubscription",
        "maxConsumersPerSubscription",
        "max_consumers_per_subscription",
    ),
    limit("maxProducers", "maxProducersPerTopic", "max_producers_per_topic"),
    limit("maxSubscriptionsPerTopic", "maxSubscriptionsPerTopic", "max_subscriptions_per_topic"),
    limit("", "maxTopicsPerNamespace", "max_topics_per_namespace").unset(|| json!(0)),
    refused(
        ["maxMessageSize", "", ""],
        NUMBER,
        is_limit,
        "this broker has one limit on messages for all topics, --broker-message-bytes-max",
    ),
    limit("", "subscriptionExpirationTime", "subscription_expiration_time_minutes"),
    refused(
        ["subscriptionTypesEnabled", "subscriptionTypesEnabled", "subscription_types_enabled"],
        LIST,
        excludes,
        "this broker allows all types: Exclusive, Shared, Failover and Key_Shared",
    ),
    refused(
        [
            "schemaCompatibilityStrategy",
            "schemaCompatibilityStrategy",
            "schema_compatibility_strategy",
        ],
        WORD,
        is_strict,
        "this broker accepts every version of a schema: ALWAYS_COMPATIBLE",
    )
    .unset(|| json!("UNDEFINED")),
    refused(
        ["", "isAllowAutoUpdateSchema", "is_allow_auto_update_schema"],
        FLAG,
        |value| *value == false,
        "this broker accepts new schemas from producers and consumers",
    )
    .unset(|| json!(true)),
    refused(
        ["", "encryptionRequired", "encryption_required"],
        FLAG,
        |value| *value == true,
        "this broker accepts messages that are not encrypted",
    )
    .unset(|| json!(false)),
    refused(
        ["", "subscriptionAuthMode", "subscription_auth_mode"],
        WORD,
        |value| *value != "None",
        "this broker lets a role consume with a subscription of any name: use grants for topics",
    )
    .unset(|| json!("None")),
    refused(["replication", "replication", "replication_clusters"], LIST, is_elsewhere, CLUSTERS)
        .unset(|| json!([CLUSTER])),
    refused(["", "allowedClusters", "allowed_clusters"], LIST, is_elsewhere, CLUSTERS)
        .unset(|| json!([])),
    refused(["offloadPolicies", "offloadPolicies", "offload_policies"], OBJECT, is_set, OFFLOAD),
    refused(["", "offloadThreshold", "offload_threshold"], NUMBER, is_natural, OFFLOAD)
        .unset(|| json!(-1)),
    refused(
        ["", "offloadThresholdInSeconds", "offload_threshold_in_seconds"],
        NUMBER,
        is_natural,
        OFFLOAD,
    )
    .unset(|| json!(-1)),
    refused(
        ["entryFilters", "entryFilters", "entryFilters"],
        OBJECT,
        is_set,
        "this broker has no filters: it delivers every message",
    ),
    refused(
        ["resourceGroup", "resourcegroup", "resource_group_name"],
        WORD,
        is_set,
        "this broker has no groups that share a limit",
    ),
];

const BACKLOG_QUOTA: PolicyRow = PolicyRow {
    topic: "backlogQuota",
    namespace: "backlogQuota",
    key: "",
    kind: PolicyKind::Obeyed {
        read: |value| {
            let quota = parse(with_limit_size(value))?;
            Ok(Box::new(move |policies| policies.backlog_quota = quota))
        },
        show: |policies| Some(quotas(policies)),
    },
    unset: None,
};

/// A quota as newer versions of Pulsar send it. Older ones say `limit` for `limitSize`, others send
/// both; and some send numbers as text.
fn with_limit_size(mut value: Value) -> Value {
    if let Some(fields) = value.as_object_mut() {
        let former = fields.remove("limit").filter(|limit| !limit.is_null());
        if let Some(limit) = former.filter(|_| fields.get("limitSize").is_none_or(Value::is_null)) {
            fields.insert("limitSize".to_owned(), limit);
        }
        for name in ["limitSize", "limitTime"] {
            let number = fields.get(name).and_then(Value::as_str).and_then(|it| it.parse().ok());
            if let Some(number) = number {
                fields.insert(name.to_owned(), Value::Number(number));
            }
        }
    }
    value
}

/// The backlog quota by age of the oldest message. Pulsar sets and shows it under the path of the
/// other quota.
const BACKLOG_AGE: PolicyRow = PolicyRow {
    kind: PolicyKind::Obeyed {
        read: |value| {
            let quota = parse(with_limit_size(value))?;
            Ok(Box::new(move |policies| policies.backlog_age = quota))
        },
        show: |policies| Some(quotas(policies)),
    },
    ..BACKLOG_QUOTA
};

impl PolicyRow {
    /// The policy of a path's last segment; `quota_type` of the query selects one of the two
    /// backlog quotas.
    pub(super) fn find(
        level: PolicyScope,
        segment: &str,
        quota_type: Option<&str>,
    ) -> Option<&'static Self> {
        // Both quotas are read under a different name than the one for setting them.
        if ["backlogQuota", "backlogQuotaMap"].contains(&segment) {
            let by_age = quota_type == Some("message_age");
            return Some(if by_age { &BACKLOG_AGE } else { &BACKLOG_QUOTA });
        }
        POLICIES.iter().find(|policy| !segment.is_empty() && policy.named(level) == segment)
    }

    const fn named(&self, level: PolicyScope) -> &'static str {
        match level {
            PolicyScope::Topic => self.topic,
            PolicyScope::Namespace => self.namespace,
        }
    }

    /// The name in refusals, and of a stored limit.
    const fn name(&self) -> &'static str {
        if self.topic.is_empty() { self.namespace } else { self.topic }
    }

    /// The query parameter of a topic's value, if it is not in the body.
    pub(super) fn value_in_query(&self) -> Option<&'static str> {
        (self.topic == "messageTTL").then_some("messageTTL")
    }

    /// Reads a value; `null` unsets the policy.
    pub(super) fn read(&self, value: Value) -> Result<PolicyChange, AdminCallError> {
        let name = self.name();
        match self.kind {
            PolicyKind::Obeyed { read, .. } => read(value),
            PolicyKind::Limit => {
                let limit: Option<i64> = parse(value)?;
                Ok(Box::new(move |policies| policies.set_limit(name, limit)))
            }
            PolicyKind::Refused { .. } if value.is_null() => Ok(Box::new(|_| ())),
            PolicyKind::Refused { shape: (fits, shape), .. } if !fits(&value) => {
                Err(unreadable(&format!("{shape} is expected")))
            }
            PolicyKind::Refused { if_so, why, .. } if if_so(&value) => {
                let text = format!("the policy {name} is not supported with this value: {why}");
                Err(AdminCallError::PreconditionFailed(text))
            }
            PolicyKind::Refused { .. } => Ok(Box::new(|_| ())),
        }
    }

    /// The value of the policy, if set.
    pub(super) fn value(&self, policies: &Policies) -> Option<Value> {
        match self.kind {
            PolicyKind::Obeyed { show, .. } => show(policies),
            PolicyKind::Limit => policies.limits.get(self.name()).map(|&limit| json!(limit)),
            PolicyKind::Refused { .. } => None,
        }
    }

    /// The value for a namespace, or Pulsar's value for an unset policy.
    pub(super) fn value_in_namespace(&self, policies: &Policies) -> Option<Value> {
        self.value(policies).or_else(|| self.unset.map(|unset| unset()))
    }
}

fn retention(value: Value) -> Result<Option<Retention>, AdminCallError> {
    let retention: Option<Retention> = parse(value)?;
    let mixed = retention.is_some_and(|kept| (kept.minutes == 0) != (kept.megabytes == 0));
    if mixed {
        let reason = "a retention of 0 in only one of time and size keeps nothing: use -1 for no limit, or 0 in both";
        return Err(AdminCallError::BadRequest(reason.to_owned()));
    }
    Ok(retention)
}

fn inactive(value: Value) -> Result<Option<InactiveTopics>, AdminCallError> {
    let policy: Option<InactiveTopics> = parse(value)?;
    if policy.is_some_and(|policy| policy.delete_while_inactive && policy.max_inactive_s < 1) {
        let text = "maxInactiveDurationSeconds must be at least 1";
        return Err(AdminCallError::PreconditionFailed(text.to_owned()));
    }
    Ok(policy)
}

/// An invalid number of partitions was accepted, and topics got a different number.
fn creation(value: Value) -> Result<Option<AutoTopicCreation>, AdminCallError> {
    let refused = |why: String| {
        let text = format!("Invalid configuration for autoTopicCreationOverride: {why}");
        Err(AdminCallError::PreconditionFailed(text))
    };
    let count = value.get("defaultNumPartitions").unwrap_or(&Value::Null);
    let is_possible =
        |count: &Value| count.as_u64().is_some_and(|count| (1..=COUNT_MAX).contains(&count));
    if !count.is_null() && !is_possible(count) {
        return refused(format!("[defaultNumPartitions] must be 1 to {COUNT_MAX}"));
    }
    let policy: Option<AutoTopicCreation> = parse(value)?;
    let count = policy.map(|policy| (policy.topic_type, policy.default_num_partitions.is_some()));
    match count.filter(|_| policy.is_some_and(|policy| policy.allow_auto_topic_creation)) {
        Some((TopicType::Partitioned, false)) => {
            refused("[defaultNumPartitions] cannot be null when the type is partitioned".to_owned())
        }
        Some((TopicType::NonPartitioned, true)) => refused(
            "[defaultNumPartitions] is not allowed to be set when the type is non-partitioned"
                .to_owned(),
        ),
        _ => Ok(policy),
    }
}

fn natural(what: &str, value: Value) -> Result<Option<u64>, AdminCallError> {
    match parse::<Option<i64>>(value)? {
        None => Ok(None),
        Some(number) => u64::try_from(number)
            .map(Some)
            .map_err(|_| AdminCallError::PreconditionFailed(format!("Invalid value for {what}"))),
    }
}

fn parse<T: DeserializeOwned>(value: Value) -> Result<T, AdminCallError> {
    serde_json::from_value(value).map_err(|error| unreadable(&error.to_string()))
}

fn unreadable(why: &str) -> AdminCallError {
    AdminCallError::BadRequest(format!("the body cannot be read: {why}"))
}

#[cfg(test)]
mod tests;
