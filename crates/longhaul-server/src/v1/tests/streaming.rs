//! Server-sent events and long polls, and their end when the gateway ends.

use crate::testing::TestGateway;
use axum::body::Body;
use http_body_util::BodyExt;
use longhaul::{TaskContext, Text, processor_fn};
use tower::ServiceExt;

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

fn last_id(events: &str) -> &str {
    events.rsplit("id: ").next().and_then(|rest| rest.lines().next()).unwrap()
}

#[test]
fn events_go_on_behind_the_last_one_that_was_seen() {
    let bench = TestGateway::new();
    let shout = processor_fn(async |text: Text, _: TaskContext| Ok(text));
    let _worker = bench.engine.start(bench.engine.worker("tasks", shout));
    let open = |id: Option<&str>| {
        let mut request = TestGateway::request("GET", "/v1/queues/tasks/events", "");
        if let Some(id) = id {
            request.headers_mut().insert("last-event-id", id.parse().unwrap());
        }
        let router = bench.router.clone();
        let response = bench.engine.run(router.oneshot(request)).unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        response.into_body()
    };
    let mut stream = open(None);
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
    let mut stream = open(Some(&seen));
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
    let request = TestGateway::request("GET", "/v1/queues/tasks/events", "");
    let mut stream = bench.engine.run(bench.router.clone().oneshot(request)).unwrap().into_body();
    bench.submit("tasks", "a");
    bench.engine.run(read_until(&mut stream, r#""status":"retrying""#));
}

/// A client that is cut off before its first event has only the id of `caught-up`.
#[test]
fn what_comes_before_the_first_event_is_not_missed() {
    let bench = TestGateway::new();
    let open = |id: &str| {
        let mut request = TestGateway::request("GET", "/v1/queues/tasks/events", "");
        if !id.is_empty() {
            request.headers_mut().insert("last-event-id", id.parse().unwrap());
        }
        bench.engine.run(bench.router.clone().oneshot(request)).unwrap().into_body()
    };
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
    let stream =
        bench.router.clone().oneshot(TestGateway::request("GET", "/v1/queues/tasks/events", ""));
    let stream = bench.engine.run(stream).unwrap();
    assert_eq!(bench.get("/readyz").status, 200);
    bench.stops.drain.cancel();
    let wait = bench.get(&format!("/v1/queues/tasks/tasks/{id}/wait"));
    assert_eq!(wait.status, 204);
    bench.engine.run(stream.into_body().collect()).unwrap();
    let ready = bench.get("/readyz");
    assert_eq!((ready.status.as_u16(), ready.code()), (503, "draining".to_owned()));
    assert_eq!(bench.get("/healthz").status, 200);
    let took = bench.engine.time_passed() - before;
    assert!(took.as_secs() < 15, "nothing has waited: {took:?}");
}
