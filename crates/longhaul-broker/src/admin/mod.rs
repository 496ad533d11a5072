//! The HTTP admin interface: the part of Pulsar's that a broker on one machine needs.
//!
//! - [`request`]: what may be asked of the broker's core, and what it answers. Pure types: no HTTP, no I/O.
//! - [`policies`]: the policies of namespaces and topics, and how those of the levels combine.
//! - [`stats`]: figures of topics, in the JSON that Pulsar's tools read.
//!
//! It decides nothing about topics: it reads a request, asks the core, and writes the answer.

pub(crate) mod policies;
pub(crate) mod request;
pub(crate) mod stats;
mod text;
