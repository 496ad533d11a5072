//! Tasks that failed for good.

use crate::asked::{FormFields, Path, QueryFields};
use crate::parts::table::RowCells;
use crate::parts::table::TableHead::{Number, Text};
use crate::parts::{asked, attempts, layout, payload, queue_place, table, task_link, task_place};
use crate::shown::{Outside, ShownInstant, bytes};
use crate::trouble::PageError;
use crate::visit::{PageResult, Visit, escaped, to};
use axum::http::Method;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use longhaul_api::dead::{DeadLetterBody, DeadLetterList};
use maud::{Markup, html};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

/// Letters per page.
const PAGE_LETTERS: usize = 100;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct DeadLetterFilterQuery {
    #[serde(deserialize_with = "trimmed")]
    reason: String,
    #[serde(deserialize_with = "trimmed")]
    tag: String,
    #[serde(rename = "type", deserialize_with = "trimmed")]
    task_type: String,
    after: Option<String>,
}

/// The list and the actions below it must select the same letters.
fn trimmed<'de, D: Deserializer<'de>>(field: D) -> Result<String, D::Error> {
    Ok(String::deserialize(field)?.trim().to_owned())
}

impl DeadLetterFilterQuery {
    fn query(&self) -> String {
        let fields = [("reason", &self.reason), ("tag", &self.tag), ("type", &self.task_type)];
        let set = fields.iter().filter(|(_, value)| !value.is_empty());
        let set: Vec<String> =
            set.map(|(name, value)| format!("{name}={}", escaped(value))).collect();
        set.join("&")
    }
}

pub(super) async fn list(
    visit: Visit,
    Path(queue): Path<String>,
    QueryFields(filter): QueryFields<DeadLetterFilterQuery>,
) -> PageResult {
    let mut path =
        format!("/v1/queues/{}/dead?limit={PAGE_LETTERS}&{}", escaped(&queue), filter.query());
    if let Some(after) = &filter.after {
        path.push_str(&format!("&after={}", escaped(after)));
    }
    let found: DeadLetterList = visit.get(path.trim_end_matches('&')).await?;
    let rows: Vec<RowCells> =
        found.dead_letters.iter().map(|letter| row(&queue, letter, found.now)).collect();
    let heads = [
        Text("Task"),
        Text("Failed"),
        Text("Type"),
        Number("Attempts"),
        Text("Why"),
        Number("Payload"),
    ];
    let place = format!("{}?{}", queue_place(&queue, "/dead"), filter.query());
    let body = html! {
        h1 { "Dead letters" }
        (form(&queue, &filter))
        (table::table("dead", "Dead letters", &heads, &rows, &html! { "There are no dead letters." }))
        (table::pager(&place, filter.after.as_deref(), found.next.as_deref()))
        @if !visit.is_read_only() && !rows.is_empty() { (actions(&queue, &filter)) }
    };
    let title = format!("Dead letters of {queue}");
    let followed = layout::FollowedEvents::Nobody;
    Ok(layout::of_queue(&visit, &queue, ("/dead", &title), followed, &body).await)
}

fn form(queue: &str, filter: &DeadLetterFilterQuery) -> Markup {
    html! {
        form.bar role="search" method="get" action=(queue_place(queue, "/dead")) {
            label { "Why" input name="reason" value=(filter.reason) placeholder="503" autocomplete="off"; }
            label { "Tags" input name="tag" value=(filter.tag) autocomplete="off"; }
            label { "Type" input name="type" value=(filter.task_type) autocomplete="off"; }
            button { "Filter" }
            a href=(queue_place(queue, "/dead")) { "Clear" }
        }
    }
}

fn row(queue: &str, letter: &DeadLetterBody, now_ms: u64) -> RowCells {
    let place = queue_place(queue, &format!("/dead/{}", escaped(&letter.task)));
    vec![
        html! { a.id href=(place) { (Outside(&letter.task)) } @for tag in &letter.tags { " " span.tag { (Outside(tag)) } } },
        html! { (ShownInstant { at_ms: letter.at, now_ms }) },
        html! { @if let Some(kind) = &letter.task_type { (Outside(kind)) } },
        html! { (letter.attempts) },
        html! { (Outside(&letter.reason)) },
        html! { (bytes(letter.payload_bytes)) },
    ]
}

/// The actions on all letters that match the filter, on every page.
fn actions(queue: &str, filter: &DeadLetterFilterQuery) -> Markup {
    let hidden = |verb: &str| {
        html! {
            input type="hidden" name="verb" value=(verb);
            input type="hidden" name="failed_with" value=(filter.reason);
            input type="hidden" name="tag" value=(filter.tag);
            input type="hidden" name="type" value=(filter.task_type);
        }
    };
    let which = if filter.query().is_empty() {
        "all dead letters of the queue"
    } else {
        "all dead letters that match the filter, on every page"
    };
    let place = queue_place(queue, "/dead");
    html! {
        section.actions {
            h2 { "Actions" }
            (asked(&place, "Replay", &format!("Submits {which} again, up to 100,000."), &hidden("replay")))
            (asked(&place, "Purge", &format!("Removes {which}, with their payloads. This cannot be undone."), &hidden("purge")))
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Selection {
    verb: String,
    reason: String,
    failed_with: String,
    tag: String,
    #[serde(rename = "type")]
    task_type: String,
}

pub(super) async fn act_on_all(
    visit: Visit,
    Path(queue): Path<String>,
    FormFields(given): FormFields<Selection>,
) -> PageResult {
    let tags: Vec<&str> =
        given.tag.split(',').map(str::trim).filter(|tag| !tag.is_empty()).collect();
    let all = tags.is_empty() && given.failed_with.is_empty() && given.task_type.is_empty();
    let mut body = json!({ "reason": given.reason, "all": all, "tag": tags });
    for (name, value) in [("failed_with", given.failed_with), ("type", given.task_type)] {
        if let Some(fields) = body.as_object_mut().filter(|_| !value.is_empty()) {
            fields.insert(name.to_owned(), value.into());
        }
    }
    act_with(visit, &queue, &given.verb, body).await
}

pub(super) async fn act(
    visit: Visit,
    Path((queue, task)): Path<(String, String)>,
    FormFields(given): FormFields<Selection>,
) -> PageResult {
    let body = json!({ "reason": given.reason, "tasks": [task] });
    act_with(visit, &queue, &given.verb, body).await
}

async fn act_with(visit: Visit, queue: &str, verb: &str, body: Value) -> PageResult {
    if !matches!(verb, "replay" | "purge") {
        return Err(PageError::no_such_action());
    }
    visit.act(Method::POST, &format!("/v1/queues/{}/dead:{verb}", escaped(queue)), body).await?;
    Ok(to(&queue_place(queue, "/dead")))
}

pub(super) async fn show(
    visit: Visit,
    Path((queue, task)): Path<(String, String)>,
    QueryFields(asked): QueryFields<payload::PayloadQuery>,
) -> PageResult {
    let letter: DeadLetterBody =
        visit.get(&format!("/v1/queues/{}/dead/{}", escaped(&queue), escaped(&task))).await?;
    let place = queue_place(&queue, &format!("/dead/{}", escaped(&task)));
    let bytes = letter.payload_base64.as_ref().and_then(|text| STANDARD.decode(text).ok());
    let codec = letter.properties.get("TASK_CODEC");
    let body = html! {
        h1 { "Dead letter of " (Outside(&task)) }
        p.notice.bad { (Outside(&letter.reason)) @if let Some(detail) = &letter.detail { ": " (Outside(detail)) } }
        p { (task_link(&queue, &task)) " failed for good after " (attempts(letter.attempts)) "." }
        @if let Some(other) = &letter.replay_of { p { "The task was a replay of " (task_link(&queue, other)) "." } }
        section #payload {
            h2 { "Payload" @if let Some(codec) = codec { " " span.tag { "encoded by " (Outside(codec)) } } }
            @match bytes {
                Some(bytes) => { (payload::show(&bytes, asked.form, &place, &format!("{}/payload", task_place(&queue, &task)))) }
                None if letter.hidden => { p.notice { "This gateway hides payloads from you." } }
                None => { p.empty { "The dead letter has no payload." } }
            }
        }
        section { h2 { "Properties" } dl.facts { @for (name, value) in &letter.properties { div { dt { (Outside(name)) } dd { (Outside(value)) } } } } }
        @if !visit.is_read_only() { (letter_actions(&place)) }
    };
    let title = format!("Dead letter {task}");
    let followed = layout::FollowedEvents::Nobody;
    Ok(layout::of_queue(&visit, &queue, ("/dead", &title), followed, &body).await)
}

fn letter_actions(place: &str) -> Markup {
    let verb = |verb: &str| html! { input type="hidden" name="verb" value=(verb); };
    html! {
        section.actions {
            h2 { "Actions" }
            (asked(place, "Replay", "Submits the task again, as a new task.", &verb("replay")))
            (asked(place, "Purge", "Removes the dead letter, with its payload. This cannot be undone.", &verb("purge")))
        }
    }
}
