//! The end of a worker: it takes nothing new, lets its programs end, ends those that do not, and
//! tells how far it has come.

use super::args::{MARGIN, WorkerRun};
use super::processor::Attempts;
use crate::output::Output;
use crate::signals::ShutdownSignals;
use crate::times;
use anyhow::bail;
use futures::FutureExt;
use longhaul::WorkerHandle;
use std::time::Duration;

/// How often a drain tells how far it has come, when nothing changes.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// Runs a worker until Ctrl-C or SIGTERM, or until somebody drains it by its name, and drains it. A
/// second signal stops it at once.
///
/// # Errors
/// The worker ended by an error, or was stopped while programs ran.
pub(crate) async fn run(
    worker: WorkerHandle,
    args: &WorkerRun,
    attempts: &Attempts,
    output: &Output,
) -> anyhow::Result<()> {
    let mut signals = ShutdownSignals::new()?;
    tokio::select! {
        () = worker.ready() => output.note(&format!("working on `{}`", args.queue)),
        () = signals.next() => {
            // It has not read its ledger, so it has begun nothing.
            worker.stop();
            return Ok(worker.join().await?);
        }
    }
    // It listens to the same signals. After the first one programs end by themselves until `drain`
    // is over, and by force in the grace after it, so that the worker itself need not give anything
    // back.
    let limit = args.drain + args.grace + MARGIN;
    let mut drained = DrainProgress::default();
    let told = worker.told_to_drain();
    let result = tokio::select! {
        biased;
        () = drain((&mut signals, told), args.drain, attempts, output, &mut drained) => Ok(()),
        result = worker.run_until_signal(limit) => result,
    };
    result?;
    // The worker may have ended by a second signal before it was seen here.
    let was_stopped =
        drained.was_stopped || (drained.has_signal && signals.next().now_or_never().is_some());
    if was_stopped && drained.running > 0 {
        bail!(
            "stopped at a second signal: {} killed; other workers take over in {} or so",
            programs(drained.running, "was", "were"),
            times::human(2 * args.heartbeat)
        );
    }
    output.note("the worker has ended");
    Ok(())
}

/// How far a drain has come.
#[derive(Default)]
struct DrainProgress {
    /// A first signal has come.
    has_signal: bool,
    /// Programs.
    running: usize,
    /// A second signal has come.
    was_stopped: bool,
}

/// Tells what happens after the first signal, or after somebody has asked for the drain by the
/// worker's name. Ends only at the second signal.
async fn drain(
    (signals, told): (&mut ShutdownSignals, impl Future<Output = ()>),
    limit: Duration,
    attempts: &Attempts,
    output: &Output,
    drained: &mut DrainProgress,
) {
    tokio::select! {
        () = signals.next() => drained.has_signal = true,
        () = told => output.note("told to drain by the worker's name"),
    }
    let mut running = attempts.running();
    let mut every = tokio::time::interval(TELL_EVERY);
    let deadline = tokio::time::sleep(limit);
    tokio::pin!(deadline);
    let mut over = false;
    loop {
        let count = *running.borrow_and_update();
        drained.running = count;
        output.note(&match (count, over) {
            (0, _) => "draining: no program runs".to_owned(),
            (_, false) => {
                let told = programs(count, "runs", "run");
                let signals =
                    if drained.has_signal { "a second signal stops" } else { "two signals stop" };
                format!("draining: {told}; {signals} at once")
            }
            (_, true) => {
                let told = programs(count, "is", "are");
                format!("draining: the time is over, {told} told to end")
            }
        });
        every.reset();
        tokio::select! {
            () = signals.next() => {
                if drained.has_signal {
                    drained.was_stopped = true;
                    return;
                }
                drained.has_signal = true;
            }
            () = &mut deadline, if !over => {
                over = true;
                attempts.stop();
            }
            _ = running.changed() => {}
            _ = every.tick() => {}
        }
    }
}

fn programs(count: usize, one: &str, many: &str) -> String {
    if count == 1 { format!("1 program {one}") } else { format!("{count} programs {many}") }
}
