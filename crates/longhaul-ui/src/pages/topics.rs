//! The topics of a queue at the broker: what is stored, for how long, and what is wrong.

use crate::asked::{Path, QueryFields};
use crate::parts::table::RowCells;
use crate::parts::table::TableHead::{Number, Text};
use crate::parts::{command, layout, queue_place, table};
use crate::shown::{Outside, bytes, number};
use crate::trouble::PageError;
use crate::visit::{PageResult, Visit, escaped};
use longhaul_api::topics::{FindingBody, TopicBody, TopicsBody};
use maud::{Markup, html};
use serde::Deserialize;

/// By default the queue is taken to be set up with this ledger retention.
const LEDGER_RETENTION: &str = "1h";

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct TopicsPageQuery {
    ledger_retention: String,
}

pub(super) async fn show(
    visit: Visit,
    Path(queue): Path<String>,
    QueryFields(asked): QueryFields<TopicsPageQuery>,
) -> PageResult {
    let retention = asked.ledger_retention.trim();
    let retention = if retention.is_empty() { LEDGER_RETENTION } else { retention };
    let path =
        format!("/v1/queues/{}/topics?ledger_retention={}", escaped(&queue), escaped(retention));
    let content = match visit.get::<TopicsBody>(&path).await {
        Ok(found) => content(&queue, &found, retention),
        Err(trouble) if matches!(&*trouble.code, "no_admin_api" | "broker_refused") => {
            without_admin(&trouble)
        }
        Err(trouble) => return Err(trouble),
    };
    let body = html! { h1 { "Topics" } (content) };
    // The broker is asked some fifty questions for this page.
    let followed = layout::FollowedEvents::Still;
    let title = format!("Topics of {queue}");
    Ok(layout::of_queue(&visit, &queue, ("/topics", &title), followed, &body).await)
}

fn without_admin(trouble: &PageError) -> Markup {
    html! { p.notice { "The gateway cannot read the topics from the broker: " (Outside(&trouble.detail)) } }
}

fn content(queue: &str, found: &TopicsBody, retention: &str) -> Markup {
    let heads = [
        Text("Topic"),
        Number("Partitions"),
        Number("Stored"),
        Text("Kept after all have read it"),
        Text("Compacted"),
    ];
    let rows: Vec<RowCells> = found.topics.iter().map(row).collect();
    let all: u64 = found.topics.iter().map(|it| it.stored_bytes).sum();
    let empty = html! { "The broker has no topic of this queue. Create them: " (command("longhaul topic setup", queue, "--admin-url URL")) };
    html! {
        (table::table("topics", "Topics", &heads, &rows, &empty))
        p { "Together " (size(all)) ", one copy. The topics of other priorities are not included." }
        section #findings {
            h2 { "Check" }
            @if found.findings.is_empty() { p { "The topics are correct for the task protocol." } }
            @for finding in &found.findings { (drawn(finding)) }
            form.bar method="get" action=(queue_place(queue, "/topics")) {
                label { "Check them for a ledger retention of" input name="ledger_retention" value=(retention) autocomplete="off"; }
                button { "Check" }
            }
        }
        dl.facts {
            div { dt { "Broker" } dd { @match &found.broker_version { Some(version) => { (Outside(version)) } None => { "The broker does not report its version to this gateway." } } } }
            div { dt { "Gateway" } dd { "longhaul " (Outside(&found.gateway_version)) } }
        }
    }
}

fn row(it: &TopicBody) -> RowCells {
    vec![
        html! { (Outside(&it.name)) },
        html! { @match it.partitions { Some(count) => { (number(u64::from(count))) } None => { "–" } } },
        size(it.stored_bytes),
        html! { (Outside(&it.retention)) },
        html! { @if it.compacted { "yes" } @else { span.none { "no" } } },
    ]
}

fn size(count: u64) -> Markup {
    html! { (bytes(usize::try_from(count).unwrap_or(usize::MAX))) }
}

fn drawn(finding: &FindingBody) -> Markup {
    html! {
        div.notice.bad[finding.severity == "error"] {
            p { strong { (Outside(&finding.severity)) } ": " (Outside(&finding.topic)) ": " (Outside(&finding.what)) }
            p { "Risk: " (Outside(&finding.risk)) }
            p { "Remedy: " (Outside(&finding.remedy)) }
        }
    }
}
