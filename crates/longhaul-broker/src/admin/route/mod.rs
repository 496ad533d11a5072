//! From method, path, query and body to what is asked of the core. Pure.

mod brokers;
mod namespaces;
mod schemas;
mod topics;

use super::answer::BUNDLE;
use super::policy_json::Spec;
use super::request::{AdminError, AdminRequest, NamespaceCall};
use super::target::Target;
use super::{CLUSTER, names};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// What is nested deeper is no policy. What is stored wraps a policy into a few objects more, and is read by a parser that has a limit, too.
const JSON_DEPTH_MAX: usize = 32;

/// A request, apart from who sends it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    pub(super) method: &'a str,
    pub(super) target: &'a Target,
    pub(super) body: &'a [u8],
}

/// What a request leads to.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Route {
    /// Who may.
    pub(super) access: Access,
    /// What is done.
    pub(super) work: Work,
}

/// Who may, where tokens are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Everybody: what tells a load balancer that the broker lives.
    Everybody,
    /// Whoever has a valid token.
    Authenticated,
    /// Whoever may publish to or read this topic: what clients with an HTTP service URL ask.
    User {
        /// Its full name.
        topic: String,
    },
    /// These, and whoever may see all figures.
    Viewer {
        /// The topic's full name.
        topic: String,
    },
    /// Superusers.
    Superuser,
}

/// What is done.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Work {
    /// The core is asked, and its reply shown.
    Ask(AdminRequest, Show),
    /// The answer is known.
    Tell(Known),
}

/// How a reply is shown, where that does not follow from the reply.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Show {
    /// It does.
    AsIs,
    /// `ok` in place of nothing.
    Ok,
    /// A tenant among all of them.
    Tenant(String),
    /// One policy of a topic.
    Policy {
        /// Which.
        spec: Spec,
        /// The one in force, instead of the topic's own.
        applied: bool,
    },
    /// One policy of a namespace.
    NamespacePolicy(Spec),
    /// Partitions each, or their sum alone.
    PartitionedStats {
        /// Partitions each.
        per_partition: bool,
    },
    /// As the answer to whoever stores a schema.
    NewSchema,
    /// The bundles of a namespace.
    Bundles,
    /// All topics by namespace and bundle.
    Topics,
    /// As Pulsar's monitoring has figures.
    Monitoring,
    /// As for a load balancer.
    LoadReport,
    /// The bundles that are in use.
    OwnedNamespaces,
}

/// Answers that need no core.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Known {
    /// A word.
    Text(&'static str),
    /// Any JSON.
    Json(Value),
    /// Where clients find topics.
    Lookup,
    /// The address of this interface.
    Brokers,
    /// The same, as of the broker that leads.
    Leader,
    /// The only cluster.
    Cluster,
    /// Settings that clients read.
    Configuration,
}

type Routed = Result<Route, AdminError>;

/// Finds what a request leads to.
pub(super) fn route(asked: Asked<'_>) -> Routed {
    let segments: Vec<&str> = asked.target.segments.iter().map(String::as_str).collect();
    match segments.as_slice() {
        ["admin", "v2", path @ ..] => admin(asked, path),
        ["lookup", "v2", "topic", "persistent", tenant, namespace, topic]
            if asked.method == "GET" =>
        {
            user(names::topic(tenant, namespace, topic)?, Work::Tell(Known::Lookup))
        }
        ["lookup", "v2", "topic", "persistent", tenant, namespace, topic, "bundle"]
            if asked.method == "GET" =>
        {
            user(names::topic(tenant, namespace, topic)?, Work::Tell(Known::Text(BUNDLE)))
        }
        ["metrics"] if asked.method == "GET" => {
            let work = as_is(AdminRequest::Metrics { viewer: None });
            Ok(Route { access: Access::Authenticated, work })
        }
        ["status.html"] if asked.method == "GET" => everybody(ask_ok(AdminRequest::Health)),
        _ => Err(unknown(asked)),
    }
}

fn admin(asked: Asked<'_>, path: &[&str]) -> Routed {
    match (asked.method, path) {
        (_, ["brokers", path @ ..]) => brokers::brokers(asked, path),
        (_, ["broker-stats", path @ ..]) => brokers::stats(asked, path),
        // What is stored lies with the broker itself.
        ("GET", ["bookies", "all"]) => tell(Known::Json(json!({"bookies": []}))),
        ("GET", ["clusters"]) => tell(Known::Json(json!([CLUSTER]))),
        ("GET", ["clusters", cluster]) if *cluster == CLUSTER => tell(Known::Cluster),
        (_, ["tenants", ..]) => namespaces::tenants(asked, path),
        (_, ["namespaces", ..]) => namespaces::namespaces(asked, path),
        ("GET", ["persistent", tenant, namespace]) => {
            namespaces::ask(tenant, namespace, NamespaceCall::Topics)
        }
        ("GET", ["persistent", tenant, namespace, "partitioned"]) => {
            namespaces::ask(tenant, namespace, NamespaceCall::PartitionedTopics)
        }
        (_, ["persistent", tenant, namespace, topic, path @ ..]) => {
            topics::topics(asked, [tenant, namespace, topic], path)
        }
        (_, ["schemas", tenant, namespace, topic, path @ ..]) => {
            schemas::schemas(asked, [tenant, namespace, topic], path)
        }
        (_, ["non-persistent", ..]) => {
            let text = "non-persistent topics are not supported by this broker: use persistent://";
            Err(AdminError::NotFound(text.to_owned()))
        }
        _ => Err(unknown(asked)),
    }
}

fn superuser(work: Work) -> Routed {
    Ok(Route { access: Access::Superuser, work })
}

fn everybody(work: Work) -> Routed {
    Ok(Route { access: Access::Everybody, work })
}

fn user(topic: String, work: Work) -> Routed {
    Ok(Route { access: Access::User { topic }, work })
}

fn viewer(topic: String, work: Work) -> Routed {
    Ok(Route { access: Access::Viewer { topic }, work })
}

fn tell(known: Known) -> Routed {
    superuser(Work::Tell(known))
}

const fn as_is(request: AdminRequest) -> Work {
    Work::Ask(request, Show::AsIs)
}

const fn ask_ok(request: AdminRequest) -> Work {
    Work::Ask(request, Show::Ok)
}

/// What is said to whoever asks for a part of Pulsar's interface that is not there.
fn unknown(asked: Asked<'_>) -> AdminError {
    let path: String = asked.target.segments.join("/").chars().take(200).collect();
    let shown: String = path.chars().flat_map(char::escape_default).collect();
    let method = asked.method;
    AdminError::NotFound(format!("{method} /{shown} is not part of this broker's admin interface"))
}

/// The body as JSON; nothing is `null`.
fn json_body(body: &[u8]) -> Result<Value, AdminError> {
    if body.trim_ascii().is_empty() {
        return Ok(Value::Null);
    }
    let value = parse(body)?;
    if is_deeper(&value, JSON_DEPTH_MAX) {
        let text = format!("the body is nested more than {JSON_DEPTH_MAX} deep");
        return Err(AdminError::BadRequest(text));
    }
    Ok(value)
}

/// Whether lists and objects lie within each other more than so often. A value has come through a parser that has a limit of its own.
fn is_deeper(value: &Value, depth: usize) -> bool {
    let deeper = |it: &Value| is_deeper(it, depth - 1);
    match value {
        Value::Array(items) => depth == 0 || items.iter().any(deeper),
        Value::Object(fields) => depth == 0 || fields.values().any(deeper),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, AdminError> {
    serde_json::from_slice(body)
        .map_err(|error| AdminError::BadRequest(format!("the body cannot be read: {error}")))
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, AdminError> {
    text.parse().map_err(|_| {
        let shown: String = text.chars().take(32).flat_map(char::escape_default).collect();
        AdminError::BadRequest(format!("`{shown}` is not a number that is possible here"))
    })
}

#[cfg(test)]
mod tests;
