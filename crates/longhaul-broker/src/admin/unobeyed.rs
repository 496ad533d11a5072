//! Policies of Pulsar that this broker does not obey. Pure.
//!
//! Whoever sets one relies on it, so a value that would change anything is refused. One that changes nothing, such as a rate without limit, is kept and shown, as
//! tools set all policies at once.

use super::request::AdminError;
use serde_json::Value;

/// Refuses a value that would change what happens.
pub(super) fn check(name: &str, value: &Value) -> Result<(), AdminError> {
    let why = match name {
        "publishRate"
        | "dispatchRate"
        | "subscriptionDispatchRate"
        | "replicatorDispatchRate"
        | "subscribeRate"
            if limits(value, |key| key.contains("Throttling") || key.starts_with("subscribe")) =>
        {
            "this broker has no limits on rates: slow down where messages come from, or limit what a consumer has not acknowledged"
        }
        "maxProducers"
        | "maxConsumers"
        | "maxConsumersPerSubscription"
        | "maxSubscriptionsPerTopic"
        | "maxTopicsPerNamespace"
            if is_limit(value) =>
        {
            "this broker does not count producers, consumers, subscriptions or topics for a policy: use grants to say who may"
        }
        "maxMessageSize" if is_limit(value) => {
            "this broker has one limit on messages for all topics, --message-bytes-max"
        }
        "subscriptionTypesEnabled" if excludes(value) => {
            "this broker allows all types: Exclusive, Shared, Failover and Key_Shared"
        }
        "schemaCompatibilityStrategy" if *value != "ALWAYS_COMPATIBLE" && *value != "UNDEFINED" => {
            "this broker takes each new version of a schema: ALWAYS_COMPATIBLE"
        }
        "encryptionRequired" if *value == true => {
            "this broker takes messages that are not encrypted"
        }
        "isAllowAutoUpdateSchema" if *value == false => {
            "this broker takes new schemas from producers and consumers"
        }
        "autoSubscriptionCreation"
            if value.get("allowAutoSubscriptionCreation") == Some(&Value::Bool(false)) =>
        {
            "this broker makes subscriptions when a consumer comes: use grants to say who may consume"
        }
        "delayedDelivery" if value.get("active") == Some(&Value::Bool(false)) => {
            "this broker delivers a delayed message at its time"
        }
        _ => return Ok(()),
    };
    let text = format!("the policy {name} is not supported with this value: {why}");
    Err(AdminError::PreconditionFailed(text))
}

/// A number that limits something: 0 and less are no limit.
fn is_limit(value: &Value) -> bool {
    value.as_f64().is_some_and(|it| it > 0.0)
}

/// Whether one of these keys of an object limits something.
fn limits(value: &Value, is_meant: impl Fn(&str) -> bool) -> bool {
    let any = |value: &Value| {
        let mut fields = value.as_object().into_iter().flatten();
        fields.any(|(key, value)| is_meant(key) && is_limit(value))
    };
    // In the policies of a namespace each cluster has its own.
    any(value) || value.as_object().is_some_and(|clusters| clusters.values().any(any))
}

/// Whether a list of types leaves one out. An empty one allows all.
fn excludes(value: &Value) -> bool {
    let types = value.as_array().or_else(|| value.get("subscriptionTypesEnabled")?.as_array());
    types.is_some_and(|types| {
        let has = |name: &&str| {
            types.iter().any(|it| it.as_str().is_some_and(|it| it.eq_ignore_ascii_case(name)))
        };
        !types.is_empty() && !["Exclusive", "Shared", "Failover", "Key_Shared"].iter().all(has)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// All of these were answered with 204, and nothing followed.
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
            ("maxProducers", json!(1)),
            ("maxConsumersPerSubscription", json!(3)),
            ("maxMessageSize", json!(1000)),
            ("subscriptionTypesEnabled", json!(["Shared"])),
            ("subscriptionTypesEnabled", json!(["Exclusive", "Shared", "Failover"])),
            ("schemaCompatibilityStrategy", json!("BACKWARD")),
            ("isAllowAutoUpdateSchema", json!(false)),
            ("encryptionRequired", json!(true)),
            ("dispatchRate", json!({"standalone": {"dispatchThrottlingRateInMsg": 5}})),
            ("autoSubscriptionCreation", json!({"allowAutoSubscriptionCreation": false})),
            ("delayedDelivery", json!({"active": false, "tickTime": 1000})),
        ] {
            let refused = check(name, &value).unwrap_err().to_string();
            assert!(refused.contains(name) && refused.contains("this broker"), "{refused}");
        }
    }

    #[test]
    fn what_changes_nothing_is_taken() {
        for (name, value) in [
            (
                "publishRate",
                json!({"publishThrottlingRateInMsg": -1, "publishThrottlingRateInByte": -1}),
            ),
            ("dispatchRate", json!({"dispatchThrottlingRateInMsg": 0, "ratePeriodInSecond": 1})),
            ("backlogQuotaAge", json!({"limitTime": 10, "policy": "producer_exception"})),
            ("maxProducers", json!(0)),
            ("maxMessageSize", json!(-1)),
            ("subscriptionTypesEnabled", json!([])),
            ("subscriptionTypesEnabled", json!(["SHARED", "Exclusive", "Failover", "Key_Shared"])),
            ("schemaCompatibilityStrategy", json!("ALWAYS_COMPATIBLE")),
            ("isAllowAutoUpdateSchema", json!(true)),
            ("autoSubscriptionCreation", json!({"allowAutoSubscriptionCreation": true})),
            ("delayedDelivery", json!({"active": true, "tickTime": 1000})),
            ("persistence", json!({"bookkeeperEnsemble": 3})),
            ("deduplicationSnapshotInterval", json!(10)),
            ("publishRate", json!("odd")),
        ] {
            assert_eq!(check(name, &value), Ok(()), "{name}");
        }
    }
}
