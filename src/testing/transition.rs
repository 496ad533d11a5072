//! The steps of a task, as texts that a test can compare. Pure.

use crate::transport::Message;
use longhaul_core::task::{TaskMetadata, TaskOutcome, TaskState};
use std::fmt;
use std::time::Duration;

/// A step of a task: an entry of the metadata topic.
///
/// Its text is the state and the attempt number, plus the outcome for a task that failed for good:
///
/// | text | meaning |
/// |---|---|
/// | `PROCESSING 1` | attempt 1 runs |
/// | `FAILED 1` | attempt 1 failed, another one follows |
/// | `COMPLETED 2` | attempt 2 returned the result |
/// | `FAILED 3 FINAL` | the task failed for good |
/// | `FAILED 1 CANCELLED`, `FAILED 0 EXPIRED` | the task was cancelled, or not started in time |
/// | `REMOVED` | its retention is over |
///
/// The debug form adds the time of the step, and the reason of a failure.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Transition {
    /// When the entry was published, from the creation of the engine on.
    pub at: Duration,
    /// The entry; `None` if it was removed.
    pub entry: Option<TaskMetadata>,
}

impl Transition {
    /// Whether this only repeats the other step: a keep-alive, or progress.
    fn renews(&self, before: &Self) -> bool {
        let step = |change: &Self| {
            let entry = change.entry.as_ref()?;
            Some((entry.state, entry.attempts, entry.outcome, entry.failure_reason.clone()))
        };
        step(self) == step(before)
    }
}

impl fmt::Display for Transition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(entry) = &self.entry else { return f.write_str("REMOVED") };
        let state = match entry.state {
            TaskState::New => "NEW",
            TaskState::Processing => "PROCESSING",
            TaskState::Failed => "FAILED",
            TaskState::Completed => "COMPLETED",
            TaskState::Unknown => "UNKNOWN",
        };
        write!(f, "{state} {}", entry.attempts)?;
        match entry.outcome {
            None => Ok(()),
            Some(TaskOutcome::Final) => f.write_str(" FINAL"),
            Some(TaskOutcome::Cancelled) => f.write_str(" CANCELLED"),
            Some(TaskOutcome::Expired) => f.write_str(" EXPIRED"),
            Some(other) => write!(f, " {other:?}"),
        }
    }
}

impl fmt::Debug for Transition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\" at {:?}", self.at)?;
        let reason = self.entry.as_ref().and_then(|entry| entry.failure_reason.as_deref());
        reason.map_or(Ok(()), |reason| write!(f, " ({reason})"))
    }
}

impl PartialEq<&str> for Transition {
    fn eq(&self, text: &&str) -> bool {
        self.to_string() == **text
    }
}

/// The steps of the task with this key, from the log of its metadata partition.
pub(super) fn of_task(log: &[Message], key: &str, start_ms: u64) -> Vec<Transition> {
    let mut steps: Vec<Transition> = Vec::new();
    for message in log.iter().filter(|message| message.key.as_deref() == Some(key)) {
        let entry = serde_json::from_slice(&message.payload).ok();
        if entry.is_none() && !message.null {
            continue;
        }
        let at = Duration::from_millis(message.publish_time_ms.saturating_sub(start_ms));
        let step = Transition { at, entry };
        if steps.last().is_none_or(|last| !step.renews(last)) {
            steps.push(step);
        }
    }
    steps
}

/// The expected and found steps, one per line. Lines that differ start with `>`.
pub(super) fn side_by_side(expected: &[&str], found: &[Transition]) -> String {
    let width = expected.iter().map(|text| text.len()).max().unwrap_or_default().max(8);
    let mut lines = vec![format!("  {:width$}  found", "expected")];
    for index in 0..expected.len().max(found.len()) {
        let (wanted, step) = (expected.get(index), found.get(index));
        let same = wanted.zip(step).is_some_and(|(wanted, step)| step == wanted);
        let mark = if same { ' ' } else { '>' };
        let step = step.map_or_else(|| "-".to_owned(), |step| format!("{step:?}"));
        lines.push(format!("{mark} {:width$}  {step}", wanted.unwrap_or(&"-")));
    }
    lines.join("\n")
}
