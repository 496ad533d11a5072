//! The HTTP admin interface: the part of Pulsar's interface that a broker on one machine needs.
//!
//! - [`values`]: arguments and results of the machine's methods for this interface.
//! - `policy_table`: names of the [policies](crate::policies), their JSON, and which are obeyed.
//! - [`stats`]: statistics of topics, in the JSON that Pulsar's tools read.
//! - `route`: one place per endpoint: from method, path, query and body to the machine's work and
//!   the format of the result. Pure.
//! - `answer`: status, headers and body. Pure.
//! - [`call`]: calls to the machine's thread, and their results.
//! - `guard`: checks host and origin of requests. Pure.
//! - `seats`: limits connections, and chooses which one to close when there are too many.
//! - [`serve`]: connections, limits, and access control.
//!
//! This module decides nothing about topics: it reads a request, calls a method of the machine, and
//! writes the answer.

mod answer;
pub(crate) mod call;
mod guard;
mod message;
mod names;
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

pub(crate) use answer::Advertised;
pub(crate) use seats::Seats;

/// The machine's work for a request, if the machine handles it.
#[cfg(test)]
pub(crate) fn work_of(
    method: &str,
    path: &str,
    query: Option<&str>,
    body: &[u8],
) -> Option<impl FnOnce(&mut crate::machine::BrokerMachine) + use<>> {
    let target = target::RequestTarget::parse(path, query).ok()?;
    let work = route::route(route::AdminRequest { method, target: &target, body }).ok()?.work;
    let is_asked = !matches!(work, route::Work::Tell(_) | route::Work::Backup(_));
    is_asked.then_some(move |machine: &mut crate::machine::BrokerMachine| match work {
        route::Work::Ask(work) => drop(work(machine)),
        route::Work::Read(find) => drop(find(machine)),
        route::Work::Metrics(Some(selection)) => drop(machine.selected_metrics(None, &selection)),
        route::Work::Metrics(None) => drop(machine.metrics(None)),
        route::Work::Tell(_) | route::Work::Backup(_) => {}
    })
}
