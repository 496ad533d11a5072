//! Buttons: each form makes one request to the gateway; read-only pages have no forms and refuse
//! actions.

use crate::fake::{Like, PLACES, Site};
use crate::markup::{Form, forms, tags};
use axum::http::Method;
use serde_json::Value;
use std::collections::BTreeMap;

/// The forms of all pages, by their path and the hidden fields that distinguish them.
async fn all_forms(site: &Site) -> BTreeMap<String, Form> {
    let mut found = BTreeMap::new();
    for (_, answer) in site.pages().await {
        for form in forms(&answer.text) {
            let verb = form.fields.iter().find(|it| it.0 == "verb").map_or("", |it| it.1.as_str());
            // Of two forms with one action the first has the fields, and the second everything as
            // JSON.
            found.entry(format!("{} {verb}", form.action).trim().to_owned()).or_insert(form);
        }
    }
    found
}

/// A form, its filled fields, and the expected request to the gateway with its body.
type Case = (&'static str, &'static [(&'static str, &'static str)], &'static str, &'static str);

const WHY: &[(&str, &str)] = &[("reason", "it hangs")];

const CASES: [Case; 19] = [
    (
        "/ui/queues/mails/schedules",
        &[
            ("name", "every night"),
            ("kind", "cron"),
            ("when", "30 2 * * *"),
            ("time_zone", "Europe/Berlin"),
            ("overlap", "skip"),
            ("payload", "a=b"),
            ("reason", "wanted"),
        ],
        "POST /v1/queues/mails/schedules/every%20night",
        r#"{"schedule": {"cron": "30 2 * * *", "time_zone": "Europe/Berlin", "overlap": "skip"}, "task": {"payload": "a=b"}, "reason": "wanted"}"#,
    ),
    ("/ui/queues/mails/pause", &[], "POST /v1/queues/mails:pause", r#"{"reason": ""}"#),
    (
        "/ui/queues/mails/purge?level=normal",
        WHY,
        "POST /v1/queues/mails:purge?level=normal",
        r#"{"reason": "it hangs", "all": true}"#,
    ),
    (
        "/ui/queues/mails/purge?level=high",
        WHY,
        "POST /v1/queues/mails:purge?level=high",
        r#"{"reason": "it hangs", "all": true}"#,
    ),
    (
        "/ui/queues/mails/tasks",
        &[("payload", "a=b&c"), ("type", "mail"), ("delay", "10s")],
        "POST /v1/queues/mails/tasks",
        r#"{"payload": "a=b&c", "type": "mail", "delay": "10s"}"#,
    ),
    (
        "/ui/queues/mails/tasks/12:0:-1/cancel",
        WHY,
        "POST /v1/queues/mails/tasks/12:0:-1:cancel",
        r#"{"reason": "it hangs"}"#,
    ),
    (
        "/ui/queues/mails/tasks/12:0:-1/kill",
        WHY,
        "POST /v1/queues/mails/tasks/12:0:-1:kill",
        r#"{"reason": "it hangs"}"#,
    ),
    (
        "/ui/queues/mails/tasks/12:0:-1/force-release",
        WHY,
        "POST /v1/queues/mails/tasks/12:0:-1:force-release",
        r#"{"reason": "it hangs", "epoch": 2}"#,
    ),
    (
        "/ui/queues/mails/tasks/12:0:-1/force-fail",
        WHY,
        "POST /v1/queues/mails/tasks/12:0:-1:force-fail",
        r#"{"reason": "it hangs", "epoch": 2}"#,
    ),
    (
        "/ui/queues/mails/tasks/12:0:-1/delete",
        WHY,
        "DELETE /v1/queues/mails/tasks/12:0:-1?reason=it%20hangs",
        r#"null"#,
    ),
    (
        "/ui/queues/mails/workers/plain/drain",
        WHY,
        "POST /v1/queues/mails/workers/plain:drain",
        r#"{"reason": "it hangs"}"#,
    ),
    (
        "/ui/queues/mails/dead replay",
        WHY,
        "POST /v1/queues/mails/dead:replay",
        r#"{"reason": "it hangs", "all": true, "tag": []}"#,
    ),
    (
        "/ui/queues/mails/dead purge",
        WHY,
        "POST /v1/queues/mails/dead:purge",
        r#"{"reason": "it hangs", "all": true, "tag": []}"#,
    ),
    (
        "/ui/queues/mails/dead/12:0:-1 replay",
        WHY,
        "POST /v1/queues/mails/dead:replay",
        r#"{"reason": "it hangs", "tasks": ["12:0:-1"]}"#,
    ),
    (
        "/ui/queues/mails/dead/12:0:-1 purge",
        WHY,
        "POST /v1/queues/mails/dead:purge",
        r#"{"reason": "it hangs", "tasks": ["12:0:-1"]}"#,
    ),
    (
        "/ui/queues/mails/schedules/plain/trigger",
        &[],
        "POST /v1/queues/mails/schedules/plain:trigger",
        r#"{"reason": ""}"#,
    ),
    (
        "/ui/queues/mails/schedules/plain/pause",
        &[],
        "POST /v1/queues/mails/schedules/plain:pause",
        r#"{"reason": ""}"#,
    ),
    (
        "/ui/queues/mails/schedules/plain/delete",
        WHY,
        "DELETE /v1/queues/mails/schedules/plain?reason=it%20hangs",
        "null",
    ),
    (
        "/ui/queues/mails/limits",
        &[("max_in_flight", "7"), ("rate_tokens", ""), ("rate_per", ""), ("reason", "it hangs")],
        "PATCH /v1/queues/mails",
        r#"{"expected_version": 3, "settings": {"paused": false, "max_in_flight": 7, "description": "plain"}, "reason": "it hangs"}"#,
    ),
];

#[tokio::test]
async fn a_task_that_waits_for_its_time_can_be_started_now() {
    let site = Site::of("plain");
    let starts = |text: &str| forms(text).into_iter().find(|it| it.action.ends_with("/start"));
    let running = site.get("/ui/queues/mails/tasks/12:0:-1").await;
    assert!(starts(&running.text).is_none(), "it runs");
    let form = starts(&site.get("/ui/queues/mails/tasks/11:0:-1").await.text).unwrap();
    site.calls();
    site.post(&form.action, &[("reason".to_owned(), "it is wanted".to_owned())]).await;
    let calls = site.calls();
    let [call] = &calls[..] else { panic!("{calls:?}") };
    assert_eq!(
        (&call.method, &*call.path),
        (&Method::POST, "/v1/queues/mails/tasks/11:0:-1:reschedule")
    );
    assert_eq!(call.body, serde_json::json!({"reason": "it is wanted", "delay": "0s"}));
}

#[tokio::test]
async fn every_form_asks_for_one_thing() {
    let site = Site::of("plain");
    let forms = all_forms(&site).await;
    // These have their own tests.
    let others = [
        "/ui/sign-in",
        "/ui/queues",
        "/ui/queues/mails/bulk cancel",
        "/ui/queues/mails/bulk delete",
    ];
    let named: Vec<&str> = CASES.iter().map(|it| it.0).chain(others).collect();
    let unknown: Vec<_> = forms.keys().filter(|it| !named.contains(&it.as_str())).collect();
    assert!(unknown.is_empty(), "forms that no case is about: {unknown:?}");
    for (name, filled, request, body) in CASES {
        let form = forms.get(name).unwrap_or_else(|| panic!("no page has the form {name}"));
        let mut fields = form.fields.clone();
        for (name, value) in filled {
            let field = fields.iter_mut().find(|it| it.0 == *name);
            (*value)
                .clone_into(&mut field.unwrap_or_else(|| panic!("no field {name}: {form:?}")).1);
        }
        site.calls();
        let answer = site.post(&form.action, &fields).await;
        assert_eq!(answer.status, 303, "{name}: {}", answer.text);
        let calls = site.calls();
        let [call] = calls.as_slice() else { panic!("{name}: {calls:?}") };
        let body: Value = serde_json::from_str(body).unwrap();
        let asked = format!("{} {}", call.method, call.path);
        assert_eq!((&*asked, &call.body), (request, &body), "{name}");
        let next = answer.header("location");
        assert_eq!(site.get(next).await.status, 200, "{name} leads to {next}");
    }
}

/// Regression: spaces around a filter narrowed what was purged, but not what was listed.
#[tokio::test]
async fn dead_letters_are_purged_by_the_filter_of_their_list() {
    let site = Site::of("plain");
    let page = site.get("/ui/queues/mails/dead?reason=%20503%20&tag=%20").await;
    let calls = site.calls();
    assert!(calls.iter().any(|call| call.path.ends_with("&reason=503")), "{calls:?}");
    let purge = |form: &Form| form.fields.contains(&("verb".to_owned(), "purge".to_owned()));
    let form = forms(&page.text).into_iter().find(purge).unwrap();
    site.post(&form.action, &form.fields).await;
    let body = serde_json::json!({"reason": "", "all": false, "failed_with": "503", "tag": []});
    assert_eq!(site.calls()[0].body, body);
}

/// The same request would raise the partitions of a queue that exists.
#[tokio::test]
async fn a_queue_is_made_unless_it_exists() {
    let site = Site::of("plain");
    let make = |name: &str| {
        let fields = [("name", name), ("partitions", "3"), ("levels", "true")];
        fields.map(|(name, value)| (name.to_owned(), value.to_owned()))
    };
    let refused = site.post("/ui/queues", &make("mails")).await;
    assert_eq!(refused.status, 409);
    assert!(refused.text.contains("the queue mails exists already"), "{}", refused.text);
    assert!(site.calls().iter().all(|call| call.method == Method::GET));
    let made = site.post("/ui/queues", &make("new")).await;
    assert_eq!((made.status.as_u16(), made.header("location")), (303, "/ui/queues/new"));
    let calls = site.calls();
    let put = calls.iter().find(|call| call.method == Method::PUT).unwrap();
    let body = serde_json::json!({"levels": true, "partitions": 3});
    assert_eq!((&*put.path, &put.body), ("/v1/queues/new", &body));
}

fn post_forms(text: &str) -> Vec<Form> {
    forms(text).into_iter().filter(|it| it.action.ends_with("/bulk")).collect()
}

/// What is done is done to the tasks that were shown, each by a request of its own.
#[tokio::test]
async fn an_action_on_several_tasks_acts_on_those_that_were_shown() {
    let site = Site::of("plain");
    let place = "/ui/queues/mails/bulk?verb=cancel&task=12:0:-1&task=11:0:-1&level=normal";
    let page = site.get(place).await.text;
    assert!(page.contains("<h1>Cancel 2 tasks</h1>"), "{page}");
    let mut form = post_forms(&page).remove(0);
    form.fields.iter_mut().find(|it| it.0 == "reason").unwrap().1 = "no use".to_owned();
    site.calls();
    let done = site.post(&form.action, &form.fields).await;
    assert!(done.text.contains("<h1>2 tasks asked to end</h1>"), "{}", done.text);
    let acts = site.calls().into_iter().filter(|call| call.method == Method::POST);
    let calls = acts.map(|call| (call.path, call.body));
    let body = serde_json::json!({"reason": "no use"});
    let expected = ["12:0:-1", "11:0:-1"]
        .map(|task| (format!("/v1/queues/mails/tasks/{task}:cancel"), body.clone()));
    assert_eq!(calls.collect::<Vec<_>>(), expected);
}

/// What would fail for every other task as well is not tried for them, and they are told as left.
#[tokio::test]
async fn an_action_that_loses_the_broker_tells_what_was_done_and_what_was_left() {
    let site = Site::of("plain");
    let fields = |tasks: &[&str]| -> Vec<(String, String)> {
        let tasks = tasks.iter().map(|task| ("task", *task));
        let fields = [("verb", "cancel")].into_iter().chain(tasks);
        fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    };
    let tasks = [&["12:0:-1", "15:0:-1"][..], &["12:0:-1"; 40]].concat();
    let page = site.post("/ui/queues/mails/bulk", &fields(&tasks)).await.text;
    let acts = site.calls().into_iter().filter(|call| call.method == Method::POST).count();
    assert!((2..=17).contains(&acts), "{acts}");
    let done = acts - 1;
    let told = format!("{done} task{} asked to end", if done == 1 { "" } else { "s" });
    assert!(page.contains(&told), "{acts}: {page}");
    assert!(page.contains(&format!("{} tasks left: ", tasks.len() - done)), "{acts}: {page}");
    assert_eq!(site.post("/ui/queues/mails/bulk", &fields(&["15:0:-1"])).await.status, 503);
    let many = site.post("/ui/queues/mails/bulk", &fields(&["12:0:-1"; 1_001])).await;
    assert_eq!(many.status, 422);
}

#[tokio::test]
async fn all_that_match_are_those_of_the_filter_to_which_it_can_be_done() {
    let site = Site::of("plain");
    let of = "/ui/queues/mails/bulk?level=normal&all=true&tag=eu&text=no%20luck&after=9:0:-1";
    let lists = |site: &Site| -> Vec<_> {
        site.calls().into_iter().filter(|call| call.path.contains("/tasks?")).collect()
    };
    site.get(&format!("{of}&verb=retry")).await;
    let calls = lists(&site);
    let [call] = &calls[..] else { panic!("{calls:?}") };
    let wanted = "/v1/queues/mails/tasks?level=normal&status=failed&text=no%20luck&tag=eu&order=newest&limit=100&after=9:0:-1";
    assert_eq!(call.path, wanted);
    // A task that runs did not fail, and what completed cannot be cancelled.
    for none in ["&verb=retry&status=running", "&verb=cancel&status=completed"] {
        let page = site.get(&format!("{of}{none}")).await.text;
        assert!(page.contains("This action applies to tasks that are"), "{page}");
        assert!(post_forms(&page).is_empty() && lists(&site).is_empty(), "{page}");
    }
    let ticked = site.get("/ui/queues/mails/bulk?verb=retry&level=normal&task=12:0:-1").await.text;
    assert!(ticked.contains("1 task of the selected ones cannot be chosen"), "{ticked}");
}

/// A worker and a schedule with unusual names are found again by their links.
#[tokio::test]
async fn actions_find_what_has_an_odd_name() {
    let odd = "../x?a=b&c#d%2F ü";
    let site = Site::of(odd);
    let forms = all_forms(&site).await;
    for (verb, end) in [("drain", ":drain"), ("trigger", ":trigger")] {
        let form = forms.values().find(|form| form.action.ends_with(verb)).unwrap();
        site.calls();
        assert_eq!(site.post(&form.action, &[]).await.status, 303, "{form:?}");
        let path = site.calls().remove(0).path;
        let name = path.rsplit('/').next().unwrap().strip_suffix(end).unwrap();
        let name = percent_encoding::percent_decode_str(name).decode_utf8().unwrap();
        assert_eq!(name, odd, "{path}");
    }
}

#[tokio::test]
async fn pages_that_only_show_have_no_form_and_do_nothing() {
    let site = Site::new(Like::default(), |options| options.read_only = true);
    for (place, answer) in site.pages().await {
        let forms: Vec<String> = forms(&answer.text).into_iter().map(|it| it.action).collect();
        assert!(forms.iter().all(|it| it == "/ui/sign-in"), "{place}: {forms:?}");
        assert!(answer.text.contains("read only"), "{place} says so");
        let buttons = tags(&answer.text).iter().filter(|tag| tag.name == "button").count();
        assert!(buttons <= 1, "{place}: {buttons} buttons, and a filter has one");
    }
    site.calls();
    for form in all_forms(&Site::of("plain")).await.values() {
        if form.action == "/ui/sign-in" {
            continue;
        }
        let answer = site.post(&form.action, &form.fields).await;
        assert_eq!(answer.status, 403, "{}", form.action);
        assert!(answer.text.contains("is read-only"), "{}", answer.text);
    }
    let calls = site.calls();
    assert!(calls.iter().all(|call| call.method == Method::GET), "{calls:?}");
}

/// Reading a page changes nothing.
#[tokio::test]
async fn pages_only_look() {
    let site = Site::of("plain");
    for place in PLACES {
        site.get(place).await;
        let calls = site.calls();
        assert!(calls.iter().all(|call| call.method == Method::GET), "{place}: {calls:?}");
    }
}

/// A request that is not an action of a page does nothing, whatever its name.
#[tokio::test]
async fn other_verbs_are_refused() {
    let site = Site::of("plain");
    for place in [
        "/ui/queues/mails/drop",
        "/ui/queues/mails/tasks/12:0:-1/forget",
        "/ui/queues/mails/schedules/plain/forget",
        "/ui/queues/mails/dead",
        "/ui/queues/mails/dead/12:0:-1",
    ] {
        let fields = [("verb".to_owned(), "forget".to_owned())];
        let answer = site.post(place, &fields).await;
        assert_eq!(answer.status, 404, "{place}");
        assert!(
            answer.text.contains(r#"<a href="/ui/queues/mails">"#),
            "{place} leads back to its queue"
        );
        assert!(site.calls().is_empty(), "{place}");
    }
}
