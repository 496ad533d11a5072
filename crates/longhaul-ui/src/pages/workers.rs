//! The workers of a queue.

use super::ReasonForm;
use crate::asked::{FormFields, Path};
use crate::parts::table::RowCells;
use crate::parts::table::TableHead::{Number, Text};
use crate::parts::{self, asked, layout, queue_place, table, task_link};
use crate::shown::{Outside, ShownInstant, line};
use crate::trouble::PageError;
use crate::visit::{PageResult, Visit, escaped, to};
use axum::http::Method;
use longhaul_api::Priority;
use longhaul_api::queue::QueueBody;
use longhaul_api::worker::{QueueWorker, WorkerList};
use maud::{Markup, html};
use serde_json::json;

/// The most tasks named per worker.
const NAMED_MAX: usize = 20;

/// The most workers named as successors of one.
const SUCCESSORS_MAX: usize = 3;

pub(super) async fn show(visit: Visit, Path(queue): Path<String>) -> PageResult {
    let of: QueueBody = visit.get(&format!("/v1/queues/{}", escaped(&queue))).await?;
    let levels = if of.levels { &Priority::ALL[..] } else { &[Priority::Normal] };
    let found = levels
        .iter()
        .map(async |&level| Ok::<_, PageError>((level, visit.workers(&queue, level).await?)));
    let found = futures::future::try_join_all(found).await?;
    let mut workers: Vec<_> = found
        .iter()
        .flat_map(|it @ (_, list)| list.workers.iter().map(move |worker| (it, worker)))
        .collect();
    // First those whose tasks others take over.
    workers.sort_by_key(|(_, worker)| !worker.leaves_tasks());
    let rows: Vec<RowCells> =
        workers.iter().map(|(it, worker)| row(&visit, &queue, worker, it)).collect();
    let heads = [
        Text("Worker"),
        Text("Host"),
        Text("Version"),
        Text("Priority"),
        Number("Partition"),
        Text("Started"),
        Text("Last heartbeat"),
        Number("Slots in use"),
        Text("Runs"),
        Text("Would be replaced by"),
        Text("Actions"),
    ];
    let empty = html! {
        "This queue has no workers. Start one: " (parts::command("longhaul worker run", &queue, "--exec 'tr a-z A-Z'"))
    };
    let body = html! {
        h1 { "Workers" }
        (table::table("workers", "Workers", &heads, &rows, &empty))
        p { "A worker that is silent for two heartbeat intervals counts as gone: other workers of its partition take its tasks over, one worker per task." }
        @if of.levels { p { "A worker has a row for each priority that it works on." } }
    };
    // The workers of all levels are on the page, and events are those of one.
    let followed = if of.levels {
        layout::FollowedEvents::Nobody
    } else {
        layout::FollowedEvents::Level(Priority::Normal)
    };
    let title = format!("Workers of {queue}");
    Ok(layout::of_queue(&visit, &queue, ("/workers", &title), followed, &body).await)
}

fn row(
    visit: &Visit,
    queue: &str,
    found: &QueueWorker,
    (level, all): &(Priority, WorkerList),
) -> RowCells {
    let worker = found.worker.clone().unwrap_or_default();
    let name = if worker.name.is_empty() { &found.owner } else { &worker.name };
    let drain = queue_place(queue, &format!("/workers/{}/drain", escaped(found.id())));
    let obeys = !found.holds_leases || !worker.instance.is_empty();
    let is_asked = worker.grants_leases || worker.draining || found.is_gone();
    let may_drain = !visit.is_read_only() && obeys && !is_asked;
    vec![
        html! { span title=(line(&found.owner)) { (Outside(name)) } @if worker.grants_leases { " " span.tag { "gateway" } } @if found.holds_leases { " " span.tag { "over HTTP" } } @if worker.draining { " " span.tag { "draining" } } @if found.is_gone() { " " span.tag.silent { "gone" } } @if !worker.label.is_empty() { " " (Outside(&worker.label)) } },
        html! { (Outside(&worker.host)) @if let Some(process) = worker.process { " " (process) } },
        html! { (Outside(&worker.version)) },
        html! { (level.word()) },
        html! { @if found.partition >= 0 { (found.partition) } @else { "–" } },
        html! { @if let Some(at_ms) = found.started_at { (ShownInstant { at_ms, now_ms: all.now }) } },
        html! {
            @if let Some(at_ms) = found.last_heartbeat_at { (ShownInstant { at_ms, now_ms: all.now }) }
            @if found.missed_heartbeats > 0 { " " span.tag.silent { (found.missed_heartbeats) " missed" } }
        },
        html! { @if let Some(slots) = worker.slots.filter(|_| !found.is_gone()) { (all.running(found.id())) " of " (slots) } },
        html! {
            @for task in found.running.iter().take(NAMED_MAX) { (task_link(queue, task)) " " }
            @if found.running.len() > NAMED_MAX { "…" }
        },
        html! { @if !worker.grants_leases && !found.holds_leases { (successors(found, all)) } },
        html! { @if may_drain { (asked(&drain, "Drain", "The worker takes no new tasks, lets its tasks end, and ends.", &html! {})) } },
    ]
}

/// The workers that would take over the tasks of a worker.
pub(super) fn successors(found: &QueueWorker, all: &WorkerList) -> Markup {
    let takes_over = |other: &&QueueWorker| {
        let takes_none = other.worker.as_ref().is_some_and(|it| it.grants_leases || it.draining);
        other.partition == found.partition
            && other.owner != found.owner
            && !takes_none
            && !other.holds_leases
            && !other.is_gone()
    };
    let others: Vec<&QueueWorker> = all.workers.iter().filter(takes_over).collect();
    html! {
        @if others.is_empty() { "no other worker yet" }
        @for (at, other) in others.iter().take(SUCCESSORS_MAX).enumerate() {
            @if at > 0 { ", " } (Outside(&other.title()))
        }
        @if others.len() > SUCCESSORS_MAX { ", and " (others.len() - SUCCESSORS_MAX) " more" }
    }
}

pub(super) async fn drain(
    visit: Visit,
    Path((queue, name)): Path<(String, String)>,
    FormFields(ReasonForm { reason }): FormFields<ReasonForm>,
) -> PageResult {
    let path = format!("/v1/queues/{}/workers/{}:drain", escaped(&queue), escaped(&name));
    visit.act(Method::POST, &path, json!({ "reason": reason })).await?;
    Ok(to(&queue_place(&queue, "/workers")))
}
