//! Schedules: tasks by cron expressions, intervals and instants.

use crate::output::{TableRow, Tone};
use crate::times;
use longhaul_api::schedule::ScheduleBody;
use longhaul_api::values::{Instant, Length};
use serde_json::json;

/// When a schedule fires, in short.
fn when(schedule: &ScheduleBody) -> String {
    let times = &schedule.schedule;
    let zone = times.time_zone.as_ref().map(|it| format!(" ({it})")).unwrap_or_default();
    let cron = times.cron.as_ref().map(|it| format!("{it}{zone}"));
    let every = || times.every.map(|Length(it)| format!("every {}", times::human(it)));
    let at = || times.at.map(|it| format!("at {}", slot(it)));
    cron.or_else(every).or_else(at).unwrap_or_default()
}

fn slot(at: Instant) -> String {
    times::iso(at.ms())
}

fn last(schedule: &ScheduleBody) -> (String, String) {
    schedule.last.as_ref().map(|it| (slot(it.slot), it.task.clone())).unwrap_or_default()
}

/// The fields of a schedule for people.
pub(crate) fn schedule_fields(schedule: &ScheduleBody) -> Vec<(&'static str, String)> {
    let (last_slot, last_task) = last(schedule);
    let next: Vec<_> = schedule.next.iter().copied().map(slot).collect();
    let overlap = json!(schedule.schedule.overlap);
    vec![
        ("name", schedule.name.clone()),
        ("version", schedule.version.to_string()),
        ("fires", when(schedule)),
        ("paused", if schedule.schedule.paused { "yes" } else { "no" }.to_owned()),
        ("overlap", overlap.as_str().unwrap_or_default().replace('_', "-")),
        ("last slot", last_slot),
        ("last task", last_task),
        ("next", next.join("\n")),
        ("task", schedule.task.as_ref().map(ToString::to_string).unwrap_or_default()),
    ]
}

impl TableRow for ScheduleBody {
    const HEADS: &'static [&'static str] =
        &["NAME", "FIRES", "NEXT", "LAST", "LAST TASK", "PAUSED"];
    const DROPS: &'static [usize] = &[4, 3];

    fn cells(&self) -> Vec<String> {
        let next = self.next.first().filter(|_| !self.schedule.paused);
        let (last_slot, last_task) = last(self);
        vec![
            self.name.clone(),
            when(self),
            next.copied().map(slot).unwrap_or_default(),
            last_slot,
            last_task,
            if self.schedule.paused { "yes" } else { "" }.to_owned(),
        ]
    }

    fn tone(&self) -> Tone {
        if self.schedule.paused { Tone::Faint } else { Tone::Plain }
    }
}
