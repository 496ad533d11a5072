//! `longhaul dash`: the queues of a gateway, on a terminal.

use crate::context::CommandContext;
use crate::dash::{self, DashboardOptions};
use crate::exit::CommandFailure;
use crate::output::Output;
use crate::service::gateway::GatewayClient;
use crate::service::patience::Patience;
use crate::times;
use clap::Args;
use std::io::{self, IsTerminal};
use std::time::Duration;

/// The gateway of `longhaul dev`.
const GATEWAY: &str = "http://127.0.0.1:7070";

/// The bounds of `--every`.
const EVERY_MIN: Duration = Duration::from_millis(100);
const EVERY_MAX: Duration = Duration::from_secs(60);

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longhaul dash
  longhaul dash mails --gateway https://tasks.example.com --read-only

Keys stand at the bottom of the window. Without --gateway the one of `longhaul dev` on this machine is asked.")]
pub(crate) struct DashArgs {
    /// The queue whose tasks are shown first; without it, the list of queues.
    queue: Option<String>,
    /// How long after an answer the gateway is asked again: 100ms to 1m.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = every)]
    every: Duration,
    /// Cancels nothing, and runs nothing once more.
    #[arg(long)]
    read_only: bool,
}

fn every(text: &str) -> Result<Duration, String> {
    let every = times::duration(text)?;
    if (EVERY_MIN..=EVERY_MAX).contains(&every) {
        return Ok(every);
    }
    Err("expected a duration from 100ms to 1m".to_owned())
}

/// # Errors
/// When there is no terminal, or the gateway does not answer.
pub(crate) async fn run(command: &DashArgs, context: &CommandContext) -> anyhow::Result<()> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        let help = "`longhaul queue stats`, `longhaul task list` and `longhaul worker list` tell the same to scripts";
        let failure = CommandFailure::usage(
            "the dashboard needs a terminal to draw on and to read keys from",
        );
        return Err(failure.help(help).into());
    }
    let options = DashboardOptions {
        queue: command.queue.clone(),
        every: command.every,
        read_only: command.read_only,
        has_colours: context.output.colours,
        reason: context.reason().to_owned(),
    };
    dash::run(gateway(context)?, options).await
}

/// The gateway, with endless and silent retries: the dashboard itself shows the problem.
fn gateway(context: &CommandContext) -> anyhow::Result<GatewayClient> {
    let default = [("gateway", GATEWAY)];
    let said = context.settings.text("gateway").is_none().then_some(default);
    let settings = context.settings_with(said.into_iter().flatten().collect())?;
    let output = Output { quiet: true, ..context.output };
    let gateway = GatewayClient::of(&settings, Patience { limit: Duration::MAX, output })?;
    let gateway = gateway.ok_or_else(|| CommandFailure::usage("no gateway is named"))?;
    if let Some(host) = gateway.eavesdropped() {
        context.output.note(&format!("note: the token goes to {host} unencrypted: use https://"));
    }
    Ok(gateway)
}
