//! Starts a broker for a whole test run: `sandbox run -- <command…>`, or `sandbox up` until Ctrl-C.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

use anyhow::{Context, Result, bail};
use integration_tests::example::forget_cargo;
use integration_tests::sandbox::{Broker, BrokerConfig, BrokerKind, Sandbox};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

const USAGE: &str = "usage: sandbox run -- <command> [argument…]   (gives the command a broker, passes its status on)
       sandbox up                               (keeps a broker until Ctrl-C)
LONGHAUL_TEST_BROKER chooses it: embedded (default), maven, docker, or the pulsar:// URL of one that runs already
The suites find the broker by LONGHAUL_TEST_*, the examples and other programs by PULSAR_SERVICE_URL and PULSAR_ADMIN_URL";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode> {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(|word| word.to_str().unwrap_or_default()).collect();
    match words.as_slice() {
        ["up"] => up().await,
        ["run", "--", _, ..] => run(arguments.get(2..).unwrap_or_default()).await,
        _ => bail!("{USAGE}"),
    }
}

/// Runs a broker until the process is told to stop.
async fn up() -> Result<ExitCode> {
    let (mut interrupt, mut terminate) = signals()?;
    let Some(kind) = kind() else { bail!("LONGHAUL_TEST_BROKER names a broker that runs already") };
    let broker = tokio::select! {
        broker = Broker::launch(kind, BrokerConfig::default()) => broker?,
        _ = interrupt.recv() => return Ok(ExitCode::FAILURE),
        _ = terminate.recv() => return Ok(ExitCode::FAILURE),
    };
    let mut stdout = std::io::stdout();
    for (name, value) in environment(&broker, kind) {
        writeln!(stdout, "export {name}={value}")?;
    }
    stdout.flush()?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs a command with a broker. The broker's data is not needed afterwards, so it is dropped at
/// the end, which kills it.
async fn run(command: &[OsString]) -> Result<ExitCode> {
    let [program, arguments @ ..] = command else { bail!("{USAGE}") };
    let (mut interrupt, mut terminate) = signals()?;
    let mut command = Command::new(program);
    command.args(arguments);
    forget_cargo(&mut command);
    let broker = match kind() {
        None => {
            command.envs(Sandbox::from_env().await?.iter().flat_map(urls));
            None
        }
        Some(kind) => {
            let broker = tokio::select! {
                broker = Broker::launch(kind, BrokerConfig::default()) => broker?,
                _ = interrupt.recv() => return Ok(ExitCode::FAILURE),
                _ = terminate.recv() => return Ok(ExitCode::FAILURE),
            };
            command.envs(environment(&broker, kind));
            Some(broker)
        }
    };
    let mut child =
        command.spawn().with_context(|| format!("cannot run {}", program.to_string_lossy()))?;
    let status = loop {
        tokio::select! {
            status = child.wait() => break status?,
            // The terminal sends the signal to the command as well, which decides what to do with
            // it.
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {
                if let Some(pid) = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed())) {
                    kill_process(pid, Signal::TERM)?;
                }
            }
        }
    };
    drop(broker);
    Ok(exit_code(status))
}

/// The kind of broker to start; `None` when the environment gives a URL.
fn kind() -> Option<BrokerKind> {
    match std::env::var("LONGHAUL_TEST_BROKER") {
        Ok(url) if url.contains("://") => None,
        Ok(name) => Some(BrokerKind::parse(&name).unwrap_or(BrokerKind::Embedded)),
        Err(_) => Some(BrokerKind::Embedded),
    }
}

/// The variables that describe the broker to the tests, with how to start another one, and to other
/// programs.
fn environment(broker: &Broker, kind: BrokerKind) -> Vec<(&'static str, String)> {
    let mut variables = vec![
        ("LONGHAUL_TEST_BROKER", broker.service_url().to_owned()),
        ("LONGHAUL_TEST_ADMIN", broker.admin().url().to_owned()),
        ("LONGHAUL_TEST_OWN_BROKER", kind.name().to_owned()),
    ];
    variables.extend(urls(broker.sandbox()));
    variables
}

/// The variables in which the examples look for a broker.
fn urls(sandbox: &Sandbox) -> [(&'static str, String); 2] {
    [
        ("PULSAR_SERVICE_URL", sandbox.service_url().to_owned()),
        ("PULSAR_ADMIN_URL", sandbox.admin().url().to_owned()),
    ]
}

fn signals() -> Result<(tokio::signal::unix::Signal, tokio::signal::unix::Signal)> {
    Ok((signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?))
}

/// The exit code by a shell's convention: 128 plus the signal's number when a signal ended the
/// command.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}
