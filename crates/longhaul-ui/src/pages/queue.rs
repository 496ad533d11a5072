//! One queue.

use super::ReasonForm;
use crate::asked::{FormFields, Path, QueryFields};
use crate::parts::{asked, button, chart, figure, layout, length, queue_place, status, task_link};
use crate::shown::{Outside, ShownInstant, number, text};
use crate::trouble::PageError;
use crate::visit::{PageResult, Visit, escaped, to};
use axum::http::Method;
use longhaul_api::Priority;
use longhaul_api::action::ActionList;
use longhaul_api::queue::{QueueBody, Series};
use longhaul_api::task::TaskCountsBody;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::json;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct QueuePageQuery {
    level: Priority,
    span: ChartSpan,
}

/// The period that the charts show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
enum ChartSpan {
    #[serde(rename = "15m")]
    QuarterHour,
    #[default]
    #[serde(rename = "1h")]
    Hour,
    #[serde(rename = "24h")]
    Day,
}

impl ChartSpan {
    const ALL: [Self; 3] = [Self::QuarterHour, Self::Hour, Self::Day];

    /// The word in the query, the name, and the steps as the gateway takes them.
    const fn parts(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::QuarterHour => ("15m", "15 min", "step=15s&steps=60"),
            Self::Hour => ("1h", "1 h", "step=1m&steps=60"),
            Self::Day => ("24h", "24 h", "step=30m&steps=48"),
        }
    }
}

pub(super) async fn show(
    visit: Visit,
    Path(queue): Path<String>,
    QueryFields(QueuePageQuery { level, span }): QueryFields<QueuePageQuery>,
) -> PageResult {
    let name = escaped(&queue);
    let of = format!("/v1/queues/{name}");
    let series = format!("/v1/queues/{name}/series?level={level}&{}", span.parts().2);
    let (found, counts, series) = futures::try_join!(
        visit.get::<QueueBody>(&of),
        visit.counts(&queue, level),
        visit.get::<Series>(&series)
    )?;
    let body = html! {
        h1 { (Outside(&queue)) @if found.settings.paused { " " span.tag { "paused" } } }
        @if found.settings.paused { (pause(&visit, &queue).await) }
        @if let Some(description) = &found.settings.description { p { (text(description, true)) } }
        @if found.levels { (levels(&queue, level, span)) }
        (figures(&queue, level, &counts))
        (spans(&queue, level, span))
        section #series { (chart::throughput(&series)) (chart::latency(&series)) }
        @if !visit.is_read_only() { (actions(&queue, level, &found)) }
    };
    let followed = layout::FollowedEvents::Level(level);
    Ok(layout::of_queue(&visit, &queue, ("", &queue), followed, &body).await)
}

/// Who has paused the queue, and why.
pub(super) async fn pause(visit: &Visit, queue: &str) -> Markup {
    let path = format!("/v1/queues/{}/actions?limit=100", escaped(queue));
    let found = visit.get::<ActionList>(&path).await.ok();
    let by = found.as_ref().and_then(|found| {
        let paused = found.actions.iter().rfind(|it| it.is_on_queue() && it.action == "pause")?;
        Some((paused, found.now))
    });
    html! {
        p.notice #pause {
            "Paused: no task begins; running tasks continue. "
            @if let Some((action, now_ms)) = by {
                (Outside(&action.operator)) " paused it " (ShownInstant { at_ms: action.at, now_ms })
                @if action.reason.is_empty() { " without a reason." } @else { ": " (Outside(&action.reason)) }
            }
        }
    }
}

/// Links to the levels of a queue, each shown separately.
fn levels(queue: &str, current: Priority, span: ChartSpan) -> Markup {
    html! {
        nav.levels aria-label="Priority" {
            @for level in Priority::ALL {
                a href={ (queue_place(queue, "")) "?level=" (level.word()) "&span=" (span.parts().0) } aria-current=[(level == current).then_some("true")] { (level.word()) }
            }
        }
    }
}

fn spans(queue: &str, level: Priority, current: ChartSpan) -> Markup {
    html! {
        nav.levels aria-label="Period of the charts" {
            @for span in ChartSpan::ALL {
                @let (word, name, _) = span.parts();
                a href={ (queue_place(queue, "")) "?level=" (level.word()) "&span=" (word) } aria-current=[(span == current).then_some("true")] { (name) }
            }
        }
    }
}

fn figures(queue: &str, level: Priority, counts: &TaskCountsBody) -> Markup {
    html! {
        div.figures #counts {
            @for (word, count) in &counts.by_status {
                a.figure href={ (queue_place(queue, "/tasks")) "?level=" (level.word()) "&status=" (escaped(word)) } {
                    span.value { (number(*count)) } span.name { (status(word)) }
                }
            }
            (figure(&html! { (number(counts.total)) }, "all tasks"))
            (figure(&html! { (number(counts.demand)) }, "demand: tasks that are ready or running"))
            @if let Some(oldest) = &counts.oldest_ready {
                (figure(&length(Some(counts.now.saturating_sub(oldest.since))), "the oldest ready task waits"))
                p { "Oldest: " (task_link(queue, &oldest.id)) }
            }
        }
    }
}

fn actions(queue: &str, level: Priority, found: &QueueBody) -> Markup {
    let whose = if found.levels { format!(" with the priority {level}") } else { String::new() };
    let what =
        format!("Deletes every unfinished task of the queue{whose}, and cancels running ones.");
    let purge = queue_place(queue, &format!("/purge?level={level}"));
    html! {
        section.actions {
            h2 { "Actions" }
            @if found.settings.paused {
                (button(&queue_place(queue, "/resume"), "Resume"))
            } @else {
                (asked(&queue_place(queue, "/pause"), "Pause", "No task begins until the queue is resumed. Running tasks continue.", &html! {}))
            }
            (asked(&purge, "Purge", &what, &html! {}))
        }
    }
}

pub(super) async fn act(
    visit: Visit,
    Path((queue, verb)): Path<(String, String)>,
    QueryFields(asked): QueryFields<QueuePageQuery>,
    FormFields(ReasonForm { reason }): FormFields<ReasonForm>,
) -> PageResult {
    let body = match verb.as_str() {
        "pause" | "resume" => json!({ "reason": reason }),
        "purge" => json!({ "reason": reason, "all": true }),
        _ => return Err(PageError::no_such_action()),
    };
    let level = if verb == "purge" { format!("?level={}", asked.level) } else { String::new() };
    let path = format!("/v1/queues/{}:{verb}{level}", escaped(&queue));
    visit.act(Method::POST, &path, body).await?;
    Ok(to(&queue_place(&queue, &level)))
}
