//! The broker as a program.

mod program;

use anyhow::Context;
use clap::Parser;
use longhaul_broker::{Broker, BrokerConfig};
use program::arguments::{Arguments, Wish};
use std::io::IsTerminal;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

fn main() -> anyhow::Result<ExitCode> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    // Colours are for people who look at a terminal, and want them.
    let ansi = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(ansi);
    log.with_writer(std::io::stderr).init();
    match Arguments::parse().wish()? {
        Wish::Serve(config) => serve(*config)?,
        Wish::Token(token) => token.run()?,
        Wish::Check(check) => return Ok(check.run()),
        Wish::Salvage(copy) => return Ok(copy.salvage()),
        Wish::Snapshot(copy) => return Ok(copy.snapshot()),
    }
    Ok(ExitCode::SUCCESS)
}

fn serve(config: BrokerConfig) -> anyhow::Result<()> {
    if config.data.is_none() {
        tracing::warn!("no --data: whatever is stored is gone when this broker stops");
    }
    let broker = Broker::start(config)?;
    tracing::info!(
        clients = broker.service_url(),
        clients_tls = broker.service_url_tls(),
        admin = broker.admin_url(),
        admin_tls = broker.admin_url_tls(),
        "ready"
    );
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        tokio::select! {
            ended = broker.ended() => Some(ended),
            stopped = stop_signal() => stopped.err().map(|error| {
                tracing::error!(%error, "cannot listen for signals: stopping");
                Ok(())
            }),
        }
    });
    if let Some(Err(error)) = ended {
        return Err(error).context("the broker has stopped by itself");
    }
    tracing::info!("stopping");
    broker.shutdown().context("the broker did not stop cleanly")
}

/// Waits for Ctrl-C or SIGTERM.
async fn stop_signal() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted,
        _ = terminate.recv() => Ok(()),
    }
}
