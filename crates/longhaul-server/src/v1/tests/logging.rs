//! The gateway's log: the events and fields of the dialect `jobs`, and no secrets.

use super::allowed::{authorized, hex};
use crate::config::ServerConfig;
use crate::testing::TestGateway;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use tracing::Level;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn what_happens_is_logged_with_the_fields_of_the_dialect_jobs_and_without_secrets() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let hash = hex("canary-token");
    let entry = format!(r#"{{"tokens":[{{"name":"ops","sha256":"{hash}","scopes":["admin"]}}]}}"#);
    std::fs::write(file.path(), entry).unwrap();
    let token_file = Some(file.path().to_owned());
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_max_level(Level::TRACE).with_ansi(false);
    let subscriber = subscriber.with_writer(move || writer.clone()).finish();
    // With a single subscriber in the process, tracing asks the subscriber of the test that reaches
    // a log line first, and that test has none.
    let _other = tracing::Dispatch::new(tracing_subscriber::fmt().with_writer(io::sink).finish());
    tracing::subscriber::with_default(subscriber, || {
        let bench = TestGateway::with(ServerConfig { token_file, ..ServerConfig::default() });
        let send = |method: &str, path: &str, token: &str, body: &'static str| {
            authorized(&bench, method, path, token, body)
        };
        let path = "/v1/queues/tasks/tasks";
        let body = r#"{"payload":"canary-payload","idempotency_key":"k-1"}"#;
        let id = send("POST", path, "canary-token", body).text("id");
        assert_eq!(send("POST", path, "canary-wrong", body).status, 401);
        assert_eq!(
            send("POST", path, "canary-token", r#"{"payload":["canary-payload"]}"#).status,
            422
        );
        let deleted = format!("{path}/{id}?reason=two%0Alines");
        assert_eq!(send("DELETE", &deleted, "canary-token", "").status, 204);
        let schedule = "/v1/queues/tasks/schedules/nightly";
        let new = r#"{"schedule":{"every":"1h"},"task":{"payload":"a"}}"#;
        assert_eq!(send("POST", schedule, "canary-token", new).status, 201);
        let deleted = format!("{schedule}?reason=moved");
        assert_eq!(send("DELETE", &deleted, "canary-token", "").status, 204);
    });
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let line = |words: &[&str]| {
        let found = text.lines().find(|line| words.iter().all(|word| line.contains(word)));
        found.unwrap_or_else(|| panic!("no line with {words:?}: {text}"))
    };
    line(&[
        "longhaul::tasks",
        r#"event="job_enqueued""#,
        "queue=tasks",
        "job_id=",
        "payload_len=14",
        r#"idempotency_key="k-1""#,
    ]);
    line(&[
        r#"event="task_action""#,
        r#"action="delete""#,
        r#"operator="ops""#,
        r#"reason="two\nlines""#,
    ]);
    line(&[r#"event="schedule_action""#, r#"action="delete""#, r#"reason="moved""#]);
    line(&[r#"event="http_request""#, r#"route="/v1/queues/{queue}/tasks""#, "status=401"]);
    for secret in ["canary-payload", "canary-token", "canary-wrong", &hash] {
        assert!(!text.contains(secret), "{secret} is in the log");
    }
}
