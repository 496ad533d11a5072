//! Schedules, by a gateway.

use super::tasks::body_of_task;
use super::{Gateway, queue_of, renamed, shown};
use crate::exit::Code;
use crate::service::schedules::{Act, Schedules, Shown};
use crate::service::tasks::NewTask;
use crate::times;
use longhaul::Schedule;
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};

/// What a gateway reads of a schedule's document.
const FIELDS: [&str; 8] =
    ["cron", "time_zone", "every", "offset", "at", "overlap", "catch_up_window", "paused"];

#[derive(Debug, Deserialize)]
struct Told {
    name: String,
    version: u64,
    schedule: Value,
    last: Option<Firing>,
    next: Vec<u64>,
}

#[derive(Debug, Deserialize)]
struct Firing {
    slot: u64,
    task: String,
}

#[derive(Debug, Deserialize)]
struct List {
    schedules: Vec<Told>,
}

#[derive(Debug, Deserialize)]
struct Version {
    version: u64,
}

impl Told {
    fn shown(self, queue: &str) -> Shown {
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
        Shown {
            name: self.name,
            version: self.version,
            paused: is_paused,
            schedule,
            last_slot: self.last.as_ref().map(|it| times::iso(it.slot)),
            last_task: self.last.map(|it| shown(queue, &it.task)),
            next: self.next.into_iter().map(times::iso).collect(),
        }
    }
}

/// The times of a schedule, as a gateway reads them.
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

impl Schedules for Gateway {
    async fn create_schedule(
        &self,
        name: &str,
        schedule: Schedule,
        task: NewTask,
    ) -> anyhow::Result<u64> {
        let (queue, _) = queue_of(&task.queue)?;
        let body = json!({ "schedule": times_of(&schedule)?, "task": body_of_task(task)? });
        let path = ["queues", &queue, "schedules", name];
        Ok(self.post::<Version>(&path, &body).await?.version)
    }

    async fn schedules(&self, queue: &str) -> anyhow::Result<Vec<Shown>> {
        let (queue, _) = queue_of(queue)?;
        let told: List = self.get(&["queues", &queue, "schedules"], &[]).await?;
        Ok(told.schedules.into_iter().map(|it| it.shown(&queue)).collect())
    }

    async fn schedule(&self, queue: &str, name: &str) -> anyhow::Result<Option<Shown>> {
        let (queue, _) = queue_of(queue)?;
        let told = self.get::<Told>(&["queues", &queue, "schedules", name], &[]).await;
        match told {
            Ok(told) => Ok(Some(told.shown(&queue))),
            Err(error) if crate::exit::code_of(&error) == Code::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn act_on_schedule(
        &self,
        queue: &str,
        name: &str,
        act: Act,
        reason: &str,
    ) -> anyhow::Result<()> {
        let (queue, _) = queue_of(queue)?;
        let verb = match act {
            Act::Pause => "pause",
            Act::Resume => "resume",
            Act::Trigger => "trigger",
            Act::Delete => {
                let path = ["queues", &queue, "schedules", name];
                return self.send(self.request(Method::DELETE, &path)?).await.map(drop);
            }
        };
        let path = format!("{name}:{verb}");
        self.tell(&["queues", &queue, "schedules", &path], &json!({ "reason": reason })).await
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
