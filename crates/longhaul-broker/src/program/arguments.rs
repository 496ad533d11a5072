//! The options, and what they ask for.

use super::rescue::{Check, Copy};
use super::token::Token;
use super::units;
use clap::{Args, Parser, Subcommand};
use longhaul_broker::{AuthConfig, BrokerConfig, TlsConfig, TokenKey};
use std::net::SocketAddr;
use std::path::PathBuf;

/// A durable broker for one machine that speaks the Apache Pulsar binary protocol.
///
/// Any Pulsar client of any language publishes to it and consumes from it. Everything is kept in one directory. SIGTERM or
/// Ctrl-C stops it; nothing that was confirmed is lost, whichever way it ends.
#[derive(Debug, Parser)]
#[command(name = "longhaul-broker", version, args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    broker: BrokerArguments,
}

/// What the program does instead of being a broker.
#[derive(Debug, Subcommand)]
enum Command {
    /// Makes secrets, and tokens that are signed with them.
    #[command(subcommand)]
    Token(Token),
    /// Reads a data directory that no broker uses, and says what is damaged in it and what that costs. Changes nothing. Exits with 0 if it is sound, 1 if it is damaged, 2 if it cannot be read.
    Check(Check),
    /// Makes a new data directory of everything that can be read of a damaged one, which is not changed, and says what is lost. Exits with 0 if nothing was damaged, 1 if something was, 2 if the new directory could not be made.
    Salvage(Copy),
    /// Makes a copy of a data directory while a broker uses it, with everything that was confirmed before: hard links where they serve, and SHA256SUMS, a list of all files. The copy is checked. Exits with 0 if it is sound, 1 if the directory is damaged and the copy has all that can be read of it, 2 if it could not be made.
    Snapshot(Copy),
}

/// What is asked of the program.
#[derive(Debug)]
pub(crate) enum Wish {
    /// To be a broker.
    Serve(Box<BrokerConfig>),
    /// To make something about tokens.
    Token(Token),
    /// To read a data directory.
    Check(Check),
    /// To make a new data directory of a damaged one.
    Salvage(Copy),
    /// To copy a data directory that is in use.
    Snapshot(Copy),
}

impl Arguments {
    /// What they ask for.
    ///
    /// # Errors
    /// When a key cannot be read.
    pub(crate) fn wish(self) -> anyhow::Result<Wish> {
        match self.command {
            Some(Command::Token(token)) => Ok(Wish::Token(token)),
            Some(Command::Check(check)) => Ok(Wish::Check(check)),
            Some(Command::Salvage(copy)) => Ok(Wish::Salvage(copy)),
            Some(Command::Snapshot(copy)) => Ok(Wish::Snapshot(copy)),
            None => Ok(Wish::Serve(Box::new(self.broker.config()?))),
        }
    }
}

#[derive(Debug, Args)]
struct BrokerArguments {
    /// Directory that everything is kept in; made if it does not exist. Without it nothing is kept: all data are gone when the broker stops.
    #[arg(long, env = "LONGHAUL_BROKER_DATA", value_name = "DIR")]
    data: Option<PathBuf>,
    /// Address for clients, by number or name. Port 0 takes a free one.
    #[arg(
        long,
        env = "LONGHAUL_BROKER_LISTEN",
        value_name = "HOST:PORT",
        value_parser = units::address,
        default_value = "127.0.0.1:6650"
    )]
    listen: SocketAddr,
    /// Address of the admin interface, which is Pulsar's as far as it goes, and of the metrics under /metrics.
    #[arg(
        long,
        env = "LONGHAUL_BROKER_ADMIN",
        value_name = "HOST:PORT",
        value_parser = units::address,
        default_value = "127.0.0.1:8080"
    )]
    admin: SocketAddr,
    /// Address of the admin interface for those who encrypt, with the certificate that clients are shown.
    #[arg(
        long,
        value_name = "HOST:PORT",
        value_parser = units::address,
        requires = "tls_certificates",
        requires = "tls_key"
    )]
    admin_tls: Option<SocketAddr>,
    /// Name by which the admin interface may be asked for besides localhost, --advertised-host and the number of its address, for a proxy in front of
    /// it; may be given several times.
    #[arg(long, value_name = "HOST")]
    admin_host: Vec<String>,
    /// Address for clients that encrypt.
    #[arg(
        long,
        value_name = "HOST:PORT",
        value_parser = units::address,
        requires = "tls_certificates",
        requires = "tls_key"
    )]
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
    /// Secret that tokens are signed with: a file, or data:;base64,… See `longhaul-broker token`.
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
    /// Role that may see all metrics and the statistics of all topics, and nothing else; may be given several times.
    #[arg(long, value_name = "ROLE")]
    monitor: Vec<String>,
    /// Lets every role publish and consume in a namespace where nobody was ever granted anything. Otherwise a role that is no superuser needs a grant.
    #[arg(long)]
    open_namespaces: bool,
    /// Bytes on disk beyond which publishes are refused, such as 512M or 10G.
    #[arg(long, value_name = "BYTES", value_parser = units::bytes)]
    disk_bytes_max: Option<u64>,
    /// Largest message in bytes.
    #[arg(long, value_name = "BYTES", value_parser = units::memory_bytes, default_value = "5M")]
    message_bytes_max: usize,
    /// Connections at a time.
    #[arg(long, value_name = "COUNT", default_value_t = 10_000)]
    connections_max: usize,
}

impl BrokerArguments {
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
        let (monitors, open_namespaces) =
            (self.monitor.into_iter().collect(), self.open_namespaces);
        let superusers = self.superuser.into_iter().collect();
        Ok(BrokerConfig {
            data: self.data,
            listen: self.listen,
            listen_tls: self.listen_tls,
            admin: Some(self.admin),
            admin_tls: self.admin_tls,
            admin_hosts: self.admin_host,
            advertised_host: self.advertised_host,
            tls,
            auth: key.map(|key| AuthConfig {
                monitors,
                open_namespaces,
                ..AuthConfig::new(key, superusers)
            }),
            disk_bytes_max: self.disk_bytes_max,
            message_bytes_max: self.message_bytes_max,
            connections_max: self.connections_max,
            ..BrokerConfig::default()
        })
    }
}
