//! The list of checks of a worker.

mod answering;
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

/// A list of checks: the name, the function and the requirement of each.
macro_rules! checks {
    ($($name:literal $module:ident::$check:ident $demand:literal;)*) => {
        &[$(ConformanceCheck {
            name: $name,
            demand: $demand,
            run: |scene| Box::pin($module::$check(scene)),
        }),*]
    };
}

/// All checks, in the order of docs/leases.md.
pub(crate) const ALL: &[ConformanceCheck] = checks! {
    "results" ending::results "reports the result unchanged, text or bytes";
    "failure" ending::failure "reports a failed attempt with its reason, and runs the next one";
    "fatal" ending::fatal "reports a failure for good";
    "retry-after" ending::retry_after "reports when the next attempt may begin";
    "nonsense" ending::nonsense "fails an unreadable task for good, and continues";
    "too-large" ending::too_large "fails a task for good if the gateway refuses its result";
    "progress" keeping::progress
        "reports progress within seconds, not only with the next keep-alive";
    "checkpoint" keeping::checkpoint "stores a checkpoint, and passes it to the next attempt";
    "keep-alive" keeping::keep_alive
        "keeps the lease of a task that takes longer than the lease time";
    "several" keeping::several "runs exactly as many tasks at once as configured";
    "cancelled" leaving::cancelled "stops a task that was cancelled, and takes the next one";
    "taken-away" leaving::taken_away "reports nothing more on a task that another worker has";
    "frozen" leaving::frozen "notices after a pause that its lease has expired, and continues";
    "drain" leaving::drain
        "on SIGTERM, lets tasks end for a while, gives back the others, and ends";
    "told-to-wait" breaking::told_to_wait
        "waits as long as Retry-After says after 429 and 503, and loses nothing";
    "end-in-a-pause" breaking::end_in_a_pause
        "sends an end at once, although a keep-alive of the task was told to wait";
    "answer-lost" breaking::answer_lost "repeats a report that got no answer";
    "gateway-restarted" breaking::gateway_restarted
        "keeps its tasks while its gateway is killed and restarted";
    "gateway-gone" breaking::gateway_gone
        "switches to another gateway of its list, and keeps its tasks";
    "odd-news" keeping::odd_news "succeeds whatever its log lines and its progress are";
    "odd-reason" ending::odd_reason
        "fails an attempt, and runs the next one, whatever its reason and its pause are";
    "proxy-page" answering::proxy_page
        "repeats an end that a proxy has answered, whatever the status and the page are";
    "token-rotated" answering::token_rotated
        "repeats an end that is refused with 401 or 403 for a while";
    "cut-answer" answering::cut_answer "takes an answer that was cut off for no answer";
    "large-leases" keeping::large_leases
        "runs tasks of megabytes, as many at once as configured";
    "unconfirmed" answering::unconfirmed
        "starts no task before its leases were confirmed, and none that was not";
    "unknown-outcome" answering::unknown_outcome
        "repeats a confirmation whose outcome is UNKNOWN, and starts no task before";
    "stopped-gateway" answering::stopped_gateway
        "runs what it has leased from a gateway that stops, at the first attempt";
    "long-drain" leaving::long_drain
        "without a limit, lets tasks end for as long as they take";
    "two-workers" leaving::two_workers "on SIGTERM, drains all workers of its process";
};
