//! Pulsar standalone in a container, through the crate `testcontainers`. It compiles, and has never
//! run with an engine.

use std::path::Path;
use std::sync::LazyLock;
use std::{io, thread};

use anyhow::{Context, Result, anyhow};
use testcontainers::core::IntoContainerPort;
use testcontainers::core::error::Result as Answer;
use testcontainers::runners::AsyncRunner;
use testcontainers::{ContainerAsync, ContainerRequest, CopyTargetOptions, GenericImage, ImageExt};
use tokio::runtime::{Builder, Runtime};

use super::broker::{BrokerConfig, Ports, Server, Signal};
use super::guard::Guard;
use super::pulsar_version;
use super::security;

const IMAGE: &str = "apachepulsar/pulsar";
/// The working folder of the image.
const HOME: &str = "/pulsar";
/// How long the broker may take to stop before the engine kills it, in s.
const STOP_SECONDS: i32 = 60;
const LOG_LINES: usize = 60;

/// Copies variables called `PULSAR_PREFIX_…` into the configuration, then becomes the broker.
const ENTRY: &str = "bin/apply-config-from-env.py conf/standalone.conf && \
                     exec bin/pulsar standalone --no-stream-storage --no-functions-worker";

/// Serves the connections to the engine: those of a test's runtime would end with the test.
static RUNTIME: LazyLock<io::Result<Runtime>> =
    LazyLock::new(|| Builder::new_multi_thread().worker_threads(1).enable_all().build());

/// Waits for the engine on a thread of its own, because the caller's belongs to another runtime.
fn wait<T: Send>(answer: impl Future<Output = Answer<T>> + Send) -> Result<T> {
    let runtime = RUNTIME.as_ref().map_err(|cause| anyhow!("no runtime: {cause}"))?;
    let waited = thread::scope(|scope| scope.spawn(|| runtime.block_on(answer)).join());
    waited.map_err(|_| anyhow!("the request to the engine panicked"))?.context("container engine")
}

/// A container, created by the first start; it keeps its data over a restart.
#[derive(Debug)]
pub(super) struct Container {
    ports: Ports,
    config: BrokerConfig,
    /// The guard removes the container if this process is killed.
    started: Option<(ContainerAsync<GenericImage>, Guard)>,
}

impl Container {
    pub(super) fn prepare(ports: Ports, config: BrokerConfig) -> Self {
        Self { ports, config, started: None }
    }

    fn request(&self, name: &str) -> Result<ContainerRequest<GenericImage>> {
        let image = GenericImage::new(IMAGE, &pulsar_version()?);
        let mut request = image
            .with_container_name(name)
            .with_cmd(["sh", "-c", ENTRY])
            .with_env_var("PULSAR_MEM", "-Xmx1g -XX:MaxDirectMemorySize=1g")
            .with_host_config_modifier(|host| {
                let bindings = host.port_bindings.iter_mut().flat_map(|ports| ports.values_mut());
                for binding in bindings.flatten().flatten() {
                    binding.host_ip = Some("127.0.0.1".to_owned());
                }
            });
        let Ports { service, service_tls, web } = self.ports;
        for port in [service, web].into_iter().chain(service_tls) {
            // The same number on both sides, because clients connect to the advertised address.
            request = request.with_mapped_port(port, port.tcp());
        }
        let own = [
            ("brokerServicePort", service.to_string()),
            ("webServicePort", web.to_string()),
            ("advertisedAddress", "127.0.0.1".to_owned()),
        ];
        let own = own.into_iter().map(|(key, value)| (key.to_owned(), value));
        for (key, value) in own.chain(self.config.settings(self.ports)) {
            request = request.with_env_var(format!("PULSAR_PREFIX_{key}"), value);
        }
        for (name, contents) in self.config.security.iter().flat_map(|it| it.files()) {
            // The image's user does not own the file.
            let target = CopyTargetOptions::new(format!("{HOME}/{}/{name}", security::FOLDER));
            request = request.with_copy_to(target.with_mode(0o644), contents.as_bytes().to_vec());
        }
        Ok(request)
    }

    fn container(&self) -> Result<&ContainerAsync<GenericImage>> {
        self.started.as_ref().map(|(container, _)| container).context("there is no container")
    }
}

impl Server for Container {
    fn start(&mut self) -> Result<()> {
        if let Some((container, _)) = &self.started {
            return wait(container.start());
        }
        let name = format!("longhaul-pulsar-{:012x}", fastrand::u64(..) >> 16);
        let guard = Guard::arm(r#"docker rm --force --volumes "$1""#, [&name])?;
        self.started = Some((wait(self.request(&name)?.start())?, guard));
        Ok(())
    }

    fn signal(&mut self, signal: Signal) -> Result<()> {
        let container = self.container()?;
        match signal {
            Signal::Terminate => wait(container.stop_with_timeout(Some(STOP_SECONDS))),
            Signal::Kill => wait(container.stop_with_timeout(Some(0))),
            Signal::Pause => wait(container.pause()),
            Signal::Resume => wait(container.unpause()),
        }
    }

    fn is_running(&mut self) -> Result<bool> {
        wait(self.container()?.is_running())
    }

    fn process_id(&self) -> Option<u32> {
        None
    }

    fn log_tail(&self) -> String {
        let log = self.container().and_then(|container| wait(container.stdout_to_vec()));
        let log = log.map_or_else(
            |cause| format!("{cause:#}"),
            |bytes| String::from_utf8_lossy(&bytes).into_owned(),
        );
        let lines: Vec<_> = log.lines().collect();
        lines
            .iter()
            .skip(lines.len().saturating_sub(LOG_LINES))
            .copied()
            .collect::<Vec<_>>()
            .join("\n")
    }

    fn folder(&self) -> Option<&Path> {
        None
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        if let Some((container, _guard)) = self.started.take() {
            wait(container.rm()).ok();
        }
    }
}
