//! The manifests of `packaging/kubernetes`. Schemas are for tools (`.ci/run`); here is what no schema says.

use super::{documents, read, seconds};
use serde_json::Value;

const FOLDER: &str = "packaging/kubernetes";

fn find<'a>(all: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let found =
        all.iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
    found.unwrap_or_else(|| panic!("no {kind} {name}"))
}

fn manifests() -> Vec<Value> {
    let list = documents(&read(&format!("{FOLDER}/kustomization.yaml"))).remove(0);
    let files = list["resources"].as_array().unwrap().iter().map(|text| text.as_str().unwrap());
    files.flat_map(|file| documents(&read(&format!("{FOLDER}/{file}")))).collect()
}

fn variable<'a>(container: &'a Value, name: &str) -> Option<&'a str> {
    let all = container["env"].as_array()?;
    all.iter().find(|object| object["name"] == name)?["value"].as_str()
}

fn pod_faults(deployment: &Value) -> Vec<String> {
    let pod = &deployment["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let args: Vec<_> =
        container["args"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
    let mut found = Vec::new();
    let grace = pod["terminationGracePeriodSeconds"].as_u64().unwrap_or(30);
    let drain = seconds(variable(container, "LONGHAUL_DRAIN").unwrap_or("30s"));
    let (before, after) = if args[0] == "worker" {
        // Then the grace of its programs, and 8 s for their supervisor.
        (0, seconds(variable(container, "LONGHAUL_GRACE").unwrap_or("10s")) + 10)
    } else {
        (container["lifecycle"]["preStop"]["sleep"]["seconds"].as_u64().unwrap_or_default(), 5)
    };
    if args[0] == "server" && before == 0 {
        found.push("requests come while it ends".to_owned());
    }
    if grace < before + drain + after {
        found.push(format!("it is killed after {grace} s, in a drain of {drain} s"));
    }
    for probe in ["startupProbe", "livenessProbe"] {
        // A gateway whose broker is away is alive; to start it again would mend nothing.
        if container[probe]["httpGet"]["path"] != "/livez" {
            found.push(format!("{probe} does not ask for a sign of life"));
        }
    }
    if args[0] == "server" && container["readinessProbe"]["httpGet"]["path"] != "/readyz" {
        found.push("it is asked before it is ready".to_owned());
    }
    let limits = (&container["securityContext"], &pod["securityContext"]);
    let is_held = limits.0["readOnlyRootFilesystem"] == true
        && limits.0["allowPrivilegeEscalation"] == false
        && limits.0["capabilities"]["drop"][0] == "ALL"
        && limits.1["runAsNonRoot"] == true
        && limits.1["seccompProfile"]["type"] == "RuntimeDefault"
        && pod["automountServiceAccountToken"] == false;
    if !is_held {
        found.push("it may do more than it needs".to_owned());
    }
    if container["resources"]["limits"].get("memory").is_none()
        || container["resources"]["requests"].get("cpu").is_none()
    {
        found.push("it has no limits".to_owned());
    }
    let selector = &deployment["spec"]["selector"]["matchLabels"];
    if selector != &deployment["spec"]["template"]["metadata"]["labels"] {
        found.push("it selects other pods".to_owned());
    }
    found
}

/// A pod that is killed in its drain costs each of its tasks an attempt.
#[test]
fn a_busy_pod_has_the_time_to_drain_and_is_held_to_what_it_needs() {
    let all = manifests();
    for name in ["longhaul-gateway", "longhaul-worker-hello"] {
        let deployment = find(&all, "Deployment", name);
        assert_eq!(pod_faults(deployment), Vec::<String>::new(), "{name}");
        let budget = find(&all, "PodDisruptionBudget", name);
        assert_eq!(
            budget["spec"]["selector"]["matchLabels"],
            deployment["spec"]["selector"]["matchLabels"],
            "{name}"
        );
        let text = deployment.to_string();
        for (from, to) in [
            ("\"terminationGracePeriodSeconds\":", "\"other\":"),
            ("\"readOnlyRootFilesystem\":true", "\"readOnlyRootFilesystem\":false"),
            ("\"/livez\"", "\"/readyz\""),
            ("\"memory\"", "\"disk\""),
            ("\"runAsNonRoot\":true", "\"runAsNonRoot\":false"),
        ] {
            assert!(text.contains(from), "{name} has no `{from}`");
            let planted: Value = serde_json::from_str(&text.replace(from, to)).unwrap();
            assert!(
                !pod_faults(&planted).is_empty(),
                "{name}: `{to}` in place of `{from}` is not found"
            );
        }
    }
}

#[test]
fn the_autoscaler_goes_by_the_demand_that_the_gateway_tells() {
    let all = manifests();
    let (gateway, worker) = (
        find(&all, "Deployment", "longhaul-gateway"),
        find(&all, "Deployment", "longhaul-worker-hello"),
    );
    let scaled = documents(&read(&format!("{FOLDER}/keda/scaledobject.yaml"))).remove(0);
    assert_eq!(scaled["spec"]["scaleTargetRef"]["name"], worker["metadata"]["name"]);
    // Otherwise each apply would set back what the autoscaler has chosen.
    assert!(worker["spec"].get("replicas").is_none());
    let trigger = &scaled["spec"]["triggers"][0]["metadata"];
    let container = &worker["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(trigger["threshold"].as_str(), variable(container, "LONGHAUL_CONCURRENCY"));
    let queue = container["args"][2].as_str().unwrap();
    let query = trigger["query"].as_str().unwrap();
    assert!(query.contains("longhaul_demand") && query.contains(&format!("/{queue}\"")), "{query}");
    let measured =
        variable(&gateway["spec"]["template"]["spec"]["containers"][0], "LONGHAUL_MEASURE");
    assert_eq!(measured, Some(queue), "the gateway measures it");
    assert_eq!(trigger["ignoreNullValues"], "false", "no answer is not a demand of 0");
}
