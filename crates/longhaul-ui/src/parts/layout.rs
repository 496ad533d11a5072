//! What stands around a page.

use crate::parts::queue_place;
use crate::shown::{Outside, line};
use crate::trouble::Trouble;
use crate::visit::Visit;
use crate::{ROOT, assets};
use maud::{DOCTYPE, Markup, html};

/// The pages of a queue.
const PAGES: [(&str, &str); 7] = [
    ("", "Overview"),
    ("/tasks", "Tasks"),
    ("/workers", "Workers"),
    ("/dead", "Dead letters"),
    ("/schedules", "Schedules"),
    ("/limits", "Limits"),
    ("/actions", "Actions"),
];

/// A page without a queue.
pub(crate) fn bare(visit: &Visit, title: &str, body: &Markup) -> Markup {
    frame(visit, title, &html! {}, body, None)
}

/// A page of a queue; `page` is its place below the queue's. What has changed of its content is replaced when the queue's events tell of news.
pub(crate) fn of_queue(
    visit: &Visit,
    queue: &str,
    page: &str,
    title: &str,
    body: &Markup,
) -> Markup {
    let nav = html! {
        nav aria-label="Queue" {
            a.queue href=(queue_place(queue, "")) { (Outside(queue)) }
            ul {
                @for (place, name) in PAGES {
                    li { a href=(queue_place(queue, place)) aria-current=[(place == page).then_some("page")] { (name) } }
                }
            }
        }
    };
    frame(visit, title, &nav, body, Some(queue))
}

/// Why there is no page.
pub(crate) fn trouble(visit: &Visit, trouble: &Trouble) -> Markup {
    let body = html! {
        h1 { (trouble.status.canonical_reason().unwrap_or("It did not work")) }
        p.notice.bad role="alert" { (Outside(&trouble.detail)) }
        @if !trouble.code.is_empty() { p { "Code: " code { (trouble.code) } } }
        p { a href=(visit.way_on()) { "Go on" } }
    };
    bare(visit, "It did not work", &body)
}

fn frame(visit: &Visit, title: &str, nav: &Markup, body: &Markup, queue: Option<&str>) -> Markup {
    let events = queue.map(|queue| queue_place(queue, "/events"));
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
            body data-events=[events] {
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
