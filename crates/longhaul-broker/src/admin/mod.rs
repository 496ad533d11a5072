//! The HTTP admin interface: the part of Pulsar's that a broker on one machine needs.
//!
//! - [`values`]: what the machine's methods for this interface take and give.
//! - [`policies`]: the policies of namespaces and topics, and how those of the levels combine;
//!   `policy_table`: their names, their JSON, and which of them are obeyed.
//! - [`stats`]: figures of topics, in the JSON that Pulsar's tools read.
//! - `route`: an endpoint in one place: from method, path, query and body to what the machine does
//!   and how that is shown. Pure.
//! - `internal`: ledgers and cursors in two forms more. Pure.
//! - `answer`: status, headers and body. Pure.
//! - [`call`]: how a call gets to the machine's thread, and its result back.
//! - `guard`: whom requests may come from, and whom they may be meant for. Pure.
//! - [`host`]: the one form of a host's name. Pure.
//! - `seats`: room for connections, and whose it is when there are too many.
//! - [`serve`]: connections, limits, and who may do what.
//!
//! It decides nothing about topics: it reads a request, calls a method of the machine, and writes
//! the answer.

mod answer;
mod broker_stats;
pub(crate) mod call;
mod guard;
mod internal;
mod message;
mod names;
pub(crate) mod policies;
mod policy_table;
#[cfg(test)]
mod rig;
mod route;
mod seats;
pub(crate) mod serve;
pub(crate) mod stats;
mod summary;
mod target;
mod text;
mod unobeyed;
pub(crate) mod values;

#[cfg(test)]
mod tests;

/// The name of the only cluster: that of Pulsar on one machine.
const CLUSTER: &str = "standalone";

pub(crate) use answer::Advertised;
pub(crate) use seats::Seats;

/// What the machine does for a request, if it is one that the machine is asked by.
#[cfg(test)]
pub(crate) fn work_of(
    method: &str,
    path: &str,
    query: Option<&str>,
    body: &[u8],
) -> Option<impl FnOnce(&mut crate::machine::BrokerMachine) + use<>> {
    let target = target::RequestTarget::parse(path, query).ok()?;
    let work = route::route(route::AdminRequest { method, target: &target, body }).ok()?.work;
    let is_asked = !matches!(work, route::Work::Tell(_));
    is_asked.then_some(move |machine: &mut crate::machine::BrokerMachine| match work {
        route::Work::Ask(work) => drop(work(machine)),
        route::Work::Read(find) => drop(find(machine)),
        route::Work::Metrics => drop(machine.metrics(None)),
        route::Work::Tell(_) => {}
    })
}
