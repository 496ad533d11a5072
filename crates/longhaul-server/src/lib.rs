//! HTTP gateway of longhaul: tasks for submitters and workers in any language.
//!
//! [`Server::start`] serves a [`longhaul::Client`] at an address; [`ServerConfig`] has all settings
//! with their defaults. A gateway has no state of its own beyond the log: several may run side by
//! side, any of them answers any request, and each may die at any time.
//!
//! - `shell` accepts connections, and checks each request before its route;
//! - `core` implements operations on queues and tasks, independent of HTTP;
//! - `dialects` has the routes of other task queues, on the same `core`;
//! - `webhooks` calls URLs at the end of tasks;
//! - `v1` has the routes of the native API, one file per resource; `route` lists all routes, from
//!   which the OpenAPI document is generated.

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
mod webhooks;

pub use auth::{TokenEntry, TokenFile, TokenFileError, TokenScope};
pub use config::{
    DEFAULT_PORT, Dashboard, Dialect, RateLimit, ServerConfig, ServerConfigError, ServerLimits,
    WebhookConfig,
};
pub use longhaul_http::{TlsConfig, TlsError};
pub use page::MetricsPage;
pub use server::{Server, ServerStartError, in_process};
pub use webhooks::WebhookConfigError;

/// The examples of the package's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
