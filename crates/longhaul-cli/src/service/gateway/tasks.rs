//! Tasks.

use super::address::QueueAddress;
use super::events::GatewayEventStream;
use super::{GatewayClient, GatewayRoute, found, query_of};
use crate::exit::CommandFailure;
use crate::service::short_topic;
use crate::service::tasks::{
    Changes, TaskChange, TaskDetails, TaskListOrder, TaskListRequest, named, no_task,
};
use bytes::Bytes;
use futures::{StreamExt, stream};
use longhaul::TaskRef;
use longhaul_api::Priority;
use longhaul_api::action::{ForceReason, ReasonBody, RescheduleBody, TaskAction};
use longhaul_api::history::HistoryBody;
use longhaul_api::new_task::NewTaskBody;
use longhaul_api::task::{SubmittedTaskBody, TaskBody, TaskCountsBody, TaskList, WhyBody};
use longhaul_api::values::Length;
use reqwest::{Method, StatusCode};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

/// The time of one long poll.
const POLL: Duration = Duration::from_secs(25);

/// Tasks per page.
const PAGE: usize = 1_000;

/// Tasks per page whose reasons are asked for.
const PAGE_WHY: usize = 100;

/// Why there is no result.
const HIDDEN: &str = "the gateway shows results only to tokens with the scope `admin`";

/// A task whose tasks are named as people name them.
fn renamed(of: &QueueAddress, mut task: TaskBody) -> TaskBody {
    of.rename(&mut task.id);
    let others = task.duplicate_of.iter_mut().chain(&mut task.superseded_by);
    others.chain(&mut task.waits_for).for_each(|other| of.rename(other));
    task
}

impl GatewayClient {
    /// Submits a task. If another task holds the key, returns that one.
    ///
    /// A task for a gateway gets an idempotency key if it has none: an answer may be lost, and then
    /// it is submitted again.
    pub(crate) async fn submit(
        &self,
        queue: &str,
        mut task: NewTaskBody,
    ) -> anyhow::Result<TaskRef> {
        let of = QueueAddress::of(queue)?;
        let to = of.whole(&["tasks"]);
        if self.routes.is_none() && task.dedupe_key.is_none() {
            let own = || format!("{:032x}", fastrand::u128(..));
            task.idempotency_key.get_or_insert_with(own);
        }
        loop {
            match self.post::<SubmittedTaskBody>(&to, &task).await {
                Ok(submitted) => {
                    self.back();
                    return of.task(&submitted.id);
                }
                Err(failure) if self.routes.is_none() && task.idempotency_key.is_some() => {
                    self.pause(failure).await?;
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    /// A task's state; `None` if it does not exist, or ended long ago.
    pub(crate) async fn task(&self, task: &TaskRef) -> anyhow::Result<Option<TaskDetails>> {
        let from = GatewayRoute::of_task(task, &[])?;
        let told = found(self.get(&from).await)?;
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

    /// Tasks of a queue in the order that is asked for, and where to go on.
    pub(crate) async fn list(
        &self,
        queue: &str,
        query: TaskListRequest,
    ) -> anyhow::Result<(Vec<TaskBody>, Option<String>)> {
        let of = QueueAddress::of(queue)?;
        let from = of.below(&["tasks"]);
        let mut asked = query_of(&query.filter)?;
        let is_newest = query.order == TaskListOrder::Newest;
        let terms = [
            ("order", is_newest.then(|| "newest".to_owned())),
            ("at", query.at_ms.map(|ms| ms.to_string())),
            ("why", query.why.then(|| true.to_string())),
        ];
        asked.extend(terms.into_iter().filter_map(|(name, it)| Some((name.to_owned(), it?))));
        let most = if query.why { PAGE_WHY } else { PAGE };
        let (mut tasks, mut next) = (Vec::new(), query.after);
        loop {
            let mut page = asked.clone();
            page.extend(next.map(|after| ("after".to_owned(), after)));
            page.push(("limit".to_owned(), (query.limit - tasks.len()).min(most).to_string()));
            let told: TaskList = self.query(&from, &page).await?;
            tasks.extend(told.tasks.into_iter().map(|it| renamed(&of, it)));
            next = told.next;
            if next.is_none() || tasks.len() >= query.limit {
                return Ok((tasks, next));
            }
        }
    }

    /// The numbers of a queue's tasks, now or at an instant.
    pub(crate) async fn counts(
        &self,
        queue: &str,
        at_ms: Option<u64>,
    ) -> anyhow::Result<TaskCountsBody> {
        let of = QueueAddress::of(queue)?;
        let at: Vec<_> = at_ms.map(|ms| ("at", ms.to_string())).into_iter().collect();
        let mut told: TaskCountsBody = self.query(&of.below(&["counts"]), &at).await?;
        told.oldest_ready.iter_mut().for_each(|oldest| of.rename(&mut oldest.id));
        Ok(told)
    }

    /// The changes of all tasks of a queue: `earliest` begins with the current state of each,
    /// `latest` with the next change.
    pub(crate) async fn watch(&self, queue: &str, from: &'static str) -> anyhow::Result<Changes> {
        let of = QueueAddress::of(queue)?;
        let (route, query) = (of.below(&["events"]), ("from", from.to_owned()));
        Ok(changes(GatewayEventStream::open(self.clone(), of, (route, query)).await?, false))
    }

    /// The state of a task, its changes, and its end.
    ///
    /// # Errors
    /// When there is no such task.
    pub(crate) async fn watch_task(&self, task: &TaskRef) -> anyhow::Result<Changes> {
        let (of, name) = QueueAddress::of_task(task)?;
        let (route, query) = (of.whole(&["events"]), ("task", name.to_string()));
        let opened = found(GatewayEventStream::open(self.clone(), of, (route, query)).await)?;
        Ok(changes(opened.ok_or_else(|| no_task(task))?, true))
    }

    /// Why a task does not run, or its worker; `None` if the task is unknown.
    pub(crate) async fn why(&self, task: &TaskRef) -> anyhow::Result<Option<WhyBody>> {
        let told: Option<WhyBody> = found(self.get(&GatewayRoute::of_task(task, &["why"])?).await)?;
        Ok(told.map(|told| WhyBody { task: named(task), ..told }))
    }

    /// The history of a task; without entries if nothing is known of it.
    pub(crate) async fn history(&self, task: &TaskRef) -> anyhow::Result<HistoryBody> {
        let route = GatewayRoute::of_task(task, &["history"])?;
        let told: Option<HistoryBody> = found(self.get(&route).await)?;
        let (of, mut history) = (QueueAddress::of(&task.topic)?, told.unwrap_or_default());
        of.rename(&mut history.task);
        for waits_for in history.entries.iter_mut().flat_map(|it| &mut it.waits_for) {
            of.rename(waits_for);
        }
        Ok(history)
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
        found(self.get(&GatewayRoute::of_task(task, &["properties"])?).await)
    }

    /// Ends a task, or takes it from its worker.
    pub(crate) async fn act(
        &self,
        task: &TaskRef,
        act: TaskAction,
        reason: &str,
    ) -> anyhow::Result<()> {
        let to = GatewayRoute::of_task(task, &[])?;
        let body = match act {
            TaskAction::Cancel | TaskAction::Kill => json!(ReasonBody::of(reason)),
            TaskAction::ForceFail(epoch) | TaskAction::ForceRelease(epoch) => {
                json!(ForceReason { reason: reason.to_owned(), epoch })
            }
            TaskAction::Reschedule(delay) => {
                let (delay, reason) = (Some(Length(delay)), reason.to_owned());
                json!(RescheduleBody { delay, reason, at: None })
            }
            TaskAction::Delete => {
                let deleted = found(self.delete(&to, reason).await)?;
                return deleted.ok_or_else(|| no_task(task).into());
            }
        };
        found(self.tell(&to.verb(act.word()), &body).await)?.ok_or_else(|| no_task(task).into())
    }

    /// Waits for the end of a task, for at most one request; `None` if the task is not over then.
    async fn poll_end(&self, task: &TaskRef) -> anyhow::Result<Option<TaskDetails>> {
        let query = [("timeout", format!("{}s", POLL.as_secs()))];
        let from = GatewayRoute::of_task(task, &["wait"])?;
        let request = self.asking(Method::GET, &from, &query)?.timeout(2 * POLL);
        let response = self.send(request).await?;
        if response.status() == StatusCode::NO_CONTENT {
            return Ok(None);
        }
        let told: TaskBody = serde_json::from_slice(&self.body(response).await?)?;
        let task = self.with_result(task, told).await?;
        Ok(Some(task).filter(|it| it.is_over()))
    }

    /// The task with its result, which a long one is asked for.
    pub(super) async fn with_result(
        &self,
        task: &TaskRef,
        told: TaskBody,
    ) -> anyhow::Result<TaskDetails> {
        let mut told = renamed(&QueueAddress::of(&task.topic)?, told);
        let is_completed = told.status == "completed";
        let mut result = told.result.clone().map(Bytes::from);
        if told.hidden && is_completed {
            told.warning.get_or_insert_with(|| HIDDEN.to_owned());
        } else if told.result_bytes.is_some() && result.is_none() && is_completed {
            let request = self.request(Method::GET, &GatewayRoute::of_task(task, &["result"])?)?;
            let response = self.send(request).await?;
            result = Some(self.body(response).await?);
        }
        Ok(TaskDetails::new(told, result))
    }
}

/// The changes that these events tell. Those of one task end with it.
fn changes(events: GatewayEventStream, is_of_one: bool) -> Changes {
    let next = move |events: Option<GatewayEventStream>| async move {
        let mut events = events?;
        let change = events.next().await;
        let is_last = match &change {
            Ok(TaskChange::Updated(task)) => is_of_one && task.is_over(),
            Ok(TaskChange::CaughtUp | TaskChange::Unreadable(_)) => false,
            // Nothing follows an error.
            Err(_) => true,
        };
        Some((change, (!is_last).then_some(events)))
    };
    stream::unfold(Some(events), next).boxed()
}

/// The name of a task in its queue, as another task of the queue waits for it.
pub(crate) fn name_in_queue(task: &TaskRef) -> Result<String, CommandFailure> {
    Ok(QueueAddress::of_task(task)?.1.to_string())
}

/// The priority of a task for a level of a queue: the gateway takes the level as a priority.
pub(crate) fn priority_of(queue: &str, said: Priority) -> Result<Priority, CommandFailure> {
    let level = QueueAddress::of(queue)?.level.level();
    if level == Priority::Normal || said == level {
        return Ok(said);
    }
    if said == Priority::Normal {
        return Ok(level);
    }
    let what = format!(
        "`{}` is the level {level} of its queue, but --priority is {said}",
        short_topic(queue)
    );
    let help = "name the queue without its level, or omit --priority";
    Err(CommandFailure::usage(what).help(help))
}
