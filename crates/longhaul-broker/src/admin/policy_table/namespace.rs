//! All settings of a namespace, in Pulsar's JSON.

use super::super::names;
use super::super::unobeyed::refuse_properties;
use super::super::values::AdminCallError;
use super::{BACKLOG_AGE, BACKLOG_QUOTA, POLICIES, PolicyRow, parse, unreadable};
use crate::policies::{AuthAction, BacklogQuota, CLUSTER, Grants, Policies, PolicyChange};
use crate::state::ResourceSettings;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Settings of a new namespace.
#[derive(Default)]
pub(in crate::admin) struct NewNamespace {
    /// Its policies.
    pub(in crate::admin) policies: Vec<PolicyChange>,
    /// Its grants.
    pub(in crate::admin) grants: Grants,
}

/// Grants, in Pulsar's JSON.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Permissions {
    namespace_auth: BTreeMap<String, Vec<AuthAction>>,
    destination_auth: Map<String, Value>,
    #[serde(alias = "subscriptionAuthentication")]
    subscription_auth_roles: Map<String, Value>,
}

/// Fields that Pulsar returns for every namespace. Clients read some of them without checking
/// whether they exist.
fn always() -> Map<String, Value> {
    let shown = json!({
        // Each namespace is one bundle.
        "bundles": {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1},
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

/// Whether a namespace has a value of this policy for each cluster.
fn is_by_cluster(always: &Map<String, Value>, key: &str) -> bool {
    always.get(key).and_then(Value::as_object).is_some_and(Map::is_empty)
}

/// The value for this cluster.
fn here(key: &str, mut by_cluster: Value) -> Result<Value, AdminCallError> {
    if by_cluster.as_object().is_some_and(Map::is_empty) {
        return Ok(Value::Null);
    }
    let own = by_cluster.get_mut(CLUSTER).map(Value::take);
    own.ok_or_else(|| unreadable(&format!("{key} has its value by cluster, for {CLUSTER} alone")))
}

/// The settings of a namespace in Pulsar's JSON.
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
    Value::Object(shown)
}

/// Reads the settings of a new namespace. Unknown keys are ignored, as in Pulsar.
pub(in crate::admin) fn read_namespace(mut value: Value) -> Result<NewNamespace, AdminCallError> {
    let Some(map) = value.as_object_mut() else {
        let empty = value.is_null();
        let none = NewNamespace::default();
        return if empty { Ok(none) } else { Err(unreadable("an object is expected")) };
    };
    refuse_properties(map.get("properties").unwrap_or(&Value::Null), "namespaces")?;
    let permissions = map.remove("auth_policies").unwrap_or_default();
    let mut quotas = map.remove("backlog_quota_map").unwrap_or_default();
    let mut quota = |key: &str| quotas.get_mut(key).map(Value::take).unwrap_or_default();
    let quotas =
        [(&BACKLOG_QUOTA, quota("destination_storage")), (&BACKLOG_AGE, quota("message_age"))];
    let always = always();
    let keyed = POLICIES.iter().filter(|policy| !policy.key.is_empty());
    let given = keyed.filter_map(|policy| Some((policy, map.remove(policy.key)?))).chain(quotas);
    let given = given.filter(|(_, value)| !value.is_null());
    let read = |(policy, value): (&PolicyRow, Value)| {
        let is_by_cluster = is_by_cluster(&always, policy.key);
        policy.read(if is_by_cluster { here(policy.key, value)? } else { value })
    };
    Ok(NewNamespace {
        policies: given.map(read).collect::<Result<_, _>>()?,
        grants: grants(permissions)?,
    })
}

/// Grants in the request were dropped without an error.
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

/// Both backlog quotas.
pub(super) fn quotas(policies: &Policies) -> Value {
    let mut map = Map::new();
    let mut add = |kind: &str, quota: Option<BacklogQuota>| {
        let Some(quota) = quota else { return };
        // `limit` is the name in older versions; their tools read it.
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
