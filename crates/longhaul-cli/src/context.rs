//! The context of every command: settings, output, and a client that connects on demand.

use crate::connect;
use crate::exit::{Code, CommandFailure};
use crate::output::Output;
use crate::service::gateway::{GatewayClient, Patience};
use crate::settings::CliSettings;
use crate::telemetry;
use longhaul::Client;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct CommandContext {
    pub(crate) settings: CliSettings,
    pub(crate) output: Output,
    /// The time limit of the command.
    pub(crate) timeout: Option<Duration>,
    /// The settings on the command line, by name.
    pub(crate) flags: Vec<(&'static str, String)>,
    yes: bool,
}

impl CommandContext {
    /// # Errors
    /// When a setting is invalid.
    pub(crate) fn new(flags: Vec<(&'static str, String)>) -> Result<Self, anyhow::Error> {
        let settings = CliSettings::read(&flags, |name| std::env::var(name).ok())?;
        let format = settings.parsed("output", str::parse)?.unwrap_or(crate::output::Format::Table);
        let quiet = settings.is("quiet")?;
        let output = Output::new(format, quiet, settings.text("color").unwrap_or("auto"))?;
        let timeout = settings.duration("timeout")?;
        settings.parsed("log-format", telemetry::format)?;
        settings.parsed("log", telemetry::filter)?;
        let yes = settings.is("yes")?;
        Ok(Self { settings, output, timeout, flags, yes })
    }

    /// A connected client.
    ///
    /// # Errors
    /// When a setting is invalid, or the broker cannot be reached.
    pub(crate) async fn client(&self) -> anyhow::Result<Client> {
        Ok(connect::builder(&self.settings)?.connect().await?)
    }

    /// What the commands ask: the gateway if one is configured, or the same API on a client of the
    /// broker.
    ///
    /// # Errors
    /// When a setting is invalid, or the broker cannot be reached.
    pub(crate) async fn service(&self) -> anyhow::Result<GatewayClient> {
        let limit = self.settings.duration("reconnect-timeout")?.unwrap_or_default();
        let patience = Patience { limit, output: self.output };
        let Some(gateway) = GatewayClient::of(&self.settings, patience)? else {
            return GatewayClient::in_process(self.client().await?, patience);
        };
        if let Some(host) = gateway.eavesdropped() {
            self.output.note(&format!("note: the token goes to {host} unencrypted: use https://"));
        }
        Ok(gateway)
    }

    /// Refuses a command that needs the broker.
    ///
    /// # Errors
    /// When a gateway is configured.
    pub(crate) fn needs_broker(&self, what: &str) -> Result<(), CommandFailure> {
        if self.settings.text("gateway").is_none() {
            return Ok(());
        }
        Err(CommandFailure::usage(format!("{what} needs the broker, but a gateway is set"))
            .help("use --service-url instead of --gateway"))
    }

    /// The reason for an action.
    pub(crate) fn reason(&self) -> &str {
        self.settings.text("reason").unwrap_or_default()
    }

    /// Asks for confirmation before a large change.
    ///
    /// # Errors
    /// When the answer is no, or nobody can answer and `--yes` is not set.
    pub(crate) fn confirm(&self, what: &str) -> Result<(), CommandFailure> {
        if self.yes {
            return Ok(());
        }
        let refused = || CommandFailure::new(Code::Usage, "nothing was changed");
        if !io::stdin().is_terminal() {
            return Err(CommandFailure::usage(format!("{what}: cannot ask without a terminal"))
                .help("confirm with --yes"));
        }
        // With a closed standard error the answer will be no.
        write!(io::stderr().lock(), "{} [y/N] ", crate::output::text::line(what)).ok();
        let mut answer = String::new();
        io::stdin().read_line(&mut answer).map_err(|_| refused())?;
        if matches!(answer.trim(), "y" | "Y" | "yes") { Ok(()) } else { Err(refused()) }
    }
}
