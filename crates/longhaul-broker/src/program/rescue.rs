//! Commands for data directories that are damaged, or are to be copied.

use clap::Args;
use longhaul_broker::rescue::{self, Report, RescueError};
use std::path::PathBuf;
use std::process::ExitCode;

/// A data directory is damaged.
const DAMAGED: u8 = 1;
/// It could not be read, or the new one not be written.
const FAILED: u8 = 2;

/// Reads a data directory.
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// The data directory.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Makes a new data directory of another one.
#[derive(Debug, Args)]
pub(crate) struct Copy {
    /// The data directory, which is not changed.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// The directory that is made. It must not exist, or be empty.
    #[arg(value_name = "NEW")]
    new: PathBuf,
}

impl Check {
    /// Exits with 0 if the directory is sound, with 1 if it is damaged, with 2 if it cannot be read.
    pub(crate) fn run(&self) -> ExitCode {
        tell(rescue::check(&self.directory), |report| !report.is_sound())
    }
}

impl Copy {
    /// Exits with 0 if the new directory is complete, with 1 if something is lost, with 2 if it could not be made.
    pub(crate) fn salvage(&self) -> ExitCode {
        tell(rescue::salvage(&self.directory, &self.new), |report| !report.is_sound())
    }
}

impl Copy {
    /// Exits with 0 if the copy is sound, with 1 if the directory is damaged and the copy as well, with 2 if it could not be made.
    pub(crate) fn snapshot(&self) -> ExitCode {
        tell(rescue::snapshot(&self.directory, &self.new), |report| !report.is_sound())
    }
}

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "what the command is for")]
fn tell(outcome: Result<Report, RescueError>, is_damaged: impl Fn(&Report) -> bool) -> ExitCode {
    match outcome {
        Ok(report) => {
            print!("{report}");
            if is_damaged(&report) { ExitCode::from(DAMAGED) } else { ExitCode::SUCCESS }
        }
        Err(error) => {
            eprintln!("Error: {:#}", anyhow::Error::from(error));
            ExitCode::from(FAILED)
        }
    }
}
