//! The tasks of a queue, with a filter.

use super::bulk::BULK_VERBS;
use super::filled;
use crate::asked::{FormFields, Path, QueryFields};
use crate::parts::table::RowCells;
use crate::parts::table::TableHead::{Number, Text};
use crate::parts::{self, NOT_OVER, layout, queue_place, status, table, task_link, task_place};
use crate::shown::{Outside, ShownInstant, number};
use crate::trouble::PageError;
use crate::visit::{PageResult, Visit, escaped, to};
use axum::http::Method;
use jiff::Timestamp;
use jiff::civil::DateTime;
use longhaul_api::Priority;
use longhaul_api::queue::QueueBody;
use longhaul_api::task::{TaskBody, TaskCountsBody, TaskList};
use longhaul_api::worker::WorkerList;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeSet;

/// Tasks per page.
const PAGE_TASKS: usize = 100;

/// The statuses of tasks that are over.
const OVER: [&str; 5] = ["completed", "failed", "cancelled", "expired", "ended"];

/// The statuses of tasks that wait for something.
const UNBEGUN: [&str; 4] = ["ready", "scheduled", "waiting", "retrying"];

/// The status that does not explain itself.
const ENDED: &str = "The task is over, and its entry was removed: how it ended is unknown.";

/// The filter. Empty fields of forms are unset.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct TaskFilterQuery {
    text: String,
    pub(super) status: String,
    tag: String,
    #[serde(rename = "type")]
    task_type: String,
    key: String,
    created_from: String,
    created_to: String,
    pub(super) level: Priority,
    /// Whether to say why tasks do not run.
    why: bool,
    after: Option<String>,
}

impl TaskFilterQuery {
    /// The set fields.
    fn fields(&self) -> Vec<(&'static str, String)> {
        let text = |text: &String| text.trim().to_owned();
        let mut fields = vec![
            ("level", self.level.word().to_owned()),
            ("status", text(&self.status)),
            ("text", text(&self.text)),
            ("tag", text(&self.tag)),
            ("type", text(&self.task_type)),
            ("key", text(&self.key)),
            ("created_from", instant(&self.created_from)),
            ("created_to", instant(&self.created_to)),
        ];
        if self.why {
            fields.push(("why", "true".to_owned()));
        }
        fields.retain(|(_, value)| !value.is_empty());
        fields
    }

    /// Whether fields are set that are seldom used.
    fn is_special(&self) -> bool {
        let usual = ["level", "status", "text"];
        self.fields().iter().any(|(name, _)| !usual.contains(name))
    }

    /// The filter as a query, without the position in the list.
    pub(super) fn query(&self) -> String {
        let fields = self.fields();
        let fields = fields.iter().map(|(name, value)| format!("{name}={}", escaped(value)));
        fields.collect::<Vec<_>>().join("&")
    }

    /// The same for other statuses.
    pub(super) fn with_status(&self, status: &str) -> Self {
        Self { status: status.to_owned(), why: false, ..self.clone() }
    }

    /// Those of them that have these words as well.
    pub(super) fn and_text(&self, words: &str) -> Self {
        let text = format!("{} {words}", self.text).trim().to_owned();
        Self { text, ..self.clone() }
    }

    /// Reads the newest of these tasks, from `after` on.
    pub(super) async fn newest(
        &self,
        visit: &Visit,
        queue: &str,
        limit: usize,
    ) -> Result<TaskList, PageError> {
        let of = format!("/v1/queues/{}/tasks?{}", escaped(queue), self.query());
        let mut list = format!("{of}&order=newest&limit={limit}");
        if let Some(after) = &self.after {
            list.push_str(&format!("&after={}", escaped(after)));
        }
        visit.get(&list).await
    }

    /// The path of the list.
    pub(super) fn place(&self, queue: &str) -> String {
        format!("{}?{}", queue_place(queue, "/tasks"), self.query())
    }
}

/// An instant of a date picker, which names no zone: it is UTC. The gateway refuses what is none.
fn instant(text: &str) -> String {
    let text = text.trim();
    match text.parse::<DateTime>() {
        Ok(at) if text.parse::<Timestamp>().is_err() => format!("{at}Z"),
        _ => text.to_owned(),
    }
}

/// The same as a date picker takes it. An instant that it cannot show would be lost by the next
/// use of the filter.
fn picked(text: &str) -> String {
    let ms = text.parse().ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    let at = ms.or_else(|| instant(text).parse().ok());
    let shown = |at: Timestamp| at.strftime("%Y-%m-%dT%H:%M:%S").to_string();
    at.map_or_else(|| text.to_owned(), shown)
}

pub(super) async fn show(
    visit: Visit,
    Path(queue): Path<String>,
    QueryFields(filter): QueryFields<TaskFilterQuery>,
) -> PageResult {
    let of = format!("/v1/queues/{}", escaped(&queue));
    let (found, counts, of) = futures::try_join!(
        filter.newest(&visit, &queue, PAGE_TASKS),
        visit.counts(&queue, filter.level),
        visit.get::<QueueBody>(&of)
    )?;
    let workers = visit.workers(&queue, filter.level).await.ok();
    let silent: BTreeSet<&str> = workers.iter().flat_map(WorkerList::silent).collect();
    let row = |task| row(&visit, &queue, task, silent.contains(task.id.as_str()));
    let rows: Vec<RowCells> = found.tasks.iter().map(row).collect();
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
    let place = filter.place(&queue);
    let empty = html! {
        "No task matches."
        @if counts.total == 0 && !visit.is_read_only() { " Submit one below, or with " (parts::command("longhaul task submit", &queue, "'good morning' --wait")) }
    };
    let body = html! {
        h1 { "Tasks" }
        div.with-sidebar {
            (sidebar(&queue, &filter, &counts))
            div {
                (form(&queue, &filter, of.levels))
                @if !visit.is_read_only() && !rows.is_empty() { (bulk_bar(&queue, &filter)) }
                @if filter.status == "failed" { p { a href={ (queue_place(&queue, "/reasons")) "?" (filter.query()) } { "Group by reason" } } }
                @if !filter.why && UNBEGUN.contains(&filter.status.as_str()) { p { a href={ (place) "&why=true" } { "Show why they do not run" } } }
                (table::table("tasks", "Tasks, the newest first", &heads, &rows, &empty))
                (table::pager(&place, filter.after.as_deref(), found.next.as_deref()))
                @if !visit.is_read_only() { (submit_form(&queue)) }
            }
        }
    };
    let title = format!("Tasks of {queue}");
    let followed = layout::FollowedEvents::Level(filter.level);
    Ok(layout::of_queue(&visit, &queue, ("/tasks", &title), followed, &body).await)
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
            @for word in NOT_OVER.into_iter().chain(OVER) {
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
    let time = |name: &str, label: &str, value: &str| {
        html! { label { (label) input type="datetime-local" name=(name) step="1" value=(picked(value)); } }
    };
    html! {
        form.bar role="search" method="get" action=(queue_place(queue, "/tasks")) {
            input type="hidden" name="status" value=(filter.status);
            (field("text", "Search", &filter.text, "id, key, type, tag, reason"))
            @if has_levels {
                label {
                    "Priority"
                    select name="level" {
                        @for level in Priority::ALL { option value=(level.word()) selected[level == filter.level] { (level.word()) } }
                    }
                }
            }
            button { "Filter" }
            a href=(queue_place(queue, "/tasks")) { "Clear" }
            details.more open[filter.is_special()] {
                summary { "More" }
                div.bar {
                    (field("tag", "Tags", &filter.tag, "eu,vip"))
                    (field("type", "Type", &filter.task_type, "resize"))
                    (field("key", "Key", &filter.key, "order-4711"))
                    (time("created_from", "Submitted from, UTC", &filter.created_from))
                    (time("created_to", "to", &filter.created_to))
                    label { input type="checkbox" name="why" value="true" checked[filter.why]; " Why they do not run" }
                }
            }
        }
    }
}

/// What is done to the ticked tasks, or to all that match the filter.
fn bulk_bar(queue: &str, filter: &TaskFilterQuery) -> Markup {
    html! {
        form.bar #bulk method="get" action=(queue_place(queue, "/bulk")) aria-label="The selected tasks" {
            @for (name, value) in filter.fields() { input type="hidden" name=(name) value=(value); }
            @for verb in &BULK_VERBS { button name="verb" value=(verb.word) { (verb.name) " …" } }
            label { input type="checkbox" name="all" value="true" autocomplete="off"; " All that match, not only the selected ones" }
        }
    }
}

fn row(visit: &Visit, queue: &str, task: &TaskBody, is_silent: bool) -> RowCells {
    let instant = |at: Option<u64>| html! { @if let Some(at_ms) = at { (ShownInstant { at_ms, now_ms: task.now }) } };
    vec![
        html! {
            @if !visit.is_read_only() { input type="checkbox" name="task" value=(task.id) form="bulk" autocomplete="off" aria-label={ "Tick " (task.id) }; " " }
            (task_link(queue, &task.id)) @if let Some(key) = &task.key { " " (Outside(key)) } @for tag in &task.tags { " " span.tag { (Outside(tag)) } }
        },
        html! { (status(&task.status)) @if task.cancel_requested && !task.is_over() { " " span.tag { "to be cancelled" } } @if is_silent { " " span.tag.silent { "worker silent" } } },
        html! { @if let Some(kind) = &task.task_type { (Outside(kind)) } },
        html! { (task.attempts) },
        html! { (instant(task.created_at)) },
        html! { (instant(task.changed_at)) },
        html! { @if let Some(worker) = task.shown_worker() { (parts::worker(worker)) } },
        html! { @if let Some(progress) = &task.progress { (parts::progress(progress)) } },
        html! { @if let Some(why) = &task.why { (Outside(why)) } @else if let Some(reason) = &task.reason { (Outside(reason)) } },
    ]
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
) -> PageResult {
    let mut body = filled(&[("type", &new.task_type), ("delay", &new.delay)]);
    body.insert("payload".to_owned(), new.payload.into());
    let path = format!("/v1/queues/{}/tasks", escaped(&queue));
    let answer = visit.act(Method::POST, &path, body.into()).await?;
    let id = answer.get("id").and_then(Value::as_str);
    Ok(to(&id.map_or_else(|| queue_place(&queue, "/tasks"), |id| task_place(&queue, id))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the picker showed empty was lost by the next use of the filter, which then took more.
    #[test]
    fn a_picked_time_is_utc_and_an_instant_with_a_zone_stays_the_same() {
        for (given, asked, shown) in [
            ("2026-11-22T09:30", "2026-11-22T09:30:00Z", "2026-11-22T09:30:00"),
            ("2026-11-22T09:30:15", "2026-11-22T09:30:15Z", "2026-11-22T09:30:15"),
            ("2026-11-22T09:30:00Z", "2026-11-22T09:30:00Z", "2026-11-22T09:30:00"),
            ("2026-11-22T09:30:00+01:00", "2026-11-22T09:30:00+01:00", "2026-11-22T08:30:00"),
            ("0", "0", "1970-01-01T00:00:00"),
            ("", "", ""),
            ("soon", "soon", "soon"),
        ] {
            assert_eq!((instant(given).as_str(), picked(given).as_str()), (asked, shown));
        }
    }
}
