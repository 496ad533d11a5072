//! Exit codes and error messages: what failed, why, and what to do.

use crate::output::text::clean;
use anyhow::Error;
use longhaul::topics::{AdminError, AdminErrorKind, SetupError, TopicNameError};
use longhaul::{
    ActionError, ConnectError, ErrorKind, PublishError, ReadError, SubmitError, TaskRefError,
    TransportError, TransportErrorKind, WaitError, WorkerError,
};
use std::io::{self, Write};
use std::process::ExitCode;

/// The exit codes, for scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Code {
    /// A task failed, a check found something, or any other error.
    Failed = 1,
    /// The command line, a setting or a value is invalid: nothing was tried.
    Usage = 2,
    /// The task, dead letter, schedule or context does not exist.
    NotFound = 3,
    /// A conflict: another version or epoch, a finished task, or a key that is taken.
    Conflict = 4,
    /// The broker or the gateway cannot be reached.
    Unreachable = 5,
    /// The `--timeout` has expired.
    TimedOut = 124,
}

/// An error of the program itself.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub(crate) struct CommandFailure {
    code: Code,
    what: String,
    /// What to do about it.
    help: Option<String>,
    /// The code of the API's error that it comes from; empty if it comes from none.
    api_code: String,
}

impl CommandFailure {
    pub(crate) fn new(code: Code, what: impl Into<String>) -> Self {
        Self { code, what: what.into(), help: None, api_code: String::new() }
    }

    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Self::new(Code::Usage, what)
    }

    pub(crate) fn not_found(what: impl Into<String>) -> Self {
        Self::new(Code::NotFound, what)
    }

    #[must_use]
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Sets the code of the API's error that it comes from.
    #[must_use]
    pub(crate) fn of_api(mut self, code: &str) -> Self {
        code.clone_into(&mut self.api_code);
        self
    }

    /// The code of the API's error that it comes from; empty if it comes from none.
    pub(crate) fn api_code(&self) -> &str {
        &self.api_code
    }
}

/// The exit code after a command line error, or after `--help`.
pub(crate) fn of_usage(error: &clap::Error) -> ExitCode {
    if error.use_stderr() { ExitCode::from(Code::Usage as u8) } else { ExitCode::SUCCESS }
}

/// Prints an error on standard error, and returns its exit code.
pub(crate) fn report(error: &Error) -> ExitCode {
    if is_broken_pipe(error) {
        // The reader of the results has closed the pipe: `longhaul task list | head`.
        return ExitCode::SUCCESS;
    }
    let mut err = io::stderr().lock();
    // Ignore a closed standard error.
    err.write_all(told(error).as_bytes()).ok();
    ExitCode::from(code_of(error) as u8)
}

/// The text of an error: one line each for the failure, each cause, and the advice.
fn told(error: &Error) -> String {
    let mut lines: Vec<String> = Vec::new();
    for cause in error.chain() {
        let text = cause.to_string();
        // A transparent error has the same text as its cause.
        if lines.last().is_none_or(|last| !last.ends_with(&text)) {
            lines.push(text);
        }
    }
    let mut told = String::new();
    for (index, line) in lines.iter().enumerate() {
        let label = if index == 0 { "error" } else { "  because" };
        told.push_str(&format!("{label}: {}\n", clean(line)));
    }
    if let Some(help) = help_of(error) {
        told.push_str(&format!("  what to do: {}\n", clean(&help)));
    }
    told
}

/// The text of an error, followed by those of its causes.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |it| it.source());
    let texts: Vec<_> = causes.map(ToString::to_string).collect();
    texts.join(": ")
}

fn is_broken_pipe(error: &Error) -> bool {
    let is = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    error.downcast_ref::<io::Error>().is_some_and(is)
}

/// The code of the first error in the chain that has one.
pub(crate) fn code_of(error: &Error) -> Code {
    error.chain().find_map(code_of_one).unwrap_or(Code::Failed)
}

fn code_of_one(error: &(dyn std::error::Error + 'static)) -> Option<Code> {
    if let Some(it) = error.downcast_ref::<CommandFailure>() {
        return Some(it.code);
    }
    if error.is::<TaskRefError>() {
        return Some(Code::Usage);
    }
    kind_of(error).map(of_kind)
}

/// The kind of an error of the library.
fn kind_of(error: &(dyn std::error::Error + 'static)) -> Option<ErrorKind> {
    /// The kind of the first of these types that the error is of.
    macro_rules! first_of {
        ($($type:ty),+) => {
            None$(.or_else(|| Some(error.downcast_ref::<$type>()?.kind())))+
        };
    }
    first_of!(
        ActionError,
        SubmitError,
        WaitError,
        ReadError,
        ConnectError,
        SetupError,
        WorkerError,
        AdminError,
        PublishError,
        TopicNameError
    )
    .or_else(|| Some(error.downcast_ref::<TransportError>()?.kind.class().0))
}

const fn of_kind(kind: ErrorKind) -> Code {
    match kind {
        ErrorKind::Invalid | ErrorKind::Misconfigured | ErrorKind::TooLarge => Code::Usage,
        ErrorKind::NotFound | ErrorKind::Gone => Code::NotFound,
        ErrorKind::Conflict | ErrorKind::Busy => Code::Conflict,
        ErrorKind::Unreachable | ErrorKind::Unknown => Code::Unreachable,
        ErrorKind::NotSetUp
        | ErrorKind::Unreadable
        | ErrorKind::Refused
        | ErrorKind::TaskFailed
        | ErrorKind::TaskCancelled
        | ErrorKind::TaskExpired
        | ErrorKind::Internal
        | _ => Code::Failed,
    }
}

/// The transport error in an error. A transparent wrapper shows its text, and leaves it out of the
/// chain.
fn transport<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a TransportError> {
    match error.downcast_ref::<ConnectError>() {
        Some(ConnectError::Transport(it)) => Some(it),
        _ => error.downcast_ref(),
    }
}

/// As `transport`, for the admin API.
fn admin<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a AdminError> {
    match error.downcast_ref::<ConnectError>() {
        Some(ConnectError::Admin(it)) => Some(it),
        _ => error.downcast_ref(),
    }
}

/// The advice for an error.
fn help_of(error: &Error) -> Option<String> {
    let own = error.chain().find_map(|it| it.downcast_ref::<CommandFailure>()?.help.clone());
    own.or_else(|| help_by_kind(error).map(str::to_owned))
}

fn help_by_kind(error: &Error) -> Option<&'static str> {
    let has = |code| code_of(error) == code;
    let kind = error.chain().find_map(transport).map(|it| it.kind);
    if matches!(error.downcast_ref(), Some(SetupError::NoAdminUrl)) {
        return Some("set the URL of Pulsar's admin API: --admin-url http://HOST:8080");
    }
    match kind {
        Some(TransportErrorKind::Unauthorized) => {
            return Some(CREDENTIALS);
        }
        Some(TransportErrorKind::Invalid) => {
            return Some("check the settings: `longhaul config show` shows where each comes from");
        }
        _ => {}
    }
    let admin_kind = error.chain().find_map(admin).map(|it| it.kind);
    match admin_kind {
        Some(AdminErrorKind::Invalid) => {
            return Some(
                "set --admin-url to a URL such as http://HOST:8080; `longhaul config show` shows \
                 where it comes from",
            );
        }
        Some(AdminErrorKind::Unauthorized) => return Some(CREDENTIALS),
        _ => {}
    }
    if error.chain().any(|it| is_mistrust(&it.to_string())) {
        return Some(MISTRUST);
    }
    if matches!(admin_kind, Some(AdminErrorKind::Unreachable | AdminErrorKind::Unavailable)) {
        return Some(
            "check that the broker runs and that --admin-url is the address of its admin API \
             (`longhaul config show` shows where it comes from)",
        );
    }
    if has(Code::Unreachable) {
        return Some(
            "check that the broker runs and that its address is right (--service-url; `longhaul \
             config show` shows where it comes from), or start one here: `longhaul dev`",
        );
    }
    match error.downcast_ref::<CommandFailure>().map(CommandFailure::api_code) {
        Some("stale_epoch") => Some("look at the task again, and use its current epoch"),
        Some("version_conflict") => Some(
            "read the current version, check that your change still makes sense, and repeat it",
        ),
        _ => None,
    }
}

/// The advice for refused credentials.
pub(crate) const CREDENTIALS: &str = "set credentials with --token-file, or --auth-plugin and \
    --auth-params; `longhaul config show` shows which ones were used, and where they come from";

/// The advice for an untrusted certificate.
pub(crate) const MISTRUST: &str = "if the system does not trust the authority that signed the \
    certificate, give it with --tls-trust-certs-file, as PEM";

/// Whether an error text is about the peer's certificate.
pub(crate) fn is_mistrust(text: &str) -> bool {
    text.contains("invalid peer certificate")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unreachable() -> TransportError {
        TransportError::new(TransportErrorKind::Unreachable, "pulsar://b:6650", "refused \u{1b}[2J")
    }

    #[test]
    fn each_kind_of_error_has_its_code() {
        for (error, code) in [
            (Error::from(CommandFailure::usage("bad")), Code::Usage),
            (Error::from(ConnectError::Transport(unreachable())), Code::Unreachable),
            (Error::from(SubmitError::Transport(unreachable())).context("x"), Code::Unreachable),
            (Error::from(SubmitError::KeyLength(0)), Code::Usage),
            (Error::from(ActionError::Stale { current: 3 }), Code::Conflict),
            (Error::from(ActionError::Transport(unreachable())), Code::Unreachable),
            (Error::from(ActionError::VersionConflict { current: 2 }), Code::Conflict),
            (Error::from(ActionError::NoSuchSchedule), Code::NotFound),
            (Error::from(SetupError::NoAdminUrl), Code::Usage),
            (Error::from(WaitError::Evicted), Code::NotFound),
            (anyhow::anyhow!("anything"), Code::Failed),
        ] {
            assert_eq!(code_of(&error), code, "{error:?}");
        }
    }

    #[test]
    fn an_error_says_what_why_and_what_to_do_and_sends_nothing_raw_to_the_terminal() {
        let error = Error::from(SubmitError::Transport(unreachable())).context("task 7");
        let told = told(&error);
        let lines: Vec<_> = told.lines().collect();
        assert_eq!(lines[0], "error: task 7");
        assert_eq!(lines[1], "  because: the task was not submitted");
        assert_eq!(lines[2], "  because: pulsar://b:6650: cannot be reached: refused \\u{1b}[2J");
        assert!(lines[3].starts_with("  what to do: check that the broker runs"), "{told}");
        assert_eq!(lines.len(), 4);
    }

    #[test]
    fn what_a_transparent_error_repeats_is_said_once() {
        let error = Error::from(ConnectError::Transport(unreachable()));
        assert_eq!(told(&error).matches("cannot be reached").count(), 1);
    }
}
