//! All queues.

use crate::asked::{FormFields, QueryFields};
use crate::parts::table::RowCells;
use crate::parts::table::TableHead::{Number, Text};
use crate::parts::{self, chart, figure, layout, length, queue_place, table};
use crate::shown::{Outside, number};
use crate::trouble::PageError;
use crate::visit::{PageResult, Visit, escaped, to};
use axum::http::{Method, StatusCode};
use axum::response::Response;
use futures::stream::{self, StreamExt};
use longhaul_api::Priority;
use longhaul_api::queue::{QueueBody, QueueList, Series};
use longhaul_api::task::TaskCountsBody;
use longhaul_api::worker::{QueueWorker, WorkerList};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The most queues per page.
const QUEUES_MAX: usize = 50;

/// The most queues listed by name.
const NAMES_MAX: usize = 200;

/// The most silent workers named of a queue.
const NAMED_MAX: usize = 3;

/// Queues read concurrently.
const AT_ONCE: usize = 8;

#[derive(Debug, Deserialize)]
pub(super) struct OverviewQuery {
    /// The last queue of the previous page.
    after: Option<String>,
    /// A queue by name, if the gateway cannot list queues.
    queue: Option<String>,
}

/// What the overview shows of a queue.
struct QueueSummary {
    counts: TaskCountsBody,
    series: Series,
    is_paused: bool,
    has_levels: bool,
    workers: WorkerList,
}

struct QueueOverviewRow {
    queue: String,
    found: Result<QueueSummary, PageError>,
}

pub(super) async fn show(
    visit: Visit,
    QueryFields(asked): QueryFields<OverviewQuery>,
) -> PageResult {
    let (visit, after) = (&visit, asked.after.as_deref());
    if let Some(queue) = asked.queue.as_deref().map(str::trim).filter(|it| !it.is_empty()) {
        return Ok(to(&queue_place(queue, "")));
    }
    let QueueList { mut queues, .. } = match visit.get("/v1/queues").await {
        Err(trouble) if trouble.code == "no_admin_api" => return Ok(by_name(visit, &trouble)),
        found => found?,
    };
    queues.sort_unstable();
    queues.retain(|queue| after.is_none_or(|after| queue.as_str() > after));
    let has_more = queues.len() > QUEUES_MAX;
    queues.truncate(QUEUES_MAX);
    let next = queues.last().cloned().filter(|_| has_more);
    let found = stream::iter(queues).map(|queue| row(visit, queue)).buffered(AT_ONCE);
    let found: Vec<QueueOverviewRow> = found.collect().await;
    let rows: Vec<RowCells> = found.iter().map(drawn).collect();
    let heads = [
        Text("Queue"),
        Number("Running"),
        Number("Ready"),
        Number("Waiting"),
        Number("Failed"),
        Number("Completed"),
        Number("Workers"),
        Number("Demand"),
        Number("Oldest ready"),
        Text("Last hour"),
    ];
    let empty = html! { "There is no queue yet. Create one below, or with " code.command { "longhaul queue create NAME" } "." };
    let body = html! {
        h1 { "Queues" }
        (figures(&found))
        (problems(&found))
        (table::table("queues", "Queues", &heads, &rows, &empty))
        (table::pager(crate::ROOT, after, next.as_deref()))
        @if !visit.is_read_only() { (new_queue()) }
    };
    Ok(layout::bare(visit, "Queues", &body))
}

/// The queues by name. The script copies the list into the menu of a page.
pub(super) async fn names(visit: Visit) -> PageResult {
    let QueueList { mut queues, .. } = match visit.get("/v1/queues").await {
        Err(trouble) if trouble.code == "no_admin_api" => return Ok(to(crate::ROOT)),
        found => found?,
    };
    queues.sort_unstable();
    let body = html! {
        h1 { "Queues by name" }
        ul #names {
            @for queue in queues.iter().take(NAMES_MAX) { li { a href=(queue_place(queue, "")) { (Outside(queue)) } } }
            @if queues.len() > NAMES_MAX { li { a href=(crate::ROOT) { "All " (number(queues.len() as u64)) " queues" } } }
        }
    };
    Ok(layout::bare(&visit, "Queues by name", &body))
}

/// The sums over the queues of the page that could be read, as their rows have them.
fn figures(rows: &[QueueOverviewRow]) -> Markup {
    let found = || rows.iter().filter_map(|row| row.found.as_ref().ok());
    let sum = |status: &str| found().map(|it| it.counts.of(status)).sum::<u64>();
    let demand = found().map(|it| it.counts.demand).sum::<u64>();
    let ended = || found().flat_map(|it| &it.series.steps);
    let completed = ended().map(|step| step.completed).sum::<u64>();
    let others = ended().map(|step| step.not_completed).sum::<u64>();
    let oldest = found().filter_map(|it| waits_ms(&it.counts)).max();
    let shown = |value: u64| html! { (number(value)) };
    html! {
        div.figures #sums {
            p.unseen { "Sums over the queues of this page" }
            (figure(&shown(sum("running")), "running"))
            (figure(&shown(demand), "demand: tasks that are ready or running"))
            (figure(&length(oldest), "the oldest ready task waits"))
            (figure(&shown(completed), "completed in the last hour"))
            (figure(&shown(others), "failed, cancelled or expired in the last hour"))
        }
    }
}

/// What needs attention, with the page to go to.
fn problems(rows: &[QueueOverviewRow]) -> Markup {
    let mut found: Vec<_> = rows
        .iter()
        .filter_map(|row| Some((&row.queue, problems_of(row.found.as_ref().ok()?))))
        .flat_map(|(queue, problems)| problems.into_iter().map(move |it| (queue, it)))
        .collect();
    found.sort_by_key(|(_, problem)| problem.kind);
    html! {
        @if !found.is_empty() {
            section #problems {
                h2 { "Needs attention" }
                ul { @for (queue, problem) in &found { li { a href=(queue_place(queue, problem.kind.page())) { (Outside(queue)) } ": " (Outside(&problem.what)) } } }
            }
        }
    }
}

/// The kinds of problems, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ProblemKind {
    SilentWorker,
    NoWorker,
    Failures,
    Pause,
}

impl ProblemKind {
    /// The page below the queue's that shows more.
    const fn page(self) -> &'static str {
        match self {
            Self::SilentWorker | Self::NoWorker => "/workers",
            Self::Failures => "/reasons",
            Self::Pause => "",
        }
    }
}

/// What is wrong with a queue.
struct QueueProblem {
    kind: ProblemKind,
    what: String,
}

fn problems_of(found: &QueueSummary) -> Vec<QueueProblem> {
    let QueueSummary { counts, series, is_paused, workers, .. } = found;
    let ready = counts.of("ready");
    let tasks = |count: u64| parts::tasks(usize::try_from(count).unwrap_or(usize::MAX));
    let silent = workers.silent().count() as u64;
    let failed = series.steps.iter().map(|it| it.not_completed.saturating_sub(it.cancelled));
    let failed = failed.sum::<u64>();
    let leased = workers.workers.iter().any(|it| it.holds_leases && !it.is_gone());
    let mut problems = Vec::new();
    let mut problem = |kind, what| problems.push(QueueProblem { kind, what });
    if silent > 0 {
        let left = workers.workers.iter().filter(|it| it.leaves_tasks());
        // A worker is listed for each partition.
        let names: BTreeSet<String> = left.map(QueueWorker::title).collect();
        let names: Vec<String> = names.into_iter().take(NAMED_MAX).collect();
        let what = format!("{} of silent workers: {}", tasks(silent), names.join(", "));
        problem(ProblemKind::SilentWorker, what);
    }
    if *is_paused && ready > 0 {
        problem(ProblemKind::Pause, format!("it is paused, with {} ready", tasks(ready)));
    } else if ready > 0 && workers.alive() == 0 && !leased {
        problem(ProblemKind::NoWorker, format!("no worker serves it, with {} ready", tasks(ready)));
    }
    if failed > 0 {
        problem(
            ProblemKind::Failures,
            format!("failed or expired in the last hour: {}", tasks(failed)),
        );
    }
    problems
}

/// How long the oldest ready task has waited, in ms.
fn waits_ms(counts: &TaskCountsBody) -> Option<u64> {
    counts.oldest_ready.as_ref().map(|oldest| counts.now.saturating_sub(oldest.since))
}

fn new_queue() -> Markup {
    html! {
        details.asked {
            summary { "Create a queue" }
            form.stack method="post" action={ (crate::ROOT) "/queues" } {
                label { "Name" input name="name" required autocomplete="off"; }
                label { "Partitions (empty: one topic)" input name="partitions" type="number" min="1" autocomplete="off"; }
                label { "With high and low priority" input name="levels" type="checkbox" value="true"; }
                button { "Make" }
            }
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct NewQueueForm {
    name: String,
    #[serde(default)]
    partitions: String,
    levels: Option<String>,
}

pub(super) async fn create(visit: Visit, FormFields(new): FormFields<NewQueueForm>) -> PageResult {
    let (name, partitions) = (new.name.trim(), new.partitions.trim());
    let of = format!("/v1/queues/{}", escaped(name));
    // The same request would change an existing queue.
    if !visit.is_read_only() && visit.get::<QueueBody>(&of).await.is_ok() {
        let detail = format!("the queue {name} exists already");
        return Err(PageError::new(StatusCode::CONFLICT, "", detail));
    }
    let mut body = json!({ "levels": new.levels.is_some() });
    if let Some(fields) = body.as_object_mut().filter(|_| !partitions.is_empty()) {
        // The gateway says what is wrong with a text.
        let count = partitions.parse::<u32>().map_or_else(|_| partitions.into(), Value::from);
        fields.insert("partitions".to_owned(), count);
    }
    visit.act(Method::PUT, &of, body).await?;
    Ok(to(&queue_place(name, "")))
}

/// Only the broker's admin API can list the queues.
fn by_name(visit: &Visit, trouble: &PageError) -> Response {
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
    let found = summary(visit, &queue).await;
    QueueOverviewRow { queue, found }
}

/// A queue with all its levels.
async fn summary(visit: &Visit, queue: &str) -> Result<QueueSummary, PageError> {
    let of = format!("/v1/queues/{}", escaped(queue));
    let found: QueueBody = visit.get(&of).await?;
    let (mut counts, mut series, mut workers) = of_level(visit, &of, Priority::Normal).await?;
    for level in [Priority::High, Priority::Low].into_iter().filter(|_| found.levels) {
        let more = of_level(visit, &of, level).await?;
        counts.add(more.0);
        series.add(&more.1);
        workers.workers.extend(more.2.workers);
    }
    let (is_paused, has_levels) = (found.settings.paused, found.levels);
    Ok(QueueSummary { counts, series, is_paused, has_levels, workers })
}

async fn of_level(
    visit: &Visit,
    of: &str,
    level: Priority,
) -> Result<(TaskCountsBody, Series, WorkerList), PageError> {
    let [counts, series, workers] =
        ["counts", "series", "workers"].map(|what| format!("{of}/{what}?level={level}"));
    futures::try_join!(visit.get(&counts), visit.get(&series), visit.get(&workers))
}

fn drawn(QueueOverviewRow { queue, found }: &QueueOverviewRow) -> RowCells {
    let QueueSummary { counts, series, is_paused, has_levels, workers } = match found {
        Ok(found) => found,
        Err(trouble) => {
            return vec![html! { (Outside(queue)) ": " (Outside(&trouble.detail)) }];
        }
    };
    let count = |status: &str| {
        let place = format!("{}?status={status}", queue_place(queue, "/tasks"));
        let count = counts.of(status);
        // A list has the tasks of one level.
        html! { @if count > 0 && *has_levels { (number(count)) } @else if count > 0 { a href=(place) { (number(count)) } } @else { span.none { "0" } } }
    };
    let plain = |value: u64| html! { span.none[value == 0] { (number(value)) } };
    let waiting = counts.of("waiting") + counts.of("scheduled") + counts.of("retrying");
    vec![
        html! { a href=(queue_place(queue, "")) { (Outside(queue)) } @if *is_paused { " " span.tag { "paused" } } },
        count("running"),
        count("ready"),
        plain(waiting),
        count("failed"),
        count("completed"),
        html! { a href=(queue_place(queue, "/workers")) { (plain(workers.alive() as u64)) } },
        plain(counts.demand),
        length(waits_ms(counts)),
        chart::spark(series),
    ]
}
