//! Policies as they come in paths and JSON. Pure.
//!
//! Pulsar names a policy in up to three ways: below a topic, below a namespace, and as a key in the policies of a namespace.

use super::policies::{Policies, Policy, Retention};
use super::request::AdminError;
use super::unobeyed;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// One policy's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spec {
    /// Below a topic; empty where there is none.
    topic: &'static str,
    /// Below a namespace; empty where there is none.
    namespace: &'static str,
    /// In the policies of a namespace; empty where there is none.
    key: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Retention,
    Deduplication,
    CompactionThreshold,
    MessageTtl,
    UnackedPerConsumer,
    UnackedPerSubscription,
    BacklogQuota,
    InactiveTopics,
    AutoTopicCreation,
    /// Kept under this name, and refused where it would have to be obeyed.
    Other(&'static str),
}

/// Which level a path is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    /// A topic.
    Topic,
    /// A namespace.
    Namespace,
}

const fn spec(topic: &'static str, namespace: &'static str, key: &'static str, kind: Kind) -> Spec {
    Spec { topic, namespace, key, kind }
}

/// A policy of the same name on both levels that the broker does not obey.
const fn kept(name: &'static str, key: &'static str) -> Spec {
    spec(name, name, key, Kind::Other(name))
}

/// Limits and rates that the broker does not obey and names in both levels' own ways.
const fn kept_as(topic: &'static str, namespace: &'static str, key: &'static str) -> Spec {
    spec(topic, namespace, key, Kind::Other(if topic.is_empty() { namespace } else { topic }))
}

/// The age of the oldest message in a backlog, which Pulsar sets by the path of the other quota.
const BACKLOG_AGE: Spec = spec("", "", "", Kind::Other("backlogQuotaAge"));

const SPECS: &[Spec] = &[
    spec("retention", "retention", "retention_policies", Kind::Retention),
    spec("deduplicationEnabled", "deduplication", "deduplicationEnabled", Kind::Deduplication),
    spec(
        "compactionThreshold",
        "compactionThreshold",
        "compaction_threshold",
        Kind::CompactionThreshold,
    ),
    spec("messageTTL", "messageTTL", "message_ttl_in_seconds", Kind::MessageTtl),
    spec(
        "maxUnackedMessagesOnConsumer",
        "maxUnackedMessagesPerConsumer",
        "max_unacked_messages_per_consumer",
        Kind::UnackedPerConsumer,
    ),
    spec(
        "maxUnackedMessagesOnSubscription",
        "maxUnackedMessagesPerSubscription",
        "max_unacked_messages_per_subscription",
        Kind::UnackedPerSubscription,
    ),
    spec("backlogQuota", "backlogQuota", "", Kind::BacklogQuota),
    spec(
        "inactiveTopicPolicies",
        "inactiveTopicPolicies",
        "inactive_topic_policies",
        Kind::InactiveTopics,
    ),
    spec("", "autoTopicCreation", "autoTopicCreationOverride", Kind::AutoTopicCreation),
    kept("autoSubscriptionCreation", "autoSubscriptionCreationOverride"),
    kept("deduplicationSnapshotInterval", "deduplicationSnapshotIntervalSeconds"),
    kept("delayedDelivery", "delayed_delivery_policies"),
    kept("dispatchRate", "topicDispatchRate"),
    kept("maxConsumersPerSubscription", "max_consumers_per_subscription"),
    kept("maxSubscriptionsPerTopic", "max_subscriptions_per_topic"),
    kept("persistence", "persistence"),
    kept("publishRate", "publishMaxMessageRate"),
    kept("replicatorDispatchRate", "replicatorDispatchRate"),
    kept("schemaCompatibilityStrategy", "schema_compatibility_strategy"),
    kept("schemaValidationEnforced", "schema_validation_enforced"),
    kept("subscribeRate", "clusterSubscribeRate"),
    kept("subscriptionDispatchRate", "subscriptionDispatchRate"),
    kept("subscriptionTypesEnabled", "subscription_types_enabled"),
    kept_as("maxConsumers", "maxConsumersPerTopic", "max_consumers_per_topic"),
    kept_as("maxMessageSize", "", ""),
    kept_as("maxProducers", "maxProducersPerTopic", "max_producers_per_topic"),
    kept_as("", "encryptionRequired", "encryption_required"),
    kept_as("", "isAllowAutoUpdateSchema", "is_allow_auto_update_schema"),
    kept_as("", "maxTopicsPerNamespace", "max_topics_per_namespace"),
];

impl Spec {
    /// The policy of a path's last segment.
    pub(super) fn find(level: Level, segment: &str) -> Option<Self> {
        let name = |spec: &Self| match level {
            Level::Topic => spec.topic,
            Level::Namespace => spec.namespace,
        };
        // Both are read under another name than the one they are set by.
        let segment = if segment == "backlogQuotaMap" { "backlogQuota" } else { segment };
        let found = SPECS.iter().find(|spec| !segment.is_empty() && name(spec) == segment);
        found.copied()
    }

    /// The quota that the path's query means.
    #[must_use]
    pub(super) fn of_quota_type(self, quota_type: Option<&str>) -> Self {
        let by_age = self.kind == Kind::BacklogQuota && quota_type == Some("message_age");
        if by_age { BACKLOG_AGE } else { self }
    }

    /// Whether a topic's value comes in the query instead of the body.
    pub(super) fn value_in_query(self, level: Level) -> Option<&'static str> {
        (self.kind == Kind::MessageTtl && level == Level::Topic).then_some("messageTTL")
    }

    /// Reads a value; `null` unsets.
    pub(super) fn read(self, value: Value) -> Result<Policy, AdminError> {
        let unset = value.is_null();
        Ok(match self.kind {
            Kind::Retention => Policy::Retention(retention(value)?),
            Kind::Deduplication => Policy::Deduplication(parse(value)?),
            Kind::CompactionThreshold => {
                Policy::CompactionThreshold(natural("compactionThreshold", value)?)
            }
            Kind::MessageTtl => Policy::MessageTtl(natural("message TTL", value)?),
            Kind::UnackedPerConsumer => {
                Policy::UnackedPerConsumer(natural("maxUnackedMessagesOnConsumer", value)?)
            }
            Kind::UnackedPerSubscription => {
                Policy::UnackedPerSubscription(natural("maxUnackedMessagesOnSubscription", value)?)
            }
            Kind::BacklogQuota => Policy::BacklogQuota(parse(value)?),
            Kind::InactiveTopics => Policy::InactiveTopics(parse(value)?),
            Kind::AutoTopicCreation => Policy::AutoTopicCreation(parse(value)?),
            Kind::Other(name) if unset => Policy::Other(name, None),
            Kind::Other(name) => {
                unobeyed::check(name, &value)?;
                Policy::Other(name, Some(value))
            }
        })
    }

    /// Its value, when it has one.
    pub(super) fn value(self, policies: &Policies) -> Option<Value> {
        match self.kind {
            Kind::Retention => policies.retention.map(|value| json!(value)),
            Kind::Deduplication => policies.deduplication.map(Value::from),
            Kind::CompactionThreshold => policies.compaction_threshold_bytes.map(Value::from),
            Kind::MessageTtl => policies.message_ttl_s.map(Value::from),
            Kind::UnackedPerConsumer => policies.unacked_per_consumer.map(Value::from),
            Kind::UnackedPerSubscription => policies.unacked_per_subscription.map(Value::from),
            Kind::BacklogQuota => Some(quotas(policies)),
            Kind::InactiveTopics => policies.inactive_topics.map(|value| json!(value)),
            Kind::AutoTopicCreation => policies.auto_topic_creation.map(|value| json!(value)),
            Kind::Other(name) => policies.other.get(name).cloned(),
        }
    }
}

/// The policies of a namespace in the JSON of Pulsar.
pub(super) fn of_namespace(policies: &Policies) -> Value {
    let mut map = Map::new();
    for spec in SPECS.iter().filter(|spec| !spec.key.is_empty()) {
        if let Some(value) = spec.value(policies) {
            map.insert(spec.key.to_owned(), value);
        }
    }
    map.insert("backlog_quota_map".to_owned(), quotas(policies));
    map.insert("replication_clusters".to_owned(), json!([super::CLUSTER]));
    map.insert("deleted".to_owned(), json!(false));
    Value::Object(map)
}

/// Reads the policies that a namespace is created with; keys that are none of ours are passed over, as Pulsar does.
pub(super) fn read_namespace(mut value: Value) -> Result<Vec<Policy>, AdminError> {
    let Some(map) = value.as_object_mut() else {
        let empty = value.is_null();
        return if empty { Ok(Vec::new()) } else { Err(unreadable("an object is expected")) };
    };
    let quotas = map.remove("backlog_quota_map").unwrap_or_default();
    let by_type = [("destination_storage", None), ("message_age", Some("message_age"))];
    let quotas = by_type.into_iter().filter_map(|(key, kind)| {
        let quota = quotas.get(key).filter(|it| !it.is_null())?.clone();
        Some(Spec::find(Level::Namespace, "backlogQuota")?.of_quota_type(kind).read(quota))
    });
    let keyed = SPECS.iter().filter(|spec| !spec.key.is_empty());
    let given = keyed.filter_map(|spec| map.remove(spec.key).map(|value| (spec, value)));
    let given = given.filter(|(_, value)| !value.is_null());
    given.map(|(spec, value)| spec.read(value)).chain(quotas).collect()
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
    if let Kind::Other(name) = BACKLOG_AGE.kind
        && let Some(value) = policies.other.get(name)
    {
        map.insert("message_age".to_owned(), value.clone());
    }
    Value::Object(map)
}

fn retention(value: Value) -> Result<Option<Retention>, AdminError> {
    let retention: Option<Retention> = parse(value)?;
    let mixed = retention.is_some_and(|it| (it.minutes == 0) != (it.megabytes == 0));
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
mod tests {
    use super::*;

    #[track_caller]
    fn check(level: Level, segment: &str, given: &Value, shown: &Value) {
        let spec = Spec::find(level, segment).unwrap();
        let mut policies = Policies::default();
        policies.apply(spec.read(given.clone()).unwrap());
        assert_eq!(spec.value(&policies).unwrap(), *shown, "{segment}");
        let stored = serde_json::to_string(&policies).unwrap();
        assert_eq!(serde_json::from_str::<Policies>(&stored).unwrap(), policies, "{stored}");
        policies.apply(spec.read(Value::Null).unwrap());
        assert_eq!(policies, Policies::default(), "{segment}");
    }

    #[test]
    fn what_was_set_is_read_back() {
        let retention = json!({"retentionTimeInMinutes": -1, "retentionSizeInMB": -1});
        let inactive = json!({"inactiveTopicDeleteMode": "delete_when_no_subscriptions",
            "maxInactiveDurationSeconds": 60, "deleteWhileInactive": false});
        let creation = json!({"allowAutoTopicCreation": true, "topicType": "partitioned", "defaultNumPartitions": 3});
        let quota = json!({"limitSize": -1, "limitTime": -1, "policy": "producer_request_hold"});
        let quotas = json!({"destination_storage": {"limit": -1, "limitSize": -1, "limitTime": -1,
            "policy": "producer_request_hold"}});
        for level in [Level::Topic, Level::Namespace] {
            check(level, "retention", &retention, &retention);
            check(level, "compactionThreshold", &json!(5), &json!(5));
            check(level, "messageTTL", &json!(0), &json!(0));
            check(level, "inactiveTopicPolicies", &inactive, &inactive);
            check(level, "backlogQuota", &quota, &quotas);
            check(
                level,
                "persistence",
                &json!({"bookkeeperEnsemble": 1}),
                &json!({"bookkeeperEnsemble": 1}),
            );
        }
        check(Level::Topic, "deduplicationEnabled", &json!(true), &json!(true));
        check(Level::Namespace, "deduplication", &json!(true), &json!(true));
        check(Level::Topic, "maxUnackedMessagesOnConsumer", &json!(0), &json!(0));
        check(Level::Namespace, "maxUnackedMessagesPerSubscription", &json!(7), &json!(7));
        check(Level::Namespace, "autoTopicCreation", &creation, &creation);
        assert_eq!(Spec::find(Level::Topic, "autoTopicCreation"), None);
        assert_eq!(Spec::find(Level::Topic, ""), None);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let read = |segment, value| Spec::find(Level::Topic, segment).unwrap().read(value);
        let mixed = json!({"retentionTimeInMinutes": 0, "retentionSizeInMB": 5});
        assert!(matches!(read("retention", mixed), Err(AdminError::BadRequest(_))));
        assert!(matches!(read("retention", json!("x")), Err(AdminError::BadRequest(_))));
        let negative = read("compactionThreshold", json!(-5));
        assert!(matches!(negative, Err(AdminError::PreconditionFailed(_))), "{negative:?}");
        assert!(matches!(read("messageTTL", json!(1.5)), Err(AdminError::BadRequest(_))));
    }

    #[test]
    fn the_nearest_level_wins() {
        let set =
            |bytes| Policies { compaction_threshold_bytes: Some(bytes), ..Policies::default() };
        let ttl = Policies { message_ttl_s: Some(9), ..Policies::default() };
        let levels =
            super::super::policies::PolicyLevels { topic: set(1), namespace: set(2), broker: ttl };
        let applied = levels.applied();
        assert_eq!((applied.compaction_threshold_bytes, applied.message_ttl_s), (Some(1), Some(9)));
    }

    #[test]
    fn a_namespace_is_read_as_it_is_shown() {
        let mut policies = Policies::default();
        let given = json!({"retention_policies": {"retentionTimeInMinutes": 1, "retentionSizeInMB": 2},
            "message_ttl_in_seconds": 3, "bundles": {"numBundles": 4}, "deduplicationEnabled": null});
        for policy in read_namespace(given).unwrap() {
            policies.apply(policy);
        }
        let shown = of_namespace(&policies);
        assert_eq!(shown["retention_policies"]["retentionSizeInMB"], 2);
        assert_eq!(shown["message_ttl_in_seconds"], 3);
        assert!(shown.get("deduplicationEnabled").is_none() && shown.get("bundles").is_none());
        assert!(
            read_namespace(json!(7)).is_err() && read_namespace(Value::Null).unwrap().is_empty()
        );
    }
}
