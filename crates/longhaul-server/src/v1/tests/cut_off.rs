//! A gateway reports the loss of its broker soon, and recovers when the broker is back. The test
//! sets the connection state.

use super::streaming::{events_behind, read_until};
use crate::config::ServerConfig;
use crate::reach::tests::away;
use crate::route;
use crate::testing::TestGateway;
use axum::body::Body;
use bytes::Bytes;
use futures::StreamExt;
use longhaul::TransportErrorKind;
use longhaul::ops::ConnectionState;
use serde_json::json;
use std::time::Duration;

/// A gateway whose requests do not wait for the broker.
fn bench() -> TestGateway {
    TestGateway::with(ServerConfig { broker_grace: Duration::ZERO, ..ServerConfig::default() })
}

fn lose(bench: &TestGateway) {
    bench.shell.reach.note(away(TransportErrorKind::Unreachable));
}

/// Generated from the list of routes, so new routes are included.
#[test]
fn every_route_that_needs_the_broker_says_that_it_is_away() {
    let bench = bench();
    let mut served = Vec::new();
    let statuses = || {
        let ask = |route: &route::ApiRoute| {
            let path = route.info.path.replace("{queue}", "tasks").replace("{task}", "1:2:-1");
            let path = path.replace("{name}", "nightly").replace("{lease}", "1:2:-1~1~0");
            let request = TestGateway::request(route.info.method.word(), &path, "");
            // For streams only the head is checked.
            if path.ends_with("/events") {
                let head = bench.open(request);
                return (path, head.status().as_u16(), String::new(), head.headers().clone());
            }
            let answer = bench.send(request);
            (path, answer.status.as_u16(), answer.code(), answer.headers)
        };
        route::all().iter().map(ask).collect::<Vec<_>>()
    };
    lose(&bench);
    for (path, status, code, headers) in statuses() {
        // This test has no recorder of metrics.
        if status != 503 || code == "no_metrics" {
            served.push((path, status));
            continue;
        }
        assert!(path.ends_with("/events") || code == "broker_unreachable", "{path}: {code}");
        assert_eq!(headers["retry-after"], "1", "{path}");
    }
    let by_themselves: Vec<_> = served.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(by_themselves, ["/healthz", "/livez", "/metrics", "/v1/openapi.json"]);
    let ready = bench.get("/readyz");
    ready.check_refused(503, "broker_unreachable");
    assert!(ready.text("detail").contains("pulsar://b:6650: cannot be reached: no"), "{ready:?}");

    bench.shell.reach.note(ConnectionState::Connected);
    for (path, status, code, _) in statuses() {
        assert!(status != 503 || code == "no_metrics", "{path}: {status}");
    }
}

/// Readiness is open to everybody, even with tokens.
#[test]
fn readiness_does_not_say_where_the_broker_is() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), r#"{"tokens":[]}"#).unwrap();
    let token_file = Some(file.path().to_owned());
    let bench = TestGateway::with(ServerConfig { token_file, ..ServerConfig::default() });
    lose(&bench);
    let ready = bench.get("/readyz");
    ready.check_refused(503, "broker_unreachable");
    let detail = ready.text("detail");
    assert!(detail.contains("log has the cause") && !detail.contains("b:6650"), "{detail}");
}

/// A broker that refuses the gateway refuses each request itself, so requests need not wait.
#[test]
fn a_gateway_that_is_kept_out_is_not_ready() {
    let bench = bench();
    bench.shell.reach.note(away(TransportErrorKind::Unauthorized));
    bench.get("/readyz").check_refused(503, "broker_refused");
    assert_eq!(bench.get("/livez").status, 200);
    assert_eq!(bench.get("/v1/queues/tasks/counts").status, 200, "the broker answers it");
}

#[test]
fn requests_under_way_are_answered_when_the_broker_is_lost() {
    for (path, body, code) in [
        (
            "/v1/queues/tasks/leases",
            Body::from(r#"{"worker":"w","wait":"30s"}"#),
            "broker_unreachable",
        ),
        // Its body never arrives; another one may have been stored.
        ("/v1/queues/tasks/tasks", endless(), "outcome_unknown"),
        // Some tasks may have been deleted: "nothing was done" was wrong.
        ("/v1/queues/tasks:purge", endless(), "outcome_unknown"),
    ] {
        let bench = bench();
        let request = TestGateway::json_request("POST", path, body);
        let before = bench.engine.time_passed();
        let lost = async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            lose(&bench);
        };
        let sending = bench.sending(request);
        let (answer, ()) = bench.engine.run(async { tokio::join!(sending, lost) });
        answer.check_refused(503, code);
        assert!(answer.headers.contains_key("retry-after"), "{answer:?}");
        let took = bench.engine.time_passed() - before;
        assert!((3..10).contains(&took.as_secs()), "{path}: {took:?}");
    }
}

fn endless() -> Body {
    let start = futures::stream::iter([Ok::<_, std::io::Error>(Bytes::from_static(b"{"))]);
    Body::from_stream(start.chain(futures::stream::pending()))
}

/// The connection stays open, since a browser's event source gives up on an error; later events
/// continue behind the earlier ones.
#[test]
fn streams_say_when_the_broker_is_lost_and_when_it_is_back() {
    let bench = bench();
    bench.submit("tasks", "a");
    let mut stream = events_behind(&bench, "");
    bench.engine.run(read_until(&mut stream, "event: caught-up"));
    lose(&bench);
    let lost = bench.engine.run(read_until(&mut stream, "event: broker-lost"));
    assert!(
        lost.contains(r#"data: {"detail":"pulsar://b:6650: cannot be reached: no"}"#),
        "{lost}"
    );
    assert!(!lost.contains("id:"), "{lost}");
    bench.shell.reach.note(ConnectionState::Connected);
    bench.engine.run(read_until(&mut stream, "event: broker-back\ndata: {}"));
    // A broker that refuses the gateway is not back.
    bench.shell.reach.note(away(TransportErrorKind::Unauthorized));
    let refused = bench.engine.run(read_until(&mut stream, "event: broker-lost"));
    assert!(!refused.contains("broker-back") && refused.contains("pulsar://b:6650"), "{refused}");
    bench.shell.reach.note(ConnectionState::Connected);
    bench.engine.run(read_until(&mut stream, "event: broker-back\ndata: {}"));
    lose(&bench);
    bench.engine.run(read_until(&mut stream, "event: broker-lost"));
    bench.shell.reach.note(away(TransportErrorKind::Unauthorized));
    bench.engine.advance(Duration::from_secs(60));
    bench.shell.reach.note(ConnectionState::Connected);
    let settings = json!({"expected_version": 0, "settings": {"paused": true}});
    assert_eq!(bench.call("PATCH", "/v1/queues/tasks", settings).status, 200);
}
