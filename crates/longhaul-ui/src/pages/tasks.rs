//! The tasks of a queue, with a filter.

use crate::asked::{FormFields, Path, QueryFields};
use crate::parts::table::TableHead::{Number, Text};
use crate::parts::{self, layout, queue_place, status, table, task_link, task_place};
use crate::shown::{Outside, ShownInstant, number};
use crate::visit::{PageResult, Visit, escaped};
use axum::http::Method;
use axum::response::Response;
use longhaul_api::Priority;
use longhaul_api::queue::QueueBody;
use longhaul_api::task::{TaskBody, TaskCountsBody, TaskList};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Value, json};

/// Tasks per page.
const PAGE_TASKS: usize = 100;

const STATUSES: [&str; 11] = [
    "running",
    "claimed",
    "ready",
    "scheduled",
    "waiting",
    "retrying",
    "completed",
    "failed",
    "cancelled",
    "expired",
    "ended",
];

/// The status that does not explain itself.
const ENDED: &str =
    "It is over, and its entry is gone, so that how it ended is not known any more.";

/// The filter. Empty fields of forms are unset.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct TaskFilterQuery {
    status: String,
    tag: String,
    #[serde(rename = "type")]
    task_type: String,
    key: String,
    created_from: String,
    created_to: String,
    level: Priority,
    /// Whether to say why tasks do not run.
    why: bool,
    after: Option<String>,
}

impl TaskFilterQuery {
    /// The filter as a query, without the position in the list.
    fn query(&self) -> String {
        let fields = [
            ("status", &self.status),
            ("tag", &self.tag),
            ("type", &self.task_type),
            ("key", &self.key),
            ("created_from", &self.created_from),
            ("created_to", &self.created_to),
        ];
        let mut query = format!("level={}", self.level.word());
        for (name, value) in fields.iter().filter(|(_, value)| !value.is_empty()) {
            query.push_str(&format!("&{name}={}", escaped(value.trim())));
        }
        if self.why {
            query.push_str("&why=true");
        }
        query
    }
}

pub(super) async fn show(
    visit: Visit,
    Path(queue): Path<String>,
    QueryFields(filter): QueryFields<TaskFilterQuery>,
) -> Response {
    let page = page(&visit, &queue, &filter).await;
    visit.answer(page)
}

async fn page(visit: &Visit, queue: &str, filter: &TaskFilterQuery) -> PageResult {
    let name = escaped(queue);
    let mut list =
        format!("/v1/queues/{name}/tasks?{}&order=newest&limit={PAGE_TASKS}", filter.query());
    if let Some(after) = &filter.after {
        list.push_str(&format!("&after={}", escaped(after)));
    }
    let counts = format!("/v1/queues/{name}/counts?level={}", filter.level.word());
    let of = format!("/v1/queues/{name}");
    let (found, counts, of) = futures::try_join!(
        visit.get::<TaskList>(&list),
        visit.get::<TaskCountsBody>(&counts),
        visit.get::<QueueBody>(&of)
    )?;
    let rows: Vec<Markup> = found.tasks.iter().map(|task| row(queue, task)).collect();
    let heads = [
        Text("Task"),
        Text("Status"),
        Text("Type"),
        Number("Attempts"),
        Text("Submitted"),
        Text("Changed"),
        Text("Worker"),
        Text("Progress"),
        Text("Reason"),
    ];
    let place = format!("{}?{}", queue_place(queue, "/tasks"), filter.query());
    let body = html! {
        h1 { "Tasks" }
        div.with-sidebar {
            (sidebar(queue, filter, &counts))
            div {
                (form(queue, filter, of.levels))
                (table::table("tasks", "Tasks, the newest first", &heads, &rows, "No task fits."))
                (table::pager(&place, filter.after.as_deref(), found.next.as_deref()))
                @if !visit.is_read_only() { (submit_form(queue)) }
            }
        }
    };
    Ok(layout::of_queue(
        visit,
        queue,
        ("/tasks", &format!("Tasks of {queue}")),
        layout::FollowedEvents::Level(filter.level),
        &body,
    ))
}

fn sidebar(queue: &str, filter: &TaskFilterQuery, counts: &TaskCountsBody) -> Markup {
    let place = |word: &str| {
        format!("{}?level={}&status={word}", queue_place(queue, "/tasks"), filter.level.word())
    };
    html! {
        nav.sidebar #statuses aria-label="Statuses" {
            a href={ (queue_place(queue, "/tasks")) "?level=" (filter.level.word()) } aria-current=[filter.status.is_empty().then_some("true")] {
                span { "all" } span.number { (number(counts.total)) }
            }
            @for word in STATUSES {
                @let count = counts.of(word);
                a href=(place(word)) title=[(word == "ended").then_some(ENDED)] aria-current=[(filter.status == word).then_some("true")] {
                    (status(word)) span.number.none[count == 0] { (number(count)) }
                }
            }
        }
    }
}

fn form(queue: &str, filter: &TaskFilterQuery, has_levels: bool) -> Markup {
    let field = |name: &str, label: &str, value: &str, hint: &str| {
        html! { label { (label) input name=(name) value=(value) placeholder=(hint) autocomplete="off"; } }
    };
    html! {
        form.bar role="search" method="get" action=(queue_place(queue, "/tasks")) {
            input type="hidden" name="status" value=(filter.status);
            (field("tag", "Tags", &filter.tag, "eu,vip"))
            (field("type", "Type", &filter.task_type, "resize"))
            (field("key", "Key", &filter.key, "order-4711"))
            (field("created_from", "Submitted from", &filter.created_from, "2026-11-22T09:30:00Z"))
            (field("created_to", "to", &filter.created_to, "2026-11-22T10:30:00Z"))
            @if has_levels {
                label {
                    "Priority"
                    select name="level" {
                        @for level in Priority::ALL { option value=(level.word()) selected[level == filter.level] { (level.word()) } }
                    }
                }
            }
            label { input type="checkbox" name="why" value="true" checked[filter.why]; " Why they do not run" }
            button { "Filter" }
            a href=(queue_place(queue, "/tasks")) { "Clear" }
        }
    }
}

fn row(queue: &str, task: &TaskBody) -> Markup {
    let instant = |at: Option<u64>| html! { @if let Some(at_ms) = at { (ShownInstant { at_ms, now_ms: task.now }) } };
    html! {
        td { (task_link(queue, &task.id)) @if let Some(key) = &task.key { " " (Outside(key)) } @for tag in &task.tags { " " span.tag { (Outside(tag)) } } }
        td { (status(&task.status)) @if task.cancel_requested && !task.is_over() { " " span.tag { "to be cancelled" } } }
        td { @if let Some(kind) = &task.task_type { (Outside(kind)) } }
        td.number { (task.attempts) }
        td { (instant(task.created_at)) }
        td { (instant(task.changed_at)) }
        td { @if let Some(worker) = &task.worker { (parts::worker(worker)) } }
        td { @if let Some(progress) = &task.progress { (parts::progress(progress)) } }
        td { @if let Some(why) = &task.why { (Outside(why)) } @else if let Some(reason) = &task.reason { (Outside(reason)) } }
    }
}

fn submit_form(queue: &str) -> Markup {
    html! {
        details.asked {
            summary { "Submit a task" }
            form.stack method="post" action=(queue_place(queue, "/tasks")) {
                label { "Payload" textarea name="payload" rows="5" {} }
                label { "Type" input name="type" autocomplete="off"; }
                label { "Delay" input name="delay" placeholder="10s" autocomplete="off"; }
                button { "Submit" }
            }
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct NewTaskForm {
    payload: String,
    #[serde(rename = "type", default)]
    task_type: String,
    #[serde(default)]
    delay: String,
}

pub(super) async fn submit(
    visit: Visit,
    Path(queue): Path<String>,
    FormFields(new): FormFields<NewTaskForm>,
) -> Response {
    let mut body = json!({ "payload": new.payload });
    for (name, value) in [("type", new.task_type), ("delay", new.delay)] {
        if let Some(fields) = body.as_object_mut().filter(|_| !value.trim().is_empty()) {
            fields.insert(name.to_owned(), Value::from(value.trim()));
        }
    }
    let outcome =
        visit.act(Method::POST, &format!("/v1/queues/{}/tasks", escaped(&queue)), body).await;
    let place = outcome
        .as_ref()
        .ok()
        .and_then(|answer| answer.get("id")?.as_str().map(|id| task_place(&queue, id)));
    visit.done(outcome, &place.unwrap_or_else(|| queue_place(&queue, "/tasks")))
}
