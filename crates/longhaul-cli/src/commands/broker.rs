//! `longhaul broker`: the embedded broker without a gateway, and operations on its data directory.
//! `check` also works while the broker runs.

mod backup;

use super::server::args::Secured;
use super::server::engine;
use crate::context::CommandContext;
use crate::exit::{Code, CommandFailure};
use crate::signals::ShutdownSignals;
use crate::times;
use anyhow::Context as _;
use backup::BackupCommand;
use clap::{Args, Subcommand};
use longhaul_broker::rescue::{self, RescueError, RescueReport};
use longhaul_broker::{Broker, TokenKey};
use serde::Serialize;
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum BrokerCommand {
    /// Run a durable broker that any Pulsar client can use
    ///
    /// The broker keeps all data in one directory. SIGTERM or Ctrl-C stops it in order, a second
    /// signal at once. Neither loses a confirmed message.
    #[command(after_help = "\
Examples:
  longhaul broker run --data data
  longhaul broker run --data data --broker 127.0.0.1:6650 --admin 127.0.0.1:8080 \
    --broker-disk-bytes-max 10G

Exit codes: 0 stopped by a signal, 1 stopped by itself or by a second signal, 2 a setting cannot \
be used.")]
    Run(Box<BrokerRunArgs>),
    /// Report the damage in a data directory and what it costs, without repairing it
    ///
    /// A broker may use the directory meanwhile. The command links the files into a folder
    /// check-PID of the directory, which it removes at the end, and copies the two newest
    /// segments. A regular check finds damage in data that is rarely read.
    #[command(after_help = "\
Examples:
  longhaul broker check data
  longhaul broker check /backup/data

Exit codes: 0 the directory is sound, 1 it is damaged, 2 it cannot be read.")]
    Check {
        /// Data directory to check.
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
    /// Create a new data directory from everything readable in a damaged one, and report what is
    /// lost.
    #[command(after_help = "\
Examples:
  longhaul broker salvage data salvaged
  longhaul broker salvage /var/lib/longhaul /var/lib/longhaul-new

Exit codes: 0 no damage, 1 damage, 2 the new directory cannot be created.")]
    Salvage {
        /// Data directory to read. It is not changed.
        #[arg(value_name = "DIR")]
        directory: PathBuf,
        /// Directory to create. It must be empty or not exist.
        #[arg(value_name = "NEW")]
        new: PathBuf,
    },
    /// Create a data directory from a backup of `--broker-backup`, and print up to which time it is
    /// complete
    ///
    /// Messages keep their ids, and no new message gets an id that was used before. A broker on the
    /// new directory stores its own backup beside the restored one.
    #[command(after_help = "\
Examples:
  longhaul broker restore --from /backup/longhaul data
  longhaul broker restore --from s3://bucket/longhaul --at '15m ago' /var/lib/longhaul

For S3, set the keys, the region and the endpoint in the environment: AWS_ACCESS_KEY_ID, \
AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT, AWS_ALLOW_HTTP.

Exit codes: 0 the new directory is sound, 1 the backup is incomplete, damaged or unreadable, 2 \
there is no such backup, or the directory cannot be created.")]
    Restore {
        /// Restore the backup in this directory, or at s3://BUCKET/FOLDER.
        #[arg(long, value_name = "PLACE")]
        from: String,
        /// Restore the state at this time, such as 2026-11-20T07:00Z or `15m ago`. Default: the
        /// newest.
        #[arg(long, value_name = "INSTANT", value_parser = times::instant_ms)]
        at: Option<u64>,
        /// Directory to create. It must be empty or not exist.
        #[arg(value_name = "NEW")]
        new: PathBuf,
    },
    /// Complete, list or check the backup of `--broker-backup`.
    #[command(subcommand)]
    Backup(BackupCommand),
}

#[derive(Debug, Args)]
pub(crate) struct BrokerRunArgs {
    /// Keep all data in this directory, which is created if it does not exist. Without it, the
    /// broker deletes all data when it stops.
    #[arg(long, value_name = "DIR")]
    data: Option<String>,
    /// Listen here for clients. Default: 127.0.0.1:6650. Port 0 takes a free port.
    #[arg(long, value_name = "HOST:PORT")]
    broker: Option<String>,
    /// Listen here for the admin API and /metrics. Default: 127.0.0.1:7071.
    #[arg(long, value_name = "HOST:PORT")]
    admin: Option<String>,
    /// Verify the tokens of clients with this public key: a file, or data:;base64,…
    #[arg(long, value_name = "KEY", conflicts_with = "broker_token_secret")]
    broker_token_public_key: Option<String>,
    // Last: later options would appear in its group of the help.
    #[command(flatten)]
    secured: Secured,
}

/// The addresses of the broker.
#[derive(Debug, Serialize)]
struct BrokerAddressList {
    broker: String,
    broker_tls: Option<String>,
    admin: Option<String>,
    admin_tls: Option<String>,
}

/// # Errors
/// When the broker fails, or damage was found.
pub(crate) async fn run(command: BrokerCommand, context: &CommandContext) -> anyhow::Result<()> {
    let salvaged = match command {
        // Its options are settings, which are read by their names: see `settings::flags`.
        BrokerCommand::Run(_) => return serve(context).await,
        BrokerCommand::Check { directory } => {
            let help = format!(
                "keep the directory as it is, and check the disk; then restore a backup, or create \
                 a directory of what can be read: longhaul broker salvage {} NEW",
                directory.display()
            );
            let report = blocking(move || rescue::check(&directory)).await?;
            return verdict(&report, None, damaged().help(help), context);
        }
        BrokerCommand::Salvage { directory, new } => {
            blocking(move || rescue::salvage(&directory, &new)).await?
        }
        BrokerCommand::Restore { from, at, new } => {
            return backup::restore(&from, at, &new, context).await;
        }
        BrokerCommand::Backup(it) => return backup::run(it, context).await,
    };
    verdict(&salvaged, None, damaged(), context)
}

fn damaged() -> CommandFailure {
    CommandFailure::new(Code::Failed, "the data directory is damaged")
}

/// A report on a directory, and the origin of a restored one.
#[derive(Serialize)]
struct ReportRecord<'a> {
    sound: bool,
    #[serde(flatten)]
    report: &'a RescueReport,
    #[serde(flatten)]
    origin: Option<RestoreOrigin>,
}

/// The origin of a restored directory.
#[derive(Serialize)]
struct RestoreOrigin {
    folder: String,
    as_of: Option<String>,
    /// The same as text.
    #[serde(skip)]
    text: String,
}

/// Prints a report, without its notes if `--quiet` is set. Damage is this failure.
fn verdict(
    report: &RescueReport,
    origin: Option<RestoreOrigin>,
    damaged: CommandFailure,
    context: &CommandContext,
) -> anyhow::Result<()> {
    let (output, sound) = (&context.output, report.is_sound());
    let report = if output.quiet { &report.without_notes() } else { report };
    if output.is_for_people() {
        let text = origin.map(|origin| origin.text).unwrap_or_default();
        output.lines(format!("{report}{text}").trim_end())?;
    } else {
        output.one(&ReportRecord { sound, report, origin }, &[])?;
    }
    if sound { Ok(()) } else { Err(damaged.into()) }
}

async fn blocking(
    read: impl FnOnce() -> Result<RescueReport, RescueError> + Send + 'static,
) -> anyhow::Result<RescueReport> {
    let report = tokio::task::spawn_blocking(read).await?;
    // The exit code distinguishes an unreadable directory from a damaged one.
    report
        .map_err(|error| CommandFailure::usage(format!("{:#}", anyhow::Error::from(error))).into())
}

async fn serve(context: &CommandContext) -> anyhow::Result<()> {
    let settings = &context.settings;
    let key = match (settings.text("broker-token-secret"), settings.text("broker-token-public-key"))
    {
        (Some(_), Some(_)) => {
            let what = "broker-token-secret and broker-token-public-key cannot both be set";
            return Err(CommandFailure::usage(what).help("unset one of them").into());
        }
        (Some(secret), None) => Some(("broker-token-secret", TokenKey::secret(secret))),
        (None, Some(public)) => Some(("broker-token-public-key", TokenKey::public(public))),
        (None, None) => None,
    };
    let key = key.map(|(name, key)| key.map_err(|error| engine::unusable(name, &error)));
    let config = engine::config(settings, key.transpose()?, None)?;
    if config.data.is_none() {
        tracing::warn!("no --data: all data is deleted when this broker stops");
    }
    let launched = engine::launch(config, engine::backup(settings)?).await?;
    let broker = &launched.broker;
    let mut signals = ShutdownSignals::new()?;
    let addresses = BrokerAddressList::of(broker);
    tracing::info!(
        broker = addresses.broker,
        broker_tls = addresses.broker_tls,
        admin = addresses.admin,
        admin_tls = addresses.admin_tls,
        "ready"
    );
    if !context.output.quiet {
        context.output.one(&addresses, &addresses.fields())?;
    }
    tokio::select! {
        ended = broker.ended() => ended.context("the broker stopped by itself")?,
        () = signals.next() => {}
    }
    tracing::info!("stopping");
    let stopping = tokio::task::spawn_blocking(|| launched.shutdown());
    tokio::select! {
        stopped = stopping => Ok(stopped?.context("the broker did not stop cleanly")?),
        () = signals.next() => {
            let what = "stopped at a second signal, without waiting";
            Err(CommandFailure::new(Code::Failed, what).help("start the broker again: all \
                confirmed messages are stored").into())
        }
    }
}

impl BrokerAddressList {
    fn of(broker: &Broker) -> Self {
        Self {
            broker: broker.service_url().to_owned(),
            broker_tls: broker.service_url_tls().map(str::to_owned),
            admin: broker.admin_url(),
            admin_tls: broker.admin_url_tls(),
        }
    }

    fn fields(&self) -> Vec<(&'static str, String)> {
        let all = [
            ("broker", Some(&self.broker)),
            ("broker-tls", self.broker_tls.as_ref()),
            ("admin", self.admin.as_ref()),
            ("admin-tls", self.admin_tls.as_ref()),
        ];
        all.into_iter().filter_map(|(name, url)| Some((name, url?.clone()))).collect()
    }
}
