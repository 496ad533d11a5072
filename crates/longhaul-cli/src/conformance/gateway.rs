//! A gateway in its own process, so that it can be killed.

use anyhow::{Context, ensure};
use serde::Deserialize;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// The time limit for its start.
const START: Duration = Duration::from_secs(60);

/// The options of a gateway's start.
#[derive(Clone, Debug)]
pub(super) struct Recipe {
    /// Its own folder, without the user's settings.
    pub(super) home: PathBuf,
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

#[derive(Deserialize)]
struct Ready {
    http: String,
}

impl SpawnedGateway {
    /// Starts one on a free port.
    ///
    /// # Errors
    /// When it does not start.
    pub(super) async fn start(recipe: &Recipe) -> anyhow::Result<Self> {
        let (process, url) = launch(recipe, "127.0.0.1:0").await?;
        Ok(Self { recipe: recipe.clone(), process, url })
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

    /// Starts it again at the same address.
    ///
    /// # Errors
    /// When it does not start.
    pub(crate) async fn start_again(&mut self) -> anyhow::Result<()> {
        let address = self.url.strip_prefix("http://").unwrap_or(&self.url).to_owned();
        let (process, url) = launch(&self.recipe, &address).await?;
        ensure!(url == self.url, "the gateway listens at {url} now, not at {}", self.url);
        self.process = process;
        Ok(())
    }
}

async fn launch(recipe: &Recipe, address: &str) -> anyhow::Result<(Child, String)> {
    let program = std::env::current_exe().context("cannot find the file of this program")?;
    let mut command = Command::new(program);
    command.args(["server", "start", "--engine", "pulsar", "--output", "jsonl", "--log", "error"]);
    command.args(["--http", address, "--service-url", &recipe.service_url]);
    command.args(["--admin-url", &recipe.admin_url]).arg("--http-tokens").arg(&recipe.tokens);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("LONGHAUL_") {
            command.env_remove(name);
        }
    }
    command.env("HOME", &recipe.home).env("XDG_CONFIG_HOME", &recipe.home);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut process = command.spawn().context("cannot start a gateway")?;
    let lines = process.stdout.take().context("the gateway has no output")?;
    let mut lines = BufReader::new(lines).lines();
    let line = timeout(START, lines.next_line()).await.context("the gateway did not start")??;
    let line = line.context("the gateway ended as soon as it was started")?;
    let ready: Ready =
        serde_json::from_str(&line).context("the gateway printed an unexpected line")?;
    Ok((process, ready.http))
}
