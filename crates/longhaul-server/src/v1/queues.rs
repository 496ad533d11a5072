//! Routes that create, list, change, pause, purge and delete queues.

use super::JsonAnswer;
use super::actions::{ReasonQuery, optional};
use super::at::{LevelAt, NoParams, QueryParams, QueueAt};
use super::tasks::TaskQuery;
use super::values::{WordList, all_or_some, early_end};
use crate::auth::TokenScope::{Admin, Read};
use crate::clock;
use crate::core::{QueueName, ServiceError};
use crate::problem::ProblemDetails;
use crate::route::ApiRoute;
use crate::route::Method::{Delete, Get, Patch, Post, Put};
use crate::shell::{Caller, Json, RawBody};
use axum::http::StatusCode;
use longhaul_api::action::ReasonBody;
use longhaul_api::queue::{
    CreatedQueue, NewQueue, PurgeBody, PurgeResultBody, QueueBody, QueueList, QueueUpdate,
    QueueVersion,
};
use longhaul_api::settings::SettingsBody;

pub(super) fn routes() -> Vec<ApiRoute> {
    let pause = |at: QueueAt, body: RawBody| set_paused(at, body, true);
    let resume = |at: QueueAt, body: RawBody| set_paused(at, body, false);
    vec![
        ApiRoute::new(Get, "/v1/queues", Read, list)
            .does("list_queues", "Lists the queues that the caller may use.")
            .answers::<QueueList>(200, "The queues."),
        ApiRoute::new(Put, "/v1/queues/{queue}", Admin, create)
            .does("create_queue", "Creates a queue, or corrects its topics.")
            .optional_body::<NewQueue>()
            .answers::<CreatedQueue>(200, "The queue exists."),
        ApiRoute::new(Get, "/v1/queues/{queue}", Read, get)
            .does("get_queue", "Returns the settings of a queue.")
            .answers::<QueueBody>(200, "The queue."),
        ApiRoute::new(Patch, "/v1/queues/{queue}", Admin, update)
            .does(
                "update_queue",
                "Replaces the settings of a queue. Workers follow them within a second.",
            )
            .body::<QueueUpdate>()
            .answers::<QueueVersion>(200, "The settings are changed."),
        ApiRoute::new(Delete, "/v1/queues/{queue}", Admin, delete)
            .does("delete_queue", "Deletes a queue with all its tasks and their history.")
            .query::<ReasonQuery>()
            .answers_empty(204, "The queue is deleted."),
        ApiRoute::new(Post, "/v1/queues/{queue}:pause", Admin, pause)
            .does(
                "pause_queue",
                "Pauses the queue: no task begins until it is resumed. Running tasks continue.",
            )
            .optional_body::<ReasonBody>()
            .answers::<QueueVersion>(200, "The queue is paused."),
        ApiRoute::new(Post, "/v1/queues/{queue}:resume", Admin, resume)
            .does("resume_queue", "Resumes the queue: tasks begin again.")
            .optional_body::<ReasonBody>()
            .answers::<QueueVersion>(200, "The queue is not paused."),
        ApiRoute::new(Post, "/v1/queues/{queue}:purge", Admin, purge)
            .works()
            .does(
                "purge_queue",
                "Deletes the unfinished tasks of one priority level that the body selects. The \
                 request has no time limit; closing the connection stops it.",
            )
            .of_level()
            .body::<PurgeBody>()
            .answers::<PurgeResultBody>(200, "The number of deleted tasks."),
    ]
}

async fn list(caller: Caller) -> JsonAnswer<QueueList> {
    let queues = caller.service.queues().await?;
    let may = |queue: &QueueName| caller.identity.may_use(queue.as_str());
    let queues = queues.iter().filter(|it| may(it)).map(ToString::to_string).collect();
    Ok(axum::Json(QueueList { queues, now: clock::wall_ms() }))
}

async fn create(QueueAt { queue, caller }: QueueAt, body: RawBody) -> JsonAnswer<CreatedQueue> {
    let new = optional(&body)?;
    let steps = caller.service.create_queue(&queue, new, caller.name()).await?;
    let name = queue.to_string();
    Ok(axum::Json(CreatedQueue { name, steps, now: clock::wall_ms() }))
}

async fn get(QueueAt { queue, caller }: QueueAt) -> JsonAnswer<QueueBody> {
    let found = caller.service.settings(&queue).await?;
    Ok(axum::Json(QueueBody {
        name: queue.to_string(),
        version: found.version,
        settings: SettingsBody::from(&found.settings),
        levels: caller.service.check_queue(&queue).await?,
        limits: caller.service.limits(&queue, found.limits),
        now: clock::wall_ms(),
    }))
}

async fn update(
    QueueAt { queue, caller }: QueueAt,
    Json(QueueUpdate { expected_version, settings, reason }): Json<QueueUpdate>,
) -> JsonAnswer<QueueVersion> {
    let change = settings.checked().map_err(ServiceError::Unfit)?;
    let said = caller.says(&reason)?;
    let changed = caller.service.update_settings(&queue, expected_version, change, said);
    Ok(axum::Json(version(changed.await?)))
}

fn version(version: u64) -> QueueVersion {
    QueueVersion { version, now: clock::wall_ms() }
}

async fn delete(
    QueueAt { queue, caller }: QueueAt,
    QueryParams(ReasonQuery { reason }): QueryParams<ReasonQuery>,
) -> Result<StatusCode, ProblemDetails> {
    caller.service.delete_queue(&queue, caller.says(&reason)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn set_paused(
    QueueAt { queue, caller }: QueueAt,
    body: RawBody,
    paused: bool,
) -> JsonAnswer<QueueVersion> {
    let ReasonBody { reason } = optional(&body)?;
    let changed = caller.service.set_paused(&queue, paused, caller.says(&reason)?);
    Ok(axum::Json(version(changed.await?)))
}

async fn purge(
    LevelAt { level, caller }: LevelAt,
    QueryParams(NoParams {}): QueryParams<NoParams>,
    body: RawBody,
) -> JsonAnswer<PurgeResultBody> {
    let it: PurgeBody = optional(&body)?;
    let says = |text: Option<String>| text.filter(|it| !it.is_empty());
    let query = TaskQuery {
        status: WordList(it.status),
        tag: WordList(it.tag),
        task_type: says(it.task_type),
        key: says(it.key),
        text: says(it.text),
        created_from: it.created_from,
        created_to: it.created_to,
        changed_from: it.changed_from,
        changed_to: it.changed_to,
        ..TaskQuery::default()
    };
    let fields =
        "status, tag, type, key, text, created_from, created_to, changed_from or changed_to";
    all_or_some(it.all, query.is_narrow(), fields)?;
    let purged = caller.service.purge(&level, query.filter()?, caller.says(&it.reason)?);
    let (deleted, failed, stopped) = purged.await?;
    let stopped = early_end(stopped, deleted + failed > 0)?;
    Ok(axum::Json(PurgeResultBody { deleted, failed, stopped, now: clock::wall_ms() }))
}
