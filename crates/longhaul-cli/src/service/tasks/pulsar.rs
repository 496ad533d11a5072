//! Tasks, through the library's client.

use super::{
    Changes, ListedTask, QueueTaskCounts, SubmittedPayload, TaskChange, TaskDetails,
    TaskHistoryRecord, TaskListPage, TaskListRequest, TaskOperation, TaskReason, TaskService,
    TaskSubmission, WatchStart,
};
use crate::exit::{Code, CommandFailure};
use crate::service::patience::Away;
use crate::service::{Pulsar, short_topic};
use futures::{StreamExt, stream};
use longhaul::ops::{ConnectionState, PastInstant, TaskInfo, TaskStatus, TaskView};
use longhaul::{Priority, ReadError, TaskId, TaskMetadata, TaskRef, WatchEvent, WatchFrom};
use std::collections::BTreeMap;
use std::time::Duration;

/// The time that a worker may take to show an end on the metadata topic.
const SHOWN_WITHIN: Duration = Duration::from_secs(1);

impl TaskService for Pulsar {
    async fn submit(&self, task: TaskSubmission) -> anyhow::Result<TaskRef> {
        self.require_level(&task).await?;
        Ok(task.submission(&self.client)?.send().await?)
    }

    async fn task(&self, task: &TaskRef) -> anyhow::Result<Option<TaskDetails>> {
        self.require(&task.topic).await?;
        let mut found = match self.client.get(task).await? {
            Some(entry) => Some(self.shown(task, entry)),
            None => self
                .client
                .queue(&task.topic)
                .submitted(task.id)
                .await?
                .map(|it| TaskDetails::of_submitted(task, &it)),
        };
        if found.as_ref().is_none_or(|it| !it.is_over())
            && let Some(info) = self.claimed(task).await?
        {
            // The ledger is ahead of the metadata topic.
            found.get_or_insert_with(|| TaskDetails::unknown(task)).correct(&info);
        }
        Ok(found)
    }

    async fn ended(&self, task: &TaskRef) -> anyhow::Result<TaskDetails> {
        self.require(&task.topic).await?;
        let shown = async {
            let entry = self.client.wait_metadata(task).await?;
            Ok(self.shown(task, entry))
        };
        // A worker shows the end of a manually closed task only when the task is delivered: with a
        // delay, hours later.
        tokio::select! {
            shown = shown => shown,
            Some(closed) = self.closed_and_not_shown(task) => Ok(closed),
            failure = self.impatient() => Err(failure.into()),
        }
    }

    async fn list(&self, queue: &str, query: TaskListRequest) -> anyhow::Result<TaskListPage> {
        let view = self.view(queue, query.at_ms).await?;
        let filter = query.filter.of_library();
        let parse = |text: String| text.parse::<TaskId>();
        let after = query.after.map(parse).transpose();
        let mut next = after.map_err(|error| CommandFailure::usage(error.to_string()))?;
        let mut tasks = Vec::new();
        loop {
            let page = view.list(&filter, next, query.limit - tasks.len())?;
            let whys = match query.why {
                true => self.client.queue(queue).with_view(&view).why_all(&page.tasks).await?,
                false => BTreeMap::new(),
            };
            tasks.extend(page.tasks.into_iter().map(|it| {
                let why = whys.get(&it.id).map(ToString::to_string);
                ListedTask { why, ..ListedTask::of(queue, it) }
            }));
            next = page.next;
            if next.is_none() || tasks.len() >= query.limit {
                return Ok(TaskListPage { tasks, next: next.map(|it| it.to_string()) });
            }
        }
    }

    async fn counts(&self, queue: &str, at_ms: Option<u64>) -> anyhow::Result<QueueTaskCounts> {
        let view = self.view(queue, at_ms).await?;
        Ok(QueueTaskCounts::of(queue, &view.counts()?))
    }

    async fn watch(&self, queue: &str, from: WatchStart) -> anyhow::Result<Changes> {
        let from = match from {
            WatchStart::Start => WatchFrom::Earliest,
            WatchStart::Now => WatchFrom::Latest,
        };
        self.require(queue).await?;
        let watch = self.client.queue(queue).watch_from(from).await?;
        let (service, queue) = (self.clone(), queue.to_owned());
        let changes = watch.filter_map(move |event| {
            let change = match event {
                Ok(event) => service.change(&queue, event).map(Ok),
                Err(error) => Some(Err(error.into())),
            };
            std::future::ready(change)
        });
        let service = self.clone();
        let impatient = stream::once(async move { Err(service.impatient().await.into()) });
        // The stream that ends first ends both: a watch only ends with an error.
        Ok(stream::select(changes, impatient).boxed())
    }

    async fn history(&self, task: &TaskRef) -> anyhow::Result<TaskHistoryRecord> {
        self.require(&task.topic).await?;
        Ok(TaskHistoryRecord::of(task, self.client.queue(&task.topic).history(task.id).await?))
    }

    async fn why(&self, task: &TaskRef) -> anyhow::Result<Option<TaskReason>> {
        self.require(&task.topic).await?;
        Ok(self.client.queue(&task.topic).why(task.id).await?.map(|why| TaskReason::of(task, &why)))
    }

    async fn payload(&self, task: &TaskRef) -> anyhow::Result<Option<SubmittedPayload>> {
        self.require(&task.topic).await?;
        let Some(submitted) = self.client.queue(&task.topic).submitted(task.id).await? else {
            return Ok(None);
        };
        let bytes = self.client.decode_payload(&submitted)?;
        Ok(Some(SubmittedPayload { bytes, properties: Some(submitted.properties) }))
    }

    async fn act(&self, task: &TaskRef, act: TaskOperation, reason: &str) -> anyhow::Result<()> {
        let client = &self.client;
        self.require(&task.topic).await?;
        // A cancel request is stored for any id, but the user should learn that the task does not
        // exist.
        if matches!(act, TaskOperation::Cancel | TaskOperation::Kill) {
            self.require_open(task).await?;
        }
        match act {
            TaskOperation::Cancel => client.cancellation(task).reason(reason).send().await?,
            TaskOperation::Kill => client.cancellation(task).reason(reason).kill().send().await?,
            TaskOperation::Delete => client.queue(&task.topic).delete(task.id, reason).await?,
            TaskOperation::ForceFail(epoch) => {
                client
                    .queue(&task.topic)
                    .force_fail(task.id, self.epoch(task, epoch).await?, reason)
                    .await?;
            }
            TaskOperation::ForceRelease(epoch) => {
                client
                    .queue(&task.topic)
                    .force_release(task.id, self.epoch(task, epoch).await?, reason)
                    .await?;
            }
        }
        Ok(())
    }
}

impl Pulsar {
    /// Reports when the broker is lost and back, and resolves when it has been away for too long.
    async fn impatient(&self) -> CommandFailure {
        const WHO: &str = "the broker";
        let Some(patience) = self.patience else { return std::future::pending().await };
        let mut reach = self.client.reach();
        let mut away: Option<Away> = None;
        loop {
            let left = match reach.state() {
                ConnectionState::Reconnecting { cause, .. } => {
                    let away = away.get_or_insert_with(|| patience.begin(WHO, &cause.to_string()));
                    Some(patience.left(away))
                }
                ConnectionState::Connected | ConnectionState::Refused { .. } | _ => {
                    if let Some(away) = away.take() {
                        patience.end(WHO, &away);
                    }
                    None
                }
            };
            let over = async {
                match left {
                    Some(left) => tokio::time::sleep(left).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                state = reach.changed() => {
                    // The client is gone, so nobody waits.
                    if state.is_none() {
                        return std::future::pending().await;
                    }
                }
                () = over => if let Some(away) = &away {
                    return patience.over(WHO, away);
                }
            }
        }
    }

    /// A task from its entry, decoded if its codec is known.
    fn shown(&self, task: &TaskRef, entry: TaskMetadata) -> TaskDetails {
        let decoded = self.client.decode(entry.clone()).unwrap_or(entry);
        TaskDetails::of_entry(task, decoded, None)
    }

    fn change(&self, queue: &str, event: WatchEvent) -> Option<TaskChange> {
        if let WatchEvent::Updated { id, metadata, epoch } = event {
            let task = TaskRef::new(queue, id).ok()?;
            let decoded = self.client.decode(metadata.clone()).unwrap_or(metadata);
            return Some(TaskChange::Updated(Box::new(TaskDetails::of_entry(
                &task, decoded, epoch,
            ))));
        }
        if let WatchEvent::Undecodable { key, position, cause } = event {
            let what = format!("an entry at {position:?} with the key {key:?} is none: {cause}");
            return Some(TaskChange::Unreadable(what));
        }
        // An evicted task was shown before, as over.
        (event == WatchEvent::CaughtUp).then_some(TaskChange::CaughtUp)
    }

    /// A task that is over on the ledger, but not on the metadata topic. A worker that ended it
    /// shows the end a moment later, with the reason.
    async fn closed_and_not_shown(&self, task: &TaskRef) -> Option<TaskDetails> {
        let closed = self.closed(task).await?;
        tokio::time::sleep(SHOWN_WITHIN).await;
        Some(closed)
    }

    /// A task that is over on the ledger without a result.
    async fn closed(&self, task: &TaskRef) -> Option<TaskDetails> {
        let info = self.claimed(task).await.ok()??;
        // A result is only on the metadata topic.
        let is_closed = info.status.is_terminal() && info.status != TaskStatus::Completed;
        let found = if is_closed { self.task(task).await.ok()? } else { None };
        found.filter(TaskDetails::is_over)
    }

    /// Refuses a task of a priority without topics: it would wait for ever.
    async fn require_level(&self, task: &TaskSubmission) -> anyhow::Result<()> {
        let (queue, priority) = (&task.queue, task.terms.priority);
        if priority == Priority::Normal || self.client.queue(queue).has_level(priority).await? {
            return Ok(());
        }
        let queue = short_topic(queue);
        let what = format!(
            "the queue `{queue}` has no topics for priorities: a task of the priority {priority} would wait for ever"
        );
        let help = format!(
            "`longhaul topic setup {queue} --levels` makes them; workers that serve them, such as `longhaul worker run --levels` and gateways, run such tasks"
        );
        Err(CommandFailure::new(Code::Conflict, what).help(help).into())
    }

    /// Checks that the task exists and is not over.
    async fn require_open(&self, task: &TaskRef) -> anyhow::Result<()> {
        let Some(found) = self.task(task).await? else { return Err(super::no_task(task).into()) };
        if found.is_over() {
            let what = format!("the task is over: {}", found.status);
            return Err(CommandFailure::new(Code::Conflict, what).into());
        }
        Ok(())
    }

    /// A task's state on the ledger; `None` if no worker has claimed it.
    async fn claimed(&self, task: &TaskRef) -> anyhow::Result<Option<TaskInfo>> {
        match self.client.queue(&task.topic).claimed_tasks().await {
            Ok(view) => Ok(view.get(task.id)?),
            // The topics were never set up, so nothing is claimed.
            Err(ReadError::NoLedger(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The view of all tasks, now or at an instant.
    async fn view(&self, queue: &str, at_ms: Option<u64>) -> anyhow::Result<TaskView> {
        self.require(queue).await?;
        Ok(match at_ms {
            None => self.client.queue(queue).tasks().await?,
            Some(ms) => self.client.queue(queue).tasks_at(PastInstant::Time(ms)).await?,
        })
    }

    /// The given epoch, or the task's current one.
    async fn epoch(&self, task: &TaskRef, named: Option<u32>) -> anyhow::Result<u32> {
        if let Some(epoch) = named {
            return Ok(epoch);
        }
        let found = self.claimed(task).await?;
        let found = found.ok_or_else(|| {
            CommandFailure::not_found(format!("no worker has claimed {}", super::named(task)))
                .help("`longhaul task delete` ends tasks that nobody has claimed")
        });
        Ok(found?.epoch)
    }
}
