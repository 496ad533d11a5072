//! The contract of leases (`docs/leases.md`), from the side of the gateway.

use crate::config::{RateLimit, ServerConfig};
use crate::testing::{TestGateway, TestResponse};
use serde_json::{Value, json};
use std::time::Duration;

const TASKS: &str = "/v1/queues/tasks/tasks";
const LEASES: &str = "/v1/queues/tasks/leases";

fn submit(bench: &TestGateway) -> String {
    let task = json!({"payload": "work", "max_attempts": 3, "retry": {"intervals": ["1s", "1s"]}});
    bench.post(TASKS, task).text("id")
}

fn task(bench: &TestGateway, id: &str) -> Value {
    bench.engine.advance(Duration::from_secs(2));
    bench.get(&format!("{TASKS}/{id}")).json()
}

/// Sends a report whose body is this text, with the lease in place of `THIS`.
fn report(bench: &TestGateway, lease: &Value, body: &str) -> TestResponse {
    let body = body.replace("THIS", lease["lease"].as_str().unwrap());
    bench.send(TestGateway::json_request("POST", &format!("{LEASES}:report"), body))
}

fn running(bench: &TestGateway) -> u64 {
    let counts = bench.get("/v1/queues/tasks/counts").json();
    counts["by_status"]["running"].as_u64().unwrap_or_default()
}

fn confirming(bench: &TestGateway) -> Value {
    let request = json!({"worker": "ann", "wait": "30s", "lease_time": "10s", "confirms": true});
    let answer = bench.post(LEASES, request);
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["leases"][0].clone()
}

fn confirm(bench: &TestGateway, lease: &Value) -> Value {
    let answer = bench.post(&format!("{LEASES}:confirm"), json!({"leases": [lease["lease"]]}));
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["outcomes"][0].clone()
}

/// A worker logged a file name that was no UTF-8 within the second before its end, or reported
/// progress in percent: the gateway refused the whole report, and a finished task failed for good.
#[test]
fn odd_news_cost_only_themselves() {
    let large = "eHh4".repeat(30_000);
    let large = format!(r#""checkpoint_base64":"{large}""#);
    for (news, warning) in [
        (r#""log":["read caf\udce9.txt"]"#, None),
        (r#""log":"one line""#, None),
        (r#""log":[1,null]"#, None),
        (r#""progress":{"done":33.3,"total":100.5}"#, None),
        (r#""progress":{"done":-1}"#, None),
        (r#""progress":{"done":1e400}"#, Some("`progress` was left out")),
        (r#""progress":0.5"#, Some("`progress` was left out")),
        (r#""progress":{"done":1,"message":"\ud83d"}"#, None),
        (r#""checkpoint_base64":"%%""#, Some("`checkpoint_base64` was left out")),
        (&large, Some("`checkpoint_base64` was left out: it has 90000 bytes")),
    ] {
        let bench = TestGateway::new();
        let id = submit(&bench);
        let lease = bench.lease("tasks", "ann");
        let kept =
            report(&bench, &lease, &format!(r#"{{"lease":"THIS","status":"IN_PROGRESS",{news}}}"#));
        let body = format!(r#"{{"lease":"THIS","status":"SUCCEEDED","result":"fine",{news}}}"#);
        let ended = report(&bench, &lease, &body);
        for answer in [kept, ended] {
            assert_eq!(answer.status, 200, "{news}: {answer:?}");
            let told = answer.json()["warnings"][0].as_str().map(str::to_owned);
            assert_eq!(told.is_some(), warning.is_some(), "{news}: {told:?}");
            assert!(told.unwrap_or_default().starts_with(warning.unwrap_or_default()), "{news}");
        }
        let ended = task(&bench, &id);
        assert_eq!((&ended["status"], &ended["attempts"]), (&json!("completed"), &json!(1)));
    }
}

/// One odd log line dropped the checkpoint beside it.
#[test]
fn a_checkpoint_survives_odd_news_beside_it() {
    let bench = TestGateway::new();
    submit(&bench);
    let lease = bench.lease("tasks", "ann");
    let news = r#""log":["\ud83d"],"progress":{"done":"x"},"checkpoint_base64":"cGFnZSA3""#;
    let body = format!(r#"{{"lease":"THIS","status":"IN_PROGRESS",{news}}}"#);
    let kept = report(&bench, &lease, &body).json();
    assert_eq!((&kept["checkpoint_stored"], &kept["warnings"][1]), (&json!(true), &json!(null)));
    let body = format!(r#"{{"lease":"THIS","status":"RELEASED","after":-1,{news}}}"#);
    assert_eq!(report(&bench, &lease, &body).status, 200);
    let next = bench.lease("tasks", "bob");
    let kept = (&next["checkpoint_base64"], &next["attempt"]);
    assert_eq!(kept, (&json!("cGFnZSA3"), &json!(1)), "given back with its checkpoint");
}

/// An odd reason, or a pause below zero, made a failure that may be retried a final one.
#[test]
fn an_odd_failure_is_a_failed_attempt() {
    for what in [
        r#""reason":"cannot open caf\udce9.txt""#,
        r#""reason":7"#,
        r#""reason":"x","retry_after":-0.5"#,
        r#""reason":"x","retry_after":"soon""#,
    ] {
        let bench = TestGateway::new();
        let id = submit(&bench);
        let lease = bench.lease("tasks", "ann");
        let failed =
            report(&bench, &lease, &format!(r#"{{"lease":"THIS","status":"FAILED",{what}}}"#));
        assert_eq!(failed.status, 200, "{what}: {failed:?}");
        assert_ne!(task(&bench, &id)["status"], "failed", "{what}");
        assert_eq!(bench.lease("tasks", "ann")["attempt"], 2, "{what}");
    }
}

/// A misspelt `result` must not be an empty one.
#[test]
fn the_fields_of_an_end_are_strict() {
    let bench = TestGateway::new();
    submit(&bench);
    let lease = bench.lease("tasks", "ann");
    for (body, code) in [
        (r#"{"lease":"THIS","status":"SUCCEEDED","resutl":"x"}"#, "json_unfit"),
        (r#"{"lease":"THIS","status":"SUCCEEDED","result":"\ud83d"}"#, "json_unfit"),
        (r#"{"lease":"THIS","status":"SUCCEEDED","result_base64":"%"}"#, "request_unfit"),
        (r#"{"lease":"THIS","status":"FAILED","result":"x"}"#, "request_unfit"),
        (r#"{"lease":"THIS","status":"SUCCEEDED","reason":"x"}"#, "request_unfit"),
    ] {
        report(&bench, &lease, body).check_refused(422, code);
    }
}

/// The answer with a lease got lost: the task stood for the whole lease time, and three lost answers
/// failed a task for good that no worker had ever seen.
#[test]
fn a_lease_that_its_worker_does_not_confirm_costs_no_attempt_three_times_in_a_row() {
    let bench = TestGateway::new();
    submit(&bench);
    for attempt in [1, 1, 1, 1, 2] {
        let before = bench.engine.time_passed();
        assert_eq!(confirming(&bench)["attempt"], attempt);
        assert!((bench.engine.time_passed() - before).as_secs() < 14, "at once: no backoff");
    }
}

#[test]
fn a_confirmed_lease_that_falls_silent_is_a_failed_attempt() {
    let bench = TestGateway::new();
    submit(&bench);
    let lease = confirming(&bench);
    for _ in 0..2 {
        let outcome = confirm(&bench, &lease);
        assert_eq!(outcome["outcome"], "RESULT_OK", "{outcome}");
        assert_eq!(outcome["lease"]["cancelled"], false);
    }
    assert_eq!(confirming(&bench)["attempt"], 2);
    assert_eq!(confirm(&bench, &lease)["outcome"], "STALE_ATTEMPT");
}

/// Reports confirm as well, and a late confirmation tells that the lease is over.
#[test]
fn a_report_confirms_and_a_late_confirmation_is_refused() {
    let bench = TestGateway::new();
    submit(&bench);
    let lease = confirming(&bench);
    assert_eq!(report(&bench, &lease, r#"{"lease":"THIS","status":"IN_PROGRESS"}"#).status, 200);
    let lease = confirming(&bench);
    assert_eq!(lease["attempt"], 2, "it was confirmed, and then silent");
    bench.engine.advance(Duration::from_secs(11));
    assert_eq!(confirm(&bench, &lease)["outcome"], "NOT_IN_PROGRESS");
    assert_eq!(confirming(&bench)["attempt"], 2);
}

/// Behind a balancer, the confirmation may reach another gateway than the one that awaits it.
#[test]
fn any_gateway_takes_a_confirmation() {
    let bench = TestGateway::new();
    let other = bench.beside(ServerConfig::default());
    let id = submit(&bench);
    let request = json!({"worker": "ann", "wait": "30s", "lease_time": "1m", "confirms": true});
    let lease = bench.post(LEASES, request).json()["leases"][0].clone();
    assert_eq!(confirm(&other, &lease)["outcome"], "RESULT_OK");
    bench.engine.advance(Duration::from_secs(45));
    assert_eq!(task(&bench, &id)["status"], "running", "the first gateway has not given it back");
}

#[test]
fn what_is_confirmed_is_named_and_within_bounds() {
    let bench = TestGateway::new();
    let confirm =
        |leases: Value| bench.post(&format!("{LEASES}:confirm"), json!({"leases": leases}));
    confirm(json!([])).check_refused(422, "request_unfit");
    confirm(json!(vec!["x"; 101])).check_refused(422, "request_unfit");
    let odd = confirm(json!(["nonsense"]));
    assert_eq!(
        (odd.status.as_u16(), &odd.json()["outcomes"][0]["outcome"]),
        (200, &json!("REJECTED"))
    );
}

/// A worker whose connection was gone when the answer came had leases that it knew nothing of.
#[test]
fn leases_of_an_answer_that_nobody_reads_are_given_back() {
    let bench = TestGateway::new();
    (0..3).for_each(|_| drop(submit(&bench)));
    let request = json!({"worker": "gone", "wait": "30s", "count": 3, "lease_time": "10m"});
    let request = TestGateway::json_request("POST", LEASES, request.to_string());
    let answer = bench.open(request);
    assert_eq!(answer.status(), 200);
    drop(answer);
    bench.engine.advance(Duration::from_secs(1));
    let request = json!({"worker": "ann", "wait": "30s", "count": 3});
    let leases = bench.post(LEASES, request).json()["leases"].clone();
    let attempts = leases.as_array().unwrap().iter().map(|lease| &lease["attempt"]);
    assert_eq!(attempts.collect::<Vec<_>>(), [1, 1, 1]);
}

/// A gateway that stopped answered 204 to requests that had leased tasks already: 60 of 480 tasks
/// ran with nobody, and each of three deploys cost an attempt. The same happened when a worker
/// went away in mid-request. Here a gateway grants all leases of a request at once; the tests of
/// the library's requests have those that are granted in part.
#[test]
fn a_request_that_is_cut_off_anywhere_leaves_no_lease_behind() {
    const PARTS: &str = "/v1/queues/parts";
    let mut cut_off = 0;
    for (stops, turns) in (0..60).map(|step| (step % 2 == 0, (3 + step / 15, step % 15))) {
        let bench = TestGateway::new();
        bench.engine.create_partitioned("parts", 8);
        // The queue is open before.
        assert_eq!(bench.post(&format!("{PARTS}/leases"), json!({"worker": "ann"})).status, 204);
        let tasks: Vec<_> = (0..20).map(|_| json!({"payload": "work"})).collect();
        bench.post(&format!("{PARTS}/tasks:batch"), json!({"tasks": tasks}));
        let request = json!({"worker": "ann", "wait": "30s", "count": 20, "lease_time": "10m"});
        let path = format!("{PARTS}/leases");
        let asked = bench.sending(TestGateway::json_request("POST", &path, request.to_string()));
        let drain = bench.stops.drain.clone();
        let (answer, is_late) = bench.engine.run(async move {
            tokio::pin!(asked);
            tokio::select! {
                biased;
                answer = &mut asked => return (Some(answer), false),
                () = after(turns) => {}
            }
            if !stops {
                return (None, true);
            }
            drain.cancel();
            (Some(asked.await), true)
        });
        cut_off += usize::from(is_late);
        let leases = answer.map(|answer| answer.json()["leases"].clone()).unwrap_or_default();
        let leased = leases.as_array().map_or(0, Vec::len);
        bench.engine.advance(Duration::from_secs(5));
        let running = bench.get(&format!("{PARTS}/counts")).json()["by_status"]["running"].as_u64();
        assert_eq!(running.unwrap_or_default(), leased as u64, "stops: {stops}, turn {turns:?}");
    }
    assert!((10..60).contains(&cut_off), "{cut_off} of 60");
}

/// A time in ms, and a number of turns of the scheduler.
async fn after((ms, turns): (u64, u64)) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
    for _ in 0..turns {
        tokio::task::yield_now().await;
    }
}

/// The answer with 16 tasks of 3.7 MB was longer than any client reads: all of them failed for good,
/// though no processor was called.
#[test]
fn an_answer_has_no_more_than_clients_read() {
    let bench = TestGateway::new();
    let request = || bench.post(LEASES, json!({"worker": "ann", "wait": "30s", "count": 100}));
    let count = |answer: &TestResponse| answer.json()["leases"].as_array().unwrap().len();
    let payload = "x".repeat(3_700_000);
    for _ in 0..3 {
        bench.submit("tasks", &payload);
    }
    assert_eq!([(); 2].map(|()| count(&request())), [2, 1], "8 MiB at most");
    // In JSON, six bytes for each.
    let control = "\u{1}".repeat(3_700_000);
    let mut alone = TestGateway::request("POST", TASKS, control.clone());
    alone.headers_mut().insert("content-type", "text/plain".parse().unwrap());
    assert_eq!(bench.send(alone).status, 201);
    assert!(request().bytes.len() < 6 << 20, "in base64");
    let task = json!({"payload": "", "properties": {"odd": &control[..100_000]}});
    let tasks = vec![task; 25];
    for _ in 0..4 {
        let submitted = bench.post(&format!("{TASKS}:batch"), json!({"tasks": tasks}));
        assert_eq!(submitted.status, 200);
    }
    let odd = request();
    assert!(count(&odd) > 80 && odd.bytes.len() < 64 << 20, "{}", count(&odd));
}

/// A gateway that allows a caller five requests, and one more each hour.
fn limited() -> TestGateway {
    let limit = RateLimit { requests: 1, per: Duration::from_secs(3600), burst: 5 };
    TestGateway::with(ServerConfig { rate_limit: Some(limit), ..ServerConfig::default() })
}

/// A busy worker lost its leases, because its own submits had used up the limit.
#[test]
fn reports_on_leases_that_exist_count_for_no_rate_limit() {
    let bench = limited();
    submit(&bench);
    let lease = bench.lease("tasks", "ann");
    while bench.get("/v1/queues/tasks/counts").status != 429 {}
    for _ in 0..20 {
        let kept = report(&bench, &lease, r#"{"lease":"THIS","status":"IN_PROGRESS"}"#);
        assert_eq!(kept.status, 200);
    }
    assert_eq!(confirm(&bench, &lease)["outcome"], "RESULT_OK");
    let odd = report(&bench, &lease, r#"{"lease":"THIS","status":"IN_PROGRESS","result":"?"}"#);
    odd.check_refused(422, "request_unfit");
    assert_eq!(report(&bench, &lease, r#"{"lease":"THIS","status":"SUCCEEDED"}"#).status, 200);
}

/// Reports on leases that are not there were free, if they were sent as a batch.
#[test]
fn reports_on_leases_that_are_not_there_count_for_the_rate_limit() {
    let unknown = json!({"lease": "9:9:-1~1~00000000000000000000000000000000"});
    let one = |bench: &TestGateway| {
        report(bench, &unknown, r#"{"lease":"THIS","status":"IN_PROGRESS"}"#).code()
    };
    let batch = |bench: &TestGateway| {
        let reports = json!([{"lease": unknown["lease"], "status": "SUCCEEDED"}]);
        bench.post(&format!("{LEASES}:report-batch"), json!({"reports": reports})).code()
    };
    let asks: [&dyn Fn(&TestGateway) -> String; 2] = [&one, &batch];
    for ask in asks {
        let bench = limited();
        let codes: Vec<_> = (0..7).map(|_| ask(&bench)).collect();
        let refused = codes.iter().filter(|code| *code == "rate_limited").count();
        assert_eq!(refused, 2, "{codes:?}");
    }
}

/// Each page made several requests, so that the last queues of the alphabet had none left. Then the
/// requests behind a refused one were let through.
#[test]
fn a_page_of_the_dashboard_counts_as_one_request() {
    let bench = limited();
    submit(&bench);
    let path = format!("{}/queues/tasks", longhaul_ui::ROOT);
    let page = || String::from_utf8_lossy(&bench.get(&path).bytes).into_owned();
    let pages = [(); 5].map(|()| page());
    let limited = pages.each_ref().map(|page| page.contains("rate limit"));
    let whole = pages.each_ref().map(|page| page.contains("Ended: "));
    assert_eq!((limited, whole), ([false, false, false, false, true], limited.map(|it| !it)));
}

/// After the crash of a fleet of workers and of their gateway, another gateway ended 64 leases each
/// ten seconds, and a task at the end of the line stood for minutes.
#[test]
fn many_leases_that_fall_silent_at_once_end_within_seconds() {
    let (bench, count) = (TestGateway::new(), 500);
    let tasks: Vec<_> = (0..count).map(|_| json!({"payload": "work"})).collect();
    bench.post(&format!("{TASKS}:batch"), json!({"tasks": tasks}));
    let other = bench.beside(ServerConfig::default());
    let request = json!({"worker": "ann", "wait": "5s", "count": 100, "lease_time": "30s"});
    for _ in 0..count / 100 {
        assert_eq!(other.post(LEASES, request.clone()).status, 200);
    }
    assert_eq!(running(&bench), count);
    assert_eq!(bench.post(LEASES, json!({"worker": "bob"})).status, 204, "it looks after them");
    drop(other);
    bench.engine.advance(Duration::from_secs(40));
    assert_eq!(running(&bench), 0);
}

/// A wait, an event and so a webhook said when the task was first claimed, the task itself when it
/// was submitted. A receiver that computed how long tasks wait got zero.
#[test]
fn a_task_was_created_when_it_was_submitted_whoever_says_so() {
    let bench = TestGateway::new();
    let id = submit(&bench);
    let created = bench.get(&format!("{TASKS}/{id}")).json()["created_at"].clone();
    assert!(created.is_u64());
    bench.engine.advance(Duration::from_secs(30));
    let lease = bench.lease("tasks", "ann");
    assert_eq!(report(&bench, &lease, r#"{"lease":"THIS","status":"SUCCEEDED"}"#).status, 200);
    let listed = bench.get(TASKS).json()["tasks"][0]["created_at"].clone();
    let waited = bench.get(&format!("{TASKS}/{id}/wait")).json()["created_at"].clone();
    let shown = task(&bench, &id)["created_at"].clone();
    assert_eq!([listed, waited, shown], [created.clone(), created.clone(), created]);
}
