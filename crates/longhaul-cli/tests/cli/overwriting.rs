//! A task that replaces another one.

use super::stage::Stage;
use serde_json::Value;

/// A later task replaces a delayed one by the program, too: at once, as a whole, and through both
/// doors.
#[test]
fn a_task_replaces_a_delayed_one_through_both_doors() {
    let stage = Stage::with_gateway();
    let url = stage.gateway();
    for (key, door) in [("broker", vec![]), ("gateway", vec!["--gateway", &url])] {
        let told = |command: &[&str]| stage.told(&[command, &door[..]].concat());
        let submit = ["task", "submit", "tasks", "--dedupe-key", key, "-q"];
        let first = told(&[&submit[..], &["first", "--delay", "1h", "--tag", "old"]].concat());
        let second = told(&[&submit[..], &["second", "--overwrite"]].concat());
        assert_ne!(first, second);
        let ended = |task: &str| {
            let wait = [&["task", "wait", task.trim(), "-o", "json"], &door[..]].concat();
            serde_json::from_slice::<Value>(&stage.longhaul(&wait).stdout).unwrap()
        };
        let done = ended(&second);
        assert_eq!(done["result"], "SECOND", "{done}");
        assert_eq!(done["tags"], Value::Null, "it has a tag of the task that it replaces");
        let replaced = ended(&first);
        assert_eq!((&replaced["status"], &replaced["attempts"]), (&"cancelled".into(), &0.into()));
        // The metadata topic shows the end of a delayed task when it is delivered.
        let history = told(&["task", "history", first.trim()]);
        let (_, id) = second.trim().split_once('@').unwrap();
        assert!(history.contains(&format!("Superseded by {id}")), "{history}");
    }
    stage.end();
}
