//! The languages of the sample workers: how to build and start each.

use crate::support::skip;
use crate::support::tools::{copy, go_program, needs, run, top, typescript_package, version};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Language {
    Python,
    Go,
    TypeScript,
}

/// A sample worker, ready to start.
pub(crate) struct Program {
    words: Vec<PathBuf>,
    _built: TempDir,
}

impl Program {
    pub(crate) fn command(&self) -> tokio::process::Command {
        let mut command = tokio::process::Command::new(&self.words[0]);
        command.args(&self.words[1..]);
        // For Python: leave nothing beside the sources.
        command.env("PYTHONPATH", top().join("clients/python"));
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }
}

impl Language {
    /// Builds its worker; `None`, with a note, if that is not possible here.
    pub(crate) fn program(self) -> Option<Program> {
        let built = TempDir::new().unwrap();
        let words = match self {
            Self::Python => python(),
            Self::Go => go(built.path()),
            Self::TypeScript => typescript(built.path()),
        };
        match words {
            Ok(words) => Some(Program { words, _built: built }),
            Err(why) => {
                skip(&why);
                None
            }
        }
    }
}

fn python() -> Result<Vec<PathBuf>, String> {
    version("python3", "--version")?;
    Ok(vec!["python3".into(), top().join("examples/python/worker.py")])
}

fn go(built: &Path) -> Result<Vec<PathBuf>, String> {
    version("go", "version")?;
    Ok(vec![go_program(&top().join("examples/go"), ".", built)])
}

/// With the package beside it, as in the project.
fn typescript(built: &Path) -> Result<Vec<PathBuf>, String> {
    needs("typescript")?;
    version("node", "--version")?;
    typescript_package(&built.join("clients/typescript"));
    let example = built.join("examples/typescript");
    copy(&top().join("examples/typescript"), &example);
    run(Command::new("npm").args(["install", "--no-audit", "--no-fund"]).current_dir(&example));
    run(Command::new("npm").args(["run", "build"]).current_dir(&example));
    Ok(vec!["node".into(), example.join("built/worker.js")])
}
