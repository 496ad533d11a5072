//! The schedules of a queue.

use super::ReasonForm;
use crate::asked::{FormFields, Path};
use crate::parts::table::TableHead::Text;
use crate::parts::{asked, button, layout, queue_place, table, task_link};
use crate::shown::{Outside, ShownInstant};
use crate::trouble::PageError;
use crate::visit::{PageResult, Visit, escaped};
use axum::http::{Method, StatusCode};
use axum::response::Response;
use longhaul_api::Priority;
use longhaul_api::schedule::{ScheduleBody, ScheduleList};
use maud::{Markup, html};
use serde_json::{Value, json};

/// The most future slots shown.
const NEXT_MAX: usize = 3;

pub(super) async fn show(visit: Visit, Path(queue): Path<String>) -> Response {
    let page = page(&visit, &queue).await;
    visit.answer(page)
}

async fn page(visit: &Visit, queue: &str) -> PageResult {
    let found: ScheduleList =
        visit.get(&format!("/v1/queues/{}/schedules", escaped(queue))).await?;
    let rows: Vec<Markup> =
        found.schedules.iter().map(|schedule| row(visit, queue, schedule, found.now)).collect();
    let heads = [Text("Schedule"), Text("When"), Text("Last"), Text("Next"), Text("")];
    let empty = "There is none: `longhaul schedule create` makes one.";
    let body = html! {
        h1 { "Schedules" }
        (table::table("schedules", "Schedules", &heads, &rows, empty))
    };
    Ok(layout::of_queue(
        visit,
        queue,
        ("/schedules", &format!("Schedules of {queue}")),
        layout::FollowedEvents::Level(Priority::Normal),
        &body,
    ))
}

fn row(visit: &Visit, queue: &str, schedule: &ScheduleBody, now_ms: u64) -> Markup {
    let place =
        |verb: &str| queue_place(queue, &format!("/schedules/{}/{verb}", escaped(&schedule.name)));
    let is_paused = schedule.schedule.paused;
    let times = serde_json::to_value(&schedule.schedule).unwrap_or_default();
    html! {
        td { (Outside(&schedule.name)) @if is_paused { " " span.tag { "paused" } } " " small { "version " (schedule.version) } }
        td {
            @for (name, value) in times.as_object().into_iter().flatten().filter(|(name, _)| *name != "paused") {
                div { (name) ": " code { (Outside(&plain(value))) } }
            }
        }
        td { @if let Some(last) = &schedule.last { (ShownInstant { at_ms: last.slot.ms(), now_ms }) " " (task_link(queue, &last.task)) } }
        td { @for slot in schedule.next.iter().take(NEXT_MAX) { div { (ShownInstant { at_ms: slot.ms(), now_ms }) } } }
        td {
            @if !visit.is_read_only() {
                (button(&place("trigger"), "Run now", ""))
                @if is_paused { (button(&place("resume"), "Resume", "")) } @else { (button(&place("pause"), "Pause", "")) }
                (asked(&place("delete"), "Delete", "It fires no more. Tasks that it has submitted stay.", &html! {}))
            }
        }
    }
}

/// A text without quotes; other values as JSON.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

pub(super) async fn act(
    visit: Visit,
    Path((queue, name, verb)): Path<(String, String, String)>,
    FormFields(ReasonForm { reason }): FormFields<ReasonForm>,
) -> Response {
    let of = format!("/v1/queues/{}/schedules/{}", escaped(&queue), escaped(&name));
    let outcome = match verb.as_str() {
        "trigger" | "pause" | "resume" => {
            visit.act(Method::POST, &format!("{of}:{verb}"), json!({ "reason": reason })).await
        }
        "delete" => {
            let of = format!("{of}?reason={}", escaped(&reason));
            visit.act(Method::DELETE, &of, json!(null)).await
        }
        _ => Err(PageError::new(StatusCode::NOT_FOUND, "", "there is no such action")),
    };
    visit.done(outcome, &queue_place(&queue, "/schedules"))
}
