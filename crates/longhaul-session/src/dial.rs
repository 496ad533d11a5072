//! Opens a byte stream to a broker and describes what goes wrong.
//!
//! A host name may have several addresses, and the first may be dead. So each address gets a share
//! of the time, which includes the handshake. Unused time is left for the other addresses.

use super::error;
use super::options::Endpoint;
use longhaul_transport::clock::Clock;
use longhaul_transport::{TransportError, TransportErrorKind};
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, ClientConfig};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// Addresses of one host name that are tried.
const ADDRESSES_MAX: usize = 8;

/// A connected byte stream, encrypted or not.
pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// The stream of a session.
pub(crate) type Wire = Box<dyn ByteStream>;

/// Opens a stream within this time, which covers the name lookup up to the end of the handshake.
/// `tls` is ignored for an endpoint without TLS.
pub(crate) async fn dial_within(
    endpoint: &Endpoint,
    tls: Option<&Arc<ClientConfig>>,
    time_max: Duration,
) -> Result<Wire, TransportError> {
    let tls = match (endpoint.tls, tls) {
        (false, _) => None,
        (true, Some(config)) => Some(Encryption::new(endpoint, config)?),
        (true, None) => return Err(error::invalid(endpoint, "TLS is required, but not set up")),
    };
    let clock = Clock::System;
    let start = clock.now();
    let left = || time_max.saturating_sub(clock.now().since(start));
    let addresses = match timeout(time_max, lookup(endpoint)).await {
        Ok(found) => found.map_err(|cause| error::unreachable(endpoint, cause))?,
        Err(_) => return Err(error::unreachable(endpoint, "name lookup: no answer in time")),
    };
    dial_addresses(endpoint, &addresses, tls.as_ref(), left).await
}

/// Opens a stream to the first address that works; the error lists all addresses.
async fn dial_addresses(
    endpoint: &Endpoint,
    addresses: &[SocketAddr],
    tls: Option<&Encryption>,
    left: impl Fn() -> Duration,
) -> Result<Wire, TransportError> {
    let mut kind = TransportErrorKind::Unreachable;
    let mut causes = Vec::new();
    if addresses.is_empty() {
        causes.push("the name has no address".to_owned());
    }
    let mut untried = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
    for address in addresses {
        let share = left() / untried;
        untried -= 1;
        match open(connect(*address), tls, share).await {
            Ok(opened) => return Ok(opened),
            Err(failure) => {
                // A refusal says more than a timeout.
                if failure.kind != TransportErrorKind::Unreachable {
                    kind = failure.kind;
                }
                causes.push(format!("{address}: {}", failure.cause));
            }
        }
    }
    Err(TransportError::new(kind, endpoint, causes.join("; ")))
}

/// Names the kind of server that answers instead of a broker, from its first four or more bytes.
/// `None` if it may be Pulsar.
pub(crate) fn foreign(first_bytes: &[u8]) -> Option<&'static str> {
    if first_bytes.starts_with(b"HTTP") {
        Some("an HTTP server answers: use the broker's binary port")
    } else if first_bytes.starts_with(&[0x15, 3]) {
        // A TLS alert: its type, and the major version of all TLS versions.
        Some("a TLS server answers: use pulsar+ssl://")
    } else {
        None
    }
}

/// The error for a stream that fails between our greeting and the broker's. A broker refuses a
/// client certificate only then: TLS 1.3 ends the handshake before the certificate is checked.
pub(crate) fn greeting_failed(endpoint: &Endpoint, failure: &io::Error) -> TransportError {
    match our_certificate_refused(failure) {
        Some(cause) => TransportError::new(TransportErrorKind::Unauthorized, endpoint, cause),
        None if is_hang_up(failure) => hung_up(endpoint),
        None => {
            let cause = format_args!("{failure}{}", hint_at_our_certificate(failure));
            TransportError::new(TransportErrorKind::Refused, endpoint, cause)
        }
    }
}

/// The other end closed the stream instead of greeting us. A broker that refuses us sends an error
/// first. A silent close means that the broker is going down, or that the port expects TLS.
pub(crate) fn hung_up(endpoint: &Endpoint) -> TransportError {
    let hint = if endpoint.tls { "" } else { ": if this is a port with TLS, use pulsar+ssl://" };
    error::unreachable(endpoint, format_args!("the connection was closed at the greeting{hint}"))
}

/// Whether the other end has closed the connection. The error is a reset if it had not read
/// everything.
pub(crate) fn is_hang_up(failure: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    [BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof].contains(&failure.kind())
}

/// TLS for one endpoint.
struct Encryption {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl Encryption {
    fn new(endpoint: &Endpoint, config: &Arc<ClientConfig>) -> Result<Self, TransportError> {
        let name = ServerName::try_from(endpoint.host.clone())
            .map_err(|cause| error::invalid(endpoint, format_args!("TLS: {cause}")))?;
        Ok(Self { connector: TlsConnector::from(Arc::clone(config)), name })
    }
}

/// Why one address failed.
#[derive(Debug)]
struct DialFailure {
    kind: TransportErrorKind,
    cause: String,
}

impl DialFailure {
    fn unreachable(cause: String) -> Self {
        Self { kind: TransportErrorKind::Unreachable, cause }
    }
}

async fn lookup(endpoint: &Endpoint) -> Result<Vec<SocketAddr>, String> {
    let found = lookup_host((endpoint.host.as_str(), endpoint.port)).await;
    let found = found.map_err(|cause| format!("name lookup: {cause}"))?;
    Ok(found.take(ADDRESSES_MAX).collect())
}

/// Requests are small and each is waited for, so Nagle's delay would apply to every request.
async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let tcp = TcpStream::connect(address).await?;
    tcp.set_nodelay(true)?;
    Ok(tcp)
}

async fn open(
    connecting: impl Future<Output = io::Result<TcpStream>>,
    tls: Option<&Encryption>,
    time_max: Duration,
) -> Result<Wire, DialFailure> {
    // Kept outside of the future that the time limit drops, for the error.
    let mut connected = false;
    let opening = async {
        let tcp = connecting.await.map_err(|cause| DialFailure::unreachable(cause.to_string()))?;
        connected = true;
        let Some(Encryption { connector, name }) = tls else { return Ok(Box::new(tcp) as Wire) };
        let encrypted = connector.connect(name.clone(), tcp).await;
        encrypted.map(|stream| Box::new(stream) as Wire).map_err(|cause| no_handshake(&cause))
    };
    match timeout(time_max, opening).await {
        Ok(opened) => opened,
        Err(_) => {
            let what = if connected { "TLS handshake" } else { "connection" };
            Err(DialFailure::unreachable(format!("no {what} within {} ms", time_max.as_millis())))
        }
    }
}

/// A broker closes a connection at a port without TLS because it cannot read the handshake; other
/// servers answer in their own protocol.
fn no_handshake(failure: &io::Error) -> DialFailure {
    let what = "TLS handshake";
    if is_hang_up(failure) {
        return DialFailure::unreachable(format!("{what}: {failure}: is this a port with TLS?"));
    }
    if let Some(cause) = our_certificate_refused(failure) {
        return DialFailure {
            kind: TransportErrorKind::Unauthorized,
            cause: format!("{what}: {cause}"),
        };
    }
    let foreign = matches!(tls_error(failure), Some(rustls::Error::InvalidMessage(_)));
    let hint =
        if foreign { ": is this a port with TLS?" } else { hint_at_our_certificate(failure) };
    DialFailure { kind: TransportErrorKind::Refused, cause: format!("{what}: {failure}{hint}") }
}

/// Alerts that a server sends because of our certificate, or because none was shown.
fn our_certificate_refused(failure: &io::Error) -> Option<String> {
    use AlertDescription as Alert;
    let Some(rustls::Error::AlertReceived(alert)) = tls_error(failure) else { return None };
    let ours = [
        Alert::NoCertificate,
        Alert::BadCertificate,
        Alert::UnsupportedCertificate,
        Alert::CertificateRevoked,
        Alert::CertificateExpired,
        Alert::CertificateUnknown,
        Alert::UnknownCA,
        Alert::AccessDenied,
        Alert::CertificateRequired,
        // The certificate's authority has the right name and the wrong key.
        Alert::DecryptError,
    ];
    let what = if *alert == Alert::CertificateRequired {
        "requires a client certificate"
    } else {
        "does not accept our client certificate"
    };
    ours.contains(alert).then(|| format!("the server {what}: {alert:?}"))
}

/// Pulsar sends only this alert for a client certificate of an unknown authority.
fn hint_at_our_certificate(failure: &io::Error) -> &'static str {
    match tls_error(failure) {
        Some(rustls::Error::AlertReceived(AlertDescription::InternalError)) => {
            ": if a client certificate is shown, does the server know its authority?"
        }
        _ => "",
    }
}

fn tls_error(failure: &io::Error) -> Option<&rustls::Error> {
    failure.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>())
}

#[cfg(test)]
mod tests;
