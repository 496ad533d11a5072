//! The options of every command. Each is a setting that the environment, a context or the file may
//! set as well (`settings/`), so they are unparsed texts here.

use clap::Args;

/// Settings from flags, by name.
pub(crate) type FlagValues<'a> = Vec<(&'static str, &'a str)>;

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Globals {
    /// How results are written: table, json (one document) or jsonl (one document per line).
    #[arg(short, long, global = true, value_name = "FORMAT", help_heading = OUTPUT)]
    output: Option<String>,
    /// Says results alone: no notes, no progress, and of tables the first column.
    #[arg(short, long, global = true, help_heading = OUTPUT)]
    quiet: bool,
    /// Colours: auto (on a terminal, unless NO_COLOR is set), always or never.
    #[arg(long, global = true, value_name = "WHEN", help_heading = OUTPUT, hide_short_help = true)]
    color: Option<String>,
    /// What is logged to standard error, such as `info` or `longhaul=debug`.
    #[arg(long, global = true, value_name = "FILTER", help_heading = OUTPUT, hide_short_help = true)]
    log: Option<String>,
    /// How it is logged: text or json.
    #[arg(long, global = true, value_name = "FORMAT", help_heading = OUTPUT, hide_short_help = true)]
    log_format: Option<String>,
    /// Does not ask before it deletes or replays many.
    #[arg(short, long, global = true, help_heading = ACTING)]
    yes: bool,
    /// Why you do it: stands in the log of actions, for those who ask later.
    #[arg(long, global = true, value_name = "TEXT", help_heading = ACTING)]
    reason: Option<String>,
    /// Who does it; by default your user at this machine.
    #[arg(long, global = true, value_name = "NAME", help_heading = ACTING, hide_short_help = true)]
    operator: Option<String>,
    /// How long the command may take: 30s, 5m, PT1H. Then it exits with 124.
    #[arg(long, global = true, value_name = "TIME", help_heading = ACTING)]
    timeout: Option<String>,
    /// How long `wait` and `watch` go on while the gateway or the broker is away; 0s: not at all.
    /// Default 5m.
    #[arg(long, global = true, value_name = "TIME", help_heading = ACTING, hide_short_help = true)]
    reconnect_timeout: Option<String>,
    /// The context whose settings are used: see `longhaul context`.
    #[arg(long, global = true, value_name = "NAME", help_heading = CONNECTION)]
    context: Option<String>,
    /// Where a gateway is that is asked in place of the broker: http://HOST:PORT.
    #[arg(long, global = true, value_name = "URL", help_heading = CONNECTION)]
    gateway: Option<String>,
    /// Where brokers are: pulsar://HOST:PORT or pulsar+ssl://HOST:PORT; where `longhaul dev`
    /// listens if it is not said.
    #[arg(long, global = true, value_name = "URL", help_heading = CONNECTION)]
    service_url: Option<String>,
    /// Where Pulsar's admin API is: http://HOST:PORT.
    #[arg(long, global = true, value_name = "URL", help_heading = CONNECTION)]
    admin_url: Option<String>,
    /// The subscription of the workers whose tasks these are.
    #[arg(long, global = true, value_name = "NAME", help_heading = CONNECTION, hide_short_help = true)]
    subscription: Option<String>,
    /// A file with a token, which is read again for each connection.
    #[arg(long, global = true, value_name = "FILE", help_heading = CONNECTION, hide_short_help = true)]
    token_file: Option<String>,
    /// How to authenticate: token, tls, basic or oauth2, or the class of Pulsar's Java client.
    #[arg(long, global = true, value_name = "NAME", help_heading = CONNECTION, hide_short_help = true)]
    auth_plugin: Option<String>,
    /// What that needs, as Pulsar's tools take it. Better in LONGHAUL_AUTH_PARAMS_FILE: others see
    /// command lines.
    #[arg(long, global = true, value_name = "TEXT", help_heading = CONNECTION, hide_short_help = true)]
    auth_params: Option<String>,
    /// Certificate authorities to trust beside those of the system, as PEM.
    #[arg(long, global = true, value_name = "FILE", help_heading = CONNECTION, hide_short_help = true)]
    tls_trust_certs_file: Option<String>,
    /// The certificate to show, as PEM.
    #[arg(long, global = true, value_name = "FILE", help_heading = CONNECTION, hide_short_help = true)]
    tls_certificate_file: Option<String>,
    /// Its key, as PEM.
    #[arg(long, global = true, value_name = "FILE", help_heading = CONNECTION, hide_short_help = true)]
    tls_key_file: Option<String>,
    /// Which of its addresses a broker is to name, where it advertises several.
    #[arg(long, global = true, value_name = "NAME", help_heading = CONNECTION, hide_short_help = true)]
    listener_name: Option<String>,
}

const OUTPUT: &str = "Output";
const ACTING: &str = "Acting";
const CONNECTION: &str = "Connection";

impl Globals {
    /// The flags that were given.
    pub(crate) fn said(&self) -> FlagValues<'_> {
        let texts = [
            ("output", &self.output),
            ("color", &self.color),
            ("log", &self.log),
            ("log-format", &self.log_format),
            ("reason", &self.reason),
            ("operator", &self.operator),
            ("timeout", &self.timeout),
            ("reconnect-timeout", &self.reconnect_timeout),
            ("context", &self.context),
            ("gateway", &self.gateway),
            ("service-url", &self.service_url),
            ("admin-url", &self.admin_url),
            ("subscription", &self.subscription),
            ("token-file", &self.token_file),
            ("auth-plugin", &self.auth_plugin),
            ("auth-params", &self.auth_params),
            ("tls-trust-certs-file", &self.tls_trust_certs_file),
            ("tls-certificate-file", &self.tls_certificate_file),
            ("tls-key-file", &self.tls_key_file),
            ("listener-name", &self.listener_name),
        ];
        let texts = texts.into_iter().filter_map(|(name, text)| Some((name, text.as_deref()?)));
        let marks = [("quiet", self.quiet), ("yes", self.yes)];
        let marks = marks.into_iter().filter(|(_, said)| *said).map(|(name, _)| (name, "true"));
        texts.chain(marks).collect()
    }
}
