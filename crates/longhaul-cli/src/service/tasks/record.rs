//! The records of tasks.

use super::named;
use crate::clock;
use crate::output::{TableRow, Tone, text};
use crate::times;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use longhaul::ops::{EndedCounts, SubmittedTask, TaskCounts, TaskInfo, TaskStatus};
use longhaul::{Progress, TaskMetadata, TaskRef};
use serde::Serialize;
use std::collections::BTreeMap;

/// A task, from its metadata entry, or from its submission if it is unclaimed.
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
    /// From its entry. A result encoded by a codec stays encoded.
    pub(crate) fn of_entry(task: &TaskRef, entry: TaskMetadata, epoch: Option<u32>) -> Self {
        let mut it = Self {
            task: named(task),
            status: TaskStatus::of_entry(&entry).map_or("unknown", TaskStatus::word),
            attempts: entry.attempts,
            created_ms: entry.created,
            updated_ms: entry.last_updated,
            epoch,
            cancel_requested: false,
            due_ms: entry
                .next_attempt_at
                .or_else(|| entry.scheduled_at.filter(|_| entry.attempts == 0)),
            worker: entry.worker.as_ref().map(|it| it.name.clone()),
            reason: entry.reason().map(str::to_owned),
            progress: entry.progress,
            warning: entry.warning,
            waits_for: entry.waits_for,
            tags: entry.tags,
            task_type: entry.task_type,
            key: entry.task_key,
            duplicate_of: entry.duplicate_of,
            superseded_by: entry.superseded_by,
            log: entry.log,
            ..Self::default()
        };
        it.set_result(entry.result);
        it
    }

    /// Sets the result, as text if it is text.
    pub(crate) fn set_result(&mut self, bytes: Option<Bytes>) {
        match bytes.as_deref().map(std::str::from_utf8) {
            Some(Ok(text)) => self.result = Some(text.to_owned()),
            Some(Err(_)) => self.result_base64 = bytes.as_ref().map(|it| STANDARD.encode(it)),
            None => {}
        }
        self.result_bytes = bytes;
    }

    /// From its submission: the task is unclaimed.
    pub(crate) fn of_submitted(task: &TaskRef, submitted: &SubmittedTask) -> Self {
        let property = |name: &str| submitted.properties.get(name).cloned();
        let at = property("SCHEDULED_AT").and_then(|it| times::instant_ms(&it).ok());
        let delay = property("DELAY").and_then(|it| times::duration(&it).ok());
        let delay = delay.and_then(|it| u64::try_from(it.as_millis()).ok());
        let due_ms = at.or_else(|| Some(submitted.published_ms.saturating_add(delay?)));
        let waits = due_ms.is_some_and(|it| it > clock::wall_ms());
        let tags = property("TAGS").unwrap_or_default();
        let tags = tags.split(',').map(str::trim).filter(|it| !it.is_empty());
        Self {
            task: named(task),
            status: if waits { "scheduled" } else { "ready" },
            created_ms: submitted.published_ms,
            updated_ms: submitted.published_ms,
            due_ms,
            tags: tags.map(str::to_owned).collect(),
            task_type: property("TASK_TYPE"),
            key: property("TASK_KEY"),
            ..Self::default()
        }
    }

    /// A record with only the name.
    pub(crate) fn unknown(task: &TaskRef) -> Self {
        Self { task: named(task), ..Self::default() }
    }

    /// Corrects the record by the state on the ledger.
    pub(crate) fn correct(&mut self, info: &TaskInfo) {
        self.epoch = (info.epoch > 0).then_some(info.epoch);
        self.attempts = self.attempts.max(info.attempts);
        self.cancel_requested = info.cancel_requested;
        // A task that is ready again keeps its status, which shows that the last attempt failed.
        if info.status.is_terminal() || self.status.is_empty() {
            self.status = info.status.word();
        }
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

impl ListedTask {
    pub(crate) fn of(queue: &str, info: TaskInfo) -> Self {
        let task =
            TaskRef::new(queue, info.id).map_or_else(|_| info.id.to_string(), |it| named(&it));
        Self {
            task,
            status: info.status.word(),
            attempts: info.attempts,
            epoch: info.epoch,
            created_ms: info.created_ms,
            changed_ms: info.changed_ms,
            due_ms: info.due_ms,
            worker: info.worker.as_ref().map(|it| it.name.clone()),
            cancel_requested: info.cancel_requested,
            progress: info.progress,
            reason: info.reason.as_deref().map(str::to_owned),
            why: None,
            waits_for: info.waits_for,
            tags: info.tags.iter().map(ToString::to_string).collect(),
            task_type: info.task_type.as_deref().map(str::to_owned),
            key: info.key,
        }
    }
}

fn is_over(status: &str) -> bool {
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
    pub(crate) fn of(queue: &str, counts: &TaskCounts) -> Self {
        let name = |id| TaskRef::new(queue, id).map_or_else(|_| id.to_string(), |it| named(&it));
        Self {
            queue: queue.to_owned(),
            total: counts.total(),
            demand: counts.demand(),
            by_status: statuses().map(|(status, word)| (word, counts.of(status))).collect(),
            oldest_ready: counts.oldest_ready.map(|(id, _)| name(id)),
            oldest_ready_since_ms: counts.oldest_ready.map(|(_, since)| since),
            ever_ended: counts.ever_ended,
        }
    }

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
