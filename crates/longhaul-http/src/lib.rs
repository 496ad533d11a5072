//! A guarded HTTP server, shared by the gateway and the broker's admin API.
//!
//! | module | content |
//! |---|---|
//! | [`host`] | normalized host names |
//! | [`HostGuard`] | checks of `Host` and `Origin`, against web pages of other sites |
//! | [`TlsConfig`] | certificate, key and client authorities, from PEM files to rustls |
//! | [`FileStamps`] | whether files have changed that are read again without a restart |
//! | [`converse`] | one HTTP/1.1 connection, with limits and an orderly end |
//!
//! Its interface is not stable.

mod connection;
mod guard;
pub mod host;
mod stamps;
mod tls;

pub use connection::{ACCEPT_PAUSE, ConnectionLimits, converse};
pub use guard::HostGuard;
pub use stamps::FileStamps;
pub use tls::{TlsConfig, TlsError};
