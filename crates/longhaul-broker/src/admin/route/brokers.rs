//! Routes of the broker and its cluster: there is one of each.

use super::super::answer::{AdminResponse, Advertised};
use super::super::values::AdminCallError;
use super::{AdminAccess, AdminRequest, AdminRoute, Routed, Work, ask, superuser, tell, unknown};
use crate::backup::{BackupPasses, BackupProgress};
use crate::policies::CLUSTER;
use serde::Serialize;
use serde_json::json;

pub(super) fn brokers(asked: AdminRequest<'_>, path: &[&str]) -> Routed {
    superuser(match (asked.method, path) {
        ("GET", ["health" | "ready"]) => return Ok(health()),
        ("GET", ["version"]) => tell(|_| AdminResponse::text(env!("CARGO_PKG_VERSION"))),
        // Pulsar also returns all of these as texts.
        ("GET", ["configuration", "runtime"]) => tell(|advertised| {
            let message_bytes_max = advertised.message_bytes_max.to_string();
            AdminResponse::json(
                &json!({"clusterName": CLUSTER, "maxMessageSize": message_bytes_max}),
            )
        }),
        ("PUT", ["backup"]) => Work::Backup(|backup| {
            let (backup, BackupPasses { started_at, .. }) = running(backup)?;
            let pass = backup.ask();
            Ok(AdminResponse::json(&json!({"startedAt": started_at, "pass": pass})))
        }),
        ("GET", ["backup"]) => Work::Backup(|backup| Ok(AdminResponse::json(&running(backup)?.1))),
        _ => return Err(unknown(asked)),
    })
}

/// The backup and its passes, while it makes some.
fn running(
    backup: Option<&BackupProgress>,
) -> Result<(&BackupProgress, BackupPasses), AdminCallError> {
    let Some(backup) = backup else {
        let text = "this broker has no backup: start it with --broker-backup";
        return Err(AdminCallError::PreconditionFailed(text.to_owned()));
    };
    let passes = backup.passes();
    if passes.has_ended {
        let text = "the backup has ended, and stores nothing more: see the broker's log, and \
            restart the broker";
        return Err(AdminCallError::Internal(text.to_owned()));
    }
    Ok((backup, passes))
}

/// The health check.
pub(super) fn health() -> AdminRoute {
    AdminRoute {
        access: AdminAccess::Everybody,
        work: ask(|_| Ok(()), |(), _| AdminResponse::text("ok")),
    }
}

pub(super) fn clusters(asked: AdminRequest<'_>, path: &[&str]) -> Routed {
    superuser(match path {
        // The broker stores messages itself, without bookies.
        ["bookies", "all"] => tell(|_| AdminResponse::json(&json!({"bookies": []}))),
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
