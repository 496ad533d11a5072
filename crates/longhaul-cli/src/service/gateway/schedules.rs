//! Schedules.

use super::address::QueueAddress;
use super::tasks::body_of_task;
use super::{GatewayClient, found, renamed};
use crate::service::schedules::{ScheduleAction, ScheduleDetails};
use crate::service::tasks::TaskSubmission;
use crate::times;
use longhaul::Schedule;
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};

/// The fields of a schedule's document that a gateway accepts.
const FIELDS: [&str; 8] =
    ["cron", "time_zone", "every", "offset", "at", "overlap", "catch_up_window", "paused"];

#[derive(Debug, Deserialize)]
struct ScheduleResponse {
    name: String,
    version: u64,
    schedule: Value,
    /// Gateways of earlier versions do not send it.
    #[serde(default)]
    task: Value,
    last: Option<FiringResponse>,
    next: Vec<u64>,
}

#[derive(Debug, Deserialize)]
struct FiringResponse {
    slot: u64,
    task: String,
}

#[derive(Debug, Deserialize)]
struct ScheduleListResponse {
    schedules: Vec<ScheduleResponse>,
}

#[derive(Debug, Deserialize)]
struct ScheduleVersionResponse {
    version: u64,
}

impl ScheduleResponse {
    fn shown(self, of: &QueueAddress) -> ScheduleDetails {
        let is_paused = self.schedule.get("paused").and_then(Value::as_bool).unwrap_or_default();
        let mut schedule = renamed(self.schedule, &super::camel);
        if let Some(at) = schedule.get_mut("at")
            && let Some(ms) = at.as_u64()
        {
            *at = times::iso(ms).into();
        }
        if let Some(overlap) = schedule.get_mut("overlap") {
            *overlap = super::camel(overlap.as_str().unwrap_or_default()).into();
        }
        if let Value::Object(fields) = &mut schedule
            && !self.task.is_null()
        {
            fields.insert("task".to_owned(), self.task);
        }
        ScheduleDetails {
            name: self.name,
            version: self.version,
            paused: is_paused,
            schedule,
            last_slot: self.last.as_ref().map(|it| times::iso(it.slot)),
            last_task: self.last.map(|it| of.shown(&it.task)),
            next: self.next.into_iter().map(times::iso).collect(),
        }
    }
}

/// The times of a schedule as a request body.
fn times_of(schedule: &Schedule) -> anyhow::Result<Value> {
    let mut document = renamed(serde_json::to_value(schedule)?, &super::snake);
    if let Value::Object(fields) = &mut document {
        fields.retain(|name, _| FIELDS.contains(&name.as_str()));
        if let Some(overlap) = fields.get_mut("overlap") {
            *overlap = super::snake(overlap.as_str().unwrap_or_default()).into();
        }
    }
    Ok(document)
}

impl GatewayClient {
    pub(crate) async fn create_schedule(
        &self,
        name: &str,
        schedule: Schedule,
        task: TaskSubmission,
        reason: &str,
    ) -> anyhow::Result<u64> {
        let to = QueueAddress::of(&task.queue)?.below(&["schedules", name]);
        let times = times_of(&schedule)?;
        let body = json!({ "schedule": times, "task": body_of_task(task)?, "reason": reason });
        Ok(self.post::<ScheduleVersionResponse>(&to, &body).await?.version)
    }

    pub(crate) async fn schedules(&self, queue: &str) -> anyhow::Result<Vec<ScheduleDetails>> {
        let of = QueueAddress::of(queue)?;
        let told: ScheduleListResponse = self.get(&of.below(&["schedules"]), &[]).await?;
        Ok(told.schedules.into_iter().map(|it| it.shown(&of)).collect())
    }

    pub(crate) async fn schedule(
        &self,
        queue: &str,
        name: &str,
    ) -> anyhow::Result<Option<ScheduleDetails>> {
        let of = QueueAddress::of(queue)?;
        let from = of.below(&["schedules", name]);
        let told: Option<ScheduleResponse> = found(self.get(&from, &[]).await)?;
        Ok(told.map(|it| it.shown(&of)))
    }

    pub(crate) async fn act_on_schedule(
        &self,
        queue: &str,
        name: &str,
        act: ScheduleAction,
        reason: &str,
    ) -> anyhow::Result<()> {
        let to = QueueAddress::of(queue)?.below(&["schedules", name]);
        let verb = match act {
            ScheduleAction::Pause => "pause",
            ScheduleAction::Resume => "resume",
            ScheduleAction::Trigger => "trigger",
            ScheduleAction::Delete => {
                let query = [("reason", reason.to_owned())];
                return self.send(self.asking(Method::DELETE, &to, &query)?).await.map(drop);
            }
        };
        self.tell(&to.verb(verb), &json!({ "reason": reason })).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul::Overlap;
    use std::time::Duration;

    #[test]
    fn times_are_written_as_a_gateway_reads_them() {
        let schedule = Schedule::cron("30 2 * * *").time_zone("Europe/Berlin");
        let schedule =
            schedule.overlap(Overlap::BufferOne).catch_up_window(Duration::from_secs(60));
        let expected = json!({
            "cron": "30 2 * * *", "time_zone": "Europe/Berlin", "overlap": "buffer_one",
            "catch_up_window": "PT1M", "paused": false,
        });
        assert_eq!(times_of(&schedule).unwrap(), expected);
    }
}
