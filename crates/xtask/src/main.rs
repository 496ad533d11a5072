//! Developer commands: `cargo xtask help` lists them.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line speaks to its user")]

use std::env;
use std::path::Path;
use std::process::ExitCode;
use xtask::args::{self, Command};
use xtask::mutants::{self, Accepted, Area, Report};
use xtask::steps::{self, Step};

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
    if let Command::Mutants { areas, .. } = &command {
        return plant(areas, &steps);
    }
    let summary = steps::run(&steps, |step| {
        eprintln!("==> {}: {step}", step.name);
        steps::perform(step)
    })?;
    if command == Command::Ci {
        eprint!("\n{summary}");
    }
    Ok(exit_code(summary.failed))
}

/// Has the faults of each area planted, and tells what was found.
fn plant(areas: &[&Area], steps: &[Step]) -> anyhow::Result<ExitCode> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let accepted = Accepted::parse(&std::fs::read_to_string(root.join(mutants::ACCEPTED))?)?;
    std::fs::create_dir_all(root.join(mutants::OUTPUT))?;
    let mut report = Report::default();
    for (area, step) in areas.iter().zip(steps) {
        eprintln!("==> {}: {step}", step.name);
        let (status, _) = steps::perform(step)?;
        report.add(area, area.found(&root, status)?, &accepted);
    }
    print!("\n{report}");
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
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
