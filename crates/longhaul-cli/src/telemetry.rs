//! Where the log goes: to standard error, in text or JSON.

use crate::context::Context;
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// Starts the log, with this filter where nobody says another one.
pub(crate) fn start(context: &Context, usual: &str) {
    let filter = context.settings.text("log").map(str::to_owned);
    let filter = filter.or_else(|| std::env::var("RUST_LOG").ok().filter(|it| !it.is_empty()));
    let filter = filter.unwrap_or_else(|| usual.to_owned());
    let filter = EnvFilter::try_new(&filter).unwrap_or_else(|error| {
        context.output.note(&format!("note: the log's filter `{filter}` cannot be used: {error}"));
        EnvFilter::new(usual)
    });
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // Whoever has started a log before us keeps it.
    if context.settings.text("log-format") == Some("json") {
        log.json().try_init().ok();
    } else {
        let is_terminal = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        log.with_ansi(is_terminal).try_init().ok();
    }
}
