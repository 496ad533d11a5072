//! The transport on a session of our own: the binary protocol, spoken by ourselves.
//!
//! What stands below the session is here already, and the transport on the crate `pulsar` uses it, too: how to reach a broker
//! (`options.rs`), who we are to it (`credentials.rs`), whom we trust (`tls.rs`), and the byte stream itself (`dial.rs`).

mod credentials;
pub(super) mod dial;
#[cfg(test)]
pub(crate) mod keys;
#[cfg(feature = "oauth2")]
mod oauth2;
pub(super) mod options;
mod tls;

pub use credentials::Credentials;
#[cfg(feature = "oauth2")]
pub use oauth2::OAuth2;
pub use options::ConnectOptions;
pub(crate) use options::is_loopback;
pub use tls::{ClientCertificate, TlsOptions};
pub(crate) use tls::{TlsError, without_trust};
