//! A connection that hides nothing: it sends any command, and returns all frames that come.
//!
//! It reads all the time, because a broker may check at any moment whether the client is alive:
//! Pulsar does so before it refuses a second producer of a name or a second exclusive consumer, and
//! gives the place of a client that does not answer to the new one.

use anyhow::{Context, Result, bail};
use bytes::BytesMut;
use longhaul_wire::frame::{self, Frame};
use longhaul_wire::messages::{Command, CommandPong};
use longhaul_wire::payload::Payload;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout;

const MESSAGE_BYTES_MAX: usize = 5 * 1024 * 1024;
/// Frames that wait for a script to look at them.
const FRAMES_MAX: usize = 1024;

/// Something that came on the connection.
pub(crate) enum Event {
    /// A frame.
    Frame(Box<Frame>),
    /// The broker has closed the connection.
    Closed,
    /// Bytes that cannot be read.
    Garbage(String),
}

pub(crate) struct Connection {
    writer: Writer,
    events: mpsc::Receiver<Event>,
    /// The handshake is over, so the broker answers a PING.
    pub(crate) is_greeted: bool,
    /// Ends with the connection, which closes it.
    _reading: JoinSet<()>,
}

type Writer = Arc<Mutex<OwnedWriteHalf>>;

impl Connection {
    /// Connects without sending anything.
    pub(crate) async fn open(url: &str) -> Result<Self> {
        let address = url.strip_prefix("pulsar://").context("not a pulsar:// URL")?;
        let stream = TcpStream::connect(address.trim_end_matches('/')).await?;
        stream.set_nodelay(true)?;
        let (reader, writer) = stream.into_split();
        let writer = Arc::new(Mutex::new(writer));
        let (sender, events) = mpsc::channel(FRAMES_MAX);
        let mut reading = JoinSet::new();
        reading.spawn(read(reader, Arc::clone(&writer), sender));
        Ok(Self { writer, events, is_greeted: false, _reading: reading })
    }

    pub(crate) async fn send(&mut self, command: Command, payload: Option<&Payload>) {
        send(&self.writer, command, payload).await;
    }

    pub(crate) async fn send_bytes(&mut self, bytes: &[u8]) {
        // A closed connection shows when the broker's answer is read.
        self.writer.lock().await.write_all(bytes).await.ok();
    }

    /// The next event within the limit; `None` once the connection was reported as closed.
    pub(crate) async fn next(&mut self, limit: Duration) -> Result<Option<Event>> {
        match timeout(limit, self.events.recv()).await {
            Ok(Some(Event::Garbage(what))) => bail!("the broker sent garbage: {what}"),
            Ok(event) => Ok(event),
            Err(_) => Ok(None),
        }
    }
}

async fn send(writer: &Writer, command: Command, payload: Option<&Payload>) {
    let mut bytes = BytesMut::new();
    match payload {
        None => frame::encode(command, &mut bytes),
        Some(payload) => frame::encode_with(command, payload, &mut bytes),
    }
    // A closed connection shows when the broker's answer is read.
    writer.lock().await.write_all(&bytes).await.ok();
}

async fn read(mut reader: OwnedReadHalf, writer: Writer, events: mpsc::Sender<Event>) {
    let mut buffer = BytesMut::new();
    loop {
        let event = match frame::decode(&mut buffer, MESSAGE_BYTES_MAX) {
            Err(error) => Event::Garbage(error.to_string()),
            Ok(Some(frame)) if matches!(frame.command, Command::Ping(_)) => {
                send(&writer, CommandPong {}.into(), None).await;
                continue;
            }
            Ok(Some(frame)) => Event::Frame(Box::new(frame)),
            Ok(None) => match reader.read_buf(&mut buffer).await {
                Ok(0) | Err(_) => Event::Closed,
                Ok(_) => continue,
            },
        };
        let last = !matches!(event, Event::Frame(_));
        if events.send(event).await.is_err() || last {
            return;
        }
    }
}
