//! The records of tasks.

use crate::clock;
use crate::output::{TableRow, Tone, text};
use crate::times;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use longhaul::ops::TaskStatus;
use longhaul_api::task::{ProgressBody, TaskBody, TaskCountsBody, WorkerBody};
use serde::Serialize;
use std::ops::Deref;

/// A task with its whole result.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct TaskDetails {
    #[serde(flatten)]
    told: TaskBody,
    /// The result in Base64, if it is not text.
    #[serde(skip_serializing_if = "Option::is_none")]
    result_base64: Option<String>,
    /// The bytes of the result.
    #[serde(skip)]
    pub(crate) bytes: Option<Bytes>,
}

impl Deref for TaskDetails {
    type Target = TaskBody;

    fn deref(&self) -> &TaskBody {
        &self.told
    }
}

impl TaskDetails {
    /// The task, with its result if it has one.
    pub(crate) fn new(mut told: TaskBody, bytes: Option<Bytes>) -> Self {
        let mut result_base64 = None;
        match bytes.as_deref().map(std::str::from_utf8) {
            Some(Ok(text)) => told.result = Some(text.to_owned()),
            Some(Err(_)) => result_base64 = bytes.as_ref().map(|it| STANDARD.encode(it)),
            None => {}
        }
        Self { told, result_base64, bytes }
    }

    pub(crate) fn is_completed(&self) -> bool {
        self.status == "completed"
    }

    /// One line about it: its result, its progress, or its failure.
    fn says(&self) -> String {
        let progress = self.progress.as_ref().map(shown_progress);
        let bytes = || self.result_base64.as_ref().map(|_| "(bytes)".to_owned());
        let now = clock::wall_ms();
        let due = || self.due_at.filter(|it| *it > now).map(|it| times::ago(it, now));
        let reason = || match (self.reason.clone(), due().filter(|_| self.status == "retrying")) {
            (Some(reason), Some(due)) => Some(format!("again {due}: {reason}")),
            (reason, _) => reason,
        };
        let says = self.result.clone().or_else(bytes).or_else(reason).or(progress).or_else(due);
        text::short(&says.unwrap_or_default(), REASON_CHARS_MAX)
    }

    /// The fields for people.
    pub(crate) fn fields(&self) -> Vec<(&'static str, String)> {
        let now = clock::wall_ms();
        let at = |ms: Option<u64>| {
            ms.map(|ms| format!("{} ({})", times::iso(ms), times::ago(ms, now))).unwrap_or_default()
        };
        let text = |it: &Option<String>| it.clone().unwrap_or_default();
        let bytes = self.result_base64.as_ref().map(|_| "(bytes: see `longhaul task result`)");
        vec![
            ("task", self.id.clone()),
            ("status", shown_status(self)),
            ("attempts", self.attempts.to_string()),
            ("epoch", self.epoch.map(|it| it.to_string()).unwrap_or_default()),
            ("worker", shown_worker(self)),
            ("progress", self.progress.as_ref().map(shown_progress).unwrap_or_default()),
            (
                "result",
                self.result.clone().or_else(|| bytes.map(str::to_owned)).unwrap_or_default(),
            ),
            ("reason", text(&self.reason)),
            ("warning", text(&self.warning)),
            ("due", at(self.due_at.filter(|_| !self.is_over()))),
            ("created", at(self.created_at)),
            ("changed", at(self.changed_at)),
            ("waits for", self.waits_for.join("\n")),
            ("type", text(&self.task_type)),
            ("key", text(&self.key)),
            ("tags", self.tags.join(", ")),
            ("duplicate of", text(&self.duplicate_of)),
            ("superseded by", text(&self.superseded_by)),
            ("log", self.log.join("\n")),
        ]
    }
}

impl TableRow for TaskDetails {
    const HEADS: &'static [&'static str] =
        &["TASK", "STATUS", "ATTEMPTS", "CHANGED", "WORKER", "SAYS"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.id.clone(),
            self.status.to_string(),
            self.attempts.to_string(),
            self.changed_at.map(times::iso).unwrap_or_default(),
            shown_worker(self),
            self.says(),
        ]
    }

    fn tone(&self) -> Tone {
        tone(&self.status)
    }
}

/// A number of attempts, as text.
pub(crate) fn attempts_in_words(count: u32) -> String {
    if count == 1 { "1 attempt".to_owned() } else { format!("{count} attempts") }
}

/// The progress, as text.
fn shown_progress(progress: &ProgressBody) -> String {
    let ProgressBody { done, total, message } = progress;
    let share = match (*total > 0).then(|| done.saturating_mul(100).checked_div(*total)).flatten() {
        Some(percent) => format!("{done}/{total} ({percent} %)"),
        None => done.to_string(),
    };
    if message.is_empty() { share } else { format!("{share} {message}") }
}

/// The words for statuses, in the order of a task's life.
pub(crate) fn statuses() -> impl Iterator<Item = &'static str> {
    TaskStatus::ALL.into_iter().map(TaskStatus::word)
}

/// The words for the statuses of tasks that are not over.
pub(crate) fn open_statuses() -> impl Iterator<Item = &'static str> {
    TaskStatus::ALL.into_iter().filter(|status| !status.is_terminal()).map(TaskStatus::word)
}

fn tone(status: &str) -> Tone {
    match status {
        "completed" => Tone::Good,
        "failed" | "expired" => Tone::Bad,
        "running" | "claimed" => Tone::Busy,
        "cancelled" | "ended" => Tone::Faint,
        _ => Tone::Plain,
    }
}

/// The status, with a cancel request if the task is not over.
fn shown_status(task: &TaskBody) -> String {
    if task.cancel_requested && !task.is_over() {
        format!("{}, cancel requested", task.status)
    } else {
        task.status.to_string()
    }
}

fn shown_worker(task: &TaskBody) -> String {
    task.shown_worker().map(WorkerBody::title).unwrap_or_default()
}

/// The most characters of a reason in a list.
const REASON_CHARS_MAX: usize = 120;

impl TableRow for TaskBody {
    const HEADS: &'static [&'static str] =
        &["TASK", "STATUS", "ATTEMPTS", "CHANGED", "WORKER", "PROGRESS", "TYPE", "KEY", "REASON"];
    const DROPS: &'static [usize] = &[2, 6, 4, 7, 5];

    fn cells(&self) -> Vec<String> {
        vec![
            self.id.clone(),
            shown_status(self),
            self.attempts.to_string(),
            self.changed_at.map(|ms| times::ago(ms, self.now)).unwrap_or_default(),
            shown_worker(self),
            self.progress.as_ref().map(shown_progress).unwrap_or_default(),
            self.task_type.clone().unwrap_or_default(),
            self.key.clone().unwrap_or_default(),
            match &self.why {
                Some(why) => why.clone(),
                None => text::short(self.reason.as_deref().unwrap_or_default(), REASON_CHARS_MAX),
            },
        ]
    }

    fn tone(&self) -> Tone {
        tone(&self.status)
    }
}

/// Keeps only the counts of these statuses.
pub(crate) fn retain_counts(counts: &mut TaskCountsBody, statuses: &[&'static str]) {
    counts.by_status.retain(|word, _| statuses.contains(&&**word));
    let of = |words: &[&str]| words.iter().map(|word| counts.of(word)).sum();
    (counts.total, counts.demand) = (of(statuses), of(&["ready", "claimed", "running"]));
    if !statuses.contains(&"ready") {
        counts.oldest_ready = None;
    }
}

/// The counts for people.
pub(crate) fn count_fields(counts: &TaskCountsBody) -> Vec<(&'static str, String)> {
    let mut fields =
        vec![("total", counts.total.to_string()), ("demand", counts.demand.to_string())];
    let known = statuses().filter(|word| counts.of(word) > 0);
    fields.extend(known.map(|word| (word, counts.of(word).to_string())));
    if let Some(oldest) = &counts.oldest_ready {
        let waits = times::ago(oldest.since, clock::wall_ms());
        fields.push(("oldest ready", format!("{}, since {waits}", oldest.id)));
    }
    fields
}
