//! Paths of the broker itself, and of bundles: there is one of each.

use super::super::names;
use super::super::request::{AdminRequest, NamespaceCall};
use super::{
    Asked, CLUSTER, Known, Routed, Show, Work, ask_ok, everybody, superuser, tell, unknown,
};

pub(super) fn brokers(asked: Asked<'_>, path: &[&str]) -> Routed {
    match (asked.method, path) {
        ("GET", ["health" | "ready"]) => everybody(ask_ok(AdminRequest::Health)),
        ("GET", ["version"]) => tell(Known::Text(env!("CARGO_PKG_VERSION"))),
        ("GET", []) => tell(Known::Brokers),
        ("GET", ["leaderBroker"]) => tell(Known::Leader),
        ("GET", [cluster]) if *cluster == CLUSTER => tell(Known::Brokers),
        ("GET", [cluster, _, "ownedNamespaces"]) if *cluster == CLUSTER => {
            figures(Show::OwnedNamespaces)
        }
        ("GET", ["configuration", "runtime"]) => tell(Known::Configuration),
        _ => Err(unknown(asked)),
    }
}

pub(super) fn stats(asked: Asked<'_>, path: &[&str]) -> Routed {
    match (asked.method, path) {
        ("GET", ["topics" | "destinations"]) => figures(Show::Topics),
        ("GET", ["metrics"]) => figures(Show::Monitoring),
        ("GET", ["load-report"]) => figures(Show::LoadReport),
        _ => Err(unknown(asked)),
    }
}

fn figures(show: Show) -> Routed {
    superuser(Work::Ask(AdminRequest::AllStats, show))
}

/// A namespace is one bundle, which can only be asked for if there is the namespace.
pub(super) fn bundles(tenant: &str, namespace: &str) -> Routed {
    let namespace = names::namespace(tenant, namespace)?;
    let request = AdminRequest::Namespace { namespace, call: NamespaceCall::Policies };
    superuser(Work::Ask(request, Show::Bundles))
}
