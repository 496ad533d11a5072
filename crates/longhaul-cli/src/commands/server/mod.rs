//! `longhaul server` and `longhaul dev`: the gateway, with an embedded broker or in front of
//! Pulsar.

pub(super) mod args;
mod check;
mod demo;
pub(super) mod engine;
mod files;
mod running;

use crate::context::CommandContext;
use crate::exit::CommandFailure;
use crate::{clock, times};
pub(crate) use args::{Dev, ServerStartArgs};
use check::ServerCheckArgs;
use clap::Subcommand;
use demo::Demo;
use engine::PreparedEmbeddedBroker;
use running::{GatewayOptions, RunningServer};
use serde::Serialize;
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum ServerCommand {
    /// Start a broker and the gateway for development: the same as `longhaul dev`.
    #[command(after_help = "\
Examples:
  longhaul server dev
  longhaul server dev --data ./data --demo")]
    Dev(Box<Dev>),
    /// Start the gateway for production, with the embedded broker or in front of Pulsar.
    Start(Box<ServerStartArgs>),
    /// Check whether the gateway on this machine is ready, for health checks of containers
    ///
    /// The command connects to the address in --http, LONGHAUL_HTTP or the settings file, with TLS
    /// if these name its certificate. Exit code 0: ready; 5: not ready, or no answer.
    #[command(after_help = "\
Examples:
  longhaul server check
  longhaul server check --live --http 127.0.0.1:7070")]
    Check(ServerCheckArgs),
}

/// The addresses of all parts.
#[derive(Debug, Serialize)]
struct ServerAddressList {
    http: String,
    /// The web pages; `None` if they are off.
    dashboard: Option<String>,
    broker: String,
    admin: Option<String>,
    /// `None` with Pulsar, or for a temporary directory.
    data: Option<PathBuf>,
}

/// # Errors
/// When the service fails.
pub(crate) async fn run(command: ServerCommand, context: &CommandContext) -> anyhow::Result<()> {
    // Options that are settings are read by their names: see `settings::flags`.
    match command {
        ServerCommand::Dev(it) => dev(&it, context).await,
        ServerCommand::Start(_) => start(context).await,
        ServerCommand::Check(it) => check::run(&it, context).await,
    }
}

/// # Errors
/// When something cannot be started, or ends by itself.
pub(crate) async fn dev(it: &Dev, context: &CommandContext) -> anyhow::Result<()> {
    let begun = clock::monotonic();
    let settings = &context.settings;
    let (mut options, broker) =
        (GatewayOptions::read(settings)?, PreparedEmbeddedBroker::read(settings)?);
    let (broker, client) = broker.start(settings, options.share_files()).await?;
    let client = client.connect().await?;
    let running = RunningServer::start(options, Some(broker), client.clone()).await?;
    if it.demo {
        // Create the queue before readiness is reported: users may look at it at once.
        demo::set_up(&client).await?;
    }
    let addresses = running.addresses(settings);
    if context.output.is_for_people() {
        let took = times::human(begun.elapsed());
        context.output.lines(&introduction(&addresses, it.demo, &took))?;
    } else {
        context.output.one(&addresses, &[])?;
    }
    let demo = match it.demo {
        true => Some(Demo::start(client, &context.output).await?),
        false => None,
    };
    running.until_signal(demo, it.until_stdin_closes, &context.output).await
}

/// # Errors
/// As [`dev`].
async fn start(context: &CommandContext) -> anyhow::Result<()> {
    let settings = &context.settings;
    // Check the options before binding ports: a port in use would hide an invalid option.
    let mut options = GatewayOptions::read(settings)?;
    let (broker, client) = match settings.text("engine") {
        Some("embedded") => {
            if settings.text("data").is_none() {
                return Err(CommandFailure::usage("no data directory is set")
                    .help(
                        "set --data DIR, or use `longhaul dev`, which deletes all data when it \
                        ends",
                    )
                    .into());
            }
            let broker = PreparedEmbeddedBroker::read(settings)?;
            let (broker, client) = broker.start(settings, options.share_files()).await?;
            (Some(broker), client)
        }
        Some("pulsar") => (None, crate::connect::builder(settings)?),
        other => {
            let other = other.unwrap_or_default();
            let what = format!("engine is `{other}`: expected embedded or pulsar");
            return Err(CommandFailure::usage(what).help("set --engine").into());
        }
    };
    let client = client.connect().await?;
    let running = RunningServer::start(options, broker, client).await?;
    let addresses = running.addresses(settings);
    tracing::info!(
        http = addresses.http,
        broker = addresses.broker,
        admin = addresses.admin,
        "ready"
    );
    if !context.output.quiet {
        context.output.one(&addresses, &fields(&addresses))?;
    }
    running.until_signal(None, false, &context.output).await
}

fn fields(addresses: &ServerAddressList) -> [(&'static str, String); 4] {
    let data = addresses.data.as_ref().map(|it| it.display().to_string());
    [
        ("http", addresses.http.clone()),
        ("broker", addresses.broker.clone()),
        ("admin", addresses.admin.clone().unwrap_or_default()),
        ("data", data.unwrap_or_default()),
    ]
}

/// The start message for people.
fn introduction(it: &ServerAddressList, demo: bool, took: &str) -> String {
    let data = it.data.as_ref().map_or_else(
        || "temporary; use --data DIR to keep it".to_owned(),
        |path| path.display().to_string(),
    );
    let admin = it.admin.as_deref().unwrap_or("nowhere");
    let (http, broker) = (&it.http, &it.broker);
    let mut text = format!("longhaul is ready after {took}.\n\n  HTTP    {http}\n");
    if let Some(pages) = &it.dashboard {
        text.push_str(&format!("  pages   {pages}\n"));
    }
    text.push_str(&format!("  Pulsar  {broker}\n  admin   {admin}\n  data    {data}\n\n"));
    text.push_str("Try next, in another terminal:\n\n");
    if it.broker != format!("pulsar://{}", super::ports::BROKER) {
        text.push_str(&format!("  export LONGHAUL_SERVICE_URL={}\n", it.broker));
        text.push_str(&format!("  export LONGHAUL_ADMIN_URL={admin}\n"));
    }
    if demo {
        text.push_str(
            "  longhaul task list demo\n  longhaul dead list demo\n  longhaul task history TASK\n",
        );
    } else {
        text.push_str(
            "  longhaul worker run hello --exec 'tr a-z A-Z'\n\nand in a third terminal:\n\n  \
             longhaul task submit hello 'Hello' --wait\n  longhaul queue stats hello\n",
        );
    }
    text.push_str("\nPress Ctrl-C to stop, and again to stop without waiting.\n");
    if demo {
        text.push_str("\nThe samples:\n");
    }
    text
}
