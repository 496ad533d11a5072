//! A durable broker for one machine that speaks the Apache Pulsar binary protocol: any Pulsar
//! client of any language talks to it.
//!
//! ```
//! use longhaul_broker::{Broker, BrokerConfig};
//!
//! // Free ports, and a temporary directory: what a test needs.
//! let broker = Broker::start(BrokerConfig::default())?;
//! println!("clients connect to {}", broker.service_url());
//! broker.shutdown()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Everything is kept in one directory ([`BrokerConfig::data`]), in a log that all topics share: a
//! publish is confirmed when the disk has it, and so are acks whose consumers ask for that.
//! `docs/storage.md` describes the files.
//!
//! What it does not have: clustering, transactions, non-persistent topics, functions. Clients that
//! ask for these get an error that says so.
#![allow(
    unreachable_pub,
    reason = "modules say what their neighbours may use, this file what the world may"
)]

// The client of the other tests names the crate.
#[cfg(test)]
extern crate self as longhaul_broker;

mod admin;
mod auth;
mod clock;
mod compaction;
mod config;
mod defaults;
mod error;
#[cfg(test)]
mod hostile;
mod ids;
mod key_hash;
#[cfg(test)]
mod kit;
mod log;
mod machine;
mod metrics;
mod name;
mod pattern;
pub mod rescue;
mod server;
#[cfg(test)]
mod simulation;
mod state;
#[cfg(feature = "testing")]
mod stepped;

pub use auth::{AuthConfig, AuthConfigError, TokenKey};
pub use config::BrokerConfig;
pub use defaults::{TopicDefaults, TopicPattern};
pub use error::{BrokerError, StartError};
pub use log::{CompactedError, OpenError, WriteError};
pub use longhaul_http::{TlsConfig, TlsError};
pub use server::{Broker, open_files_max};

/// What the project's own tests and measurements reach. Not a stable interface.
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod internals {
    /// The log, and disks that are simulated.
    pub mod log {
        pub use crate::log::*;
    }

    /// The broker's machine and log, driven step by step.
    pub mod stepped {
        pub use crate::stepped::*;
    }
}

/// The examples of the page of the package.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
