//! Requests the dashboard's data from the gateway, and performs its actions.

use super::state::{
    DashboardAction, DashboardData, DashboardError, DashboardQuery, QueueLine, TaskListScope,
};
use crate::clock;
use crate::exit::{Code, CommandFailure, code_of};
use crate::service::gateway::GatewayClient;
use crate::service::letters::LetterFilter;
use crate::service::tasks::{
    QueueTaskCounts, TaskListFilter, TaskListOrder, TaskListRequest, TaskOperation, is_over, named,
    statuses,
};
use crate::service::workers::PartitionWorker;
use futures::{StreamExt, stream};
use longhaul::ops::Replayed;
use longhaul_api::Priority;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time limit of all requests for a list.
const LIMIT: Duration = Duration::from_secs(30);

/// The most queues, tasks and dead letters listed.
const QUEUES_MAX: usize = 200;
const TASKS_MAX: usize = 500;
const LETTERS_MAX: usize = 500;

/// The number of queues queried concurrently.
const AT_ONCE: usize = 8;

/// How long the absence of topics for priorities is cached.
const FLAT_FOR: Duration = Duration::from_secs(60);

/// Queries a gateway.
pub(crate) struct DashboardClient {
    pub(crate) gateway: GatewayClient,
    /// Queues without topics for priorities, and when that was seen, to save requests.
    flat: Mutex<HashMap<String, Instant>>,
}

impl DashboardClient {
    pub(crate) fn new(gateway: GatewayClient) -> Self {
        Self { gateway, flat: Mutex::default() }
    }

    /// Requests a list.
    ///
    /// # Errors
    /// When the gateway does not answer, or refuses.
    pub(crate) async fn ask(&self, wanted: &DashboardQuery) -> anyhow::Result<DashboardData> {
        let asked = async {
            match wanted {
                DashboardQuery::Queues => self.queues().await,
                DashboardQuery::Tasks { queue, scope } => self.tasks(queue, *scope).await,
                DashboardQuery::Workers { queue } => {
                    Ok(DashboardData::Workers { owners: self.owners(queue).await? })
                }
                DashboardQuery::Letters { queue } => {
                    let filter = LetterFilter::default();
                    let shelf = self.gateway.letters(queue, &filter, LETTERS_MAX).await?;
                    Ok(DashboardData::Letters { letters: shelf.letters, has_more: shelf.has_more })
                }
            }
        };
        match tokio::time::timeout(LIMIT, asked).await {
            Ok(answer) => answer,
            Err(_) => {
                let what = format!("it has not answered for {}s", LIMIT.as_secs());
                Err(CommandFailure::new(Code::Unreachable, what).into())
            }
        }
    }

    async fn queues(&self) -> anyhow::Result<DashboardData> {
        let mut found = self.gateway.queues("public/default").await?;
        let has_more = found.len() > QUEUES_MAX;
        found.truncate(QUEUES_MAX);
        let line = async |name: String| match self.counts(&name).await {
            Ok(counts) => Ok(QueueLine { name, counts: Ok(counts) }),
            // An unreachable gateway is not an error of this queue.
            Err(error) if code_of(&error) == Code::Unreachable => Err(error),
            Err(error) => Ok(QueueLine { name, counts: Err(error.to_string()) }),
        };
        let lines = stream::iter(found).map(|found| line(found.queue)).buffered(AT_ONCE);
        let lines: Vec<_> = lines.collect().await;
        let queues = lines.into_iter().collect::<anyhow::Result<_>>()?;
        Ok(DashboardData::Queues { queues, has_more })
    }

    async fn counts(&self, queue: &str) -> anyhow::Result<QueueTaskCounts> {
        let mut all = self.gateway.counts(queue, None).await?;
        for level in self.levels(queue) {
            let counts = self.gateway.counts(&level, None).await;
            let Some(counts) = self.of_level(queue, counts)? else { break };
            all.add(counts);
        }
        Ok(all)
    }

    async fn tasks(&self, queue: &str, scope: TaskListScope) -> anyhow::Result<DashboardData> {
        let mut statuses: Vec<_> = statuses().map(|(_, word)| word).collect();
        match scope {
            TaskListScope::Running => {
                statuses.retain(|word| matches!(*word, "running" | "claimed"))
            }
            TaskListScope::Open => statuses.retain(|word| !is_over(word)),
        }
        let filter = TaskListFilter { statuses, ..TaskListFilter::default() };
        let query = TaskListRequest {
            filter,
            order: TaskListOrder::Oldest,
            at_ms: None,
            after: None,
            limit: TASKS_MAX,
            why: false,
        };
        let mut page = self.gateway.list(queue, query.clone()).await?;
        let mut has_more = page.next.is_some();
        for level in self.levels(queue) {
            let limit = TASKS_MAX.saturating_sub(page.tasks.len()).max(1);
            let listed =
                self.gateway.list(&level, TaskListRequest { limit, ..query.clone() }).await;
            let Some(more) = self.of_level(queue, listed)? else { break };
            has_more |= more.next.is_some();
            page.tasks.extend(more.tasks);
        }
        Ok(DashboardData::Tasks { tasks: page.tasks, owners: self.owners(queue).await?, has_more })
    }

    async fn owners(&self, queue: &str) -> anyhow::Result<Vec<PartitionWorker>> {
        let mut owners = self.gateway.owners(queue).await?;
        for level in self.levels(queue) {
            let seen = self.gateway.owners(&level).await;
            let Some(seen) = self.of_level(queue, seen)? else { break };
            owners.extend(seen);
        }
        Ok(owners)
    }

    /// The topics of a queue's other priorities, as far as known: a queue has all of them or none.
    fn levels(&self, queue: &str) -> Vec<String> {
        let flat = self.flat.lock().unwrap_or_else(PoisonError::into_inner);
        if flat.get(queue).is_some_and(|seen| seen.elapsed() < FLAT_FOR) {
            return Vec::new();
        }
        [Priority::High, Priority::Low].map(|level| format!("{queue}{}", level.suffix())).into()
    }

    /// The answer about a priority; `None` if the queue does not have it.
    fn of_level<T>(&self, queue: &str, answer: anyhow::Result<T>) -> anyhow::Result<Option<T>> {
        match answer {
            Ok(answer) => Ok(Some(answer)),
            Err(error) if code_of(&error) == Code::Conflict => {
                let mut flat = self.flat.lock().unwrap_or_else(PoisonError::into_inner);
                flat.retain(|_, seen| seen.elapsed() < FLAT_FOR);
                flat.insert(queue.to_owned(), clock::monotonic());
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// Why there is no answer.
pub(crate) fn trouble(error: &anyhow::Error) -> DashboardError {
    DashboardError { is_away: code_of(error) == Code::Unreachable, why: error.to_string() }
}

/// Performs an action, and returns its result.
pub(crate) async fn act(
    gateway: &GatewayClient,
    act: &DashboardAction,
    reason: &str,
) -> Result<String, String> {
    let acted = async {
        match act {
            DashboardAction::Cancel(task) => gateway
                .act(task, TaskOperation::Cancel, reason)
                .await
                .map(|()| format!("{}: cancel requested", named(task))),
            DashboardAction::Replay(task) => {
                let replayed = gateway.replay(task, reason).await?;
                let task = named(task);
                if let Replayed::Restarted(new) = &replayed {
                    return Ok(format!("{task} runs once more as {}", named(new)));
                }
                Err(crate::commands::dead::why_not(&replayed).into())
            }
        }
    };
    match tokio::time::timeout(LIMIT, acted).await {
        Ok(Ok(told)) => Ok(told),
        Ok(Err(error)) => Err(format!("It was not done: {error}")),
        Err(_) => {
            Err("The gateway has not answered: it is not known whether it was done.".to_owned())
        }
    }
}
