//! The embedded broker as a process, since tests kill it, and killing a thread is not the same.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, anyhow};
use tempfile::TempDir;

use super::broker::{BrokerConfig, Ports, Server, Signal};
use super::process::{self, ServerProcess};
use super::security;
use crate::example;

/// A broker's folder, and its process while it runs.
#[derive(Debug)]
pub(super) struct Embedded {
    program: Vec<OsString>,
    arguments: Vec<String>,
    /// Declared before the folder, so that the process ends before its folder is removed.
    process: Option<ServerProcess>,
    /// The program, data, keys and log. They survive a restart.
    folder: TempDir,
}

impl Embedded {
    /// Builds the program, or finds it built.
    pub(super) async fn prepare(ports: Ports, config: &BrokerConfig) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("longhaul-broker-").tempdir()?;
        let program = match &config.program {
            Some(command) => command.clone(),
            None => {
                let program = example::binary("longhaul", folder.path()).await?;
                vec![program.into_os_string(), "broker".into(), "run".into()]
            }
        };
        let conf = folder.path().join(security::FOLDER);
        fs::create_dir(&conf)?;
        for (name, contents) in config.security.iter().flat_map(|security| security.files()) {
            fs::write(conf.join(name), contents)?;
        }
        Ok(Self { program, arguments: arguments(ports, config), process: None, folder })
    }
}

fn arguments(ports: Ports, config: &BrokerConfig) -> Vec<String> {
    let mut arguments = vec![
        "--data=data".to_owned(),
        format!("--broker=127.0.0.1:{}", ports.service),
        format!("--admin=127.0.0.1:{}", ports.web),
    ];
    arguments.extend(config.security.iter().flat_map(|security| security.arguments(ports)));
    let limit = config.extra.iter().rfind(|(name, _)| name == "maxMessageSize");
    arguments.extend(limit.map(|(_, bytes)| format!("--broker-message-bytes-max={bytes}")));
    arguments
}

impl Server for Embedded {
    fn start(&mut self) -> Result<()> {
        let log = self.folder.path().join("broker.log");
        let log = File::options().create(true).append(true).open(log)?;
        let (program, first) = self.program.split_first().context("no program")?;
        let mut command = Command::new(program);
        // Pass only variables that tests set on purpose: the program reads settings from the
        // environment, too.
        command
            .args(first)
            .args(&self.arguments)
            .env("RUST_BACKTRACE", "0")
            .stdout(log.try_clone()?)
            .stderr(log);
        let process = ServerProcess::start(&mut command, self.folder.path());
        self.process = Some(process.with_context(|| program.to_string_lossy().into_owned())?);
        Ok(())
    }

    fn signal(&mut self, signal: Signal) -> Result<()> {
        self.process.as_ref().ok_or_else(|| anyhow!("the broker does not run"))?.signal(signal)
    }

    fn is_running(&mut self) -> Result<bool> {
        process::is_running(&mut self.process)
    }

    fn process_id(&self) -> Option<u32> {
        self.process.as_ref().map(ServerProcess::id)
    }

    fn log_tail(&self) -> String {
        process::tail(&self.folder.path().join("broker.log"))
    }

    fn folder(&self) -> Option<&Path> {
        Some(self.folder.path())
    }
}
