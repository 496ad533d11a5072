//! The drain of a worker: it takes no new tasks, lets its programs end, kills those that do not,
//! and reports its progress.

use super::args::{MARGIN, WorkerRun};
use super::processor::Attempts;
use crate::output::Output;
use crate::signals::ShutdownSignals;
use crate::times;
use anyhow::bail;
use futures::FutureExt;
use longhaul::WorkerHandle;
use std::time::Duration;

/// How often a drain reports its progress when nothing changes.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// Runs a worker until Ctrl-C, SIGTERM or a drain by its name, and drains it. A second signal stops
/// it at once.
///
/// # Errors
/// When the worker failed, or was stopped while programs ran.
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
            // The worker has not read its ledger, so it has started nothing.
            worker.stop();
            return Ok(worker.join().await?);
        }
    }
    // The worker listens to the same signals. After the first one, programs may end by themselves
    // until `drain` is over, and are killed in the grace after it, so the worker itself never has
    // to release anything.
    let limit = args.drain + args.grace + MARGIN;
    let mut drained = DrainProgress::default();
    let told = worker.told_to_drain();
    let result = tokio::select! {
        biased;
        () = drain((&mut signals, told), args.drain, attempts, output, &mut drained) => Ok(()),
        result = worker.run_until_signal(limit) => result,
    };
    result?;
    // The worker may have ended by a second signal before this loop saw it.
    let was_stopped =
        drained.was_stopped || (drained.has_signal && signals.next().now_or_never().is_some());
    if was_stopped && drained.running > 0 {
        bail!(
            "stopped at a second signal: {} killed; other workers take over in about {}",
            programs(drained.running, "was", "were"),
            times::human(2 * args.heartbeat)
        );
    }
    output.note("the worker has ended");
    Ok(())
}

/// The progress of a drain.
#[derive(Default)]
struct DrainProgress {
    /// A first signal was received.
    has_signal: bool,
    /// The number of running programs.
    running: usize,
    /// A second signal was received.
    was_stopped: bool,
}

/// Reports the progress after the first signal or a drain request. Returns only at the second
/// signal.
async fn drain(
    (signals, told): (&mut ShutdownSignals, impl Future<Output = ()>),
    limit: Duration,
    attempts: &Attempts,
    output: &Output,
    drained: &mut DrainProgress,
) {
    tokio::select! {
        () = signals.next() => drained.has_signal = true,
        () = told => output.note("drain requested for this worker"),
    }
    let mut running = attempts.running.subscribe();
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
                format!("draining: time limit reached, {told} told to end")
            }
        });
        if over {
            // After the line: a program may end at once, and would not be counted.
            attempts.stop.cancel();
        }
        every.reset();
        tokio::select! {
            () = signals.next() => {
                if drained.has_signal {
                    drained.was_stopped = true;
                    return;
                }
                drained.has_signal = true;
            }
            () = &mut deadline, if !over => over = true,
            _ = running.changed() => {}
            _ = every.tick() => {}
        }
    }
}

fn programs(count: usize, one: &str, many: &str) -> String {
    if count == 1 { format!("1 program {one}") } else { format!("{count} programs {many}") }
}
