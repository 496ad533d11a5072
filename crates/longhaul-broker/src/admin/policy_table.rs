//! The table of policies: one row per policy, which determines paths, JSON and refusals. Pure.
//!
//! Pulsar names a policy in up to three ways: below a topic, below a namespace, and as a key in the
//! policies of a namespace. Users rely on the policies that they set, so a value that this broker
//! does not obey and that would change anything is refused. A value that asks for what this broker
//! does anyway, such as a rate without a limit, is stored and shown, because tools set all policies
//! at once.

mod namespace;

use super::unobeyed::{
    excludes, is_elsewhere, is_false, is_limit, is_natural, is_rate, is_set, is_strict, is_true,
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
    form: PolicyFormat,
    /// Values that the broker would have to obey and refuses, and why. It stores and shows the others.
    refused: Option<RefusedValues>,
    /// The value that Pulsar shows for a namespace without the policy, if it shows one.
    unset: Option<fn() -> Value>,
}

/// How a value is read and stored.
#[derive(Clone, Copy, Debug)]
enum PolicyFormat {
    /// In a typed field.
    Typed {
        read: fn(Value) -> Result<PolicyChange, AdminCallError>,
        show: fn(&Policies) -> Option<Value>,
    },
    /// As given, if the value has this shape.
    AsGiven(JsonShape),
}

/// JSON shape of a value: a check for it, and its name.
type JsonShape = (fn(&Value) -> bool, &'static str);

const OBJECT: JsonShape = (Value::is_object, "an object");
const NUMBER: JsonShape = (Value::is_i64, "a whole number");
const FLAG: JsonShape = (Value::is_boolean, "true or false");
const WORD: JsonShape = (Value::is_string, "a text");
/// A list, on its own or in an object.
const LIST: JsonShape = (|value| value.is_array() || value.is_object(), "a list");

/// A check for refused values, and why they are refused.
type RefusedValues = (fn(&Value) -> bool, &'static str);

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
            form: PolicyFormat::Typed {
                read: |value| {
                    let value = $read(value)?;
                    Ok(Box::new(move |policies: &mut Policies| policies.$field = value))
                },
                show: |policies| policies.$field.map(|value| json!(value)),
            },
            refused: None,
            unset: None,
        }
    };
}

/// A policy that is stored as given.
const fn kept(
    topic: &'static str,
    namespace: &'static str,
    key: &'static str,
    shape: JsonShape,
) -> PolicyRow {
    let form = PolicyFormat::AsGiven(shape);
    PolicyRow { topic, namespace, key, form, refused: None, unset: None }
}

/// Like `kept`, for a policy with the same name on both levels.
const fn both(name: &'static str, key: &'static str, shape: JsonShape) -> PolicyRow {
    kept(name, name, key, shape)
}

impl PolicyRow {
    /// Sets the value that is shown for a namespace without the policy.
    const fn unset(self, unset: fn() -> Value) -> Self {
        Self { unset: Some(unset), ..self }
    }

    const fn refused_if(self, if_so: fn(&Value) -> bool, why: &'static str) -> Self {
        Self { refused: Some((if_so, why)), ..self }
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
    both("schemaValidationEnforced", "schema_validation_enforced", FLAG)
        .unset(|| json!(false)),
    both("autoSubscriptionCreation", "autoSubscriptionCreationOverride", OBJECT).refused_if(
        |value| is_false(value, "allowAutoSubscriptionCreation"),
        "this broker creates subscriptions for consumers: use grants to say who may consume",
    ),
    both("delayedDelivery", "delayed_delivery_policies", OBJECT).refused_if(
        |value| is_false(value, "active"),
        "this broker delivers a delayed message at its time",
    ),
    both("dispatchRate", "topicDispatchRate", OBJECT).refused_if(is_rate, RATES),
    both("publishRate", "publishMaxMessageRate", OBJECT).refused_if(is_rate, RATES),
    both("replicatorDispatchRate", "replicatorDispatchRate", OBJECT)
        .refused_if(is_rate, RATES),
    both("subscribeRate", "clusterSubscribeRate", OBJECT).refused_if(is_rate, RATES),
    both("subscriptionDispatchRate", "subscriptionDispatchRate", OBJECT)
        .refused_if(is_rate, RATES),
    kept("maxConsumers", "maxConsumersPerTopic", "max_consumers_per_topic", NUMBER),
    both("maxConsumersPerSubscription", "max_consumers_per_subscription", NUMBER),
    kept("maxProducers", "maxProducersPerTopic", "max_producers_per_topic", NUMBER),
    both("maxSubscriptionsPerTopic", "max_subscriptions_per_topic", NUMBER),
    kept("", "maxTopicsPerNamespace", "max_topics_per_namespace", NUMBER)
        .unset(|| json!(0)),
    kept("maxMessageSize", "", "", NUMBER).refused_if(
        is_limit,
        "this broker has one limit on messages for all topics, --broker-message-bytes-max",
    ),
    kept(
        "",
        "subscriptionExpirationTime",
        "subscription_expiration_time_minutes",
        NUMBER,
    ),
    both("subscriptionTypesEnabled", "subscription_types_enabled", LIST).refused_if(
        excludes,
        "this broker allows all types: Exclusive, Shared, Failover and Key_Shared",
    ),
    both("schemaCompatibilityStrategy", "schema_compatibility_strategy", WORD)
        .refused_if(is_strict, "this broker accepts every version of a schema: ALWAYS_COMPATIBLE")
        .unset(|| json!("UNDEFINED")),
    kept("", "isAllowAutoUpdateSchema", "is_allow_auto_update_schema", FLAG)
        .refused_if(
            |value| *value == false,
            "this broker accepts new schemas from producers and consumers",
        )
        .unset(|| json!(true)),
    kept("", "encryptionRequired", "encryption_required", FLAG)
        .refused_if(is_true, "this broker accepts messages that are not encrypted")
        .unset(|| json!(false)),
    kept("", "subscriptionAuthMode", "subscription_auth_mode", WORD)
        .refused_if(
            |value| *value != "None",
            "this broker lets a role consume with a subscription of any name: use grants for topics",
        )
        .unset(|| json!("None")),
    both("replication", "replication_clusters", LIST)
        .refused_if(is_elsewhere, CLUSTERS)
        .unset(|| json!([CLUSTER])),
    kept("", "allowedClusters", "allowed_clusters", LIST)
        .refused_if(is_elsewhere, CLUSTERS)
        .unset(|| json!([])),
    both("offloadPolicies", "offload_policies", OBJECT).refused_if(is_set, OFFLOAD),
    kept("", "offloadThreshold", "offload_threshold", NUMBER)
        .refused_if(is_natural, OFFLOAD)
        .unset(|| json!(-1)),
    kept(
        "",
        "offloadThresholdInSeconds",
        "offload_threshold_in_seconds",
        NUMBER,
    )
    .refused_if(is_natural, OFFLOAD)
    .unset(|| json!(-1)),
    both("entryFilters", "entryFilters", OBJECT)
        .refused_if(is_set, "this broker has no filters: it delivers every message"),
    kept("resourceGroup", "resourcegroup", "resource_group_name", WORD)
        .refused_if(is_set, "this broker has no groups that share a limit"),
];

const BACKLOG_QUOTA: PolicyRow = PolicyRow {
    topic: "backlogQuota",
    namespace: "backlogQuota",
    key: "",
    form: PolicyFormat::Typed {
        read: |value| {
            let quota = parse(value)?;
            Ok(Box::new(move |policies| policies.backlog_quota = quota))
        },
        show: |policies| Some(quotas(policies)),
    },
    refused: None,
    unset: None,
};

/// The backlog quota by age of the oldest message. Pulsar sets and shows it under the path of the
/// other quota.
const BACKLOG_AGE: PolicyRow = PolicyRow {
    form: PolicyFormat::Typed {
        read: |value| {
            let quota = parse(value)?;
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

    /// The name under which the value is stored.
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
        if let Some((_, why)) = self.refused.filter(|(if_so, _)| if_so(&value)) {
            let text = format!("the policy {name} is not supported with this value: {why}");
            return Err(AdminCallError::PreconditionFailed(text));
        }
        Ok(match self.form {
            PolicyFormat::Typed { read, .. } => read(value)?,
            PolicyFormat::AsGiven(_) if value.is_null() => {
                Box::new(move |policies| drop(policies.other.remove(name)))
            }
            PolicyFormat::AsGiven((fits, name)) if !fits(&value) => {
                return Err(unreadable(&format!("{name} is expected")));
            }
            PolicyFormat::AsGiven(_) => {
                Box::new(move |policies| drop(policies.other.insert(name.to_owned(), value)))
            }
        })
    }

    /// The value of the policy, if set.
    pub(super) fn value(&self, policies: &Policies) -> Option<Value> {
        match self.form {
            PolicyFormat::Typed { show, .. } => show(policies),
            PolicyFormat::AsGiven(_) => policies.other.get(self.name()).cloned(),
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
