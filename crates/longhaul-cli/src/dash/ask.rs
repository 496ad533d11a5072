//! Requests the dashboard's data from the gateway, and performs its actions.

use super::state::{
    DashboardAction, DashboardData, DashboardError, DashboardQuery, QueueLine, TaskListScope,
};
use crate::clock;
use crate::exit::{Code, CommandFailure, code_of};
use crate::service::gateway::GatewayClient;
use crate::service::tasks::{TaskListOrder, TaskListRequest, TaskOperation, named, open_statuses};
use futures::{StreamExt, stream};
use longhaul::ops::Replayed;
use longhaul_api::dead::DeadSelection;
use longhaul_api::queue::PurgeBody;
use longhaul_api::task::TaskCountsBody;
use longhaul_api::worker::QueueWorker;
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

/// How long the levels of a queue are remembered.
const LEVELS_FOR: Duration = Duration::from_secs(60);

/// Queries a gateway.
pub(crate) struct DashboardClient {
    pub(crate) gateway: GatewayClient,
    /// The levels of queues, and when they were asked for.
    levels: Mutex<HashMap<String, (Instant, Vec<String>)>>,
}

impl DashboardClient {
    pub(crate) fn new(gateway: GatewayClient) -> Self {
        Self { gateway, levels: Mutex::default() }
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
                    let all = DeadSelection::default();
                    let (letters, has_more) =
                        self.gateway.letters(queue, &all, LETTERS_MAX).await?;
                    Ok(DashboardData::Letters { letters, has_more })
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
        let lines = stream::iter(found).map(line).buffered(AT_ONCE);
        let lines: Vec<_> = lines.collect().await;
        let queues = lines.into_iter().collect::<anyhow::Result<_>>()?;
        Ok(DashboardData::Queues { queues, has_more })
    }

    async fn counts(&self, queue: &str) -> anyhow::Result<TaskCountsBody> {
        self.gateway.counts_of(&self.levels(queue).await?).await
    }

    async fn tasks(&self, queue: &str, scope: TaskListScope) -> anyhow::Result<DashboardData> {
        let is_shown = |word: &&str| match scope {
            TaskListScope::Running => matches!(*word, "running" | "claimed"),
            TaskListScope::Open => true,
        };
        let status = open_statuses().filter(is_shown).map(str::to_owned).collect();
        let filter = PurgeBody { status, ..PurgeBody::default() };
        let query = TaskListRequest {
            filter,
            order: TaskListOrder::Oldest,
            at_ms: None,
            after: None,
            limit: TASKS_MAX,
            why: false,
        };
        let (mut tasks, mut has_more) = (Vec::new(), false);
        for level in self.levels(queue).await? {
            let limit = TASKS_MAX.saturating_sub(tasks.len()).max(1);
            let query = TaskListRequest { limit, ..query.clone() };
            let (more, next) = self.gateway.list(&level, query).await?;
            has_more |= next.is_some();
            tasks.extend(more);
        }
        Ok(DashboardData::Tasks { tasks, owners: self.owners(queue).await?, has_more })
    }

    /// The levels of a queue, which hardly ever change.
    async fn levels(&self, queue: &str) -> anyhow::Result<Vec<String>> {
        let known = || self.levels.lock().unwrap_or_else(PoisonError::into_inner);
        let now = clock::monotonic();
        if let Some((_, levels)) =
            known().get(queue).filter(|(asked, _)| now.duration_since(*asked) < LEVELS_FOR)
        {
            return Ok(levels.clone());
        }
        let levels = self.gateway.levels(queue).await?;
        known().retain(|_, (asked, _)| now.duration_since(*asked) < LEVELS_FOR);
        known().insert(queue.to_owned(), (now, levels.clone()));
        Ok(levels)
    }

    async fn owners(&self, queue: &str) -> anyhow::Result<Vec<QueueWorker>> {
        let mut owners = Vec::new();
        for level in self.levels(queue).await? {
            owners.extend(self.gateway.owners(&level).await?);
        }
        Ok(owners)
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
                let replayed = gateway.replay(task, reason, None).await?;
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
