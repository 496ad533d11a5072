//! Schedules.

use crate::new_task::NewTaskBody;
use crate::values::{Instant, Length};
use longhaul_core::schedule::{Overlap, Schedule};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// When a schedule fires. Set exactly one of `cron`, `every` and `at`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = Schedule)]
pub struct TimesBody {
    /// A cron expression of 5 to 7 fields.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// The time zone of `cron`, such as `Europe/Berlin` (UTC by default).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// The interval between slots, at least 1 s. Slots count from the epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<Length>,
    /// Moves the slots of `every` by this time after the epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<Length>,
    /// The only instant at which the schedule fires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Instant>,
    /// What happens at a slot while the task of an earlier slot is not over.
    pub overlap: OverlapBody,
    /// Missed slots are made up for if they are not older than this (1 year by default).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub catch_up_window: Option<Length>,
    /// Whether the schedule fires only by hand.
    pub paused: bool,
}

/// What happens at a slot while the task of an earlier slot is not over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = Overlap)]
pub enum OverlapBody {
    /// Nothing is submitted.
    #[default]
    Skip,
    /// One task is submitted, and waits until the earlier one is over.
    BufferOne,
    /// The earlier task is cancelled.
    CancelOther,
    /// The tasks run in parallel.
    AllowAll,
}

/// A schedule and its state.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct ScheduleBody {
    pub name: String,
    pub version: u64,
    pub schedule: TimesBody,
    /// The task that the schedule submits: its payload in `text` or `base64`, and the properties of its message. Absent if payloads are hidden from the caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub task: Option<Value>,
    /// The last slot that was fired or skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<FiringBody>,
    /// The next slots, up to ten.
    pub next: Vec<Instant>,
    /// The gateway's current time, in ms since the epoch.
    pub now: u64,
}

/// A slot that was fired or skipped.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
#[schema(as = Firing)]
pub struct FiringBody {
    pub slot: Instant,
    /// The task of the slot; for a skipped slot, the unfinished task that was in its way.
    pub task: String,
}

/// The schedules of a queue, by name.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct ScheduleList {
    pub schedules: Vec<ScheduleBody>,
    /// The gateway's current time, in ms since the epoch.
    pub now: u64,
}

/// The current version of a schedule.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct ScheduleVersion {
    pub version: u64,
    /// The gateway's current time, in ms since the epoch.
    pub now: u64,
}

/// A new schedule.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSchedule {
    pub schedule: TimesBody,
    pub task: NewTaskBody,
    /// Up to 1,000 bytes, for the log of actions.
    #[serde(default)]
    pub reason: String,
}

/// New times or a new task for a schedule.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduleUpdate {
    /// The version that you have read. If it is not current, nothing changes (`version_conflict`).
    pub expected_version: u64,
    /// Set `schedule` or `task`, not both.
    #[serde(default)]
    pub schedule: Option<TimesBody>,
    #[serde(default)]
    pub task: Option<NewTaskBody>,
    /// Up to 1,000 bytes, for the log of actions.
    #[serde(default)]
    pub reason: String,
}

impl TimesBody {
    /// The schedule in this body.
    ///
    /// # Errors
    /// When it does not have exactly one of `cron`, `every` and `at`.
    pub fn into_schedule(self) -> Result<Schedule, String> {
        let mut schedule = match (self.cron, self.every, self.at) {
            (Some(cron), None, None) => Schedule::cron(cron),
            (None, Some(every), None) => Schedule::every(every.0),
            (None, None, Some(at)) => Schedule::at(at.0),
            _ => return Err("a schedule needs exactly one of `cron`, `every` and `at`".to_owned()),
        };
        if let Some(offset) = self.offset {
            schedule = schedule.offset(offset.0);
        }
        if let Some(window) = self.catch_up_window {
            schedule = schedule.catch_up_window(window.0);
        }
        schedule.time_zone = self.time_zone;
        schedule.overlap = match self.overlap {
            OverlapBody::Skip => Overlap::Skip,
            OverlapBody::BufferOne => Overlap::BufferOne,
            OverlapBody::CancelOther => Overlap::CancelOther,
            OverlapBody::AllowAll => Overlap::AllowAll,
        };
        schedule.paused = self.paused;
        Ok(schedule)
    }

    /// The body of a schedule.
    ///
    /// # Errors
    /// When the schedule has an interval, an offset, a window or an instant that cannot be read.
    pub fn of(schedule: &Schedule) -> Result<Self, String> {
        let length = |text: &Option<String>| text.as_deref().map(Length::parse).transpose();
        Ok(Self {
            cron: schedule.cron.clone(),
            time_zone: schedule.time_zone.clone(),
            every: length(&schedule.every)?,
            offset: length(&schedule.offset)?,
            at: schedule.at.as_deref().map(Instant::parse).transpose()?,
            overlap: match schedule.overlap {
                Overlap::BufferOne => OverlapBody::BufferOne,
                Overlap::CancelOther => OverlapBody::CancelOther,
                Overlap::AllowAll => OverlapBody::AllowAll,
                Overlap::Skip | _ => OverlapBody::Skip,
            },
            catch_up_window: length(&schedule.catch_up_window)?,
            paused: schedule.paused,
        })
    }
}
