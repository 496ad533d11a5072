//! Operators' actions on a queue, its tasks, workers and schedules, with their reasons.

use crate::asked::Path;
use crate::parts::table::RowCells;
use crate::parts::table::TableHead::Text;
use crate::parts::{layout, table, task_link};
use crate::shown::{Outside, ShownInstant};
use crate::visit::{PageResult, Visit, escaped};
use longhaul_api::action::{ActionBody, ActionList};
use maud::html;

/// The most actions shown.
const SHOWN_MAX: usize = 500;

pub(super) async fn show(visit: Visit, Path(queue): Path<String>) -> PageResult {
    let found: ActionList =
        visit.get(&format!("/v1/queues/{}/actions?limit={SHOWN_MAX}", escaped(&queue))).await?;
    let rows: Vec<RowCells> =
        found.actions.iter().rev().map(|action| row(&queue, action, found.now)).collect();
    let heads = [Text("When"), Text("Who"), Text("What"), Text("Upon"), Text("Why")];
    let body = html! {
        h1 { "Actions" }
        (table::table("actions", "Actions, the newest first", &heads, &rows, &html! { "There are no actions on this queue, its tasks, workers or schedules." }))
    };
    let title = format!("Actions upon {queue}");
    let followed = layout::FollowedEvents::Nobody;
    Ok(layout::of_queue(&visit, &queue, ("/actions", &title), followed, &body).await)
}

fn row(queue: &str, action: &ActionBody, now_ms: u64) -> RowCells {
    vec![
        html! { (ShownInstant { at_ms: action.at, now_ms }) },
        html! { (Outside(&action.operator)) },
        html! { (Outside(&action.action)) },
        html! {
            @if let Some(task) = &action.task { (task_link(queue, task)) }
            @if let Some(worker) = &action.worker { (Outside(worker)) }
            @if let Some(schedule) = &action.schedule { "schedule " (Outside(schedule)) }
            @if action.is_on_queue() { "the queue" }
            @if let Some(replay) = &action.replay { " → " (task_link(queue, replay)) }
        },
        html! { (Outside(&action.reason)) },
    ]
}
