//! Tasks, through a gateway.

use super::events::GatewayEventStream;
use super::{GatewayClient, GatewayRoute, level_and_name, level_of, shown, task_of};
use crate::exit::{Code, CommandFailure};
use crate::service::short_topic;
use crate::service::tasks::{
    Changes, ListedTask, QueueTaskCounts, SubmissionTerms, SubmittedPayload, TaskDetails,
    TaskHistoryEntry, TaskHistoryRecord, TaskListPage, TaskListRequest, TaskOperation, TaskReason,
    TaskService, TaskSubmission, WatchStart, named, status_word_of, with_silences,
};
use crate::times;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::{StreamExt, stream};
use longhaul::ops::EndedCounts;
use longhaul::{Progress, TaskRef};
use longhaul_api::Priority;
use reqwest::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

/// The time of one long poll.
const POLL: Duration = Duration::from_secs(25);

/// Tasks per page.
const PAGE: usize = 1_000;

/// Tasks per page whose reasons are asked for.
const PAGE_WHY: usize = 100;

/// Why there is no result.
const HIDDEN: &str = "the gateway shows results to tokens with the scope `admin` alone";

/// A task in a gateway's answer.
#[derive(Debug, Deserialize)]
pub(super) struct TaskResponse {
    id: String,
    queue: String,
    status: String,
    attempts: u32,
    created_at: Option<u64>,
    changed_at: Option<u64>,
    due_at: Option<u64>,
    epoch: Option<u32>,
    worker: Option<WorkerNameResponse>,
    #[serde(default)]
    cancel_requested: bool,
    progress: Option<Progress>,
    reason: Option<String>,
    why: Option<String>,
    warning: Option<String>,
    #[serde(default)]
    log: Vec<String>,
    result_bytes: Option<usize>,
    #[serde(default)]
    hidden: bool,
    #[serde(default)]
    waits_for: Vec<String>,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(rename = "type")]
    task_type: Option<String>,
    key: Option<String>,
    duplicate_of: Option<String>,
    superseded_by: Option<String>,
}

/// The name of a worker.
#[derive(Debug, Deserialize)]
struct WorkerNameResponse {
    #[serde(default)]
    name: String,
}

#[derive(Debug, Deserialize)]
struct Identified {
    id: String,
}

#[derive(Debug, Deserialize)]
struct ToldPage {
    tasks: Vec<TaskResponse>,
    next: Option<String>,
}

#[derive(Debug, Deserialize)]
struct ToldCounts {
    by_status: BTreeMap<String, u64>,
    total: u64,
    demand: u64,
    oldest_ready: Option<Oldest>,
    /// Gateways of earlier versions do not send it.
    #[serde(default)]
    ever_ended: EndedCounts,
}

#[derive(Debug, Deserialize)]
struct Oldest {
    id: String,
    since: u64,
}

#[derive(Debug, Deserialize)]
struct ToldHistory {
    is_whole: bool,
    entries: Vec<ToldEntry>,
    /// Gateways of earlier versions send none.
    #[serde(default)]
    silences: Vec<ToldSilence>,
}

#[derive(Debug, Deserialize)]
struct ToldSilence {
    epoch: u32,
    since: u64,
    until: Option<u64>,
    every: String,
    missed: u64,
    worker: Option<WorkerNameResponse>,
}

#[derive(Debug, Deserialize)]
struct ToldEntry {
    at: u64,
    event: String,
    epoch: Option<u32>,
    operator: Option<String>,
    worker: Option<WorkerNameResponse>,
    ignored: Option<String>,
    /// Further fields of the event.
    #[serde(flatten)]
    rest: Map<String, Value>,
}

impl TaskResponse {
    pub(super) fn task(self) -> TaskDetails {
        TaskDetails {
            task: shown(&self.queue, &self.id),
            status: status_word_of(&self.status),
            attempts: self.attempts,
            created_ms: self.created_at.unwrap_or_default(),
            updated_ms: self.changed_at.or(self.created_at).unwrap_or_default(),
            epoch: self.epoch,
            cancel_requested: self.cancel_requested,
            due_ms: self.due_at,
            worker: self.worker.map(|it| it.name),
            progress: self.progress,
            reason: self.reason,
            warning: self.warning,
            waits_for: self.waits_for,
            tags: self.tags,
            task_type: self.task_type,
            key: self.key,
            duplicate_of: self.duplicate_of,
            superseded_by: self.superseded_by,
            log: self.log,
            ..TaskDetails::default()
        }
    }

    fn listed(self) -> ListedTask {
        ListedTask {
            task: shown(&self.queue, &self.id),
            status: status_word_of(&self.status),
            attempts: self.attempts,
            epoch: self.epoch.unwrap_or_default(),
            created_ms: self.created_at.unwrap_or_default(),
            changed_ms: self.changed_at.or(self.created_at).unwrap_or_default(),
            due_ms: self.due_at,
            worker: self.worker.map(|it| it.name),
            cancel_requested: self.cancel_requested,
            progress: self.progress,
            reason: self.reason,
            why: self.why,
            waits_for: self.waits_for,
            tags: self.tags,
            task_type: self.task_type,
            key: self.key,
        }
    }
}

impl ToldEntry {
    fn entry(self) -> TaskHistoryEntry {
        let skipped = |value: &Value| value.as_array().is_some_and(Vec::is_empty);
        let rest = self.rest.into_iter().filter(|(_, value)| !skipped(value));
        let said = |(name, value): (String, Value)| {
            let words = name.trim_end_matches("_at").replace('_', " ");
            match (value.as_str(), value.as_u64()) {
                (Some(text), _) if name == "reason" => text.to_owned(),
                (Some(text), _) => format!("{words} {text}"),
                (None, Some(ms)) if name.ends_with("_at") => format!("{words} {}", times::iso(ms)),
                (None, _) => format!("{words} {value}"),
            }
        };
        TaskHistoryEntry {
            published_ms: self.at,
            epoch: self.epoch,
            event: self.event.replace('_', " ").into(),
            detail: rest.map(said).collect::<Vec<_>>().join(", "),
            by: self.operator.or_else(|| self.worker.map(|it| it.name)),
            ignored: self.ignored.map(|why| why.replace('_', " ").into()),
        }
    }
}

impl ToldSilence {
    fn entry(self) -> anyhow::Result<TaskHistoryEntry> {
        let every = times::duration(&self.every).map_err(anyhow::Error::msg)?;
        let by = self.worker.map(|it| it.name);
        Ok(TaskHistoryEntry::silent(self.epoch, (self.since, self.until), (self.missed, every), by))
    }
}

impl TaskService for GatewayClient {
    async fn submit(&self, task: TaskSubmission) -> anyhow::Result<TaskRef> {
        let of = level_of(&task.queue)?;
        let to = GatewayRoute::of_queue(of.queue(), &["tasks"]);
        let submitted: Identified = self.post(&to, &body_of_submission(task, of.level())?).await?;
        task_of(of.queue(), &submitted.id)
    }

    async fn task(&self, task: &TaskRef) -> anyhow::Result<Option<TaskDetails>> {
        let from = GatewayRoute::of_task(task, &[])?;
        let told: Option<TaskResponse> = found(self.get(&from, &[]).await)?;
        match told {
            Some(told) => Ok(Some(self.with_result(task, told).await?)),
            None => Ok(None),
        }
    }

    async fn ended(&self, task: &TaskRef) -> anyhow::Result<TaskDetails> {
        loop {
            match self.poll_end(task).await {
                Ok(over) => {
                    self.way.back();
                    if let Some(over) = over {
                        return Ok(over);
                    }
                }
                Err(failure) => self.way.pause(failure).await?,
            }
        }
    }

    async fn list(&self, queue: &str, query: TaskListRequest) -> anyhow::Result<TaskListPage> {
        if query.at_ms.is_some() {
            return Err(not_there("tasks as they were at a past instant").into());
        }
        let from = GatewayRoute::below(&level_of(queue)?, &["tasks"]);
        let words = |words: &[String]| words.join(",");
        let statuses: Vec<_> = query.filter.statuses.iter().map(|it| (*it).to_owned()).collect();
        let mut asked = vec![("status", words(&statuses)), ("tag", words(&query.filter.tags))];
        asked.push(("type", query.filter.task_type.clone().unwrap_or_default()));
        asked.push(("key", query.filter.key.clone().unwrap_or_default()));
        if let Some(range) = &query.filter.created {
            asked.push(("created_from", range.start().to_string()));
            asked.push(("created_to", range.end().to_string()));
        }
        if query.filter.changed.is_some() {
            return Err(not_there("a filter by the time of the last change").into());
        }
        if query.why {
            asked.push(("why", true.to_string()));
        }
        let most = if query.why { PAGE_WHY } else { PAGE };
        asked.retain(|(_, text)| !text.is_empty());
        let (mut tasks, mut next) = (Vec::new(), query.after);
        loop {
            let mut page = asked.clone();
            page.extend(next.map(|after| ("after", after)));
            page.push(("limit", (query.limit - tasks.len()).min(most).to_string()));
            let told: ToldPage = self.get(&from, &page).await?;
            tasks.extend(told.tasks.into_iter().map(TaskResponse::listed));
            next = told.next;
            if next.is_none() || tasks.len() >= query.limit {
                return Ok(TaskListPage { tasks, next });
            }
        }
    }

    async fn counts(&self, queue: &str, at_ms: Option<u64>) -> anyhow::Result<QueueTaskCounts> {
        if at_ms.is_some() {
            return Err(not_there("tasks as they were at a past instant").into());
        }
        let of = level_of(queue)?;
        let told: ToldCounts = self.get(&GatewayRoute::below(&of, &["counts"]), &[]).await?;
        let by_status = told.by_status.iter().map(|(word, count)| (status_word_of(word), *count));
        Ok(QueueTaskCounts {
            total: told.total,
            demand: told.demand,
            by_status: by_status.collect(),
            oldest_ready: told.oldest_ready.as_ref().map(|it| shown(of.queue(), &it.id)),
            oldest_ready_since_ms: told.oldest_ready.map(|it| it.since),
            ever_ended: told.ever_ended,
            queue: of.to_string(),
        })
    }

    async fn watch(&self, queue: &str, from: WatchStart) -> anyhow::Result<Changes> {
        let from = if from == WatchStart::Start { "earliest" } else { "latest" };
        let route = GatewayRoute::below(&level_of(queue)?, &["events"]);
        let events = GatewayEventStream::open(self.clone(), route, from).await?;
        let next = async |events: Option<GatewayEventStream>| {
            let mut events = events?;
            let change = events.next().await;
            // Nothing follows an error.
            let events = change.is_ok().then_some(events);
            Some((change, events))
        };
        Ok(stream::unfold(Some(events), next).boxed())
    }

    async fn history(&self, task: &TaskRef) -> anyhow::Result<TaskHistoryRecord> {
        let told: ToldHistory = self.get(&GatewayRoute::of_task(task, &["history"])?, &[]).await?;
        let entries = told.entries.into_iter().map(ToldEntry::entry).collect();
        let silences = told.silences.into_iter().map(ToldSilence::entry);
        let silences: Vec<_> = silences.collect::<anyhow::Result<_>>()?;
        let entries = with_silences(entries, silences.into_iter());
        Ok(TaskHistoryRecord { task: named(task), is_whole: told.is_whole, entries })
    }

    async fn why(&self, task: &TaskRef) -> anyhow::Result<Option<TaskReason>> {
        let request = self.request(Method::GET, &GatewayRoute::of_task(task, &["why"])?)?;
        let Some(response) = found(self.send(request).await)? else { return Ok(None) };
        let told: TaskReason = serde_json::from_slice(&self.body(response).await?)?;
        Ok(Some(TaskReason { task: named(task), ..told }))
    }

    async fn payload(&self, task: &TaskRef) -> anyhow::Result<Option<SubmittedPayload>> {
        let request = self.request(Method::GET, &GatewayRoute::of_task(task, &["payload"])?)?;
        let Some(response) = found(self.send(request).await)? else { return Ok(None) };
        let bytes = self.body(response).await?;
        Ok(Some(SubmittedPayload { bytes, properties: None }))
    }

    async fn act(&self, task: &TaskRef, act: TaskOperation, reason: &str) -> anyhow::Result<()> {
        let to = GatewayRoute::of_task(task, &[])?;
        let (verb, epoch) = match act {
            TaskOperation::Cancel => ("cancel", None),
            TaskOperation::Kill => ("kill", None),
            TaskOperation::ForceFail(epoch) => ("force-fail", epoch),
            TaskOperation::ForceRelease(epoch) => ("force-release", epoch),
            TaskOperation::Delete => {
                let query = [("reason", reason.to_owned())];
                return self.send(self.asking(Method::DELETE, &to, &query)?).await.map(drop);
            }
        };
        let mut body = json!({ "reason": reason });
        if let (Some(epoch), Some(fields)) = (epoch, body.as_object_mut()) {
            fields.insert("epoch".to_owned(), epoch.into());
        }
        self.tell(&to.verb(verb), &body).await
    }
}

impl GatewayClient {
    /// Waits for the end of a task, for at most one request; `None` if the task is not over then.
    async fn poll_end(&self, task: &TaskRef) -> anyhow::Result<Option<TaskDetails>> {
        let query = [("timeout", format!("{}s", POLL.as_secs()))];
        let from = GatewayRoute::of_task(task, &["wait"])?;
        let request = self.asking(Method::GET, &from, &query)?.timeout(2 * POLL);
        let response = self.send(request).await?;
        if response.status() == StatusCode::NO_CONTENT {
            return Ok(None);
        }
        let told: TaskResponse = serde_json::from_slice(&self.body(response).await?)?;
        let task = self.with_result(task, told).await?;
        Ok(Some(task).filter(TaskDetails::is_over))
    }

    /// The task with its result.
    async fn with_result(&self, task: &TaskRef, told: TaskResponse) -> anyhow::Result<TaskDetails> {
        let (has_result, hidden) = (told.result_bytes.is_some(), told.hidden);
        let mut it = told.task();
        if hidden && it.is_completed() {
            it.warning.get_or_insert_with(|| HIDDEN.to_owned());
        } else if has_result && it.is_completed() {
            let request = self.request(Method::GET, &GatewayRoute::of_task(task, &["result"])?)?;
            let response = self.send(request).await?;
            it.set_result(Some(self.body(response).await?));
        }
        Ok(it)
    }
}

/// The answer; `None` if it is "not found".
fn found<T>(answer: anyhow::Result<T>) -> anyhow::Result<Option<T>> {
    match answer {
        Ok(it) => Ok(Some(it)),
        Err(error) if crate::exit::code_of(&error) == Code::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The error for data that a gateway does not provide.
fn not_there(what: &str) -> CommandFailure {
    CommandFailure::usage(format!("a gateway does not tell {what}"))
        .help("ask the broker: --service-url in place of --gateway")
}

fn iso(at: SystemTime) -> Value {
    times::iso_of(at).into()
}

fn length(time: Duration) -> Value {
    times::iso_duration(time).into()
}

/// A task for a level of a queue as a request body. The gateway takes the level as a priority.
fn body_of_submission(mut task: TaskSubmission, level: Priority) -> anyhow::Result<Value> {
    let said = task.terms.priority;
    if level != Priority::Normal {
        if said != Priority::Normal && said != level {
            let what = format!(
                "`{}` is the level {level} of its queue, not {said}",
                short_topic(&task.queue)
            );
            return Err(CommandFailure::usage(what)
                .help("name the queue without its level, or leave --priority out")
                .into());
        }
        task.terms.priority = level;
    }
    body_of_task(task)
}

/// A task as a request body.
pub(super) fn body_of_task(task: TaskSubmission) -> anyhow::Result<Value> {
    let mut body = body_of(task.terms)?;
    match std::str::from_utf8(&task.payload) {
        Ok(text) => body.insert("payload".to_owned(), text.into()),
        Err(_) => body.insert("payload_base64".to_owned(), STANDARD.encode(&task.payload).into()),
    };
    Ok(body.into())
}

/// The options of a task as a request body.
fn body_of(terms: SubmissionTerms) -> anyhow::Result<Map<String, Value>> {
    if !terms.after_keys.is_empty() || terms.after_failed.is_some() {
        return Err(CommandFailure::usage(
            "a gateway does not take --after-key and --after-failed",
        )
        .help("submit to the broker: --service-url in place of --gateway")
        .into());
    }
    let after: anyhow::Result<Vec<_>> =
        terms.after.iter().map(|task| Ok(level_and_name(task)?.1.to_string())).collect();
    let properties: BTreeMap<_, _> = terms.properties.into_iter().collect();
    let retry = terms.retry.map(|it| {
        if it.intervals.is_empty() {
            json!({ "base": length(it.base), "max": length(it.max) })
        } else {
            json!({ "intervals": it.intervals.into_iter().map(length).collect::<Vec<_>>() })
        }
    });
    let mut body = Map::new();
    let fields: [(&str, Option<Value>); 20] = [
        ("properties", Some(json!(properties))),
        ("type", terms.task_type.map(Into::into)),
        ("key", terms.key.map(Into::into)),
        ("tags", Some(json!(terms.tags))),
        ("priority", Some(terms.priority.word().into())),
        ("delay", terms.delay.map(length)),
        ("scheduled_at", terms.scheduled_at.map(iso)),
        ("expires_at", terms.expires_at.map(iso)),
        ("max_duration", terms.max_duration.map(length)),
        ("max_total_duration", terms.max_total_duration.map(length)),
        ("no_progress_timeout", terms.no_progress_timeout.map(length)),
        ("max_attempts", terms.max_attempts.map(Into::into)),
        ("retry", retry),
        ("limit_key", terms.limit_key.map(Into::into)),
        ("order_key", terms.order_key.map(Into::into)),
        ("idempotency_key", terms.idempotency_key.map(Into::into)),
        ("dedupe_key", terms.dedupe_key.map(Into::into)),
        ("overwrite", Some(terms.overwrite.into())),
        ("strict", Some(terms.strict.into())),
        ("after", Some(json!(after?))),
    ];
    body.extend(fields.into_iter().filter_map(|(name, it)| Some((name.to_owned(), it?))));
    Ok(body)
}
