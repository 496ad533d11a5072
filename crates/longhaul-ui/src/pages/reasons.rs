//! The reasons for which tasks failed, and how many failed for each.

use super::tasks::TaskFilterQuery;
use crate::asked::{Path, QueryFields};
use crate::parts::table::RowCells;
use crate::parts::table::TableHead::{Number, Text};
use crate::parts::{layout, table, task_link};
use crate::shown::{Outside, ShownInstant, number};
use crate::visit::{PageResult, Visit};
use longhaul_api::task::TaskBody;
use maud::html;
use std::collections::BTreeMap;

/// The most tasks whose reasons are counted: the newest ones.
const TASKS_MAX: usize = 1_000;

/// The most words of a reason in the link to its tasks.
const LINK_WORDS_MAX: usize = 16;

/// The tasks that failed for one reason.
struct ReasonGroup<'a> {
    count: u64,
    newest: &'a TaskBody,
    reason: &'a str,
}

/// The words of a reason without those that have a digit: ports, ids and durations differ where
/// the cause is the same.
fn cause(reason: &str) -> String {
    let words = reason.split_whitespace().filter(|it| !it.contains(|it: char| it.is_ascii_digit()));
    words.collect::<Vec<_>>().join(" ")
}

/// By number, the most frequent reason first.
fn groups(tasks: &[TaskBody]) -> Vec<(String, ReasonGroup<'_>)> {
    let mut groups: BTreeMap<String, ReasonGroup<'_>> = BTreeMap::new();
    for task in tasks {
        let reason = task.reason.as_deref().unwrap_or_default();
        let new = ReasonGroup { count: 0, newest: task, reason };
        let group = groups.entry(cause(reason)).or_insert(new);
        group.count += 1;
        if task.changed_at > group.newest.changed_at {
            (group.newest, group.reason) = (task, reason);
        }
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, group)| std::cmp::Reverse(group.count));
    groups
}

pub(super) async fn show(
    visit: Visit,
    Path(queue): Path<String>,
    QueryFields(filter): QueryFields<TaskFilterQuery>,
) -> PageResult {
    let filter = filter.with_status("failed");
    let found = filter.newest(&visit, &queue, TASKS_MAX).await?;
    let groups = groups(&found.tasks);
    let rows: Vec<RowCells> = groups
        .iter()
        .map(|(cause, group)| row(&queue, &filter, (cause, group), found.now))
        .collect();
    let heads = [Number("Tasks"), Text("Reason of the last one"), Text("When"), Text("Task")];
    let body = html! {
        h1 { "Reasons" }
        p { "Reasons that differ only in words with digits count as one. The list behind each reason shows its failed tasks with their full texts." }
        (table::table("reasons", "Reasons, the most frequent first", &heads, &rows, &html! { "No task failed." }))
        @if found.next.is_some() { p { "Only the newest " (number(TASKS_MAX as u64)) " failed tasks are counted." } }
        p { a href=(filter.place(&queue)) { "The failed tasks" } }
    };
    let title = format!("Reasons of {queue}");
    let followed = layout::FollowedEvents::Level(filter.level);
    Ok(layout::of_queue(&visit, &queue, ("/tasks", &title), followed, &body).await)
}

fn row(
    queue: &str,
    filter: &TaskFilterQuery,
    (cause, group): (&str, &ReasonGroup<'_>),
    now_ms: u64,
) -> RowCells {
    let words: Vec<&str> = cause.split(' ').take(LINK_WORDS_MAX).collect();
    let place = filter.and_text(&words.join(" ")).place(queue);
    let instant = group.newest.changed_at.map(|at_ms| html! { (ShownInstant { at_ms, now_ms }) });
    vec![
        html! { (number(group.count)) },
        // Without a word, the list would have all failed tasks.
        html! { @if cause.is_empty() { (Outside(group.reason)) } @else { a href=(place) { (Outside(group.reason)) } } },
        instant.unwrap_or_default(),
        task_link(queue, &group.newest.id),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(id: &str, at: u64, reason: &str) -> TaskBody {
        let reason = Some(reason.to_owned());
        TaskBody { id: id.to_owned(), changed_at: Some(at), reason, ..TaskBody::default() }
    }

    #[test]
    fn reasons_that_differ_in_digits_are_one_and_the_most_frequent_is_first() {
        let tasks = [
            failed("1:0:-1", 10, "no space left"),
            failed("2:0:-1", 20, "503 from host-7 after 20 ms"),
            failed("3:0:-1", 40, "502 from host-8 after 3 ms"),
            failed("4:0:-1", 30, "500 from host-9 after 4 ms"),
        ];
        let told: Vec<_> = groups(&tasks)
            .into_iter()
            .map(|(cause, it)| (cause, it.count, it.newest.id.clone(), it.reason))
            .collect();
        assert_eq!(
            told,
            [
                ("from after ms".to_owned(), 3, "3:0:-1".to_owned(), "502 from host-8 after 3 ms"),
                ("no space left".to_owned(), 1, "1:0:-1".to_owned(), "no space left"),
            ]
        );
    }
}
