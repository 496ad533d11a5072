//! Schedules: tasks by cron expressions, intervals and instants.

use crate::output::{TableRow, Tone};
use serde::Serialize;
use serde_json::Value;

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
