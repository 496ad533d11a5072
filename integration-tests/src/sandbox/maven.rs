//! Pulsar standalone in a Java process, from the artifacts in Maven's central repository.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, anyhow};
use rustix::process::{Pid, Signal as Number, kill_process};
use tempfile::TempDir;

use super::broker::{BrokerConfig, Ports, Server, Signal, free_port};
use super::guard::Guard;
use super::security;
use crate::cache::Project;

const BROKER: Project = Project {
    name: "pulsar-broker",
    sources: &[("pom.xml", include_str!("../../java/broker/pom.xml"))],
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

/// After our death: ends the Java process and, once it no longer writes, removes its folder.
const AFTERMATH: &str = r#"
kill -KILL "$1"
rounds=0
while kill -0 "$1" && [ $rounds -lt 50 ]; do sleep 0.1; rounds=$((rounds + 1)); done
rm -rf -- "$2""#;

/// A standalone's folder, and its process while there is one.
#[derive(Debug)]
pub(super) struct Standalone {
    /// Folder of the jars.
    jars: PathBuf,
    /// Where the storage node inside the process listens; its data cannot be read at another address.
    bookie_port: u16,
    /// Declared before the folder, so that the process is gone before its folder is.
    jvm: Option<Jvm>,
    /// Data, configuration and log. They outlive a restart.
    folder: TempDir,
}

/// A Java process that ends with us.
#[derive(Debug)]
struct Jvm {
    child: Child,
    _guard: Guard,
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
        Ok(Self { jars, bookie_port: free_port()?, jvm: None, folder })
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("broker.log")
    }
}

impl Server for Standalone {
    fn start(&mut self) -> Result<()> {
        let log = File::options().create(true).append(true).open(self.log())?;
        let folder = self.folder.path();
        let mut child = Command::new(java())
            .args(OPENED.map(|part| format!("--add-opens={part}=ALL-UNNAMED")))
            // Native libraries are unpacked there; those of a killed process would pile up in the system's folder.
            .arg("-Djava.io.tmpdir=tmp")
            .args(["-Xmx1g", "-XX:MaxDirectMemorySize=1g", "-cp"])
            .arg(self.jars.join("*"))
            .args(["org.apache.pulsar.PulsarStandaloneStarter", "--config", "standalone.conf"])
            .args(["--no-stream-storage", "--no-functions-worker", "-a", "127.0.0.1"])
            .args(["--metadata-dir", "metadata", "--bookkeeper-dir", "bookkeeper"])
            .args(["--bookkeeper-port", &self.bookie_port.to_string()])
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // Ctrl-C is for us: we stop the broker when we are done with it.
            .process_group(0)
            .spawn()
            .context("cannot run java; version 17 or later must be on the PATH or in JAVA_HOME")?;
        let pid = child.id().to_string();
        match Guard::arm(AFTERMATH, [pid.as_ref(), folder.as_os_str()]) {
            Ok(guard) => self.jvm = Some(Jvm { child, _guard: guard }),
            Err(cause) => {
                child.kill()?;
                child.wait()?;
                return Err(cause);
            }
        }
        Ok(())
    }

    fn signal(&mut self, signal: Signal) -> Result<()> {
        let jvm = self.jvm.as_ref().ok_or_else(|| anyhow!("the broker does not run"))?;
        let number = match signal {
            Signal::Terminate => Number::TERM,
            Signal::Kill => Number::KILL,
            Signal::Pause => Number::STOP,
            Signal::Resume => Number::CONT,
        };
        Ok(kill_process(Pid::from_child(&jvm.child), number)?)
    }

    fn is_running(&mut self) -> Result<bool> {
        if let Some(jvm) = &mut self.jvm
            && jvm.child.try_wait()?.is_some()
        {
            self.jvm = None;
        }
        Ok(self.jvm.is_some())
    }

    fn log_tail(&self) -> String {
        tail(&self.log()).unwrap_or_else(|cause| format!("{}: {cause}", self.log().display()))
    }
}

impl Drop for Jvm {
    fn drop(&mut self) {
        // Both fail only for a process that is gone already.
        self.child.kill().ok();
        self.child.wait().ok();
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

/// Last few kilobytes of a file.
fn tail(path: &Path) -> std::io::Result<String> {
    const TAIL_BYTES: u64 = 8 * 1024;
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
