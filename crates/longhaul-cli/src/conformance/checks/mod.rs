//! The list of checks of a worker.

mod breaking;
mod ending;
mod keeping;
mod leaving;

use super::Scene;
use futures::future::LocalBoxFuture;
use serde::Serialize;

type ConformanceCheckFn =
    for<'a, 'b> fn(&'a mut Scene<'b>) -> LocalBoxFuture<'a, anyhow::Result<()>>;

/// A requirement on a worker.
#[derive(Clone, Copy, Serialize)]
pub(crate) struct ConformanceCheck {
    /// Its name, which is also that of its queue.
    #[serde(rename = "check")]
    pub(crate) name: &'static str,
    /// The requirement, as a sentence without a full stop.
    pub(crate) demand: &'static str,
    #[serde(skip)]
    pub(crate) run: ConformanceCheckFn,
}

const fn check(
    name: &'static str,
    demand: &'static str,
    run: ConformanceCheckFn,
) -> ConformanceCheck {
    ConformanceCheck { name, demand, run }
}

/// All checks, in the order of docs/clients.md.
pub(crate) const ALL: &[ConformanceCheck] = &[
    check("results", "reports the result unchanged, text or bytes", |scene| {
        Box::pin(ending::results(scene))
    }),
    check("failure", "reports a failed attempt with its reason, and runs the next one", |scene| {
        Box::pin(ending::failure(scene))
    }),
    check("fatal", "reports a failure for good", |scene| Box::pin(ending::fatal(scene))),
    check("retry-after", "reports when the next attempt may begin", |scene| {
        Box::pin(ending::retry_after(scene))
    }),
    check("nonsense", "fails an unreadable task for good, and continues", |scene| {
        Box::pin(ending::nonsense(scene))
    }),
    check("too-large", "fails a task for good if the gateway refuses its result", |scene| {
        Box::pin(ending::too_large(scene))
    }),
    check(
        "progress",
        "reports progress within seconds, not only with the next keep-alive",
        |scene| Box::pin(keeping::progress(scene)),
    ),
    check("checkpoint", "stores a checkpoint, and passes it to the next attempt", |scene| {
        Box::pin(keeping::checkpoint(scene))
    }),
    check(
        "keep-alive",
        "keeps the lease of a task that takes longer than the lease time",
        |scene| Box::pin(keeping::keep_alive(scene)),
    ),
    check("several", "runs exactly as many tasks at once as configured", |scene| {
        Box::pin(keeping::several(scene))
    }),
    check("cancelled", "stops a task that was cancelled, and takes the next one", |scene| {
        Box::pin(leaving::cancelled(scene))
    }),
    check("taken-away", "reports nothing more on a task that another worker has", |scene| {
        Box::pin(leaving::taken_away(scene))
    }),
    check("frozen", "notices after a pause that its lease has expired, and continues", |scene| {
        Box::pin(leaving::frozen(scene))
    }),
    check(
        "drain",
        "on SIGTERM, lets tasks end for a while, gives back the others, and ends",
        |scene| Box::pin(leaving::drain(scene)),
    ),
    check(
        "told-to-wait",
        "waits as long as Retry-After says after 429 and 503, and loses nothing",
        |scene| Box::pin(breaking::told_to_wait(scene)),
    ),
    check("answer-lost", "repeats a report that got no answer", |scene| {
        Box::pin(breaking::answer_lost(scene))
    }),
    check(
        "gateway-restarted",
        "keeps its tasks while its gateway is killed and restarted",
        |scene| Box::pin(breaking::gateway_restarted(scene)),
    ),
    check(
        "gateway-gone",
        "switches to another gateway of its list, and keeps its tasks",
        |scene| Box::pin(breaking::gateway_gone(scene)),
    ),
];
