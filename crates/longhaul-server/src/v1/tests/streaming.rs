//! Server-sent events and long polls, and their end when the gateway ends.

use crate::testing::TestGateway;
use axum::body::Body;
use axum::http::Response;
use http_body_util::BodyExt;
use longhaul::{TaskContext, Text, processor_fn};
use serde_json::{Value, json};

/// Reads events until the text appears, and returns all that was read.
pub(super) async fn read_until(body: &mut Body, text: &str) -> String {
    let mut read = String::new();
    while !read.contains(text) {
        let frame = body.frame().await.expect("the stream has ended").unwrap();
        if let Ok(bytes) = frame.into_data() {
            read.push_str(std::str::from_utf8(&bytes).unwrap());
        }
    }
    read
}

/// Opens the events of the queue behind this one; an empty id is none.
pub(super) fn events_behind(bench: &TestGateway, id: &str) -> Body {
    let mut request = TestGateway::request("GET", "/v1/queues/tasks/events", "");
    if !id.is_empty() {
        request.headers_mut().insert("last-event-id", id.parse().unwrap());
    }
    let response = bench.open(request);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    response.into_body()
}

fn last_id(events: &str) -> &str {
    events.rsplit("id: ").next().and_then(|rest| rest.lines().next()).unwrap()
}

#[test]
fn events_go_on_behind_the_last_one_that_was_seen() {
    let bench = TestGateway::new();
    let shout = processor_fn(async |text: Text, _: TaskContext| Ok(text));
    let _worker = bench.engine.start(bench.engine.worker("tasks", shout));
    let mut stream = events_behind(&bench, "");
    let first = bench.submit("tasks", "a");
    let over = format!(r#"{{"id":"{first}","queue":"tasks","status":"completed""#);
    let events = bench.engine.run(read_until(&mut stream, &over));
    assert!(events.contains("event: caught-up") && events.contains("event: task"), "{events}");
    assert!(events.contains(r#""status":"running""#), "{events}");
    let tasks = events.lines().filter(|line| line.starts_with("data: {\"id\""));
    assert!(tasks.clone().count() > 1, "{events}");
    assert!({ tasks }.all(|task| task.contains(r#""epoch":1,"#)), "{events}");
    let seen = last_id(&events).to_owned();
    drop(stream);

    let second = bench.submit("tasks", "b");
    assert_eq!(bench.get(&format!("/v1/queues/tasks/tasks/{second}/wait")).status, 200);
    let mut stream = events_behind(&bench, &seen);
    let over = format!(r#"{{"id":"{second}","queue":"tasks","status":"completed""#);
    let events = bench.engine.run(read_until(&mut stream, &over));
    assert!(!events.contains(&format!(r#""id":"{first}""#)), "it was seen before: {events}");
}

/// A task that waits for its next attempt must not be reported as `running`.
#[test]
fn events_say_when_a_task_waits_for_its_next_attempt() {
    let bench = TestGateway::new();
    let fail = processor_fn(async |_: Text, _: TaskContext| Err::<Text, _>("no luck".into()));
    let _worker = bench.engine.start(bench.engine.worker("tasks", fail));
    let mut stream = events_behind(&bench, "");
    bench.submit("tasks", "a");
    bench.engine.run(read_until(&mut stream, r#""status":"retrying""#));
}

/// A client that is cut off before its first event has only the id of `caught-up`.
#[test]
fn what_comes_before_the_first_event_is_not_missed() {
    let bench = TestGateway::new();
    let open = |id: &str| events_behind(&bench, id);
    let caught_up = |body: &mut Body| {
        let events = bench.engine.run(read_until(body, "data: {}\n"));
        assert!(events.starts_with("event: caught-up\n"), "{events}");
        last_id(&events).to_owned()
    };
    let done = |payload: &str| {
        let id = bench.submit("tasks", payload);
        assert_eq!(bench.get(&format!("/v1/queues/tasks/tasks/{id}/wait")).status, 200);
        format!(r#"{{"id":"{id}","queue":"tasks","status":"completed""#)
    };
    let empty = caught_up(&mut open(""));
    assert_eq!(empty, "start", "nothing stands there yet");
    let shout = processor_fn(async |text: Text, _: TaskContext| Ok(text));
    let _worker = bench.engine.start(bench.engine.worker("tasks", shout));
    let first = done("a");
    let seen = caught_up(&mut open(""));
    assert!(seen.contains('@'), "{seen}");
    let second = done("b");

    let events = bench.engine.run(read_until(&mut open(&seen), &second));
    assert!(!events.contains(&first), "it was there before: {events}");
    let events = bench.engine.run(read_until(&mut open(&empty), &second));
    assert!(events.contains(&first), "{events}");
}

#[test]
fn the_end_of_the_gateway_ends_streams_and_long_polls() {
    let bench = TestGateway::new();
    let id = bench.submit("tasks", "a");
    let before = bench.engine.time_passed();
    let stream = events_behind(&bench, "");
    assert_eq!(bench.get("/readyz").status, 200);
    bench.stops.drain.cancel();
    let wait = bench.get(&format!("/v1/queues/tasks/tasks/{id}/wait"));
    assert_eq!(wait.status, 204);
    bench.engine.run(stream.collect()).unwrap();
    bench.get("/readyz").check_refused(503, "draining");
    assert_eq!(bench.get("/healthz").status, 200);
    let took = bench.engine.time_passed() - before;
    assert!(took.as_secs() < 15, "nothing has waited: {took:?}");
}

/// Whoever waited for one task had to read the events of all others.
#[test]
fn the_events_of_one_task_begin_with_it_and_end_with_its_end() {
    let bench = TestGateway::new();
    let open = |id: &str, last: &str| {
        let place = format!("/v1/queues/tasks/events?task={id}&last_event_id={last}");
        bench.open(TestGateway::request("GET", &place, ""))
    };
    let all = |stream: Response<Body>| {
        let read = bench.engine.run(stream.into_body().collect()).unwrap().to_bytes();
        String::from_utf8(read.to_vec()).unwrap()
    };
    let statuses = |events: &str| -> Vec<String> {
        let body = |line: &str| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok();
        let tasks = events.lines().filter_map(body);
        let mut all: Vec<_> =
            tasks.map(|it| format!("{} {}", it["id"], it["status"]).replace('"', "")).collect();
        all.dedup();
        all
    };
    let (first, other) = (bench.submit("tasks", "a"), bench.submit("tasks", "b"));
    let stream = open(&first, "");
    let shout = processor_fn(async |text: Text, _: TaskContext| Ok(text));
    let _worker = bench.engine.start(bench.engine.worker("tasks", shout));
    assert_eq!(bench.get(&format!("/v1/queues/tasks/tasks/{other}/wait")).status, 200);
    let events = all(stream);
    let seen = ["ready", "running", "completed"].map(|status| format!("{first} {status}"));
    assert_eq!(statuses(&events), seen, "{events}");
    assert_eq!(last_id(&events), "over");
    // It is over already, and a browser that has its end opens the stream once more.
    assert_eq!(statuses(&all(open(&other, ""))), [format!("{other} completed")]);
    assert_eq!(statuses(&all(open(&other, "start"))), [format!("{other} completed")]);
    assert_eq!(open(&other, "over").status(), 204);
    bench.get("/v1/queues/tasks/events?task=9:9:-1").check_refused(404, "task_not_found");
    for (query, code) in
        [("task=x", "task_id_invalid"), ("task=9:9:-1&from=earliest", "query_invalid")]
    {
        assert_eq!(bench.get(&format!("/v1/queues/tasks/events?{query}")).code(), code);
    }
}

/// The end of such a task is shown only when its message is delivered, days later.
#[test]
fn the_end_of_a_task_that_no_worker_has_seen_ends_its_events() {
    let bench = TestGateway::new();
    let delayed = json!({"payload": "a", "delay": "P3D"});
    let id = bench.post("/v1/queues/tasks/tasks", delayed).text("id");
    let place = format!("/v1/queues/tasks/events?task={id}");
    let mut stream = bench.open(TestGateway::request("GET", &place, "")).into_body();
    bench.engine.run(read_until(&mut stream, r#""status":"scheduled""#));
    assert_eq!(bench.post(&format!("/v1/queues/tasks/tasks/{id}:kill"), json!({})).status, 204);
    bench.engine.run(read_until(&mut stream, r#""status":"cancelled""#));
    assert!(bench.engine.run(stream.frame()).is_none(), "nothing follows");
}
