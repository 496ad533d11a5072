//! Developer commands: `cargo xtask help` lists them.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line speaks to its user")]

use std::env;
use std::process::ExitCode;
use xtask::args::{self, Command};
use xtask::steps;

/// The exit status for a command line that is not understood.
const USAGE: u8 = 2;

fn main() -> anyhow::Result<ExitCode> {
    let args: Vec<String> = env::args().skip(1).collect();
    let command = match args::parse(&args) {
        Ok(command) => command,
        Err(error) => {
            eprintln!("error: {error}\n\n`cargo xtask help` lists the commands.");
            return Ok(ExitCode::from(USAGE));
        }
    };
    if let Command::Help(text) = &command {
        print!("{text}");
        return Ok(ExitCode::SUCCESS);
    }
    let steps = steps::plan(&command);
    let summary = steps::run(&steps, |step| {
        eprintln!("==> {}: {step}", step.name);
        steps::perform(step)
    })?;
    if command == Command::Ci {
        eprint!("\n{summary}");
    }
    Ok(exit_code(summary.failed))
}

/// The exit status of the step that failed, so that a caller sees through the forwarding.
fn exit_code(failed: Option<(&str, Option<i32>)>) -> ExitCode {
    match failed {
        None => ExitCode::SUCCESS,
        Some((_, code)) => {
            let code = code.and_then(|code| u8::try_from(code).ok());
            code.map_or(ExitCode::FAILURE, ExitCode::from)
        }
    }
}
