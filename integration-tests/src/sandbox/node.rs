//! A Pulsar server with its own port: a part of a cluster, or a proxy in front of one.

use std::fmt::Write;
use std::future::Future;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::net::TcpStream;

use super::Admin;
use super::broker::{Server, Signal};
use super::process::LocalServer;
use crate::wait::until;

pub(super) const START_LIMIT: Duration = Duration::from_secs(120);
/// A small server starts faster without the optimising compiler and parallel collection.
pub(super) const SMALL: [&str; 2] = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];

/// One process.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) server: LocalServer,
    pub(super) port: u16,
    /// For brokers only.
    pub(super) admin: Option<Admin>,
}

impl Node {
    pub(super) fn new(server: LocalServer, port: u16) -> Self {
        Self { server, port, admin: None }
    }

    pub(super) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Starts the process and waits until it is ready.
    pub(super) async fn start<F: Future<Output = Result<bool>>>(
        &mut self,
        is_ready: impl Fn(u16) -> F,
    ) -> Result<()> {
        if self.server.is_running()? {
            bail!("runs already");
        }
        self.server.start()?;
        let (server, port) = (&mut self.server, self.port);
        let ready = until("ready", START_LIMIT, async || {
            if !server.is_running()? {
                bail!("the process has ended");
            }
            Ok(is_ready(port).await?.then_some(()))
        });
        let result = ready.await;
        result.with_context(|| format!("its log ends with\n{}", self.server.log_tail()))
    }

    /// Kills the process by SIGKILL and waits until it is gone.
    pub(super) async fn kill(&mut self) -> Result<()> {
        self.server.signal(Signal::Kill)?;
        let gone = async || Ok((!self.server.is_running()?).then_some(()));
        until("process gone", START_LIMIT, gone).await
    }
}

/// Whether a server listens on the port.
pub(super) async fn is_reachable(port: u16) -> Result<bool> {
    Ok(TcpStream::connect(("127.0.0.1", port)).await.is_ok())
}

/// A file of settings.
pub(super) fn lines(settings: &[(&str, &str)]) -> String {
    settings.iter().fold(String::new(), |mut text, (key, value)| {
        // Writing to a string cannot fail.
        writeln!(text, "{key}={value}").ok();
        text
    })
}
