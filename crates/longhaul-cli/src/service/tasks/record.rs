//! The records of tasks.

use crate::clock;
use crate::output::{TableRow, Tone, text};
use crate::times;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use longhaul::Progress;
use longhaul::ops::{EndedCounts, TaskStatus};
use serde::Serialize;
use std::collections::BTreeMap;

/// A task.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TaskDetails {
    pub(crate) task: String,
    pub(crate) status: &'static str,
    pub(crate) attempts: u32,
    pub(crate) created_ms: u64,
    pub(crate) updated_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) epoch: Option<u32>,
    pub(crate) cancel_requested: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) due_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) worker: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) progress: Option<Progress>,
    /// If it is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) result: Option<String>,
    /// In Base64, if it is not text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) result_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) warning: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) waits_for: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) tags: Vec<String>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub(crate) task_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) duplicate_of: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) superseded_by: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) log: Vec<String>,
    /// The raw bytes of the result.
    #[serde(skip)]
    pub(crate) result_bytes: Option<Bytes>,
}

impl TaskDetails {
    /// Sets the result, as text if it is text.
    pub(crate) fn set_result(&mut self, bytes: Option<Bytes>) {
        match bytes.as_deref().map(std::str::from_utf8) {
            Some(Ok(text)) => self.result = Some(text.to_owned()),
            Some(Err(_)) => self.result_base64 = bytes.as_ref().map(|it| STANDARD.encode(it)),
            None => {}
        }
        self.result_bytes = bytes;
    }

    /// Whether the task is over.
    pub(crate) fn is_over(&self) -> bool {
        is_over(self.status)
    }

    pub(crate) fn is_completed(&self) -> bool {
        self.status == "completed"
    }

    /// One line about it: its result, its progress, or its failure.
    fn says(&self) -> String {
        let progress = self.progress.as_ref().map(shown_progress);
        let bytes = || self.result_base64.as_ref().map(|_| "(bytes)".to_owned());
        let now = clock::wall_ms();
        let due = || self.due_ms.filter(|it| *it > now).map(|it| times::ago(it, now));
        let reason = || match (self.reason.clone(), due().filter(|_| self.status == "retrying")) {
            (Some(reason), Some(due)) => Some(format!("again {due}: {reason}")),
            (reason, _) => reason,
        };
        let says = self.result.clone().or_else(bytes).or_else(reason).or(progress).or_else(due);
        text::short(&says.unwrap_or_default(), REASON_CHARS_MAX)
    }

    fn shown_status(&self) -> String {
        shown_status(self.status, self.cancel_requested)
    }

    /// The fields for people.
    pub(crate) fn fields(&self) -> Vec<(&'static str, String)> {
        let now = clock::wall_ms();
        let at = |ms: u64| format!("{} ({})", times::iso(ms), times::ago(ms, now));
        let text = |it: &Option<String>| it.clone().unwrap_or_default();
        let bytes = self.result_base64.as_ref().map(|_| "(bytes: see `longhaul task result`)");
        vec![
            ("task", self.task.clone()),
            ("status", self.shown_status()),
            ("attempts", self.attempts.to_string()),
            ("epoch", self.epoch.map(|it| it.to_string()).unwrap_or_default()),
            ("worker", text(&self.worker)),
            ("progress", self.progress.as_ref().map(shown_progress).unwrap_or_default()),
            (
                "result",
                self.result.clone().or_else(|| bytes.map(str::to_owned)).unwrap_or_default(),
            ),
            ("reason", text(&self.reason)),
            ("warning", text(&self.warning)),
            ("due", self.due_ms.filter(|_| !self.is_over()).map(at).unwrap_or_default()),
            ("created", at(self.created_ms)),
            ("updated", at(self.updated_ms)),
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
        &["TASK", "STATUS", "ATTEMPTS", "UPDATED", "WORKER", "SAYS"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.task.clone(),
            self.status.to_owned(),
            self.attempts.to_string(),
            times::iso(self.updated_ms),
            self.worker.clone().unwrap_or_default(),
            self.says(),
        ]
    }

    fn tone(&self) -> Tone {
        tone(self.status)
    }
}

/// A number of attempts, as text.
pub(crate) fn attempts_in_words(count: u32) -> String {
    if count == 1 { "1 attempt".to_owned() } else { format!("{count} attempts") }
}

/// The progress, as text.
pub(crate) fn shown_progress(progress: &Progress) -> String {
    let Progress { done, total, message } = progress;
    let share = match (*total > 0).then(|| done.saturating_mul(100).checked_div(*total)).flatten() {
        Some(percent) => format!("{done}/{total} ({percent} %)"),
        None => done.to_string(),
    };
    if message.is_empty() { share } else { format!("{share} {message}") }
}

/// The words for statuses, in the order of a task's life.
pub(crate) fn statuses() -> impl Iterator<Item = (TaskStatus, &'static str)> {
    TaskStatus::ALL.into_iter().map(|status| (status, status.word()))
}

/// The status word, if the text is one.
pub(crate) fn status_word_of(text: &str) -> &'static str {
    statuses().find(|it| it.1 == text).map_or("unknown", |it| it.1)
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

/// A task in a list.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListedTask {
    pub(crate) task: String,
    pub(crate) status: &'static str,
    pub(crate) attempts: u32,
    pub(crate) epoch: u32,
    pub(crate) created_ms: u64,
    pub(crate) changed_ms: u64,
    pub(crate) due_ms: Option<u64>,
    pub(crate) worker: Option<String>,
    pub(crate) cancel_requested: bool,
    pub(crate) progress: Option<Progress>,
    /// The beginning of its last failure, or of why it ended.
    pub(crate) reason: Option<String>,
    /// Why it does not run, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
    pub(crate) waits_for: Vec<String>,
    pub(crate) tags: Vec<String>,
    #[serde(rename = "type")]
    pub(crate) task_type: Option<String>,
    pub(crate) key: Option<String>,
}

pub(crate) fn is_over(status: &str) -> bool {
    matches!(status, "completed" | "failed" | "cancelled" | "expired" | "ended")
}

/// The status, with a cancel request if the task is not over.
fn shown_status(status: &str, cancel_requested: bool) -> String {
    if cancel_requested && !is_over(status) {
        format!("{status}, cancel requested")
    } else {
        status.to_owned()
    }
}

/// The most characters of a reason in a list.
const REASON_CHARS_MAX: usize = 120;

impl TableRow for ListedTask {
    const HEADS: &'static [&'static str] =
        &["TASK", "STATUS", "ATTEMPTS", "CHANGED", "WORKER", "PROGRESS", "TYPE", "KEY", "REASON"];

    fn cells(&self) -> Vec<String> {
        let status = shown_status(self.status, self.cancel_requested);
        vec![
            self.task.clone(),
            status,
            self.attempts.to_string(),
            times::iso(self.changed_ms),
            self.worker.clone().unwrap_or_default(),
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
        tone(self.status)
    }
}

/// The numbers of tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct QueueTaskCounts {
    pub(crate) queue: String,
    pub(crate) total: u64,
    /// Tasks that need a worker now.
    pub(crate) demand: u64,
    pub(crate) by_status: BTreeMap<&'static str, u64>,
    pub(crate) oldest_ready: Option<String>,
    pub(crate) oldest_ready_since_ms: Option<u64>,
    /// Including tasks that are not shown any more.
    pub(crate) ever_ended: EndedCounts,
}

impl QueueTaskCounts {
    /// Adds the counts of other tasks of the same queue.
    pub(crate) fn add(&mut self, other: Self) {
        self.total += other.total;
        self.demand += other.demand;
        let since = |counts: &Self| counts.oldest_ready_since_ms.unwrap_or(u64::MAX);
        if since(&other) < since(self) {
            self.oldest_ready = other.oldest_ready;
            self.oldest_ready_since_ms = other.oldest_ready_since_ms;
        }
        self.ever_ended = self.ever_ended.plus(other.ever_ended);
        for (word, count) in other.by_status {
            *self.by_status.entry(word).or_default() += count;
        }
    }

    /// Keeps only these statuses.
    pub(crate) fn retain(&mut self, statuses: &[&'static str]) {
        self.by_status.retain(|word, _| statuses.contains(word));
        let of = |words: &[&str]| {
            let counted = self.by_status.iter().filter(|(word, _)| words.contains(word));
            counted.map(|(_, count)| count).sum()
        };
        (self.total, self.demand) = (of(statuses), of(&["ready", "claimed", "running"]));
        if !statuses.contains(&"ready") {
            (self.oldest_ready, self.oldest_ready_since_ms) = (None, None);
        }
    }

    /// The fields for people.
    pub(crate) fn fields(&self) -> Vec<(&'static str, String)> {
        let of = |word: &str| self.by_status.get(word).copied().unwrap_or_default();
        let mut fields =
            vec![("total", self.total.to_string()), ("demand", self.demand.to_string())];
        let known = statuses().filter(|(_, word)| of(word) > 0);
        fields.extend(known.map(|(_, word)| (word, of(word).to_string())));
        if let (Some(task), Some(since)) = (&self.oldest_ready, self.oldest_ready_since_ms) {
            let waits = times::ago(since, clock::wall_ms());
            fields.push(("oldest ready", format!("{task}, since {waits}")));
        }
        fields
    }
}
