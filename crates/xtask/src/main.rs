//! Developer commands: `cargo xtask help` lists them.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line speaks to its user")]

use std::env;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use xtask::args::{self, Command};
use xtask::mutants::{self, Options};
use xtask::{book, client_types, parts, steps};

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
    if command == Command::Book {
        let folder = top()?.join("target/book");
        let count = book::build(&top()?, &folder)?;
        println!("{count} files and what they name: {}", folder.join("index.html").display());
        return Ok(ExitCode::SUCCESS);
    }
    if command == Command::ClientTypes {
        client_types::write(&top()?)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Command::Mutants(options) = &command {
        return plant(options);
    }
    if command == Command::Parts {
        return list_parts();
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

/// The top of the project.
fn top() -> std::io::Result<PathBuf> {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()
}

fn list_parts() -> anyhow::Result<ExitCode> {
    let top = top()?;
    let lock = std::fs::read_to_string(top.join("Cargo.lock"))?;
    let bill = parts::bill(&parts::known(&top, parts::TARGET)?, &lock)?;
    println!("{bill:#}");
    Ok(ExitCode::SUCCESS)
}

/// Plants faults, and tells what was found. How it goes on is one line on a terminal, and many elsewhere.
fn plant(options: &Options) -> anyhow::Result<ExitCode> {
    let root = top()?;
    let is_line = std::io::stderr().is_terminal() && !options.list;
    let report = mutants::plant(&root, options, |line| match (options.list, is_line) {
        (true, _) => println!("{line}"),
        (_, true) => eprint!("\r\x1b[K{line}"),
        (_, false) => eprintln!("{}", line.trim_end()),
    })?;
    let Some(report) = report else { return Ok(ExitCode::SUCCESS) };
    if is_line {
        eprintln!();
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
