//! The broker as a program.

use anyhow::Context;
use clap::Parser;
use longhaul_broker::{AuthConfig, Broker, BrokerConfig, TlsConfig, TokenKey};
use std::net::SocketAddr;
use std::path::PathBuf;
use tracing_subscriber::EnvFilter;

/// A durable broker for one machine that speaks the Apache Pulsar binary protocol.
///
/// Any Pulsar client of any language publishes to it and consumes from it. Everything is kept in one directory. SIGTERM or
/// Ctrl-C stops it; nothing that was confirmed is lost, whichever way it ends.
#[derive(Debug, Parser)]
#[command(name = "longhaul-broker", version)]
struct Arguments {
    /// Directory that everything is kept in; made if it does not exist. Without it: a temporary one that vanishes in the end.
    #[arg(long, env = "LONGHAUL_BROKER_DATA", value_name = "DIR")]
    data: Option<PathBuf>,
    /// Address for clients. Port 0 takes a free one.
    #[arg(
        long,
        env = "LONGHAUL_BROKER_LISTEN",
        value_name = "IP:PORT",
        default_value = "127.0.0.1:6650"
    )]
    listen: SocketAddr,
    /// Address of the admin interface, which is Pulsar's as far as it goes, and of the metrics under /metrics.
    #[arg(
        long,
        env = "LONGHAUL_BROKER_ADMIN",
        value_name = "IP:PORT",
        default_value = "127.0.0.1:8080"
    )]
    admin: SocketAddr,
    /// Address for clients that encrypt.
    #[arg(long, value_name = "IP:PORT", requires = "tls_certificates", requires = "tls_key")]
    listen_tls: Option<SocketAddr>,
    /// The broker's certificate and those that lead to its authority, as PEM.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificates: Option<PathBuf>,
    /// The key of the certificate, as PEM.
    #[arg(long, value_name = "FILE", requires = "tls_certificates")]
    tls_key: Option<PathBuf>,
    /// Authorities whose clients are let in, as PEM: clients then need a certificate.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_client_authorities: Option<PathBuf>,
    /// Host that clients are told to connect to; the address that is listened on, without it.
    #[arg(long, value_name = "HOST")]
    advertised_host: Option<String>,
    /// Secret that tokens are signed with: a file, or data:;base64,…
    #[arg(
        long,
        env = "LONGHAUL_BROKER_TOKEN_SECRET",
        value_name = "KEY",
        conflicts_with = "token_public_key"
    )]
    token_secret_key: Option<String>,
    /// Public key that tokens are verified with: a file, or data:;base64,…
    #[arg(long, value_name = "KEY")]
    token_public_key: Option<String>,
    /// Role that may do everything; may be given several times.
    #[arg(long, value_name = "ROLE")]
    superuser: Vec<String>,
    /// Bytes on disk beyond which publishes are refused.
    #[arg(long, value_name = "BYTES")]
    disk_bytes_max: Option<u64>,
    /// Largest message in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 5 * 1024 * 1024)]
    message_bytes_max: usize,
    /// Connections at a time.
    #[arg(long, value_name = "COUNT", default_value_t = 10_000)]
    connections_max: usize,
}

impl Arguments {
    fn config(self) -> anyhow::Result<BrokerConfig> {
        let tls = self.tls_certificates.zip(self.tls_key).map(|(certificates, key)| TlsConfig {
            certificates,
            key,
            client_authorities: self.tls_client_authorities,
        });
        let key = match (&self.token_secret_key, &self.token_public_key) {
            (Some(secret), _) => Some(TokenKey::secret(secret)?),
            (None, Some(public)) => Some(TokenKey::public(public)?),
            (None, None) => None,
        };
        let superusers = self.superuser.into_iter().collect();
        Ok(BrokerConfig {
            data: self.data,
            listen: self.listen,
            listen_tls: self.listen_tls,
            admin: Some(self.admin),
            advertised_host: self.advertised_host,
            tls,
            auth: key.map(|key| AuthConfig { key, superusers }),
            disk_bytes_max: self.disk_bytes_max,
            message_bytes_max: self.message_bytes_max,
            connections_max: self.connections_max,
            ..BrokerConfig::default()
        })
    }
}

fn main() -> anyhow::Result<()> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let broker = Broker::start(Arguments::parse().config()?)?;
    tracing::info!(clients = broker.service_url(), admin = broker.admin_url(), "ready");
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
