//! One task.

use super::workers;
use crate::asked::{FormFields, Path, QueryFields};
use crate::parts::{
    self, asked, layout, payload, queue_place, status, task_link, task_place, timeline,
};
use crate::shown::{Outside, ShownInstant, number};
use crate::trouble::PageError;
use crate::visit::{PageResult, Visit, escaped, task_route, to};
use axum::body::to_bytes;
use axum::http::{Method, StatusCode};
use longhaul_api::history::{HistoryBody, HistoryEntryBody};
use longhaul_api::task::{TaskBody, TaskLimitsBody, WhyBody};
use longhaul_api::values::Length;
use longhaul_api::worker::WorkerList;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Value, json};

/// The largest payload or result that is read and shown in part.
const BYTES_MAX: usize = 8 << 20;

/// The query of the page.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct TaskPageQuery {
    /// The format of payload and result.
    #[serde(rename = "as")]
    form: payload::PayloadFormat,
    /// Which entries are listed.
    entries: timeline::ListedEntries,
}

pub(super) async fn show(
    visit: Visit,
    Path((queue, id)): Path<(String, String)>,
    QueryFields(asked): QueryFields<TaskPageQuery>,
) -> PageResult {
    let of = task_route(&queue, &id);
    let history = format!("{of}/history");
    let (task, history) =
        futures::try_join!(visit.get::<TaskBody>(&of), visit.get::<HistoryBody>(&history))?;
    let listed = match &*task.status {
        "running" => visit.workers(&queue, parts::level_of(&id)).await.ok(),
        _ => None,
    };
    let why =
        if task.is_over() { None } else { visit.get::<WhyBody>(&format!("{of}/why")).await.ok() };
    let limits = why.as_ref().map(|why| why.limits).unwrap_or_default();
    let budgets = left(&task, &history, limits);
    let (other, name) = match asked.entries {
        timeline::ListedEntries::Runs => ("all", "List each update"),
        timeline::ListedEntries::All => ("runs", "List updates of one kind together"),
    };
    let is_acted_on = !visit.is_read_only() && (!task.is_over() || task.status == "failed");
    let body = html! {
        div.head #head {
            h1 { "Task " (Outside(&task.id)) " " (status(&task.status)) }
            @if let Some(progress) = &task.progress { p.meter { (parts::progress(progress)) (pace(&task, &history)) } }
            @if task.status == "running" { p { (rest(&task, limits, &budgets)) } }
            @if is_acted_on { (actions(&queue, &task)) }
        }
        @if let Some(warning) = &task.warning { p.notice { (Outside(warning)) } }
        @if let Some(reason) = &task.reason { p.notice.bad { (Outside(reason)) } }
        @if let Some(why) = why.as_ref().filter(|why| why.cause != "leased" && why.cause != "running" || is_silent(why)) {
            @if why.cause == "paused" { (super::queue::pause(&visit, &queue).await) }
            p.notice #why { @if is_silent(why) { "Its worker is silent: " } @else { "Why it does not run: " } (Outside(&why.sentence)) "." }
        }
        (facts(&queue, &task, &history, (limits, budgets)))
        @if let Some(listed) = &listed { (holder(&task, listed)) }
        (bytes(&visit, &queue, &task, asked.form).await)
        (log(&task, &history))
        section #timeline tabindex="0" role="region" aria-label="Timeline" { h2 { "Timeline" } (timeline::timeline(&history, task.created_at)) }
        section {
            h2 { "Entries, the newest first" }
            (timeline::list(&queue, &history, asked.entries))
            p { a href={ (task_place(&queue, &id)) "?entries=" (other) "#history" } { (name) } }
        }
    };
    let title = format!("Task {id}");
    let followed = layout::FollowedEvents::Task(&id);
    Ok(layout::of_queue(&visit, &queue, ("/tasks", &title), followed, &body).await)
}

/// Whether the worker that runs the task has missed two heartbeats.
fn is_silent(why: &WhyBody) -> bool {
    why.cause == "running" && why.details.get("missed").and_then(Value::as_u64) >= Some(2)
}

/// The log lines of each attempt, as far as the task's entries are still there; else the last ones.
fn log(task: &TaskBody, history: &HistoryBody) -> Markup {
    let told: Vec<_> =
        history.entries.iter().filter(|it| !it.log.is_empty() || it.lines_lost.is_some()).collect();
    let attempts = told.chunk_by(|one, next| one.epoch == next.epoch);
    let lines_of = |lines: &[String]| html! { @for line in lines { (Outside(line)) "\n" } };
    html! {
        @if !told.is_empty() {
            section #log {
                h2 { "Log" }
                @for entries in attempts {
                    @if let [HistoryEntryBody { attempt: Some(attempt), .. }, ..] = entries { h3 { "Attempt " (attempt) } }
                    pre tabindex="0" {
                        @for entry in entries {
                            @if let Some(lost) = entry.lines_lost { "(" (lost) " lines were not kept)\n" }
                            (lines_of(&entry.log))
                        }
                    }
                }
            }
        } @else if !task.log.is_empty() {
            section #log { h2 { "Last lines of its log" } pre tabindex="0" { (lines_of(&task.log)) } }
        }
    }
}

/// Which attempt runs, and what is left of the budgets.
fn rest(task: &TaskBody, limits: TaskLimitsBody, budgets: &BudgetsLeft) -> Markup {
    html! {
        "Attempt " (attempts(task, limits))
        @for left in [&budgets.attempt, &budgets.whole].into_iter().flatten() { " · " (left) }
    }
}

/// How many attempts the task has had, and how many it may have.
fn attempts(task: &TaskBody, limits: TaskLimitsBody) -> Markup {
    html! { (task.attempts) @if let Some(most) = limits.max_attempts { " of " (most) } }
}

/// How fast a running attempt is, and when it will be done at that pace. An attempt that has
/// resumed from a checkpoint does not say how much it has done itself.
fn pace(task: &TaskBody, history: &HistoryBody) -> Markup {
    let mut entries = history.entries.iter().filter(|entry| entry.ignored.is_none());
    let is_resumed =
        entries.clone().any(|entry| entry.event == "checkpoint" && entry.epoch < task.epoch);
    let begun = entries
        .rfind(|entry| matches!(&*entry.event, "claimed" | "leased") && entry.epoch == task.epoch);
    let is_known = task.status == "running" && history.is_whole && !is_resumed;
    let both = task.progress.as_ref().zip(begun).filter(|_| is_known);
    let both = both.map(|(progress, begun)| (progress, task.now.saturating_sub(begun.at)));
    let left = both.and_then(|(progress, took)| left_ms(progress.done, progress.total, took));
    html! {
        @if let (Some((progress, took)), Some(left)) = (both, left) {
            " · " (per_time(progress.done, took)) " · about " (crate::shown::length(left)) " left"
        }
    }
}

/// A pace, per the shortest unit of time with at least one.
fn per_time(done: u64, took_ms: u64) -> String {
    let units = [(1_000, "s"), (60_000, "min"), (3_600_000, "h"), (86_400_000, "d")];
    let pace = |unit_ms: u64| done.saturating_mul(unit_ms).checked_div(took_ms).unwrap_or_default();
    let found = units.iter().map(|(unit_ms, unit)| (pace(*unit_ms), unit)).find(|it| it.0 > 0);
    found.map_or_else(String::new, |(count, unit)| format!("{} per {unit}", number(count)))
}

/// The time that the rest of the work takes at the pace so far.
fn left_ms(done: u64, total: u64, took_ms: u64) -> Option<u64> {
    let rest = total.checked_sub(done).filter(|&rest| rest > 0)?;
    // The pace of the first moments says nothing.
    (took_ms >= 1000).then(|| took_ms.saturating_mul(rest).checked_div(done))?
}

/// Whether the task's worker is alive, and the workers that would take the task over.
fn holder(task: &TaskBody, workers: &WorkerList) -> Markup {
    let found = workers.workers.iter().find(|worker| worker.running.contains(&task.id));
    html! {
        p #holder {
            @match found {
                Some(worker) if worker.holds_leases => {
                    "The task is leased: if its worker is silent for longer than the lease time, any gateway ends the attempt as failed, and another one follows."
                }
                Some(worker) => {
                    @if let Some(at_ms) = worker.last_heartbeat_at { "Last heartbeat of its worker: " (ShownInstant { at_ms, now_ms: workers.now }) ". " }
                    @if !worker.is_gone() { "If it is silent for two heartbeat intervals, the task goes to: " (workers::successors(worker, workers)) "." }
                }
                None => { "No live worker runs the task: another one takes it over." }
            }
        }
    }
}

/// What is left of the budgets of a task, in words.
#[derive(Debug, Default, PartialEq)]
struct BudgetsLeft {
    attempt: Option<String>,
    whole: Option<String>,
}

/// What is left of the budgets. Both begin with a claim, which the history may not have any more.
fn left(task: &TaskBody, history: &HistoryBody, limits: TaskLimitsBody) -> BudgetsLeft {
    let claims = history
        .entries
        .iter()
        .filter(|entry| entry.ignored.is_none() && matches!(&*entry.event, "claimed" | "leased"));
    let attempt = claims.clone().rfind(|entry| entry.epoch == task.epoch);
    let attempt = attempt.filter(|_| task.status == "running");
    let first = claims.min_by_key(|entry| entry.at).filter(|_| history.is_whole);
    let left = |begun: Option<&HistoryEntryBody>, budget: Option<Length>| {
        let budget = budget?;
        let whole_ms = budget.ms();
        let whole = crate::shown::length(whole_ms);
        Some(match begun {
            Some(begun) => {
                let rest = whole_ms.saturating_sub(task.now.saturating_sub(begun.at));
                format!("{} left of {whole}", crate::shown::length(rest))
            }
            None => whole,
        })
    };
    BudgetsLeft {
        attempt: left(attempt, limits.max_duration),
        whole: left(first, limits.max_total_duration),
    }
}

/// From where a further attempt would go on, of a task that is not over.
fn checkpoint(task: &TaskBody, history: &HistoryBody) -> Option<Markup> {
    let counts = |it: &&HistoryEntryBody| it.event == "checkpoint" && it.ignored.is_none();
    let last = history.entries.iter().rfind(counts).filter(|_| !task.is_over());
    Some(match last {
        Some(last) => html! {
            (crate::shown::bytes(last.bytes.unwrap_or_default())) ", "
            (ShownInstant { at_ms: last.at, now_ms: task.now }) ": the next attempt continues from there"
        },
        None if task.status == "running" && history.is_whole => {
            html! { "none: another attempt starts from the beginning" }
        }
        None => return None,
    })
}

fn facts(
    queue: &str,
    task: &TaskBody,
    history: &HistoryBody,
    (limits, budgets): (TaskLimitsBody, BudgetsLeft),
) -> Markup {
    let instant =
        |at: Option<u64>| at.map(|at_ms| html! { (ShownInstant { at_ms, now_ms: task.now }) });
    let outside = |text: &Option<String>| text.as_ref().map(|text| html! { (Outside(text)) });
    let other = |task: &Option<String>| task.as_ref().map(|task| task_link(queue, task));
    let rows = [
        ("Type", outside(&task.task_type)),
        ("Key", outside(&task.key)),
        (
            "Tags",
            (!task.tags.is_empty())
                .then(|| html! { @for tag in &task.tags { span.tag { (Outside(tag)) } " " } }),
        ),
        ("Submitted", instant(task.created_at)),
        ("Changed", instant(task.changed_at)),
        ("Due", instant(task.due_at)),
        ("Attempts", Some(attempts(task, limits))),
        ("Checkpoint", checkpoint(task, history)),
        ("Budget of the attempt", budgets.attempt.map(|text| html! { (text) })),
        ("Budget of all attempts", budgets.whole.map(|text| html! { (text) })),
        ("Latest start", instant(limits.expires_at)),
        ("Epoch", task.epoch.map(|epoch| html! { (epoch) })),
        ("Worker", task.shown_worker().map(parts::worker)),
        (
            "Waits for",
            (!task.waits_for.is_empty())
                .then(|| html! { @for task in &task.waits_for { (task_link(queue, task)) " " } }),
        ),
        ("Duplicate of", other(&task.duplicate_of)),
        ("Superseded by", other(&task.superseded_by)),
    ];
    html! {
        dl.facts #facts { @for (name, value) in rows { @if let Some(value) = value { div { dt { (name) } dd { (value) } } } } }
    }
}

async fn bytes(
    visit: &Visit,
    queue: &str,
    task: &TaskBody,
    form: payload::PayloadFormat,
) -> Markup {
    if task.hidden {
        return html! { p.notice { "This gateway hides payloads and results from you." } };
    }
    let place = task_place(queue, &task.id);
    let of = task_route(queue, &task.id);
    let mut sections = vec![("Payload", "payload", read(visit, &format!("{of}/payload")).await)];
    if task.result_bytes.is_some() {
        sections.push(("Result", "result", read(visit, &format!("{of}/result")).await));
    }
    html! {
        @for (title, word, found) in sections {
            section id=(word) {
                h2 { (title) @if let Some(codec) = &task.codec { " " span.tag { "encoded by " (Outside(codec)) } } }
                @match found {
                    Ok(bytes) => { (payload::show(&bytes, form, &place, &format!("{place}/{word}"))) }
                    Err(trouble) => { p.notice { (Outside(&trouble.detail)) } }
                }
            }
        }
    }
}

async fn read(visit: &Visit, path: &str) -> Result<axum::body::Bytes, PageError> {
    let answer = visit.raw(path).await?;
    let bytes = to_bytes(answer.into_body(), BYTES_MAX).await;
    bytes.map_err(|_| {
        PageError::new(StatusCode::PAYLOAD_TOO_LARGE, "", "too large to be shown: save it")
    })
}

/// The possible actions on a task in its state.
fn actions(queue: &str, task: &TaskBody) -> Markup {
    let place = |verb: &str| format!("{}/{verb}", task_place(queue, &task.id));
    let epoch = html! { @if let Some(epoch) = task.epoch { input type="hidden" name="epoch" value=(epoch); } };
    html! {
        section.actions #actions aria-label="Actions" {
            @if task.status == "failed" {
                (asked(&place("retry"), "Run it once more", "Submits the same payload as a new task.", &html! {}))
            }
            @if !task.is_over() {
                (asked(&place("cancel"), "Cancel", "Requests the end of the task; its processor may clean up first.", &html! {}))
                (asked(&place("kill"), "Kill", "Ends the task without waiting for its processor.", &html! {}))
                @if task.status == "scheduled" || task.status == "retrying" {
                    (asked(&place("start"), "Start now", "Starts the task as soon as a worker is free, before its time.", &html! {}))
                }
                @if task.status == "running" {
                    (asked(&place("force-release"), "Take it from its worker", "Another attempt follows; later entries of the worker are ignored.", &epoch))
                }
                (asked(&place("force-fail"), "Fail it for good", "Ends the task as failed, with a dead letter if the queue keeps them.", &epoch))
                (asked(&place("delete"), "Delete", "Closes the task as cancelled, whatever its status.", &html! {}))
            }
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct TaskActionForm {
    pub(super) reason: String,
    /// The epoch that the page showed: another epoch is another attempt.
    pub(super) epoch: Option<u32>,
}

pub(super) async fn act(
    visit: Visit,
    Path((queue, task, verb)): Path<(String, String, String)>,
    FormFields(given): FormFields<TaskActionForm>,
) -> PageResult {
    let answer = act_on(&visit, &queue, (&task, &verb), given).await?;
    let new = answer.get("id").and_then(Value::as_str);
    let place = match (verb.as_str(), new) {
        ("retry", Some(new)) => task_place(&queue, new),
        ("delete", _) => queue_place(&queue, "/tasks"),
        _ => task_place(&queue, &task),
    };
    Ok(to(&place))
}

/// Does one thing to a task.
///
/// # Errors
/// The gateway refuses it, or there is no such action.
pub(super) async fn act_on(
    visit: &Visit,
    queue: &str,
    (task, verb): (&str, &str),
    TaskActionForm { reason, epoch }: TaskActionForm,
) -> Result<Value, PageError> {
    let of = task_route(queue, task);
    let (action, body) = match verb {
        "start" => ("reschedule", json!({ "reason": reason, "delay": "0s" })),
        "cancel" | "kill" | "retry" => (verb, json!({ "reason": reason })),
        "force-fail" | "force-release" => (verb, json!({ "reason": reason, "epoch": epoch })),
        "delete" => {
            let of = format!("{of}?reason={}", escaped(&reason));
            return visit.act(Method::DELETE, &of, json!(null)).await;
        }
        _ => return Err(PageError::no_such_action()),
    };
    visit.act(Method::POST, &format!("{of}:{action}"), body).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_that_is_left_follows_the_pace() {
        assert_eq!(left_ms(25, 100, 10_000), Some(30_000));
        for unknown in [(0, 100, 10_000), (100, 100, 10_000), (5, 0, 10_000), (1, 100, 999)] {
            assert_eq!(left_ms(unknown.0, unknown.1, unknown.2), None, "{unknown:?}");
        }
        assert_eq!(left_ms(1, u64::MAX, u64::MAX), Some(u64::MAX));
    }

    #[test]
    fn a_pace_is_told_in_whole_numbers() {
        for (done, took_ms, told) in [
            (50, 10_000, "5 per s"),
            (3, 10_000, "18 per min"),
            (1, 600_000, "6 per h"),
            (1, 36_000_000, "2 per d"),
            (0, 1_000, ""),
            (1, 0, ""),
        ] {
            assert_eq!(per_time(done, took_ms), told, "{done} in {took_ms} ms");
        }
    }

    #[test]
    fn budgets_begin_with_the_claims_that_counted() {
        let entry = |at: u64, epoch: u32, ignored: Option<&str>| json!({"at": at, "event": "claimed", "epoch": epoch, "ignored": ignored});
        let entries =
            [entry(1_000, 1, None), entry(61_000, 2, None), entry(90_000, 2, Some("late"))];
        let history = json!({"task": "1:0:-1", "is_whole": true, "entries": entries, "silences": [], "now": 0});
        let mut history: HistoryBody = serde_json::from_value(history).unwrap();
        let (status, epoch, now) = ("running".into(), Some(2), 121_000);
        let task = TaskBody { status, epoch, now, ..TaskBody::default() };
        let minutes = |count: u64| Some(Length(std::time::Duration::from_secs(60 * count)));
        let limits = TaskLimitsBody {
            max_duration: minutes(3),
            max_total_duration: minutes(10),
            ..TaskLimitsBody::default()
        };
        let told = |attempt: &str, whole: &str| BudgetsLeft {
            attempt: Some(attempt.to_owned()),
            whole: Some(whole.to_owned()),
        };
        assert_eq!(
            left(&task, &history, limits),
            told("2 min left of 3 min", "8 min left of 10 min")
        );
        history.is_whole = false;
        assert_eq!(left(&task, &history, limits), told("2 min left of 3 min", "10 min"));
        let none = TaskLimitsBody::default();
        assert_eq!(left(&task, &history, none), BudgetsLeft::default());
    }
}
