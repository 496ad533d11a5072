//! A durable broker for one machine that speaks the Apache Pulsar binary protocol: any Pulsar client of any language talks to it.
#![cfg_attr(
    not(feature = "testing"),
    allow(
        dead_code,
        unreachable_pub,
        unused_imports,
        reason = "the feature `testing` makes the inner modules public, for simulation and measurement"
    )
)]

mod admin;
mod auth;
#[cfg(not(feature = "testing"))]
mod log;
mod machine;
mod metrics;
mod name;
mod state;
mod tls;
// What the project's own tests may reach. Not a stable interface.
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod log;
