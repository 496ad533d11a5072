//! The frame around a page.

use crate::parts::{NOT_OVER, level_of, queue_place};
use crate::shown::{Outside, line, number};
use crate::trouble::PageError;
use crate::visit::{self, Visit};
use crate::{ROOT, assets};
use axum::http::StatusCode;
use axum::response::Response;
use longhaul_api::Priority;
use longhaul_api::task::TaskCountsBody;
use maud::{DOCTYPE, Markup, html};

/// The pages of a queue.
const PAGES: [(&str, &str); 8] = [
    ("", "Overview"),
    ("/tasks", "Tasks"),
    ("/workers", "Workers"),
    ("/dead", "Dead letters"),
    ("/schedules", "Schedules"),
    ("/limits", "Limits"),
    ("/actions", "Actions"),
    ("/topics", "Topics"),
];

/// A page without a queue.
pub(crate) fn bare(visit: &Visit, title: &str, body: &Markup) -> Response {
    visit::html(StatusCode::OK, frame(visit, title, &html! {}, body, FollowedEvents::Nobody))
}

/// The events that keep a page up to date.
#[derive(Clone, Copy)]
pub(crate) enum FollowedEvents<'a> {
    /// Those of a level.
    Level(Priority),
    /// Those of one task.
    Task(&'a str),
    /// None: the script requests the page regularly.
    Nobody,
    /// None: the page stays as it is. It is about an action or an error, or takes long to make.
    Still,
    /// None: the page replaces one that needs the broker. The script requests that page until the
    /// broker is back.
    StandIn,
}

impl FollowedEvents<'_> {
    fn level(self) -> Option<Priority> {
        match self {
            Self::Level(level) => Some(level),
            Self::Task(id) => Some(level_of(id)),
            Self::Nobody | Self::Still | Self::StandIn => None,
        }
    }
}

/// A page of a queue; `page` is its path below the queue's. The script replaces changed parts when
/// there are new events.
pub(crate) async fn of_queue(
    visit: &Visit,
    queue: &str,
    (page, title): (&str, &str),
    followed: FollowedEvents<'_>,
    body: &Markup,
) -> Response {
    let level = followed.level().unwrap_or(Priority::Normal);
    let nav = nav(queue, Some(page), level, counted(visit, queue, level).await);
    visit::html(StatusCode::OK, frame(visit, title, &nav, body, followed))
}

/// The numbers on the tabs, of one level. A page is complete without them.
#[derive(Clone, Copy, Debug, Default)]
struct TabCounts {
    /// Those that are not over.
    tasks: Option<u64>,
    workers: Option<u64>,
}

async fn counted(visit: &Visit, queue: &str, level: Priority) -> TabCounts {
    let (counts, workers) = futures::join!(visit.counts(queue, level), visit.workers(queue, level));
    let open = |counts: TaskCountsBody| NOT_OVER.iter().map(|word| counts.of(word)).sum();
    let workers = workers.ok().map(|list| list.alive() as u64);
    TabCounts { tasks: counts.ok().map(open), workers }
}

fn nav(queue: &str, page: Option<&str>, level: Priority, counts: TabCounts) -> Markup {
    let href = |place: &str| match (place, level) {
        // These show one level, the others show all of them.
        ("" | "/tasks", Priority::High | Priority::Low) => {
            queue_place(queue, &format!("{place}?level={level}"))
        }
        _ => queue_place(queue, place),
    };
    let count = |place: &str| match place {
        "/tasks" => counts.tasks,
        "/workers" => counts.workers,
        _ => None,
    };
    html! {
        nav aria-label="Queue" {
            a href=(ROOT) { "Queues" }
            details.switcher {
                summary { (Outside(queue)) }
                div data-menu={ (ROOT) "/names" } { a href={ (ROOT) "/names" } { "Queues by name" } }
            }
            ul {
                @for (place, name) in PAGES {
                    li { a href=(href(place)) aria-current=[(page == Some(place)).then_some("page")] { (name) @if let Some(count) = count(place).filter(|&count| count > 0) { " " span.tag title=[(place == "/tasks").then_some("Tasks that are not over")] { (number(count)) } } } }
                }
            }
        }
    }
}

/// The page for an error. If a page cannot be shown because the gateway has no broker, the script
/// requests it again.
pub(crate) fn trouble(visit: &Visit, trouble: &PageError) -> Response {
    let is_away = trouble.is_broker_away();
    let title = match trouble.status.canonical_reason() {
        _ if is_away => "The broker is away",
        Some(reason) => reason,
        None => "The action failed",
    };
    let comes_back = is_away && visit.is_safe;
    let body = html! {
        h1 { (title) }
        @if comes_back {
            p { "The gateway cannot reach its broker, so this page has nothing to show. It comes back by itself." }
        }
        p.notice.bad role="alert" { (Outside(&trouble.detail)) }
        @if !trouble.code.is_empty() { p { "Code: " code { (trouble.code) } } }
        p { a href=(visit.way_on(trouble)) { @if visit.is_safe && trouble.may_pass() { "Try again" } @else { "Go on" } } }
    };
    let nav = |queue: String| nav(&queue, None, Priority::Normal, TabCounts::default());
    let nav = visit.queue().map(nav).unwrap_or_default();
    let followed = if comes_back { FollowedEvents::StandIn } else { FollowedEvents::Still };
    visit::html(trouble.status, frame(visit, title, &nav, &body, followed))
}

fn frame(
    visit: &Visit,
    title: &str,
    nav: &Markup,
    body: &Markup,
    followed: FollowedEvents<'_>,
) -> Markup {
    let (word, task) = match followed {
        FollowedEvents::Level(_) | FollowedEvents::Nobody => ("live", None),
        FollowedEvents::Task(id) => ("live", Some(id)),
        FollowedEvents::Still => ("still", None),
        FollowedEvents::StandIn => ("stand-in", None),
    };
    let events = visit.queue().zip(followed.level());
    let events = events.map(|(of, level)| queue_place(&of, &format!("/events?level={level}")));
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (line(title)) " · longhaul" }
                link rel="icon" href=(assets::place("icon.svg")) type="image/svg+xml";
                link rel="stylesheet" href=(assets::place("ui.css"));
                script src=(assets::place("ui.js")) defer {}
            }
            body data-page=(word) data-events=[events] data-task=[task] {
                a.skip href="#main" { "Skip to the content" }
                header {
                    a.home href=(ROOT) { "longhaul" }
                    (nav)
                    span #live role="status" {}
                    @if visit.is_read_only() { span.tag { "read only" } }
                    @if visit.caller.token.is_some() {
                        form.inline method="post" action={ (ROOT) "/sign-out" } { button.quiet { "Sign out" } }
                    }
                }
                main #main tabindex="-1" { (body) }
            }
        }
    }
}
