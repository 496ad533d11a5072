//! The settings of a queue, which apply to all its workers.

use crate::asked::{FormFields, Path};
use crate::parts::table::RowCells;
use crate::parts::table::TableHead::{Number, Text};
use crate::parts::{button, layout, length, queue_place, reason_field, table, task_link};
use crate::shown::{Outside, ShownInstant, number, text};
use crate::trouble::PageError;
use crate::visit::{PageResult, Visit, escaped, to};
use axum::http::{Method, StatusCode};
use longhaul_api::Priority;
use longhaul_api::queue::{LimitUseBody, QueueBody};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The most waiting tasks named per limit.
const NAMED_MAX: usize = 5;

/// Settings with their own field; others are changed as JSON.
const FIELDS: [(&str, &str, &str); 4] = [
    ("max_in_flight", "Maximum of tasks that run at once, over all workers", "20"),
    ("rate_tokens", "Rate limit: tasks that may begin per time", "100"),
    ("rate_per", "Time of the rate limit, such as 10s or 1m", "1m"),
    ("max_attempts", "Maximum of attempts of a task", "3"),
];

pub(super) async fn show(visit: Visit, Path(queue): Path<String>) -> PageResult {
    let found: QueueBody = visit.get(&format!("/v1/queues/{}", escaped(&queue))).await?;
    let settings = serde_json::to_value(&found.settings).unwrap_or_default();
    let all = serde_json::to_string_pretty(&settings).unwrap_or_default();
    let (verb, name) =
        if found.settings.paused { ("/resume", "Resume") } else { ("/pause", "Pause") };
    let body = html! {
        h1 { "Limits" @if found.settings.paused { " " span.tag { "paused" } } }
        @if found.settings.paused { p.notice { "The queue is paused: no task begins." } }
        (usage(&queue, &found))
        h2 { "Settings" }
        p { "Version " (found.version) ". All workers apply a change within a second. Empty fields are not set." }
        @if visit.is_read_only() {
            pre tabindex="0" { (text(&all, true)) }
        } @else {
            (button(&queue_place(&queue, verb), name))
            (fields(&queue, found.version, &settings))
            (whole(&queue, found.version, &all))
        }
    };
    // Tasks of all levels use the limits, and events are those of one.
    let followed = if found.levels {
        layout::FollowedEvents::Nobody
    } else {
        layout::FollowedEvents::Level(Priority::Normal)
    };
    let title = format!("Limits of {queue}");
    Ok(layout::of_queue(&visit, &queue, ("/limits", &title), followed, &body).await)
}

/// Who uses the limits, and who waits at them.
fn usage(queue: &str, found: &QueueBody) -> Markup {
    let heads = [
        Text("Limit"),
        Text("In use"),
        Number("In line"),
        Text("First in line"),
        Text("Next start"),
    ];
    let rows: Vec<RowCells> = found.limits.iter().map(|it| drawn(queue, it, found.now)).collect();
    let empty =
        html! { "There are no limits: as many tasks run at once as the workers have slots." };
    html! {
        (table::table("usage", "Limits in use", &heads, &rows, &empty))
        @if !found.limits.is_empty() { p { "A worker queues for as many tasks as it has free slots. The other tasks are shown as ready in the list of tasks." } }
    }
}

fn drawn(queue: &str, it: &LimitUseBody, now_ms: u64) -> RowCells {
    vec![
        html! { @match &it.key { Some(key) => { "Key " (Outside(key)) } None => { "The queue" } } },
        html! {
            @if let Some(most) = it.limit.max_in_flight {
                progress max=(most) value=(it.running.min(u64::from(most))) aria-label="slots in use" {}
                " " (number(it.running)) " of " (number(u64::from(most))) " run"
            }
            @if let Some(rate) = it.limit.rate { span.tag { (rate.tokens) " per " (length(Some(rate.per.ms()))) } }
        },
        html! { span.none[it.waiting == 0] { (number(it.waiting)) } },
        html! { @for task in it.first_waiting.iter().take(NAMED_MAX) { (task_link(queue, task)) " " } },
        html! { @match it.opens_at { Some(at_ms) => { (ShownInstant { at_ms, now_ms }) } None if it.limit.rate.is_some() => { "now" } None => {} } },
    ]
}

/// A field's value in the settings.
fn value(settings: &Value, name: &str) -> String {
    let found = match name.strip_prefix("rate_") {
        Some(part) => settings.get("rate").and_then(|rate| rate.get(part)),
        None => settings.get(name),
    };
    match found {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => String::new(),
    }
}

fn fields(queue: &str, version: u64, settings: &Value) -> Markup {
    html! {
        form.stack method="post" action=(queue_place(queue, "/limits")) {
            input type="hidden" name="version" value=(version);
            input type="hidden" name="settings" value=(settings.to_string());
            @for (name, label, hint) in FIELDS {
                label { (label) input name=(name) value=(value(settings, name)) placeholder=(hint) autocomplete="off"; }
            }
            (reason_field())
            button { "Change" }
        }
    }
}

fn whole(queue: &str, version: u64, all: &str) -> Markup {
    html! {
        details.asked {
            summary { "All settings, as JSON" }
            form.stack method="post" action=(queue_place(queue, "/limits")) {
                input type="hidden" name="version" value=(version);
                label { "Settings" textarea name="settings" rows="16" spellcheck="false" { (all) } }
                (reason_field())
                button { "Change" }
            }
        }
    }
}

/// A change of the version that the page showed; if another version is current, nothing changes.
#[derive(Debug, Deserialize)]
pub(super) struct QueueSettingsForm {
    version: u64,
    /// All settings, as shown or edited on the page.
    settings: String,
    /// The settings with their own field; an empty field unsets its setting.
    max_in_flight: Option<String>,
    rate_tokens: Option<String>,
    rate_per: Option<String>,
    max_attempts: Option<String>,
    #[serde(default)]
    reason: String,
}

impl QueueSettingsForm {
    fn settings(&self) -> Result<Value, PageError> {
        let wrong =
            |why: String| PageError::new(StatusCode::UNPROCESSABLE_ENTITY, "settings_unfit", why);
        let mut settings: Map<String, Value> = serde_json::from_str(&self.settings)
            .map_err(|error| wrong(format!("the settings are not a JSON object: {error}")))?;
        for (name, text) in
            [("max_in_flight", &self.max_in_flight), ("max_attempts", &self.max_attempts)]
        {
            if let Some(text) = text {
                set(&mut settings, name, whole_number(text, name).map_err(wrong)?);
            }
        }
        if let (Some(tokens), Some(per)) = (&self.rate_tokens, &self.rate_per) {
            let rate = match (whole_number(tokens, "tasks that begin").map_err(wrong)?, per.trim())
            {
                (None, "") => None,
                (Some(tokens), per) if !per.is_empty() => {
                    Some(json!({ "tokens": tokens, "per": per }))
                }
                _ => return Err(wrong("a rate needs a number of tasks and a time".to_owned())),
            };
            set(&mut settings, "rate", rate);
        }
        Ok(Value::Object(settings))
    }
}

fn set(settings: &mut Map<String, Value>, name: &str, value: Option<Value>) {
    match value {
        Some(value) => settings.insert(name.to_owned(), value),
        None => settings.remove(name),
    };
}

fn whole_number(text: &str, name: &str) -> Result<Option<Value>, String> {
    match text.trim() {
        "" => Ok(None),
        digits => digits
            .parse::<u64>()
            .map(|number| Some(number.into()))
            .map_err(|_| format!("{name}: {digits:?} is not a number")),
    }
}

pub(super) async fn change(
    visit: Visit,
    Path(queue): Path<String>,
    FormFields(change): FormFields<QueueSettingsForm>,
) -> PageResult {
    let settings = change.settings()?;
    let body = json!({ "expected_version": change.version, "settings": settings, "reason": change.reason });
    visit.act(Method::PATCH, &format!("/v1/queues/{}", escaped(&queue)), body).await?;
    Ok(to(&queue_place(&queue, "/limits")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(settings: &str, tokens: &str, per: &str, most: &str) -> Result<Value, PageError> {
        let text = |text: &str| Some(text.to_owned());
        let change = QueueSettingsForm {
            version: 1,
            settings: settings.to_owned(),
            max_in_flight: text(most),
            rate_tokens: text(tokens),
            rate_per: text(per),
            max_attempts: None,
            reason: String::new(),
        };
        change.settings()
    }

    #[test]
    fn fields_change_their_settings_and_leave_the_others() {
        let changed = change(
            r#"{"paused":true,"rate":{"tokens":1,"per":"PT1S"},"max_attempts":9}"#,
            " 5",
            "1m",
            "20",
        )
        .unwrap();
        assert_eq!(
            changed,
            json!({ "paused": true, "rate": { "tokens": 5, "per": "1m" }, "max_attempts": 9, "max_in_flight": 20 })
        );
        let cleared =
            change(r#"{"rate":{"tokens":1,"per":"PT1S"},"max_in_flight":3}"#, "", "", "").unwrap();
        assert_eq!(cleared, json!({}));
    }

    #[test]
    fn what_is_no_setting_is_refused() {
        for (settings, tokens, per, most) in [
            ("[]", "", "", ""),
            ("{", "", "", ""),
            ("{}", "5", "", ""),
            ("{}", "", "1m", ""),
            ("{}", "", "", "many"),
        ] {
            let refused = change(settings, tokens, per, most).unwrap_err();
            assert_eq!(
                refused.status,
                StatusCode::UNPROCESSABLE_ENTITY,
                "{settings} {tokens} {per} {most}"
            );
        }
    }
}
