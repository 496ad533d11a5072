//! One action on several tasks: those that were ticked, or all that match a filter.
//!
//! The first page shows which tasks these are. The second request names each of them, so that
//! nothing is done to a task that was submitted later.

use super::task::{self, TaskActionForm};
use super::tasks::TaskFilterQuery;
use crate::asked::{FormFields, Path, QueryFields};
use crate::parts::table::RowCells;
use crate::parts::table::TableHead::Text;
use crate::parts::{NOT_OVER, layout, queue_place, reason_field, status, table, task_link, tasks};
use crate::shown::{Outside, ShownInstant};
use crate::trouble::PageError;
use crate::visit::{PageResult, Visit, escaped, task_route};
use axum::http::StatusCode;
use axum::response::Response;
use futures::stream::{self, StreamExt, TryStreamExt};
use longhaul_api::task::TaskBody;
use maud::{Markup, html};
use std::sync::atomic::{AtomicBool, Ordering};

/// The most tasks shown before the action, and the most failures after it.
const SHOWN_MAX: usize = 100;

/// Requests to the gateway at once.
const AT_ONCE: usize = 16;

/// An action on several tasks.
pub(super) struct BulkVerb {
    pub(super) word: &'static str,
    pub(super) name: &'static str,
    done: &'static str,
    what: &'static str,
    /// It can be done to tasks with these statuses.
    statuses: &'static [&'static str],
    /// The most tasks of one action.
    tasks_max: usize,
}

pub(super) const BULK_VERBS: [BulkVerb; 3] = [
    BulkVerb {
        word: "cancel",
        name: "Cancel",
        done: "asked to end",
        what: "Requests the end of running tasks; their processors may clean up first. Other tasks end at once.",
        statuses: &NOT_OVER,
        tasks_max: 1_000,
    },
    BulkVerb {
        word: "retry",
        name: "Run once more",
        done: "submitted once more",
        what: "Submits the same payloads as new tasks.",
        statuses: &["failed"],
        // The gateway reads the dead letters for each of them.
        tasks_max: 100,
    },
    BulkVerb {
        word: "delete",
        name: "Delete",
        done: "deleted",
        what: "Closes the tasks as cancelled, including running ones.",
        statuses: &NOT_OVER,
        tasks_max: 1_000,
    },
];

/// The fields of a form in which one may be repeated.
type Fields = Vec<(String, String)>;

fn values<'a>(fields: &'a Fields, name: &str) -> Vec<&'a str> {
    fields.iter().filter(|it| it.0 == name).map(|it| it.1.as_str()).collect()
}

fn verb(fields: &Fields) -> Result<&'static BulkVerb, PageError> {
    let word = values(fields, "verb");
    let found = BULK_VERBS.iter().find(|verb| word == [verb.word]);
    found.ok_or_else(PageError::no_such_action)
}

/// The tasks to which the action can be done, and the number of the other ones.
struct ChosenTasks {
    tasks: Vec<TaskBody>,
    others: usize,
    /// The position in the list behind them, if more tasks match.
    next: Option<String>,
}

async fn chosen(
    visit: &Visit,
    queue: &str,
    (verb, fields): (&BulkVerb, &Fields),
    filter: &TaskFilterQuery,
) -> Result<ChosenTasks, PageError> {
    if values(fields, "all").is_empty() {
        let ticked: Vec<String> =
            values(fields, "task").iter().map(|task| task_route(queue, task)).collect();
        let count = ticked.len();
        let found = stream::iter(ticked).take(verb.tasks_max);
        let found = found.map(|path| async move {
            match visit.get::<TaskBody>(&path).await {
                // It was forgotten meanwhile.
                Err(trouble) if trouble.status == StatusCode::NOT_FOUND => Ok(None),
                found => found.map(Some),
            }
        });
        let found: Vec<Option<TaskBody>> = found.buffered(AT_ONCE).try_collect().await?;
        let is_chosen = |task: &TaskBody| verb.statuses.contains(&&*task.status);
        let tasks: Vec<TaskBody> = found.into_iter().flatten().filter(is_chosen).collect();
        return Ok(ChosenTasks { others: count - tasks.len(), tasks, next: None });
    }
    let wanted = filter.status.trim();
    let statuses = verb.statuses.iter().filter(|it| wanted.is_empty() || wanted == **it);
    let status = statuses.copied().collect::<Vec<_>>().join(",");
    if status.is_empty() {
        return Ok(ChosenTasks { tasks: Vec::new(), others: 0, next: None });
    }
    let found = filter.with_status(&status).newest(visit, queue, verb.tasks_max).await?;
    Ok(ChosenTasks { tasks: found.tasks, others: 0, next: found.next })
}

pub(super) async fn confirm(
    visit: Visit,
    Path(queue): Path<String>,
    QueryFields(fields): QueryFields<Fields>,
    QueryFields(filter): QueryFields<TaskFilterQuery>,
) -> PageResult {
    let verb = verb(&fields)?;
    let chosen = chosen(&visit, &queue, (verb, &fields), &filter).await?;
    let count = tasks(chosen.tasks.len());
    let rows: Vec<RowCells> =
        chosen.tasks.iter().take(SHOWN_MAX).map(|task| row(&queue, task)).collect();
    let heads = [Text("Task"), Text("Status"), Text("Type"), Text("Submitted"), Text("Reason")];
    let title = match verb.word {
        "retry" => format!("Run {count} once more"),
        _ => format!("{} {count}", verb.name),
    };
    let body = html! {
        h1 { (title) }
        @if chosen.tasks.is_empty() {
            p.notice { "Select tasks, or all that match. This action applies to tasks that are " (verb.statuses.join(", ")) "." }
        } @else {
            p { (verb.what) }
        }
        @if chosen.others > 0 { p.notice { (tasks(chosen.others)) " of the selected ones cannot be chosen: this action applies to up to " (verb.tasks_max) " tasks that are " (verb.statuses.join(", ")) "." } }
        @if let Some(next) = &chosen.next {
            @let place = queue_place(&queue, "/bulk");
            p.notice {
                "More tasks match than one action can handle. "
                a href={ (place) "?verb=" (verb.word) "&all=true&" (filter.query()) "&after=" (escaped(next)) } { "Choose the next ones" }
            }
        }
        @if !rows.is_empty() {
            (table::table("chosen", "The chosen tasks", &heads, &rows, &html! {}))
            @if chosen.tasks.len() > SHOWN_MAX { p { "And " (tasks(chosen.tasks.len() - SHOWN_MAX)) " more." } }
            @if !visit.is_read_only() { (form(&queue, verb, &chosen.tasks, &title)) }
        }
        p { a href=(filter.place(&queue)) { "Back to the tasks" } }
    };
    Ok(page(&visit, &queue, &title, &body).await)
}

async fn page(visit: &Visit, queue: &str, title: &str, body: &Markup) -> Response {
    layout::of_queue(visit, queue, ("/tasks", title), layout::FollowedEvents::Still, body).await
}

fn row(queue: &str, task: &TaskBody) -> RowCells {
    vec![
        html! { (task_link(queue, &task.id)) @if let Some(key) = &task.key { " " (Outside(key)) } },
        status(&task.status),
        html! { @if let Some(kind) = &task.task_type { (Outside(kind)) } },
        html! { @if let Some(at_ms) = task.created_at { (ShownInstant { at_ms, now_ms: task.now }) } },
        html! { @if let Some(reason) = &task.reason { (Outside(reason)) } },
    ]
}

fn form(queue: &str, verb: &BulkVerb, tasks: &[TaskBody], title: &str) -> Markup {
    html! {
        form.stack method="post" action=(queue_place(queue, "/bulk")) {
            input type="hidden" name="verb" value=(verb.word);
            @for task in tasks { input type="hidden" name="task" value=(task.id); }
            (reason_field())
            button.danger { (title) }
        }
    }
}

pub(super) async fn act(
    visit: Visit,
    Path(queue): Path<String>,
    FormFields(fields): FormFields<Fields>,
) -> PageResult {
    let (visit, queue) = (&visit, queue.as_str());
    let (verb, chosen) = (verb(&fields)?, values(&fields, "task"));
    if chosen.len() > verb.tasks_max {
        let detail = format!("one action handles at most {} tasks", verb.tasks_max);
        return Err(PageError::new(StatusCode::UNPROCESSABLE_ENTITY, "", detail));
    }
    let reason = values(&fields, "reason").first().copied().unwrap_or_default();
    let tasks_of: Vec<String> = chosen.iter().map(|&task| task.to_owned()).collect();
    let is_stopped = &AtomicBool::new(false);
    let acts = stream::iter(tasks_of).map(|task| async move {
        if is_stopped.load(Ordering::Relaxed) {
            return None;
        }
        let given = TaskActionForm { reason: reason.to_owned(), epoch: None };
        let outcome = task::act_on(visit, queue, (&task, verb.word), given).await;
        // It would be the same for all others. Those under way are awaited.
        let stops = outcome.as_ref().is_err_and(PageError::stops_all);
        is_stopped.fetch_or(stops, Ordering::Relaxed);
        Some((task, outcome))
    });
    let acts: Vec<_> = acts.buffered(AT_ONCE).collect().await;
    let (mut done, mut failures, mut stop) = (0, Vec::new(), None);
    for (task, outcome) in acts.into_iter().flatten() {
        match outcome {
            Ok(_) => done += 1,
            Err(trouble) if trouble.stops_all() => stop = Some(trouble),
            Err(trouble) => failures.push((task, trouble)),
        }
    }
    if let Some(trouble) = stop.take_if(|_| done == 0 && failures.is_empty()) {
        return Err(trouble);
    }
    let title = format!("{} {}", tasks(done), verb.done);
    let left = chosen.len() - done - failures.len();
    let body = html! {
        h1 { (title) }
        @if let Some(trouble) = &stop { p.notice.bad { (tasks(left)) " left: " (Outside(&trouble.detail)) } }
        @if !failures.is_empty() {
            p.notice.bad { (tasks(failures.len())) " failed:" }
            ul { @for (task, trouble) in failures.iter().take(SHOWN_MAX) { li { (task_link(queue, task)) ": " (Outside(&trouble.detail)) } } }
            @if failures.len() > SHOWN_MAX { p { "And " (tasks(failures.len() - SHOWN_MAX)) " more." } }
        }
        p { a href=(queue_place(queue, "/tasks")) { "Go to the tasks" } }
    };
    Ok(page(visit, queue, &title, &body).await)
}
