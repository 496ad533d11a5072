//! `longhaul worker drain`: drains a worker, and waits until it has left.

use crate::clock;
use crate::context::CommandContext;
use crate::exit::{Code, CommandFailure};
use crate::service::gateway::GatewayClient;
use crate::service::workers::WorkerProcess;
use crate::times;
use serde_json::json;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// How often the wait checks whether the worker has left.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The silence after which a worker counts as dead: a little more than twice the longest heartbeat
/// interval of a ledger that is kept for an hour.
const SILENCE_MAX: Duration = Duration::from_secs(360);

/// The silence after which the wait reports it.
const SILENCE_TOLD: Duration = Duration::from_secs(30);

/// # Errors
/// When there is no such worker, it cannot be drained by its name, or it has died.
pub(super) async fn run(
    service: &GatewayClient,
    queue: &str,
    name: &str,
    wait: bool,
    context: &CommandContext,
) -> anyhow::Result<()> {
    let instance = service.drain(queue, name, context.reason()).await?;
    if wait {
        gone(service, queue, (name, &instance), context).await?;
    }
    let state = if wait { "left" } else { "draining" };
    let record = json!({ "worker": name, "instance": instance, "state": state });
    Ok(context.output.one(&record, &[("worker", name.to_owned()), ("state", state.to_owned())])?)
}

/// The result of a check.
enum DrainObservation {
    /// A new heartbeat.
    Heard(Option<u64>),
    Left,
    /// The check failed.
    Lost(anyhow::Error),
}

/// Waits until the worker has left, and reports its running tasks.
async fn gone(
    service: &GatewayClient,
    queue: &str,
    (name, instance): (&str, &str),
    context: &CommandContext,
) -> anyhow::Result<()> {
    let mut every = interval(LOOK_EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut heard, mut running) = (None, None);
    loop {
        // Each heartbeat restarts the time limit.
        let next = async {
            loop {
                every.tick().await;
                let worker = match found(service, queue, instance).await {
                    Ok(Some(worker)) => worker,
                    Ok(None) => return DrainObservation::Left,
                    Err(failure) => return DrainObservation::Lost(failure),
                };
                service.back();
                if heard.is_none() && is_silent(&worker) {
                    let told = "it is cut off, and drains when it is back, or it has died";
                    context.output.note(&format!("last heartbeat {}: {told}", worker.heartbeat()));
                }
                if running != Some(worker.running.len()) {
                    running = Some(worker.running.len());
                    context.output.note(&told(&worker.running));
                }
                if worker.last_heartbeat_at != heard {
                    return DrainObservation::Heard(worker.last_heartbeat_at);
                }
            }
        };
        match timeout(SILENCE_MAX, next).await.map_err(|_| died(name))? {
            DrainObservation::Heard(at) => heard = at,
            DrainObservation::Left => return Ok(()),
            // The worker's state is unknown meanwhile: its silence counts from then on.
            DrainObservation::Lost(failure) => service.pause(failure).await?,
        }
    }
}

/// Whether the worker has been silent for a while: most workers have a heartbeat every few seconds.
fn is_silent(worker: &WorkerProcess) -> bool {
    let silent = worker.last_heartbeat_at.map(|at| clock::wall_ms().saturating_sub(at));
    silent.is_some_and(|silent| u128::from(silent) > SILENCE_TOLD.as_millis())
}

async fn found(
    service: &GatewayClient,
    queue: &str,
    instance: &str,
) -> anyhow::Result<Option<WorkerProcess>> {
    let workers = service.workers(queue).await?;
    let is_it = |it: &WorkerProcess| it.instance == instance && it.last_heartbeat_at.is_some();
    Ok(workers.into_iter().find(is_it))
}

fn told(running: &[String]) -> String {
    match running {
        [] => "draining: no task runs".to_owned(),
        [one] => format!("draining: {one} runs"),
        many => format!("draining: {} tasks run", many.len()),
    }
}

fn died(name: &str) -> CommandFailure {
    let time = times::human(SILENCE_MAX);
    CommandFailure::new(Code::Failed, format!("the worker `{name}` sent no heartbeat for {time}"))
        .help(
            "check its machine: it has died or cannot reach the broker; other workers take over \
            its tasks",
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_not_heard_of_for_a_while_is_silent() {
        let heard = |ago: u64| WorkerProcess {
            last_heartbeat_at: Some(clock::wall_ms() - ago * 1000),
            ..WorkerProcess::default()
        };
        assert_eq!([heard(0), heard(20), heard(40)].map(|it| is_silent(&it)), [false, false, true]);
        assert!(!is_silent(&WorkerProcess::default()), "it has left");
    }

    #[test]
    fn what_still_runs_is_told() {
        let tasks = |count: usize| vec!["tasks/1:2:-1".to_owned(); count];
        let texts = [0, 1, 2].map(|count| told(&tasks(count)));
        let expected =
            ["draining: no task runs", "draining: tasks/1:2:-1 runs", "draining: 2 tasks run"];
        assert_eq!(texts, expected);
    }
}
