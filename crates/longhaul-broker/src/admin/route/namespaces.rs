//! Paths of tenants and namespaces.

use super::super::answer::Answer;
use super::super::policies::Action;
use super::super::policy_table::{Level, Policy, of_namespace, read_namespace};
use super::super::values::AdminError;
use super::super::{CLUSTER, broker_stats, names};
use super::brokers::BUNDLE;
use super::{Asked, Routed, Work, ask, done, json, json_body, parse, superuser, tell, unknown};
use serde_json::{Value, json};

pub(super) fn tenants(asked: Asked<'_>, path: &[&str]) -> Routed {
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
        "GET" => ask(
            move |machine| {
                let missing = || AdminError::NotFound("Tenant does not exist".to_owned());
                machine.tenants().contains(&tenant).then_some(()).ok_or_else(missing)
            },
            |(), _| Answer::json(&json!({"adminRoles": [], "allowedClusters": [CLUSTER]})),
        ),
        "PUT" => done(move |machine| machine.create_tenant(&tenant)),
        "DELETE" => done(move |machine| machine.delete_tenant(&tenant)),
        _ => return Err(unknown(asked)),
    })
}

/// Full names of the topics of a namespace: those without partitions and single partitions, or the whole of partitioned ones.
pub(super) fn topics(tenant: &str, namespace: &str, partitioned: bool) -> Routed {
    let namespace = names::namespace(tenant, namespace)?;
    superuser(json(move |machine| {
        if partitioned {
            machine.partitioned_topics_of(&namespace)
        } else {
            machine.topics_of(&namespace)
        }
    }))
}

pub(super) fn namespaces(asked: Asked<'_>, path: &[&str]) -> Routed {
    let (tenant, name, rest) = match path {
        [tenant] if asked.method == "GET" => {
            let tenant = names::plain("tenant", tenant)?.to_owned();
            return superuser(json(move |machine| machine.namespaces_of(&tenant)));
        }
        [tenant, name, rest @ ..] => (tenant, name, rest),
        _ => return Err(unknown(asked)),
    };
    let namespace = names::namespace(tenant, name)?;
    superuser(match (asked.method, rest) {
        ("PUT", []) => {
            let policies = read_namespace(json_body(asked.body)?)?;
            done(move |machine| machine.create_namespace(&namespace, policies))
        }
        ("DELETE", []) => {
            let force = asked.target.flag("force");
            done(move |machine| machine.delete_namespace(&namespace, force))
        }
        ("GET", []) => ask(
            move |machine| machine.namespace_policies(&namespace),
            |policies, _| Answer::json(&of_namespace(&policies)),
        ),
        // Clients with an HTTP service URL say which ones they mean.
        ("GET", ["topics"]) if asked.target.value("mode") == Some("NON_PERSISTENT") => {
            tell(|_| Answer::json(&json!([])))
        }
        ("GET", ["topics"]) => return topics(tenant, name, false),
        ("PUT", ["unload"] | [BUNDLE, "unload"]) => {
            done(move |machine| machine.unload_namespace(&namespace))
        }
        // It is one, which can only be asked for if there is the namespace.
        ("GET", ["bundles"]) => ask(
            move |machine| machine.namespace_policies(&namespace),
            |_, _| Answer::json(&broker_stats::bundles()),
        ),
        (_, ["permissions", path @ ..]) => permissions(asked, namespace, path)?,
        (_, [segment]) => policy(asked, namespace, segment)?,
        _ => return Err(unknown(asked)),
    })
}

fn permissions(asked: Asked<'_>, namespace: String, path: &[&str]) -> Result<Work, AdminError> {
    Ok(match (asked.method, path) {
        ("GET", []) => json(move |machine| Ok(machine.namespace_grants(&namespace)?.shown())),
        ("POST", [role]) => {
            let (role, actions): (_, Vec<Action>) = (names::role(role)?, parse(asked.body)?);
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

fn policy(asked: Asked<'_>, namespace: String, segment: &str) -> Result<Work, AdminError> {
    let policy = Policy::find(Level::Namespace, segment, asked.target.value("backlogQuotaType"));
    let policy = policy.ok_or_else(|| unknown(asked))?;
    let value = match asked.method {
        "GET" => {
            return Ok(ask(
                move |machine| machine.namespace_policies(&namespace),
                |policies, _| Answer::maybe(policy.value(&policies)),
            ));
        }
        "POST" | "PUT" => json_body(asked.body)?,
        "DELETE" => Value::Null,
        _ => return Err(unknown(asked)),
    };
    let change = policy.read(value)?;
    Ok(done(move |machine| machine.set_namespace_policy(&namespace, change)))
}
