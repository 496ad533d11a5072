//! What a command does: calls of cargo, one after the other.
//!
//! [`plan`] decides, [`run`] keeps the order, [`perform`] starts a process. All forward only: what a suite does with its
//! seed or its broker is the suite's own matter.

use crate::args::Command;
use anyhow::Context;
use std::ffi::OsString;
use std::process::Command as Process;
use std::time::{Duration, Instant};
use std::{env, fmt};

/// One call of cargo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What the summary calls it.
    pub name: &'static str,
    /// The arguments of cargo.
    pub args: Vec<String>,
    /// What is added to the environment.
    pub env: Vec<(&'static str, String)>,
}

impl Step {
    fn new(name: &'static str, args: &[&str]) -> Self {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        Self { name, args, env: Vec::new() }
    }

    fn with_env(mut self, name: &'static str, value: String) -> Self {
        self.env.push((name, value));
        self
    }

    fn with_args(mut self, args: &[String]) -> Self {
        self.args.extend_from_slice(args);
        self
    }
}

impl fmt::Display for Step {
    /// The line that a user would type.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.env {
            let quote = if value.contains(' ') { "'" } else { "" };
            write!(f, "{name}={quote}{value}{quote} ")?;
        }
        write!(f, "cargo {}", self.args.join(" "))
    }
}

/// The steps of a command.
#[must_use]
pub fn plan(command: &Command) -> Vec<Step> {
    match command {
        // These are no calls of cargo.
        Command::Help(_)
        | Command::Mutants(_)
        | Command::Book
        | Command::ClientTypes
        | Command::Parts => Vec::new(),
        Command::Ci => vec![
            Step::new("format", &["fmt", "--all", "--check"]),
            Step::new("lints", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
            Step::new("docs", &["doc", "--workspace", "--no-deps"])
                .with_env("RUSTDOCFLAGS", "-D warnings".to_owned()),
            Step::new("tests", &["test", "--workspace"]),
        ],
        Command::Sim { seed, runs } => {
            let suite = ["test", "-p", "integration-tests", "--test", "pure", "simulation::"];
            let step =
                Step::new("simulation", &suite).with_env("LONGHAUL_SIM_SEED", seed.to_string());
            vec![match runs {
                Some(runs) => step.with_env("LONGHAUL_SIM_RUNS", runs.to_string()),
                None => step,
            }]
        }
        Command::Model { args } => {
            let model = ["run", "--release", "-p", "integration-tests", "--bin", "model", "--"];
            vec![Step::new("model", &model).with_args(args)]
        }
        Command::Pulsar { command } => {
            let sandbox = ["run", "-p", "integration-tests", "--bin", "sandbox", "--", "run", "--"];
            vec![Step::new("pulsar", &sandbox).with_args(command)]
        }
    }
}

/// What became of the steps.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// The steps that ran, with how long each took.
    pub done: Vec<(&'static str, Duration)>,
    /// The step that failed, with cargo's exit code; none when a signal ended it.
    pub failed: Option<(&'static str, Option<i32>)>,
    /// The steps that were not reached.
    pub left: Vec<&'static str>,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, duration) in &self.done {
            let failed = self.failed.is_some_and(|(failed, _)| failed == *name);
            let outcome = if failed { "FAILED" } else { "ok" };
            writeln!(f, "{name:<12} {outcome:<8} {:>7.1} s", duration.as_secs_f64())?;
        }
        self.left.iter().try_for_each(|name| writeln!(f, "{name:<12} not run"))
    }
}

/// How a step ended: cargo's exit code, none when a signal ended it, and how long it took.
pub type Ending = (Option<i32>, Duration);

/// Has the steps performed in order, up to the first that fails.
///
/// # Errors
///
/// Hands on why a step could not be started.
pub fn run(
    steps: &[Step],
    mut perform: impl FnMut(&Step) -> anyhow::Result<Ending>,
) -> anyhow::Result<Summary> {
    let mut summary = Summary::default();
    let mut steps = steps.iter();
    for step in steps.by_ref() {
        let (code, duration) = perform(step)?;
        summary.done.push((step.name, duration));
        if code != Some(0) {
            summary.failed = Some((step.name, code));
            break;
        }
    }
    summary.left = steps.map(|step| step.name).collect();
    Ok(summary)
}

/// Performs a step and waits for its end.
///
/// # Errors
///
/// Says which step could not be started.
#[expect(clippy::disallowed_methods, reason = "times a child process; no clock of the library")]
pub fn perform(step: &Step) -> anyhow::Result<Ending> {
    let mut process = Process::new(cargo());
    forget_xtask(&mut process);
    let start = Instant::now();
    let status = process
        .args(&step.args)
        .envs(step.env.iter().map(|(name, value)| (name, value)))
        .status()
        .with_context(|| format!("could not start `{step}`"))?;
    Ok((status.code(), start.elapsed()))
}

/// The program to call. Cargo tells its children where it is, so that the steps use the same toolchain.
#[must_use]
pub fn cargo() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Takes what describes xtask out of the environment of a process.
pub fn forget_xtask(process: &mut Process) {
    for (name, _) in env::vars_os().filter(|(name, _)| describes_xtask(&name.to_string_lossy())) {
        process.env_remove(name);
    }
}

/// Whether `cargo run` has set the variable to describe xtask. Build scripts that watch such a variable would run again,
/// and with them everything behind them, at each change between `cargo xtask` and plain `cargo`.
fn describes_xtask(variable: &str) -> bool {
    variable.starts_with("CARGO_PKG_") || variable.starts_with("CARGO_MANIFEST_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(command: &Command, expected: &[&str]) {
        let lines: Vec<String> = plan(command).iter().map(ToString::to_string).collect();
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_seed_goes_to_the_simulation() {
        let suite = "cargo test -p integration-tests --test pure simulation::";
        check(&Command::Sim { seed: 7, runs: None }, &[&format!("LONGHAUL_SIM_SEED=7 {suite}")]);
        check(
            &Command::Sim { seed: 7, runs: Some(3) },
            &[&format!("LONGHAUL_SIM_SEED=7 LONGHAUL_SIM_RUNS=3 {suite}")],
        );
    }

    #[test]
    fn arguments_are_forwarded() {
        check(
            &Command::Model { args: vec!["once".into(), "--deep".into()] },
            &["cargo run --release -p integration-tests --bin model -- once --deep"],
        );
        check(
            &Command::Pulsar { command: vec!["cargo".into(), "test".into()] },
            &["cargo run -p integration-tests --bin sandbox -- run -- cargo test"],
        );
    }

    #[test]
    fn ci_treats_warnings_as_errors() {
        check(
            &Command::Ci,
            &[
                "cargo fmt --all --check",
                "cargo clippy --workspace --all-targets -- -D warnings",
                "RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps",
                "cargo test --workspace",
            ],
        );
    }

    #[test]
    fn steps_stop_at_the_first_failure() {
        let steps = ["first", "second", "third"].map(|name| Step::new(name, &[]));
        let mut performed = Vec::new();
        let summary = run(&steps, |step| {
            performed.push(step.name);
            Ok((Some(if step.name == "second" { 101 } else { 0 }), Duration::ZERO))
        });
        let summary = summary.unwrap();
        assert_eq!(performed, ["first", "second"]);
        assert_eq!(summary.failed, Some(("second", Some(101))));
        assert_eq!(summary.left, ["third"]);
    }

    #[test]
    fn a_signal_is_a_failure() {
        let summary = run(&[Step::new("only", &[])], |_| Ok((None, Duration::ZERO))).unwrap();
        assert_eq!(summary.failed, Some(("only", None)));
    }

    #[test]
    fn what_describes_xtask_is_not_handed_on() {
        assert!(describes_xtask("CARGO_PKG_NAME") && describes_xtask("CARGO_MANIFEST_DIR"));
        assert!(!describes_xtask("CARGO_TARGET_DIR") && !describes_xtask("CARGO"));
    }

    #[test]
    fn the_summary_names_every_step() {
        let summary = Summary {
            done: vec![
                ("format", Duration::from_millis(1_234)),
                ("lints", Duration::from_secs(100)),
            ],
            failed: Some(("lints", Some(101))),
            left: vec!["docs"],
        };
        let expected = "\
format       ok           1.2 s
lints        FAILED     100.0 s
docs         not run
";
        assert_eq!(summary.to_string(), expected);
    }
}
