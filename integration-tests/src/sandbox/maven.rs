//! Pulsar standalone in a Java process, from the artifacts in Maven's central repository.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow};
use tempfile::TempDir;

use super::broker::{BrokerConfig, Ports, Server, Signal, free_port};
use super::process::{self, ServerProcess};
use super::security;
use crate::cache::{Project, Tool};

const BROKER: Project = Project {
    name: "pulsar-broker",
    sources: &[("pom.xml", include_str!("../../java/broker/pom.xml"))],
    tool: Tool::Maven,
    goals: &[
        "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies",
        "-DincludeScope=runtime",
        "-DoutputDirectory=jars",
    ],
};

/// Parts of the JDK that Pulsar and its libraries reach into.
const OPENED: [&str; 6] = [
    "java.base/java.lang",
    "java.base/java.nio",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.platform",
    "java.base/sun.net",
    "java.management/sun.management",
];

/// A standalone's folder, and its process while there is one.
#[derive(Debug)]
pub(super) struct Standalone {
    /// Folder of the jars.
    jars: PathBuf,
    /// Where the storage node inside the process listens; its data cannot be read at another address.
    bookie_port: u16,
    /// Declared before the folder, so that the process is gone before its folder is.
    process: Option<ServerProcess>,
    /// Data, configuration and log. They outlive a restart.
    folder: TempDir,
}

impl Standalone {
    /// Writes the configuration; downloads the jars if they are not there yet. Blocks.
    pub(super) fn prepare(ports: Ports, config: &BrokerConfig) -> Result<Self> {
        let jars = BROKER.install()?.join("jars");
        let folder = tempfile::Builder::new().prefix("longhaul-pulsar-").tempdir()?;
        fs::create_dir(folder.path().join("tmp"))?;
        fs::write(folder.path().join("standalone.conf"), configuration(ports, config))?;
        let conf = folder.path().join(security::FOLDER);
        fs::create_dir(&conf)?;
        for (name, contents) in config.security.iter().flat_map(|security| security.files()) {
            fs::write(conf.join(name), contents)?;
        }
        Ok(Self { jars, bookie_port: free_port()?, process: None, folder })
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("broker.log")
    }
}

impl Server for Standalone {
    fn start(&mut self) -> Result<()> {
        let log = File::options().create(true).append(true).open(self.log())?;
        let folder = self.folder.path();
        let mut command = Command::new(java());
        command
            .args(OPENED.map(|part| format!("--add-opens={part}=ALL-UNNAMED")))
            // Native libraries are unpacked there; those of a killed process would pile up in the system's folder.
            .arg("-Djava.io.tmpdir=tmp")
            .args(["-Xmx1g", "-XX:MaxDirectMemorySize=1g", "-cp"])
            .arg(self.jars.join("*"))
            .args(["org.apache.pulsar.PulsarStandaloneStarter", "--config", "standalone.conf"])
            .args(["--no-stream-storage", "--no-functions-worker", "-a", "127.0.0.1"])
            .args(["--metadata-dir", "metadata", "--bookkeeper-dir", "bookkeeper"])
            .args(["--bookkeeper-port", &self.bookie_port.to_string()])
            .stdout(log.try_clone()?)
            .stderr(log);
        let process = ServerProcess::start(&mut command, folder);
        let hint = "cannot run java; version 17 or later must be on the PATH or in JAVA_HOME";
        self.process = Some(process.context(hint)?);
        Ok(())
    }

    fn signal(&mut self, signal: Signal) -> Result<()> {
        self.process.as_ref().ok_or_else(|| anyhow!("the broker does not run"))?.signal(signal)
    }

    fn is_running(&mut self) -> Result<bool> {
        process::is_running(&mut self.process)
    }

    fn log_tail(&self) -> String {
        process::tail(&self.log())
    }
}

pub(crate) fn java() -> PathBuf {
    match std::env::var_os("JAVA_HOME") {
        Some(home) if !home.is_empty() => Path::new(&home).join("bin/java"),
        _ => PathBuf::from("java"),
    }
}

fn configuration(ports: Ports, config: &BrokerConfig) -> String {
    let mut lines = vec![
        "clusterName=standalone".to_owned(),
        format!("brokerServicePort={}", ports.service),
        format!("webServicePort={}", ports.web),
        "bindAddress=127.0.0.1".to_owned(),
        "advertisedAddress=127.0.0.1".to_owned(),
        "allowLoopback=true".to_owned(),
        // Without it the port given to the storage node is ignored, and one is taken that the kernel also gives to others.
        "allowEphemeralPorts=true".to_owned(),
        "managedLedgerDefaultEnsembleSize=1".to_owned(),
        "managedLedgerDefaultWriteQuorum=1".to_owned(),
        "managedLedgerDefaultAckQuorum=1".to_owned(),
    ];
    // The later line wins, so that a test can change any of these.
    lines.extend(config.settings(ports).iter().map(|(key, value)| format!("{key}={value}")));
    lines.join("\n") + "\n"
}
