//! Files of `docker/` and `packaging/` fit each other and the program. The tools in `.ci/run` check
//! each file by itself: hadolint, schemas, systemd-analyze, promtool.

use crate::tree::{read, texts};
use serde::Deserialize;
use serde_json::Value;

const COMPOSE: [&str; 3] =
    ["docker/compose.yaml", "docker/compose.pulsar.yaml", "docker/compose.cluster.yaml"];
const KUBERNETES: &str = "packaging/kubernetes";
/// The default drain in seconds, and the seconds that a gateway needs after it.
const DRAIN: u64 = 30;
const GATEWAY_MORE: u64 = 10;
/// Seconds that a worker needs after its drain: the grace of a program, and that of its supervisor.
const WORKER_MORE: u64 = 20;

/// The documents of a YAML file, with its anchors and merges resolved.
fn documents(text: &str) -> Vec<Value> {
    let documents = serde_yaml_ng::Deserializer::from_str(text).map(|document| {
        let mut value = serde_yaml_ng::Value::deserialize(document).unwrap();
        // A merge may hold another one.
        (0..3).for_each(|_| value.apply_merge().unwrap());
        serde_json::to_value(value).unwrap()
    });
    documents.collect()
}

/// Seconds of `45s`, `11m`, `2h`.
fn seconds(text: &str) -> u64 {
    let (number, unit) = text.split_at(text.len() - 1);
    let unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        other => panic!("{text}: {other} is no unit"),
    };
    number.parse::<u64>().unwrap() * unit
}

fn compose_faults(text: &str) -> Vec<String> {
    let file = documents(text).remove(0);
    let mut faults = Vec::new();
    for (name, service) in file["services"].as_object().unwrap() {
        let is_job = service["restart"] == "no";
        let image = service["image"].as_str().unwrap();
        if image
            .split_once(':')
            .is_none_or(|(_, tag)| !tag.starts_with(|it: char| it.is_ascii_digit()))
        {
            faults.push(format!("{name}: {image} has no version"));
        }
        if texts(&service["ports"]).iter().any(|port| !port.starts_with("127.0.0.1:")) {
            faults.push(format!("{name}: other machines reach a port"));
        }
        for (other, wait) in service["depends_on"].as_object().into_iter().flatten() {
            let is_job = file["services"][other]["restart"] == "no";
            let condition =
                if is_job { "service_completed_successfully" } else { "service_healthy" };
            if wait["condition"] != condition {
                faults.push(format!("{name}: waits for {other}: {}", wait["condition"]));
            }
        }
        let is_free = service["privileged"] == true || service["network_mode"] == "host";
        let is_ours = image.starts_with("longhaul:");
        let is_held = service["read_only"] == true && texts(&service["cap_drop"]) == ["ALL"];
        if is_free || is_ours && !is_held {
            faults.push(format!("{name}: may do more than it needs"));
        }
        if is_ours && !is_job {
            let command = texts(&service["command"]);
            let drain = command.iter().position(|word| *word == "--drain");
            let drain = drain.map_or(DRAIN, |at| seconds(command[at + 1]));
            let more = if command[0] == "worker" { WORKER_MORE } else { GATEWAY_MORE };
            if service["stop_grace_period"].as_str().map_or(10, seconds) < drain + more {
                faults.push(format!("{name}: is killed in its drain"));
            }
        }
    }
    faults
}

#[test]
fn services_of_compose_files_are_pinned_held_and_drained() {
    for path in COMPOSE {
        assert_eq!(compose_faults(&read(path)), Vec::<String>::new(), "{path}");
    }
    let text = read(COMPOSE[1]);
    for (from, to) in [
        ("apachepulsar/pulsar:4.0.7", "apachepulsar/pulsar:latest"),
        ("127.0.0.1:7070:7070", "7070:7070"),
        ("condition: service_healthy", "condition: service_started"),
        ("read_only: true", "privileged: true"),
        ("stop_grace_period: 11m", "stop_grace_period: 10m"),
        ("stop_grace_period: 45s", "stop_grace_period: 30s"),
    ] {
        assert!(text.contains(from), "{from}");
        assert!(!compose_faults(&text.replace(from, to)).is_empty(), "{to} is not found");
    }
}

/// An entry on as many bookies as there are stops every publish while one of them is dead.
#[test]
fn the_cluster_goes_on_without_one_of_its_bookies() {
    let file = documents(&read(COMPOSE[2])).remove(0);
    let services = file["services"].as_object().unwrap();
    let bookies = services.keys().filter(|name| name.starts_with("bookie-")).count();
    let brokers: Vec<_> = services.iter().filter(|(name, _)| name.starts_with("broker-")).collect();
    assert_eq!((bookies, brokers.len()), (3, 2));
    for (name, broker) in brokers {
        let [ensemble, written, confirmed] =
            ["EnsembleSize", "WriteQuorum", "AckQuorum"].map(|it| {
                let key = format!("PULSAR_PREFIX_managedLedgerDefault{it}");
                broker["environment"][key].as_str().unwrap().parse::<usize>().unwrap()
            });
        assert!(ensemble < bookies && written <= ensemble && confirmed <= written, "{name}");
        assert!(confirmed > 1, "{name}: an entry that was confirmed is on one disk alone");
    }
}

#[test]
fn units_have_the_time_to_drain() {
    for (path, drain) in [
        ("packaging/systemd/longhaul.service", DRAIN + GATEWAY_MORE),
        ("packaging/systemd/longhaul-worker@.service", 3600 + WORKER_MORE),
    ] {
        let text = read(path);
        let stop = text.lines().find_map(|line| line.strip_prefix("TimeoutStopSec=")).unwrap();
        assert!(stop.parse::<u64>().unwrap() >= drain, "{path}: {stop}");
        // The programs of a worker get no SIGTERM from systemd.
        assert_eq!(text.contains("LONGHAUL_DRAIN=1h"), text.contains("KillMode=mixed"), "{path}");
    }
}

fn deployment(file: &str) -> Value {
    let all = documents(&read(&format!("{KUBERNETES}/{file}.yaml")));
    all.into_iter().find(|object| object["kind"] == "Deployment").unwrap()
}

fn variable<'a>(container: &'a Value, name: &str) -> &'a str {
    let all = container["env"].as_array().unwrap();
    all.iter().find(|it| it["name"] == name).and_then(|it| it["value"].as_str()).unwrap()
}

#[test]
fn pods_have_the_time_to_drain_and_live_without_their_broker() {
    let (gateway, worker) = (deployment("gateway"), deployment("worker"));
    for deployment in [&gateway, &worker, &deployment("worker-http")] {
        let pod = &deployment["spec"]["template"]["spec"];
        let held = &pod["containers"][0]["securityContext"];
        assert_eq!(held["readOnlyRootFilesystem"], true);
        // The namespace asks for it, too, and so does the image.
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    }
    for deployment in [&gateway, &worker] {
        let pod = &deployment["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        let needed = if container["args"][0] == "worker" {
            seconds(variable(container, "LONGHAUL_DRAIN")) + WORKER_MORE
        } else {
            // Requests still come until the pod has left the service.
            let before = container["lifecycle"]["preStop"]["sleep"]["seconds"].as_u64().unwrap();
            before + DRAIN + GATEWAY_MORE
        };
        assert!(pod["terminationGracePeriodSeconds"].as_u64().unwrap() >= needed, "{needed}");
        for probe in ["startupProbe", "livenessProbe"] {
            assert_eq!(container[probe]["httpGet"]["path"], "/livez", "a restart mends no broker");
        }
    }
    // The autoscaler goes by the demand that the gateway measures, in units of the worker's slots.
    let scaled = documents(&read(&format!("{KUBERNETES}/keda/scaledobject.yaml"))).remove(0);
    assert_eq!(scaled["spec"]["scaleTargetRef"]["name"], worker["metadata"]["name"]);
    assert!(worker["spec"].get("replicas").is_none(), "each apply would undo the autoscaler");
    let [gateway, worker] =
        [&gateway, &worker].map(|it| &it["spec"]["template"]["spec"]["containers"][0]);
    let trigger = &scaled["spec"]["triggers"][0]["metadata"];
    assert_eq!(trigger["threshold"], variable(worker, "LONGHAUL_CONCURRENCY"));
    let queue = worker["args"][2].as_str().unwrap();
    let query = trigger["query"].as_str().unwrap();
    assert!(
        query.contains("longhaul_demand") && query.contains(&format!("/{queue}(-high|-low)?\"")),
        "{query}"
    );
    assert_eq!(variable(gateway, "LONGHAUL_MEASURE"), queue);
    assert_eq!(trigger["ignoreNullValues"], "false", "no answer is not a demand of 0");
}

#[test]
fn the_debian_package_names_files_and_settings_that_exist() {
    let script = read("packaging/debian/build");
    let parts = script.split("$top/").skip(1).filter_map(|rest| rest.split('"').next());
    let parts = parts.filter(|part| part.starts_with("packaging/") && !part.contains('$'));
    assert!(parts.map(read).count() >= 7);
    let settings = read("crates/longhaul-cli/src/settings/mod.rs");
    let defaults = read("packaging/debian/default");
    for line in defaults.lines().filter_map(|line| line.strip_prefix("#LONGHAUL_")) {
        let name = line.split('=').next().unwrap().to_lowercase().replace('_', "-");
        assert!(settings.contains(&format!("(\"{name}\"")), "no setting {name}");
    }
}

/// The engine is sent everything that `.dockerignore` does not name; `target` alone has gigabytes.
#[test]
fn the_context_of_the_image_is_what_its_build_needs() {
    assert!(
        read("docker/Dockerfile").contains("\nUSER 10001:10001\n"),
        "runAsNonRoot asks for a number"
    );
    let ignored = read(".dockerignore");
    let is_ignored = |path| ignored.lines().any(|line| line == path);
    for path in ["/target", "/.git", "/.cache"] {
        assert!(is_ignored(path), "{path} is sent");
    }
    for path in [
        "/docs",
        "/README.md",
        "/src",
        "/crates",
        "/integration-tests",
        "/proofs",
        "/Cargo.lock",
        "/LICENSE",
    ] {
        assert!(!is_ignored(path), "{path} is not sent");
    }
}
