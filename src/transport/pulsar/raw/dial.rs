//! Opens a byte stream to a broker and speaks Pulsar's frames on it.

use crate::transport::TransportError;
use crate::transport::session;
use crate::transport::session::dial::{dial_within, foreign};
use crate::transport::session::options::Endpoint;
use bytes::{Buf, Bytes, BytesMut};
use pulsar::error::ConnectionError;
use pulsar::message::{Codec, Message as Frame, Payload};
use pulsar::proto::{BaseCommand, base_command::Type};
use rustls::ClientConfig;
use rustls::crypto::{CryptoProvider, ring};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::codec::{Decoder, Encoder, Framed};

/// Largest frame we take: the largest message of a stock broker and room for what surrounds it.
const FRAME_BYTES_MAX: usize = 5 * 1024 * 1024 + 64 * 1024;
/// Frames to and from a broker.
pub(super) type Wire = Framed<session::dial::Wire, FrameCodec>;

/// Connects to an endpoint.
pub(super) async fn dial(
    endpoint: &Endpoint,
    tls: Option<&Arc<ClientConfig>>,
    time_max: Duration,
) -> Result<Wire, TransportError> {
    Ok(Framed::new(dial_within(endpoint, tls, time_max).await?, FrameCodec))
}

/// The client crate asks for the process's provider and would panic if two are linked and none is chosen.
pub(super) fn choose_provider() {
    if CryptoProvider::get_default().is_none()
        && ring::default_provider().install_default().is_err()
    {
        tracing::debug!("another thread has chosen the TLS provider");
    }
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
            if let Some(what) = foreign(prefix) {
                return Err(protocol(what));
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
