//! Tasks.

use super::address::QueueAddress;
use super::events::GatewayEventStream;
use super::{GatewayClient, GatewayRoute, found};
use crate::exit::CommandFailure;
use crate::service::short_topic;
use crate::service::tasks::{
    Changes, ListedTask, QueueTaskCounts, SubmissionTerms, TaskDetails, TaskListOrder,
    TaskListPage, TaskListRequest, TaskOperation, TaskReason, TaskSubmission, WatchStart, named,
    no_task, status_word_of, statuses,
};
use crate::times;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
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
    /// If it is short, and text.
    result: Option<String>,
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
pub(super) struct WorkerNameResponse {
    #[serde(default)]
    pub(super) name: String,
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

impl TaskResponse {
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    fn task(self, of: &QueueAddress) -> TaskDetails {
        let mut it = TaskDetails {
            task: of.shown(&self.id),
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
        };
        it.set_result(self.result.map(Bytes::from));
        it
    }

    fn listed(self, of: &QueueAddress) -> ListedTask {
        ListedTask {
            task: of.shown(&self.id),
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

impl GatewayClient {
    /// Submits a task. If another task holds the key, returns that one.
    pub(crate) async fn submit(&self, task: TaskSubmission) -> anyhow::Result<TaskRef> {
        let of = QueueAddress::of(&task.queue)?;
        let level = of.level().level();
        let to = of.whole(&["tasks"]);
        let submitted: Identified = self.post(&to, &body_of_submission(task, level)?).await?;
        of.task(&submitted.id)
    }

    /// A task's state; `None` if it does not exist, or ended long ago.
    pub(crate) async fn task(&self, task: &TaskRef) -> anyhow::Result<Option<TaskDetails>> {
        let from = GatewayRoute::of_task(task, &[])?;
        let told: Option<TaskResponse> = found(self.get(&from, &[]).await)?;
        match told {
            Some(told) => Ok(Some(self.with_result(task, told).await?)),
            None => Ok(None),
        }
    }

    /// Waits for the end of a task, in success or failure.
    pub(crate) async fn ended(&self, task: &TaskRef) -> anyhow::Result<TaskDetails> {
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

    /// Tasks of a queue, in the order that is asked for.
    pub(crate) async fn list(
        &self,
        queue: &str,
        query: TaskListRequest,
    ) -> anyhow::Result<TaskListPage> {
        let of = QueueAddress::of(queue)?;
        let from = of.below(&["tasks"]);
        let words = |words: &[String]| words.join(",");
        let statuses: Vec<_> = query.filter.statuses.iter().map(|it| (*it).to_owned()).collect();
        let mut asked = vec![("status", words(&statuses)), ("tag", words(&query.filter.tags))];
        asked.push(("type", query.filter.task_type.clone().unwrap_or_default()));
        asked.push(("key", query.filter.key.clone().unwrap_or_default()));
        if let Some(range) = &query.filter.created {
            asked.push(("created_from", range.start().to_string()));
            asked.push(("created_to", range.end().to_string()));
        }
        if let Some(range) = &query.filter.changed {
            asked.push(("changed_from", range.start().to_string()));
            asked.push(("changed_to", range.end().to_string()));
        }
        if query.order == TaskListOrder::Newest {
            asked.push(("order", "newest".to_owned()));
        }
        asked.extend(query.at_ms.map(|ms| ("at", ms.to_string())));
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
            tasks.extend(told.tasks.into_iter().map(|it| it.listed(&of)));
            next = told.next;
            if next.is_none() || tasks.len() >= query.limit {
                return Ok(TaskListPage { tasks, next });
            }
        }
    }

    /// The numbers of a queue's tasks, now or at an instant.
    pub(crate) async fn counts(
        &self,
        queue: &str,
        at_ms: Option<u64>,
    ) -> anyhow::Result<QueueTaskCounts> {
        let of = QueueAddress::of(queue)?;
        let at: Vec<_> = at_ms.map(|ms| ("at", ms.to_string())).into_iter().collect();
        let told: ToldCounts = self.get(&of.below(&["counts"]), &at).await?;
        let count = |word| told.by_status.get(word).copied().unwrap_or_default();
        let by_status = statuses().map(|(_, word)| (word, count(word)));
        Ok(QueueTaskCounts {
            total: told.total,
            demand: told.demand,
            by_status: by_status.collect(),
            oldest_ready: told.oldest_ready.as_ref().map(|it| of.shown(&it.id)),
            oldest_ready_since_ms: told.oldest_ready.map(|it| it.since),
            ever_ended: told.ever_ended,
            queue: of.to_string(),
        })
    }

    /// The changes of all tasks of a queue.
    pub(crate) async fn watch(&self, queue: &str, from: WatchStart) -> anyhow::Result<Changes> {
        let from = if from == WatchStart::Start { "earliest" } else { "latest" };
        let of = QueueAddress::of(queue)?;
        let events = GatewayEventStream::open(self.clone(), of, from).await?;
        let next = async |events: Option<GatewayEventStream>| {
            let mut events = events?;
            let change = events.next().await;
            // Nothing follows an error.
            let events = change.is_ok().then_some(events);
            Some((change, events))
        };
        Ok(stream::unfold(Some(events), next).boxed())
    }

    /// Why a task does not run, or its worker; `None` if the task is unknown.
    pub(crate) async fn why(&self, task: &TaskRef) -> anyhow::Result<Option<TaskReason>> {
        let request = self.request(Method::GET, &GatewayRoute::of_task(task, &["why"])?)?;
        let Some(response) = found(self.send(request).await)? else { return Ok(None) };
        let told: TaskReason = serde_json::from_slice(&self.body(response).await?)?;
        Ok(Some(TaskReason { task: named(task), ..told }))
    }

    /// The payload of a task; `None` if its message is gone.
    pub(crate) async fn payload(&self, task: &TaskRef) -> anyhow::Result<Option<Bytes>> {
        let request = self.request(Method::GET, &GatewayRoute::of_task(task, &["payload"])?)?;
        let Some(response) = found(self.send(request).await)? else { return Ok(None) };
        Ok(Some(self.body(response).await?))
    }

    /// The properties of a task's message; `None` if it is gone.
    pub(crate) async fn properties(
        &self,
        task: &TaskRef,
    ) -> anyhow::Result<Option<BTreeMap<String, String>>> {
        found(self.get(&GatewayRoute::of_task(task, &["properties"])?, &[]).await)
    }

    /// Ends a task, or takes it from its worker.
    pub(crate) async fn act(
        &self,
        task: &TaskRef,
        act: TaskOperation,
        reason: &str,
    ) -> anyhow::Result<()> {
        let to = GatewayRoute::of_task(task, &[])?;
        let (verb, epoch) = match act {
            TaskOperation::Cancel => ("cancel", None),
            TaskOperation::Kill => ("kill", None),
            TaskOperation::ForceFail(epoch) => ("force-fail", epoch),
            TaskOperation::ForceRelease(epoch) => ("force-release", epoch),
            TaskOperation::Delete => {
                let query = [("reason", reason.to_owned())];
                let deleted = self.send(self.asking(Method::DELETE, &to, &query)?).await;
                return found(deleted)?.map(drop).ok_or_else(|| no_task(task).into());
            }
        };
        let mut body = json!({ "reason": reason });
        if let (Some(epoch), Some(fields)) = (epoch, body.as_object_mut()) {
            fields.insert("epoch".to_owned(), epoch.into());
        }
        found(self.tell(&to.verb(verb), &body).await)?.ok_or_else(|| no_task(task).into())
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

    /// The task with its result, which a long one is asked for.
    pub(super) async fn with_result(
        &self,
        task: &TaskRef,
        told: TaskResponse,
    ) -> anyhow::Result<TaskDetails> {
        let (has_result, hidden) = (told.result_bytes.is_some(), told.hidden);
        let mut it = told.task(&QueueAddress::of(&task.topic)?);
        if hidden && it.is_completed() {
            it.warning.get_or_insert_with(|| HIDDEN.to_owned());
        } else if has_result && it.result.is_none() && it.is_completed() {
            let request = self.request(Method::GET, &GatewayRoute::of_task(task, &["result"])?)?;
            let response = self.send(request).await?;
            it.set_result(Some(self.body(response).await?));
        }
        Ok(it)
    }
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
    if terms.overwrite && terms.dedupe_key.is_none() {
        let what = "--overwrite takes the place of the task that holds a dedupe key";
        return Err(CommandFailure::usage(what).help("say --dedupe-key as well").into());
    }
    let after: anyhow::Result<Vec<_>> =
        terms.after.iter().map(|task| Ok(QueueAddress::of_task(task)?.1.to_string())).collect();
    let properties: BTreeMap<_, _> = terms.properties.into_iter().collect();
    let retry = terms.retry.map(|it| {
        if it.intervals.is_empty() {
            json!({ "base": length(it.base), "max": length(it.max) })
        } else {
            json!({ "intervals": it.intervals.into_iter().map(length).collect::<Vec<_>>() })
        }
    });
    let mut body = Map::new();
    let fields: [(&str, Option<Value>); 22] = [
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
        ("after_keys", Some(json!(terms.after_keys))),
        ("after_failed", terms.after_failed.map(|it| json!(it))),
    ];
    body.extend(fields.into_iter().filter_map(|(name, it)| Some((name.to_owned(), it?))));
    Ok(body)
}
