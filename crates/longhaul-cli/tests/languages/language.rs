//! The languages of the sample workers: how to build and start each.

use crate::support::skip;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// The variable with the languages whose tests may download what is not installed.
const CLIENTS: &str = "LONGHAUL_TEST_CLIENTS";

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

/// Builds a program of a Go module.
pub(crate) fn go_program(module: &Path, package: &str, built: &Path) -> PathBuf {
    let program = built.join("program");
    run(go_command(module).args(["build", "-o"]).arg(&program).arg(package));
    program
}

/// The command `go` in a module. It downloads neither packages nor a release of Go.
pub(crate) fn go_command(module: &Path) -> Command {
    let mut command = Command::new("go");
    command.env("GOTOOLCHAIN", "local").env("GOPROXY", "off").env("GOFLAGS", "-mod=readonly");
    command.current_dir(module);
    command
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

/// Copies the package, and builds it.
pub(crate) fn typescript_package(built: &Path) {
    let package = top().join("clients/typescript");
    copy(&package, built);
    for part in ["src", "test"] {
        copy(&package.join(part), &built.join(part));
    }
    run(Command::new("npm").args(["install", "--no-audit", "--no-fund"]).current_dir(built));
    run(Command::new("npm").args(["run", "build"]).current_dir(built));
}

/// Copies the files of a folder, without subfolders.
fn copy(from: &Path, into: &Path) {
    std::fs::create_dir_all(into).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let file = entry.unwrap();
        if file.file_type().unwrap().is_file() {
            std::fs::copy(file.path(), into.join(file.file_name())).unwrap();
        }
    }
}

/// Allows downloads only if they are requested.
pub(crate) fn needs(language: &str) -> Result<(), String> {
    if std::env::var(CLIENTS).is_ok_and(|all| all.split(',').any(|name| name == language)) {
        return Ok(());
    }
    Err(format!("packages would have to be fetched, and {CLIENTS} does not name {language}"))
}

pub(crate) fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

pub(crate) fn version(program: &str, asking: &str) -> Result<String, String> {
    let output = Command::new(program).arg(asking).output();
    let output = output.map_err(|error| format!("`{program}` cannot be run: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

pub(crate) fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    let written = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{command:?}: {told}\n{written}");
    written.into_owned()
}
