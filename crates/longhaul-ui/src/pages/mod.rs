//! The pages.

mod actions;
mod bulk;
mod dead;
mod limits;
mod overview;
mod queue;
mod reasons;
mod schedules;
mod stream;
mod task;
mod tasks;
mod topics;
mod workers;

use crate::Ui;
use axum::Router;
use axum::http::StatusCode;
use axum::routing::{get, post};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::sync::Arc;

use crate::trouble::PageError;

/// The reason for an action, from a form.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ReasonForm {
    pub(crate) reason: String,
}

/// The fields of a form that are filled in. The gateway says what is wrong with one.
fn filled(fields: &[(&str, &str)]) -> Map<String, Value> {
    let filled = fields.iter().filter(|(_, value)| !value.trim().is_empty());
    filled.map(|(name, value)| ((*name).to_owned(), Value::from(value.trim()))).collect()
}

pub(crate) fn routes() -> Router<Arc<Ui>> {
    Router::new()
        .route("/", get(overview::show))
        .route("/names", get(overview::names))
        .route("/queues", post(overview::create))
        .route("/queues/{queue}", get(queue::show))
        .route("/queues/{queue}/{verb}", get(nothing).post(queue::act))
        .route("/queues/{queue}/events", get(stream::events))
        .route("/queues/{queue}/tasks", get(tasks::show).post(tasks::submit))
        .route("/queues/{queue}/bulk", get(bulk::confirm).post(bulk::act))
        .route("/queues/{queue}/reasons", get(reasons::show))
        .route("/queues/{queue}/tasks/{task}", get(task::show))
        .route("/queues/{queue}/tasks/{task}/payload", get(stream::payload))
        .route("/queues/{queue}/tasks/{task}/result", get(stream::result))
        .route("/queues/{queue}/tasks/{task}/{verb}", post(task::act))
        .route("/queues/{queue}/workers", get(workers::show))
        .route("/queues/{queue}/workers/{name}/drain", post(workers::drain))
        .route("/queues/{queue}/dead", get(dead::list).post(dead::act_on_all))
        .route("/queues/{queue}/dead/{task}", get(dead::show).post(dead::act))
        .route("/queues/{queue}/schedules", get(schedules::show).post(schedules::create))
        .route("/queues/{queue}/schedules/{name}/{verb}", post(schedules::act))
        .route("/queues/{queue}/limits", get(limits::show).post(limits::change))
        .route("/queues/{queue}/actions", get(actions::show))
        .route("/queues/{queue}/topics", get(topics::show))
        .fallback(nothing)
}

async fn nothing() -> PageError {
    PageError::new(StatusCode::NOT_FOUND, "", "there is no such page")
}
