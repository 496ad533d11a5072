//! The program `longhaul`: commands to see, feed and repair a queue of tasks.
//!
//! ```text
//! cli.rs ── the tree of commands and the global options
//! settings/ ── the value of each setting, from flag, environment, context, files or default
//! commands/ ── one file per noun: reads arguments, asks the service, shows the answer
//! service/ ── what the commands ask: the gateway's API, at an address or in this process
//! exec/ ── `worker run --exec`: programs that run for tasks, and their supervisors
//! output/ ── tables, JSON and lines for standard output; notes and errors for standard error
//! ```
//!
//! Results go to standard output, everything else to standard error. Exit codes are in `exit.rs`.

mod cli;
mod clock;
mod commands;
mod connect;
mod context;
mod exec;
mod exit;
mod globals;
mod output;
mod service;
mod settings;
mod signals;
mod sizes;
mod telemetry;
mod times;

use clap::{CommandFactory, FromArgMatches};
use clap_complete::CompleteEnv;
use cli::Cli;
use commands::meta::COMPLETE;
use context::CommandContext;
use std::process::ExitCode;

fn main() -> ExitCode {
    // Before any file is opened: programs get the first free descriptor.
    if std::env::args_os().nth(1).is_some_and(|word| word == exec::SUPERVISE) {
        return exec::supervise();
    }
    // The cryptography of all HTTP clients. No provider is installed yet.
    rustls::crypto::ring::default_provider().install_default().ok();
    // Ends the process if a shell asks.
    CompleteEnv::with_factory(Cli::command).var(COMPLETE).complete();
    let parsed = Cli::command().try_get_matches().and_then(|mut matches| {
        let flags = settings::flags(&matches);
        Ok((flags, Cli::from_arg_matches_mut(&mut matches)?))
    });
    let (flags, cli) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => {
            // Ignore a closed standard output or error.
            error.print().ok();
            return exit::of_usage(&error);
        }
    };
    let context = match CommandContext::new(flags) {
        Ok(context) => context,
        Err(error) => return exit::report(&error),
    };
    telemetry::start(&context, cli.command.log());
    let ended = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let ended = match ended {
        Ok(runtime) => {
            let ended = runtime.block_on(Box::pin(commands::run(cli.command, &context)));
            // Do not wait for tasks that still read from a broker.
            runtime.shutdown_background();
            ended
        }
        Err(error) => Err(error.into()),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::report(&error),
    }
}
