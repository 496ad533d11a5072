//! The table of policies: one row for each, of which paths, JSON and refusals follow. Pure.
//!
//! Pulsar names a policy in up to three ways: below a topic, below a namespace, and as a key in the policies of a namespace. Whoever
//! sets one that this broker does not obey relies on it, so a value that would change anything is refused. One that changes nothing,
//! such as a rate without limit, is kept and shown, as tools set all policies at once.

use super::policies::{Change, Policies, Retention};
use super::unobeyed::{excludes, is_false, is_limit, is_rate, is_strict, is_true};
use super::values::AdminError;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// A row.
#[derive(Debug)]
pub(super) struct Policy {
    /// Below a topic; empty where there is none.
    topic: &'static str,
    /// Below a namespace; empty where there is none.
    namespace: &'static str,
    /// In the policies of a namespace; empty where there is none.
    key: &'static str,
    form: Form,
    here: Here,
}

/// How a value is read and kept.
#[derive(Clone, Copy, Debug)]
enum Form {
    /// In a field of its own.
    Typed { read: fn(Value) -> Result<Change, AdminError>, show: fn(&Policies) -> Option<Value> },
    /// As it was given.
    AsGiven,
}

/// What this broker does with it.
#[derive(Clone, Copy, Debug)]
enum Here {
    /// It obeys it.
    Obeyed,
    /// It keeps and shows it, and that is all.
    Kept,
    /// It refuses the values that it would have to obey, and keeps and shows the others.
    Refused { if_so: fn(&Value) -> bool, why: &'static str },
}

/// Which level a path is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    /// A topic.
    Topic,
    /// A namespace.
    Namespace,
}

/// A policy that is obeyed, the field that it has, and how its JSON is read.
macro_rules! obeyed {
    ($topic:expr, $namespace:expr, $key:expr, $field:ident, $read:expr) => {
        Policy {
            topic: $topic,
            namespace: $namespace,
            key: $key,
            form: Form::Typed {
                read: |value| {
                    let value = $read(value)?;
                    Ok(Box::new(move |policies: &mut Policies| policies.$field = value))
                },
                show: |policies| policies.$field.map(|value| json!(value)),
            },
            here: Here::Obeyed,
        }
    };
}

/// A policy that is kept as it was given.
const fn kept(topic: &'static str, namespace: &'static str, key: &'static str) -> Policy {
    Policy { topic, namespace, key, form: Form::AsGiven, here: Here::Kept }
}

/// The same of one that has the same name on both levels.
const fn both(name: &'static str, key: &'static str) -> Policy {
    kept(name, name, key)
}

impl Policy {
    /// The same, but that is what the broker does.
    const fn but(self, here: Here) -> Self {
        Self { here, ..self }
    }

    const fn refused_if(self, if_so: fn(&Value) -> bool, why: &'static str) -> Self {
        self.but(Here::Refused { if_so, why })
    }
}

const RATES: &str = "this broker has no limits on rates: slow down where messages come from, or limit what a consumer has not acknowledged";
const NUMBERS: &str = "this broker does not count producers, consumers, subscriptions or topics for a policy: use grants to say who may";

const POLICIES: &[Policy] = &[
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
        parse
    )
    .but(Here::Kept),
    obeyed!("", "autoTopicCreation", "autoTopicCreationOverride", auto_topic_creation, parse),
    // Producers without a schema are refused where it says so.
    both("schemaValidationEnforced", "schema_validation_enforced").but(Here::Obeyed),
    both("persistence", "persistence"),
    both("deduplicationSnapshotInterval", "deduplicationSnapshotIntervalSeconds"),
    both("autoSubscriptionCreation", "autoSubscriptionCreationOverride").refused_if(
        |value| is_false(value, "allowAutoSubscriptionCreation"),
        "this broker makes subscriptions when a consumer comes: use grants to say who may consume",
    ),
    both("delayedDelivery", "delayed_delivery_policies").refused_if(
        |value| is_false(value, "active"),
        "this broker delivers a delayed message at its time",
    ),
    both("dispatchRate", "topicDispatchRate").refused_if(is_rate, RATES),
    both("publishRate", "publishMaxMessageRate").refused_if(is_rate, RATES),
    both("replicatorDispatchRate", "replicatorDispatchRate").refused_if(is_rate, RATES),
    both("subscribeRate", "clusterSubscribeRate").refused_if(is_rate, RATES),
    both("subscriptionDispatchRate", "subscriptionDispatchRate").refused_if(is_rate, RATES),
    kept("maxConsumers", "maxConsumersPerTopic", "max_consumers_per_topic")
        .refused_if(is_limit, NUMBERS),
    both("maxConsumersPerSubscription", "max_consumers_per_subscription")
        .refused_if(is_limit, NUMBERS),
    kept("maxProducers", "maxProducersPerTopic", "max_producers_per_topic")
        .refused_if(is_limit, NUMBERS),
    both("maxSubscriptionsPerTopic", "max_subscriptions_per_topic").refused_if(is_limit, NUMBERS),
    kept("", "maxTopicsPerNamespace", "max_topics_per_namespace").refused_if(is_limit, NUMBERS),
    kept("maxMessageSize", "", "").refused_if(
        is_limit,
        "this broker has one limit on messages for all topics, --message-bytes-max",
    ),
    both("subscriptionTypesEnabled", "subscription_types_enabled").refused_if(
        excludes,
        "this broker allows all types: Exclusive, Shared, Failover and Key_Shared",
    ),
    both("schemaCompatibilityStrategy", "schema_compatibility_strategy")
        .refused_if(is_strict, "this broker takes each new version of a schema: ALWAYS_COMPATIBLE"),
    kept("", "isAllowAutoUpdateSchema", "is_allow_auto_update_schema").refused_if(
        |value| *value == false,
        "this broker takes new schemas from producers and consumers",
    ),
    kept("", "encryptionRequired", "encryption_required")
        .refused_if(is_true, "this broker takes messages that are not encrypted"),
];

const BACKLOG_QUOTA: Policy = Policy {
    topic: "backlogQuota",
    namespace: "backlogQuota",
    key: "",
    form: Form::Typed {
        read: |value| {
            let quota = parse(value)?;
            Ok(Box::new(move |policies| policies.backlog_quota = quota))
        },
        show: |policies| Some(quotas(policies)),
    },
    here: Here::Obeyed,
};

/// The age of the oldest message in a backlog, which Pulsar sets by the path of the other quota, and shows there.
const BACKLOG_AGE: Policy = kept("backlogQuotaAge", "backlogQuotaAge", "");

impl Policy {
    /// The policy of a path's last segment; of the two quotas on a backlog that one which the query means.
    pub(super) fn find(
        level: Level,
        segment: &str,
        quota_type: Option<&str>,
    ) -> Option<&'static Self> {
        // Both are read under another name than the one they are set by.
        if ["backlogQuota", "backlogQuotaMap"].contains(&segment) {
            let by_age = quota_type == Some("message_age");
            return Some(if by_age { &BACKLOG_AGE } else { &BACKLOG_QUOTA });
        }
        POLICIES.iter().find(|policy| !segment.is_empty() && policy.named(level) == segment)
    }

    const fn named(&self, level: Level) -> &'static str {
        match level {
            Level::Topic => self.topic,
            Level::Namespace => self.namespace,
        }
    }

    /// What it is kept under.
    const fn name(&self) -> &'static str {
        if self.topic.is_empty() { self.namespace } else { self.topic }
    }

    /// Whether a topic's value comes in the query instead of the body.
    pub(super) fn value_in_query(&self) -> Option<&'static str> {
        (self.topic == "messageTTL").then_some("messageTTL")
    }

    /// Reads a value; `null` unsets.
    pub(super) fn read(&self, value: Value) -> Result<Change, AdminError> {
        let name = self.name();
        if let Here::Refused { if_so, why } = self.here
            && if_so(&value)
        {
            let text = format!("the policy {name} is not supported with this value: {why}");
            return Err(AdminError::PreconditionFailed(text));
        }
        Ok(match self.form {
            Form::Typed { read, .. } => read(value)?,
            Form::AsGiven if value.is_null() => {
                Box::new(move |policies| drop(policies.other.remove(name)))
            }
            Form::AsGiven => {
                Box::new(move |policies| drop(policies.other.insert(name.to_owned(), value)))
            }
        })
    }

    /// Its value, when it has one.
    pub(super) fn value(&self, policies: &Policies) -> Option<Value> {
        match self.form {
            Form::Typed { show, .. } => show(policies),
            Form::AsGiven => policies.other.get(self.name()).cloned(),
        }
    }
}

/// The policies of a namespace in the JSON of Pulsar.
pub(super) fn of_namespace(policies: &Policies) -> Value {
    let keyed = POLICIES.iter().filter(|policy| !policy.key.is_empty());
    let mut map: Map<String, Value> =
        keyed.filter_map(|policy| Some((policy.key.to_owned(), policy.value(policies)?))).collect();
    map.insert("backlog_quota_map".to_owned(), quotas(policies));
    map.insert("replication_clusters".to_owned(), json!([super::CLUSTER]));
    map.insert("deleted".to_owned(), json!(false));
    Value::Object(map)
}

/// Reads the policies that a namespace is created with; keys that are none of ours are passed over, as Pulsar does.
pub(super) fn read_namespace(mut value: Value) -> Result<Vec<Change>, AdminError> {
    let Some(map) = value.as_object_mut() else {
        let empty = value.is_null();
        return if empty { Ok(Vec::new()) } else { Err(unreadable("an object is expected")) };
    };
    let mut quotas = map.remove("backlog_quota_map").unwrap_or_default();
    let mut quota = |key: &str| quotas.get_mut(key).map(Value::take).unwrap_or_default();
    let quotas =
        [(&BACKLOG_QUOTA, quota("destination_storage")), (&BACKLOG_AGE, quota("message_age"))];
    let keyed = POLICIES.iter().filter(|policy| !policy.key.is_empty());
    let given = keyed.filter_map(|policy| Some((policy, map.remove(policy.key)?))).chain(quotas);
    let given = given.filter(|(_, value)| !value.is_null());
    given.map(|(policy, value)| policy.read(value)).collect()
}

fn quotas(policies: &Policies) -> Value {
    let mut map = Map::new();
    if let Some(quota) = policies.backlog_quota {
        // `limit` is the name of older versions, which their tools read.
        let value = json!({
            "limit": quota.limit_bytes,
            "limitSize": quota.limit_bytes,
            "limitTime": quota.limit_s,
            "policy": quota.policy,
        });
        map.insert("destination_storage".to_owned(), value);
    }
    map.extend(BACKLOG_AGE.value(policies).map(|value| ("message_age".to_owned(), value)));
    Value::Object(map)
}

fn retention(value: Value) -> Result<Option<Retention>, AdminError> {
    let retention: Option<Retention> = parse(value)?;
    let mixed = retention.is_some_and(|kept| (kept.minutes == 0) != (kept.megabytes == 0));
    if mixed {
        let reason = "a retention of 0 in only one of time and size keeps nothing: use -1 for no limit, or 0 in both";
        return Err(AdminError::BadRequest(reason.to_owned()));
    }
    Ok(retention)
}

fn natural(what: &str, value: Value) -> Result<Option<u64>, AdminError> {
    match parse::<Option<i64>>(value)? {
        None => Ok(None),
        Some(number) => u64::try_from(number)
            .map(Some)
            .map_err(|_| AdminError::PreconditionFailed(format!("Invalid value for {what}"))),
    }
}

fn parse<T: DeserializeOwned>(value: Value) -> Result<T, AdminError> {
    serde_json::from_value(value).map_err(|error| unreadable(&error.to_string()))
}

fn unreadable(why: &str) -> AdminError {
    AdminError::BadRequest(format!("the body cannot be read: {why}"))
}

#[cfg(test)]
mod tests;
