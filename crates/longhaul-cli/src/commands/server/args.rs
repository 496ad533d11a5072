//! The options of `longhaul dev` and `longhaul server start`. Each is a setting, like the global
//! ones.

use crate::globals::FlagValues;
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
    /// Adds a worker with sample tasks on the queue `demo`, which show progress, failure and retry.
    /// More of them follow for as long as it runs.
    #[arg(long)]
    pub(super) demo: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longhaul server start --data /var/lib/longhaul
  longhaul server start --engine pulsar --service-url pulsar://pulsar:6650 --admin-url http://pulsar:8080
  longhaul server start --engine pulsar --http 0.0.0.0:7070 --http-tokens /etc/longhaul/tokens.json
  longhaul server start --data /var/lib/longhaul --webhook-allow https://hooks.example.com --webhook-secret-file /etc/longhaul/webhook-secret")]
pub(crate) struct ServerStartArgs {
    /// What keeps the tasks: embedded (a broker in this process; the default, which needs --data)
    /// or pulsar (at --service-url).
    #[arg(long, value_name = "ENGINE")]
    engine: Option<String>,
    #[command(flatten)]
    listen: Listen,
    /// Tenant and namespace of Pulsar that hold the queues; public/default if it is not said.
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
    /// The file of the tokens that let callers in; it is read again when it changes.
    #[arg(long, value_name = "FILE")]
    http_tokens: Option<String>,
    /// Listens beyond this machine and lets everybody in.
    #[arg(long)]
    insecure: bool,
    /// The certificate of the gateway, as PEM.
    #[arg(long, value_name = "FILE")]
    http_certificate_file: Option<String>,
    /// Its key, as PEM.
    #[arg(long, value_name = "FILE")]
    http_key_file: Option<String>,
    /// The authorities whose client certificates let callers in, as PEM.
    #[arg(long, value_name = "FILE")]
    http_client_authorities: Option<String>,
    /// Names by which the gateway may be asked for, with commas in between.
    #[arg(long, value_name = "HOSTS")]
    http_hosts: Option<String>,
    /// Origins of web pages that may use the gateway, with commas in between.
    #[arg(long, value_name = "ORIGINS")]
    http_origins: Option<String>,
    /// How many requests each caller may make, such as 100/1s, or 100/1s,burst=200.
    #[arg(long, value_name = "RATE")]
    rate_limit: Option<String>,
    /// How long requests wait for a broker that is away; then they are answered with 503 at once.
    #[arg(long, value_name = "TIME")]
    broker_grace: Option<String>,
    /// How long a connection may be idle; 10s by default. Longer than that of a balancer in front
    /// of the gateway, or the balancer meets closed connections.
    #[arg(long, value_name = "TIME")]
    http_idle_time: Option<String>,
    /// Largest number of connections of one address; three quarters of all by default. Loopback
    /// has no limit. A balancer on another machine has one address for all its clients.
    #[arg(long, value_name = "COUNT")]
    http_connections_per_address: Option<String>,
    /// Shows payloads and results to tokens with the scope admin alone, and to workers with their
    /// leases.
    #[arg(long)]
    hide_payloads: bool,
    /// Queues whose tasks are counted for the metrics, with commas in between: for an autoscaler of
    /// their workers.
    #[arg(long, value_name = "QUEUES")]
    measure: Option<String>,
    /// Origins that webhooks may call, such as https://hooks.example.com; several with commas in
    /// between, or by saying it twice. With it the gateway calls the URLs in the settings of queues.
    #[arg(long, value_name = "ORIGIN")]
    webhook_allow: Vec<String>,
    /// The file of the secret that signs these calls: at least 24 bytes, or whsec_ and their
    /// base64. It is read again when it changes.
    #[arg(long, value_name = "FILE")]
    webhook_secret_file: Option<String>,
    /// The web pages at /ui: on (the default), read-only (they show and change nothing) or off.
    #[arg(long, value_name = "HOW")]
    dashboard: Option<String>,
    /// How long it may take to end in order; 30s if it is not said.
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
    /// Where its admin API listens for those who encrypt.
    #[arg(long, value_name = "HOST:PORT")]
    admin_tls: Option<String>,
    /// Names by which its admin API may be asked for, with commas in between: for a proxy in front
    /// of it.
    #[arg(long, value_name = "HOSTS")]
    admin_hosts: Option<String>,
    /// The host that clients are told to connect to.
    #[arg(long, value_name = "HOST")]
    broker_host: Option<String>,
    /// The secret that tokens of clients are signed with: a file, or data:;base64,…
    /// `longhaul token secret` makes one.
    #[arg(long, value_name = "KEY")]
    broker_token_secret: Option<String>,
    /// The audience that tokens of clients must name (claim `aud`).
    #[arg(long, value_name = "NAME")]
    broker_token_audience: Option<String>,
    /// Roles that may do everything, with commas in between.
    #[arg(long, value_name = "ROLES")]
    broker_superusers: Option<String>,
    /// Roles that may see its metrics and the statistics of all topics, with commas in between.
    #[arg(long, value_name = "ROLES")]
    broker_monitors: Option<String>,
    /// A JSON file with more of both, and with revoked roles and tokens; it is read again when it
    /// changes.
    #[arg(long, value_name = "FILE")]
    broker_roles: Option<String>,
    /// Lets every role publish and consume in a namespace where nobody was ever granted anything.
    #[arg(long)]
    broker_open_namespaces: bool,
    /// Where it listens for clients that encrypt.
    #[arg(long, value_name = "HOST:PORT")]
    broker_tls: Option<String>,
    /// Its certificate, as PEM.
    #[arg(long, value_name = "FILE")]
    broker_certificate_file: Option<String>,
    /// The key of the certificate, as PEM.
    #[arg(long, value_name = "FILE")]
    broker_key_file: Option<String>,
    /// Authorities of client certificates, as PEM. With them, clients that use TLS must show a
    /// certificate.
    #[arg(long, value_name = "FILE")]
    broker_client_authorities: Option<String>,
    /// Keeps a copy of its data in a directory or in S3, about a second behind: a path, or
    /// s3://BUCKET/FOLDER. `longhaul broker restore` makes a data directory of it.
    #[arg(long, value_name = "PLACE")]
    broker_backup: Option<String>,
    /// How far back the copy can be restored; 1d by default.
    #[arg(long, value_name = "DURATION")]
    broker_backup_keep: Option<String>,
    /// Size of the log on disk above which the broker refuses publishes, such as 512M or 10G. At
    /// least 256M.
    #[arg(long, value_name = "BYTES")]
    broker_disk_bytes_max: Option<String>,
    /// Largest message, such as 512K; 5M by default.
    #[arg(long, value_name = "BYTES")]
    broker_message_bytes_max: Option<String>,
    /// Largest number of client connections; 10000 by default.
    #[arg(long, value_name = "COUNT")]
    broker_connections_max: Option<String>,
}

impl Secured {
    /// The settings from its options.
    pub(in crate::commands) fn said(&self) -> FlagValues<'_> {
        let mut said = given(&[
            ("admin-tls", &self.admin_tls),
            ("admin-hosts", &self.admin_hosts),
            ("broker-host", &self.broker_host),
            ("broker-token-secret", &self.broker_token_secret),
            ("broker-token-audience", &self.broker_token_audience),
            ("broker-superusers", &self.broker_superusers),
            ("broker-monitors", &self.broker_monitors),
            ("broker-roles", &self.broker_roles),
            ("broker-tls", &self.broker_tls),
            ("broker-certificate-file", &self.broker_certificate_file),
            ("broker-key-file", &self.broker_key_file),
            ("broker-client-authorities", &self.broker_client_authorities),
            ("broker-backup", &self.broker_backup),
            ("broker-backup-keep", &self.broker_backup_keep),
            ("broker-disk-bytes-max", &self.broker_disk_bytes_max),
            ("broker-message-bytes-max", &self.broker_message_bytes_max),
            ("broker-connections-max", &self.broker_connections_max),
        ]);
        said.extend(self.broker_open_namespaces.then_some(("broker-open-namespaces", "true")));
        said
    }
}

#[derive(Debug, Args)]
struct Listen {
    /// The directory that everything is kept in; made if it does not exist. `longhaul dev` does
    /// without, and loses everything at its end.
    #[arg(long, value_name = "DIR")]
    data: Option<String>,
    /// Where the gateway listens; 127.0.0.1:7070 if it is not said.
    #[arg(long, value_name = "HOST:PORT")]
    http: Option<String>,
    /// Where the embedded broker listens for clients of Pulsar; 127.0.0.1:6650 if it is not said.
    #[arg(long, value_name = "HOST:PORT")]
    broker: Option<String>,
    /// Where the embedded broker's admin API and its metrics are; 127.0.0.1:7071 if it is not said.
    #[arg(long, value_name = "HOST:PORT")]
    admin: Option<String>,
    /// Routes of another task queue that are served as well: 001 or 002; both with a comma, or by
    /// saying it twice.
    #[arg(long, value_name = "DIALECTS")]
    dialect: Vec<String>,
    /// The queue of these routes, which is made if there is none; `default` if it is not said.
    #[arg(long, value_name = "QUEUE")]
    dialect_queue: Option<String>,
}

pub(in crate::commands) fn given<'a>(
    texts: &[(&'static str, &'a Option<String>)],
) -> FlagValues<'a> {
    texts.iter().filter_map(|(name, text)| Some((*name, text.as_deref()?))).collect()
}

impl Listen {
    fn said(&self) -> FlagValues<'_> {
        let mut said = given(&[
            ("data", &self.data),
            ("http", &self.http),
            ("broker", &self.broker),
            ("admin", &self.admin),
            ("dialect-queue", &self.dialect_queue),
        ]);
        said.extend(self.dialect.iter().map(|it| ("dialect", it.as_str())));
        said
    }
}

impl Dev {
    /// The flags that were given.
    pub(super) fn said(&self) -> FlagValues<'_> {
        self.listen.said()
    }
}

impl ServerStartArgs {
    /// The flags that were given.
    pub(super) fn said(&self) -> FlagValues<'_> {
        let mut said = self.listen.said();
        said.extend(given(&[
            ("engine", &self.engine),
            ("namespace", &self.namespace),
            ("http-tokens", &self.http_tokens),
            ("http-certificate-file", &self.http_certificate_file),
            ("http-key-file", &self.http_key_file),
            ("http-client-authorities", &self.http_client_authorities),
            ("http-hosts", &self.http_hosts),
            ("http-origins", &self.http_origins),
            ("rate-limit", &self.rate_limit),
            ("broker-grace", &self.broker_grace),
            ("http-idle-time", &self.http_idle_time),
            ("http-connections-per-address", &self.http_connections_per_address),
            ("measure", &self.measure),
            ("webhook-secret-file", &self.webhook_secret_file),
            ("dashboard", &self.dashboard),
            ("drain", &self.drain),
        ]));
        said.extend(self.webhook_allow.iter().map(|it| ("webhook-allow", it.as_str())));
        said.extend(self.secured.said());
        said.extend(self.insecure.then_some(("insecure", "true")));
        said.extend(self.hide_payloads.then_some(("hide-payloads", "true")));
        said
    }
}
