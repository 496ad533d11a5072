//! One connection: bytes to requests, and answers to bytes.

use super::driver::{Event, Events};
use super::messages::Messages;
use super::outbox::{Chunk, Outbox};
use crate::clock;
use crate::machine::effect::{Message, Refusal, Request};
use bytes::{Bytes, BytesMut};
use longhaul_wire::frame::{self, Frame, FrameError};
use longhaul_wire::messages::{Command, CommandPing, ServerError};
use longhaul_wire::payload::{Payload, PayloadError};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

/// What a connection reads into at first, and at most. Thousands of idle ones must cost little.
const READ_BYTES_MIN: usize = 2 * 1024;
const READ_BYTES_MAX: usize = 256 * 1024;
/// Messages that have to be read are read so many bytes at a time.
const FETCH_BYTES: u64 = 1024 * 1024;
/// A client that takes nothing for so long is gone.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// What a connection needs to know.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    pub(super) message_bytes_max: usize,
    pub(super) keep_alive: Duration,
    pub(super) handshake_timeout: Duration,
}

/// The receiving half of a connection.
#[derive(Debug)]
pub(super) enum Incoming {
    /// Of a plain one.
    Plain(OwnedReadHalf),
    /// Of an encrypted one.
    Tls(ReadHalf<TlsStream<TcpStream>>),
}

impl Incoming {
    async fn read(&mut self, buffer: &mut BytesMut) -> io::Result<usize> {
        match self {
            Self::Plain(half) => {
                let count = half.read_buf(buffer).await?;
                // A client that leaves Nagle's algorithm on sends its next command only when this one is acknowledged. The
                // flag does not last. Where it cannot be set the client waits some 40 ms, nothing else.
                #[cfg(target_os = "linux")]
                rustix::net::sockopt::set_tcp_quickack(half.as_ref(), true).ok();
                Ok(count)
            }
            Self::Tls(half) => half.read_buf(buffer).await,
        }
    }
}

/// Serves a connection until one side ends it.
pub(super) async fn serve(
    id: u64,
    incoming: Incoming,
    outgoing: impl AsyncWrite + Unpin,
    outbox: Arc<Outbox>,
    events: Events,
    messages: Messages,
    rules: Rules,
) {
    let reading = read(id, incoming, &outbox, &events, &rules);
    let writing = write(id, outgoing, &outbox, &events, &messages);
    // Whichever ends first ends the connection, but what is queued when the reading side ends is sent first.
    tokio::select! {
        why = reading => {
            if let Err(error) = why {
                tracing::debug!(conn = id, %error, "connection ended");
            }
        }
        why = writing => {
            if let Err(error) = why {
                tracing::debug!(conn = id, %error, "connection ended");
            }
        }
    }
    // The driver is told even when it is about to end; then nobody listens any more.
    events.send(Event::Closed(id)).await.ok();
}

async fn read(
    id: u64,
    mut incoming: Incoming,
    outbox: &Outbox,
    events: &Events,
    rules: &Rules,
) -> io::Result<()> {
    let mut buffer = BytesMut::new();
    let mut size = READ_BYTES_MIN;
    let mut is_connected = false;
    let mut asked = false;
    let began = clock::monotonic();
    loop {
        if !outbox.room().await {
            // The writing side ends the connection when it has sent what there is.
            return std::future::pending().await;
        }
        buffer.reserve(size);
        let patience = if is_connected {
            rules.keep_alive
        } else {
            rules.handshake_timeout.saturating_sub(clock::monotonic().duration_since(began))
        };
        let count = match timeout(patience, incoming.read(&mut buffer)).await {
            Ok(count) => count?,
            Err(_) if is_connected && !asked => {
                asked = true;
                let mut ping = BytesMut::new();
                frame::encode(CommandPing {}, &mut ping);
                outbox.push(Chunk::Ready { bytes: ping.freeze(), credit: 0 });
                continue;
            }
            Err(_) => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the client says nothing"));
            }
        };
        if count == 0 {
            return Ok(());
        }
        asked = false;
        // As much as the client sends at a time, with room to grow.
        size =
            if count >= size { (size * 2).min(READ_BYTES_MAX) } else { size.max(READ_BYTES_MIN) };
        let limit = if is_connected { rules.message_bytes_max } else { 0 };
        let (requests, is_broken) =
            requests(&mut buffer, limit, &mut is_connected, rules.message_bytes_max);
        if buffer.is_empty() && size > READ_BYTES_MIN && count < size / 4 {
            size /= 2;
            buffer = BytesMut::new();
        }
        if !requests.is_empty() && events.send(Event::Requests(id, requests)).await.is_err() {
            return Ok(());
        }
        if is_broken {
            return std::future::pending().await;
        }
    }
}

/// The requests in what was read. After what is no frame there are none any more.
fn requests(
    buffer: &mut BytesMut,
    limit: usize,
    is_connected: &mut bool,
    message_bytes_max: usize,
) -> (Vec<Request>, bool) {
    let mut requests = Vec::new();
    let mut limit = limit;
    loop {
        match frame::decode(buffer, limit) {
            Ok(Some(Frame { command: Command::Send(send), payload })) => {
                let message = payload.ok_or_else(|| {
                    Refusal::new(
                        ServerError::UnknownError,
                        "SEND comes with a message, this one has none",
                    )
                });
                requests.push(Request::Publish(send, message.and_then(verified)));
            }
            Ok(Some(Frame { command, .. })) => {
                if matches!(command, Command::Connect(_)) {
                    *is_connected = true;
                    limit = message_bytes_max;
                }
                requests.push(Request::Command(command));
            }
            Ok(None) => return (requests, false),
            Err(error) => {
                let is_too_large = matches!(error, FrameError::TooLarge { .. });
                let code = if is_too_large {
                    ServerError::NotAllowedError
                } else {
                    ServerError::UnknownError
                };
                requests.push(Request::Garbage(Refusal::new(code, error.to_string())));
                return (requests, true);
            }
        }
    }
}

/// Checks a message: whatever is stored can be read by every consumer.
fn verified(payload: Payload) -> Result<Message, Refusal> {
    let refuse = |cause: PayloadError| {
        let code = match cause {
            PayloadError::Checksum { .. } => ServerError::ChecksumError,
            PayloadError::Short | PayloadError::Metadata(_) => ServerError::UnknownError,
        };
        Refusal::new(code, cause.to_string())
    };
    payload.verify().map_err(refuse)?;
    let metadata = payload.metadata().map_err(refuse)?;
    let batch =
        metadata.num_messages_in_batch.map(|count| u32::try_from(count).unwrap_or_default().max(1));
    let chunks = metadata.num_chunks_from_msg.unwrap_or(1);
    Ok(Message {
        publish_time: metadata.publish_time,
        batch,
        deliver_at: metadata
            .deliver_at_time
            .and_then(|at| u64::try_from(at).ok())
            .filter(|&at| at > 0),
        chunk_of: metadata
            .uuid
            .as_ref()
            .filter(|_| chunks > 1)
            .map(|it| u64::from(crc32c::crc32c(it.as_bytes()))),
        has_next_chunk: metadata.chunk_id.unwrap_or_default() + 1 < chunks,
        payload,
    })
}

async fn write(
    id: u64,
    mut outgoing: impl AsyncWrite + Unpin,
    outbox: &Outbox,
    events: &Events,
    messages: &Messages,
) -> io::Result<()> {
    loop {
        let mut batch = outbox.next().await;
        let mut credits = 0;
        while let Some(chunk) = batch.chunks.pop_front() {
            let credit = match chunk {
                Chunk::Ready { bytes, credit } => {
                    send(&mut outgoing, &bytes).await?;
                    outbox.sent(bytes.len());
                    credit
                }
                Chunk::Stored { command, stored: first, credit } => {
                    let mut stored = vec![(command, first)];
                    let mut credit = credit;
                    while credit < FETCH_BYTES {
                        let Some(Chunk::Stored { .. }) = batch.chunks.front() else { break };
                        let Some(Chunk::Stored { command, stored: next, credit: more }) =
                            batch.chunks.pop_front()
                        else {
                            break;
                        };
                        stored.push((command, next));
                        credit += more;
                    }
                    for bytes in messages.read(stored).await? {
                        send(&mut outgoing, &bytes).await?;
                    }
                    credit
                }
            };
            credits += credit;
            if credits >= FETCH_BYTES {
                events.send(Event::Written(id, std::mem::take(&mut credits))).await.ok();
            }
        }
        outgoing.flush().await?;
        if credits > 0 {
            events.send(Event::Written(id, credits)).await.ok();
        }
        if batch.is_last {
            outgoing.shutdown().await.ok();
            return Ok(());
        }
    }
}

async fn send(outgoing: &mut (impl AsyncWrite + Unpin), bytes: &Bytes) -> io::Result<()> {
    let stuck = |_| io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing");
    timeout(WRITE_TIMEOUT, outgoing.write_all(bytes)).await.map_err(stuck)?
}

/// Splits a connection.
pub(super) fn split(stream: TcpStream) -> (Incoming, impl AsyncWrite + Unpin) {
    let (read, write) = stream.into_split();
    (Incoming::Plain(read), write)
}

/// Splits an encrypted connection.
pub(super) fn split_tls(stream: TlsStream<TcpStream>) -> (Incoming, impl AsyncWrite + Unpin) {
    let (read, write) = tokio::io::split(stream);
    (Incoming::Tls(read), write)
}
