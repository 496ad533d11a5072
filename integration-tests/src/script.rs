//! A processor for tests whose tasks contain a script: the language of `examples/scripted.rs` and
//! additional commands for tests.
//!
//! A payload is `NONCE|run|run|…`. The n-th run of a task executes the n-th of these; the last one
//! repeats. The processor counts the runs over all workers that share it. A run is a list of
//! commands, separated by commas:
//!
//! | command | meaning |
//! |---|---|
//! | `ok TEXT` | completes; the result is TEXT |
//! | `fail TEXT`, `fatal TEXT` | fails, with or without another attempt |
//! | `after MS TEXT` | fails; the next attempt follows after MS |
//! | `panic TEXT` | panics |
//! | `sleep MS` | sleeps, unless the attempt is cancelled: then it fails |
//! | `block MS` | blocks its thread |
//! | `gate` | waits until the test opens the gate |
//! | `cancelled` | waits until it is cancelled |
//! | `big BYTES`, `outcry BYTES` | completes with a result, or fails with a message, of that size |
//! | `progress DONE TOTAL TEXT` | reports progress |
//! | `store TEXT`, `restore` | stores a checkpoint; completes with the last one |

use std::panic::panic_any;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use longhaul::{TaskContext, TaskError, TaskId, TaskProcessor, Text};
use tokio::sync::watch;

/// Runs tasks whose payload is a script. Clones share the gate and the record.
#[derive(Clone, Debug)]
pub struct Scripted {
    gate: watch::Sender<bool>,
    runs: Arc<Mutex<Vec<Run>>>,
    /// The name of this worker.
    worker: &'static str,
}

/// One run of a task's body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The task.
    pub task: TaskId,
    /// The epoch of its claim.
    pub epoch: u32,
    /// The number of its attempt.
    pub attempt: u32,
    /// The worker that ran it.
    pub worker: &'static str,
    /// Whether another run of the same task was still active when this one began.
    pub overlaps: bool,
    /// Whether the run has ended or was dropped.
    pub ended: bool,
}

impl Default for Scripted {
    fn default() -> Self {
        Self { gate: watch::Sender::new(false), runs: Arc::default(), worker: "first" }
    }
}

impl Scripted {
    /// A processor with the same gate and record, for a worker of another name.
    #[must_use]
    pub fn named(&self, worker: &'static str) -> Self {
        Self { worker, ..self.clone() }
    }

    /// Opens the gate for all runs that wait at it now or later.
    pub fn open_gate(&self) {
        self.gate.send_replace(true);
    }

    /// The runs so far, in the order in which they began.
    #[must_use]
    pub fn runs(&self) -> Vec<Run> {
        self.record().clone()
    }

    fn record(&self) -> std::sync::MutexGuard<'_, Vec<Run>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the start of a run, and returns how many runs of its task came before it.
    fn begin(&self, context: &TaskContext) -> (usize, Recorded) {
        let (task, worker) = (context.task_id(), self.worker);
        let (epoch, attempt) = (context.fencing_token().epoch, context.attempt());
        let mut runs = self.record();
        let overlaps = runs.iter().any(|run| run.task == task && !run.ended);
        let before = runs.iter().filter(|run| run.task == task).count();
        let index = runs.len();
        runs.push(Run { task, epoch, attempt, worker, overlaps, ended: false });
        (before, Recorded { index, runs: Arc::clone(&self.runs) })
    }
}

/// Records the end of a run, whether it returns or is dropped.
struct Recorded {
    index: usize,
    runs: Arc<Mutex<Vec<Run>>>,
}

impl Drop for Recorded {
    fn drop(&mut self) {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(run) = runs.get_mut(self.index) {
            run.ended = true;
        }
    }
}

impl TaskProcessor for Scripted {
    type Task = Text;
    type Output = Text;

    async fn process(&self, task: Text, context: TaskContext) -> Result<Text, TaskError> {
        let (before, _recorded) = self.begin(&context);
        let runs: Vec<&str> = task.0.split('|').skip(1).collect();
        let run = runs.get(before).or_else(|| runs.last()).copied().unwrap_or("ok ");
        for command in run.split(',') {
            let command = command.trim_start();
            let (name, rest) = command.split_once(' ').unwrap_or((command, ""));
            if let Some(result) = self.obey(name, rest, &context).await? {
                return Ok(result);
            }
        }
        Ok(Text::default())
    }
}

impl Scripted {
    async fn obey(
        &self,
        name: &str,
        rest: &str,
        context: &TaskContext,
    ) -> Result<Option<Text>, TaskError> {
        match name {
            "ok" => return Ok(Some(Text(rest.to_owned()))),
            "big" => return Ok(Some(Text("x".repeat(rest.parse()?)))),
            "outcry" => return Err(TaskError::retry("x".repeat(rest.parse()?))),
            "restore" => return Ok(Some(last_checkpoint(context))),
            "fail" => return Err(TaskError::retry(rest)),
            "fatal" => return Err(TaskError::fatal(rest)),
            "after" => {
                let (delay, message) = rest.split_once(' ').unwrap_or((rest, ""));
                return Err(TaskError::retry_after(millis(delay)?, message));
            }
            "panic" => panic_any(rest.to_owned()),
            "sleep" => tokio::select! {
                () = tokio::time::sleep(millis(rest)?) => {}
                () = context.cancelled() => return Err(TaskError::retry("interrupted")),
            },
            "block" => block(millis(rest)?),
            "gate" => drop(self.gate.subscribe().wait_for(|open| *open).await),
            "cancelled" => context.cancelled().await,
            "progress" => report(rest, context)?,
            "store" => {
                context.checkpoint(rest.to_owned()).await?;
                context.checkpoint_stored().await?;
            }
            _ => return Err(TaskError::fatal(format!("no such command: {name}"))),
        }
        Ok(None)
    }
}

fn last_checkpoint(context: &TaskContext) -> Text {
    let bytes = context.last_checkpoint().map(|bytes| bytes.to_vec()).unwrap_or_default();
    Text(String::from_utf8_lossy(&bytes).into_owned())
}

fn report(rest: &str, context: &TaskContext) -> Result<(), TaskError> {
    let mut parts = rest.splitn(3, ' ');
    let mut next = || parts.next().unwrap_or_default();
    let (done, total) = (next().parse()?, next().parse()?);
    context.progress(done, total, next());
    Ok(())
}

fn millis(text: &str) -> Result<Duration, TaskError> {
    Ok(Duration::from_millis(text.parse()?))
}

/// Blocks the thread, which a processor should not do.
#[expect(clippy::disallowed_methods, reason = "a body that blocks its thread is the point")]
fn block(time: Duration) {
    std::thread::sleep(time);
}
