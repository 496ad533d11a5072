//! The HTTP admin interface: the part of Pulsar's that a broker on one machine needs.
//!
//! - [`request`]: what may be asked of the broker's core, and what it answers. Pure types: no HTTP, no I/O.
//! - [`policies`]: the policies of namespaces and topics, and how those of the levels combine.
//! - [`stats`]: figures of topics, in the JSON that Pulsar's tools read.
//! - `route`: from method, path, query and body to a request. Pure.
//! - `answer`: from the core's reply to status and body. Pure.
//! - `guard`: whom requests may come from, and whom they may be meant for. Pure.
//! - [`host`]: the one form of a host's name. Pure.
//! - [`serve`]: connections, limits, and who may do what.
//!
//! It decides nothing about topics: it reads a request, asks the core, and writes the answer.

mod answer;
mod broker_stats;
mod guard;
pub(crate) mod host;
mod message;
mod names;
pub(crate) mod policies;
mod policy_json;
pub(crate) mod request;
mod route;
pub(crate) mod serve;
pub(crate) mod stats;
mod summary;
mod target;
mod text;
mod unobeyed;

#[cfg(test)]
mod tests;

/// The name of the only cluster: that of Pulsar on one machine.
const CLUSTER: &str = "standalone";

pub(crate) use answer::Advertised;
pub(crate) use guard::Guard;

/// What the core is asked by a call, if it is one that it answers.
#[cfg(test)]
pub(crate) fn request_of(
    method: &str,
    path: &str,
    query: Option<&str>,
    body: &[u8],
) -> Option<request::AdminRequest> {
    let target = target::Target::parse(path, query).ok()?;
    match route::route(route::Asked { method, target: &target, body }).ok()?.work {
        route::Work::Ask(request, _) => Some(request),
        route::Work::Tell(_) => None,
    }
}
