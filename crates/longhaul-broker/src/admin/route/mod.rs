//! Maps method, path, query and body to the work of an endpoint: one place per endpoint. Pure.
//!
//! An endpoint states who may call it, what the machine does on its own thread, and how the result
//! is formatted. Formatting runs on another thread, where there is time to write megabytes of JSON.

mod access;
mod brokers;
mod namespaces;
mod schemas;
mod topics;

use super::answer::{AdminResponse, Advertised};
use super::names;
use super::policy_table::{PolicyRow, PolicyScope};
use super::target::RequestTarget;
use super::values::{AdminCallError, StoredEntryLocation};
use crate::backup::BackupProgress;
use crate::machine::BrokerMachine;
use crate::metrics::MetricsSelection;
use crate::name::TopicName;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub(super) use access::access_of;

/// A request, without its sender.
#[derive(Clone, Copy, Debug)]
pub(super) struct AdminRequest<'a> {
    pub(super) method: &'a str,
    pub(super) target: &'a RequestTarget,
    pub(super) body: &'a [u8],
}

/// Result of routing a request.
pub(super) struct AdminRoute {
    /// Required permission.
    pub(super) access: AdminAccess,
    /// The work to do.
    pub(super) work: Work,
}

/// Permission for an endpoint, if tokens are required.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AdminAccess {
    /// Everybody: health checks of load balancers.
    Everybody,
    /// Roles with a valid token.
    Authenticated,
    /// Roles that may publish to or read this topic: requests of clients with an HTTP service URL.
    User(TopicName),
    /// Roles that may publish to this topic.
    Producer(TopicName),
    /// Like `User`, and roles that may see all metrics.
    Viewer(TopicName),
    /// Roles that may publish to or read all topics of this namespace. Pulsar asks for the second.
    Namespace(String),
    /// Administrators of this tenant, and superusers.
    Tenant(String),
    /// Superusers.
    Superuser,
}

/// Formats the result of a call.
pub(super) type Show = Box<dyn FnOnce(&Advertised) -> AdminResponse + Send>;

/// Work of the machine.
type Ask<T> = Box<dyn FnOnce(&mut BrokerMachine) -> Result<T, AdminCallError> + Send>;

/// Work about the backup.
type AskBackup = fn(Option<&BackupProgress>) -> Result<AdminResponse, AdminCallError>;

/// The work of an endpoint.
pub(super) enum Work {
    /// Calls the machine and formats the result.
    Ask(Ask<Show>),
    /// Calls the machine for an entry, which is then read and formatted.
    Read(Ask<StoredEntryLocation>),
    /// Returns the metrics that the client may see: all, or those of selected topics.
    Metrics(Option<MetricsSelection>),
    /// Returns a known answer.
    Tell(Show),
    /// Asks for a pass of the backup, or for its progress.
    Backup(AskBackup),
}

type Routed = Result<AdminRoute, AdminCallError>;

/// Routes a request.
pub(super) fn route(asked: AdminRequest<'_>) -> Routed {
    let segments: Vec<&str> = asked.target.segments.iter().map(String::as_str).collect();
    match (asked.method, segments.as_slice()) {
        (_, ["admin", "v2", path @ ..]) => admin(asked, path),
        ("GET", ["lookup", "v2", "topic", "persistent", tenant, namespace, topic]) => {
            user(names::topic([tenant, namespace, topic])?, tell(brokers::lookup))
        }
        ("GET", ["metrics"]) => {
            let (prefix, after) = (asked.target.value("topics"), asked.target.value("after"));
            let text = |value: Option<&str>| value.unwrap_or_default().to_owned();
            let selection = MetricsSelection { prefix: text(prefix), after: text(after) };
            let selection = prefix.or(after).map(|_| selection);
            Ok(AdminRoute { access: AdminAccess::Authenticated, work: Work::Metrics(selection) })
        }
        ("GET", ["status.html"]) => Ok(brokers::health()),
        _ => Err(unknown(asked)),
    }
}

fn admin(asked: AdminRequest<'_>, path: &[&str]) -> Routed {
    match (asked.method, path) {
        (_, ["brokers", path @ ..]) => brokers::brokers(asked, path),
        ("GET", ["bookies" | "clusters", ..]) => brokers::clusters(asked, path),
        (_, ["tenants", path @ ..]) => namespaces::tenants(asked, path),
        (_, ["namespaces", path @ ..]) => namespaces::namespaces(asked, path),
        ("GET", ["persistent", tenant, namespace]) => namespaces::topics(tenant, namespace, false),
        ("GET", ["persistent", tenant, namespace, "partitioned"]) => {
            namespaces::topics(tenant, namespace, true)
        }
        (_, ["persistent", tenant, namespace, topic, path @ ..]) => {
            topics::topics(asked, names::topic([tenant, namespace, topic])?, path)
        }
        (_, ["schemas", tenant, namespace, topic, path @ ..]) => {
            schemas::schemas(asked, names::topic([tenant, namespace, topic])?, path)
        }
        (_, ["non-persistent", ..]) => {
            let text = "non-persistent topics are not supported by this broker: use persistent://";
            Err(AdminCallError::NotFound(text.to_owned()))
        }
        _ => Err(unknown(asked)),
    }
}

const fn superuser(work: Work) -> Routed {
    Ok(AdminRoute { access: AdminAccess::Superuser, work })
}

fn administrator(tenant: &str, work: Work) -> Routed {
    Ok(AdminRoute { access: AdminAccess::Tenant(tenant.to_owned()), work })
}

const fn user(topic: TopicName, work: Work) -> Routed {
    Ok(AdminRoute { access: AdminAccess::User(topic), work })
}

const fn producer(topic: TopicName, work: Work) -> Routed {
    Ok(AdminRoute { access: AdminAccess::Producer(topic), work })
}

const fn viewer(topic: TopicName, work: Work) -> Routed {
    Ok(AdminRoute { access: AdminAccess::Viewer(topic), work })
}

fn tell(show: impl FnOnce(&Advertised) -> AdminResponse + Send + 'static) -> Work {
    Work::Tell(Box::new(show))
}

/// Runs `work` in the machine, and `show` formats the result.
fn ask<T: Send + 'static>(
    work: impl FnOnce(&mut BrokerMachine) -> Result<T, AdminCallError> + Send + 'static,
    show: impl FnOnce(T, &Advertised) -> AdminResponse + Send + 'static,
) -> Work {
    Work::Ask(Box::new(move |machine| {
        let result = work(machine)?;
        Ok(Box::new(move |advertised: &Advertised| show(result, advertised)))
    }))
}

/// Like `ask`, with the result as JSON.
fn json<T: Serialize + Send + 'static>(
    work: impl FnOnce(&mut BrokerMachine) -> Result<T, AdminCallError> + Send + 'static,
) -> Work {
    ask(work, |result, _| AdminResponse::json(&result))
}

/// Like `ask`, with an empty answer.
fn done(
    work: impl FnOnce(&mut BrokerMachine) -> Result<(), AdminCallError> + Send + 'static,
) -> Work {
    ask(work, |(), _| AdminResponse::empty())
}

/// The machine finds an entry, which is read and formatted.
fn read(
    work: impl FnOnce(&mut BrokerMachine) -> Result<StoredEntryLocation, AdminCallError>
    + Send
    + 'static,
) -> Work {
    Work::Read(Box::new(work))
}

/// The policy named by this segment of a path.
fn policy_row(
    asked: AdminRequest<'_>,
    scope: PolicyScope,
    segment: &str,
) -> Result<&'static PolicyRow, AdminCallError> {
    let policy = PolicyRow::find(scope, segment, asked.target.value("backlogQuotaType"));
    policy.ok_or_else(|| unknown(asked))
}

/// The error for an endpoint of Pulsar that this broker does not have.
fn unknown(asked: AdminRequest<'_>) -> AdminCallError {
    let path: String = asked.target.segments.join("/").chars().take(200).collect();
    let shown: String = path.chars().flat_map(char::escape_default).collect();
    let method = asked.method;
    AdminCallError::NotFound(format!(
        "{method} /{shown} is not part of this broker's admin interface"
    ))
}

/// The body as JSON; an empty body is `null`.
fn json_body(body: &[u8]) -> Result<Value, AdminCallError> {
    if body.trim_ascii().is_empty() {
        return Ok(Value::Null);
    }
    parse(body)
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, AdminCallError> {
    serde_json::from_slice(body)
        .map_err(|error| AdminCallError::BadRequest(format!("the body cannot be read: {error}")))
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, AdminCallError> {
    text.parse().map_err(|_| {
        let shown: String = text.chars().take(32).flat_map(char::escape_default).collect();
        AdminCallError::BadRequest(format!("`{shown}` is not a number that is possible here"))
    })
}

#[cfg(test)]
mod tests;
