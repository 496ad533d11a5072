//! Queues that do not exist: a misspelt name is an error, with a broker and with a gateway, and
//! creates nothing.

use super::dev;
use super::stage::Stage;
use std::collections::BTreeSet;
use std::process::Output;

/// Each names the missing queue.
const COMMANDS: &[&str] = &[
    "task list typo",
    "task list typo --status ready,running",
    "task count typo",
    "task get typo@1:2:-1",
    "task result typo@1:2:-1",
    "task result typo@1:2:-1 --wait",
    "task payload typo@1:2:-1",
    "task history typo@1:2:-1",
    "task wait typo@1:2:-1",
    "task list typo --at 1m-ago",
    "task watch typo",
    "task watch typo@1:2:-1",
    "task cancel typo@1:2:-1",
    "task kill typo@1:2:-1",
    "task delete typo@1:2:-1",
    "task force-fail typo@1:2:-1 --epoch 1",
    "task force-release typo@1:2:-1",
    "task reschedule typo@1:2:-1 --now",
    "task retry typo@1:2:-1",
    "dead list typo",
    "dead show typo@1:2:-1",
    "dead replay typo --all",
    "dead purge typo@1:2:-1",
    "dead purge typo --all",
    "queue stats typo",
    "queue pause typo",
    "queue resume typo",
    "queue limits get typo",
    "queue limits set typo --max-in-flight 2",
    "queue settings get typo",
    "queue settings set typo --max-attempts 2",
    "queue purge typo --all",
    "queue actions typo",
    "schedule list typo",
    "schedule create typo nightly report --every 1h",
    "schedule trigger typo nightly",
    "worker list typo",
    "worker drain typo somebody",
];

/// A command that a gateway does not support.
const OF_BROKERS: [&str; 1] = ["verify typo"];

/// The topics of the namespace.
fn topics(stage: &Stage) -> BTreeSet<String> {
    dev::topics(&stage.broker.admin_url().unwrap())
}

fn run(stage: &Stage, command: &str, gateway: Option<&str>) -> Output {
    // A word may contain a space.
    let words: Vec<String> = command.split(' ').map(|it| it.replace("1m-ago", "1m ago")).collect();
    let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
    words.push("--yes");
    words.extend(gateway.into_iter().flat_map(|url| ["--gateway", url]));
    stage.longhaul(&words)
}

#[test]
fn a_queue_that_does_not_exist_is_told_and_not_made() {
    let stage = Stage::with_gateway();
    let gateway = stage.gateway();
    let before = topics(&stage);
    for command in COMMANDS.iter().chain(&OF_BROKERS) {
        let output = run(&stage, command, None);
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{command}: {output:?}");
        assert!(told.contains("there is no queue `typo`"), "{command}: {told}");
        assert!(told.contains("create it with `longhaul queue create typo`"), "{command}: {told}");
        assert_eq!(topics(&stage), before, "{command} has made topics");
    }
    for command in COMMANDS {
        let output = run(&stage, command, Some(&gateway));
        assert_eq!(output.status.code(), Some(3), "{command} --gateway: {output:?}");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        let expected = run(&stage, command, None).stderr;
        assert_eq!(told, String::from_utf8_lossy(&expected), "{command} --gateway");
    }
    assert_eq!(topics(&stage), before);
    stage.end();
}

/// Without the list of queues, the gateway asks the broker for the one queue.
#[test]
fn a_gateway_without_an_admin_url_tells_it_as_well() {
    let mut stage = Stage::with_worker();
    stage.start_gateway_without_admin();
    let gateway = stage.gateway();
    let before = topics(&stage);
    for command in COMMANDS {
        let output = run(&stage, command, Some(&gateway));
        assert_eq!(output.status.code(), Some(3), "{command} --gateway: {output:?}");
        assert_eq!(topics(&stage), before, "{command} has made topics");
    }
    stage.told(&["task", "count", "tasks", "--gateway", &gateway]);
    stage.end();
}

/// Partitioned or not, and before any worker has used it.
#[test]
fn a_queue_exists_once_it_is_set_up_or_has_a_task() {
    let stage = Stage::new();
    stage.told(&["topic", "setup", "parts", "--partitions", "3"]);
    stage.told(&["topic", "setup", "whole"]);
    stage.told(&["task", "submit", "sudden", "work"]);
    for queue in ["parts", "whole", "sudden"] {
        for command in [["task", "count"], ["queue", "stats"], ["dead", "list"], ["queue", "pause"]]
        {
            stage.told(&[command[0], command[1], queue]);
        }
    }
    stage.end();
}

/// Such a task would never run.
#[test]
fn a_priority_is_refused_where_nobody_serves_it() {
    let stage = Stage::with_gateway();
    let gateway = stage.gateway();
    let submit = "task submit tasks urgent --priority high";
    for gateway in [None, Some(gateway.as_str())] {
        let output = run(&stage, submit, gateway);
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{output:?}");
        assert!(told.contains("the queue `tasks` has no topics for priorities"), "{told}");
    }
    assert!(!topics(&stage).iter().any(|topic| topic.contains("-high")), "{:?}", topics(&stage));
    stage.told(&["topic", "setup", "tasks", "--levels"]);
    assert!(run(&stage, submit, None).status.success());
    stage.end();
}

/// The page must create the queue before it sets its order.
#[test]
fn the_commands_of_the_page_about_order_work_as_printed() {
    let stage = Stage::new();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/order.md");
    let page = std::fs::read_to_string(path).unwrap();
    let commands: Vec<&str> =
        page.lines().filter_map(|line| line.strip_prefix("$ longhaul ")).collect();
    assert_eq!(commands.len(), 3, "{commands:?}");
    for command in commands {
        stage.told(&command.split(' ').collect::<Vec<_>>());
    }
    assert!(stage.told(&["queue", "settings", "get", "bookings"]).contains("key"));
    stage.end();
}
