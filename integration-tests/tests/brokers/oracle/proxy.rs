//! A proxy between clients and a broker that keeps the first frame of each kind, and passes frames
//! on unchanged or encoded anew.
//!
//! In the answers to lookups it puts its own address in place of the broker's, because clients
//! would otherwise bypass it. That answer is the only frame that is always changed, and it is kept
//! as the broker sent it.

use crate::oracle::anew;
use crate::oracle::recording::{Recording, Side};
use anyhow::{Context, Result, ensure};
use bytes::{Bytes, BytesMut};
use longhaul_wire::frame;
use longhaul_wire::messages::{Command, CommandLookupTopicResponse};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// A larger size is not that of a frame of these tests' brokers: it is passed on unread, with all
/// that follows.
const FRAME_BYTES_MAX: usize = 16 << 20;

/// The treatment of frames on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Treatment {
    /// They are passed on as they are.
    Keep,
    /// They are decoded, unpacked, packed and encoded by the wire crate.
    Anew,
}

/// Ends with its connections when it is dropped.
pub(crate) struct Proxy {
    shared: Arc<Shared>,
    _serving: JoinSet<()>,
}

struct Shared {
    /// The address of this proxy, as in the answers to lookups.
    url: String,
    treatment: Treatment,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    recording: Recording,
    /// Frames that the wire crate could not read or encode anew. Clients do not always show that a
    /// frame is missing.
    failures: Vec<String>,
}

impl Proxy {
    /// Listens, and connects to `pulsar://host:port` for each client.
    pub(crate) async fn start(upstream: &str, treatment: Treatment) -> Result<Self> {
        let upstream = upstream.strip_prefix("pulsar://").context("not a pulsar:// URL")?;
        let upstream = upstream.trim_end_matches('/').to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("pulsar://{}", listener.local_addr()?);
        let shared = Arc::new(Shared { url, treatment, seen: Mutex::default() });
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, upstream, Arc::clone(&shared)));
        Ok(Self { shared, _serving: serving })
    }

    pub(crate) fn url(&self) -> &str {
        &self.shared.url
    }

    /// The recorded frames.
    pub(crate) fn finish(self) -> Result<Recording> {
        let seen = std::mem::take(&mut *self.shared.seen());
        ensure!(seen.failures.is_empty(), "{}", seen.failures.join("\n"));
        Ok(seen.recording)
    }
}

impl Shared {
    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a frame, and returns the bytes to pass on.
    fn pass(&self, side: Side, bytes: Bytes) -> Bytes {
        self.seen().recording.add(side, &bytes);
        match self.change(&bytes) {
            Ok(changed) => changed.unwrap_or(bytes),
            // Scripts also send garbage.
            Err(_) if self.treatment == Treatment::Keep => bytes,
            Err(error) => {
                self.seen().failures.push(format!("from the {side:?}: {error:#}: {bytes:?}"));
                bytes
            }
        }
    }

    fn change(&self, bytes: &Bytes) -> Result<Option<Bytes>> {
        let mut buffer = BytesMut::from(&bytes[..]);
        let frame = frame::decode(&mut buffer, FRAME_BYTES_MAX)?.context("half a frame")?;
        let mut out = BytesMut::new();
        if let Command::LookupResponse(it) = &frame.command
            && it.broker_service_url.is_some()
        {
            let url = Some(self.url.clone());
            let answer = CommandLookupTopicResponse { broker_service_url: url, ..*it.clone() };
            frame::encode(answer, &mut out);
            return Ok(Some(out.freeze()));
        }
        if self.treatment == Treatment::Keep {
            return Ok(None);
        }
        match frame.payload {
            Some(payload) => anew::encode(frame.command, &payload, &mut out)?,
            None => frame::encode(frame.command, &mut out),
        }
        Ok(Some(out.freeze()))
    }
}

async fn serve(listener: TcpListener, upstream: String, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        // For the client a missing broker is one that closes the connection.
        let Ok(broker) = TcpStream::connect(&upstream).await else { continue };
        // Otherwise the small frames of each side would wait for the other's acknowledgements.
        client.set_nodelay(true).ok();
        broker.set_nodelay(true).ok();
        let ((from_client, to_client), (from_broker, to_broker)) =
            (client.into_split(), broker.into_split());
        connections.spawn(pump(from_client, to_broker, Side::Client, Arc::clone(&shared)));
        connections.spawn(pump(from_broker, to_client, Side::Broker, Arc::clone(&shared)));
        while connections.try_join_next().is_some() {}
    }
}

/// Passes on the bytes of one side until it ends.
async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, side: Side, shared: Arc<Shared>) {
    let mut buffer = BytesMut::new();
    loop {
        while let Some(frame) = next(&mut buffer) {
            let bytes = shared.pass(side, frame);
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
        if size(&buffer).is_some_and(|size| size > FRAME_BYTES_MAX) {
            to.write_all(&buffer.split()).await.ok();
            tokio::io::copy(&mut from, &mut to).await.ok();
            break;
        }
        if matches!(from.read_buf(&mut buffer).await, Ok(0) | Err(_)) {
            break;
        }
    }
    // The remaining bytes of scripts with broken frames are passed on as well.
    to.write_all(&buffer).await.ok();
    to.shutdown().await.ok();
}

fn next(buffer: &mut BytesMut) -> Option<Bytes> {
    let size = size(buffer).filter(|size| *size <= buffer.len() && *size <= FRAME_BYTES_MAX)?;
    Some(buffer.split_to(size).freeze())
}

/// The size of the whole frame at the front, of which at least the first four bytes are present.
fn size(buffer: &BytesMut) -> Option<usize> {
    let head: [u8; 4] = buffer.get(..4)?.try_into().ok()?;
    Some(4 + u32::from_be_bytes(head) as usize)
}
