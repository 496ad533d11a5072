//! Ending tasks, replaying dead letters, changing queues and schedules.

use crate::config::ServerConfig;
use crate::core::QueueName;
use crate::testing::{TestGateway, TestResponse};
use longhaul::ops::QueueSettings;
use longhaul::{TaskContext, TaskError, Text, processor_fn};
use serde_json::json;
use std::time::Duration;

/// A worker that fails each task for good, except those named `wait`.
fn refuse(bench: &TestGateway) -> longhaul::WorkerHandle {
    let refuse = processor_fn(async |text: Text, context: TaskContext| {
        if text.0 == "wait" {
            context.cancelled().await;
        }
        Err::<Text, _>(TaskError::fatal("status 503"))
    });
    bench.engine.start(bench.engine.worker("tasks", refuse))
}

/// `level=normal` purged the dead letters of all levels.
#[test]
fn dead_letters_are_those_of_the_level_that_is_named() {
    let bench = TestGateway::new();
    let refuse = processor_fn(async |_: Text, _: TaskContext| {
        Err::<Text, _>(TaskError::fatal("status 503"))
    });
    let worker = bench.engine.worker("tasks", refuse).levels(longhaul::Levels::strict());
    let _worker = bench.engine.start(worker);
    let ids = ["high", "normal", "low"].map(|level| {
        let task = json!({"payload": "a", "priority": level});
        bench.post("/v1/queues/tasks/tasks", task).text("id")
    });
    bench.engine.advance(Duration::from_secs(60));
    let dead = |query: &str| {
        let listed = bench.get(&format!("/v1/queues/tasks/dead{query}"));
        let mut tasks = listed.texts("dead_letters", "task");
        tasks.sort();
        tasks
    };
    let mut all = ids.to_vec();
    all.sort();
    assert_eq!(dead(""), all);
    for (level, id) in ["high", "normal", "low"].iter().zip(&ids) {
        assert_eq!(dead(&format!("?level={level}")), [id.as_str()]);
    }
    let purge =
        |query: &str, body| bench.post(&format!("/v1/queues/tasks/dead:purge{query}"), body);
    purge("?level=low", json!({"tasks": [ids[1]]})).check_refused(400, "query_invalid");
    assert_eq!(purge("?level=normal", json!({"all": true})).json()["purged"], json!(1));
    all.retain(|id| *id != ids[1]);
    assert_eq!(dead(""), all);
    let actions = bench.get("/v1/queues/tasks/actions?level=normal").json();
    assert_eq!(actions["actions"][0]["task"], json!(ids[1]), "{actions}");
    assert_eq!(bench.get("/v1/queues/tasks/actions?level=low").json()["actions"], json!([]));
}

/// A purge of `level=high` deleted the tasks of normal priority.
#[test]
fn a_purge_deletes_the_tasks_of_the_level_that_it_names() {
    let bench = TestGateway::new();
    let path = "/v1/queues/tasks/tasks";
    let ids = ["high", "normal", "low"]
        .map(|level| bench.post(path, json!({"payload": "a", "priority": level})).text("id"));
    let purge = |query: &str| {
        let path = format!("/v1/queues/tasks:purge{query}");
        bench.post(&path, json!({"all": true, "reason": "a mistake"})).json()["deleted"].clone()
    };
    let statuses = || ids.clone().map(|id| bench.get(&format!("{path}/{id}")).text("status"));
    assert_eq!(purge("?level=high"), json!(1));
    assert_eq!(statuses(), ["cancelled", "ready", "ready"]);
    assert_eq!(purge(""), json!(1));
    assert_eq!(statuses(), ["cancelled", "cancelled", "ready"]);
    let log = bench.get("/v1/queues/tasks/actions");
    assert_eq!(log.texts("actions", "task"), ids[..2], "{log:?}");
}

#[test]
fn a_task_is_cancelled_killed_and_deleted_with_a_reason() {
    let bench = TestGateway::new();
    let at = |id: &str, verb: &str| format!("/v1/queues/tasks/tasks/{id}{verb}");
    let _worker = refuse(&bench);
    for verb in [":cancel", ":kill"] {
        let id = bench.submit("tasks", "wait");
        assert_eq!(bench.post(&at(&id, verb), json!({"reason": "no use"})).status, 204);
        let over = bench.get(&at(&id, "/wait"));
        assert_eq!(over.text("status"), "cancelled", "{verb}: {over:?}");
        bench.post(&at(&id, verb), json!({})).check_refused(409, "task_over");
    }
    let id = bench.submit("tasks", "wait");
    // If the worker claims the task meanwhile, the action is repeated, and logged twice.
    bench.engine.advance(Duration::from_secs(5));
    assert_eq!(bench.delete(&at(&id, "?reason=mistake")).status, 204);
    let over = bench.get(&at(&id, "/wait")).json();
    assert_eq!(over["status"], json!("cancelled"));
    assert!(over["reason"].as_str().unwrap().ends_with(": mistake"), "{over}");
    let log = bench.get("/v1/queues/tasks/actions");
    assert_eq!(log.texts("actions", "action"), ["cancel", "kill", "delete"], "{log:?}");
    assert_eq!(log.texts("actions", "reason")[..2], ["no use"; 2], "{log:?}");
    let long = json!({"reason": "x".repeat(1_001)});
    assert_eq!(bench.post(&at(&id, ":cancel"), long).status, 422);
}

#[test]
fn a_task_that_hangs_is_released_and_failed_by_force() {
    let bench = TestGateway::new();
    let at = |id: &str, verb: &str| format!("/v1/queues/tasks/tasks/{id}{verb}");
    let id = bench.submit("tasks", "wait");
    bench.post(&at(&id, ":force-release"), json!({})).check_refused(409, "task_not_running");
    let _worker = refuse(&bench);
    bench.engine.advance(Duration::from_secs(5));
    assert_eq!(bench.get(&at(&id, "")).text("status"), "running");
    let stale = bench.post(&at(&id, ":force-fail"), json!({"epoch": 7}));
    stale.check_refused(409, "stale_epoch");
    assert_eq!(stale.json()["current_epoch"], json!(1));
    assert_eq!(bench.post(&at(&id, ":force-release"), json!({"epoch": 1})).status, 204);
    assert_eq!(bench.post(&at(&id, ":force-fail"), json!({"reason": "hangs"})).status, 204);
    assert_eq!(bench.get(&at(&id, "")).text("status"), "failed");
}

#[test]
fn a_waiting_task_is_rescheduled() {
    let bench = TestGateway::new();
    let at = |id: &str| format!("/v1/queues/tasks/tasks/{id}:reschedule");
    let delayed = json!({"payload": "a", "delay": "P3D"});
    let id = bench.post("/v1/queues/tasks/tasks", delayed).text("id");
    for unfit in [json!({}), json!({"delay": "1h", "at": 5}), json!({"delay": "P40000D"})] {
        bench.post(&at(&id), unfit).check_refused(422, "request_unfit");
    }
    assert_eq!(bench.post(&at(&id), json!({"delay": "0s", "reason": "wanted"})).status, 204);
    let task = format!("/v1/queues/tasks/tasks/{id}");
    let begun = bench.get(&task).json();
    assert_eq!((&begun["status"], &begun["attempts"]), (&json!("ready"), &json!(0)), "{begun}");
    // An instant of the past is now; one of the future holds it until then.
    assert_eq!(bench.post(&at(&id), json!({"at": "2020-01-01T00:00:00Z"})).status, 204);
    assert_eq!(bench.get(&task).text("status"), "ready");
    assert_eq!(bench.post(&at(&id), json!({"delay": "P3650D"})).status, 204);
    assert_eq!(bench.get(&task).text("status"), "scheduled");
    let log = bench.get("/v1/queues/tasks/actions").json();
    let first = &log["actions"][0];
    assert_eq!(first["action"], json!("reschedule"), "{log}");
    assert!(first["reason"].as_str().is_some_and(|it| it.ends_with("wanted")), "{log}");
    let _worker = refuse(&bench);
    let running = bench.submit("tasks", "wait");
    bench.engine.advance(Duration::from_secs(5));
    bench.post(&at(&running), json!({"delay": "1h"})).check_refused(409, "task_running");
}

#[test]
fn dead_letters_are_listed_replayed_and_purged() {
    let bench = TestGateway::new();
    let first = bench.submit("tasks", "a");
    let second = bench.submit("tasks", "b");
    let alive = bench.post("/v1/queues/tasks/tasks", json!({"payload": "c", "delay": "1h"}));
    let worker = refuse(&bench);
    for id in [&first, &second] {
        let over = bench.get(&format!("/v1/queues/tasks/tasks/{id}/wait"));
        assert_eq!(over.text("status"), "failed", "{over:?}");
    }
    drop(worker);
    let listed = bench.get("/v1/queues/tasks/dead?reason=503").json();
    assert_eq!(listed["dead_letters"].as_array().unwrap().len(), 2, "{listed}");
    let shown = bench.get(&format!("/v1/queues/tasks/dead/{first}")).json();
    assert_eq!((&shown["payload_base64"], &shown["attempts"]), (&json!("YQ=="), &json!(1)));
    let selection = json!({"reason": "again", "tasks": [first, alive.text("id"), "99:99:-1"]});
    let replayed = bench.post("/v1/queues/tasks/dead:replay", selection);
    let outcomes = replayed.texts("outcomes", "outcome");
    assert_eq!(outcomes, ["RESTARTED", "NOT_DEAD", "NOT_FOUND"], "{replayed:?}");
    let restarted = replayed.json()["outcomes"][0]["other"].as_str().unwrap().to_owned();
    let again = bench.post(&format!("/v1/queues/tasks/tasks/{first}:retry"), json!({}));
    assert_eq!(again.text("id"), restarted, "it is never run twice");
    let named = json!({"reason": "old", "tasks": [second, first, "99:99:-1"]});
    let purged = bench.post("/v1/queues/tasks/dead:purge", named).json();
    assert_eq!((&purged["purged"], &purged["not_found"]), (&json!(1), &json!([first, "99:99:-1"])));
    assert_eq!(bench.get("/v1/queues/tasks/dead").json()["dead_letters"], json!([]));
    bench.get(&format!("/v1/queues/tasks/dead/{second}")).check_refused(404, "task_not_found");
}

#[test]
fn a_replay_changes_what_the_body_says() {
    let bench = TestGateway::new();
    let worker = refuse(&bench);
    let [first, second] = ["a", "b"].map(|payload| {
        let id = bench.submit("tasks", payload);
        bench.get(&format!("/v1/queues/tasks/tasks/{id}/wait"));
        id
    });
    drop(worker);
    let path = "/v1/queues/tasks/dead:replay";
    // Regression: they were answered with 400, and docs/http.md says 422.
    for (selection, code) in [
        (json!({"tasks": [first, second], "changes": {"payload": "c"}}), "request_unfit"),
        (json!({"all": true, "changes": {"payload": "c"}}), "request_unfit"),
        (json!({"all": true, "changes": {}}), "request_unfit"),
        (json!({"all": true, "changes": {"max_attempts": 0}}), "request_unfit"),
        (json!({"all": true, "changes": {"key": "c"}}), "json_unfit"),
        (
            json!({"tasks": [first], "changes": {"payload": "c", "payload_base64": "Yw=="}}),
            "request_unfit",
        ),
    ] {
        bench.post(path, selection).check_refused(422, code);
    }
    let many = json!({"tasks": vec![first.as_str(); 101]});
    bench.post(path, many).check_refused(422, "request_unfit");
    let purge = json!({"all": true, "changes": {"max_attempts": 3}});
    bench.post("/v1/queues/tasks/dead:purge", purge).check_refused(422, "request_unfit");
    let letters = bench.get("/v1/queues/tasks/dead").json();
    assert_eq!(letters["dead_letters"].as_array().unwrap().len(), 2, "nothing was done");

    let changes = json!({"payload": "c", "max_attempts": 3, "max_duration": "2h"});
    let one = json!({"tasks": [first], "reason": "longer", "changes": changes});
    let outcomes = |answer: &TestResponse| answer.json()["outcomes"].clone();
    let replayed = outcomes(&bench.post(path, one.clone()));
    assert_eq!(replayed[0]["outcome"], "RESTARTED", "{replayed}");
    let new = replayed[0]["other"].as_str().unwrap();
    let payload = bench.get(&format!("/v1/queues/tasks/tasks/{new}/payload"));
    assert_eq!(payload.bytes, "c");
    let properties = bench.get(&format!("/v1/queues/tasks/tasks/{new}/properties")).json();
    let limits = (&properties["MAX_ATTEMPTS"], &properties["MAX_TASK_DURATION"]);
    assert_eq!(limits, (&json!("3"), &json!("PT2H")));
    let again = outcomes(&bench.post(path, one));
    let before = (&again[0]["outcome"], &again[0]["other"]);
    assert_eq!(before, (&json!("RESTARTED_BEFORE"), &json!(new)));
    let changes = json!({"delay": "1h", "priority": "low", "max_total_duration": "3h"});
    let replayed = outcomes(&bench.post(path, json!({"all": true, "changes": changes})));
    let task = replayed[0]["other"].as_str().unwrap();
    assert!(task.starts_with("low~"), "{replayed}");
    let properties = bench.get(&format!("/v1/queues/tasks/tasks/{task}/properties")).json();
    assert_eq!(properties["MAX_TOTAL_DURATION"], json!("PT3H"));
    let shown = bench.get(&format!("/v1/queues/tasks/tasks/{task}"));
    assert_eq!(shown.text("status"), "scheduled", "{shown:?}");
}

/// A dead letter whose dedupe key was taken since must not become a second task of the key. The
/// answer names the holder; once the key is free the letter is restarted.
#[test]
fn a_dead_letter_whose_dedupe_key_is_taken_is_not_restarted() {
    let bench = TestGateway::new();
    let submit = |delay: &str| {
        let task = json!({"payload": "a", "dedupe_key": "k", "delay": delay});
        bench.post("/v1/queues/tasks/tasks", task).text("id")
    };
    let dead = submit("0s");
    let worker = refuse(&bench);
    let over = bench.get(&format!("/v1/queues/tasks/tasks/{dead}/wait"));
    assert_eq!(over.text("status"), "failed", "{over:?}");
    let holder = submit("1h");
    assert_ne!(holder, dead);
    let replay = || {
        let replayed = bench.post("/v1/queues/tasks/dead:replay", json!({"tasks": [dead]})).json();
        replayed["outcomes"].clone()
    };
    let conflict = json!([{"task": dead, "outcome": "DEDUPE_CONFLICT", "other": holder}]);
    assert_eq!(replay(), conflict);
    let all = bench.post("/v1/queues/tasks/dead:replay", json!({"all": true})).json();
    assert_eq!(all["outcomes"], conflict);
    let retry = format!("/v1/queues/tasks/tasks/{dead}:retry");
    let refused = bench.post(&retry, json!({}));
    refused.check_refused(409, "dedupe_conflict");
    assert_eq!(refused.text("task"), holder);
    let letters = bench.get("/v1/queues/tasks/dead").json();
    assert_eq!(letters["dead_letters"][0]["task"], json!(dead), "the letter stays: {letters}");
    let cancel = format!("/v1/queues/tasks/tasks/{holder}:cancel");
    assert_eq!(bench.post(&cancel, json!({})).status, 204);
    let over = bench.get(&format!("/v1/queues/tasks/tasks/{holder}/wait"));
    assert_eq!(over.text("status"), "cancelled", "{over:?}");
    drop(worker);
    let restarted = replay();
    assert_eq!(restarted[0]["outcome"], "RESTARTED", "{restarted}");
    // The new task has all its attempts.
    let lease = bench.lease("tasks", "ann");
    assert_eq!((&lease["task"], &lease["attempt"]), (&restarted[0]["other"], &json!(1)));
}

/// A missing body or an empty filter must not purge everything.
#[test]
fn all_are_meant_where_that_is_said() {
    let bench = TestGateway::new();
    bench.submit("tasks", "a");
    let worker = refuse(&bench);
    while bench.get("/v1/queues/tasks/dead").json()["dead_letters"] == json!([]) {
        bench.engine.advance(Duration::from_secs(1));
    }
    drop(worker);
    bench.submit("tasks", "b");
    let unclear = [
        json!({}),
        json!({"reason": "why"}),
        json!({"tag": []}),
        json!({"type": ""}),
        json!({"all": false}),
        json!({"all": true, "type": "a"}),
    ];
    for verb in ["/dead:replay", "/dead:purge", ":purge"] {
        let path = format!("/v1/queues/tasks{verb}");
        let mut answers: Vec<_> = unclear.iter().map(|it| bench.post(&path, it.clone())).collect();
        answers.push(bench.send(TestGateway::request("POST", &path, "")));
        for answer in answers {
            answer.check_refused(400, "selection_unclear");
        }
        let told = bench.post(&path, json!({})).text("detail");
        assert!(told.contains("{\"all\":true}") && told.contains("type"), "{told}");
    }
    let letters = bench.get("/v1/queues/tasks/dead").json();
    assert_eq!(letters["dead_letters"].as_array().unwrap().len(), 1, "nothing was done");
    assert_eq!(bench.get("/v1/queues/tasks/counts").json()["by_status"]["ready"], json!(1));
    let replayed = bench.post("/v1/queues/tasks/dead:replay", json!({"all": true})).json();
    assert_eq!(replayed["outcomes"].as_array().unwrap().len(), 1, "{replayed}");
    let purged = bench.post("/v1/queues/tasks/dead:purge", json!({"all": true})).json();
    assert_eq!(purged["purged"], json!(0), "{purged}");
}

#[test]
fn a_queue_is_changed_paused_and_purged() {
    let bench = TestGateway::new();
    let queue = "/v1/queues/tasks";
    assert_eq!(bench.get(queue).json()["version"], json!(0));
    let update = json!({"expected_version": 0, "settings": {"max_in_flight": 2, "rate": {"tokens": 5, "per": "1m"}}});
    assert_eq!(bench.call("PATCH", queue, update.clone()).json()["version"], json!(1));
    let conflict = bench.call("PATCH", queue, update);
    conflict.check_refused(409, "version_conflict");
    assert_eq!(conflict.json()["current_version"], json!(1));
    let shown = bench.get(queue).json();
    assert_eq!(shown["settings"]["rate"], json!({"tokens": 5, "per": "PT1M"}), "{shown}");
    let bad = json!({"expected_version": 1, "settings": {"max_in_flight": 0}});
    let bad = bench.call("PATCH", queue, bad);
    assert_eq!(bad.status, 422, "{bad:?}");
    assert!(bad.text("detail").contains("max_in_flight: must"), "{bad:?}");

    assert_eq!(bench.post("/v1/queues/tasks:pause", json!({})).json()["version"], json!(2));
    assert_eq!(bench.get(queue).json()["settings"]["paused"], json!(true));
    let id = bench.submit("tasks", "a");
    let _worker = refuse(&bench);
    let path = format!("/v1/queues/tasks/tasks/{id}");
    assert_eq!(bench.get(&format!("{path}/wait")).status, 204, "it is paused");
    bench.submit("tasks", "b");
    let purged =
        bench.post("/v1/queues/tasks:purge", json!({"status": ["ready"], "reason": "test"}));
    assert_eq!(purged.json()["deleted"], json!(2), "{purged:?}");
    assert_eq!(bench.get(&path).text("status"), "cancelled");
    let done = bench.post("/v1/queues/tasks:purge", json!({"all": true}));
    assert_eq!(done.json()["deleted"], json!(0), "{done:?}");
    assert_eq!(bench.post("/v1/queues/tasks:resume", json!({})).status, 200);
    assert_eq!(bench.get(&format!("{path}/wait")).text("status"), "cancelled");
    for (method, path) in [("PUT", queue), ("DELETE", queue), ("GET", "/v1/queues")] {
        bench.call(method, path, json!({})).check_refused(501, "no_admin_api");
    }
}

/// Creating a queue with `defaults` writes these settings once: a repeated request must not undo
/// later changes.
#[test]
fn settings_of_a_new_queue_are_written_once() {
    let bench = TestGateway::new();
    let tasks = QueueName::parse("tasks").unwrap();
    let write = || {
        let settings = QueueSettings::moab();
        bench.engine.run(bench.service.write_first_settings(&tasks, settings, None)).unwrap()
    };
    assert!(write(), "it had none");
    let queue = "/v1/queues/tasks";
    let shown = bench.get(queue).json();
    let defaults = json!({"paused": false, "max_attempts": 1, "expires_after": "PT336H", "dead_letters": {"enabled": false}});
    assert_eq!((&shown["version"], &shown["settings"]), (&json!(1), &defaults));
    let id = bench.submit("tasks", "a");
    let _worker = refuse(&bench);
    let wait = format!("/v1/queues/tasks/tasks/{id}/wait");
    assert_eq!(bench.get(&wait).text("status"), "failed");
    assert_eq!(bench.get("/v1/queues/tasks/dead").json()["dead_letters"], json!([]));
    let described =
        json!({"expected_version": 1, "settings": {"description": "mails of the shop"}});
    assert_eq!(bench.call("PATCH", queue, described).json()["version"], json!(2));
    assert!(!write(), "it has settings");
    let shown = bench.get(queue).json();
    assert_eq!(shown["settings"], json!({"paused": false, "description": "mails of the shop"}));
    let long = json!({"expected_version": 2, "settings": {"description": "x".repeat(1_025)}});
    let long = bench.call("PATCH", queue, long);
    long.check_refused(422, "request_unfit");
    assert!(long.text("detail").contains("description: has at most 1024"), "{long:?}");
}

/// The counts cover the whole life of the queue, not only what metrics stores kept.
#[test]
fn what_has_ever_ended_is_counted_by_every_gateway_when_nothing_shows_it_any_more() {
    let bench = TestGateway::new();
    let end = processor_fn(async |text: Text, _: TaskContext| match text.0.as_str() {
        "fail" => Err(TaskError::fatal("no")),
        _ => Ok(text),
    });
    let worker = bench.engine.worker("tasks", end).retention(Duration::from_secs(60));
    let _worker = bench.engine.start(worker);
    for payload in ["a", "b", "fail"] {
        bench.submit("tasks", payload);
    }
    let late = json!({"payload": "late", "expires_at": "2001-01-01T00:00:00Z"});
    assert_eq!(bench.post("/v1/queues/tasks/tasks", late).status, 201);
    bench.engine.advance(Duration::from_secs(5));
    let counts = "/v1/queues/tasks/counts";
    let ever = json!({"completed": 2, "failed": 1, "cancelled": 0, "expired": 1});
    let told = bench.get(counts).json();
    assert_eq!((&told["total"], &told["ever_ended"]), (&json!(4), &ever));
    // The ledger of a test engine keeps the keys of ended tasks for a day.
    bench.engine.advance(Duration::from_secs(72 * 3600));
    for gateway in [&bench, &bench.beside(ServerConfig::default())] {
        let told = gateway.get(counts).json();
        assert_eq!((&told["total"], &told["ever_ended"]), (&json!(0), &ever), "{told}");
    }
}

#[test]
fn schedules_are_made_changed_triggered_and_deleted() {
    let bench = TestGateway::new();
    let path = "/v1/queues/tasks/schedules/nightly";
    let new = json!({"schedule": {"cron": "30 2 * * *", "time_zone": "Europe/Berlin", "overlap": "buffer_one"}, "task": {"payload": "report"}});
    let created = bench.post(path, new.clone());
    assert_eq!(
        (created.status.as_u16(), created.json()["version"].as_u64()),
        (201, Some(1)),
        "{created:?}"
    );
    assert_eq!(bench.post(path, new).code(), "schedule_exists");
    let shown = bench.get(path).json();
    assert_eq!(
        shown["schedule"],
        json!({"cron": "30 2 * * *", "time_zone": "Europe/Berlin", "overlap": "buffer_one", "paused": false})
    );
    assert_eq!(shown["next"].as_array().unwrap().len(), 10);
    let hourly = json!({"expected_version": 1, "schedule": {"every": "1h", "offset": "5m"}});
    assert_eq!(bench.call("PATCH", path, hourly.clone()).json()["version"], json!(2));
    assert_eq!(bench.call("PATCH", path, hourly).code(), "version_conflict");
    assert_eq!(bench.get(path).json()["schedule"]["every"], json!("PT1H"));
    assert_eq!(bench.post(&format!("{path}:pause"), json!({})).status, 200);
    let _worker = refuse(&bench);
    assert_eq!(bench.post(&format!("{path}:trigger"), json!({})).status, 200);
    bench.engine.advance(Duration::from_secs(60));
    let listed = bench.get("/v1/queues/tasks/schedules").json();
    let schedule = &listed["schedules"][0];
    assert_eq!(
        (&schedule["name"], &schedule["schedule"]["paused"]),
        (&json!("nightly"), &json!(true))
    );
    let task = schedule["last"]["task"].as_str().unwrap();
    assert_eq!(bench.get(&format!("/v1/queues/tasks/tasks/{task}/wait")).text("status"), "failed");
    assert_eq!(bench.post(&format!("{path}:resume"), json!({})).status, 200);
    assert_eq!(bench.delete(path).status, 204);
    assert_eq!(
        (bench.get(path).code(), bench.delete(path).code()),
        ("schedule_not_found".to_owned(), "schedule_not_found".to_owned())
    );
    // The gateway has opened the queue with its first schedule, and fires it without a worker, too.
    let workers = bench.get("/v1/queues/tasks/workers").json();
    assert_eq!(workers["workers"].as_array().unwrap().len(), 2, "{workers}");
}

/// A text narrows a list and a purge; a blank one would have taken all tasks.
#[test]
fn a_text_finds_tasks_by_what_is_shown_of_them() {
    let bench = TestGateway::new();
    let ids = [("high", "Resize"), ("high", "mail"), ("normal", "resize")].map(|(level, kind)| {
        let task = json!({"payload": "a", "priority": level, "type": kind});
        bench.post("/v1/queues/tasks/tasks", task).text("id")
    });
    let found =
        |query: &str| bench.get(&format!("/v1/queues/tasks/tasks?{query}")).texts("tasks", "id");
    assert_eq!(found("level=high&text=resize"), [ids[0].as_str()]);
    // An id of a level is shown with the level.
    assert_eq!(found(&format!("level=high&text={}", ids[1])), [ids[1].as_str()]);
    let words = vec!["e"; 65].join("%20");
    bench.get(&format!("/v1/queues/tasks/tasks?text={words}")).check_refused(400, "query_invalid");
    let purge = |body| bench.post("/v1/queues/tasks:purge?level=high", body);
    assert_eq!(purge(json!({"text": " "})).status, 400);
    assert_eq!(purge(json!({"all": true, "text": "mail"})).status, 400);
    assert_eq!(purge(json!({"text": "MAIL"})).json()["deleted"], json!(1));
    assert_eq!(found("level=high&status=ready"), [ids[0].as_str()]);
}
