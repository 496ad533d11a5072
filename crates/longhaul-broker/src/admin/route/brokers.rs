//! Routes of the broker, its cluster and its statistics: there is one of each.

use super::super::answer::{AdminResponse, Advertised, host_of};
use super::super::broker_stats;
use super::super::broker_stats::TopicStatsMap;
use super::super::values::AdminCallError;
use super::{AdminAccess, AdminRequest, AdminRoute, Routed, Work, ask, superuser, tell, unknown};
use crate::policies::CLUSTER;
use serde::Serialize;
use serde_json::json;

pub(super) use super::super::broker_stats::BUNDLE;

pub(super) fn brokers(asked: AdminRequest<'_>, path: &[&str]) -> Routed {
    superuser(match (asked.method, path) {
        ("GET", ["health" | "ready"]) => return Ok(health()),
        ("GET", ["version"]) => tell(|_| AdminResponse::text(env!("CARGO_PKG_VERSION"))),
        ("GET", ["leaderBroker"]) => {
            tell(|advertised| AdminResponse::json(&broker_stats::leader(advertised)))
        }
        ("GET", [] | [CLUSTER]) => {
            tell(|advertised| AdminResponse::json(&[host_of(&advertised.http_url)]))
        }
        ("GET", [CLUSTER, _, "ownedNamespaces"]) => {
            figures(|topics, _| AdminResponse::json(&broker_stats::owned_namespaces(&topics)))
        }
        // Pulsar also returns all of these as texts.
        ("GET", ["configuration", "runtime"]) => tell(|advertised| {
            let message_bytes_max = advertised.message_bytes_max.to_string();
            AdminResponse::json(
                &json!({"clusterName": CLUSTER, "maxMessageSize": message_bytes_max}),
            )
        }),
        // Settings are program arguments, none of which changes at runtime.
        ("GET", ["configuration"]) => tell(|_| AdminResponse::json(&json!([]))),
        ("GET", ["configuration", "values"]) => tell(|_| AdminResponse::json(&json!({}))),
        ("POST" | "DELETE", ["configuration", ..]) => {
            let text = "this broker's settings are arguments of its program: start it with others";
            return Err(AdminCallError::PreconditionFailed(text.to_owned()));
        }
        // Pulsar's metadata store is part of this broker.
        ("GET", ["internal-configuration"]) => tell(|_| {
            AdminResponse::json(&json!({
                "metadataStoreUrl": "",
                "configurationMetadataStoreUrl": "",
                "ledgersRootPath": "",
                "bookkeeperMetadataServiceUri": "",
            }))
        }),
        ("PUT", ["backup"]) => Work::Upkeep(Box::new(|upkeep| {
            upkeep.ask_backup().map(|pass| AdminResponse::json(&json!({"pass": pass})))
        })),
        ("GET", ["backup"]) => Work::Upkeep(Box::new(|upkeep| {
            upkeep.backup_status().map(|status| AdminResponse::json(&status))
        })),
        // Quotas are checked with every message, and every second.
        ("GET", ["backlog-quota-check"]) => tell(|_| AdminResponse::empty()),
        _ => return Err(unknown(asked)),
    })
}

/// The health check.
pub(super) fn health() -> AdminRoute {
    AdminRoute {
        access: AdminAccess::Everybody,
        work: ask(|_| Ok(()), |(), _| AdminResponse::text("ok")),
    }
}

pub(super) fn stats(asked: AdminRequest<'_>, path: &[&str]) -> Routed {
    superuser(match (asked.method, path) {
        ("GET", ["topics" | "destinations"]) => {
            figures(|topics, _| AdminResponse::json(&broker_stats::topics(topics)))
        }
        ("GET", ["metrics"]) => {
            figures(|topics, _| AdminResponse::json(&broker_stats::monitoring(&topics)))
        }
        ("GET", ["load-report"]) => figures(|topics, advertised| {
            AdminResponse::json(&broker_stats::load_report(&topics, advertised))
        }),
        _ => return Err(unknown(asked)),
    })
}

fn figures(
    show: impl FnOnce(TopicStatsMap, &Advertised) -> AdminResponse + Send + 'static,
) -> Work {
    ask(|machine| Ok(machine.all_stats()), show)
}

pub(super) fn clusters(asked: AdminRequest<'_>, path: &[&str]) -> Routed {
    superuser(match path {
        // The broker stores messages itself, without bookies.
        ["bookies", "all"] => tell(|_| AdminResponse::json(&json!({"bookies": []}))),
        ["bookies", "racks-info"] => tell(|_| AdminResponse::json(&json!({}))),
        ["resourcegroups"] => tell(|_| AdminResponse::json(&json!([]))),
        ["clusters", CLUSTER, "failureDomains"] => tell(|_| AdminResponse::json(&json!({}))),
        ["clusters"] => tell(|_| AdminResponse::json(&[CLUSTER])),
        ["clusters", CLUSTER] => tell(|advertised| {
            AdminResponse::json(&json!({
                "serviceUrl": advertised.http_url,
                "serviceUrlTls": advertised.http_url_tls.as_deref().unwrap_or_default(),
                "brokerServiceUrl": advertised.broker_url,
                "brokerServiceUrlTls": advertised.broker_url_tls.as_deref().unwrap_or_default(),
            }))
        }),
        _ => return Err(unknown(asked)),
    })
}

/// The broker of a topic, for clients with an HTTP service URL. TLS clients read the fields with
/// `Tls`, older ones `Ssl`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LookupData<'a> {
    broker_url: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    broker_url_tls: Option<&'a str>,
    http_url: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    http_url_tls: Option<&'a str>,
    native_url: &'a str,
    broker_url_ssl: &'a str,
}

pub(super) fn lookup(advertised: &Advertised) -> AdminResponse {
    AdminResponse::json(&LookupData {
        broker_url: &advertised.broker_url,
        broker_url_tls: advertised.broker_url_tls.as_deref(),
        http_url: &advertised.http_url,
        http_url_tls: advertised.http_url_tls.as_deref(),
        native_url: &advertised.broker_url,
        broker_url_ssl: advertised.broker_url_tls.as_deref().unwrap_or_default(),
    })
}
