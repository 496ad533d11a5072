//! From the core's reply to status, headers and body. Pure.

use super::policy_json::of_namespace;
use super::request::{AdminError, AdminReply, Position, StoredSchema};
use super::route::{Known, Show};
use super::stats::TopicStats;
use super::summary::PartitionedStats;
use super::{CLUSTER, broker_stats, message};
use crate::metrics;
use bytes::Bytes;
use hyper::StatusCode;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// Addresses and sizes that clients are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Advertised {
    /// `pulsar://host:port`.
    pub(crate) broker_url: String,
    /// `pulsar+ssl://host:port`, where there is one.
    pub(crate) broker_url_tls: Option<String>,
    /// `http://host:port` of this interface, or the next where it is encrypted alone.
    pub(crate) http_url: String,
    /// `https://host:port` of this interface, where there is one.
    pub(crate) http_url_tls: Option<String>,
    /// Largest message that the broker takes.
    pub(crate) message_bytes_max: usize,
}

/// What is sent back.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) content_type: Option<&'static str>,
    /// Names in lower case.
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Bytes,
}

/// What every namespace consists of.
pub(super) const BUNDLE: &str = "0x00000000_0xffffffff";

const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

impl Answer {
    fn empty() -> Self {
        let (status, body) = (StatusCode::NO_CONTENT, Bytes::new());
        Self { status, content_type: None, headers: Vec::new(), body }
    }

    fn body(content_type: &'static str, body: impl Into<Bytes>) -> Self {
        let (status, body) = (StatusCode::OK, body.into());
        Self { status, content_type: Some(content_type), headers: Vec::new(), body }
    }

    fn json(value: &impl Serialize) -> Self {
        match serde_json::to_vec(value) {
            Ok(body) => Self::body(JSON, body),
            Err(error) => AdminError::Internal(format!("no JSON: {error}")).into(),
        }
    }

    /// An answer that is no more than a status and why.
    pub(super) fn refusal(status: StatusCode, reason: &str) -> Self {
        let body = json!({ "reason": reason }).to_string();
        Self { status, ..Self::body(JSON, body) }
    }
}

impl From<AdminError> for Answer {
    fn from(error: AdminError) -> Self {
        let status = match &error {
            AdminError::BadRequest(_) => StatusCode::BAD_REQUEST,
            AdminError::Forbidden(_) => StatusCode::FORBIDDEN,
            AdminError::NotFound(_) => StatusCode::NOT_FOUND,
            AdminError::Conflict(_) => StatusCode::CONFLICT,
            AdminError::PreconditionFailed(_) => StatusCode::PRECONDITION_FAILED,
            AdminError::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
            AdminError::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::refusal(status, &error.to_string())
    }
}

/// Where clients with an HTTP service URL find a topic. Those that encrypt read the fields with `Tls`; older ones read `Ssl`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Lookup<'a> {
    broker_url: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    broker_url_tls: Option<&'a str>,
    http_url: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    http_url_tls: Option<&'a str>,
    native_url: &'a str,
    broker_url_ssl: &'a str,
}

/// Answers without the core.
pub(super) fn known(known: Known, advertised: &Advertised) -> Answer {
    let Advertised { broker_url, broker_url_tls, http_url, http_url_tls, message_bytes_max } =
        advertised;
    let tls = broker_url_tls.as_deref().unwrap_or_default();
    match known {
        Known::Text(text) => Answer::body(TEXT, text),
        Known::Json(value) => Answer::json(&value),
        Known::Lookup => Answer::json(&Lookup {
            broker_url,
            broker_url_tls: broker_url_tls.as_deref(),
            http_url,
            http_url_tls: http_url_tls.as_deref(),
            native_url: broker_url,
            broker_url_ssl: tls,
        }),
        Known::Brokers => Answer::json(&[host_of(http_url)]),
        Known::Leader => Answer::json(&broker_stats::leader(advertised)),
        Known::Cluster => Answer::json(&json!({
            "serviceUrl": http_url,
            "serviceUrlTls": http_url_tls.as_deref().unwrap_or_default(),
            "brokerServiceUrl": broker_url,
            "brokerServiceUrlTls": tls,
        })),
        // All of these are texts to Pulsar, too.
        Known::Configuration => Answer::json(&json!({
            "clusterName": CLUSTER,
            "maxMessageSize": message_bytes_max.to_string(),
        })),
    }
}

/// Shows what the core answers.
pub(super) fn reply(reply: AdminReply, show: &Show, advertised: &Advertised) -> Answer {
    let owner = host_of(&advertised.http_url);
    match (reply, show) {
        (AdminReply::Done, Show::Ok) => Answer::body(TEXT, "ok"),
        (AdminReply::Done, _) => Answer::empty(),
        (AdminReply::Names(tenants), Show::Tenant(name)) => tenant(&tenants, name),
        (AdminReply::Names(names), _) => Answer::json(&names),
        (AdminReply::Partitions(count), _) => Answer::json(&partitions(count)),
        (AdminReply::Stats(stats), _) => Answer::json(&owned(*stats, owner)),
        (AdminReply::PartitionedStats { partitions: count, stats }, show) => {
            let stats = stats.into_iter().map(|(name, stats)| (name, owned(stats, owner)));
            let each = !matches!(show, Show::PartitionedStats { per_partition: false });
            Answer::json(&PartitionedStats::new(count, stats.collect(), each))
        }
        (AdminReply::InternalStats(stats), _) => Answer::json(&stats),
        (AdminReply::Compaction(status), _) => Answer::json(&status),
        (AdminReply::MessageId(position), _) => Answer::json(&message_id(position)),
        (AdminReply::MessageIds(positions), _) => Answer::json(
            &positions
                .iter()
                .map(|(&at, &it)| (at.to_string(), message_id(it)))
                .collect::<Map<_, _>>(),
        ),
        (AdminReply::Properties(properties), _) => Answer::json(&properties),
        (AdminReply::AllStats(topics), show) => Answer::json(&all_stats(topics, show, advertised)),
        (AdminReply::Schema(schema), _) => Answer::json(&schema),
        (AdminReply::Schemas(schemas), _) => schemas_answer(&schemas),
        (AdminReply::SchemaVersion(version), Show::NewSchema) => {
            Answer::json(&json!({"version": {"version": version}}))
        }
        (AdminReply::SchemaVersion(version), _) => Answer::json(&json!({ "version": version })),
        (AdminReply::Message(stored), _) => match message::show(&stored) {
            Ok((headers, body)) => {
                Answer { headers, ..Answer::body("application/octet-stream", body) }
            }
            Err(error) => error.into(),
        },
        (AdminReply::Policies(policies), Show::NamespacePolicy(spec)) => {
            value(spec.value(&policies))
        }
        (AdminReply::Policies(_), Show::Bundles) => Answer::json(&broker_stats::bundles()),
        (AdminReply::Policies(policies), _) => Answer::json(&of_namespace(&policies)),
        (AdminReply::PolicyLevels(levels), Show::Policy { spec, applied: false }) => {
            value(spec.value(&levels.topic))
        }
        (AdminReply::PolicyLevels(levels), Show::Policy { spec, .. }) => {
            value(spec.value(&levels.applied()))
        }
        (AdminReply::PolicyLevels(levels), _) => Answer::json(&of_namespace(&levels.applied())),
        (AdminReply::Grants(grants), _) => {
            let roles: Map<String, Value> =
                grants.roles().map(|(role, actions)| (role.to_owned(), json!(actions))).collect();
            Answer::json(&roles)
        }
        (AdminReply::Metrics(snapshot), _) => Answer::body(PROMETHEUS, metrics::render(&snapshot)),
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the others are about other replies")]
fn all_stats(topics: broker_stats::Topics, show: &Show, advertised: &Advertised) -> Value {
    match show {
        Show::Monitoring => broker_stats::monitoring(&topics),
        Show::LoadReport => broker_stats::load_report(&topics, advertised),
        Show::OwnedNamespaces => broker_stats::owned_namespaces(&topics),
        _ => broker_stats::topics(topics),
    }
}

fn owned(stats: TopicStats, owner: &str) -> TopicStats {
    TopicStats { owner_broker: owner.to_owned(), ..stats }
}

fn partitions(count: u32) -> Value {
    json!({ "partitions": count, "deleted": false })
}

fn message_id(Position { ledger, entry }: Position) -> Value {
    json!({"ledgerId": ledger, "entryId": entry, "partitionIndex": -1})
}

fn schemas_answer(schemas: &[StoredSchema]) -> Answer {
    Answer::json(&json!({ "getSchemaResponses": schemas }))
}

/// What is not set is no content.
fn value(value: Option<Value>) -> Answer {
    value.map_or_else(Answer::empty, |value| Answer::json(&value))
}

fn tenant(tenants: &[String], name: &str) -> Answer {
    if tenants.iter().any(|tenant| tenant == name) {
        Answer::json(&json!({"adminRoles": [], "allowedClusters": [CLUSTER]}))
    } else {
        AdminError::NotFound("Tenant does not exist".to_owned()).into()
    }
}

pub(super) fn host_of(url: &str) -> &str {
    url.split_once("://").map_or(url, |(_, host)| host).trim_end_matches('/')
}
