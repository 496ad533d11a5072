//! The tools of other languages: which there are, and how to build with them. The conformance suite
//! in `integration-tests/` includes this file.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The variable with the languages whose tests may download what is not installed.
const CLIENTS: &str = "LONGHAUL_TEST_CLIENTS";

/// Reports that the running test is skipped, and why; `LONGHAUL_TEST_SKIPS` names a file that
/// collects such lines.
pub(crate) fn skip(why: &str) {
    let line = format!("skipped: {}: {why}\n", std::thread::current().name().unwrap_or("?"));
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    if let Some(path) = std::env::var_os("LONGHAUL_TEST_SKIPS") {
        let file = std::fs::File::options().create(true).append(true).open(path);
        file.unwrap().write_all(line.as_bytes()).unwrap();
    }
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
pub(crate) fn copy(from: &Path, into: &Path) {
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
