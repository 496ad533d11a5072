//! Paths of tenants and namespaces.

use super::super::answer::BUNDLE;
use super::super::names;
use super::super::policies::Action;
use super::super::policy_json::{Level, Spec, read_namespace};
use super::super::request::{AdminError, AdminRequest, NamespaceCall};
use super::{
    Asked, Known, Routed, Show, Work, as_is, brokers, json_body, superuser, tell, unknown,
};
use serde_json::json;

pub(super) fn tenants(asked: Asked<'_>, path: &[&str]) -> Routed {
    let name = |name: &str| names::plain("tenant", name).map(str::to_owned);
    superuser(match (asked.method, path) {
        ("GET", ["tenants"]) => as_is(AdminRequest::Tenants),
        ("GET", ["tenants", tenant]) => {
            Work::Ask(AdminRequest::Tenants, Show::Tenant(name(tenant)?))
        }
        ("PUT", ["tenants", tenant]) => as_is(AdminRequest::CreateTenant(name(tenant)?)),
        ("DELETE", ["tenants", tenant]) => as_is(AdminRequest::DeleteTenant(name(tenant)?)),
        _ => return Err(unknown(asked)),
    })
}

pub(super) fn ask(tenant: &str, namespace: &str, call: NamespaceCall) -> Routed {
    superuser(as_is(request(tenant, namespace, call)?))
}

fn request(tenant: &str, namespace: &str, call: NamespaceCall) -> Result<AdminRequest, AdminError> {
    Ok(AdminRequest::Namespace { namespace: names::namespace(tenant, namespace)?, call })
}

pub(super) fn namespaces(asked: Asked<'_>, path: &[&str]) -> Routed {
    let (tenant, namespace, rest) = match path {
        ["namespaces", tenant] if asked.method == "GET" => {
            let tenant = names::plain("tenant", tenant)?.to_owned();
            return superuser(as_is(AdminRequest::Namespaces { tenant }));
        }
        ["namespaces", tenant, namespace, rest @ ..] => (tenant, namespace, rest),
        _ => return Err(unknown(asked)),
    };
    let call = match (asked.method, rest) {
        ("PUT", []) => NamespaceCall::Create { policies: read_namespace(json_body(asked.body)?)? },
        ("DELETE", []) => NamespaceCall::Delete { force: asked.target.flag("force") },
        ("GET", []) => NamespaceCall::Policies,
        // Clients with an HTTP service URL say which ones they mean.
        ("GET", ["topics"]) if asked.target.value("mode") == Some("NON_PERSISTENT") => {
            return tell(Known::Json(json!([])));
        }
        ("GET", ["topics"]) => NamespaceCall::Topics,
        ("PUT", ["unload"] | [BUNDLE, "unload"]) => NamespaceCall::Unload,
        ("GET", ["bundles"]) => return brokers::bundles(tenant, namespace),
        ("GET", ["permissions"]) => NamespaceCall::Grants,
        ("POST", ["permissions", role]) => {
            let actions: Vec<Action> = super::parse(asked.body)?;
            NamespaceCall::Grant { role: names::role(role)?, actions }
        }
        ("DELETE", ["permissions", role]) => NamespaceCall::Revoke { role: names::role(role)? },
        (_, [segment]) => return policy(asked, tenant, namespace, segment),
        _ => return Err(unknown(asked)),
    };
    ask(tenant, namespace, call)
}

fn policy(asked: Asked<'_>, tenant: &str, namespace: &str, segment: &str) -> Routed {
    let spec = Spec::find(Level::Namespace, segment).ok_or_else(|| unknown(asked))?;
    let spec = spec.of_quota_type(asked.target.value("backlogQuotaType"));
    let value = match asked.method {
        "GET" => {
            let request = request(tenant, namespace, NamespaceCall::Policies)?;
            return superuser(Work::Ask(request, Show::NamespacePolicy(spec)));
        }
        "POST" | "PUT" => json_body(asked.body)?,
        "DELETE" => serde_json::Value::Null,
        _ => return Err(unknown(asked)),
    };
    ask(tenant, namespace, NamespaceCall::SetPolicy(spec.read(value)?))
}
