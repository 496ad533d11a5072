//! Runs broker, gateway and perhaps the demo in one process, and ends them.

use super::ServerAddressList;
use super::demo::Demo;
use super::engine::{self, LaunchedBroker};
use super::files;
use crate::exit::{Code, CommandFailure};
use crate::output::Output;
use crate::settings::CliSettings;
use crate::signals::{ShutdownSignals, stdin_closed};
use crate::times;
use longhaul::Client;
use longhaul::topics::TopicNames;
use longhaul_server::{
    Dashboard, Dialect, RateLimit, Server, ServerConfig, ServerConfigError, ServerStartError,
    WebhookConfig,
};
use std::time::Duration;

/// The checked options of the gateway; nothing listens yet.
pub(super) struct GatewayOptions {
    config: ServerConfig,
    drain: Duration,
}

impl GatewayOptions {
    /// Reads and checks the options.
    ///
    /// # Errors
    /// When one of them is invalid.
    pub(super) fn read(settings: &CliSettings) -> Result<Self, CommandFailure> {
        let config = config(settings)?;
        config.check().map_err(|error| refused(&error))?;
        let drain = settings.duration("drain")?.unwrap_or_default();
        if let Some(subscription) = settings.text("subscription") {
            let named = TopicNames::new("tasks", subscription);
            named.map_err(|error| {
                CommandFailure::usage(error.to_string()).help("say --subscription")
            })?;
        }
        Ok(Self { config, drain })
    }

    /// Leaves enough open files for a broker in this process. Returns the number that everything
    /// else may open.
    pub(super) fn share_files(&mut self) -> usize {
        let limits = &mut self.config.limits;
        let limit = longhaul_broker::open_files_max();
        let (connections, all) = files::share(limit, limits.connections, limits.leased_queues);
        limits.connections = connections;
        all
    }
}

/// The error for an invalid setting of the gateway, with the options that fix it.
fn refused(error: &ServerStartError) -> CommandFailure {
    let help = match error {
        ServerStartError::Config(ServerConfigError::OpenToAll(_)) => {
            "authenticate callers with --http-tokens FILE, or with --http-client-authorities FILE \
             and a certificate (`longhaul server start`); keep others out with --http \
             127.0.0.1:7070; or let everybody in with --insecure or LONGHAUL_INSECURE=true"
        }
        ServerStartError::Config(ServerConfigError::Namespace(_)) => "correct --namespace",
        ServerStartError::Config(ServerConfigError::Origin(_)) => "correct --http-origins",
        ServerStartError::Config(ServerConfigError::Queue(_)) => "correct --dialect-queue",
        ServerStartError::Config(
            ServerConfigError::Measured(_) | ServerConfigError::MeasuredMany(_),
        ) => "correct --measure",
        ServerStartError::Config(ServerConfigError::Webhooks(_)) => {
            "check --webhook-allow and --webhook-secret-file"
        }
        ServerStartError::Config(ServerConfigError::Zero("connections_per_address")) => {
            "set --http-connections-per-address to 1 or more"
        }
        ServerStartError::Config(ServerConfigError::Zero(_)) => {
            "set --rate-limit to a rate such as 100/1s"
        }
        ServerStartError::Tokens(_) => {
            "check the file of --http-tokens; docs/http.md shows its format"
        }
        ServerStartError::Tls(_) => {
            "check --http-certificate-file, --http-key-file and --http-client-authorities: they \
             name PEM files"
        }
        ServerStartError::Config(_) | ServerStartError::Listen { .. } => "",
        _ => "",
    };
    let failure = CommandFailure::usage(error.to_string());
    if help.is_empty() { failure } else { failure.help(help) }
}

pub(super) struct RunningServer {
    /// `None` in front of Pulsar.
    broker: Option<LaunchedBroker>,
    server: Server,
    signals: ShutdownSignals,
    drain: Duration,
    has_dashboard: bool,
}

impl RunningServer {
    /// Starts the gateway in front of a running broker, in this process or elsewhere.
    ///
    /// # Errors
    /// When the port is in use.
    pub(super) async fn start(
        GatewayOptions { config, drain }: GatewayOptions,
        broker: Option<LaunchedBroker>,
        client: Client,
    ) -> anyhow::Result<Self> {
        let has_dashboard = config.dashboard != Dashboard::Off;
        let server = match Server::start(client, config).await {
            Ok(server) => server,
            Err(ServerStartError::Listen { address, source }) => {
                return Err(engine::in_use("http", address, &source).into());
            }
            Err(error) => return Err(refused(&error).into()),
        };
        // Install the signal handlers before readiness is reported: a signal may follow at once.
        Ok(Self { broker, server, signals: ShutdownSignals::new()?, drain, has_dashboard })
    }

    pub(super) fn addresses(&self, settings: &CliSettings) -> ServerAddressList {
        let http = self.server.url();
        let dashboard = self.has_dashboard.then(|| format!("{http}/ui"));
        let (broker, admin, data) = match self.broker.as_ref().map(|it| &it.broker) {
            Some(it) => (it.service_url(), it.admin_url(), settings.path("data")),
            None => (settings.text("service-url").unwrap_or_default(), None, None),
        };
        ServerAddressList { http, dashboard, broker: broker.to_owned(), admin, data }
    }

    /// Runs until Ctrl-C or SIGTERM, or perhaps the end of standard input, then drains; a second
    /// signal ends it at once.
    ///
    /// # Errors
    /// When the broker ends by itself.
    pub(super) async fn until_signal(
        self,
        demo: Option<Demo>,
        until_stdin_closes: bool,
        output: &Output,
    ) -> anyhow::Result<()> {
        let Self { broker, server, mut signals, drain: limit, .. } = self;
        tokio::select! {
            () = signals.next() => {}
            () = stdin_closed(), if until_stdin_closes => {}
            error = broken(broker.as_ref()) => return Err(error),
        }
        output.note("stopping; a second signal stops without waiting");
        tokio::select! {
            ended = drain(broker, server, demo, limit) => ended,
            () = signals.next() => {
                let what = "stopped at a second signal, without waiting";
                Err(CommandFailure::new(Code::Failed, what).help("start it again: all confirmed \
                    messages are stored, and other workers take over running tasks").into())
            }
        }
    }
}

/// Waits until the broker ends by itself.
async fn broken(launched: Option<&LaunchedBroker>) -> anyhow::Error {
    let Some(launched) = launched else { return std::future::pending().await };
    match launched.broker.ended().await {
        Ok(()) => anyhow::anyhow!("the broker stopped"),
        Err(error) => anyhow::Error::from(error).context("the broker stopped by itself"),
    }
}

async fn drain(
    broker: Option<LaunchedBroker>,
    server: Server,
    demo: Option<Demo>,
    limit: Duration,
) -> anyhow::Result<()> {
    if let Some(demo) = demo {
        demo.end(limit).await;
    }
    server.drain(limit).await;
    drop(server);
    match broker {
        Some(it) => Ok(tokio::task::spawn_blocking(|| it.shutdown()).await??),
        None => Ok(()),
    }
}

fn config(settings: &CliSettings) -> Result<ServerConfig, CommandFailure> {
    let mut config = ServerConfig::default();
    config.listen = engine::address(settings, "http")?;
    if let Some(namespace) = settings.text("namespace") {
        namespace.clone_into(&mut config.namespace);
    }
    config.token_file = settings.path("http-tokens");
    config.insecure = settings.is("insecure")?;
    config.tls = engine::tls(settings, "http", "gateway")?;
    config.allowed_hosts = engine::list(settings, "http-hosts");
    config.allowed_origins = engine::list(settings, "http-origins");
    config.hide_payloads = settings.is("hide-payloads")?;
    config.measured_queues = engine::list(settings, "measure");
    config.webhooks = webhooks(settings)?;
    config.dashboard = settings.parsed("dashboard", dashboard)?.unwrap_or_default();
    if let Some(grace) = settings.duration("broker-grace")? {
        config.broker_grace = grace;
    }
    if let Some(time) = settings.duration("http-idle-time")? {
        config.limits.header_time = time;
    }
    config.limits.connections_per_address =
        settings.parsed("http-connections-per-address", engine::count)?;
    config.rate_limit = settings.parsed("rate-limit", rate_limit)?;
    config.dialects = settings.parsed("dialect", dialects)?.unwrap_or_default();
    if let Some(queue) = settings.text("dialect-queue") {
        queue.clone_into(&mut config.dialect_queue);
    }
    Ok(config)
}

/// The webhooks, which need both settings.
fn webhooks(settings: &CliSettings) -> Result<Option<WebhookConfig>, CommandFailure> {
    let allow = engine::list(settings, "webhook-allow");
    match (allow.is_empty(), settings.path("webhook-secret-file")) {
        (true, None) => Ok(None),
        (false, Some(secret_file)) => Ok(Some(WebhookConfig { allow, secret_file })),
        _ => Err(CommandFailure::usage("webhooks need allowed origins and a secret")
            .help("set both --webhook-allow and --webhook-secret-file")),
    }
}

/// Parses `100/1s` or `100/1s,burst=200`; the default burst is the number of requests.
fn rate_limit(text: &str) -> Result<RateLimit, String> {
    let help = "expected requests and a time, such as 100/1s or 100/1s,burst=200";
    let (rate, burst) = match text.split_once(',') {
        None => (text, None),
        Some((rate, burst)) => (rate, Some(burst.trim().strip_prefix("burst=").ok_or(help)?)),
    };
    let (requests, per) = times::rate(rate).ok_or(help)??;
    let burst = burst.map_or(Ok(requests), |it| it.trim().parse().map_err(|_| help.to_owned()))?;
    Ok(RateLimit { requests, per, burst })
}

fn dashboard(text: &str) -> Result<Dashboard, String> {
    match text {
        "on" => Ok(Dashboard::On),
        "read-only" => Ok(Dashboard::ReadOnly),
        "off" => Ok(Dashboard::Off),
        _ => Err("expected on, read-only or off".to_owned()),
    }
}

fn dialects(text: &str) -> Result<Vec<Dialect>, String> {
    let one = |text: &str| match text.trim() {
        "jobs" => Ok(Dialect::Jobs),
        "dqueue" => Ok(Dialect::DQueue),
        _ => Err("expected jobs, dqueue or both with a comma".to_owned()),
    };
    text.split(',').map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dashboard_is_on_read_only_or_off() {
        let found = ["on", "read-only", "off"].map(|text| dashboard(text).unwrap());
        assert_eq!(found, [Dashboard::On, Dashboard::ReadOnly, Dashboard::Off]);
        assert!(dashboard("true").is_err() && dashboard("").is_err());
    }

    #[test]
    fn a_rate_limit_has_requests_a_time_and_perhaps_a_burst() {
        for (text, requests, seconds, burst) in [
            ("100/1s", 100, 1, 100),
            ("100/s", 100, 1, 100),
            ("600/1m,burst=50", 600, 60, 50),
            (" 5 / 2m , burst=9 ", 5, 120, 9),
        ] {
            let per = Duration::from_secs(seconds);
            assert_eq!(rate_limit(text), Ok(RateLimit { requests, per, burst }), "{text}");
        }
        for wrong in [
            "",
            "100",
            "100/",
            "/1s",
            "-1/1s",
            "100/1s,",
            "100/1s,200",
            "100/1s,burst=",
            "1/s,burst=a",
        ] {
            assert!(rate_limit(wrong).is_err(), "{wrong}");
        }
    }
}
