//! A minimal client that uses the wire protocol directly, without retries.
#![allow(dead_code, reason = "each suite uses a part of it")]

use bytes::BytesMut;
use longhaul_broker::Broker;
use longhaul_wire::frame::{self, Frame};
use longhaul_wire::messages::{
    Command, CommandAck, CommandConnect, CommandFlow, CommandProducer, CommandSend,
    CommandSubscribe, MessageIdData, MessageMetadata,
};
use longhaul_wire::payload::Payload;
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Everything that a test waits for comes long before, or never.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The answer of the admin interface to a request without a body.
pub(crate) fn ask(broker: &Broker, method: &str, path: &str) -> String {
    let url = broker.admin_url().unwrap_or_default();
    ask_at(url.trim_start_matches("http://"), method, path)
}

/// Like `ask`, for an admin interface at this host.
pub(crate) fn ask_at(host: &str, method: &str, path: &str) -> String {
    ask_with(host, method, path, "")
}

/// Like `ask_at`, with JSON as the body.
pub(crate) fn ask_with(host: &str, method: &str, path: &str, body: &str) -> String {
    let asked = || {
        let mut stream = std::net::TcpStream::connect(host)?;
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
        let head = format!("{head}Content-Type: application/json\r\n");
        write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        io::Result::Ok(answer)
    };
    asked().unwrap_or_else(|error| panic!("{method} {path} of {host:?}: {error}"))
}

/// A connection.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    buffer: BytesMut,
    next: u64,
}

impl Client {
    /// Connects without a handshake.
    pub(crate) async fn dial(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: BytesMut::new(), next: 0 })
    }

    /// Connects and performs the handshake.
    pub(crate) async fn connect(address: SocketAddr) -> io::Result<Self> {
        let mut client = Self::dial(address).await?;
        let connect = CommandConnect { protocol_version: Some(21), ..CommandConnect::default() };
        client.send(connect).await?;
        match client.read().await?.command {
            Command::Connected(_) => Ok(client),
            other => Err(io::Error::other(format!("{other:?}"))),
        }
    }

    /// Connects, and opens producer 1.
    pub(crate) async fn producer(address: SocketAddr, topic: &str) -> io::Result<Self> {
        let mut client = Self::connect(address).await?;
        client.produce(topic, 1).await?;
        Ok(client)
    }

    /// Connects, and opens consumer 1 with these permits.
    pub(crate) async fn consumer(
        address: SocketAddr,
        topic: &str,
        subscription: &str,
        permits: u32,
    ) -> io::Result<Self> {
        let mut client = Self::connect(address).await?;
        client.subscribe(topic, subscription, 1).await?;
        client.flow(1, permits).await?;
        Ok(client)
    }

    pub(crate) async fn send(&mut self, command: impl Into<Command>) -> io::Result<()> {
        let mut out = BytesMut::new();
        frame::encode(command, &mut out);
        self.stream.write_all(&out).await
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// The next frame.
    pub(crate) async fn read(&mut self) -> io::Result<Frame> {
        timeout(PATIENCE, self.read_patiently()).await?
    }

    async fn read_patiently(&mut self) -> io::Result<Frame> {
        loop {
            let frame = frame::decode(&mut self.buffer, 8 * 1024 * 1024);
            if let Some(frame) = frame.map_err(io::Error::other)? {
                return Ok(frame);
            }
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// The next frame other than PING; pings are answered.
    pub(crate) async fn answer(&mut self) -> io::Result<Frame> {
        loop {
            let frame = self.read().await?;
            if let Command::Ping(_) = frame.command {
                self.send(longhaul_wire::messages::CommandPong {}).await?;
            } else {
                return Ok(frame);
            }
        }
    }

    pub(crate) fn request_id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub(crate) async fn produce(&mut self, topic: &str, producer_id: u64) -> io::Result<()> {
        let request_id = self.request_id();
        let producer = CommandProducer {
            topic: topic.to_owned(),
            producer_id,
            request_id,
            ..CommandProducer::default()
        };
        self.send(producer).await?;
        match self.answer().await?.command {
            Command::ProducerSuccess(_) => Ok(()),
            other => Err(io::Error::other(format!("{other:?}"))),
        }
    }

    pub(crate) async fn publish(
        &mut self,
        producer: u64,
        sequence: u64,
        body: &[u8],
    ) -> io::Result<()> {
        let mut out = BytesMut::new();
        encode_publish(producer, sequence, body, &mut out);
        self.write(&out).await
    }

    /// Publishes, and waits for the receipt.
    pub(crate) async fn publish_one(
        &mut self,
        producer: u64,
        sequence: u64,
        body: &[u8],
    ) -> io::Result<MessageIdData> {
        self.publish(producer, sequence, body).await?;
        match self.answer().await?.command {
            Command::SendReceipt(receipt) => {
                receipt.message_id.ok_or_else(|| io::Error::other("no id"))
            }
            other => Err(io::Error::other(format!("{other:?}"))),
        }
    }

    /// Subscribes with a shared subscription, from the first message on.
    pub(crate) async fn subscribe(
        &mut self,
        topic: &str,
        name: &str,
        consumer_id: u64,
    ) -> io::Result<()> {
        let request_id = self.request_id();
        let subscribe = CommandSubscribe {
            topic: topic.to_owned(),
            subscription: name.to_owned(),
            sub_type: 1,
            consumer_id,
            request_id,
            initial_position: Some(1),
            ..CommandSubscribe::default()
        };
        self.send(subscribe).await?;
        match self.answer().await?.command {
            Command::Success(_) => Ok(()),
            other => Err(io::Error::other(format!("{other:?}"))),
        }
    }

    pub(crate) async fn flow(&mut self, consumer_id: u64, message_permits: u32) -> io::Result<()> {
        self.send(CommandFlow { consumer_id, message_permits }).await
    }

    /// The ids of the next messages; any other command is an error.
    pub(crate) async fn messages(&mut self, count: usize) -> io::Result<Vec<MessageIdData>> {
        let mut found = Vec::new();
        while found.len() < count {
            match self.answer().await?.command {
                Command::Message(message) => found.push(message.message_id),
                other => return Err(io::Error::other(format!("{other:?}"))),
            }
        }
        Ok(found)
    }

    pub(crate) async fn ack(
        &mut self,
        consumer_id: u64,
        id: MessageIdData,
        request_id: u64,
    ) -> io::Result<()> {
        let ack = CommandAck {
            consumer_id,
            ack_type: 0,
            message_id: vec![MessageIdData { ack_set: Vec::new(), ..id }],
            request_id: Some(request_id),
            ..CommandAck::default()
        };
        self.send(ack).await
    }

    /// Waits until the broker closes the connection. Returns everything that it sent before.
    pub(crate) async fn until_closed(&mut self) -> Vec<Command> {
        let mut commands = Vec::new();
        loop {
            match self.read().await {
                Ok(frame) => commands.push(frame.command),
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    panic!("still open: {commands:?}")
                }
                Err(_) => return commands,
            }
        }
    }
}

/// Encodes a message as a producer sends it.
pub(crate) fn encode_publish(producer_id: u64, sequence_id: u64, body: &[u8], out: &mut BytesMut) {
    let metadata = MessageMetadata {
        producer_name: "tiny".to_owned(),
        sequence_id,
        publish_time: 1,
        ..MessageMetadata::default()
    };
    let send = CommandSend { producer_id, sequence_id, ..CommandSend::default() };
    frame::encode_with(send, &Payload::new(&metadata, body), out);
}

/// Memory in use by the process, in bytes.
pub(crate) fn memory_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0_usize);
    pages * 4096
}

/// Checks that a well-behaved client is served.
pub(crate) async fn serves(address: SocketAddr) {
    let mut client = Client::producer(address, "served").await.unwrap();
    client.publish_one(1, 0, b"hello").await.unwrap();
}
