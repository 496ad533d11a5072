//! Routes for schedules.

use super::actions::{ReasonQuery, optional};
use super::at::{NamedAt, QueryParams, QueueAt, ReasonBody};
use super::new_task::NewTaskBody;
use super::values::{Instant, Length};
use crate::auth::TokenScope;
use crate::clock;
use crate::core::{ActionOrigin, GatewayService, QueueName, ServiceError, name_of};
use crate::problem::ProblemDetails;
use crate::route::{ApiRoute, Method, Size};
use crate::shell::{Caller, Json, RawBody};
use axum::extract::State;
use axum::http::StatusCode;
use longhaul::ops::ScheduleInfo;
use longhaul::{Overlap, Schedule};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use utoipa::ToSchema;

/// When a schedule fires: by `cron`, `every` or `at`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = Schedule)]
pub(crate) struct TimesBody {
    /// A cron expression of 5 to 7 fields.
    #[serde(skip_serializing_if = "Option::is_none")]
    cron: Option<String>,
    /// The time zone of the expression, such as `Europe/Berlin`.
    #[serde(skip_serializing_if = "Option::is_none")]
    time_zone: Option<String>,
    /// An interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    every: Option<Length>,
    /// How far the slots of an interval lie behind the epoch's.
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<Length>,
    /// One instant.
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<Instant>,
    /// What happens at a slot while a task of an earlier one is not over.
    overlap: OverlapBody,
    /// Slots that passed while nobody fired them are made up for if they are not older.
    #[serde(skip_serializing_if = "Option::is_none")]
    catch_up_window: Option<Length>,
    /// It fires only by hand.
    paused: bool,
}

/// What happens at a slot while a task of an earlier one is not over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = Overlap)]
pub(crate) enum OverlapBody {
    /// Nothing is submitted.
    #[default]
    Skip,
    /// One task waits.
    BufferOne,
    /// The task before is cancelled.
    CancelOther,
    /// Tasks run beside each other.
    AllowAll,
}

/// A new schedule.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewSchedule {
    schedule: TimesBody,
    task: NewTaskBody,
    /// Up to 1,000 bytes, for the log of actions.
    #[serde(default)]
    reason: String,
}

/// Other times, or another task, for a schedule.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScheduleUpdate {
    /// The version that was seen; if another one stands nothing is changed (`version_conflict`).
    expected_version: u64,
    /// `schedule` or `task`, not both.
    #[serde(default)]
    schedule: Option<TimesBody>,
    #[serde(default)]
    task: Option<NewTaskBody>,
    /// Up to 1,000 bytes, for the log of actions.
    #[serde(default)]
    reason: String,
}

/// A schedule, and how it stands.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ScheduleBody {
    name: String,
    version: u64,
    schedule: TimesBody,
    /// What it submits: the payload in `text` or `base64`, and the properties of the message. Absent where payloads are hidden from whoever asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    task: Option<Value>,
    /// The slot that was settled last.
    #[serde(skip_serializing_if = "Option::is_none")]
    last: Option<FiringBody>,
    /// Its next slots, up to ten.
    next: Vec<Instant>,
    /// Now, by the gateway's clock.
    now: u64,
}

/// A slot that was settled.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Firing)]
pub(crate) struct FiringBody {
    slot: Instant,
    /// The task that came of it, or was in its way.
    task: String,
}

/// The schedules of a queue, by name.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ScheduleList {
    schedules: Vec<ScheduleBody>,
    /// Now, by the gateway's clock.
    now: u64,
}

/// The version of a schedule that stands.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ScheduleVersion {
    version: u64,
    /// Now, by the gateway's clock.
    now: u64,
}

pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        ApiRoute::new(Method::Get, "/v1/queues/{queue}/schedules", TokenScope::Read, list)
            .does("list_schedules", "Lists the schedules of a queue.")
            .answers::<ScheduleList>(200, "The schedules."),
        ApiRoute::new(
            Method::Post,
            "/v1/queues/{queue}/schedules/{name}",
            TokenScope::Admin,
            create,
        )
        .does("create_schedule", "Makes a schedule.")
        .body::<NewSchedule>()
        .takes(Size::Task)
        .answers::<ScheduleVersion>(201, "It is there."),
        ApiRoute::new(Method::Get, "/v1/queues/{queue}/schedules/{name}", TokenScope::Read, get)
            .does("get_schedule", "A schedule, and how it stands.")
            .answers::<ScheduleBody>(200, "The schedule."),
        ApiRoute::new(
            Method::Patch,
            "/v1/queues/{queue}/schedules/{name}",
            TokenScope::Admin,
            update,
        )
        .does("update_schedule", "Changes the times or the task of a schedule.")
        .body::<ScheduleUpdate>()
        .takes(Size::Task)
        .answers::<ScheduleVersion>(200, "It is changed."),
        ApiRoute::new(
            Method::Delete,
            "/v1/queues/{queue}/schedules/{name}",
            TokenScope::Admin,
            delete,
        )
        .does("delete_schedule", "Deletes a schedule; tasks that it has submitted go on.")
        .query::<ReasonQuery>()
        .answers_empty(204, "It is gone."),
        ApiRoute::new(
            Method::Post,
            "/v1/queues/{queue}/schedules/{name}:pause",
            TokenScope::Admin,
            pause,
        )
        .does("pause_schedule", "Has a schedule fire only by hand.")
        .optional_body::<ReasonBody>()
        .answers::<ScheduleVersion>(200, "It is paused."),
        ApiRoute::new(
            Method::Post,
            "/v1/queues/{queue}/schedules/{name}:resume",
            TokenScope::Admin,
            resume,
        )
        .does(
            "resume_schedule",
            "Has a schedule fire again; what it has missed is not made up for.",
        )
        .optional_body::<ReasonBody>()
        .answers::<ScheduleVersion>(200, "It is not paused."),
        ApiRoute::new(
            Method::Post,
            "/v1/queues/{queue}/schedules/{name}:trigger",
            TokenScope::Admin,
            trigger,
        )
        .does("trigger_schedule", "Fires a schedule now.")
        .optional_body::<ReasonBody>()
        .answers::<ScheduleVersion>(200, "A worker fires it."),
    ]
}

impl TimesBody {
    /// The schedule in this body.
    fn into_schedule(self) -> Result<Schedule, ServiceError> {
        let kinds = [self.cron.is_some(), self.every.is_some(), self.at.is_some()];
        if kinds.iter().filter(|is| **is).count() != 1 {
            let text = "a schedule has one of `cron`, `every` and `at`";
            return Err(ServiceError::Unfit(text.to_owned()));
        }
        let mut schedule = match (self.cron, self.every, self.at) {
            (Some(cron), _, _) => Schedule::cron(cron),
            (_, Some(every), _) => Schedule::every(every.0),
            (_, _, Some(at)) => Schedule::at(at.0),
            (None, None, None) => Schedule::default(),
        };
        if let Some(zone) = self.time_zone {
            schedule = schedule.time_zone(zone);
        }
        if let Some(offset) = self.offset {
            schedule = schedule.offset(offset.0);
        }
        if let Some(window) = self.catch_up_window {
            schedule = schedule.catch_up_window(window.0);
        }
        schedule = schedule.overlap(match self.overlap {
            OverlapBody::Skip => Overlap::Skip,
            OverlapBody::BufferOne => Overlap::BufferOne,
            OverlapBody::CancelOther => Overlap::CancelOther,
            OverlapBody::AllowAll => Overlap::AllowAll,
        });
        Ok(if self.paused { schedule.paused() } else { schedule })
    }

    /// The body of a schedule. Its fields are those of the document.
    fn of(schedule: &Schedule) -> Result<Self, ServiceError> {
        let document = serde_json::to_value(schedule).map_err(unreadable)?;
        let text = |name: &str| document.get(name).and_then(Value::as_str).map(str::to_owned);
        let value = |name: &str| document.get(name).cloned().unwrap_or(Value::Null);
        let length = |name| serde_json::from_value(value(name)).map_err(unreadable);
        Ok(Self {
            cron: text("cron"),
            time_zone: text("timeZone"),
            every: length("every")?,
            offset: length("offset")?,
            at: serde_json::from_value(value("at")).map_err(unreadable)?,
            overlap: match text("overlap").as_deref() {
                Some("bufferOne") => OverlapBody::BufferOne,
                Some("cancelOther") => OverlapBody::CancelOther,
                Some("allowAll") => OverlapBody::AllowAll,
                _ => OverlapBody::Skip,
            },
            catch_up_window: length("catchUpWindow")?,
            paused: schedule.is_paused(),
        })
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it maps errors")]
fn unreadable(error: serde_json::Error) -> ServiceError {
    ServiceError::Unfit(format!("the schedule cannot be shown: {error}"))
}

fn body(info: ScheduleInfo, caller: &Caller) -> Result<ScheduleBody, ProblemDetails> {
    let firing = |it: longhaul::ops::Firing| FiringBody {
        slot: Instant(it.slot),
        task: name_of(&it.task).to_string(),
    };
    let is_seen = !caller.is_blind();
    let task = is_seen.then(|| serde_json::to_value(&info.schedule.task)).transpose();
    Ok(ScheduleBody {
        name: info.name,
        version: info.version,
        task: task.map_err(unreadable)?,
        schedule: TimesBody::of(&info.schedule)?,
        last: info.last.map(firing),
        next: info.next.into_iter().map(Instant).collect(),
        now: clock::wall_ms(),
    })
}

const fn versioned(version: u64, now: u64) -> axum::Json<ScheduleVersion> {
    axum::Json(ScheduleVersion { version, now })
}

async fn list(
    State(service): State<Arc<GatewayService>>,
    QueueAt { queue, caller }: QueueAt,
) -> Result<axum::Json<ScheduleList>, ProblemDetails> {
    let found = service.schedules(&queue).await?.list().await.map_err(ServiceError::from)?;
    let schedules = found.into_iter().map(|it| body(it, &caller)).collect::<Result<_, _>>()?;
    Ok(axum::Json(ScheduleList { schedules, now: clock::wall_ms() }))
}

async fn create(
    State(service): State<Arc<GatewayService>>,
    NamedAt { queue, name, caller }: NamedAt,
    Json(NewSchedule { schedule, task, reason }): Json<NewSchedule>,
) -> Result<(StatusCode, axum::Json<ScheduleVersion>), ProblemDetails> {
    let task = service.submission(&queue, task.into_task()?)?;
    let said = caller.says(&reason)?;
    let schedules = service.schedules_by(&queue, said).await?;
    let created = schedules.create(&name, schedule.into_schedule()?, task).await;
    let version = created.map_err(ServiceError::from)?;
    logged("create", &queue, &name, said);
    // A schedule fires while a worker or a gateway has its queue open.
    service.see_to_schedule(&queue).await;
    Ok((StatusCode::CREATED, versioned(version, clock::wall_ms())))
}

async fn get(
    State(service): State<Arc<GatewayService>>,
    NamedAt { queue, name, caller }: NamedAt,
) -> Result<axum::Json<ScheduleBody>, ProblemDetails> {
    let found = service.schedules(&queue).await?.get(&name).await.map_err(ServiceError::from)?;
    let missing = || ServiceError::from(longhaul::ActionError::NoSuchSchedule);
    Ok(axum::Json(body(found.ok_or_else(missing)?, &caller)?))
}

async fn update(
    State(service): State<Arc<GatewayService>>,
    NamedAt { queue, name, caller }: NamedAt,
    Json(ScheduleUpdate { expected_version, schedule, task, reason }): Json<ScheduleUpdate>,
) -> Result<axum::Json<ScheduleVersion>, ProblemDetails> {
    let said = caller.says(&reason)?;
    let schedules = service.schedules_by(&queue, said).await?;
    let changed = match (schedule, task) {
        (Some(times), None) => {
            let times = times.into_schedule()?;
            schedules.update(&name, expected_version, |_| times).await
        }
        (None, Some(task)) => {
            let task = service.submission(&queue, task.into_task()?)?;
            schedules.set_task(&name, expected_version, task).await
        }
        _ => {
            let text = "an update has `schedule` or `task`";
            return Err(ServiceError::Unfit(text.to_owned()).into());
        }
    };
    let version = changed.map_err(ServiceError::from)?;
    logged("update", &queue, &name, said);
    Ok(versioned(version, clock::wall_ms()))
}

async fn delete(
    State(service): State<Arc<GatewayService>>,
    NamedAt { queue, name, caller }: NamedAt,
    QueryParams(ReasonQuery { reason }): QueryParams<ReasonQuery>,
) -> Result<StatusCode, ProblemDetails> {
    let said = caller.says(&reason)?;
    let schedules = service.schedules_by(&queue, said).await?;
    schedules.delete(&name).await.map_err(ServiceError::from)?;
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
    service: &GatewayService,
    NamedAt { queue, name, caller }: NamedAt,
    request: &RawBody,
    change: ScheduleChange,
) -> Result<axum::Json<ScheduleVersion>, ProblemDetails> {
    let ReasonBody { reason } = optional(request)?;
    let said = caller.says(&reason)?;
    let schedules = service.schedules_by(&queue, said).await?;
    let (word, changed) = match change {
        ScheduleChange::Pause => ("pause", schedules.pause(&name).await),
        ScheduleChange::Resume => ("resume", schedules.resume(&name).await),
        ScheduleChange::Trigger => ("trigger", schedules.trigger(&name).await),
    };
    let version = changed.map_err(ServiceError::from)?;
    logged(word, &queue, &name, said);
    Ok(versioned(version, clock::wall_ms()))
}

fn logged(action: &str, queue: &QueueName, schedule: &str, said: ActionOrigin<'_>) {
    let (operator, reason) = (said.name, said.reason);
    tracing::info!(event = "schedule_action", action, %queue, schedule, operator, reason);
}

async fn pause(
    State(service): State<Arc<GatewayService>>,
    at: NamedAt,
    body: RawBody,
) -> Result<axum::Json<ScheduleVersion>, ProblemDetails> {
    change(&service, at, &body, ScheduleChange::Pause).await
}

async fn resume(
    State(service): State<Arc<GatewayService>>,
    at: NamedAt,
    body: RawBody,
) -> Result<axum::Json<ScheduleVersion>, ProblemDetails> {
    change(&service, at, &body, ScheduleChange::Resume).await
}

async fn trigger(
    State(service): State<Arc<GatewayService>>,
    at: NamedAt,
    body: RawBody,
) -> Result<axum::Json<ScheduleVersion>, ProblemDetails> {
    change(&service, at, &body, ScheduleChange::Trigger).await
}
