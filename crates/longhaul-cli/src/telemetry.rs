//! The log: to standard error, as text or JSON.

use crate::context::CommandContext;
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// Parses a log filter.
///
/// # Errors
/// When it is invalid.
pub(crate) fn filter(text: &str) -> Result<EnvFilter, String> {
    let help = "expected a level, or targets with levels, such as `info` or `longhaul=debug`";
    EnvFilter::try_new(text).map_err(|error| format!("{error}; {help}"))
}

/// Whether the log format is JSON.
///
/// # Errors
/// When the format is neither text nor json.
pub(crate) fn format(text: &str) -> Result<bool, String> {
    match text {
        "text" => Ok(false),
        "json" => Ok(true),
        _ => Err("expected text or json".to_owned()),
    }
}

/// Starts the log; `usual` is the default filter.
pub(crate) fn start(context: &CommandContext, usual: &str) {
    let said = context.settings.text("log").map(filter);
    let rust_log = || std::env::var("RUST_LOG").ok().filter(|it| !it.is_empty());
    // `RUST_LOG` may be meant for other programs.
    let filter = said.or_else(|| rust_log().map(|it| filter(&it))).unwrap_or_else(|| filter(usual));
    let filter = filter.unwrap_or_else(|error| {
        context.output.note(&format!("note: the log filter is invalid: {error}"));
        EnvFilter::new(usual)
    });
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // An already started log is kept.
    if context.settings.text("log-format").map(format) == Some(Ok(true)) {
        log.json().try_init().ok();
    } else {
        let is_terminal = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        log.with_ansi(is_terminal).try_init().ok();
    }
}
