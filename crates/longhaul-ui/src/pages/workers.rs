//! Who works on a queue.

use super::Reason;
use crate::model::{QueueWorker, Worker, WorkerList};
use crate::parts::{asked, layout, queue_place, table, task_link};
use crate::shown::{Instant, Outside, line};
use crate::visit::{Page, Visit, escaped};
use axum::extract::{Form, Path};
use axum::http::Method;
use axum::response::Response;
use maud::{Markup, html};
use serde_json::json;

/// The most tasks that are named of each worker.
const NAMED_MAX: usize = 20;

/// The most workers that are named as successors of one.
const SUCCESSORS_MAX: usize = 3;

pub(super) async fn show(visit: Visit, Path(queue): Path<String>) -> Response {
    let page = page(&visit, &queue).await;
    visit.answer(page)
}

async fn page(visit: &Visit, queue: &str) -> Page {
    let found: WorkerList = visit.get(&format!("/v1/queues/{}/workers", escaped(queue))).await?;
    let rows: Vec<Markup> =
        found.workers.iter().map(|worker| row(visit, queue, worker, &found)).collect();
    let heads = [
        "Worker",
        "Host",
        "Version",
        "Partition",
        "Last heartbeat",
        "Runs",
        "Would be replaced by",
        "",
    ];
    let empty = "Nobody works on this queue: start a worker, or lease tasks from the gateway.";
    let body = html! {
        h1 { "Workers" }
        (table::table("workers", "Workers", &heads, &rows, empty))
        p { "A worker that misses two heartbeats counts as gone: the other workers of its partition take its tasks over, each task by one of them." }
    };
    Ok(layout::of_queue(visit, queue, "/workers", &format!("Workers of {queue}"), &body))
}

fn row(visit: &Visit, queue: &str, found: &QueueWorker, all: &WorkerList) -> Markup {
    let worker = found.worker.clone().unwrap_or_default();
    let name = if worker.name.is_empty() { &found.owner } else { &worker.name };
    let drain = queue_place(queue, &format!("/workers/{}/drain", escaped(&found.owner)));
    let may_drain = !visit.is_read_only() && !worker.grants_leases;
    html! {
        td { span title=(line(&found.owner)) { (Outside(name)) } @if worker.grants_leases { " " span.tag { "gateway" } } @if !worker.label.is_empty() { " " (Outside(&worker.label)) } }
        td { (Outside(&worker.host)) @if let Some(process) = worker.process { " " (process) } }
        td { (Outside(&worker.version)) }
        td.number { @if found.partition >= 0 { (found.partition) } @else { "–" } }
        td { @if let Some(at_ms) = found.last_heartbeat_at { (Instant { at_ms, now_ms: all.now }) } }
        td {
            (found.running.len()) " "
            @for task in found.running.iter().take(NAMED_MAX) { (task_link(queue, task)) " " }
            @if found.running.len() > NAMED_MAX { "…" }
        }
        td { @if !worker.grants_leases { (successors(found, all)) } }
        td { @if may_drain { (asked(&drain, "Drain", "It takes nothing new, lets its tasks end, and ends itself.", &html! {})) } }
    }
}

/// Who would take over what a worker runs.
pub(super) fn successors(found: &QueueWorker, all: &WorkerList) -> Markup {
    let takes_over = |other: &&QueueWorker| {
        let is_gateway = other.worker.as_ref().is_some_and(|it| it.grants_leases);
        other.partition == found.partition && other.owner != found.owner && !is_gateway
    };
    let others: Vec<&QueueWorker> = all.workers.iter().filter(takes_over).collect();
    let name = |other: &QueueWorker| {
        other.worker.as_ref().map_or_else(|| other.owner.clone(), Worker::title)
    };
    html! {
        @if others.is_empty() { "no other worker yet" }
        @for (at, other) in others.iter().take(SUCCESSORS_MAX).enumerate() {
            @if at > 0 { ", " } (Outside(&name(other)))
        }
        @if others.len() > SUCCESSORS_MAX { ", and " (others.len() - SUCCESSORS_MAX) " more" }
    }
}

pub(super) async fn drain(
    visit: Visit,
    Path((queue, name)): Path<(String, String)>,
    Form(Reason { reason }): Form<Reason>,
) -> Response {
    let path = format!("/v1/queues/{}/workers/{}:drain", escaped(&queue), escaped(&name));
    let outcome = visit.act(Method::POST, &path, json!({ "reason": reason })).await;
    visit.done(outcome, &queue_place(&queue, "/workers"))
}
