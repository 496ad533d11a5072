//! A guarded HTTP server: what the gateway and the broker's admin API share.
//!
//! | module | what it has |
//! |---|---|
//! | [`host`] | names of hosts in one form |
//! | [`HostGuard`] | checks of `Host` and `Origin`, against web pages of other sites |
//! | [`TlsConfig`] | certificate, key and client authorities, from PEM files to rustls |
//! | [`converse`] | one HTTP/1.1 connection, with limits and an orderly end |
//!
//! It has no stable interface.

mod connection;
mod guard;
pub mod host;
mod tls;

pub use connection::{ACCEPT_PAUSE, ConnectionLimits, converse};
pub use guard::HostGuard;
pub use tls::{TlsConfig, TlsError};
