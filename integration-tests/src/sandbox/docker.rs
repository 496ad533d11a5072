//! Pulsar standalone in a container, by the `docker` command.
//!
//! The `testcontainers` crate would add more than fifty crates for what a handful of commands do
//! here.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::broker::{BrokerConfig, Ports, Server, Signal};
use super::guard::Guard;
use super::pulsar_version;
use super::security;

const IMAGE: &str = "apachepulsar/pulsar";

/// Copies variables called `PULSAR_PREFIX_…` into the configuration, then becomes the broker.
const ENTRY: &str = "bin/apply-config-from-env.py conf/standalone.conf && \
                     exec bin/pulsar standalone --no-stream-storage --no-functions-worker";

/// A container, made by the first start; it keeps its data over a restart.
#[derive(Debug)]
pub(super) struct Container {
    name: String,
    ports: Ports,
    config: BrokerConfig,
    /// Removes the container if we die; there is one as long as there is a container.
    guard: Option<Guard>,
}

impl Container {
    pub(super) fn prepare(ports: Ports, config: BrokerConfig) -> Self {
        let name = format!("longhaul-pulsar-{:012x}", fastrand::u64(..) >> 16);
        Self { name, ports, config, guard: None }
    }

    fn create(&self) -> Result<String> {
        let mut arguments =
            vec!["run".to_owned(), "-d".to_owned(), "--name".to_owned(), self.name.clone()];
        let Ports { service, service_tls, web } = self.ports;
        for port in [service, web].into_iter().chain(service_tls) {
            // The same number on both sides, because clients connect to the address that the broker
            // advertises.
            arguments.extend(["-p".to_owned(), format!("127.0.0.1:{port}:{port}")]);
        }
        let own = [
            ("brokerServicePort", service.to_string()),
            ("webServicePort", web.to_string()),
            ("advertisedAddress", "127.0.0.1".to_owned()),
        ];
        let own = own.into_iter().map(|(key, value)| (key.to_owned(), value));
        for (key, value) in own.chain(self.config.settings(self.ports)) {
            arguments.extend(["-e".to_owned(), format!("PULSAR_PREFIX_{key}={value}")]);
        }
        let mut entry = String::new();
        let files = self.config.security.iter().flat_map(|security| security.files());
        for (number, (name, contents)) in files.enumerate() {
            // By the environment: a mounted file would have to be readable for the user inside the
            // container.
            arguments.extend(["-e".to_owned(), format!("LONGHAUL_FILE_{number}={contents}")]);
            let path = format!("{}/{name}", security::FOLDER);
            entry += &format!("printf %s \"$LONGHAUL_FILE_{number}\" > {path} && ");
        }
        entry += ENTRY;
        arguments
            .extend(["-e".to_owned(), "PULSAR_MEM=-Xmx1g -XX:MaxDirectMemorySize=1g".to_owned()]);
        let image = format!("{IMAGE}:{}", pulsar_version()?);
        arguments.extend([image.as_str(), "sh", "-c", &entry].map(str::to_owned));
        docker(&arguments)
    }
}

impl Server for Container {
    fn start(&mut self) -> Result<()> {
        if self.guard.is_some() {
            docker(&["start", &self.name])?;
        } else {
            self.guard = Some(Guard::arm(r#"docker rm --force --volumes "$1""#, [&self.name])?);
            self.create()?;
        }
        Ok(())
    }

    fn signal(&mut self, signal: Signal) -> Result<()> {
        match signal {
            Signal::Terminate => docker(&["kill", "--signal", "TERM", &self.name]),
            Signal::Kill => docker(&["kill", &self.name]),
            Signal::Pause => docker(&["pause", &self.name]),
            Signal::Resume => docker(&["unpause", &self.name]),
        }
        .map(drop)
    }

    fn is_running(&mut self) -> Result<bool> {
        let running = docker(&["inspect", "--format", "{{.State.Running}}", &self.name])?;
        Ok(running.trim() == "true")
    }

    fn process_id(&self) -> Option<u32> {
        None
    }

    fn log_tail(&self) -> String {
        docker(&["logs", "--tail", "60", &self.name]).unwrap_or_else(|cause| format!("{cause:#}"))
    }

    fn folder(&self) -> Option<&Path> {
        None
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        if self.guard.is_some() {
            docker(&["rm", "--force", "--volumes", &self.name]).ok();
        }
    }
}

fn docker<S: AsRef<std::ffi::OsStr>>(arguments: &[S]) -> Result<String> {
    let output = Command::new("docker")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .context("cannot run docker")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let verb = arguments
            .first()
            .map_or_else(String::new, |v| v.as_ref().to_string_lossy().into_owned());
        bail!("docker {verb}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(text)
}
