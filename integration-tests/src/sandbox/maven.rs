//! Pulsar standalone, all of it in one Java process.

use anyhow::Result;

use super::broker::{BrokerConfig, Ports, free_port};
use super::process::LocalServer;
use super::{demanded_settings, jvm, pulsar_version, security};

const OPTIONS: [&str; 2] = ["-Xmx1g", "-XX:MaxDirectMemorySize=1g"];

/// Writes the configuration, and downloads the jars if they are missing. Blocks.
pub(super) fn standalone(ports: Ports, config: &BrokerConfig) -> Result<LocalServer> {
    let settings = configuration(ports, config, &demanded_settings()?);
    let secrets = config.security.iter().flat_map(|security| security.files());
    let secrets: Vec<(String, &str)> = secrets
        .map(|(name, contents)| (format!("{}/{name}", security::FOLDER), contents))
        .collect();
    let mut files = vec![("standalone.conf", settings.as_str())];
    files.extend(secrets.iter().map(|(path, contents)| (path.as_str(), *contents)));
    let mut program = vec![
        "org.apache.pulsar.PulsarStandaloneStarter",
        "--config",
        "standalone.conf",
        "--no-stream-storage",
        "--no-functions-worker",
        "-a",
        "127.0.0.1",
        "--metadata-dir",
        "metadata",
        "--bookkeeper-dir",
        "bookkeeper",
    ];
    // Up to version 4 the data of the in-process storage node cannot be read at another address.
    // Later versions give the node a name, and have no such option.
    let bookie_port = free_port()?.to_string();
    if pulsar_version()?.starts_with(['2', '3', '4']) {
        program.extend(["--bookkeeper-port", &bookie_port]);
    }
    jvm::prepare("pulsar", &files, &OPTIONS, &program)
}

fn configuration(ports: Ports, config: &BrokerConfig, demanded: &[(String, String)]) -> String {
    let mut lines = vec![
        "clusterName=standalone".to_owned(),
        format!("brokerServicePort={}", ports.service),
        format!("webServicePort={}", ports.web),
        "bindAddress=127.0.0.1".to_owned(),
        "advertisedAddress=127.0.0.1".to_owned(),
        "allowLoopback=true".to_owned(),
        // Without it the storage node's port is ignored, and one is taken that the kernel also
        // gives to other programs.
        "allowEphemeralPorts=true".to_owned(),
        // By default a storage node refuses to write on a disk that is 95 % full, however large the
        // rest.
        "diskUsageThreshold=0.99".to_owned(),
        "diskUsageWarnThreshold=0.99".to_owned(),
        // 2.11 and 3.0 need it where the machine does not report its network speed.
        "loadBalancerOverrideBrokerNicSpeedGbps=1".to_owned(),
        "managedLedgerDefaultEnsembleSize=1".to_owned(),
        "managedLedgerDefaultWriteQuorum=1".to_owned(),
        "managedLedgerDefaultAckQuorum=1".to_owned(),
    ];
    // The later line wins, so a test can change any of these.
    let settings = config.settings(ports);
    lines.extend(demanded.iter().chain(&settings).map(|(key, value)| format!("{key}={value}")));
    lines.join("\n") + "\n"
}
