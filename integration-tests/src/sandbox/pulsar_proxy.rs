//! Pulsar's own proxy, for clients that cannot reach the brokers: they connect to it and name the
//! intended broker.

use anyhow::{Context, Result};

use super::broker::{Server, free_port};
use super::node::{Node, SMALL, is_reachable, lines};
use super::{Sandbox, jvm};
use crate::wait::{say, stopwatch};

/// Apache Pulsar's proxy in front of a broker. Dropping it kills it and its connections.
#[derive(Debug)]
pub struct PulsarProxy {
    node: Node,
}

impl PulsarProxy {
    /// Starts a proxy in front of a broker and waits until it listens.
    ///
    /// # Errors
    /// It does not start, or not in time; the message then ends with its log.
    pub async fn launch(sandbox: &Sandbox) -> Result<Self> {
        let elapsed = stopwatch();
        let [port, web] = [free_port()?, free_port()?];
        let settings = lines(&[
            ("clusterName", "local"),
            ("brokerServiceURL", sandbox.service_url()),
            ("brokerWebServiceURL", sandbox.admin().url()),
            ("servicePort", &port.to_string()),
            ("webServicePort", &web.to_string()),
            ("bindAddress", "127.0.0.1"),
            ("advertisedAddress", "127.0.0.1"),
            // By default it forwards only to the usual ports.
            ("brokerProxyAllowedTargetPorts", "*"),
        ]);
        let options = [SMALL.as_slice(), &["-Xmx256m", "-XX:MaxDirectMemorySize=256m"]].concat();
        let program =
            ["org.apache.pulsar.proxy.server.ProxyServiceStarter", "--config", "proxy.conf"];
        let prepare =
            move || jvm::prepare("proxy", &[("proxy.conf", &settings)], &options, &program);
        let mut node = Node::new(tokio::task::spawn_blocking(prepare).await??, port);
        // It opens this port last.
        node.start(|_| is_reachable(web)).await.context("Pulsar's proxy")?;
        say(&format!("proxy {} is ready after {:.1?}", node.address(), elapsed()));
        Ok(Self { node })
    }

    /// URL for clients.
    #[must_use]
    pub fn service_url(&self) -> String {
        format!("pulsar://{}", self.node.address())
    }

    /// Last lines of its log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        self.node.server.log_tail()
    }
}
