//! A Pulsar server in its own Java process, with the jars from Maven Central.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};

use super::process::LocalServer;
use super::pulsar_version;
use crate::cache::{Project, Tool};

const JARS: Project = Project {
    name: "pulsar-broker",
    sources: &[("pom.xml", include_str!("../../java/broker/pom.xml"))],
    tool: Tool::Maven,
    goals: &[
        "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies",
        "-DincludeScope=runtime",
        "-DoutputDirectory=jars",
    ],
};

/// Parts of the JDK that Pulsar and its libraries access.
const OPENED: [&str; 6] = [
    "java.base/java.lang",
    "java.base/java.nio",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.platform",
    "java.base/sun.net",
    "java.management/sun.management",
];

/// The error without a suitable Java.
const HINT: &str = "cannot run java; version 17 or later must be on the PATH, in JAVA_HOME or in LONGHAUL_TEST_PULSAR_JAVA_HOME";

/// Creates a folder with these files for a server, and downloads the jars if they are missing.
/// Blocks. Paths in the arguments are relative to the folder.
pub(super) fn prepare(
    name: &str,
    files: &[(&str, &str)],
    options: &[&str],
    program: &[&str],
) -> Result<LocalServer> {
    let folder = tempfile::Builder::new().prefix(&format!("longhaul-{name}-")).tempdir()?;
    fs::create_dir(folder.path().join("tmp"))?;
    for (path, contents) in files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().context("a file has a folder")?)?;
        fs::write(path, contents)?;
    }
    let mut command = vec![java_of_pulsar().into_os_string()];
    command.extend(arguments(options, program)?.into_iter().map(OsString::from));
    Ok(LocalServer::new(command, HINT.to_owned(), folder))
}

/// The command line after `java`.
pub(super) fn arguments(options: &[&str], program: &[&str]) -> Result<Vec<String>> {
    let version = format!("-Dpulsar.version={}", pulsar_version()?);
    let jars = JARS.install_with(&[&version])?.join("jars").join("*");
    let mut arguments: Vec<String> =
        OPENED.iter().map(|part| format!("--add-opens={part}=ALL-UNNAMED")).collect();
    // Native libraries are unpacked there; those of killed processes would pile up in the system's
    // folder.
    arguments.push("-Djava.io.tmpdir=tmp".to_owned());
    arguments.extend(options.iter().map(|option| (*option).to_owned()));
    arguments.extend([
        "-cp".to_owned(),
        jars.into_os_string()
            .into_string()
            .map_err(|path| anyhow!("the path of the jars is no text: {}", path.display()))?,
    ]);
    arguments.extend(program.iter().map(|word| (*word).to_owned()));
    Ok(arguments)
}

pub(crate) fn java() -> PathBuf {
    java_in("JAVA_HOME").unwrap_or_else(|| PathBuf::from("java"))
}

/// The Java that Pulsar's servers run on. Pulsar 5 needs 21 or later; with 17 everything else runs.
pub(super) fn java_of_pulsar() -> PathBuf {
    java_in("LONGHAUL_TEST_PULSAR_JAVA_HOME").unwrap_or_else(java)
}

fn java_in(variable: &str) -> Option<PathBuf> {
    let home = std::env::var_os(variable).filter(|home| !home.is_empty())?;
    Some(Path::new(&home).join("bin/java"))
}
