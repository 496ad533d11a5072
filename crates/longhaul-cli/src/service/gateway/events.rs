//! Server-sent events of a gateway, over as many connections as needed: each continues behind the
//! last event of the previous one.

use super::address::QueueAddress;
use super::{GatewayClient, GatewayRoute};
use crate::exit::{Code, CommandFailure, code_of};
use crate::service::tasks::{TaskChange, TaskDetails};
use longhaul_api::task::TaskBody;
use reqwest::{Method, Response};
use serde_json::Value;
use std::slice;
use std::time::Duration;

/// The maximum size of an event.
const EVENT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The silence after which a gateway counts as gone: it sends a comment every 15 s.
const SILENCE_MAX: Duration = Duration::from_secs(45);

/// The longest time of one connection.
const LIFE_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// The events of a queue.
pub(super) struct GatewayEventStream {
    gateway: GatewayClient,
    of: QueueAddress,
    /// The route of the events, and which are wanted.
    asked: (GatewayRoute, (&'static str, String)),
    response: Option<Response>,
    buffer: Vec<u8>,
    /// The id of the last event.
    last: Option<String>,
    /// All existing entries have been received.
    caught_up: bool,
}

/// The content of an event.
enum GatewayEvent {
    Task(Box<TaskBody>),
    Change(TaskChange),
    /// The gateway has lost its broker, for this reason.
    Lost(String),
    Nothing,
}

impl GatewayEventStream {
    /// Opens the first connection.
    ///
    /// # Errors
    /// When the gateway refuses, or has not answered for too long.
    pub(super) async fn open(
        gateway: GatewayClient,
        of: QueueAddress,
        asked: (GatewayRoute, (&'static str, String)),
    ) -> anyhow::Result<Self> {
        let mut events = Self {
            gateway,
            of,
            asked,
            response: None,
            buffer: Vec::new(),
            last: None,
            caught_up: false,
        };
        while let Err(failure) = events.connect().await {
            events.gateway.way.pause(failure).await?;
        }
        Ok(events)
    }

    /// The next change; an error is the last one.
    pub(super) async fn next(&mut self) -> anyhow::Result<TaskChange> {
        loop {
            let more = match self.buffered() {
                Some(GatewayEvent::Task(told)) => {
                    return Ok(TaskChange::Updated(Box::new(self.with_result(*told).await?)));
                }
                Some(GatewayEvent::Change(change)) => return Ok(change),
                Some(GatewayEvent::Nothing) => continue,
                Some(GatewayEvent::Lost(why)) => {
                    self.gateway.way.lost(true);
                    Err(away(format!("the gateway has lost the broker: {why}")))
                }
                None => self.read().await,
            };
            if let Err(failure) = more {
                self.response = None;
                // A partial event is sent again completely.
                self.buffer.clear();
                self.gateway.way.pause(failure).await?;
            }
        }
    }

    /// The task with its result. If that cannot be had, the watch goes on without it.
    async fn with_result(&self, mut told: TaskBody) -> anyhow::Result<TaskDetails> {
        let task = self.of.task(&told.id)?;
        loop {
            let failure = match self.gateway.with_result(&task, told.clone()).await {
                Ok(details) => return Ok(details),
                Err(failure) => failure,
            };
            if code_of(&failure) == Code::Unreachable {
                self.gateway.way.pause(failure).await?;
            } else {
                told.result_bytes = None;
                told.warning.get_or_insert_with(|| format!("no result: {failure:#}"));
            }
        }
    }

    async fn connect(&mut self) -> anyhow::Result<&mut Response> {
        let open = match self.response.take() {
            Some(open) => open,
            None => {
                let (route, query) = &self.asked;
                let mut request =
                    self.gateway.asking(Method::GET, route, slice::from_ref(query))?;
                if let Some(last) = &self.last {
                    request = request.header("last-event-id", last);
                }
                // A gateway that accepts the connection and stays silent counts as away, too.
                let answer = self.gateway.send(request.timeout(LIFE_MAX));
                match tokio::time::timeout(SILENCE_MAX, answer).await {
                    Ok(answer) => answer?,
                    Err(_) => {
                        self.gateway.way.lost(true);
                        return Err(away("the gateway does not answer".to_owned()));
                    }
                }
            }
        };
        Ok(self.response.insert(open))
    }

    /// Reads more bytes.
    async fn read(&mut self) -> anyhow::Result<()> {
        if self.buffer.len() > EVENT_BYTES_MAX {
            let what = format!("an event of the gateway has more than {EVENT_BYTES_MAX} bytes");
            return Err(anyhow::anyhow!(what));
        }
        let response = self.connect().await?;
        let chunk = tokio::time::timeout(SILENCE_MAX, response.chunk()).await;
        let way = &self.gateway.way;
        let gone = |what: &str| {
            way.lost(true);
            away(what.to_owned())
        };
        let chunk = chunk.map_err(|_| gone("the gateway stopped sending events"))?;
        let chunk = chunk.map_err(|error| self.gateway.lost(&error))?;
        let chunk = chunk.ok_or_else(|| gone("the gateway ended the stream of events"))?;
        self.gateway.way.back();
        self.buffer.extend_from_slice(&chunk);
        Ok(())
    }

    /// The next complete event.
    fn buffered(&mut self) -> Option<GatewayEvent> {
        let end = self.buffer.windows(2).position(|it| it == b"\n\n")?;
        let event: Vec<u8> = self.buffer.drain(..end + 2).collect();
        let event = String::from_utf8_lossy(&event);
        let field =
            |name: &str| event.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let data = field("data:").unwrap_or_default();
        let said = said(field("event:").unwrap_or_default(), data);
        if let Some(id) = field("id:") {
            self.last = Some(id.to_owned());
        }
        if matches!(said, GatewayEvent::Change(TaskChange::CaughtUp))
            && std::mem::replace(&mut self.caught_up, true)
        {
            // A resumed connection repeats it.
            return Some(GatewayEvent::Nothing);
        }
        Some(said)
    }
}

fn away(what: String) -> anyhow::Error {
    CommandFailure::new(Code::Unreachable, what).into()
}

fn said(event: &str, data: &str) -> GatewayEvent {
    match event {
        "task" => match serde_json::from_str(data) {
            Ok(told) => GatewayEvent::Task(Box::new(told)),
            Err(error) => GatewayEvent::Change(TaskChange::Unreadable(error.to_string())),
        },
        "caught-up" => GatewayEvent::Change(TaskChange::CaughtUp),
        "broker-lost" => {
            let data: Value = serde_json::from_str(data).unwrap_or_default();
            let why = data.get("detail").and_then(Value::as_str).unwrap_or_default();
            GatewayEvent::Lost(why.to_owned())
        }
        _ => GatewayEvent::Nothing,
    }
}
