//! A durable broker for one machine that speaks the Apache Pulsar binary protocol: any Pulsar client of any language talks to it.

#[allow(dead_code, reason = "nobody serves it yet")]
mod admin;
pub mod auth;
mod log;
#[allow(dead_code, reason = "nobody fills it yet")]
mod metrics;
pub mod tls;
