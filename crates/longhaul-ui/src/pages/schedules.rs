//! The schedules of a queue.

use super::{ReasonForm, filled};
use crate::asked::{FormFields, Path};
use crate::parts::table::RowCells;
use crate::parts::table::TableHead::Text;
use crate::parts::{self, asked, button, layout, queue_place, reason_field, table, task_link};
use crate::shown::{Outside, ShownInstant, minute};
use crate::trouble::PageError;
use crate::visit::{PageResult, Visit, escaped, to};
use axum::http::Method;
use longhaul_api::Priority;
use longhaul_api::schedule::{ScheduleBody, ScheduleList};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Value, json};

/// The most future slots shown.
const NEXT_MAX: usize = 3;

pub(super) async fn show(visit: Visit, Path(queue): Path<String>) -> PageResult {
    let found: ScheduleList =
        visit.get(&format!("/v1/queues/{}/schedules", escaped(&queue))).await?;
    let rows: Vec<RowCells> =
        found.schedules.iter().map(|schedule| row(&visit, &queue, schedule, found.now)).collect();
    let heads = [Text("Schedule"), Text("When"), Text("Last"), Text("Next"), Text("Actions")];
    let empty = html! {
        "There are no schedules. Create one below, or with " (parts::command("longhaul schedule create", &queue, "nightly 'report' --cron '30 2 * * *'"))
    };
    let body = html! {
        h1 { "Schedules" }
        (table::table("schedules", "Schedules", &heads, &rows, &empty))
        @if !visit.is_read_only() { (new_schedule(&queue)) }
    };
    let title = format!("Schedules of {queue}");
    let followed = layout::FollowedEvents::Level(Priority::Normal);
    Ok(layout::of_queue(&visit, &queue, ("/schedules", &title), followed, &body).await)
}

fn row(visit: &Visit, queue: &str, schedule: &ScheduleBody, now_ms: u64) -> RowCells {
    let place =
        |verb: &str| queue_place(queue, &format!("/schedules/{}/{verb}", escaped(&schedule.name)));
    let is_paused = schedule.schedule.paused;
    let times = serde_json::to_value(&schedule.schedule).unwrap_or_default();
    vec![
        html! { (Outside(&schedule.name)) @if is_paused { " " span.tag { "paused" } } " " small { "version " (schedule.version) } },
        html! {
            @for (name, value) in times.as_object().into_iter().flatten().filter(|(name, _)| *name != "paused") {
                div { (name) ": " code { (Outside(&plain(value))) } }
            }
        },
        html! { @if let Some(last) = &schedule.last { (ShownInstant { at_ms: last.slot.ms(), now_ms }) " " (task_link(queue, &last.task)) } },
        html! { @for slot in schedule.next.iter().take(NEXT_MAX) { div { (minute(slot.ms())) " " (ShownInstant { at_ms: slot.ms(), now_ms }) } } },
        html! {
            @if !visit.is_read_only() {
                (button(&place("trigger"), "Run now"))
                @if is_paused { (button(&place("resume"), "Resume")) } @else { (button(&place("pause"), "Pause")) }
                (asked(&place("delete"), "Delete", "The schedule no longer fires. Tasks that it has submitted stay.", &html! {}))
            }
        },
    ]
}

fn new_schedule(queue: &str) -> Markup {
    let field = |name: &str, label: &str, hint: &str| html! { label { (label) input name=(name) placeholder=(hint) autocomplete="off"; } };
    html! {
        details.asked {
            summary { "Create a schedule" }
            form.stack method="post" action=(queue_place(queue, "/schedules")) {
                label { "Name" input name="name" required autocomplete="off"; }
                label {
                    "Submits a task"
                    select name="kind" {
                        option value="cron" { "by a cron expression" }
                        option value="every" { "in intervals" }
                        option value="at" { "once" }
                    }
                }
                label { "When" input name="when" required placeholder="30 2 * * *, or 1h, or 2030-01-01T00:00:00Z" autocomplete="off"; }
                (field("time_zone", "Time zone of a cron expression (empty: UTC)", "Europe/Berlin"))
                label {
                    "While the previous task is not over"
                    select name="overlap" {
                        option value="skip" { "no task is submitted" }
                        option value="buffer_one" { "one task waits" }
                        option value="cancel_other" { "the previous task is cancelled" }
                        option value="allow_all" { "tasks run in parallel" }
                    }
                }
                label { "Payload of the task" textarea name="payload" rows="3" {} }
                (field("type", "Type of the task", ""))
                (reason_field())
                button { "Make" }
            }
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct NewScheduleForm {
    name: String,
    /// The name of the field of the times that `when` is for.
    kind: String,
    when: String,
    #[serde(default)]
    time_zone: String,
    overlap: String,
    payload: String,
    #[serde(rename = "type", default)]
    task_type: String,
    #[serde(default)]
    reason: String,
}

impl NewScheduleForm {
    /// The body of the request.
    fn body(&self) -> Value {
        let times = [
            (self.kind.as_str(), self.when.as_str()),
            ("time_zone", &self.time_zone),
            ("overlap", &self.overlap),
        ];
        let mut task = filled(&[("type", &self.task_type)]);
        task.insert("payload".to_owned(), self.payload.as_str().into());
        json!({ "schedule": filled(&times), "task": task, "reason": self.reason })
    }
}

pub(super) async fn create(
    visit: Visit,
    Path(queue): Path<String>,
    FormFields(new): FormFields<NewScheduleForm>,
) -> PageResult {
    let path = format!("/v1/queues/{}/schedules/{}", escaped(&queue), escaped(new.name.trim()));
    visit.act(Method::POST, &path, new.body()).await?;
    Ok(to(&queue_place(&queue, "/schedules")))
}

/// A text without quotes; other values as JSON.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

pub(super) async fn act(
    visit: Visit,
    Path((queue, name, verb)): Path<(String, String, String)>,
    FormFields(ReasonForm { reason }): FormFields<ReasonForm>,
) -> PageResult {
    let of = format!("/v1/queues/{}/schedules/{}", escaped(&queue), escaped(&name));
    match verb.as_str() {
        "trigger" | "pause" | "resume" => {
            visit.act(Method::POST, &format!("{of}:{verb}"), json!({ "reason": reason })).await?
        }
        "delete" => {
            let of = format!("{of}?reason={}", escaped(&reason));
            visit.act(Method::DELETE, &of, json!(null)).await?
        }
        _ => return Err(PageError::no_such_action()),
    };
    Ok(to(&queue_place(&queue, "/schedules")))
}
