//! Task state changes as server-sent events, resumable from the last event id.

use super::at::{LevelAt, QueryParams};
use super::task_body::task_body;
use crate::auth::TokenScope::Read;
use crate::core::{QueueLevel, QueueName, TaskEventStream, TaskName, TaskSnapshot};
use crate::problem::ProblemDetails;
use crate::route::ApiRoute;
use crate::route::Method::Get;
use crate::shell::Caller;
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{self, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::future::{self, FutureExt};
use futures::stream::{self, BoxStream, StreamExt};
use longhaul::{WatchEvent, WatchFrom, WatchPlace};
use longhaul_api::task::TaskBody;
use serde::Deserialize;
use serde_json::json;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::sleep;
use utoipa::IntoParams;

/// How often a comment is sent while nothing happens, so that proxies do not close the connection
/// as idle, and how often the caller's token is checked.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
struct EventQuery {
    /// `earliest`: begin with the last event of each task that is still shown. `latest`, the
    /// default: begin with the next change.
    from: Option<String>,
    /// The same as the header `Last-Event-ID`, for clients that cannot set headers.
    last_event_id: Option<String>,
    /// Only the events of this task, beginning with its state. Its end ends the stream. Not allowed together with `from`.
    task: Option<String>,
}

pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        ApiRoute::new(Get, "/v1/queues/{queue}/events", Read, events)
            .waits()
            .does(
                "watch_tasks",
                "Streams the state changes of tasks as server-sent events `task`, `evicted` and \
                 `caught-up`. With `task`, it streams those of one task until its end. Ignore a \
                 task whose `epoch` is lower than in an earlier event: it comes late, from a \
                 worker that was replaced. With the header `Last-Event-ID`, the stream continues \
                 after that event. `broker-lost` and `broker-back` tell when the broker is away \
                 and when it is back.",
            )
            .of_level()
            .query::<EventQuery>()
            .header("Last-Event-ID", "The id of the last event that the client has. The stream continues after it. Browsers send it when they reconnect.")
            .answers_raw(200, "text/event-stream", "The events.")
            .answers_empty(204, "The client already has the end of the task. Browsers do not reconnect."),
    ]
}

/// The event id that stands for the start. Browsers treat an empty id as none, and would miss
/// events while disconnected.
const START: &str = "start";

/// The event id of a task's end in the stream of that task.
const OVER: &str = "over";

/// The id of the caller's last event.
fn last_event_id<'a>(headers: &'a HeaderMap, query: &'a EventQuery) -> Option<&'a str> {
    let header = headers.get("last-event-id").map(|it| it.to_str().unwrap_or("?"));
    header.or(query.last_event_id.as_deref()).filter(|text| !text.is_empty())
}

/// The position of an event.
fn place(text: Option<&str>) -> Result<Option<WatchPlace>, ProblemDetails> {
    if text == Some(START) {
        return Ok(Some(WatchPlace::default()));
    }
    text.map(str::parse).transpose().map_err(|error: longhaul::WatchPlaceError| {
        ProblemDetails::bad_request("last_event_id_invalid", error.to_string())
    })
}

async fn events(
    LevelAt { level, caller }: LevelAt,
    headers: HeaderMap,
    QueryParams(query): QueryParams<EventQuery>,
) -> Result<Response, ProblemDetails> {
    let draining = caller.draining().clone().cancelled_owned();
    let refused = refused(caller.clone(), headers.clone());
    let until = future::select(Box::pin(draining), Box::pin(refused));
    let answer = |stream: BoxStream<'static, SseResult>| {
        let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
        Sse::new(stream.take_until(until)).keep_alive(keep_alive).into_response()
    };
    let behind = last_event_id(&headers, &query);
    if let Some(task) = &query.task {
        if query.from.is_some() {
            let detail =
                "`from` cannot be used with `task`: its events begin with the current state";
            return Err(ProblemDetails::bad_request("query_invalid", detail));
        }
        if behind == Some(OVER) {
            return Ok(StatusCode::NO_CONTENT.into_response());
        }
        let task = task.parse::<TaskName>()?;
        return Ok(answer(events_of(level.queue().clone(), task, caller).await?));
    }
    let behind = place(behind)?;
    let from = match query.from.as_deref() {
        None | Some("latest") => WatchFrom::Latest,
        Some("earliest") => WatchFrom::Earliest,
        Some(_) => {
            let detail = "`from` must be `earliest` or `latest`";
            return Err(ProblemDetails::bad_request("query_invalid", detail));
        }
    };
    let events = caller.service.events(&level, behind, from).await?;
    let to = EventStreamContext::new(level, caller);
    Ok(answer(stream::unfold((events, to), next).boxed()))
}

/// The events of one task: the task as it is, its changes, and its end.
async fn events_of(
    queue: QueueName,
    task: TaskName,
    caller: Caller,
) -> Result<BoxStream<'static, SseResult>, ProblemDetails> {
    let service = Arc::clone(&caller.service);
    // Opened first, so that no change is lost between the two.
    let level = task.in_queue(&queue);
    let mut events = service.events(&level, None, WatchFrom::Latest).await?;
    events.keep_only(task);
    let found = service.task(&queue, task).await?;
    let hidden = caller.is_blind();
    let body = task_body(&queue, found.clone(), hidden);
    if found.status().is_terminal() {
        return Ok(stream::iter(task_event(&body, OVER).map(Ok)).boxed());
    }
    let first = stream::iter(task_event(&body, START).map(Ok));
    let to = EventStreamContext::new(level, caller);
    let changes = stream::unfold((events, to), next);
    let end = async move {
        // Some ends are on the ledger for long before they are shown.
        let over = service.wait(&queue, task, Duration::MAX).await.ok()??;
        task_event(&task_body(&queue, over, hidden), OVER).map(Ok)
    };
    let (told, is_over) = oneshot::channel::<()>();
    let end = end.inspect(|_| drop(told));
    let changes = changes.take_until(is_over);
    Ok(first.chain(stream::select(changes, stream::once(end).filter_map(future::ready))).boxed())
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

type SseResult = Result<sse::Event, Infallible>;

/// The receiver of the events, and their source.
struct EventStreamContext {
    level: QueueLevel,
    hidden: bool,
    caller: Caller,
    /// Whether the receiver was told that the broker is lost.
    cut_off: bool,
}

impl EventStreamContext {
    fn new(level: QueueLevel, caller: Caller) -> Self {
        Self { level, hidden: caller.is_blind(), caller, cut_off: false }
    }

    /// Waits until the broker is lost or back, and returns the event about it. It has no id: the
    /// stream continues behind the events before it.
    async fn notice(&self) -> sse::Event {
        let event = sse::Event::default();
        let reach = &self.caller.shell.reach;
        if self.cut_off {
            reach.connected().await;
            return event.event("broker-back").data("{}");
        }
        let why = reach.lost().await.why;
        let said = json!({"detail": why});
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
                let queue = to.level.queue();
                tracing::warn!(event = "events_ended", %queue, %error, "event stream ended");
                return None;
            }
        };
        if let Some(sent) = sent(&to, event, &place) {
            return Some((Ok(sent), (events, to)));
        }
    }
}

fn sent(to: &EventStreamContext, event: WatchEvent, place: &str) -> Option<sse::Event> {
    let (level, queue) = (&to.level, to.level.queue());
    let place = if place.is_empty() { START } else { place };
    let (kind, data) = match event {
        WatchEvent::Updated { id, metadata, epoch } => {
            let (name, shown) = (level.task(id), Some(metadata));
            let task = TaskSnapshot { name, info: None, shown, submitted: None };
            return task_event(&TaskBody { epoch, ..task_body(queue, task, to.hidden) }, place);
        }
        WatchEvent::Evicted { id } => {
            let id = level.task(id).to_string();
            ("evicted", json!({"id": id, "queue": queue.as_str()}).to_string())
        }
        WatchEvent::CaughtUp => ("caught-up", "{}".to_owned()),
        WatchEvent::Undecodable { .. } | _ => return None,
    };
    Some(sse::Event::default().event(kind).id(place).data(data))
}

fn task_event(body: &TaskBody, place: &str) -> Option<sse::Event> {
    let data = serde_json::to_string(body).ok()?;
    Some(sse::Event::default().event("task").id(place).data(data))
}
