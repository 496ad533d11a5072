//! A gateway in its own process, so that it can be killed.

use anyhow::{Context, ensure};
use longhaul::Client;
use longhaul_server::{Server, ServerConfig};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

/// The time limit for its start.
const START: Duration = Duration::from_secs(60);
/// The time of open requests after SIGTERM.
const DRAIN: Duration = Duration::from_secs(10);

/// The options of a gateway's start.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Recipe {
    pub(super) listen: SocketAddr,
    pub(super) tokens: PathBuf,
    pub(super) service_url: String,
    pub(super) admin_url: String,
}

#[derive(Debug)]
pub(crate) struct SpawnedGateway {
    recipe: Recipe,
    process: Child,
    url: String,
}

impl SpawnedGateway {
    /// Starts one on a free port.
    ///
    /// # Errors
    /// When it does not start.
    pub(super) async fn start(recipe: &Recipe) -> anyhow::Result<Self> {
        let (process, url) = launch("--gateway", recipe).await?;
        let mut recipe = recipe.clone();
        recipe.listen = url.trim_start_matches("http://").parse()?;
        Ok(Self { recipe, process, url })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Kills it.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) async fn kill(&mut self) -> anyhow::Result<()> {
        self.process.kill().await.context("cannot kill the gateway")
    }

    /// Stops it by SIGTERM, and waits for its end.
    ///
    /// # Errors
    /// When it does not end.
    pub(crate) async fn stop(&mut self) -> anyhow::Result<()> {
        let id = self.process.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        kill_process(id.context("the gateway is gone")?, Signal::TERM)?;
        timeout(START, self.process.wait()).await.context("the gateway did not stop")??;
        Ok(())
    }

    /// Starts it again at the same address.
    ///
    /// # Errors
    /// When it does not start.
    pub(crate) async fn start_again(&mut self) -> anyhow::Result<()> {
        let (process, url) = launch("--gateway", &self.recipe).await?;
        ensure!(url == self.url, "the gateway listens at {url} now, not at {}", self.url);
        self.process = process;
        Ok(())
    }
}

/// Serves the gateway of a recipe until SIGTERM, and prints its URL.
///
/// # Errors
/// When it does not start.
pub(super) async fn serve(recipe: &str) -> anyhow::Result<()> {
    let Recipe { listen, tokens, service_url, admin_url } = serde_json::from_str(recipe)?;
    let client = Client::builder(service_url).admin_url(admin_url).connect().await?;
    let mut config = ServerConfig::default();
    (config.listen, config.token_file) = (listen, Some(tokens));
    let server = Server::start(client, config).await?;
    let mut terminate = signal(SignalKind::terminate())?;
    writeln!(std::io::stdout(), "{}", server.url())?;
    terminate.recv().await;
    server.drain(DRAIN).await;
    Ok(())
}

/// Starts this program with such a recipe, and returns its first line.
///
/// # Errors
/// When it does not start.
pub(crate) async fn launch(
    option: &str,
    recipe: &impl Serialize,
) -> anyhow::Result<(Child, String)> {
    let program = std::env::current_exe().context("cannot find the file of this program")?;
    let mut command = Command::new(program);
    command.arg(option).arg(serde_json::to_string(recipe)?);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut process = command.spawn().with_context(|| format!("cannot start {option}"))?;
    let lines = process.stdout.take().context("the process has no output")?;
    let mut lines = BufReader::new(lines).lines();
    let line = timeout(START, lines.next_line()).await;
    let line = line.with_context(|| format!("{option} did not start"))??;
    Ok((process, line.with_context(|| format!("{option} ended as soon as it was started"))?))
}
