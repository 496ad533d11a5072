//! The routes of the native API, one file per resource.

mod actions;
pub(crate) mod at;
mod batch;
mod dead;
mod enqueue;
mod events;
mod health;
mod history;
mod lease_body;
mod leases;
pub(crate) mod new_task;
mod news;
mod queues;
mod schedules;
mod series;
mod task_body;
mod tasks;
#[cfg(test)]
mod tests;
mod topics;
pub(crate) mod values;
mod why;
mod workers;

use crate::problem::ProblemDetails;
use crate::route::ApiRoute;
pub(crate) use task_body::task_body;

/// The answer of a route in JSON, or an error.
type JsonAnswer<T> = Result<axum::Json<T>, ProblemDetails>;

/// All routes.
pub(crate) fn routes() -> Vec<ApiRoute> {
    let all = [
        health::routes(),
        queues::routes(),
        enqueue::routes(),
        tasks::routes(),
        actions::routes(),
        history::routes(),
        why::routes(),
        workers::routes(),
        topics::routes(),
        dead::routes(),
        schedules::routes(),
        series::routes(),
        events::routes(),
        leases::routes(),
    ];
    all.into_iter().flatten().collect()
}
