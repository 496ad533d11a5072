//! The embedded broker as a process, since tests kill it, and killing a thread is not the same.

use std::ffi::OsString;
use std::fs;

use anyhow::{Context, Result};

use super::broker::{BrokerConfig, Ports};
use super::process::LocalServer;
use super::security;
use crate::example;

/// Builds the program, or finds it built.
pub(super) async fn prepare(ports: Ports, config: &BrokerConfig) -> Result<LocalServer> {
    let folder = tempfile::Builder::new().prefix("longhaul-broker-").tempdir()?;
    let mut command = match &config.program {
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
    let program = command.first().context("no program")?.to_string_lossy().into_owned();
    command.extend(arguments(ports, config).into_iter().map(OsString::from));
    Ok(LocalServer::new(command, program, folder))
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
