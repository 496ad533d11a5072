//! Opens a byte stream to a broker and speaks Pulsar's frames on it.

use crate::transport::pulsar::error;
use crate::transport::pulsar::options::{ConnectOptions, Endpoint};
use crate::transport::{TransportError, TransportErrorKind};
use bytes::{Buf, Bytes, BytesMut};
use pulsar::error::ConnectionError;
use pulsar::message::{Codec, Message as Frame, Payload};
use pulsar::proto::{BaseCommand, base_command::Type};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use rustls::{ClientConfig, RootCertStore};
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;
use tokio_util::codec::{Decoder, Encoder, Framed};

/// Largest frame we take: the largest message of a stock broker and room for what surrounds it.
const FRAME_BYTES_MAX: usize = 5 * 1024 * 1024 + 64 * 1024;
/// Addresses of one host name that we try.
const ADDRESSES_MAX: usize = 8;

/// A connected byte stream, encrypted or not.
pub(super) trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// Frames to and from a broker.
pub(super) type Wire = Framed<Box<dyn ByteStream>, FrameCodec>;

/// Connects to an endpoint. Sets no time limit: the caller does.
pub(super) async fn dial(
    endpoint: &Endpoint,
    tls: Option<&Arc<ClientConfig>>,
) -> Result<Wire, TransportError> {
    let tcp = dial_tcp(endpoint).await?;
    // Requests are small and each is waited for; Nagle's delay would be paid every time.
    tcp.set_nodelay(true).map_err(|cause| error::unreachable(endpoint, cause))?;
    let stream: Box<dyn ByteStream> = match tls {
        None => Box::new(tcp),
        Some(config) => {
            let name = ServerName::try_from(endpoint.host.clone()).map_err(|cause| {
                error::new(TransportErrorKind::Invalid, endpoint, format_args!("TLS: {cause}"))
            })?;
            let handshake = TlsConnector::from(Arc::clone(config)).connect(name, tcp);
            Box::new(handshake.await.map_err(|cause| no_handshake(endpoint, &cause))?)
        }
    };
    Ok(Framed::new(stream, FrameCodec))
}

/// At a port without TLS a broker hangs up, because it cannot read what we send, and other servers answer in their own tongue.
fn no_handshake(endpoint: &Endpoint, failure: &io::Error) -> TransportError {
    let what = "TLS handshake";
    if is_hang_up(failure) {
        let cause = format_args!("{what}: {failure}: is this a port with TLS?");
        return error::unreachable(endpoint, cause);
    }
    let inner = failure.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let foreign = matches!(inner, Some(rustls::Error::InvalidMessage(_)));
    let hint = if foreign { ": is this a port with TLS?" } else { "" };
    error::refused(endpoint, format_args!("{what}: {failure}{hint}"))
}

/// Whether the other end has closed the connection. It is a reset when it had not read all that we sent.
pub(super) fn is_hang_up(failure: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    [BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof].contains(&failure.kind())
}

async fn dial_tcp(endpoint: &Endpoint) -> Result<TcpStream, TransportError> {
    let addresses = lookup_host((endpoint.host.as_str(), endpoint.port))
        .await
        .map_err(|cause| error::unreachable(endpoint, format_args!("name lookup: {cause}")))?;
    let mut failure = error::unreachable(endpoint, "the name has no address");
    for address in addresses.take(ADDRESSES_MAX) {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(cause) => {
                failure = error::unreachable(endpoint, format_args!("{address}: {cause}"));
            }
        }
    }
    Err(failure)
}

/// TLS as the client crate sets it up too: the public authorities and the given ones.
pub(super) fn tls_config(options: &ConnectOptions) -> Result<Arc<ClientConfig>, TransportError> {
    let invalid = |cause: String| {
        error::new(TransportErrorKind::Invalid, &options.service_url, format!("TLS: {cause}"))
    };
    let mut roots = RootCertStore::empty();
    roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    if let Some(pem) = &options.ca_certificate_pem {
        let mut given = 0_usize;
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|e| invalid(e.to_string()))?;
            roots.add(certificate).map_err(|e| invalid(e.to_string()))?;
            given += 1;
        }
        if given == 0 {
            return Err(invalid("the CA file holds no certificate".to_owned()));
        }
    }
    // The client crate asks for the process's provider and would panic if two are linked and none is chosen.
    if CryptoProvider::get_default().is_none()
        && ring::default_provider().install_default().is_err()
    {
        tracing::debug!("another thread has chosen the TLS provider");
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| invalid(e.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// A command of one type; `fill` sets the field that goes with it.
pub(super) fn command(r#type: Type, fill: impl FnOnce(&mut BaseCommand)) -> BaseCommand {
    let mut command = BaseCommand { r#type: r#type as i32, ..BaseCommand::default() };
    fill(&mut command);
    command
}

/// Encodes a command, with a message where it has one. Commands take kilobytes in memory and few bytes here, so bytes are what
/// waits in queues and futures.
pub(super) fn encode(
    command: BaseCommand,
    payload: Option<Payload>,
) -> Result<Bytes, ConnectionError> {
    let mut bytes = BytesMut::new();
    Codec.encode(Frame { command, payload }, &mut bytes)?;
    Ok(bytes.freeze())
}

/// The crate's decoder behind a limit: it would buffer a frame of any length. No message is asked for, so only commands count.
#[derive(Debug)]
pub(super) struct FrameCodec;

impl Decoder for FrameCodec {
    type Item = Box<BaseCommand>;
    type Error = ConnectionError;

    fn decode(
        &mut self,
        source: &mut BytesMut,
    ) -> Result<Option<Box<BaseCommand>>, ConnectionError> {
        if let Some(mut prefix) = source.get(..4) {
            if prefix == b"HTTP" {
                return Err(protocol("an HTTP server answers: use the broker's binary port"));
            }
            if prefix.starts_with(&[0x15, 3]) {
                return Err(protocol("a TLS server answers: use pulsar+ssl://"));
            }
            if prefix.get_u32() as usize > FRAME_BYTES_MAX {
                return Err(protocol("a frame is too large: is this a Pulsar broker?"));
            }
        }
        Ok(Codec.decode(source)?.map(|frame| Box::new(frame.command)))
    }
}

impl Encoder<Bytes> for FrameCodec {
    type Error = ConnectionError;

    fn encode(&mut self, frame: Bytes, target: &mut BytesMut) -> Result<(), ConnectionError> {
        target.extend_from_slice(&frame);
        Ok(())
    }
}

fn protocol(cause: &str) -> ConnectionError {
    ConnectionError::Io(io::Error::new(io::ErrorKind::InvalidData, cause))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: &[u8], expected: &str) {
        let error = FrameCodec.decode(&mut BytesMut::from(bytes)).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }

    #[test]
    fn what_is_not_pulsar_is_named() {
        check(b"HTTP/1.1 400 Bad Request\r\n", "HTTP server");
        check(&[0x15, 3, 3, 0, 2, 2, 22], "TLS server");
        check(&[0xff, 0, 0, 0], "too large");
    }

    #[test]
    fn an_incomplete_frame_waits() {
        assert!(FrameCodec.decode(&mut BytesMut::from(&[0_u8, 0][..])).unwrap().is_none());
        assert!(FrameCodec.decode(&mut BytesMut::from(&[0_u8, 0, 1, 0, 0][..])).unwrap().is_none());
    }
}
