//! The languages of the sample workers: how each is built and started.

use crate::support::skip;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Names the languages whose tests need more than what is installed, and fetch it.
const CLIENTS: &str = "LONGHAUL_TEST_CLIENTS";

#[derive(Clone, Copy, Debug)]
pub(crate) enum Language {
    Python,
    Go,
    TypeScript,
}

/// A sample worker that can be started.
pub(crate) struct Program {
    words: Vec<PathBuf>,
    _built: TempDir,
}

impl Program {
    pub(crate) fn command(&self) -> tokio::process::Command {
        let mut command = tokio::process::Command::new(&self.words[0]);
        command.args(&self.words[1..]);
        command
    }
}

impl Language {
    /// Builds its worker; `None`, which is told, where that cannot be done here.
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
    Ok(vec!["python3".into(), examples().join("python/worker.py")])
}

fn go(built: &Path) -> Result<Vec<PathBuf>, String> {
    version("go", "version")?;
    let worker = built.join("worker");
    let mut build = Command::new("go");
    // A release that is not there is not fetched.
    build
        .arg("build")
        .arg("-o")
        .arg(&worker)
        .arg(".")
        .env("GOTOOLCHAIN", "local")
        .env("GOFLAGS", "-mod=mod");
    run(build.current_dir(examples().join("go")));
    Ok(vec![worker])
}

fn typescript(built: &Path) -> Result<Vec<PathBuf>, String> {
    let version = version("node", "--version")?;
    let mut numbers =
        version.trim_start_matches('v').split('.').map(|it| it.parse::<u32>().unwrap_or(0));
    if (numbers.next(), numbers.next()) >= (Some(22), Some(18)) {
        return Ok(vec!["node".into(), examples().join("typescript/worker.ts")]);
    }
    if !std::env::var(CLIENTS).is_ok_and(|all| all.split(',').any(|it| it == "typescript")) {
        return Err(format!(
            "node {version} needs the compiler of TypeScript, and {CLIENTS} does not name typescript"
        ));
    }
    for entry in std::fs::read_dir(examples().join("typescript")).unwrap() {
        let file = entry.unwrap();
        if file.file_type().unwrap().is_file() {
            std::fs::copy(file.path(), built.join(file.file_name())).unwrap();
        }
    }
    run(Command::new("npm").args(["install", "--no-audit", "--no-fund"]).current_dir(built));
    run(Command::new("npm").args(["run", "build"]).current_dir(built));
    Ok(vec!["node".into(), built.join("built/worker.js")])
}

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

fn version(program: &str, asking: &str) -> Result<String, String> {
    let output = Command::new(program).arg(asking).output();
    let output = output.map_err(|error| format!("`{program}` cannot be run: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn run(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{command:?}: {told}\n{}",
        String::from_utf8_lossy(&output.stdout)
    );
}
