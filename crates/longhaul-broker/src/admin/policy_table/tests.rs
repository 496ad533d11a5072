use super::*;
use crate::state::ResourceSettings;

#[track_caller]
fn check(level: PolicyScope, segment: &str, given: &Value, shown: &Value) {
    let policy = PolicyRow::find(level, segment, None).unwrap();
    let mut policies = Policies::default();
    policy.read(given.clone()).unwrap()(&mut policies);
    assert_eq!(policy.value(&policies).unwrap(), *shown, "{segment}");
    let stored = serde_json::to_string(&policies).unwrap();
    assert_eq!(serde_json::from_str::<Policies>(&stored).unwrap(), policies, "{stored}");
    policy.read(Value::Null).unwrap()(&mut policies);
    assert_eq!(policies, Policies::default(), "{segment}");
}

#[test]
fn what_was_set_is_read_back() {
    let retention = json!({"retentionTimeInMinutes": -1, "retentionSizeInMB": -1});
    let inactive = json!({"inactiveTopicDeleteMode": "delete_when_no_subscriptions",
        "maxInactiveDurationSeconds": 60, "deleteWhileInactive": true});
    let creation = json!({"allowAutoTopicCreation": true, "topicType": "partitioned", "defaultNumPartitions": 3});
    let quota = json!({"limitSize": -1, "limitTime": -1, "policy": "producer_request_hold"});
    let quotas = json!({"destination_storage": {"limit": -1, "limitSize": -1, "limitTime": -1,
        "policy": "producer_request_hold"}});
    for level in [PolicyScope::Topic, PolicyScope::Namespace] {
        check(level, "retention", &retention, &retention);
        check(level, "compactionThreshold", &json!(5), &json!(5));
        check(level, "messageTTL", &json!(0), &json!(0));
        check(level, "inactiveTopicPolicies", &inactive, &inactive);
        check(level, "backlogQuota", &quota, &quotas);
    }
    check(PolicyScope::Topic, "maxProducers", &json!(3), &json!(3));
    check(PolicyScope::Namespace, "schemaValidationEnforced", &json!(true), &json!(true));
    check(PolicyScope::Topic, "deduplicationEnabled", &json!(true), &json!(true));
    check(PolicyScope::Namespace, "deduplication", &json!(true), &json!(true));
    check(PolicyScope::Topic, "maxUnackedMessagesOnConsumer", &json!(0), &json!(0));
    check(PolicyScope::Namespace, "maxUnackedMessagesPerSubscription", &json!(7), &json!(7));
    check(PolicyScope::Namespace, "autoTopicCreation", &creation, &creation);
    assert!(PolicyRow::find(PolicyScope::Topic, "autoTopicCreation", None).is_none());
    assert!(PolicyRow::find(PolicyScope::Topic, "", None).is_none());
}

#[test]
fn what_makes_no_sense_is_refused() {
    let read = |segment, value| {
        PolicyRow::find(PolicyScope::Topic, segment, None).unwrap().read(value).err()
    };
    let mixed = json!({"retentionTimeInMinutes": 0, "retentionSizeInMB": 5});
    assert!(matches!(read("retention", mixed), Some(AdminCallError::BadRequest(_))));
    assert!(matches!(read("retention", json!("x")), Some(AdminCallError::BadRequest(_))));
    let negative = read("compactionThreshold", json!(-5));
    assert!(matches!(negative, Some(AdminCallError::PreconditionFailed(_))), "{negative:?}");
    assert!(matches!(read("messageTTL", json!(1.5)), Some(AdminCallError::BadRequest(_))));
    let at_once = json!({"inactiveTopicDeleteMode": "delete_when_no_subscriptions",
        "maxInactiveDurationSeconds": 0, "deleteWhileInactive": true});
    let at_once = read("inactiveTopicPolicies", at_once);
    assert!(matches!(at_once, Some(AdminCallError::PreconditionFailed(_))), "{at_once:?}");
}

/// Invalid values were stored and shown: 20,000 partitions, of which 10,000 were created; an
/// unknown quota action; a number as a rate.
#[test]
fn what_no_value_can_be_is_refused() {
    let refuses = |value: Value, reason: &str| {
        let policy = PolicyRow::find(PolicyScope::Namespace, "autoTopicCreation", None).unwrap();
        let Some(AdminCallError::PreconditionFailed(text)) = policy.read(value.clone()).err()
        else {
            panic!("{value}")
        };
        assert!(text.contains(reason), "{text}");
    };
    let parts = |count: i64| json!({"allowAutoTopicCreation": true, "topicType": "partitioned", "defaultNumPartitions": count});
    for count in [0, -1, 20_000] {
        refuses(parts(count), "must be 1 to 10000");
    }
    let partitioned = json!({"allowAutoTopicCreation": true, "topicType": "partitioned"});
    refuses(partitioned, "cannot be null");
    let plain = json!({"allowAutoTopicCreation": true, "topicType": "non-partitioned", "defaultNumPartitions": 3});
    refuses(plain, "is not allowed");
    for (name, value) in [
        ("backlogQuota", json!({"limitTime": 1, "limitSize": -1, "policy": "bogus"})),
        ("publishRate", json!("odd")),
        ("maxProducers", json!(1.5)),
        ("subscriptionTypesEnabled", json!("Shared")),
        ("dispatchRate", json!([])),
    ] {
        let refused = read(name, &value).unwrap_err();
        let is_told = matches!(
            refused,
            AdminCallError::BadRequest(_) | AdminCallError::PreconditionFailed(_)
        );
        assert!(is_told, "{name}: {refused:?}");
    }
    assert_eq!(read("autoTopicCreation", &parts(10_000)), Ok(()));
}

/// A namespace was created without the given grants, and with clusters that do not exist.
#[test]
fn what_a_namespace_is_created_with_is_taken_or_refused() {
    let given = json!({"auth_policies": {"namespace_auth": {"joe": ["produce"]},
        "destination_auth": {}, "subscription_auth_roles": {}},
        "properties": {}, "replication_clusters": ["standalone"]});
    let new = read_namespace(given).unwrap();
    let settings = ResourceSettings { grants: new.grants, ..ResourceSettings::default() };
    let shown = of_namespace(&settings);
    assert_eq!(shown["auth_policies"]["namespace_auth"], json!({"joe": ["produce"]}));
    for refused in [
        json!({"replication_clusters": ["a", "b"]}),
        json!({"properties": {"k": "v"}}),
        json!({"topicDispatchRate": {"standalone": {"dispatchThrottlingRateInMsg": 5}}}),
        json!({"offload_threshold": 5}),
        json!({"auth_policies": {"destination_auth": {"t": {"joe": ["produce"]}}}}),
        json!({"auth_policies": {"subscription_auth_roles": {"s": ["joe"]}}}),
    ] {
        let outcome = read_namespace(refused.clone()).err();
        assert!(
            matches!(outcome, Some(AdminCallError::PreconditionFailed(_))),
            "{refused}: {outcome:?}"
        );
    }
    for by_cluster in [
        json!({"topicDispatchRate": {"dispatchThrottlingRateInMsg": 5}}),
        json!({"publishMaxMessageRate": {"other": {"publishThrottlingRateInMsg": 5}}}),
        json!({"publishMaxMessageRate": 7}),
    ] {
        let outcome = read_namespace(by_cluster.clone()).err();
        assert!(matches!(outcome, Some(AdminCallError::BadRequest(_))), "{by_cluster}");
    }
    assert!(read_namespace(json!({"publishMaxMessageRate": {}})).is_ok());
    assert!(read_namespace(json!({"auth_policies": {"namespace_auth": {"": []}}})).is_err());
    assert!(read_namespace(json!({"auth_policies": {"namespace_auth": {"r": ["all"]}}})).is_err());
}

/// Stock Java clients threw a `NullPointerException` for unset policies.
#[test]
fn what_is_not_set_is_shown_as_pulsar_shows_it() {
    let none = Policies::default();
    for (name, shown) in [
        ("isAllowAutoUpdateSchema", json!(true)),
        ("maxTopicsPerNamespace", json!(0)),
        ("schemaValidationEnforced", json!(false)),
        ("schemaCompatibilityStrategy", json!("UNDEFINED")),
        ("subscriptionAuthMode", json!("None")),
        ("replication", json!(["standalone"])),
        ("encryptionRequired", json!(false)),
    ] {
        let policy = PolicyRow::find(PolicyScope::Namespace, name, None).unwrap();
        assert_eq!(policy.value_in_namespace(&none), Some(shown), "{name}");
    }
    let shown = of_namespace(&ResourceSettings::default());
    let auth = json!({"namespace_auth": {}, "destination_auth": {}, "subscription_auth_roles": {}});
    assert_eq!((&shown["auth_policies"], &shown["bundles"]["numBundles"]), (&auth, &json!(1)));
    assert!(shown.get("message_ttl_in_seconds").is_none(), "Pulsar leaves it out");
}

#[test]
fn the_nearest_level_wins() {
    let set = |bytes| Policies { compaction_threshold_bytes: Some(bytes), ..Policies::default() };
    let ttl = Policies { message_ttl_s: Some(9), ..Policies::default() };
    let levels = crate::policies::PolicyLevels { topic: set(1), namespace: set(2), broker: ttl };
    let applied = levels.applied();
    assert_eq!((applied.compaction_threshold_bytes, applied.message_ttl_s), (Some(1), Some(9)));
}

#[test]
fn a_namespace_is_read_as_it_is_shown() {
    let mut policies = Policies::default();
    let given = json!({"retention_policies": {"retentionTimeInMinutes": 1, "retentionSizeInMB": 2},
        "message_ttl_in_seconds": 3, "subscription_expiration_time_minutes": 5,
        "publishMaxMessageRate": {"standalone": {"publishThrottlingRateInMsg": -1}},
        "max_producers_per_topic": 6, "bundles": {"numBundles": 4}, "deduplicationEnabled": null});
    for change in read_namespace(given).unwrap().policies {
        change(&mut policies);
    }
    let shown = of_namespace(&ResourceSettings { policies, ..ResourceSettings::default() });
    assert_eq!(shown["retention_policies"]["retentionSizeInMB"], 2);
    assert_eq!(shown["message_ttl_in_seconds"], 3);
    assert_eq!(shown["subscription_expiration_time_minutes"], 5);
    assert_eq!(shown["max_producers_per_topic"], 6);
    assert_eq!(shown["publishMaxMessageRate"], json!({}), "what is not obeyed is not stored");
    assert!(shown.get("deduplicationEnabled").is_none());
    assert_eq!(shown["bundles"]["numBundles"], 1, "it is one");
    assert!(read_namespace(json!(7)).is_err());
    assert!(read_namespace(Value::Null).unwrap().policies.is_empty());
}

/// Sets a policy of a topic, or of a namespace if topics have none of that name.
fn read(name: &str, value: &Value) -> Result<(), AdminCallError> {
    let quota_type = Some("message_age");
    let found = [PolicyScope::Topic, PolicyScope::Namespace]
        .into_iter()
        .find_map(|level| PolicyRow::find(level, name, quota_type));
    found.unwrap().read(value.clone()).map(drop)
}

/// All of these were answered with 204 and had no effect.
#[test]
fn what_is_not_obeyed_is_refused() {
    for (name, value) in [
        (
            "publishRate",
            json!({"publishThrottlingRateInMsg": 5, "publishThrottlingRateInByte": -1}),
        ),
        (
            "dispatchRate",
            json!({"dispatchThrottlingRateInMsg": -1, "dispatchThrottlingRateInByte": 9, "ratePeriodInSecond": 1}),
        ),
        (
            "subscribeRate",
            json!({"subscribeThrottlingRatePerConsumer": 2, "ratePeriodInSecond": 30}),
        ),
        ("maxMessageSize", json!(1000)),
        ("subscriptionTypesEnabled", json!(["Shared"])),
        ("subscriptionTypesEnabled", json!(["Exclusive", "Shared", "Failover"])),
        ("schemaCompatibilityStrategy", json!("BACKWARD")),
        ("isAllowAutoUpdateSchema", json!(false)),
        ("encryptionRequired", json!(true)),
        ("autoSubscriptionCreation", json!({"allowAutoSubscriptionCreation": false})),
        ("delayedDelivery", json!({"active": false, "tickTime": 1000})),
        ("delayedDelivery", json!({"active": true, "maxDeliveryDelayInMillis": 5})),
        ("subscriptionAuthMode", json!("Prefix")),
        ("replication", json!(["standalone", "b"])),
        ("allowedClusters", json!(["a"])),
        ("offloadPolicies", json!({"managedLedgerOffloadDriver": "aws-s3"})),
        ("offloadThreshold", json!(0)),
        ("entryFilters", json!({"entryFilterNames": "x"})),
        ("resourceGroup", json!("x")),
    ] {
        let refused = read(name, &value).unwrap_err().to_string();
        assert!(refused.contains(name) && refused.contains("this broker"), "{refused}");
        assert_eq!(name == "publishRate", refused.contains("with backlogQuota"), "{refused}");
    }
}

#[test]
fn what_changes_nothing_is_taken() {
    for (name, value) in [
        ("publishRate", json!({"publishThrottlingRateInMsg": -1})),
        ("dispatchRate", json!({"dispatchThrottlingRateInMsg": 0, "ratePeriodInSecond": 1})),
        ("backlogQuota", json!({"limitTime": 10, "policy": "producer_exception"})),
        ("maxProducers", json!(0)),
        ("maxMessageSize", json!(-1)),
        ("subscriptionTypesEnabled", json!([])),
        ("subscriptionTypesEnabled", json!(["SHARED", "Exclusive", "Failover", "Key_Shared"])),
        ("schemaCompatibilityStrategy", json!("ALWAYS_COMPATIBLE")),
        ("isAllowAutoUpdateSchema", json!(true)),
        ("autoSubscriptionCreation", json!({"allowAutoSubscriptionCreation": true})),
        ("delayedDelivery", json!({"active": true, "tickTime": 1000})),
        ("replication", json!(["standalone"])),
        ("offloadPolicies", json!({"managedLedgerOffloadDriver": null})),
        ("offloadThreshold", json!(-1)),
        ("subscriptionExpirationTime", json!(0)),
        ("subscriptionAuthMode", json!("None")),
    ] {
        assert_eq!(read(name, &value), Ok(()), "{name}");
    }
}

/// The key of older tools was answered with 204 and not obeyed, and text was refused.
#[test]
fn a_quota_is_obeyed_whatever_version_of_pulsar_sends_it() {
    for (quota, bytes) in [
        (json!({"limit": 7, "policy": "producer_exception"}), 7),
        (json!({"limit": 7, "limitSize": 8, "policy": "producer_exception"}), 8),
        (json!({"limit": 7, "limitSize": null, "policy": "producer_exception"}), 7),
        (json!({"limitSize": "9", "limitTime": "-1", "policy": "producer_exception"}), 9),
    ] {
        let change = BACKLOG_QUOTA.read(quota.clone()).unwrap();
        let mut policies = Policies::default();
        change(&mut policies);
        let read = policies.backlog_quota.unwrap();
        assert_eq!((read.limit_bytes, read.limit_s), (bytes, -1), "{quota}");
    }
}

/// The rows of the policy table in the documentation.
fn rows(page: &str) -> impl Iterator<Item = &str> {
    let rows = page.lines().skip_while(|line| *line != "## Policies");
    let rows = rows.skip_while(|line| !line.starts_with("|---")).skip(1);
    rows.take_while(|line| line.starts_with('|'))
}

/// The names of a row's policy, and the first word of the broker's behaviour.
fn meaning(row: &str) -> (String, String) {
    let cells: Vec<&str> = row.split('|').map(str::trim).collect();
    let names = cells[1..4].join(" ").replace('`', "");
    (names, cells[4].split([' ', ':', ',']).next().unwrap().to_owned())
}

fn documented(page: &str) -> Vec<(String, String)> {
    rows(page).map(meaning).collect()
}

/// The same from the broker's table.
fn known() -> Vec<(String, String)> {
    let shown = |name: &str| if name.is_empty() { "–".to_owned() } else { name.to_owned() };
    let row = |policy: &PolicyRow| {
        let key = if policy.topic == "backlogQuota" { "backlog_quota_map" } else { policy.key };
        let names = [policy.topic, policy.namespace, key].map(shown).join(" ");
        let is_refused = matches!(policy.kind, PolicyKind::Refused { .. });
        let here = if is_refused { "refused" } else { "obeyed" };
        (names, here.to_owned())
    };
    POLICIES.iter().map(row).collect()
}

/// The documentation has the same table: all policies with all their names, and whether each is
/// obeyed or may be refused.
#[test]
fn the_documentation_has_the_same_table() {
    let page = include_str!("../../../../../docs/broker.md");
    assert_eq!(documented(page), known());
}

/// The test above finds every missing, unknown or different row.
#[test]
fn a_wrong_table_in_the_documentation_is_found() {
    let page = include_str!("../../../../../docs/broker.md");
    let is_found = |planted: String| documented(&planted) != known();
    assert!(!is_found(page.to_owned()));
    for row in rows(page) {
        let line = format!("{row}\n");
        assert_eq!(page.matches(&line).count(), 1, "{row}");
        assert!(is_found(page.replace(&line, "")), "missing: {row}");
        assert!(is_found(page.replace(&line, &line.repeat(2))), "twice: {row}");
        let word = meaning(row).1;
        let other = if word == "obeyed" { "refused" } else { "obeyed" };
        for wrong in [
            line.replacen(&format!("| {word}"), &format!("| {other}"), 1),
            line.replacen('`', "`x", 1),
        ] {
            assert!(wrong != line && is_found(page.replace(&line, &wrong)), "{wrong}");
        }
    }
}
