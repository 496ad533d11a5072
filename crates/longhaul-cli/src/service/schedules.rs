//! Schedules: tasks by cron expressions, intervals and instants.

use super::Pulsar;
use super::tasks::{TaskSubmission, named};
use crate::output::{TableRow, Tone};
use crate::times;
use longhaul::ops::ScheduleInfo;
use longhaul::{Raw, Schedule};
use serde::Serialize;
use serde_json::Value;

/// Creates, reads and changes schedules.
pub(crate) trait ScheduleService {
    async fn create_schedule(
        &self,
        name: &str,
        schedule: Schedule,
        task: TaskSubmission,
    ) -> anyhow::Result<u64>;
    async fn schedules(&self, queue: &str) -> anyhow::Result<Vec<ScheduleDetails>>;
    async fn schedule(&self, queue: &str, name: &str) -> anyhow::Result<Option<ScheduleDetails>>;
    /// Performs an action on a schedule.
    async fn act_on_schedule(
        &self,
        queue: &str,
        name: &str,
        act: ScheduleAction,
        reason: &str,
    ) -> anyhow::Result<()>;
}

/// An action on a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScheduleAction {
    Pause,
    Resume,
    Trigger,
    Delete,
}

/// A schedule and its state.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ScheduleDetails {
    pub(crate) name: String,
    pub(crate) version: u64,
    pub(crate) paused: bool,
    /// The schedule's document.
    pub(crate) schedule: Value,
    pub(crate) last_slot: Option<String>,
    pub(crate) last_task: Option<String>,
    pub(crate) next: Vec<String>,
}

impl ScheduleDetails {
    fn of(info: ScheduleInfo) -> anyhow::Result<Self> {
        Ok(Self {
            name: info.name,
            version: info.version,
            paused: info.schedule.is_paused(),
            schedule: serde_json::to_value(&info.schedule)?,
            last_slot: info.last.as_ref().map(|it| times::iso_of(it.slot)),
            last_task: info.last.as_ref().map(|it| named(&it.task)),
            next: info.next.into_iter().map(times::iso_of).collect(),
        })
    }

    /// When it fires, in short.
    pub(crate) fn when(&self) -> String {
        let text = |name: &str| self.schedule.get(name).and_then(Value::as_str);
        let zone = text("timeZone").map(|it| format!(" ({it})")).unwrap_or_default();
        let cron = text("cron").map(|it| format!("{it}{zone}"));
        let every = || text("every").map(|it| format!("every {it}"));
        let at = || text("at").map(|it| format!("at {it}"));
        cron.or_else(every).or_else(at).unwrap_or_default()
    }

    /// The fields for people.
    pub(crate) fn fields(&self) -> Vec<(&'static str, String)> {
        let overlap = self.schedule.get("overlap").and_then(Value::as_str).unwrap_or_default();
        let task = self.schedule.get("task").map(ToString::to_string).unwrap_or_default();
        vec![
            ("name", self.name.clone()),
            ("version", self.version.to_string()),
            ("fires", self.when()),
            ("paused", if self.paused { "yes" } else { "no" }.to_owned()),
            ("overlap", overlap.to_owned()),
            ("last slot", self.last_slot.clone().unwrap_or_default()),
            ("last task", self.last_task.clone().unwrap_or_default()),
            ("next", self.next.join("\n")),
            ("task", task),
        ]
    }
}

impl TableRow for ScheduleDetails {
    const HEADS: &'static [&'static str] =
        &["NAME", "FIRES", "NEXT", "LAST", "LAST TASK", "PAUSED"];

    fn cells(&self) -> Vec<String> {
        let next = self.next.first().cloned().filter(|_| !self.paused);
        vec![
            self.name.clone(),
            self.when(),
            next.unwrap_or_default(),
            self.last_slot.clone().unwrap_or_default(),
            self.last_task.clone().unwrap_or_default(),
            if self.paused { "yes" } else { "" }.to_owned(),
        ]
    }

    fn tone(&self) -> Tone {
        if self.paused { Tone::Faint } else { Tone::Plain }
    }
}

impl ScheduleService for Pulsar {
    async fn create_schedule(
        &self,
        name: &str,
        schedule: Schedule,
        task: TaskSubmission,
    ) -> anyhow::Result<u64> {
        let TaskSubmission { queue, payload, terms } = task;
        let submission = terms.put_into(self.client.submission(&queue, &Raw(payload)))?;
        self.require(&queue).await?;
        Ok(self.client.queue(queue).schedules().create(name, schedule, submission).await?)
    }

    async fn schedules(&self, queue: &str) -> anyhow::Result<Vec<ScheduleDetails>> {
        self.require(queue).await?;
        let found = self.client.queue(queue).schedules().list().await?;
        found.into_iter().map(ScheduleDetails::of).collect()
    }

    async fn schedule(&self, queue: &str, name: &str) -> anyhow::Result<Option<ScheduleDetails>> {
        self.require(queue).await?;
        let found = self.client.queue(queue).schedules().get(name).await?;
        found.map(ScheduleDetails::of).transpose()
    }

    async fn act_on_schedule(
        &self,
        queue: &str,
        name: &str,
        act: ScheduleAction,
        _: &str,
    ) -> anyhow::Result<()> {
        self.require(queue).await?;
        let schedules = self.client.queue(queue).schedules();
        match act {
            ScheduleAction::Pause => drop(schedules.pause(name).await?),
            ScheduleAction::Resume => drop(schedules.resume(name).await?),
            ScheduleAction::Trigger => drop(schedules.trigger(name).await?),
            ScheduleAction::Delete => schedules.delete(name).await?,
        }
        Ok(())
    }
}
