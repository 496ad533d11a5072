//! The options of `longhaul dev` and `longhaul server start`. Each is a setting, like the global
//! ones.

use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longhaul dev
  longhaul dev --data ./data --demo
  longhaul dev --http 127.0.0.1:0 --broker 127.0.0.1:0 --admin 127.0.0.1:0 -o jsonl")]
pub(crate) struct Dev {
    #[command(flatten)]
    listen: Listen,
    /// Start a worker with sample tasks on the queue `demo`, which show progress, failure and
    /// retry. New ones follow until the server ends.
    #[arg(long)]
    pub(super) demo: bool,
    /// End also when standard input ends. A program that starts this one with a pipe, such as a
    /// test run, takes it along, however it dies.
    #[arg(long)]
    pub(super) until_stdin_closes: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longhaul server start --data /var/lib/longhaul
  longhaul server start --engine pulsar --service-url pulsar://pulsar:6650 \
    --admin-url http://pulsar:8080
  longhaul server start --engine pulsar --http 0.0.0.0:7070 --http-tokens /etc/longhaul/tokens.json
  longhaul server start --data /var/lib/longhaul --webhook-allow https://hooks.example.com \
    --webhook-secret-file /etc/longhaul/webhook-secret")]
pub(crate) struct ServerStartArgs {
    /// Store the tasks in this engine: embedded (a broker in this process, which needs --data; the
    /// default) or pulsar (at --service-url).
    #[arg(long, value_name = "ENGINE")]
    engine: Option<String>,
    #[command(flatten)]
    listen: Listen,
    /// Tenant and namespace of the gateway's queues. Default: public/default.
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
    /// Accept callers with a token of this file, which is read again when it changes.
    #[arg(long, value_name = "FILE")]
    http_tokens: Option<String>,
    /// Allow the gateway to listen beyond this machine without authentication.
    #[arg(long)]
    insecure: bool,
    /// Serve HTTPS with the certificate in this PEM file.
    #[arg(long, value_name = "FILE")]
    http_certificate_file: Option<String>,
    /// Private key of --http-certificate-file, as PEM.
    #[arg(long, value_name = "FILE")]
    http_key_file: Option<String>,
    /// Accept callers with a client certificate of the authorities in this PEM file.
    #[arg(long, value_name = "FILE")]
    http_client_authorities: Option<String>,
    /// Accept requests for these host names or IP addresses, separated by commas.
    #[arg(long, value_name = "HOSTS")]
    http_hosts: Option<String>,
    /// Accept requests of web pages from these origins, separated by commas.
    #[arg(long, value_name = "ORIGINS")]
    http_origins: Option<String>,
    /// Limit the requests of each caller, such as 100/1s, or 100/1s,burst=200. Default: no limit.
    #[arg(long, value_name = "RATE")]
    rate_limit: Option<String>,
    /// Let requests wait this long for a broker that is away; after that, they get 503 at once.
    /// Default: 2s.
    #[arg(long, value_name = "TIME")]
    broker_grace: Option<String>,
    /// Close a connection that is idle for this time. Default: 10s. Set it longer than the idle
    /// time of a balancer in front, or the balancer meets closed connections.
    #[arg(long, value_name = "TIME")]
    http_idle_time: Option<String>,
    /// Accept at most this many connections of one address. Default: three quarters of all.
    /// Loopback has no limit. A balancer on another machine has one address for all its clients.
    #[arg(long, value_name = "COUNT")]
    http_connections_per_address: Option<String>,
    /// Show payloads and results only to tokens with the scope admin, and to workers with their
    /// leases.
    #[arg(long)]
    hide_payloads: bool,
    /// Count the tasks of these queues, separated by commas, in the metrics: for an autoscaler of
    /// their workers.
    #[arg(long, value_name = "QUEUES")]
    measure: Option<String>,
    /// Call webhooks, the URLs in the settings of queues, at this origin, such as
    /// https://hooks.example.com. Separate several by commas, or repeat the option.
    #[arg(long, value_name = "ORIGIN")]
    webhook_allow: Vec<String>,
    /// Sign webhook calls with the secret in this file: at least 24 bytes, or whsec_ and their
    /// base64. The file is read again when it changes.
    #[arg(long, value_name = "FILE")]
    webhook_secret_file: Option<String>,
    /// Serve the web pages at /ui: on (the default), read-only (they change nothing) or off.
    #[arg(long, value_name = "HOW")]
    dashboard: Option<String>,
    /// Limit an orderly shutdown to this time. Default: 30s.
    #[arg(long, value_name = "TIME")]
    drain: Option<String>,
    // Last: later options would appear in its group of the help.
    #[command(flatten)]
    secured: Secured,
}

/// The embedded broker for clients on other machines.
#[derive(Debug, Args)]
#[command(next_help_heading = "Embedded broker")]
pub(in crate::commands) struct Secured {
    /// Listen here for the admin API with TLS.
    #[arg(long, value_name = "HOST:PORT")]
    admin_tls: Option<String>,
    /// Accept requests for these host names at the admin API, separated by commas: for a proxy in
    /// front of it.
    #[arg(long, value_name = "HOSTS")]
    admin_hosts: Option<String>,
    /// Advertise this host to clients.
    #[arg(long, value_name = "HOST")]
    broker_host: Option<String>,
    /// Verify the tokens of clients with this secret: a file, or data:;base64,… `longhaul token
    /// secret` creates one.
    #[arg(long, value_name = "KEY")]
    broker_token_secret: Option<String>,
    /// Accept only tokens of clients for this audience (claim `aud`). Default: any.
    #[arg(long, value_name = "NAME")]
    broker_token_audience: Option<String>,
    /// Let these roles, separated by commas, do everything.
    #[arg(long, value_name = "ROLES")]
    broker_superusers: Option<String>,
    /// Let these roles, separated by commas, read the metrics and the statistics of all topics.
    #[arg(long, value_name = "ROLES")]
    broker_monitors: Option<String>,
    /// Read more superusers and monitors, and revoked roles and tokens, from this JSON file. It is
    /// read again when it changes.
    #[arg(long, value_name = "FILE")]
    broker_roles: Option<String>,
    /// Let every role publish and consume in a namespace that has never had a grant.
    #[arg(long)]
    broker_open_namespaces: bool,
    /// Listen here for clients with TLS.
    #[arg(long, value_name = "HOST:PORT")]
    broker_tls: Option<String>,
    /// Certificate of the broker, as PEM.
    #[arg(long, value_name = "FILE")]
    broker_certificate_file: Option<String>,
    /// Private key of --broker-certificate-file, as PEM.
    #[arg(long, value_name = "FILE")]
    broker_key_file: Option<String>,
    /// Require a certificate of the authorities in this PEM file from clients with TLS.
    #[arg(long, value_name = "FILE")]
    broker_client_authorities: Option<String>,
    /// Keep a copy of the data, about a second behind, in a directory or at s3://BUCKET/FOLDER.
    /// `longhaul broker restore` creates a data directory from it.
    #[arg(long, value_name = "PLACE")]
    broker_backup: Option<String>,
    /// Allow restores to any time this far back. Default: 1d.
    #[arg(long, value_name = "DURATION")]
    broker_backup_keep: Option<String>,
    /// Read the data that rests on the disk this often, at 20 MiB a second, and report damage; 0s:
    /// never. Default: 7d.
    #[arg(long, value_name = "DURATION")]
    broker_scrub_every: Option<String>,
    /// Refuse publishes while the log on disk is larger than this, such as 512M or 10G; at least
    /// 256M. Default: no limit.
    #[arg(long, value_name = "BYTES")]
    broker_disk_bytes_max: Option<String>,
    /// Refuse larger messages than this, such as 512K. Default: 5M.
    #[arg(long, value_name = "BYTES")]
    broker_message_bytes_max: Option<String>,
    /// Accept at most this many client connections. Default: 10000.
    #[arg(long, value_name = "COUNT")]
    broker_connections_max: Option<String>,
}

#[derive(Debug, Args)]
struct Listen {
    /// Keep all data in this directory, which is created if it does not exist. Without it,
    /// `longhaul dev` deletes all data at the end.
    #[arg(long, value_name = "DIR")]
    data: Option<String>,
    /// Listen here for HTTP. Default: 127.0.0.1:7070.
    #[arg(long, value_name = "HOST:PORT")]
    http: Option<String>,
    /// Listen here for Pulsar clients of the embedded broker. Default: 127.0.0.1:6650.
    #[arg(long, value_name = "HOST:PORT")]
    broker: Option<String>,
    /// Listen here for the embedded broker's admin API and metrics. Default: 127.0.0.1:7071.
    #[arg(long, value_name = "HOST:PORT")]
    admin: Option<String>,
    /// Serve the routes of another task queue as well: jobs (a job queue in Go) or dqueue (DQueue).
    /// Separate both by a comma, or repeat the option.
    #[arg(long, value_name = "DIALECTS", value_delimiter = ',', value_parser = ["jobs", "dqueue"])]
    #[arg(hide_possible_values = true)]
    dialect: Vec<String>,
    /// Use this queue for the --dialect routes, created if it does not exist. Default: `default`.
    #[arg(long, value_name = "QUEUE")]
    dialect_queue: Option<String>,
}
