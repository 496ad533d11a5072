//! Routes that read tasks.

use super::JsonAnswer;
use super::at::{LevelAt, QueryParams, TaskAt};
use super::new_task::CONTENT_TYPE_PROPERTY;
use super::task_body::task_body;
use super::values::WordList;
use crate::auth::TokenScope::Read;
use crate::clock;
use crate::core::{ServiceError, TaskName, TaskSnapshot, ViewedTasks, with};
use crate::problem::ProblemDetails;
use crate::route::ApiRoute;
use crate::route::Method::Get;
use axum::Json;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use longhaul::TaskId;
use longhaul::ops::{EndedCounts, TaskFilter, TaskInfo, TaskStatus, TaskView};
use longhaul_api::Priority;
use longhaul_api::task::{EverEnded, OldestReady, TaskBody, TaskCountsBody, TaskList};
use longhaul_api::values::{Instant, Length};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use utoipa::{IntoParams, ToSchema};

/// The default number of entries per page.
const PAGE: usize = 100;

/// The most tasks or dead letters per page.
pub(super) const PAGE_MAX: usize = 1_000;

/// The most tasks per page with `why`, for which the message of each is read.
const PAGE_WHY_MAX: usize = 100;

/// The most words of a text in a filter.
const TEXT_WORDS_MAX: usize = 64;

/// Which tasks are wanted.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TaskQuery {
    /// Statuses, separated by commas. Selects tasks with any of them.
    #[param(value_type = String)]
    pub(crate) status: WordList,
    /// Tags, separated by commas. Selects tasks with all of them.
    #[param(value_type = String)]
    pub(crate) tag: WordList,
    #[serde(rename = "type")]
    #[param(rename = "type")]
    pub(crate) task_type: Option<String>,
    pub(crate) key: Option<String>,
    /// Words separated by spaces. Selects tasks that have each word in their id, key, type, tags or reason; case is ignored.
    pub(crate) text: Option<String>,
    /// Selects tasks that were submitted at this instant or later.
    pub(crate) created_from: Option<Instant>,
    /// Selects tasks that were submitted at this instant or earlier.
    pub(crate) created_to: Option<Instant>,
    /// Selects tasks that changed at this instant or later.
    pub(crate) changed_from: Option<Instant>,
    /// Selects tasks that have not changed since this instant.
    pub(crate) changed_to: Option<Instant>,
    /// Shows the tasks as they were at this instant; only tasks that a worker had claimed. The log reaches back for a day.
    pub(crate) at: Option<Instant>,
    /// `oldest` (the default): by partition, the oldest first. `newest`: over all partitions, the newest first.
    #[param(inline)]
    pub(crate) order: Order,
    /// The `next` of the previous page, which must have the same order.
    pub(crate) after: Option<String>,
    /// The most tasks to return: 1 to 1,000 (with `why`, 1 to 100), 100 by default.
    pub(crate) limit: Option<usize>,
    /// `true` adds `why` to each task that does not run: the reason, in one sentence.
    pub(crate) why: bool,
}

/// Which tasks come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Order {
    #[default]
    Oldest,
    Newest,
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
struct WaitQuery {
    /// How long to wait: 30 s by default and at most.
    timeout: Option<Length>,
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
struct CountQuery {
    /// Shows the tasks as they were at this instant; only tasks that a worker had claimed. The log reaches back for a day.
    at: Option<Instant>,
}

pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        ApiRoute::new(Get, "/v1/queues/{queue}/tasks", Read, list)
            .does(
                "list_tasks",
                "Lists tasks, by default in the order of their submission in each partition.",
            )
            .of_level()
            .query::<TaskQuery>()
            .answers::<TaskList>(200, "A page of tasks."),
        ApiRoute::new(Get, "/v1/queues/{queue}/counts", Read, count)
            .does("count_tasks", "Counts tasks by status.")
            .of_level()
            .query::<CountQuery>()
            .answers::<TaskCountsBody>(200, "The numbers of tasks."),
        ApiRoute::new(Get, "/v1/queues/{queue}/tasks/{task}", Read, get)
            .does("get_task", "Returns the state of a task.")
            .answers::<TaskBody>(200, "The task."),
        ApiRoute::new(Get, "/v1/queues/{queue}/tasks/{task}/wait", Read, wait)
            .waits()
            .does("wait_for_task", "Waits for the end of a task, 30 s at most.")
            .query::<WaitQuery>()
            .answers::<TaskBody>(200, "The task, which is over.")
            .answers_empty(204, "The task is not over yet: repeat the request."),
        ApiRoute::new(Get, "/v1/queues/{queue}/tasks/{task}/result", Read, result)
            .does("get_task_result", "Returns the bytes of the result of a task.")
            .answers_raw(200, "application/octet-stream", "The result."),
        ApiRoute::new(Get, "/v1/queues/{queue}/tasks/{task}/payload", Read, payload)
            .does("get_task_payload", "Returns the bytes of the payload of a task.")
            .answers_raw(200, "application/octet-stream", "The payload."),
        ApiRoute::new(Get, "/v1/queues/{queue}/tasks/{task}/properties", Read, properties)
            .does(
                "get_task_properties",
                "Returns the properties of the message of a task, including those of its options.",
            )
            .answers::<BTreeMap<String, String>>(200, "The properties."),
    ]
}

impl TaskQuery {
    /// Whether it names some of the tasks, and not all.
    pub(super) fn is_narrow(&self) -> bool {
        let times = [self.created_from, self.created_to, self.changed_from, self.changed_to];
        let words = !self.status.0.is_empty() || !self.tag.0.is_empty();
        let texts = [&self.task_type, &self.key, &self.text];
        words || texts.iter().any(|it| it.is_some()) || times.iter().any(Option::is_some)
    }

    /// The library's filter for the query.
    pub(crate) fn filter(&self) -> Result<TaskFilter, ProblemDetails> {
        let mut filter = TaskFilter::new();
        for status in &self.status.0 {
            filter = filter.status(status_of(status)?);
        }
        filter = self.tag.0.iter().fold(filter, TaskFilter::tag);
        filter = with(filter, self.task_type.as_ref(), TaskFilter::task_type);
        filter = with(filter, self.key.as_ref(), TaskFilter::key);
        if let Some(text) = &self.text {
            if !(1..=TEXT_WORDS_MAX).contains(&text.split_whitespace().count()) {
                let detail =
                    format!("`text` must have 1 to {TEXT_WORDS_MAX} words, or be left out");
                return Err(ProblemDetails::bad_request("query_invalid", detail));
            }
            // The ids of a level are shown with its name, and the level is chosen already.
            for word in text.split_whitespace() {
                let id = Priority::ALL
                    .iter()
                    .find_map(|level| word.strip_prefix(level.word())?.strip_prefix('~'));
                filter = filter.text(id.unwrap_or(word));
            }
        }
        filter = with(filter, between(self.created_from, self.created_to), TaskFilter::created);
        Ok(with(filter, between(self.changed_from, self.changed_to), TaskFilter::changed))
    }
}

/// The time between two instants, in ms since the epoch, if one of them is given.
pub(super) fn between(from: Option<Instant>, to: Option<Instant>) -> Option<RangeInclusive<u64>> {
    let ms = |it: Option<Instant>, open| it.map_or(open, Instant::ms);
    (from.is_some() || to.is_some()).then(|| ms(from, 0)..=ms(to, u64::MAX))
}

/// All tasks now, or the claimed ones at an instant.
fn scope_at(at: Option<Instant>) -> ViewedTasks {
    at.map_or(ViewedTasks::All, |it| ViewedTasks::Past(it.ms()))
}

/// The status with this name.
pub(crate) fn status_of(text: &str) -> Result<TaskStatus, ProblemDetails> {
    let found = TaskStatus::ALL.into_iter().find(|status| status.word() == text);
    found.ok_or_else(|| {
        let all = TaskStatus::ALL.map(TaskStatus::word).join(", ");
        let shown: String = text.chars().take(80).collect();
        ProblemDetails::bad_request(
            "query_invalid",
            format!("`{shown}` is not a status; expected one of {all}"),
        )
    })
}

/// Checks the limit of a list: 1 to `max` entries, 100 by default.
pub(super) fn limit_of(
    limit: Option<usize>,
    max: usize,
    entries: &str,
) -> Result<usize, ProblemDetails> {
    let limit = limit.unwrap_or(PAGE);
    if (1..=max).contains(&limit) {
        return Ok(limit);
    }
    let detail = format!("`limit` must be 1 to {max} {entries}, not {limit}");
    Err(ProblemDetails::bad_request("query_invalid", detail))
}

async fn list(
    LevelAt { level, caller }: LevelAt,
    QueryParams(query): QueryParams<TaskQuery>,
) -> JsonAnswer<TaskList> {
    let (filter, limit) = (query.filter()?, limit_of(query.limit, PAGE_MAX, "entries")?);
    if query.why && limit > PAGE_WHY_MAX {
        let detail = format!("with `why`, `limit` must be 1 to {PAGE_WHY_MAX} tasks, not {limit}");
        return Err(ProblemDetails::bad_request("query_invalid", detail));
    }
    if query.why && query.at.is_some() {
        let detail = "`why` cannot be used with `at`: it explains why a task does not run now";
        return Err(ProblemDetails::bad_request("query_invalid", detail));
    }
    let scope = scope_at(query.at);
    let (found, next) = match query.order {
        Order::Oldest => {
            let after = query.after.as_deref().map(str::parse::<TaskName>).transpose();
            let after = after?.map(|name| name.id);
            let page = caller.service.ask(&level, scope, |view| view.list(&filter, after, limit));
            let page = page.await?;
            (page.tasks, page.next.map(|id| level.task(id).to_string()))
        }
        Order::Newest => {
            let before = places(query.after.as_deref().unwrap_or_default())?;
            let page =
                caller.service.ask(&level, scope, |view| view.newest(&filter, &before, limit));
            let page = page.await?;
            let next: Vec<_> = page.next.iter().map(|id| level.task(*id).to_string()).collect();
            (page.tasks, Some(next.join(",")).filter(|next| !next.is_empty()))
        }
    };
    let hidden = caller.is_blind();
    let whys =
        if query.why { caller.service.why_all(&level, &found).await? } else { BTreeMap::new() };
    let body = |info: TaskInfo| {
        let why = whys.get(&info.id).map(ToString::to_string);
        let task = TaskSnapshot::listed(&level, info);
        TaskBody { why, ..task_body(level.queue(), task, hidden) }
    };
    let tasks = found.into_iter().map(body).collect();
    Ok(Json(TaskList { tasks, next, now: clock::wall_ms() }))
}

/// The start of a page of the newest tasks: one task per partition, separated by commas.
fn places(text: &str) -> Result<Vec<TaskId>, ProblemDetails> {
    let names = text.split(',').filter(|name| !name.is_empty()).map(str::parse::<TaskName>);
    let ids = names.map(|name| name.map(|name| name.id)).collect::<Result<_, _>>();
    Ok(ids?)
}

async fn count(
    LevelAt { level, caller }: LevelAt,
    QueryParams(CountQuery { at }): QueryParams<CountQuery>,
) -> JsonAnswer<TaskCountsBody> {
    let counts = caller.service.ask(&level, scope_at(at), TaskView::counts).await?;
    let EndedCounts { completed, failed, cancelled, expired } = counts.ever_ended;
    let oldest = |(id, since)| OldestReady { id: level.task(id).to_string(), since };
    Ok(Json(TaskCountsBody {
        by_status: counts.by_status.iter().map(|(it, count)| (it.word().into(), *count)).collect(),
        total: counts.total(),
        demand: counts.demand(),
        oldest_ready: counts.oldest_ready.map(oldest),
        ever_ended: EverEnded { completed, failed, cancelled, expired },
        now: clock::wall_ms(),
    }))
}

async fn get(TaskAt { queue, task, caller }: TaskAt) -> JsonAnswer<TaskBody> {
    let task = caller.service.task(&queue, task).await?;
    Ok(Json(task_body(&queue, task, caller.is_blind())))
}

async fn wait(
    TaskAt { queue, task, caller }: TaskAt,
    QueryParams(WaitQuery { timeout }): QueryParams<WaitQuery>,
) -> Result<Response, ProblemDetails> {
    let time = caller.poll_time(timeout.map(|it| it.0));
    let waiting = Box::pin(caller.service.wait(&queue, task, time));
    match caller.draining().run_until_cancelled(waiting).await.transpose()?.flatten() {
        Some(task) => Ok(Json(task_body(&queue, task, caller.is_blind())).into_response()),
        None => Ok(StatusCode::NO_CONTENT.into_response()),
    }
}

async fn result(TaskAt { queue, task, caller }: TaskAt) -> Result<Response, ProblemDetails> {
    let result = caller.service.result(&queue, task).await?;
    caller.check_sight()?;
    Ok(download(result))
}

async fn payload(TaskAt { queue, task, caller }: TaskAt) -> Result<Response, ProblemDetails> {
    let payload = caller.service.payload(&queue, task).await?;
    caller.check_sight()?;
    let mut response = download(payload.bytes);
    let kept = payload.properties.as_ref().and_then(|it| it.get(CONTENT_TYPE_PROPERTY));
    // A browser must not render the payload as a page of the gateway, so its content type is in a
    // header of its own.
    if let Some(Ok(kept)) = kept.map(|it| HeaderValue::from_str(it)) {
        let name = HeaderName::from_static("x-payload-content-type");
        response.headers_mut().insert(name, kept);
    }
    Ok(response)
}

async fn properties(
    TaskAt { queue, task, caller }: TaskAt,
) -> JsonAnswer<BTreeMap<String, String>> {
    let payload = caller.service.payload(&queue, task).await?;
    caller.check_sight()?;
    let gone = || ServiceError::Gone(format!("the message of the task {task} is no longer stored"));
    Ok(Json(payload.properties.ok_or_else(gone)?))
}

/// Answers with bytes that browsers download rather than show.
fn download(bytes: Bytes) -> Response {
    let headers = [(CONTENT_TYPE, "application/octet-stream"), (CONTENT_DISPOSITION, "attachment")];
    (headers, bytes).into_response()
}
