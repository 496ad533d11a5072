//! Routes for schedules.

use super::JsonAnswer;
use super::actions::{ReasonQuery, optional};
use super::at::{NamedAt, QueryParams, QueueAt};
use super::new_task::into_task;
use crate::auth::TokenScope::{Admin, Read};
use crate::clock;
use crate::core::{ActionOrigin, QueueName, ServiceError, name_of};
use crate::problem::ProblemDetails;
use crate::route::Method::{Delete, Get, Patch, Post};
use crate::route::{ApiRoute, Size};
use crate::shell::{Caller, Json, RawBody};
use axum::http::StatusCode;
use longhaul::ActionError;
use longhaul::ops::ScheduleInfo;
use longhaul_api::action::ReasonBody;
use longhaul_api::schedule::{
    FiringBody, NewSchedule, ScheduleBody, ScheduleList, ScheduleUpdate, ScheduleVersion, TimesBody,
};
use longhaul_api::values::Instant;

pub(super) fn routes() -> Vec<ApiRoute> {
    let pause = |at: NamedAt, body: RawBody| change(at, body, ScheduleChange::Pause);
    let resume = |at: NamedAt, body: RawBody| change(at, body, ScheduleChange::Resume);
    let trigger = |at: NamedAt, body: RawBody| change(at, body, ScheduleChange::Trigger);
    vec![
        ApiRoute::new(Get, "/v1/queues/{queue}/schedules", Read, list)
            .does("list_schedules", "Lists the schedules of a queue.")
            .answers::<ScheduleList>(200, "The schedules."),
        ApiRoute::new(Post, "/v1/queues/{queue}/schedules/{name}", Admin, create)
            .does("create_schedule", "Creates a schedule.")
            .body::<NewSchedule>()
            .takes(Size::Task)
            .answers::<ScheduleVersion>(201, "The schedule exists."),
        ApiRoute::new(Get, "/v1/queues/{queue}/schedules/{name}", Read, get)
            .does("get_schedule", "Returns a schedule and its state.")
            .answers::<ScheduleBody>(200, "The schedule."),
        ApiRoute::new(Patch, "/v1/queues/{queue}/schedules/{name}", Admin, update)
            .does("update_schedule", "Changes the times or the task of a schedule.")
            .body::<ScheduleUpdate>()
            .takes(Size::Task)
            .answers::<ScheduleVersion>(200, "The schedule is changed."),
        ApiRoute::new(Delete, "/v1/queues/{queue}/schedules/{name}", Admin, delete)
            .does("delete_schedule", "Deletes a schedule. Tasks that it has submitted continue.")
            .query::<ReasonQuery>()
            .answers_empty(204, "The schedule is deleted."),
        ApiRoute::new(Post, "/v1/queues/{queue}/schedules/{name}:pause", Admin, pause)
            .does("pause_schedule", "Pauses a schedule: it fires only when you trigger it.")
            .optional_body::<ReasonBody>()
            .answers::<ScheduleVersion>(200, "The schedule is paused."),
        ApiRoute::new(Post, "/v1/queues/{queue}/schedules/{name}:resume", Admin, resume)
            .does(
                "resume_schedule",
                "Resumes a schedule. The slots that it missed are not made up for.",
            )
            .optional_body::<ReasonBody>()
            .answers::<ScheduleVersion>(200, "The schedule is not paused."),
        ApiRoute::new(Post, "/v1/queues/{queue}/schedules/{name}:trigger", Admin, trigger)
            .does("trigger_schedule", "Fires a schedule now.")
            .optional_body::<ReasonBody>()
            .answers::<ScheduleVersion>(200, "A worker or a gateway fires the schedule."),
    ]
}

fn body(info: ScheduleInfo, caller: &Caller) -> Result<ScheduleBody, ProblemDetails> {
    let firing = |it: longhaul::ops::Firing| FiringBody {
        slot: Instant(it.slot),
        task: name_of(&it.task).to_string(),
    };
    let unfit =
        |error: String| ServiceError::Unfit(format!("the schedule cannot be shown: {error}"));
    let is_seen = !caller.is_blind();
    let task = is_seen.then(|| serde_json::to_value(&info.schedule.task)).transpose();
    Ok(ScheduleBody {
        name: info.name,
        version: info.version,
        task: task.map_err(|error| unfit(error.to_string()))?,
        schedule: TimesBody::of(&info.schedule).map_err(unfit)?,
        last: info.last.map(firing),
        next: info.next.into_iter().map(Instant).collect(),
        now: clock::wall_ms(),
    })
}

const fn versioned(version: u64, now: u64) -> axum::Json<ScheduleVersion> {
    axum::Json(ScheduleVersion { version, now })
}

async fn list(QueueAt { queue, caller }: QueueAt) -> JsonAnswer<ScheduleList> {
    let found = caller.service.schedules(&queue).await?.list().await?;
    let schedules = found.into_iter().map(|it| body(it, &caller)).collect::<Result<_, _>>()?;
    Ok(axum::Json(ScheduleList { schedules, now: clock::wall_ms() }))
}

async fn create(
    NamedAt { queue, name, caller }: NamedAt,
    Json(NewSchedule { schedule, task, reason }): Json<NewSchedule>,
) -> Result<(StatusCode, axum::Json<ScheduleVersion>), ProblemDetails> {
    let task = caller.service.submission(&queue, into_task(task)?)?;
    let said = caller.says(&reason)?;
    let schedules = caller.service.schedules_by(&queue, said).await?;
    let schedule = schedule.into_schedule().map_err(ServiceError::Unfit)?;
    let version = schedules.create(&name, schedule, task).await?;
    logged("create", &queue, &name, said);
    // A schedule fires while a worker or a gateway has its queue open.
    caller.service.see_to_schedule(&queue).await;
    Ok((StatusCode::CREATED, versioned(version, clock::wall_ms())))
}

async fn get(NamedAt { queue, name, caller }: NamedAt) -> JsonAnswer<ScheduleBody> {
    let found = caller.service.schedules(&queue).await?.get(&name).await?;
    Ok(axum::Json(body(found.ok_or(ActionError::NoSuchSchedule)?, &caller)?))
}

async fn update(
    NamedAt { queue, name, caller }: NamedAt,
    Json(ScheduleUpdate { expected_version, schedule, task, reason }): Json<ScheduleUpdate>,
) -> JsonAnswer<ScheduleVersion> {
    let said = caller.says(&reason)?;
    let schedules = caller.service.schedules_by(&queue, said).await?;
    let version = match (schedule, task) {
        (Some(times), None) => {
            let times = times.into_schedule().map_err(ServiceError::Unfit)?;
            schedules.update(&name, expected_version, |_| times).await?
        }
        (None, Some(task)) => {
            let task = caller.service.submission(&queue, into_task(task)?)?;
            schedules.set_task(&name, expected_version, task).await?
        }
        _ => {
            let text = "an update needs `schedule` or `task`";
            return Err(ServiceError::Unfit(text.to_owned()).into());
        }
    };
    logged("update", &queue, &name, said);
    Ok(versioned(version, clock::wall_ms()))
}

async fn delete(
    NamedAt { queue, name, caller }: NamedAt,
    QueryParams(ReasonQuery { reason }): QueryParams<ReasonQuery>,
) -> Result<StatusCode, ProblemDetails> {
    let said = caller.says(&reason)?;
    let schedules = caller.service.schedules_by(&queue, said).await?;
    schedules.delete(&name).await?;
    logged("delete", &queue, &name, said);
    Ok(StatusCode::NO_CONTENT)
}

/// A change of a schedule without a version.
#[derive(Clone, Copy)]
enum ScheduleChange {
    Pause,
    Resume,
    Trigger,
}

async fn change(
    NamedAt { queue, name, caller }: NamedAt,
    request: RawBody,
    change: ScheduleChange,
) -> JsonAnswer<ScheduleVersion> {
    let ReasonBody { reason } = optional(&request)?;
    let said = caller.says(&reason)?;
    let schedules = caller.service.schedules_by(&queue, said).await?;
    let (word, version) = match change {
        ScheduleChange::Pause => ("pause", schedules.pause(&name).await?),
        ScheduleChange::Resume => ("resume", schedules.resume(&name).await?),
        ScheduleChange::Trigger => ("trigger", schedules.trigger(&name).await?),
    };
    logged(word, &queue, &name, said);
    Ok(versioned(version, clock::wall_ms()))
}

fn logged(action: &str, queue: &QueueName, schedule: &str, said: ActionOrigin<'_>) {
    let (operator, reason) = (said.name, said.reason);
    tracing::info!(event = "schedule_action", action, %queue, schedule, operator, reason);
}
