//! Commands about the program itself: completions, manual pages, version.

use crate::cli::Cli;
use crate::context::CommandContext;
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use clap_complete::env::Shells;
use clap_mangen::Man as Page;
use std::io;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longhaul completions bash > /etc/bash_completion.d/longhaul
  longhaul completions zsh > ~/.zfunc/_longhaul

The script calls longhaul for each completion.")]
pub(crate) struct Completions {
    /// Shell to print completions for.
    shell: Shell,
}

/// The variable by which a shell asks the program for completions.
pub(crate) const COMPLETE: &str = "LONGHAUL_COMPLETE";

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longhaul man | man -l -
  longhaul man /usr/local/share/man/man1")]
pub(crate) struct Man {
    /// Write the pages of all commands to this folder. Without it, print the page of longhaul.
    folder: Option<PathBuf>,
}

/// # Errors
/// When standard output is closed.
pub(crate) fn completions(arguments: &Completions) -> anyhow::Result<()> {
    let shells = Shells::builtins();
    let name = arguments.shell.to_string();
    let shell = shells.completer(&name).ok_or_else(|| anyhow::anyhow!("unknown shell {name}"))?;
    let mut text = Vec::new();
    shell.write_registration(COMPLETE, "longhaul", "longhaul", "longhaul", &mut text)?;
    Ok(io::Write::write_all(&mut io::stdout().lock(), &text)?)
}

/// # Errors
/// When standard output is closed, or the folder cannot be written.
pub(crate) fn man(arguments: &Man) -> anyhow::Result<()> {
    let mut command = Cli::command();
    command.build();
    match &arguments.folder {
        None => Ok(Page::new(command).render(&mut io::stdout().lock())?),
        Some(folder) => {
            std::fs::create_dir_all(folder)?;
            Ok(clap_mangen::generate_to(command, folder)?)
        }
    }
}

/// # Errors
/// When standard output is closed.
pub(crate) fn version(context: &CommandContext) -> anyhow::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let record = serde_json::json!({ "name": "longhaul", "version": version });
    Ok(context.output.one(&record, &[("longhaul", version.to_owned())])?)
}
