//! The list of checks of a worker.

mod breaking;
mod ending;
mod keeping;
mod leaving;

use super::Scene;
use futures::future::LocalBoxFuture;

type ConformanceCheckFn =
    for<'a, 'b> fn(&'a mut Scene<'b>) -> LocalBoxFuture<'a, anyhow::Result<()>>;

/// A requirement on a worker.
#[derive(Clone, Copy)]
pub(crate) struct ConformanceCheck {
    /// Its name, which is also that of its queue.
    pub(crate) name: &'static str,
    /// The requirement, as a sentence without a full stop.
    pub(crate) demand: &'static str,
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
    check("results", "reports the result, text and bytes as they are", |scene| {
        Box::pin(ending::results(scene))
    }),
    check(
        "failure",
        "reports a failed attempt with its reason, and works on the next one",
        |scene| Box::pin(ending::failure(scene)),
    ),
    check("fatal", "reports a failure for good", |scene| Box::pin(ending::fatal(scene))),
    check("retry-after", "says when the next attempt is to begin", |scene| {
        Box::pin(ending::retry_after(scene))
    }),
    check("nonsense", "fails a task for good that it does not understand, and lives on", |scene| {
        Box::pin(ending::nonsense(scene))
    }),
    check("too-large", "fails a task for good whose result the gateway does not take", |scene| {
        Box::pin(ending::too_large(scene))
    }),
    check("progress", "tells progress within seconds, and not with the next keep-alive", |scene| {
        Box::pin(keeping::progress(scene))
    }),
    check("checkpoint", "keeps a checkpoint for the next attempt, which finds it", |scene| {
        Box::pin(keeping::checkpoint(scene))
    }),
    check("keep-alive", "keeps its lease while a task takes longer than it", |scene| {
        Box::pin(keeping::keep_alive(scene))
    }),
    check("several", "runs as many tasks at once as it is told to, and not more", |scene| {
        Box::pin(keeping::several(scene))
    }),
    check("cancelled", "stops a task that was cancelled, and takes the next one", |scene| {
        Box::pin(leaving::cancelled(scene))
    }),
    check("taken-away", "says nothing more of a task that somebody else has", |scene| {
        Box::pin(leaving::taken_away(scene))
    }),
    check("frozen", "finds out after a pause that its lease has expired, and works on", |scene| {
        Box::pin(leaving::frozen(scene))
    }),
    check(
        "drain",
        "ends on SIGTERM: lets tasks end for a while, and gives the others back",
        |scene| Box::pin(leaving::drain(scene)),
    ),
    check(
        "told-to-wait",
        "waits after 429 and 503 for as long as Retry-After says, and loses nothing",
        |scene| Box::pin(breaking::told_to_wait(scene)),
    ),
    check("answer-lost", "repeats a report whose answer it did not get", |scene| {
        Box::pin(breaking::answer_lost(scene))
    }),
    check(
        "gateway-restarted",
        "keeps its tasks while its gateway is killed and started again",
        |scene| Box::pin(breaking::gateway_restarted(scene)),
    ),
    check(
        "gateway-gone",
        "goes to another gateway that it was told, and keeps its tasks",
        |scene| Box::pin(breaking::gateway_gone(scene)),
    ),
];
