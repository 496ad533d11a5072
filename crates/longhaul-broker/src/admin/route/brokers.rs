//! Paths of the broker itself, its cluster and its figures: there is one of each.

use super::super::answer::{Advertised, Answer, host_of};
use super::super::broker_stats;
use super::super::values::AdminError;
use super::super::{CLUSTER, broker_stats::Topics};
use super::{Access, Asked, Route, Routed, ask, superuser, tell, unknown};
use serde::Serialize;
use serde_json::json;

pub(super) use super::super::broker_stats::BUNDLE;

pub(super) fn brokers(asked: Asked<'_>, path: &[&str]) -> Routed {
    superuser(match (asked.method, path) {
        ("GET", ["health" | "ready"]) => return Ok(health()),
        ("GET", ["version"]) => tell(|_| Answer::text(env!("CARGO_PKG_VERSION"))),
        ("GET", ["leaderBroker"]) => {
            tell(|advertised| Answer::json(&broker_stats::leader(advertised)))
        }
        ("GET", [] | [CLUSTER]) => {
            tell(|advertised| Answer::json(&[host_of(&advertised.http_url)]))
        }
        ("GET", [CLUSTER, _, "ownedNamespaces"]) => {
            figures(|topics, _| Answer::json(&broker_stats::owned_namespaces(&topics)))
        }
        // All of these are texts to Pulsar, too.
        ("GET", ["configuration", "runtime"]) => tell(|advertised| {
            let message_bytes_max = advertised.message_bytes_max.to_string();
            Answer::json(&json!({"clusterName": CLUSTER, "maxMessageSize": message_bytes_max}))
        }),
        // They are arguments of the program, of which none changes while it runs.
        ("GET", ["configuration"]) => tell(|_| Answer::json(&json!([]))),
        ("GET", ["configuration", "values"]) => tell(|_| Answer::json(&json!({}))),
        ("POST" | "DELETE", ["configuration", ..]) => {
            let text = "this broker's settings are arguments of its program: start it with others";
            return Err(AdminError::PreconditionFailed(text.to_owned()));
        }
        // What Pulsar keeps elsewhere lies with the broker.
        ("GET", ["internal-configuration"]) => tell(|_| {
            Answer::json(&json!({
                "metadataStoreUrl": "",
                "configurationMetadataStoreUrl": "",
                "ledgersRootPath": "",
                "bookkeeperMetadataServiceUri": "",
            }))
        }),
        // It is looked at with every message, and every second.
        ("GET", ["backlog-quota-check"]) => tell(|_| Answer::empty()),
        _ => return Err(unknown(asked)),
    })
}

/// Whether it answers.
pub(super) fn health() -> Route {
    Route { access: Access::Everybody, work: ask(|_| Ok(()), |(), _| Answer::text("ok")) }
}

pub(super) fn stats(asked: Asked<'_>, path: &[&str]) -> Routed {
    superuser(match (asked.method, path) {
        ("GET", ["topics" | "destinations"]) => {
            figures(|topics, _| Answer::json(&broker_stats::topics(topics)))
        }
        ("GET", ["metrics"]) => {
            figures(|topics, _| Answer::json(&broker_stats::monitoring(&topics)))
        }
        ("GET", ["load-report"]) => figures(|topics, advertised| {
            Answer::json(&broker_stats::load_report(&topics, advertised))
        }),
        _ => return Err(unknown(asked)),
    })
}

fn figures(show: impl FnOnce(Topics, &Advertised) -> Answer + Send + 'static) -> super::Work {
    ask(|machine| Ok(machine.all_stats()), show)
}

pub(super) fn clusters(asked: Asked<'_>, path: &[&str]) -> Routed {
    superuser(match path {
        // What is stored lies with the broker itself.
        ["bookies", "all"] => tell(|_| Answer::json(&json!({"bookies": []}))),
        ["bookies", "racks-info"] => tell(|_| Answer::json(&json!({}))),
        ["resourcegroups"] => tell(|_| Answer::json(&json!([]))),
        ["clusters", CLUSTER, "failureDomains"] => tell(|_| Answer::json(&json!({}))),
        ["clusters"] => tell(|_| Answer::json(&[CLUSTER])),
        ["clusters", CLUSTER] => tell(|advertised| {
            Answer::json(&json!({
                "serviceUrl": advertised.http_url,
                "serviceUrlTls": advertised.http_url_tls.as_deref().unwrap_or_default(),
                "brokerServiceUrl": advertised.broker_url,
                "brokerServiceUrlTls": advertised.broker_url_tls.as_deref().unwrap_or_default(),
            }))
        }),
        _ => return Err(unknown(asked)),
    })
}

/// Where clients with an HTTP service URL find a topic. Those that encrypt read the fields with
/// `Tls`; older ones read `Ssl`.
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

pub(super) fn lookup(advertised: &Advertised) -> Answer {
    Answer::json(&Lookup {
        broker_url: &advertised.broker_url,
        broker_url_tls: advertised.broker_url_tls.as_deref(),
        http_url: &advertised.http_url,
        http_url_tls: advertised.http_url_tls.as_deref(),
        native_url: &advertised.broker_url,
        broker_url_ssl: advertised.broker_url_tls.as_deref().unwrap_or_default(),
    })
}
