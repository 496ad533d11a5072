//! What the program is when it has started itself: the embedded broker, apart from everything else
//! that is measured. And how it does.

use anyhow::Result;
use clap::Args;
use longhaul_broker::{Broker, BrokerConfig};
use std::net::SocketAddr;
use std::path::PathBuf;
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// What the sandbox tells an embedded broker.
#[derive(Args)]
pub(crate) struct BrokerArgs {
    #[arg(long)]
    data: PathBuf,
    #[arg(long = "broker")]
    listen: SocketAddr,
    #[arg(long)]
    admin: SocketAddr,
    #[arg(long = "broker-message-bytes-max")]
    message_bytes_max: Option<usize>,
}

/// Runs an embedded broker until SIGTERM.
pub(crate) async fn broker(args: BrokerArgs) -> Result<()> {
    log("info");
    let default = BrokerConfig::default();
    let broker = Broker::start(BrokerConfig {
        data: Some(args.data),
        listen: args.listen,
        admin: Some(args.admin),
        message_bytes_max: args.message_bytes_max.unwrap_or(default.message_bytes_max),
        ..default
    })?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        ended = broker.ended() => return Ok(ended?),
        _ = terminate.recv() => {}
    }
    Ok(tokio::task::spawn_blocking(|| broker.shutdown()).await??)
}

/// This program once more, under a command such as `perf record` if there is one.
pub(crate) fn this_program(under: Option<&str>) -> Result<Command> {
    let own = std::env::current_exe()?;
    let mut words = under.unwrap_or_default().split_whitespace();
    Ok(match words.next() {
        Some(program) => {
            let mut command = Command::new(program);
            command.args(words).arg(own);
            command
        }
        None => Command::new(own),
    })
}

/// Logs to standard error what is at least so important, or what `RUST_LOG` asks for.
pub(crate) fn log(level: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .init();
}
