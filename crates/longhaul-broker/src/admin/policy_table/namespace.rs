//! All that is set on a namespace, in one JSON, as Pulsar writes and reads it.

use super::super::broker_stats;
use super::super::names;
use super::super::policies::{AuthAction, BacklogQuota, Grants, Policies, PolicyChange};
use super::super::values::{AdminCallError, ResourceProperties};
use super::{BACKLOG_AGE, BACKLOG_QUOTA, POLICIES, parse, unreadable};
use crate::state::ResourceSettings;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// What a namespace is created with.
#[derive(Default)]
pub(in crate::admin) struct NewNamespace {
    /// How the broker treats its messages.
    pub(in crate::admin) policies: Vec<PolicyChange>,
    /// Who may use it.
    pub(in crate::admin) grants: Grants,
    /// What its operators note about it.
    pub(in crate::admin) properties: ResourceProperties,
}

/// Who may do what, in the JSON of Pulsar.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Permissions {
    namespace_auth: BTreeMap<String, Vec<AuthAction>>,
    destination_auth: Map<String, Value>,
    #[serde(alias = "subscriptionAuthentication")]
    subscription_auth_roles: Map<String, Value>,
}

/// What Pulsar says of every namespace, whatever is set on it. Clients read some of this without
/// asking whether there is any.
fn always() -> Map<String, Value> {
    let shown = json!({
        "bundles": broker_stats::bundles(),
        "clusterDispatchRate": {},
        "clusterSubscribeRate": {},
        "deleted": false,
        "latency_stats_sample_rate": {},
        "migrated": false,
        "publishMaxMessageRate": {},
        "replicatorDispatchRate": {},
        "subscriptionDispatchRate": {},
        "subscription_types_enabled": [],
        "topicDispatchRate": {},
    });
    shown.as_object().cloned().unwrap_or_default()
}

/// What is set on a namespace in the JSON of Pulsar.
pub(in crate::admin) fn of_namespace(settings: &ResourceSettings) -> Value {
    let mut shown = always();
    let keyed = POLICIES.iter().filter(|policy| !policy.key.is_empty());
    for policy in keyed {
        if let Some(value) = policy.value_in_namespace(&settings.policies) {
            shown.insert(policy.key.to_owned(), value);
        }
    }
    shown.insert("backlog_quota_map".to_owned(), quotas(&settings.policies));
    let permissions = json!({
        "namespace_auth": settings.grants.clone().shown(),
        "destination_auth": {},
        "subscription_auth_roles": {},
    });
    shown.insert("auth_policies".to_owned(), permissions);
    shown.insert("properties".to_owned(), json!(settings.properties));
    Value::Object(shown)
}

/// Reads what a namespace is created with; keys that are none of Pulsar's are passed over, as
/// Pulsar does.
pub(in crate::admin) fn read_namespace(mut value: Value) -> Result<NewNamespace, AdminCallError> {
    let Some(map) = value.as_object_mut() else {
        let empty = value.is_null();
        let none = NewNamespace::default();
        return if empty { Ok(none) } else { Err(unreadable("an object is expected")) };
    };
    let properties: Option<ResourceProperties> =
        parse(map.remove("properties").unwrap_or_default())?;
    let permissions = map.remove("auth_policies").unwrap_or_default();
    let mut quotas = map.remove("backlog_quota_map").unwrap_or_default();
    let mut quota = |key: &str| quotas.get_mut(key).map(Value::take).unwrap_or_default();
    let quotas =
        [(&BACKLOG_QUOTA, quota("destination_storage")), (&BACKLOG_AGE, quota("message_age"))];
    let keyed = POLICIES.iter().filter(|policy| !policy.key.is_empty());
    let given = keyed.filter_map(|policy| Some((policy, map.remove(policy.key)?))).chain(quotas);
    let given = given.filter(|(_, value)| !value.is_null());
    Ok(NewNamespace {
        policies: given.map(|(policy, value)| policy.read(value)).collect::<Result<_, _>>()?,
        grants: grants(permissions)?,
        properties: properties.unwrap_or_default(),
    })
}

/// Who may use it was dropped: whoever had given grants along had given none.
fn grants(value: Value) -> Result<Grants, AdminCallError> {
    let given = parse::<Option<Permissions>>(value)?.unwrap_or_default();
    if !given.destination_auth.is_empty() || !given.subscription_auth_roles.is_empty() {
        let text = "grants for single topics and for subscriptions are not taken along: this broker has the former below the topics, and none of the latter";
        return Err(AdminCallError::PreconditionFailed(text.to_owned()));
    }
    let mut grants = Grants::default();
    for (role, actions) in given.namespace_auth {
        grants.grant(&names::role(&role)?, actions);
    }
    Ok(grants)
}

/// Both quotas on a backlog.
pub(super) fn quotas(policies: &Policies) -> Value {
    let mut map = Map::new();
    let mut add = |kind: &str, quota: Option<BacklogQuota>| {
        let Some(quota) = quota else { return };
        // `limit` is the name of older versions, which their tools read.
        let value = json!({
            "limit": quota.limit_bytes,
            "limitSize": quota.limit_bytes,
            "limitTime": quota.limit_s,
            "policy": quota.policy,
        });
        map.insert(kind.to_owned(), value);
    };
    add("destination_storage", policies.backlog_quota);
    add("message_age", policies.backlog_age);
    Value::Object(map)
}
