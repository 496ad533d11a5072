//! HTTP gateway of longhaul: tasks for submitters and workers in any language.
//!
//! [`Server::start`] serves a [`longhaul::Client`] at an address; [`ServerConfig`] has all settings
//! with their defaults. A gateway holds no state of its own beyond what is in the log: several run
//! side by side, any of them answers any request, and each may die at any time.
//!
//! - `shell` accepts connections, and checks each request before a route sees it;
//! - `core` is what can be done to queues and tasks, apart from HTTP;
//! - `dialects` has the routes of other task queues, on the same `core`;
//! - `v1` holds the routes of the native API, one file per resource; `route` is the list of all
//!   routes, of which the OpenAPI document is made.

mod auth;
mod clock;
mod config;
mod core;
mod dialects;
mod errors;
mod page;
mod problem;
mod reach;
mod reload;
mod route;
mod server;
mod shell;
mod telemetry;
#[cfg(test)]
mod testing;
mod v1;

pub use auth::{TokenEntry, TokenFile, TokenFileError, TokenScope};
pub use config::{
    DEFAULT_PORT, Dashboard, Dialect, RateLimit, ServerConfig, ServerConfigError, ServerLimits,
};
pub use longhaul_http::{TlsConfig, TlsError};
pub use page::MetricsPage;
pub use server::{Server, ServerStartError};

/// The examples of the page of the package.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
