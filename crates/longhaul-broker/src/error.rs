//! Errors of starting and running a broker.

use crate::auth::AuthConfigError;
use crate::log::{OpenError, WriteError};
use longhaul_http::TlsError;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Why a broker does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The data directory cannot be used.
    #[error("cannot use the data directory {}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The log cannot be opened: it is damaged, or another process uses it.
    #[error("cannot open the log in {}{}", path.display(), damage_hint(path, source))]
    Log {
        /// The data directory.
        path: PathBuf,
        /// The cause.
        source: OpenError,
    },
    /// A compacted view is damaged or missing.
    #[error(
        "cannot open a compacted topic, nor rebuild it, because the log no longer has all of its messages. Put the file back, or restore the data directory from a copy; `longhaul broker check DIR` lists what is lost, `longhaul broker salvage DIR NEW` copies all readable data to a new directory"
    )]
    Compacted(#[source] crate::log::CompactedError),
    /// A port cannot be listened on.
    #[error("cannot listen on {address}{}", listen_hint(source))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: std::io::Error,
    },
    /// The key for tokens cannot be used.
    #[error("cannot verify tokens")]
    Auth(#[from] AuthConfigError),
    /// Certificate or key cannot be used.
    #[error("cannot serve TLS")]
    Tls(#[from] TlsError),
    /// A setting contradicts another one.
    #[error("{0}")]
    Config(&'static str),
    /// The given host is invalid.
    #[error(
        "the {which} host `{given}` is not a host: give only a name or an address, without a port, a scheme or a path, such as broker.example or 10.0.0.1"
    )]
    Host {
        /// Which setting: the advertised host, or a host of the admin interface.
        which: &'static str,
        /// The given text.
        given: String,
    },
    /// The broker listens on all addresses, and has no host that it can tell clients.
    #[error(
        "the broker listens on {address}, and has no advertised host: clients must be told the name or the address by which they reach this machine"
    )]
    NoHost {
        /// The address.
        address: SocketAddr,
    },
    /// The operating system provided no thread.
    #[error("cannot start a thread")]
    Thread(#[source] std::io::Error),
}

/// Why a broker has stopped by itself.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BrokerError {
    /// Written data did not reach the disk. The data on disk is correct; clients that wait for an
    /// answer have to try again.
    #[error("the log can no longer be written; check the disk and restart the broker")]
    Log(#[source] std::sync::Arc<WriteError>),
    /// A defect was detected before it caused harm: nothing was written or answered after it. The
    /// data on disk is correct.
    #[error(
        "the broker stopped because of a bug, before it wrote anything wrong ({0}); restart it, and please report the bug"
    )]
    Invariant(String),
    /// The broker has ended because of a defect.
    #[error("the broker has ended unexpectedly")]
    Ended,
}

/// Advice for a damaged log.
fn damage_hint(path: &Path, source: &OpenError) -> String {
    match source {
        OpenError::Damaged { .. }
        | OpenError::Missing { .. }
        | OpenError::NotRemoved { .. }
        | OpenError::Apply { .. } => format!(
            ". To list the damage and its cost, run `longhaul broker check {0}`; to copy all readable data to a new directory, `longhaul broker salvage {0} NEW`",
            path.display()
        ),
        OpenError::Locked { .. }
        | OpenError::Version { .. }
        | OpenError::Options(_)
        | OpenError::Io { .. } => String::new(),
    }
}

/// The most likely cause, if known.
fn listen_hint(source: &std::io::Error) -> &'static str {
    let hints = [
        (std::io::ErrorKind::AddrInUse, ": is another broker running there?"),
        (
            std::io::ErrorKind::PermissionDenied,
            ": this process may not use that port; ports below 1024 are often reserved",
        ),
        (std::io::ErrorKind::AddrNotAvailable, ": this machine has no such address"),
    ];
    hints.into_iter().find(|(kind, _)| *kind == source.kind()).map_or("", |(_, hint)| hint)
}

/// An error and its causes, as one text.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;

    /// A port below 1024 that was denied was reported as used by another broker.
    #[test]
    fn only_a_port_that_is_taken_is_anothers() {
        let told = |kind: ErrorKind| {
            let address = SocketAddr::from(([127, 0, 0, 1], 80));
            StartError::Listen { address, source: kind.into() }.to_string()
        };
        assert!(told(ErrorKind::AddrInUse).contains("another broker"));
        let denied = told(ErrorKind::PermissionDenied);
        assert!(
            denied.contains("127.0.0.1:80: this process may not") && !denied.contains("another")
        );
        assert_eq!(told(ErrorKind::OutOfMemory), "cannot listen on 127.0.0.1:80");
    }
}
