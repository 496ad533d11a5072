//! Parts shared by several pages.

pub(crate) mod chart;
pub(crate) mod layout;
pub(crate) mod payload;
pub(crate) mod table;
pub(crate) mod timeline;

use crate::shown::{Outside, number};
use crate::visit::escaped;
use crate::{ROOT, shown};
use longhaul_api::task::{ProgressBody, WorkerBody};
use longhaul_api::{Priority, TaskName};
use maud::{Markup, html};

/// The path of a queue's page, or of one below it.
pub(crate) fn queue_place(queue: &str, below: &str) -> String {
    format!("{ROOT}/queues/{}{below}", escaped(queue))
}

pub(crate) fn task_place(queue: &str, task: &str) -> String {
    queue_place(queue, &format!("/tasks/{}", escaped(task)))
}

pub(crate) fn task_link(queue: &str, task: &str) -> Markup {
    html! { a.id href=(task_place(queue, task)) { (Outside(task)) } }
}

/// The level of a task, by its id.
pub(crate) fn level_of(task: &str) -> Priority {
    task.parse::<TaskName>().map_or(Priority::Normal, |name| name.level)
}

/// A status as a word, with a colour.
pub(crate) fn status(word: &str) -> Markup {
    html! { span class={ "status " (word) } { (word) } }
}

pub(crate) fn worker(worker: &WorkerBody) -> Markup {
    let details = [&worker.host, &worker.version, &worker.label].map(String::as_str);
    let details: Vec<&str> = details.into_iter().filter(|text| !text.is_empty()).collect();
    html! { span title=(shown::line(&details.join(" · "))) { (Outside(&worker.title())) } }
}

pub(crate) fn progress(progress: &ProgressBody) -> Markup {
    html! {
        @if progress.total > 0 {
            progress max=(progress.total) value=(progress.done.min(progress.total)) aria-label="progress" {}
            " " (percent(progress.done, progress.total)) " %, " (number(progress.done)) " of " (number(progress.total))
        } @else {
            (number(progress.done))
        }
        @if !progress.message.is_empty() { " " (Outside(&progress.message)) }
    }
}

/// Whole per cent, 100 only if nothing is left.
fn percent(done: u64, total: u64) -> u128 {
    (u128::from(done.min(total)) * 100).checked_div(u128::from(total)).unwrap_or_default()
}

/// A button in its own form, so that it works without scripts.
pub(crate) fn button(action: &str, name: &str) -> Markup {
    html! {
        form.inline method="post" action=(action) { button { (name) } }
    }
}

/// Asks for a reason and a confirmation before an action that cannot be undone.
pub(crate) fn asked(action: &str, name: &str, what: &str, more: &Markup) -> Markup {
    html! {
        details.asked name="asked" {
            summary { (name) }
            form.stack method="post" action=(action) {
                p { (what) }
                (more)
                (reason_field())
                button.danger { (name) }
            }
        }
    }
}

/// The field for the reason of an action.
pub(crate) fn reason_field() -> Markup {
    html! {
        label { "Reason, for the log of actions" input name="reason" maxlength="1000" autocomplete="off"; }
    }
}

/// A number with its label.
pub(crate) fn figure(value: &Markup, name: &str) -> Markup {
    html! { div.figure { span.value { (value) } span.name { (name) } } }
}

/// The statuses of tasks that are not over.
pub(crate) const NOT_OVER: [&str; 6] =
    ["running", "claimed", "ready", "scheduled", "waiting", "retrying"];

/// A command to copy. A queue whose name a shell would read in another way is left to the reader.
pub(crate) fn command(verb: &str, queue: &str, rest: &str) -> Markup {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || matches!(it, '-' | '_' | '.' | '/');
    let queue = if queue.chars().all(is_plain) { queue } else { "QUEUE" };
    html! { code.command { (verb) " " (queue) " " (rest) } }
}

/// A number of tasks.
pub(crate) fn tasks(count: usize) -> String {
    if count == 1 { "1 task".to_owned() } else { format!("{} tasks", number(count as u64)) }
}

/// A number of attempts.
pub(crate) fn attempts(count: u32) -> String {
    if count == 1 { "1 attempt".to_owned() } else { format!("{count} attempts") }
}

/// A duration, or a dash.
pub(crate) fn length(ms: Option<u64>) -> Markup {
    html! { @if let Some(ms) = ms { (shown::length(ms)) } @else { "–" } }
}
