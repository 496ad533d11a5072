//! A durable broker for one machine that speaks the Apache Pulsar binary protocol. Pulsar clients
//! of all languages work with it.
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
//! All data is kept in one directory ([`BrokerConfig::data`]), in a log that all topics share. A
//! publish is confirmed when it is on disk; so is an ack, if its consumer asks for confirmation.
//! `docs/storage.md` describes the files.
//!
//! Not supported: clustering, transactions, non-persistent topics, functions. Clients that use
//! these get an error that says so.
#![allow(
    unreachable_pub,
    reason = "modules say what their neighbours may use, this file what the world may"
)]

// The client of the other tests refers to the crate by name.
#[cfg(test)]
extern crate self as longhaul_broker;

mod admin;
mod auth;
mod backup;
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
mod policies;
pub mod rescue;
mod server;
#[cfg(test)]
mod simulation;
mod state;
#[cfg(feature = "testing")]
mod stepped;
mod throttle;
mod upkeep;

pub use auth::{AuthConfig, AuthConfigError, TokenKey};
pub use backup::BackupProgress;
pub use config::BrokerConfig;
pub use defaults::{TopicDefaults, TopicPattern};
pub use error::{BrokerError, StartError};
pub use log::{CompactedError, OpenError, WriteError};
pub use longhaul_http::{TlsConfig, TlsError};
pub use server::{Broker, open_files_max};

/// Internals for the project's own tests and benchmarks. Not a stable interface.
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod internals {
    /// The log, and simulated disks.
    pub mod log {
        pub use crate::log::*;
    }

    /// The broker's machine and log, driven step by step.
    pub mod stepped {
        pub use crate::stepped::*;
    }
}

/// Tests the examples of the package's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
