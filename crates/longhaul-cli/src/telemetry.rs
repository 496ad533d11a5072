//! Where the log goes: to standard error, in text or JSON.

use crate::context::CommandContext;
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// A filter of the log.
///
/// # Errors
/// When it is none.
pub(crate) fn filter(text: &str) -> Result<EnvFilter, String> {
    let help = "expected a level or targets with levels, such as `info` or `longhaul=debug`";
    EnvFilter::try_new(text).map_err(|error| format!("{error}; {help}"))
}

/// Whether the log is written as JSON.
///
/// # Errors
/// When the word is none of the two.
pub(crate) fn format(text: &str) -> Result<bool, String> {
    match text {
        "text" => Ok(false),
        "json" => Ok(true),
        _ => Err("expected text or json".to_owned()),
    }
}

/// Starts the log, with this filter where nobody says another one.
pub(crate) fn start(context: &CommandContext, usual: &str) {
    let said = context.settings.text("log").map(filter);
    let rust_log = || std::env::var("RUST_LOG").ok().filter(|it| !it.is_empty());
    // It may be meant for other programs.
    let filter = said.or_else(|| rust_log().map(|it| filter(&it))).unwrap_or_else(|| filter(usual));
    let filter = filter.unwrap_or_else(|error| {
        context.output.note(&format!("note: the log's filter cannot be used: {error}"));
        EnvFilter::new(usual)
    });
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // Whoever has started a log before us keeps it.
    if context.settings.text("log-format").map(format) == Some(Ok(true)) {
        log.json().try_init().ok();
    } else {
        let is_terminal = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        log.with_ansi(is_terminal).try_init().ok();
    }
}
