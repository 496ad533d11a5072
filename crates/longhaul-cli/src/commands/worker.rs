//! `longhaul worker`: the workers of a queue.

mod drain;

use crate::context::CommandContext;
use crate::exec::{self, WorkerRun};
use crate::exit::CommandFailure;
use crate::service::workers::WorkerProcess;
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum WorkerCommand {
    /// List the workers of a queue.
    #[command(
        visible_alias = "ls",
        after_help = "\
Examples:
  longhaul worker list tasks
  longhaul worker list tasks -o json"
    )]
    List {
        /// Name of the queue (its task topic).
        queue: String,
    },
    /// Show a worker and the tasks that it runs.
    #[command(after_help = "\
Examples:
  longhaul worker show tasks worker-7
  longhaul worker show tasks worker-7 -o json")]
    Show {
        /// Name of the queue (its task topic).
        queue: String,
        /// Name of the worker, or one of its owner ids.
        name: String,
    },
    /// Drain a worker: it takes no new tasks, finishes its running tasks, and exits
    ///
    /// The worker drains as after SIGTERM, on whichever machine it runs. When its time limit is
    /// over, it gives back the tasks that still run, and other workers continue them. A worker of
    /// several queues leaves them all.
    #[command(after_help = "\
Examples:
  longhaul worker drain tasks worker-7 --reason 'its machine is to be replaced'
  longhaul worker drain tasks worker-7 --wait --timeout 10m")]
    Drain {
        /// Name of the queue (its task topic).
        queue: String,
        /// Name of the worker, or one of its owner ids.
        name: String,
        /// Wait until the worker has left.
        #[arg(long)]
        wait: bool,
    },
    /// Run a program for each task of a queue, until Ctrl-C or SIGTERM
    ///
    /// The program reads the payload from standard input, and its standard output is the result.
    /// Exit code 0 completes the task, 65 fails it for good, and after any other code the task is
    /// tried again. docs/exec.md describes progress, checkpoints and more.
    Run(Box<WorkerRun>),
}

/// # Errors
/// When the queue cannot be read, or the worker does not exist.
pub(crate) async fn run(command: WorkerCommand, context: &CommandContext) -> anyhow::Result<()> {
    match command {
        WorkerCommand::List { queue } => {
            Ok(context.output.list(&context.service().await?.workers(&queue).await?)?)
        }
        WorkerCommand::Show { queue, name } => show(&queue, &name, context).await,
        WorkerCommand::Drain { queue, name, wait } => {
            drain::run(&context.service().await?, &queue, &name, wait, context).await
        }
        WorkerCommand::Run(run) => {
            context.needs_broker("a worker")?;
            exec::run(&run, context).await
        }
    }
}

async fn show(queue: &str, name: &str, context: &CommandContext) -> anyhow::Result<()> {
    let is_it =
        |it: &WorkerProcess| it.name == name || it.owners.values().any(|owner| owner == name);
    let mut workers = context.service().await?.workers(queue).await?;
    workers.retain(is_it);
    if workers.is_empty() {
        let help = format!("`longhaul worker list {queue}` lists the workers");
        return Err(CommandFailure::not_found(format!(
            "the queue `{queue}` has no worker `{name}`"
        ))
        .help(help)
        .into());
    }
    for worker in &workers {
        let owners = worker.owners.iter().map(|(partition, owner)| format!("{partition}: {owner}"));
        let fields = [
            ("name", worker.name.clone()),
            ("host", worker.host.clone()),
            ("process", worker.process.map(|it| it.to_string()).unwrap_or_default()),
            ("version", worker.version.clone()),
            ("label", worker.label.clone()),
            ("instance", worker.instance.clone()),
            ("heartbeat", worker.heartbeat()),
            ("owner ids", owners.collect::<Vec<_>>().join("\n")),
            ("running", worker.running.join("\n")),
        ];
        context.output.one(worker, &fields)?;
    }
    Ok(())
}
