//! Routes for dead letters.

use super::JsonAnswer;
use super::actions::optional;
use super::at::{NoParams, QueryParams, SomeLevelAt, TaskAt};
use super::tasks::{PAGE_MAX, between, limit_of};
use super::values::{WordList, all_or_some, early_end};
use crate::auth::TokenScope::{Admin, Read};
use crate::clock;
use crate::core::{QueueName, ReplayChanges, ServiceError, TaskName, name_of, with};
use crate::problem::ProblemDetails;
use crate::route::ApiRoute;
use crate::route::Method::{Get, Post};
use crate::shell::RawBody;
use axum::Json;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::future::ready;
use futures::{StreamExt, TryStreamExt};
use longhaul::ops::{DeadLetter, DeadLetterFilter, Replayed};
use longhaul::{Position, Priority};
use longhaul_api::dead::{
    DeadLetterBody, DeadLetterList, DeadSelection, PurgedLetters, ReplayBody, ReplayChangesBody,
    ReplayList,
};
use longhaul_api::values::Instant;
use serde::Deserialize;
use utoipa::IntoParams;

/// The most dead letters replayed by one request: their outcomes are some 10 MB.
const REPLAYS_MAX: usize = 100_000;

/// The most dead letters named in one request: each of them reads the dead letters.
const NAMED_MAX: usize = 100;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
struct DeadQuery {
    /// Selects letters whose reason contains this text.
    reason: Option<String>,
    /// Tags, separated by commas. Selects letters with all of them.
    #[param(value_type = String)]
    tag: WordList,
    #[serde(rename = "type")]
    #[param(rename = "type")]
    task_type: Option<String>,
    key: Option<String>,
    /// Selects letters of tasks that failed at this instant or later.
    failed_from: Option<Instant>,
    /// Selects letters of tasks that failed at this instant or earlier.
    failed_to: Option<Instant>,
    /// The `next` of the previous page.
    after: Option<String>,
    /// The most letters to return: 1 to 1,000, 100 by default.
    limit: Option<usize>,
}

pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        ApiRoute::new(Get, "/v1/queues/{queue}/dead", Read, list)
            .does("list_dead_letters", "Lists the dead letters of tasks that failed for good.")
            .of_some_level()
            .query::<DeadQuery>()
            .answers::<DeadLetterList>(200, "A page of dead letters."),
        ApiRoute::new(Get, "/v1/queues/{queue}/dead/{task}", Read, show)
            .does("get_dead_letter", "Returns a dead letter with its payload.")
            .answers::<DeadLetterBody>(200, "The dead letter."),
        ApiRoute::new(Post, "/v1/queues/{queue}/dead:replay", Admin, replay)
            .works()
            .does("replay_dead_letters", "Restarts tasks that failed for good, each as one new task, even if you repeat the request. The body selects the tasks.")
            .of_some_level()
            .body::<DeadSelection>()
            .answers::<ReplayList>(200, "The outcome of each replay, at most 100,000: repeat the request for the rest."),
        ApiRoute::new(Post, "/v1/queues/{queue}/dead:purge", Admin, purge)
            .works()
            .does("purge_dead_letters", "Marks the dead letters that the body selects as handled.")
            .of_some_level()
            .body::<DeadSelection>()
            .answers::<PurgedLetters>(200, "The number of purged letters."),
    ]
}

/// The library's filter for a selection, apart from named tasks.
fn filter_of(it: &DeadSelection) -> DeadLetterFilter {
    let mut filter = it.tag.iter().fold(DeadLetterFilter::new(), DeadLetterFilter::tag);
    filter = with(filter, it.failed_with.as_ref(), DeadLetterFilter::reason);
    filter = with(filter, it.task_type.as_ref(), DeadLetterFilter::task_type);
    filter = with(filter, it.key.as_ref(), DeadLetterFilter::key);
    with(filter, between(it.failed_from, it.failed_to), DeadLetterFilter::published)
}

fn position_of(text: &str) -> Result<Position, ProblemDetails> {
    let detail = "`after` must be the `next` of the previous page";
    Position::parse(text).ok_or_else(|| ProblemDetails::bad_request("query_invalid", detail))
}

fn body(queue: &QueueName, letter: DeadLetter, hidden: bool) -> DeadLetterBody {
    let (task, payload) = (name_of(&letter.task), letter.payload.filter(|_| !hidden));
    DeadLetterBody {
        task: task.to_string(),
        queue: queue.to_string(),
        at: letter.published_ms,
        attempts: letter.attempts,
        reason: letter.reason,
        cause: letter.cause.to_string(),
        detail: letter.detail,
        replay_of: letter.replay_of.map(|id| TaskName { id, ..task }.to_string()),
        task_type: letter.task_type,
        tags: letter.tags,
        key: letter.key,
        properties: letter.properties,
        payload_bytes: letter.payload_bytes,
        payload_base64: payload.map(|payload| STANDARD.encode(payload)),
        hidden,
    }
}

async fn list(
    SomeLevelAt { queue, level, caller }: SomeLevelAt,
    QueryParams(query): QueryParams<DeadQuery>,
) -> JsonAnswer<DeadLetterList> {
    let (limit, after) = (limit_of(query.limit, PAGE_MAX, "entries")?, query.after.as_deref());
    let after = after.map(position_of).transpose()?;
    let filter = filter_of(&DeadSelection {
        failed_with: query.reason,
        tag: query.tag.0,
        task_type: query.task_type,
        key: query.key,
        failed_from: query.failed_from,
        failed_to: query.failed_to,
        ..DeadSelection::default()
    });
    let letters = caller.service.letters((&queue, level), None).await?;
    let page = letters.list(&filter, after, limit).await?;
    let (letters, hidden) = (page.letters.into_iter(), caller.is_blind());
    let dead_letters = letters.map(|letter| body(&queue, letter, hidden)).collect();
    let next = page.next.map(|next| next.to_string());
    Ok(Json(DeadLetterList { dead_letters, next, now: clock::wall_ms() }))
}

async fn show(TaskAt { queue, task, caller }: TaskAt) -> JsonAnswer<DeadLetterBody> {
    let letters = caller.service.letters((&queue, None), None).await?;
    let letter = letters.show(&caller.service.task_ref(&queue, task)).await?;
    let letter = letter.ok_or(ServiceError::NoTask(task))?;
    Ok(Json(body(&queue, letter, caller.is_blind())))
}

/// The selection in a body. A forgotten filter would mean all, so the body must say which
/// letters.
fn selection_of(body: &RawBody) -> Result<DeadSelection, ProblemDetails> {
    let it: DeadSelection = optional(body)?;
    let says = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    let filters = [&it.failed_with, &it.task_type, &it.key].into_iter().any(says);
    let is_timed = between(it.failed_from, it.failed_to).is_some();
    let is_narrow = filters || is_timed || !it.tag.is_empty() || !it.tasks.is_empty();
    let fields = "tasks, failed_with, tag, type, key, failed_from or failed_to";
    all_or_some(it.all, is_narrow, fields)?;
    Ok(it)
}

/// The named tasks, if any.
fn named(it: &DeadSelection, level: Option<Priority>) -> Result<Vec<TaskName>, ProblemDetails> {
    if level.is_some() && !it.tasks.is_empty() {
        let detail = "`level` cannot be used with `tasks`: put the level before the id of the \
            task, such as `high~12:0:-1`";
        return Err(ProblemDetails::bad_request("query_invalid", detail));
    }
    if it.tasks.len() > NAMED_MAX {
        let detail =
            format!("a request names at most {NAMED_MAX} tasks, this one names {}", it.tasks.len());
        return Err(ServiceError::Unfit(detail).into());
    }
    let names: Result<Vec<TaskName>, _> = it.tasks.iter().map(|id| id.parse()).collect();
    Ok(names?)
}

/// The changes of a replay. A payload is for one task: all the others would lose theirs.
fn changes_of(
    it: Option<ReplayChangesBody>,
    tasks: usize,
) -> Result<Option<ReplayChanges>, ProblemDetails> {
    let unfit = |detail: &str| ServiceError::Unfit(detail.to_owned()).into();
    let Some(mut it) = it else { return Ok(None) };
    if it == ReplayChangesBody::default() {
        return Err(unfit("`changes` is empty; leave it out to change nothing"));
    }
    let payload = match (it.payload.take(), it.payload_base64.take()) {
        (Some(_), Some(_)) => {
            return Err(unfit("set `payload` or `payload_base64`, not both"));
        }
        (Some(text), None) => Some(text.into()),
        (None, Some(text)) => {
            let bytes = STANDARD.decode(text);
            Some(bytes.map_err(|_| unfit("`payload_base64` is not base64"))?.into())
        }
        (None, None) => None,
    };
    if payload.is_some() && tasks != 1 {
        return Err(unfit("a payload can be changed only for a single task: name it in `tasks`"));
    }
    Ok(Some(ReplayChanges { payload, terms: it }))
}

fn outcome(task: String, replayed: Replayed) -> ReplayBody {
    let (outcome, other) = match replayed {
        Replayed::Restarted(other) => ("RESTARTED", Some(other)),
        Replayed::RestartedBefore(other) => ("RESTARTED_BEFORE", Some(other)),
        Replayed::NotFound => ("NOT_FOUND", None),
        Replayed::NotDead => ("NOT_DEAD", None),
        Replayed::DedupeConflict(other) => ("DEDUPE_CONFLICT", Some(other)),
        Replayed::NoPayload => ("NO_PAYLOAD", None),
        _ => ("UNKNOWN", None),
    };
    ReplayBody { task, outcome: outcome.into(), other: other.map(|it| name_of(&it).to_string()) }
}

async fn replay(
    SomeLevelAt { queue, level, caller }: SomeLevelAt,
    QueryParams(NoParams {}): QueryParams<NoParams>,
    body: RawBody,
) -> JsonAnswer<ReplayList> {
    let mut selection = selection_of(&body)?;
    let changes = changes_of(selection.changes.take(), selection.tasks.len())?;
    let said = caller.says(&selection.reason)?;
    let (mut replays, mut stopped) = (Vec::new(), None);
    let named = named(&selection, level)?;
    caller.service.check_changes(&queue, changes.as_ref()).await?;
    if named.is_empty() {
        let letters = caller.service.letters((&queue, level), said.name).await?;
        let filter = filter_of(&selection);
        let all = match changes.clone() {
            Some(changes) => {
                letters.replay_all_with(filter, said.reason, move |it| changes.apply(it))
            }
            None => letters.replay_all(filter, said.reason),
        };
        let ended = all.take(REPLAYS_MAX).try_for_each(|(task, replayed)| {
            replays.push((name_of(&task), replayed));
            ready(Ok(()))
        });
        stopped = ended.await.err().map(ServiceError::from);
    }
    for name in named {
        match caller.service.replay(&queue, name, said, changes.as_ref()).await {
            Ok(replayed) => replays.push((name, replayed)),
            Err(error) => {
                stopped = Some(error);
                break;
            }
        }
    }
    let mut stopped = early_end(stopped, !replays.is_empty())?;
    if replays.len() >= REPLAYS_MAX {
        stopped = Some(format!(
            "a request replays at most {REPLAYS_MAX} dead letters; repeat it for the rest"
        ));
    }
    let outcomes = replays.into_iter().map(|(task, it)| outcome(task.to_string(), it)).collect();
    Ok(Json(ReplayList { outcomes, stopped, now: clock::wall_ms() }))
}

async fn purge(
    SomeLevelAt { queue, level, caller }: SomeLevelAt,
    QueryParams(NoParams {}): QueryParams<NoParams>,
    body: RawBody,
) -> JsonAnswer<PurgedLetters> {
    let selection = selection_of(&body)?;
    if selection.changes.is_some() {
        let detail = "`changes` is only for replays: a purge runs nothing";
        return Err(ServiceError::Unfit(detail.to_owned()).into());
    }
    let said = caller.says(&selection.reason)?;
    let named = named(&selection, level)?;
    let letters = caller.service.letters((&queue, level), said.name).await?;
    let (mut purged, mut not_found, mut stopped) = (0, Vec::new(), None);
    if named.is_empty() {
        let ended = letters.purge(filter_of(&selection), said.reason).try_for_each(|_| {
            purged += 1;
            ready(Ok(()))
        });
        stopped = ended.await.err();
    }
    for name in named {
        match letters.purge_one(&caller.service.task_ref(&queue, name), said.reason).await {
            Ok(true) => purged += 1,
            Ok(false) => not_found.push(name.to_string()),
            Err(error) => {
                stopped = Some(error);
                break;
            }
        }
    }
    let stopped = early_end(stopped.map(ServiceError::from), purged > 0)?;
    Ok(Json(PurgedLetters { purged, not_found, stopped, now: clock::wall_ms() }))
}
