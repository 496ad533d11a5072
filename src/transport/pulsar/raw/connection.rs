//! One connection to one broker: requests and their answers.
//!
//! One task owns the stream. Whatever goes wrong ends the connection with all that waits on it, and it stays ended: a
//! request without an answer in time, a lost stream, a producer or consumer that the broker closes. The owner of the
//! [`Connection`] opens another one.

use super::dial::{Wire, command, dial, encode};
use crate::transport::pulsar::error;
use crate::transport::session::Credentials;
use crate::transport::session::dial::{greeting_failed, hung_up};
use crate::transport::session::options::Endpoint;
use crate::transport::{TransportError, TransportErrorKind};
use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use pulsar::error::ConnectionError;
use pulsar::message::Payload;
use pulsar::proto::{
    AuthData, BaseCommand, CommandAuthResponse, CommandConnect, CommandPing, CommandPong,
    base_command::Type,
};
use rustls::ClientConfig;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long the broker may take to answer, and a write to be taken.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(10);
/// Silence after which we ask whether the broker is there. After twice that the connection is dead.
const KEEP_ALIVE_TIME: Duration = Duration::from_secs(15);
/// Requests that wait to be written, and that one flush takes.
const REQUESTS_MAX: usize = 128;
/// Protocol version we speak: 19 is the newest that the crate's messages know.
const PROTOCOL_VERSION: i32 = 19;
/// Acks have receipts from this version on.
const PROTOCOL_VERSION_MIN: i32 = 17;
/// Largest message of a broker that does not say.
const MESSAGE_BYTES_MAX_DEFAULT: usize = 5 * 1024 * 1024;

/// To whom and as whom to connect.
pub(super) struct Target<'a> {
    pub(super) endpoint: &'a Endpoint,
    /// The broker behind the endpoint, if that is a proxy: `host:port`.
    pub(super) behind_proxy: Option<String>,
    pub(super) tls: Option<&'a Arc<ClientConfig>>,
    pub(super) credentials: &'a Credentials,
    /// How long dialling may take.
    pub(super) time_max: Duration,
}

/// What an answer is recognised by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    Request(u64),
    Send { producer_id: u64, sequence_id: u64 },
}

type Answer = Result<Box<BaseCommand>, TransportError>;

struct Request {
    frame: Bytes,
    key: Key,
    answer: oneshot::Sender<Answer>,
}

/// A handle to the connection's task. The last one to go closes the connection.
pub(super) struct Connection {
    requests: mpsc::Sender<Request>,
    /// Numbers requests, producers and consumers alike.
    next_id: AtomicU64,
    end: End,
    /// Largest message that the broker takes.
    pub(super) message_bytes_max: usize,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("address", &self.end.address).finish_non_exhaustive()
    }
}

/// How a connection ended, known to all who hold a piece of it.
#[derive(Clone, Debug)]
struct End {
    address: Arc<str>,
    ended: CancellationToken,
    cause: Arc<OnceLock<TransportError>>,
}

impl End {
    fn set(&self, error: TransportError) {
        // The first cause is the true one; what follows from it is not.
        drop(self.cause.set(error));
        self.ended.cancel();
    }

    fn error(&self) -> TransportError {
        let unknown = || error::unreachable(&self.address, "the connection was closed");
        self.cause.get().cloned().unwrap_or_else(unknown)
    }
}

/// An answer under way.
pub(super) struct Pending {
    answer: oneshot::Receiver<Answer>,
    end: End,
}

impl Pending {
    /// Waits for the answer; without one in time the connection ends.
    pub(super) async fn wait(self) -> Answer {
        match timeout(REQUEST_TIME_MAX, self.answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(self.end.error()),
            Err(_) => {
                self.end.set(error::unreachable(&self.end.address, "no answer in time"));
                Err(self.end.error())
            }
        }
    }
}

impl Connection {
    /// Connects and introduces itself. Sets no time limit: the caller does.
    pub(super) async fn open(
        target: Target<'_>,
        address: String,
        tracker: &TaskTracker,
    ) -> Result<Self, TransportError> {
        let credentials = target.credentials.clone();
        let data = credentials.data().await?;
        let greeting = greeting(target.behind_proxy, credentials.method(), data);
        let mut wire = dial(target.endpoint, target.tls, target.time_max).await?;
        let message_bytes_max =
            introduce(&mut wire, target.endpoint, greeting, !credentials.is_none()).await?;
        let (requests, queue) = mpsc::channel(REQUESTS_MAX);
        let end = End {
            address: address.into(),
            ended: CancellationToken::new(),
            cause: Arc::new(OnceLock::new()),
        };
        let mut keep_alive = interval(KEEP_ALIVE_TIME);
        keep_alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let driver = Driver {
            wire,
            pending: HashMap::new(),
            silent_ticks: 0,
            credentials,
            end: end.clone(),
        };
        tracker.spawn(driver.run(queue, keep_alive));
        Ok(Self { requests, next_id: AtomicU64::new(1), end, message_bytes_max })
    }

    pub(super) fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn is_alive(&self) -> bool {
        !self.end.ended.is_cancelled()
    }

    /// Resolves with the cause when the connection has ended.
    pub(super) async fn ended(&self) -> TransportError {
        self.end.ended.cancelled().await;
        self.end.error()
    }

    /// Writes a request and waits for its answer.
    pub(super) fn request(
        &self,
        request_id: u64,
        command: BaseCommand,
    ) -> impl Future<Output = Answer> + Send {
        let begun = self.begin(Key::Request(request_id), command, None);
        async { begun.await?.wait().await }
    }

    /// Writes a request, with a message where it has one.
    pub(super) fn begin(
        &self,
        key: Key,
        command: BaseCommand,
        payload: Option<Payload>,
    ) -> impl Future<Output = Result<Pending, TransportError>> + Send {
        let frame = encode(command, payload);
        async move {
            let frame = frame.map_err(|cause| error::refused(&self.end.address, cause))?;
            let (answer, pending) = oneshot::channel();
            let request = Request { frame, key, answer };
            self.requests.send(request).await.map_err(|_| self.end.error())?;
            Ok(Pending { answer: pending, end: self.end.clone() })
        }
    }
}

/// CONNECT and its answer; returns the largest message that the broker takes.
async fn introduce(
    wire: &mut Wire,
    endpoint: &Endpoint,
    greeting: Result<Bytes, ConnectionError>,
    named: bool,
) -> Result<usize, TransportError> {
    let greeting = greeting.map_err(|cause| error::refused(endpoint, cause))?;
    wire.send(greeting).await.map_err(|cause| error::unreachable(endpoint, cause))?;
    let answer = match wire.next().await {
        Some(Ok(command)) => command,
        Some(Err(ConnectionError::Io(cause))) => return Err(greeting_failed(endpoint, &cause)),
        Some(Err(cause)) => return Err(error::refused(endpoint, cause)),
        None => return Err(hung_up(endpoint)),
    };
    if let Some(failure) = answer.error {
        let refusal = error::server(endpoint, failure.error, &failure.message);
        return Err(if named { refusal } else { without_token(refusal) });
    }
    let Some(connected) = answer.connected else {
        return Err(error::refused(endpoint, "an unexpected answer to the greeting"));
    };
    if connected.protocol_version() < PROTOCOL_VERSION_MIN {
        return Err(error::refused(endpoint, "the broker is too old for receipts of acks"));
    }
    let stated = connected.max_message_size.and_then(|bytes| usize::try_from(bytes).ok());
    Ok(stated.filter(|bytes| *bytes > 0).unwrap_or(MESSAGE_BYTES_MAX_DEFAULT))
}

/// The broker's words are the same for a token that is missing and one that is wrong.
fn without_token(mut refusal: TransportError) -> TransportError {
    if refusal.kind == TransportErrorKind::Unauthorized {
        refusal.cause.push_str("; no token was given");
    }
    refusal
}

fn greeting(
    behind_proxy: Option<String>,
    method: &str,
    data: Option<Bytes>,
) -> Result<Bytes, ConnectionError> {
    let connect = CommandConnect {
        client_version: concat!("longhaul ", env!("CARGO_PKG_VERSION")).to_owned(),
        auth_method_name: Some(method.to_owned()),
        auth_data: data.map(|data| data.to_vec()),
        protocol_version: Some(PROTOCOL_VERSION),
        proxy_to_broker_url: behind_proxy,
        ..CommandConnect::default()
    };
    let command = command(Type::Connect, |c| c.connect = Some(connect));
    encode(command, None)
}

/// Owns the stream.
struct Driver {
    wire: Wire,
    /// Requests without an answer yet; their callers bound their number.
    pending: HashMap<Key, oneshot::Sender<Answer>>,
    /// Ticks of the keep-alive since the last frame came.
    silent_ticks: u32,
    credentials: Credentials,
    end: End,
}

impl Driver {
    async fn run(mut self, mut queue: mpsc::Receiver<Request>, mut keep_alive: Interval) {
        let mut batch = Vec::with_capacity(REQUESTS_MAX);
        let end = self.end.clone();
        let cause = loop {
            // Answers first: they free callers. The broker sends little that we have not asked for.
            let step = tokio::select! { biased;
                () = end.ended.cancelled() => break end.error(),
                frame = self.wire.next() => self.handle_frame(frame).await,
                count = queue.recv_many(&mut batch, REQUESTS_MAX) => {
                    if count == 0 {
                        break error::unreachable(&end.address, "no longer used");
                    }
                    self.write_requests(&mut batch).await
                }
                _ = keep_alive.tick() => self.handle_tick().await,
            };
            if let Err(cause) = step {
                tracing::debug!(address = %end.address, %cause, "connection lost");
                break error::unreachable(&end.address, cause);
            }
        };
        end.set(cause);
        // Dropping the senders of what is pending and queued lets their callers see the end.
    }

    async fn handle_frame(
        &mut self,
        frame: Option<Result<Box<BaseCommand>, ConnectionError>>,
    ) -> Result<(), String> {
        self.silent_ticks = 0;
        let command = match frame {
            Some(Ok(command)) => command,
            Some(Err(cause)) => return Err(cause.to_string()),
            None => return Err("the broker closed the connection".to_owned()),
        };
        if command.ping.is_some() {
            return self.write(pong()).await;
        }
        if command.auth_challenge.is_some() {
            // The broker wants to see newer ones than it has.
            let data = self.credentials.data().await.map_err(|error| error.to_string())?;
            return self.write(auth_response(self.credentials.method(), data)).await;
        }
        if command.close_consumer.is_some() || command.close_producer.is_some() {
            return Err("the broker closed our session on the topic".to_owned());
        }
        let Some((key, answer)) = self.answer(command) else { return Ok(()) };
        if let Some(caller) = self.pending.remove(&key) {
            // The caller may be gone; then nobody misses the answer.
            drop(caller.send(answer));
        }
        Ok(())
    }

    /// Which request a frame answers, and how.
    fn answer(&self, command: Box<BaseCommand>) -> Option<(Key, Answer)> {
        let address = &self.end.address;
        if let Some(failure) = &command.error {
            let error = error::server(address, failure.error, &failure.message);
            return Some((Key::Request(failure.request_id), Err(error)));
        }
        if let Some(failure) = &command.send_error {
            let (producer_id, sequence_id) = (failure.producer_id, failure.sequence_id);
            let error = error::server(address, failure.error, &failure.message);
            return Some((Key::Send { producer_id, sequence_id }, Err(error)));
        }
        if let Some(receipt) = &command.send_receipt {
            let (producer_id, sequence_id) = (receipt.producer_id, receipt.sequence_id);
            return Some((Key::Send { producer_id, sequence_id }, Ok(command)));
        }
        let none = None;
        let request_id = none
            .or_else(|| command.success.as_ref().map(|answer| answer.request_id))
            .or_else(|| command.producer_success.as_ref().map(|answer| answer.request_id))
            .or_else(|| command.lookup_topic_response.as_ref().map(|answer| answer.request_id))
            .or_else(|| command.partition_metadata_response.as_ref().map(|a| a.request_id))
            .or_else(|| command.get_last_message_id_response.as_ref().map(|a| a.request_id))
            .or_else(|| command.ack_response.as_ref().and_then(|answer| answer.request_id))?;
        Some((Key::Request(request_id), Ok(command)))
    }

    async fn write_requests(&mut self, batch: &mut Vec<Request>) -> Result<(), String> {
        let write = async {
            for request in batch.drain(..) {
                self.pending.insert(request.key, request.answer);
                self.wire.feed(request.frame).await?;
            }
            self.wire.flush().await
        };
        finish_write(write).await
    }

    async fn write(&mut self, frame: Result<Bytes, ConnectionError>) -> Result<(), String> {
        finish_write(self.wire.send(frame.map_err(|cause| cause.to_string())?)).await
    }

    async fn handle_tick(&mut self) -> Result<(), String> {
        self.silent_ticks += 1;
        match self.silent_ticks {
            1 => Ok(()),
            2 => self.write(ping()).await,
            _ => Err("the broker is silent".to_owned()),
        }
    }
}

async fn finish_write(
    write: impl Future<Output = Result<(), ConnectionError>>,
) -> Result<(), String> {
    match timeout(REQUEST_TIME_MAX, write).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(cause)) => Err(cause.to_string()),
        Err(_) => Err("a write was not taken in time".to_owned()),
    }
}

fn ping() -> Result<Bytes, ConnectionError> {
    let ping = Some(CommandPing::default());
    encode(command(Type::Ping, |c| c.ping = ping), None)
}

fn pong() -> Result<Bytes, ConnectionError> {
    let pong = Some(CommandPong::default());
    encode(command(Type::Pong, |c| c.pong = pong), None)
}

fn auth_response(method: &str, data: Option<Bytes>) -> Result<Bytes, ConnectionError> {
    let response = AuthData {
        auth_method_name: Some(method.to_owned()),
        auth_data: data.map(|data| data.to_vec()),
    };
    let auth_response = CommandAuthResponse {
        response: Some(response),
        protocol_version: Some(PROTOCOL_VERSION),
        ..CommandAuthResponse::default()
    };
    let command = command(Type::AuthResponse, |c| c.auth_response = Some(auth_response));
    encode(command, None)
}
