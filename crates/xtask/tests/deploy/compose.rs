//! The compose files of `docker/`.

use super::{documents, image_fault, read, seconds};
use serde_json::Value;

const FILES: [&str; 3] =
    ["docker/compose.yaml", "docker/compose.pulsar.yaml", "docker/compose.cluster.yaml"];

fn strings(value: &Value) -> Vec<&str> {
    value.as_array().map(|all| all.iter().filter_map(Value::as_str).collect()).unwrap_or_default()
}

fn service_faults(name: &str, service: &Value, file: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let image = service["image"].as_str().unwrap_or_default();
    found.extend(image_fault(image));
    let is_over = service["restart"] == "no";
    let is_disabled = service["healthcheck"]["disable"] == true;
    // The image of longhaul brings a check for gateways along.
    let is_gateway =
        image.starts_with("longhaul:") && strings(&service["command"]).first() == Some(&"server");
    if !is_over && service["healthcheck"].get("test").is_none() && !is_gateway {
        found.push("it has no health check of its own".to_owned());
    }
    if is_disabled && !is_over {
        found.push("its health check is switched off".to_owned());
    }
    if !is_over && service["restart"] != "unless-stopped" {
        found.push("nobody starts it again".to_owned());
    }
    for port in strings(&service["ports"]) {
        if !port.starts_with("127.0.0.1:") {
            found.push(format!("{port} is reached by other machines"));
        }
    }
    for volume in strings(&service["volumes"]) {
        let source = volume.split(':').next().unwrap_or_default();
        if file["volumes"].get(source).is_none() {
            found.push(format!("{source} is no named volume"));
        }
    }
    for (other, how) in service["depends_on"].as_object().into_iter().flatten() {
        let Some(other) = file["services"].get(other) else {
            found.push(format!("it waits for {other}, which there is not"));
            continue;
        };
        let expected = if other["restart"] == "no" {
            "service_completed_successfully"
        } else {
            "service_healthy"
        };
        if how["condition"] != expected {
            found.push(format!("it waits for {}", how["condition"]));
        }
    }
    if service["privileged"] == true || service["network_mode"] == "host" {
        found.push("it may do what it likes to the machine".to_owned());
    }
    if image.starts_with("longhaul:") {
        if service["read_only"] != true || strings(&service["cap_drop"]) != ["ALL"] {
            found.push("it may do more than it needs".to_owned());
        }
        let command = strings(&service["command"]);
        let drain = command
            .iter()
            .position(|word| *word == "--drain")
            .map_or(30, |place| seconds(command[place + 1]));
        let grace = service["stop_grace_period"].as_str().map_or(10, seconds);
        // The grace of programs is 10 s, and their supervisor has 8 s more.
        if !is_over && grace < drain + if command[0] == "worker" { 20 } else { 10 } {
            found.push(format!("it is killed after {grace} s, in a drain of {drain} s"));
        }
    }
    found.into_iter().map(|fault| format!("{name}: {fault}")).collect()
}

fn faults(text: &str) -> Vec<String> {
    let file = documents(text).remove(0);
    let services = file["services"].as_object().unwrap();
    let mut found: Vec<_> =
        services.iter().flat_map(|(name, service)| service_faults(name, service, &file)).collect();
    for (volume, _) in file["volumes"].as_object().unwrap() {
        let is_used = |service: &Value| {
            strings(&service["volumes"])
                .iter()
                .any(|mount| mount.starts_with(&format!("{volume}:")))
        };
        if !services.values().any(is_used) {
            found.push(format!("nobody uses the volume {volume}"));
        }
    }
    found
}

#[test]
fn images_are_pinned_services_are_watched_and_nobody_else_reaches_them() {
    for path in FILES {
        assert_eq!(faults(&read(path)), Vec::<String>::new(), "{path}");
    }
}

#[test]
fn each_planted_fault_is_found() {
    let text = read("docker/compose.pulsar.yaml");
    for (from, to) in [
        ("apachepulsar/pulsar:4.0.7", "apachepulsar/pulsar:latest"),
        ("apachepulsar/pulsar:4.0.7", "apachepulsar/pulsar"),
        ("127.0.0.1:7070:7070", "7070:7070"),
        ("condition: service_healthy", "condition: service_started"),
        ("- data:/pulsar/data", "- ./data:/pulsar/data"),
        ("stop_grace_period: 11m", "stop_grace_period: 1m"),
        ("stop_grace_period: 45s", "stop_grace_period: 30s"),
        ("read_only: true", "privileged: true"),
        (
            "    healthcheck:\n      test: [\"CMD\", \"bin/pulsar-admin\"",
            "    unhealthy:\n      test: [\"CMD\", \"bin/pulsar-admin\"",
        ),
    ] {
        assert!(text.contains(from), "the file has no `{from}`");
        assert!(
            !faults(&text.replace(from, to)).is_empty(),
            "`{to}` in place of `{from}` is not found"
        );
    }
}

/// An entry on as many bookies as there are stops every publish while one of them is dead.
#[test]
fn the_cluster_goes_on_without_one_of_its_bookies() {
    let file = documents(&read(FILES[2])).remove(0);
    let services = file["services"].as_object().unwrap();
    let bookies = services.keys().filter(|name| name.starts_with("bookie-")).count();
    let brokers: Vec<_> = services.iter().filter(|(name, _)| name.starts_with("broker-")).collect();
    assert_eq!((bookies, brokers.len()), (3, 2));
    for (name, broker) in brokers {
        let quorum = |name: &str| {
            let key = format!("PULSAR_PREFIX_managedLedgerDefault{name}");
            broker["environment"][key].as_str().unwrap().parse::<usize>().unwrap()
        };
        let [ensemble, written, confirmed] =
            ["EnsembleSize", "WriteQuorum", "AckQuorum"].map(quorum);
        assert!(ensemble < bookies && written <= ensemble && confirmed <= written, "{name}");
        assert!(confirmed > 1, "{name}: what was confirmed is on one disk alone");
        assert_eq!(broker["environment"]["PULSAR_PREFIX_advertisedAddress"], name.as_str());
    }
    let gateway = &services["gateway"]["environment"];
    assert_eq!(gateway["LONGHAUL_SERVICE_URL"], "pulsar://broker-1:6650,broker-2:6650");
}
