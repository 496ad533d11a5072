//! Routes of tenants and namespaces.

use super::super::answer::AdminResponse;
use super::super::names;
use super::super::policy_table::{PolicyScope, of_namespace, read_namespace};
use super::super::values::AdminCallError;
use super::{
    AdminAccess, AdminRequest, AdminRoute, Routed, Work, administrator, ask, done, json, json_body,
    parse, policy_row, superuser, tell, unknown,
};
use crate::policies::{AuthAction, CLUSTER, Tenant};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub(super) fn tenants(asked: AdminRequest<'_>, path: &[&str]) -> Routed {
    let [tenant] = path else {
        let all = || json(|machine| Ok(machine.tenants()));
        return if (asked.method, path) == ("GET", &[]) {
            superuser(all())
        } else {
            Err(unknown(asked))
        };
    };
    let tenant = names::plain("tenant", tenant)?.to_owned();
    superuser(match asked.method {
        "GET" => json(move |machine| machine.tenant(&tenant)),
        "PUT" => {
            let new = tenant_of(asked.body)?;
            done(move |machine| {
                machine.create_tenant(&tenant)?;
                machine.set_tenant(&tenant, new)
            })
        }
        "POST" => {
            let new = tenant_of(asked.body)?;
            done(move |machine| machine.set_tenant(&tenant, new))
        }
        "DELETE" => done(move |machine| machine.delete_tenant(&tenant)),
        _ => return Err(unknown(asked)),
    })
}

/// The tenant in a body. Missing fields get the values of an empty body; values that Pulsar refuses
/// are refused.
fn tenant_of(body: &[u8]) -> Result<Tenant, AdminCallError> {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct TenantInfoJson {
        admin_roles: Option<BTreeSet<String>>,
        allowed_clusters: Option<BTreeSet<String>>,
    }
    let refused = |text: &str| Err(AdminCallError::PreconditionFailed(text.to_owned()));
    let given: Option<TenantInfoJson> = serde_json::from_value(json_body(body)?)
        .map_err(|error| AdminCallError::BadRequest(format!("the body cannot be read: {error}")))?;
    let (given, unset) = (given.unwrap_or_default(), Tenant::default());
    let admin_roles = given.admin_roles.unwrap_or_default();
    let allowed_clusters = given.allowed_clusters.unwrap_or(unset.allowed_clusters);
    if allowed_clusters.is_empty() {
        return refused("Clusters can not be empty");
    }
    if allowed_clusters.iter().any(|cluster| cluster != CLUSTER) {
        return refused("Clusters do not exist: there is one, standalone");
    }
    for role in &admin_roles {
        names::role(role)?;
        if role.trim() != role {
            return refused("AdminRoles contains whitespace in the beginning or end.");
        }
    }
    Ok(Tenant { admin_roles, allowed_clusters })
}

/// Full names of the topics of a namespace: unpartitioned topics and partitions, or partitioned
/// topics.
pub(super) fn topics(tenant: &str, namespace: &str, partitioned: bool) -> Routed {
    let namespace = names::namespace(tenant, namespace)?;
    let access = AdminAccess::Namespace(namespace.clone());
    let work = json(move |machine| {
        if partitioned {
            machine.partitioned_topics_of(&namespace)
        } else {
            machine.topics_of(&namespace)
        }
    });
    Ok(AdminRoute { access, work })
}

pub(super) fn namespaces(asked: AdminRequest<'_>, path: &[&str]) -> Routed {
    let (tenant, name, rest) = match path {
        [tenant] if asked.method == "GET" => {
            let tenant = names::plain("tenant", tenant)?;
            let name = tenant.to_owned();
            return administrator(tenant, json(move |machine| machine.namespaces_of(&name)));
        }
        [tenant, name, rest @ ..] => (tenant, name, rest),
        _ => return Err(unknown(asked)),
    };
    let namespace = names::namespace(tenant, name)?;
    let work = match (asked.method, rest) {
        ("PUT", []) => {
            let new = read_namespace(json_body(asked.body)?)?;
            done(move |machine| {
                machine.create_namespace(&namespace, new.policies)?;
                if !new.grants.is_closed() {
                    return Ok(());
                }
                machine.set_namespace_grants(&namespace, |grants| *grants = new.grants)
            })
        }
        ("DELETE", []) => {
            let force = asked.target.flag("force");
            done(move |machine| machine.delete_namespace(&namespace, force))
        }
        ("GET", []) => ask(
            move |machine| machine.namespace_settings(&namespace),
            |settings, _| AdminResponse::json(&of_namespace(&settings)),
        ),
        // Clients with an HTTP service URL request one kind of topics.
        ("GET", ["topics"]) if asked.target.value("mode") == Some("NON_PERSISTENT") => {
            tell(|_| AdminResponse::json(&json!([])))
        }
        ("GET", ["topics"]) => return topics(tenant, name, false),
        (_, ["permissions", path @ ..]) => permissions(asked, namespace, path)?,
        (_, [segment]) => policy(asked, namespace, segment)?,
        _ => return Err(unknown(asked)),
    };
    administrator(tenant, work)
}

fn permissions(
    asked: AdminRequest<'_>,
    namespace: String,
    path: &[&str],
) -> Result<Work, AdminCallError> {
    Ok(match (asked.method, path) {
        ("GET", []) => {
            json(move |machine| Ok(machine.namespace_settings(&namespace)?.grants.shown()))
        }
        ("POST", [role]) => {
            let (role, actions): (_, Vec<AuthAction>) = (names::role(role)?, parse(asked.body)?);
            done(move |machine| {
                machine.set_namespace_grants(&namespace, |grants| grants.grant(&role, actions))
            })
        }
        ("DELETE", [role]) => {
            let role = names::role(role)?;
            done(move |machine| {
                machine.set_namespace_grants(&namespace, |grants| grants.revoke(&role))
            })
        }
        _ => return Err(unknown(asked)),
    })
}

fn policy(
    asked: AdminRequest<'_>,
    namespace: String,
    segment: &str,
) -> Result<Work, AdminCallError> {
    let policy = policy_row(asked, PolicyScope::Namespace, segment)?;
    let value = match asked.method {
        "GET" => {
            return Ok(ask(
                move |machine| machine.namespace_settings(&namespace),
                |settings, _| AdminResponse::maybe(policy.value_in_namespace(&settings.policies)),
            ));
        }
        "POST" | "PUT" => json_body(asked.body)?,
        "DELETE" => Value::Null,
        _ => return Err(unknown(asked)),
    };
    let change = policy.read(value)?;
    Ok(done(move |machine| machine.set_namespace_policy(&namespace, change)))
}
