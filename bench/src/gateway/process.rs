//! The gateway, as a process of its own.

use crate::child::{log, this_program};
use crate::stage::Stage;
use anyhow::{Context, Result};
use clap::Args;
use longhaul::Client;
use longhaul_server::{Server, ServerConfig};
use std::io::Write;
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;
use tokio::signal::unix::{SignalKind, signal};

/// How long a gateway may take to end in order.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);

/// What a gateway is told.
#[derive(Args)]
pub(crate) struct GatewayArgs {
    service_url: String,
    admin_url: String,
}

/// Runs a gateway until SIGTERM, after it has printed its address.
pub(crate) async fn run(args: GatewayArgs) -> Result<()> {
    log("warn");
    let client = Client::builder(&args.service_url).admin_url(&args.admin_url).connect().await?;
    let mut config = ServerConfig::default();
    config.listen.set_port(0);
    // Queues of earlier rounds are no concern of this one.
    config.look_after_all = false;
    let server = Server::start(client, config).await?;
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{}", server.address())?;
    stdout.flush()?;
    signal(SignalKind::terminate())?.recv().await;
    server.drain(DRAIN_LIMIT).await;
    Ok(())
}

/// A gateway that runs, and ends with what is dropped here.
pub(super) struct Gateway {
    pub(super) address: SocketAddr,
    pub(super) process: u32,
    _child: Child,
}

impl Gateway {
    pub(super) async fn start(stage: &Stage, under: Option<&str>) -> Result<Self> {
        let mut command = this_program(under)?;
        command.args(["gateway-process", stage.service_url(), stage.admin_url()]);
        let mut child = command.stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let stdout = child.stdout.take().context("its standard output")?;
        let line = BufReader::new(stdout).lines().next_line().await?;
        let address = line.context("the gateway has ended")?.parse()?;
        let process = child.id().context("the gateway has ended")?;
        Ok(Self { address, process, _child: child })
    }
}
