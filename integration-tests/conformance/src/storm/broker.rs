//! A durable broker in its own process, so that it can be killed.

use crate::gateway::launch;
use anyhow::Context;
use longhaul_broker::{Broker, BrokerConfig};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use tokio::process::Child;

#[derive(Clone, Debug, Deserialize, Serialize)]
struct BrokerRecipe {
    data: PathBuf,
    listen: SocketAddr,
    admin: SocketAddr,
}

#[derive(Debug)]
pub(super) struct SpawnedBroker {
    recipe: BrokerRecipe,
    process: Child,
    urls: (String, String),
}

impl SpawnedBroker {
    /// Starts one on free ports, with this directory.
    ///
    /// # Errors
    /// When it does not start.
    pub(super) async fn start(data: &Path) -> anyhow::Result<Self> {
        let free: SocketAddr = "127.0.0.1:0".parse()?;
        let mut recipe = BrokerRecipe { data: data.to_owned(), listen: free, admin: free };
        let (process, line) = launch("--broker", &recipe).await?;
        let (service, admin) = line.split_once(' ').context("the broker has no admin URL")?;
        recipe.listen = service.trim_start_matches("pulsar://").parse()?;
        recipe.admin = admin.trim_start_matches("http://").parse()?;
        let urls = (service.to_owned(), admin.to_owned());
        Ok(Self { recipe, process, urls })
    }

    /// Its URLs for clients and for administration.
    pub(super) fn urls(&self) -> (&str, &str) {
        (&self.urls.0, &self.urls.1)
    }

    /// # Errors
    /// When the system refuses.
    pub(super) async fn kill(&mut self) -> anyhow::Result<()> {
        self.process.kill().await.context("cannot kill the broker")
    }

    /// Starts it again at the same addresses.
    ///
    /// # Errors
    /// When it does not start.
    pub(super) async fn start_again(&mut self) -> anyhow::Result<()> {
        self.process = launch("--broker", &self.recipe).await?.0;
        Ok(())
    }
}

/// Serves the broker of a recipe until it is killed, and prints its URLs.
///
/// # Errors
/// When it does not start.
pub(crate) async fn serve(recipe: &str) -> anyhow::Result<()> {
    let BrokerRecipe { data, listen, admin } = serde_json::from_str(recipe)?;
    let (data, admin) = (Some(data), Some(admin));
    let config = BrokerConfig { data, listen, admin, ..BrokerConfig::default() };
    let broker = tokio::task::spawn_blocking(|| Broker::start(config)).await??;
    let admin_url = broker.admin_url().context("the broker has no admin API")?;
    writeln!(std::io::stdout(), "{} {admin_url}", broker.service_url())?;
    Ok(broker.ended().await?)
}
