//! Which tasks are meant: those that are named, or those of a queue that a filter takes.

use super::listing::TaskFilterArgs;
use crate::context::CommandContext;
use crate::exit::CommandFailure;
use crate::service::gateway::GatewayClient;
use crate::service::tasks::{TaskListOrder, TaskListRequest, parse_task};
use clap::Args;
use longhaul::TaskRef;
use longhaul_api::queue::PurgeBody;

#[derive(Debug, Args)]
pub(crate) struct TaskSelectionArgs {
    /// Names of tasks, as QUEUE@ID; or, with a filter or --all, names of queues.
    #[arg(required = true, value_name = "TASK|QUEUE")]
    what: Vec<String>,
    /// Select all tasks of the queues to which the command applies.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    filter: TaskFilterArgs,
}

impl TaskSelectionArgs {
    /// The tasks. If they are not named, those of `statuses` are meant unless the filter has others,
    /// and the user is asked whether it shall be done to so many.
    ///
    /// # Errors
    /// When a name is none, a queue cannot be read, or the user says no.
    pub(super) async fn tasks(
        self,
        service: &GatewayClient,
        (verb, statuses): (&str, &[&'static str]),
        context: &CommandContext,
    ) -> anyhow::Result<Vec<TaskRef>> {
        let mut filter = self.filter.filter();
        if !self.all && filter == PurgeBody::default() {
            let help = "name tasks as QUEUE@ID, or select those of a queue with a filter or --all";
            let read = |text: &String| {
                parse_task(text).map_err(|it| CommandFailure::usage(it).help(help).into())
            };
            return self.what.iter().map(read).collect();
        }
        if let Some(task) = self.what.iter().find(|it| it.contains('@')) {
            let what = format!("`{task}` is a task; filters and --all need a queue");
            return Err(CommandFailure::usage(what).into());
        }
        if filter.status.is_empty() {
            filter.status = statuses.iter().map(|&word| word.to_owned()).collect();
        }
        let mut tasks = Vec::new();
        for queue in &self.what {
            let query = TaskListRequest {
                filter: filter.clone(),
                order: TaskListOrder::Oldest,
                at_ms: None,
                after: None,
                limit: usize::MAX,
                why: false,
            };
            let found = service.list(queue, query).await?.0;
            let named = found.iter().map(|it| parse_task(&it.id).map_err(anyhow::Error::msg));
            tasks.extend(named.collect::<anyhow::Result<Vec<_>>>()?);
        }
        if !tasks.is_empty() {
            let (count, queues) = (tasks.len(), self.what.join("`, `"));
            let many = if count == 1 { "" } else { "s" };
            context.confirm(&format!("{verb} {count} task{many} of `{queues}`?"))?;
        }
        Ok(tasks)
    }
}
