//! All queues.

use crate::asked::QueryFields;
use crate::parts::table::TableHead::{Number, Text};
use crate::parts::{chart, layout, length, queue_place, table};
use crate::shown::{Outside, number};
use crate::trouble::PageError;
use crate::visit::{PageResult, Visit, escaped, to};
use axum::response::Response;
use futures::stream::{self, StreamExt};
use longhaul_api::queue::{QueueBody, QueueList, Series};
use longhaul_api::task::TaskCountsBody;
use maud::{Markup, html};
use serde::Deserialize;

/// The most queues per page.
const QUEUES_MAX: usize = 50;

/// Queues read concurrently.
const AT_ONCE: usize = 8;

#[derive(Debug, Deserialize)]
pub(super) struct OverviewQuery {
    /// The last queue of the previous page.
    after: Option<String>,
    /// A queue by name, if the gateway cannot list queues.
    queue: Option<String>,
}

struct QueueOverviewRow {
    queue: String,
    found: Result<(TaskCountsBody, Series, bool), PageError>,
}

pub(super) async fn show(visit: Visit, QueryFields(asked): QueryFields<OverviewQuery>) -> Response {
    if let Some(queue) = asked.queue.as_deref().map(str::trim).filter(|it| !it.is_empty()) {
        return to(&queue_place(queue, ""));
    }
    let page = page(&visit, asked.after.as_deref()).await;
    visit.answer(page)
}

async fn page(visit: &Visit, after: Option<&str>) -> PageResult {
    let QueueList { mut queues, .. } = match visit.get("/v1/queues").await {
        Err(trouble) if trouble.code == "no_admin_api" => return Ok(by_name(visit, &trouble)),
        found => found?,
    };
    queues.sort_unstable();
    queues.retain(|queue| after.is_none_or(|after| queue.as_str() > after));
    let has_more = queues.len() > QUEUES_MAX;
    queues.truncate(QUEUES_MAX);
    let next = queues.last().cloned().filter(|_| has_more);
    let rows = stream::iter(queues).map(|queue| row(visit, queue)).buffered(AT_ONCE);
    let rows: Vec<Markup> = rows.map(|row| drawn(&row)).collect().await;
    let heads = [
        Text("Queue"),
        Number("Running"),
        Number("Ready"),
        Number("Waiting"),
        Number("Failed"),
        Number("Completed"),
        Number("Demand"),
        Number("Oldest ready"),
        Text("Last hour"),
    ];
    let body = html! {
        h1 { "Queues" }
        (table::table("queues", "Queues", &heads, &rows, "There is no queue yet: `longhaul queue create NAME`, or the first submit at the gateway, makes one."))
        (table::pager(crate::ROOT, after, next.as_deref()))
    };
    Ok(layout::bare(visit, "Queues", &body))
}

/// Only the broker's admin API can list the queues.
fn by_name(visit: &Visit, trouble: &PageError) -> Markup {
    let body = html! {
        h1 { "Queues" }
        p.notice { "This gateway cannot list the queues: " (Outside(&trouble.detail)) }
        form.bar role="search" method="get" action=(crate::ROOT) {
            label { "Name of a queue" input name="queue" required autocomplete="off"; }
            button { "Show" }
        }
    };
    layout::bare(visit, "Queues", &body)
}

async fn row(visit: &Visit, queue: String) -> QueueOverviewRow {
    let name = escaped(&queue);
    let (counts, series, settings) = (
        format!("/v1/queues/{name}/counts"),
        format!("/v1/queues/{name}/series"),
        format!("/v1/queues/{name}"),
    );
    let found = futures::try_join!(
        visit.get::<TaskCountsBody>(&counts),
        visit.get::<Series>(&series),
        visit.get::<QueueBody>(&settings)
    );
    let found = found.map(|(counts, series, queue)| (counts, series, queue.settings.paused));
    QueueOverviewRow { queue, found }
}

fn drawn(QueueOverviewRow { queue, found }: &QueueOverviewRow) -> Markup {
    let (counts, series, is_paused) = match found {
        Ok(found) => found,
        Err(trouble) => {
            return html! { td { (Outside(queue)) } td colspan="8" { (Outside(&trouble.detail)) } };
        }
    };
    let count = |status: &str| {
        let place = format!("{}?status={status}", queue_place(queue, "/tasks"));
        let count = counts.of(status);
        html! { td.number { @if count > 0 { a href=(place) { (number(count)) } } @else { "0" } } }
    };
    let waiting = counts.of("waiting") + counts.of("scheduled") + counts.of("retrying");
    html! {
        td { a href=(queue_place(queue, "")) { (Outside(queue)) } @if *is_paused { " " span.tag { "paused" } } }
        (count("running"))
        (count("ready"))
        td.number { (number(waiting)) }
        (count("failed"))
        (count("completed"))
        td.number { (number(counts.demand)) }
        td.number { (length(counts.oldest_ready.as_ref().map(|oldest| counts.now.saturating_sub(oldest.since)))) }
        td.spark { (chart::spark(series)) }
    }
}
