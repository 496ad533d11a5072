//! The dashboard on the real routes: pages show their answers, forms work, and other sites cannot
//! submit them.

use super::allowed;
use crate::config::{Dashboard, ServerConfig};
use crate::reach::tests::away;
use crate::testing::{TestGateway, TestResponse};
use axum::body::Body;
use axum::http::Request;
use longhaul::TransportErrorKind;
use serde_json::json;
use std::time::Duration;

const QUEUE: &str = "mails";

fn form(path: &str, body: &str) -> Request<Body> {
    let mut request = TestGateway::request("POST", path, body.to_owned());
    let kind = "application/x-www-form-urlencoded".parse().unwrap();
    request.headers_mut().insert("content-type", kind);
    request
}

fn text(answer: &TestResponse) -> String {
    String::from_utf8_lossy(&answer.bytes).into_owned()
}

fn with(dashboard: Dashboard) -> TestGateway {
    TestGateway::with(ServerConfig { dashboard, ..ServerConfig::default() })
}

/// A gateway with one task that failed for good, and one that runs.
fn worked() -> (TestGateway, String, String) {
    let bench = TestGateway::new();
    let queue = format!("/v1/queues/{QUEUE}");
    let mut ids = Vec::new();
    for report in [
        json!({"status": "FAILED", "reason": "no luck <b>", "fatal": true}),
        json!({"status": "IN_PROGRESS", "progress": {"done": 1, "total": 4, "message": "half way"}}),
    ] {
        let task = json!({"payload_json": {"to": "ann"}, "type": "mail", "tags": ["eu"], "key": "order-1"});
        ids.push(bench.post(&format!("{queue}/tasks"), task).text("id"));
        let wants = json!({"worker": "ann", "wait": 5, "lease_time": "1m"});
        let leased = bench.post(&format!("{queue}/leases"), wants).json();
        let lease = leased["leases"][0]["lease"].as_str().unwrap();
        assert_eq!(bench.post(&format!("{queue}/leases/{lease}:report"), report).status, 200);
    }
    bench.engine.advance(Duration::from_secs(1));
    let running = ids.remove(1);
    (bench, ids.remove(0), running)
}

/// The timeline shows the silences of the holder.
#[test]
fn the_timeline_shows_when_nothing_was_heard_of_the_holder() {
    let (bench, _, running) = worked();
    let task = format!("queues/{QUEUE}/tasks/{running}");
    assert_eq!(bench.get(&format!("/v1/{task}/history")).json()["silences"], json!([]));
    bench.engine.advance(Duration::from_secs(90));
    let history = bench.get(&format!("/v1/{task}/history")).json();
    let [silence] = history["silences"].as_array().unwrap().as_slice() else { panic!("{history}") };
    let told = (&silence["every"], &silence["missed"], &silence["worker"]["name"]);
    assert_eq!(told, (&json!("PT1M"), &json!(1), &json!("ann")), "{history}");
    let page = text(&bench.get(&format!("/ui/{task}")));
    assert!(page.contains("no heartbeat for 1 min"), "{page}");
}

/// Pages and routes define the same fields twice; this test compares them.
#[test]
fn every_page_is_made_of_what_the_routes_answer() {
    let (bench, failed, running) = worked();
    for (place, shown) in [
        ("/ui".to_owned(), vec!["cannot list the queues", "Name of a queue"]),
        (format!("/ui/queues/{QUEUE}"), vec!["demand", "Ended: "]),
        (format!("/ui/queues/{QUEUE}/tasks"), vec![&*failed, &*running, "order-1", "1 of 4 "]),
        (
            format!("/ui/queues/{QUEUE}/tasks?status=failed&tag=eu&type=mail"),
            vec![&*failed, "no luck &lt;b&gt;"],
        ),
        (
            format!("/ui/queues/{QUEUE}/tasks/{failed}"),
            vec!["leased to ann", "epoch 1", "&quot;to&quot;", "Run it once more"],
        ),
        (
            format!("/ui/queues/{QUEUE}/tasks/{running}"),
            vec!["half way", "Take it from its worker", "attempt 1"],
        ),
        (format!("/ui/queues/{QUEUE}/workers"), vec!["gateway", &*running]),
        (format!("/ui/queues/{QUEUE}/dead"), vec![&*failed, "Replay"]),
        (format!("/ui/queues/{QUEUE}/dead/{failed}"), vec!["no luck &lt;b&gt;", "&quot;to&quot;"]),
        (format!("/ui/queues/{QUEUE}/schedules"), vec!["longhaul schedule create"]),
        (format!("/ui/queues/{QUEUE}/limits"), vec!["Version 0"]),
        (format!("/ui/queues/{QUEUE}/actions"), vec!["<h1>Actions</h1>"]),
    ] {
        let answer = bench.get(&place);
        let page = text(&answer);
        assert_eq!(answer.status, 200, "{place}: {page}");
        for shown in shown {
            assert!(page.contains(shown), "{shown} on {place}: {page}");
        }
    }
    let missing = bench.get(&format!("/ui/queues/{QUEUE}/tasks/9:9:-1"));
    assert_eq!(missing.status, 404, "{}", text(&missing));
    let odd = bench.get("/ui/queues/a%22%3Cb%3E%E2%80%AE");
    assert_eq!(odd.status, 400, "{}", text(&odd));
    assert!(!text(&odd).contains("<b>") && !text(&odd).contains('\u{202e}'), "{}", text(&odd));
}

#[test]
fn a_form_does_what_it_says() {
    let (bench, failed, running) = worked();
    let of = format!("/ui/queues/{QUEUE}");
    let done = |path: &str, body: &str| {
        let answer = bench.send(form(&format!("{of}{path}"), body));
        assert_eq!(answer.status, 303, "{path}: {}", text(&answer));
    };
    done("/tasks", "payload=hello+there&type=mail&delay=");
    done(&format!("/tasks/{running}/cancel"), "reason=no+use");
    done(&format!("/tasks/{failed}/retry"), "reason=once+more");
    done("/limits", "version=0&settings=%7B%7D&max_in_flight=7&rate_tokens=&rate_per=");
    done("/pause", "reason=");
    bench.engine.advance(Duration::from_secs(3));
    let settings = bench.get(&format!("/v1/queues/{QUEUE}")).json();
    assert_eq!(
        (&settings["settings"]["max_in_flight"], &settings["settings"]["paused"]),
        (&json!(7), &json!(true))
    );
    let acted = text(&bench.get(&format!("{of}/actions")));
    assert!(acted.contains("no use") && acted.contains("once more"), "{acted}");
    let listed = bench.get(&format!("/v1/queues/{QUEUE}/tasks?order=newest")).json();
    assert_eq!(listed["tasks"].as_array().unwrap().len(), 4, "{listed}");
    let stale = form(&format!("{of}/limits"), "version=0&settings=%7B%7D&max_in_flight=8");
    let stale = bench.send(stale);
    assert_eq!(stale.status, 409, "a change upon an older version: {}", text(&stale));
    done(&format!("/dead/{failed}"), "verb=purge&reason=");
    let left = bench.get(&format!("/v1/queues/{QUEUE}/dead")).json();
    assert_eq!(left["dead_letters"], json!([]), "{left}");
}

/// A form of another site is posted to this address; without tokens, no cookie protects against it.
#[test]
fn forms_of_other_sites_do_nothing() {
    let (bench, _, running) = worked();
    let path = format!("/ui/queues/{QUEUE}/tasks/{running}/kill");
    for (name, value) in [
        ("origin", "http://evil.test"),
        ("origin", "null"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
    ] {
        let mut request = form(&path, "reason=");
        request.headers_mut().insert(name, value.parse().unwrap());
        assert_eq!(bench.send(request).status, 403, "{name}: {value}");
    }
    let mut request = TestGateway::request("GET", "/ui", "");
    request.headers_mut().insert("host", "evil.test".parse().unwrap());
    assert_eq!(bench.send(request).status, 421, "a name that resolves to this address");
    let task = bench.get(&format!("/v1/queues/{QUEUE}/tasks/{running}")).json();
    assert_eq!(task["status"], json!("running"), "{task}");
}

#[test]
fn it_shows_only_or_is_not_there() {
    let (only, off) = (with(Dashboard::ReadOnly), with(Dashboard::Off));
    let pause = format!("/ui/queues/{QUEUE}/pause");
    only.submit(QUEUE, "a");
    assert_eq!(only.get("/ui").status, 200);
    assert_eq!(only.send(form(&pause, "reason=")).status, 403);
    assert_eq!(
        only.post(&format!("/v1/queues/{QUEUE}:pause"), json!({})).status,
        200,
        "the API is no page"
    );
    for path in ["/ui", "/ui/", "/", "/ui/sign-in"] {
        off.get(path).check_refused(404, "route_not_found");
    }
    assert_eq!(off.send(form(&pause, "reason=")).status, 404);
}

/// Pages go through the checks of the routes that they call: hidden data is hidden here, too.
#[test]
fn what_is_hidden_is_hidden_on_pages() {
    let bench = TestGateway::with(ServerConfig { hide_payloads: true, ..ServerConfig::default() });
    let id = bench.submit(QUEUE, "payload-canary");
    for place in ["", "?as=hex", "?as=text"] {
        let page = text(&bench.get(&format!("/ui/queues/{QUEUE}/tasks/{id}{place}")));
        assert!(page.contains("hides payloads") && !page.contains("canary"), "{page}");
    }
    let saved = bench.get(&format!("/ui/queues/{QUEUE}/tasks/{id}/payload"));
    assert_eq!(saved.status, 403, "{}", text(&saved));
}

/// The page tells why a ready task does not run.
#[test]
fn the_gateway_and_the_page_of_a_task_say_why_it_does_not_run() {
    let bench = TestGateway::new();
    let queue = format!("/v1/queues/{QUEUE}");
    let task = json!({"payload_json": {"to": "ann"}});
    let id = bench.post(&format!("{queue}/tasks"), task).text("id");
    let why = || bench.get(&format!("{queue}/tasks/{id}/why")).json();
    let told = why();
    assert_eq!((&told["cause"], &told["status"]), (&json!("no_worker"), &json!("ready")), "{told}");
    let page = text(&bench.get(&format!("/ui/queues/{QUEUE}/tasks/{id}")));
    assert!(page.contains("no worker of the queue is alive"), "{page}");
    let listed = |query: &str| bench.get(&format!("{queue}/tasks?{query}")).json();
    assert_eq!(listed("why=true")["tasks"][0]["why"], told["sentence"], "{told}");
    assert!(listed("")["tasks"][0].get("why").is_none(), "it was not asked for");
    let page = text(&bench.get(&format!("/ui/queues/{QUEUE}/tasks?why=true")));
    assert!(page.contains("no worker of the queue is alive"), "{page}");
    assert_eq!(bench.get(&format!("{queue}/tasks?why=true&limit=101")).status, 400);
    let wants = json!({"worker": "ann", "wait": 0, "lease_time": "1m"});
    bench.post(&format!("{queue}/leases"), wants);
    bench.engine.advance(Duration::from_secs(1));
    let told = why();
    assert_eq!(
        (&told["cause"], &told["details"]["worker"]),
        (&json!("leased"), &json!("ann")),
        "{told}"
    );
    assert!(listed("why=true")["tasks"][0].get("why").is_none(), "it runs");
    assert_eq!(bench.get(&format!("{queue}/tasks/1:2:-1/why")).status, 404);
}

/// Nobody could sign in without an admin URL, or while the broker was away: the token was tried with
/// a list of queues, which needs both.
#[test]
fn a_token_is_proven_without_an_admin_url_and_without_the_broker() {
    let file = allowed::token_file();
    let config = ServerConfig {
        token_file: Some(file.path().to_owned()),
        broker_grace: Duration::ZERO,
        ..ServerConfig::default()
    };
    let bench = TestGateway::with(config);
    for is_away in [false, true] {
        if is_away {
            bench.shell.reach.note(away(TransportErrorKind::Unreachable));
        }
        for (token, status) in [("read", 303), ("admin", 303), ("submit", 303), ("other", 401)] {
            let answer = bench.send(form("/ui/sign-in", &format!("token={token}")));
            let has_cookie = answer.headers.contains_key("set-cookie");
            assert_eq!((answer.status.as_u16(), has_cookie), (status, status == 303), "{token}");
        }
    }
}
