//! Commands on one priority level of a queue, by the broker and over a gateway.

use super::stage::Stage;

/// Over a gateway, `queue purge mails-high --all` deleted the tasks of normal priority, `task submit
/// mails-high` made such a task, and `queue actions` named the wrong tasks.
#[test]
fn a_command_that_names_a_level_means_its_tasks_through_both_doors() {
    let mut stage = Stage::new();
    stage.start_gateway("127.0.0.1:0".parse().unwrap());
    let url = stage.gateway();
    for (queue, door) in [("mails", vec![]), ("letters", vec!["--gateway", &url])] {
        stage.told(&["topic", "setup", queue, "--levels"]);
        let told = |command: &[&str]| stage.told(&[command, &door[..]].concat());
        let refused = |command: &[&str]| {
            let output = stage.longhaul(&[command, &door[..]].concat());
            assert_eq!(output.status.code(), Some(2), "{command:?} {door:?}: {output:?}");
            String::from_utf8(output.stderr).unwrap()
        };
        let high = format!("{queue}-high");
        let submit = |queue: &str| told(&["task", "submit", queue, "text", "-q"]).trim().to_owned();
        let (urgent, normal) = (submit(&high), submit(queue));
        assert!(urgent.starts_with(&format!("{high}@")), "{urgent} {door:?}");
        assert!(normal.starts_with(&format!("{queue}@")), "{normal} {door:?}");

        told(&["queue", "purge", &high, "--all", "--yes", "--reason", "too late"]);
        let status = |task: &str| {
            let shown = told(&["task", "get", task, "-o", "json"]);
            serde_json::from_str::<serde_json::Value>(&shown).unwrap()["status"].clone()
        };
        assert_eq!((status(&urgent), status(&normal)), ("cancelled".into(), "ready".into()));
        let actions = told(&["queue", "actions", queue]);
        assert!(actions.contains(&urgent) && !actions.contains(&normal), "{actions} {door:?}");

        let actions = told(&["queue", "actions", &high]);
        assert!(actions.contains(&urgent), "{actions} {door:?}");

        for command in [&["queue", "pause", &high][..], &["schedule", "pause", &high, "nightly"]] {
            let why = refused(command);
            assert!(why.contains("level"), "{why} {door:?}");
        }
        told(&["queue", "stats", &high]);
        told(&["dead", "list", &high]);
        stage.longhaul(&["task", "cancel", &normal]);
    }
    let low = ["task", "submit", "letters-high", "text", "--priority", "low", "--gateway", &url];
    assert_eq!(stage.longhaul(&low).status.code(), Some(2));
    stage.end();
}
