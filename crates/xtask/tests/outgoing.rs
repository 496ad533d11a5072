//! The gateway fetches no address that a caller names: nothing of it can fetch anything.
//!
//! An HTTP client is among its dependencies, below the library, which asks the admin API and the OAuth2 issuer that the operator has configured. The gateway has
//! none of its own, and opens no connection.

use anyhow::{Context, ensure};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

const GATEWAY: &str = "longhaul-server";

/// Crates that fetch addresses, and who may have them: each with its reason above.
const CLIENTS: &[(&str, &[&str])] = &[
    ("reqwest", &["longhaul"]),
    ("attohttpc", &[]),
    ("awc", &[]),
    ("curl", &[]),
    ("http_req", &[]),
    ("isahc", &[]),
    ("minreq", &[]),
    ("surf", &[]),
    ("ureq", &[]),
];

/// What opens connections, in the gateway's own sources.
const CALLS: &[&str] = &[
    "reqwest",
    "hyper::client",
    "hyper_util::client",
    "client::legacy",
    "TcpStream::connect",
    "UnixStream::connect",
    "UdpSocket",
    "TcpSocket::connect",
    "lookup_host",
    "to_socket_addrs",
];

/// Which packages each package uses, by name; those for tests and builds left out.
fn used() -> anyhow::Result<BTreeMap<String, BTreeSet<String>>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["metadata", "--locked", "--format-version", "1"]).current_dir(top());
    let output = command.output().context("cargo metadata did not start")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo metadata failed: {complaint}");
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let array = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let field = |value: &Value, name: &str| value.get(name).cloned().unwrap_or_default();
    let packages = array(&field(&metadata, "packages"));
    let names: BTreeMap<_, _> =
        packages.iter().map(|it| (text(&field(it, "id")), text(&field(it, "name")))).collect();
    let mut used = BTreeMap::<String, BTreeSet<String>>::new();
    for node in array(&field(&field(&metadata, "resolve"), "nodes")) {
        let name = names.get(&text(&field(&node, "id"))).context("a package without a name")?;
        let runs = |it: &Value| {
            array(&field(it, "dep_kinds")).iter().any(|it| field(it, "kind").is_null())
        };
        let dependencies = array(&field(&node, "deps")).into_iter().filter(runs);
        let dependencies =
            dependencies.filter_map(|it| names.get(&text(&field(&it, "pkg"))).cloned());
        used.entry(name.clone()).or_default().extend(dependencies);
    }
    Ok(used)
}

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_gateway_has_no_http_client_of_its_own() -> anyhow::Result<()> {
    let used = used()?;
    let (mut reached, mut open) = (BTreeSet::new(), vec![GATEWAY.to_owned()]);
    while let Some(name) = open.pop() {
        if reached.insert(name.clone()) {
            open.extend(
                used.get(&name).with_context(|| format!("no package {name}"))?.iter().cloned(),
            );
        }
    }
    ensure!(reached.len() > 50, "the gateway has {} dependencies", reached.len());
    for (client, allowed) in CLIENTS {
        let has = |name: &&String| used.get(*name).is_some_and(|it| it.contains(*client));
        let by: Vec<_> = reached.iter().filter(has).map(String::as_str).collect();
        ensure!(
            by == *allowed,
            "{client} is used by {by:?} below the gateway, and not by {allowed:?}"
        );
    }
    Ok(())
}

#[test]
fn the_gateway_opens_no_connection() -> anyhow::Result<()> {
    let (mut files, mut open) = (0, vec![top().join("crates").join(GATEWAY).join("src")]);
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
                continue;
            }
            // What is behind this is for tests alone.
            let text = std::fs::read_to_string(&path)?;
            let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            for call in CALLS {
                ensure!(!text.contains(call), "{}: `{call}`", path.display());
            }
            files += 1;
        }
    }
    ensure!(files > 50, "the gateway has {files} files");
    Ok(())
}
