//! The options of every command. Each is a setting that the environment, a context or the file may
//! set as well, so they are unparsed texts here. `settings/` reads them by their names.

use clap::Args;

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Globals {
    /// Print results as table (the default), json (one document) or jsonl (one document per line).
    #[arg(short, long, global = true, value_name = "FORMAT", help_heading = OUTPUT)]
    output: Option<String>,
    /// Print only results: no notes, no progress bars, and only the first column of tables.
    #[arg(short, long, global = true, help_heading = OUTPUT)]
    quiet: bool,
    /// Use colours: auto (on a terminal, unless NO_COLOR is set; the default), always or never.
    #[arg(long, global = true, value_name = "WHEN", help_heading = OUTPUT, hide_short_help = true)]
    color: Option<String>,
    /// Filter the log on standard error, such as `info` or `longhaul=debug`. Default: RUST_LOG, or
    /// else errors for commands, warnings for `dev`, and `info` for other services.
    #[arg(long, global = true, value_name = "FILTER", help_heading = OUTPUT, hide_short_help = true)]
    log: Option<String>,
    /// Write the log as text (the default) or json.
    #[arg(long, global = true, value_name = "FORMAT", help_heading = OUTPUT, hide_short_help = true)]
    log_format: Option<String>,
    /// Do not ask before deletions and bulk changes. Required without a terminal.
    #[arg(short, long, global = true, help_heading = ACTING)]
    yes: bool,
    /// Record this reason for the action. `queue actions` and `task history` show it.
    #[arg(long, global = true, value_name = "TEXT", help_heading = ACTING)]
    reason: Option<String>,
    /// Record this name as the operator. Default: your user on this machine.
    #[arg(long, global = true, value_name = "NAME", help_heading = ACTING, hide_short_help = true)]
    operator: Option<String>,
    /// End the command after this time (30s, 5m, PT1H) with exit code 124. Default: no limit.
    #[arg(long, global = true, value_name = "TIME", help_heading = ACTING)]
    timeout: Option<String>,
    /// Let `wait` and `watch` continue for this time while the gateway or the broker is away; 0s
    /// ends them at once. Default: 5m.
    #[arg(long, global = true, value_name = "TIME", help_heading = ACTING, hide_short_help = true)]
    reconnect_timeout: Option<String>,
    /// Use the settings of this context (see `longhaul context`). Default: the selected one.
    #[arg(long, global = true, value_name = "NAME", help_heading = CONNECTION)]
    context: Option<String>,
    /// Use the gateway at http://HOST:PORT instead of the broker.
    #[arg(long, global = true, value_name = "URL", help_heading = CONNECTION)]
    gateway: Option<String>,
    /// Connect to the brokers at pulsar://HOST:PORT or pulsar+ssl://HOST:PORT. Default: the broker
    /// of `longhaul dev`.
    #[arg(long, global = true, value_name = "URL", help_heading = CONNECTION)]
    service_url: Option<String>,
    /// Use Pulsar's admin API at http://HOST:PORT. Default, without a service URL: that of
    /// `longhaul dev`.
    #[arg(long, global = true, value_name = "URL", help_heading = CONNECTION)]
    admin_url: Option<String>,
    /// Use this subscription of the queue's workers. Default: longhaul.
    #[arg(long, global = true, value_name = "NAME", help_heading = CONNECTION, hide_short_help = true)]
    subscription: Option<String>,
    /// Authenticate with the token in this file, which is read again for each connection.
    #[arg(long, global = true, value_name = "FILE", help_heading = CONNECTION, hide_short_help = true)]
    token_file: Option<String>,
    /// Authenticate by token, tls, basic or oauth2, or by a class of Pulsar's Java client.
    #[arg(long, global = true, value_name = "NAME", help_heading = CONNECTION, hide_short_help = true)]
    auth_plugin: Option<String>,
    /// Parameters of --auth-plugin, in the form of Pulsar's tools. LONGHAUL_AUTH_PARAMS_FILE is
    /// safer: other users can see command lines.
    #[arg(long, global = true, value_name = "TEXT", help_heading = CONNECTION, hide_short_help = true)]
    auth_params: Option<String>,
    /// Trust the certificate authorities in this PEM file in addition to the system's.
    #[arg(long, global = true, value_name = "FILE", help_heading = CONNECTION, hide_short_help = true)]
    tls_trust_certs_file: Option<String>,
    /// Present the certificate in this PEM file.
    #[arg(long, global = true, value_name = "FILE", help_heading = CONNECTION, hide_short_help = true)]
    tls_certificate_file: Option<String>,
    /// Private key of --tls-certificate-file, as PEM.
    #[arg(long, global = true, value_name = "FILE", help_heading = CONNECTION, hide_short_help = true)]
    tls_key_file: Option<String>,
    /// Use the address that brokers advertise under this listener name.
    #[arg(long, global = true, value_name = "NAME", help_heading = CONNECTION, hide_short_help = true)]
    listener_name: Option<String>,
}

const OUTPUT: &str = "Output";
const ACTING: &str = "Acting";
const CONNECTION: &str = "Connection";
