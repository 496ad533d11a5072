//! Task state changes as server-sent events, resumable from the last event id.

use super::at::{LevelAt, QueryParams};
use super::task_body::task_body;
use crate::auth::TokenScope;
use crate::core::{
    EventPosition, GatewayService, QueueName, TaskEventStream, TaskSnapshot, TaskStreamEvent,
};
use crate::problem::ProblemDetails;
use crate::route::{ApiRoute, Method};
use crate::shell::Caller;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::stream::{self, StreamExt};
use longhaul::WatchFrom;
use longhaul_api::task::TaskBody;
use serde::Deserialize;
use serde_json::json;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;
use utoipa::IntoParams;

/// How often a comment is sent while nothing happens, so that proxies do not close the connection
/// as idle, and how often the caller's token is checked.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
struct EventQuery {
    /// `earliest`: the last event of each task that is still shown comes first. Otherwise what
    /// happens from now on.
    from: Option<String>,
    /// As the header `Last-Event-ID`, for clients that cannot set it.
    last_event_id: Option<String>,
}

pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        ApiRoute::new(Method::Get, "/v1/queues/{queue}/events", TokenScope::Read, events)
            .waits()
            .does("watch_tasks", "Changes of the state of tasks, as they come: server-sent events `task`, `evicted` and `caught-up`. A task whose `epoch` is lower than in an earlier event comes late, from a worker \
                that was replaced. With the header \
                `Last-Event-ID` they go on behind that one. `broker-lost` and `broker-back` say when nothing can come, and when that is over.")
            .of_level()
            .query::<EventQuery>()
            .header("Last-Event-ID", "The id of the last event that the client has: the stream continues after it. Browsers send it when they reconnect.")
            .answers_raw(200, "text/event-stream", "The events."),
    ]
}

/// The event id that stands for the start. Browsers treat an empty id as none, and would miss
/// events while disconnected.
const START: &str = "start";

/// The caller's last event; the start by default.
fn place(headers: &HeaderMap, query: &EventQuery) -> Result<Option<EventPosition>, ProblemDetails> {
    let header = headers.get("last-event-id").map(|it| it.to_str().unwrap_or("?"));
    let text = header.or(query.last_event_id.as_deref()).filter(|text| !text.is_empty());
    if text == Some(START) {
        return Ok(Some(EventPosition::default()));
    }
    text.map(str::parse).transpose().map_err(|error: longhaul::WatchPlaceError| {
        ProblemDetails::bad_request("last_event_id_invalid", error.to_string())
    })
}

async fn events(
    State(service): State<Arc<GatewayService>>,
    LevelAt { level, caller }: LevelAt,
    headers: HeaderMap,
    QueryParams(query): QueryParams<EventQuery>,
) -> Result<Response, ProblemDetails> {
    let behind = place(&headers, &query)?;
    let from = match query.from.as_deref() {
        None | Some("latest") => WatchFrom::Latest,
        Some("earliest") => WatchFrom::Earliest,
        Some(_) => {
            let detail = "`from` is `earliest` or `latest`";
            return Err(ProblemDetails::bad_request("query_invalid", detail));
        }
    };
    let queue = level.queue().clone();
    let events = service.events(level, behind, from).await?;
    let draining = caller.draining().clone().cancelled_owned();
    let refused = refused(caller.clone(), headers);
    let to =
        EventStreamContext { queue, hidden: caller.is_blind(), service, caller, cut_off: false };
    let stream = stream::unfold((events, to), next).take_until(draining).take_until(refused);
    Ok(Sse::new(stream).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response())
}

/// Waits until the caller's token is not valid any more, or means something else. The stream ends
/// then, and the client learns the reason when it reconnects.
async fn refused(caller: Caller, headers: HeaderMap) {
    let is_valid = || {
        let identity = caller.shell.auth.identify(&headers);
        identity.is_ok_and(|identity| identity == caller.identity)
    };
    while is_valid() {
        sleep(KEEP_ALIVE).await;
    }
}

type SseResult = Result<axum::response::sse::Event, Infallible>;

/// The receiver of the events, and their source.
struct EventStreamContext {
    queue: QueueName,
    hidden: bool,
    service: Arc<GatewayService>,
    caller: Caller,
    /// Whether the receiver was told that the broker is lost.
    cut_off: bool,
}

impl EventStreamContext {
    /// Waits until the broker is lost or back, and returns the event about it. It has no id: the
    /// stream continues behind the events before it.
    async fn notice(&self) -> axum::response::sse::Event {
        let event = axum::response::sse::Event::default();
        let reach = &self.caller.shell.reach;
        if self.cut_off {
            reach.connected().await;
            return event.event("broker-back").data("{}");
        }
        let why = reach.lost().await.why;
        let said = json!({"detail": why, "gateway": self.service.peer()});
        event.event("broker-lost").data(said.to_string())
    }
}

/// The next event. The stream ends when there are no more; the client then reconnects with its last
/// event id.
async fn next(
    (mut events, mut to): (TaskEventStream, EventStreamContext),
) -> Option<(SseResult, (TaskEventStream, EventStreamContext))> {
    loop {
        let next = tokio::select! {
            biased;
            next = events.next() => next?,
            notice = to.notice() => {
                to.cut_off = !to.cut_off;
                return Some((Ok(notice), (events, to)));
            }
        };
        let (event, place) = match next {
            Ok(next) => next,
            Err(error) => {
                tracing::warn!(event = "events_ended", queue = %to.queue, %error, "a stream of events has ended");
                return None;
            }
        };
        if let Some(sent) = sent(&to, event, place) {
            return Some((Ok(sent), (events, to)));
        }
    }
}

fn sent(
    to: &EventStreamContext,
    event: TaskStreamEvent,
    place: String,
) -> Option<axum::response::sse::Event> {
    let EventStreamContext { queue, hidden, .. } = to;
    let (kind, data) = match event {
        TaskStreamEvent::Task(name, shown, epoch) => {
            let task = TaskSnapshot { name, info: None, shown: Some(*shown), submitted: None };
            let body = TaskBody { epoch, ..task_body(queue, task, *hidden) };
            ("task", serde_json::to_string(&body).ok()?)
        }
        TaskStreamEvent::Evicted(name) => {
            ("evicted", json!({"id": name.to_string(), "queue": queue.as_str()}).to_string())
        }
        TaskStreamEvent::CaughtUp => ("caught-up", "{}".to_owned()),
    };
    let place = if place.is_empty() { START.to_owned() } else { place };
    Some(axum::response::sse::Event::default().event(kind).id(place).data(data))
}
