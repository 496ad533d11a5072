//! Searches for leaked secrets: each is a unique text, and all output of a service is searched for
//! it, including its log at level trace.

use super::stage::longhaul;
use reqwest::{Client, Method};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// Tokens of the gateway, and their output of `printf %s TOKEN | sha256sum`.
const ADMIN: &str = "canary-of-an-admin-0b4fd0a37ce1";
const ADMIN_SUM: &str = "68cb679c4529fcdb28a57bbe45be28bfb5d5fcc1569a810e703d6e15bf6d5401";
const READER: &str = "canary-of-a-reader-93b2ad10";
const READER_SUM: &str = "3d373306beaa96ad0f47814b69ec5d0c99989070b604acb77d23a81aa145a835";

/// A token sent to wrong places.
const STRAY: &str = "canary-of-a-stray-token-77d1e2c9";
const PAYLOAD: &str = "canary-of-a-payload-51c07c1bd5";
const RESULT: &str = "canary-of-a-result-6fe21c9a04";
/// Base64 of `canary-of-a-checkpoint`.
const CHECKPOINT: &str = "Y2FuYXJ5LW9mLWEtY2hlY2twb2ludA==";
/// Base64 of the key that signs tokens for the embedded broker.
const SIGNING: &str = "Y2FuYXJ5LW9mLWEtc2lnbmluZy1rZXktMzItYnl0ZXM=";
const PASSWORD: &str = "canary-of-a-password-e07c51";

/// Texts, by where they were written.
struct Written(Vec<(String, String)>);

impl Written {
    fn add(&mut self, place: impl Into<String>, text: impl Into<String>) {
        self.0.push((place.into(), text.into()));
    }

    /// The places where a secret was written.
    fn with(&self, secret: &str) -> Vec<String> {
        let line = |text: &str| {
            let line = text.lines().find(|line| line.contains(secret)).unwrap_or_default();
            line.chars().take(400).collect::<String>()
        };
        let found = self.0.iter().filter(|(_, text)| text.contains(secret));
        found.map(|(place, text)| format!("{place}: {}", line(text))).collect()
    }
}

/// `longhaul server start` with every possible secret.
struct Service {
    child: Child,
    url: String,
    http: Client,
    key: String,
    folder: TempDir,
}

fn secrets(command: &mut Command, folder: &Path) {
    command.env("LONGHAUL_CONFIG", folder.join("none.toml"));
    command.env("LONGHAUL_BROKER_TOKEN_SECRET_FILE", folder.join("signing"));
    command.env("LONGHAUL_BROKER_SUPERUSERS", "ann");
    for name in ["RUST_LOG", "PULSAR_SERVICE_URL"] {
        command.env_remove(name);
    }
}

impl Service {
    fn start(log_format: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let file = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        file("signing", &format!("data:;base64,{SIGNING}"));
        let token = |name: &str, sum: &str, scope: &str| json!({"name": name, "sha256": sum, "scopes": [scope]});
        let tokens = [token("boss", ADMIN_SUM, "admin"), token("eye", READER_SUM, "read")];
        file("tokens.json", &json!({"tokens": tokens}).to_string());
        let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        let key = made.signing_key.serialize_pem();
        file("certificate.pem", &made.cert.pem());
        file("key.pem", &key);
        let arguments = "server start --data data --http 127.0.0.1:0 --broker 127.0.0.1:0 --admin 127.0.0.1:0 --http-tokens tokens.json \
            --http-certificate-file certificate.pem --http-key-file key.pem --hide-payloads --dialect jobs,dqueue --log trace -o jsonl --log-format";
        let arguments: Vec<_> = arguments.split_whitespace().chain([log_format]).collect();
        let mut command = longhaul(&arguments, folder.path());
        secrets(&mut command, folder.path());
        let log = fs::File::create(folder.path().join("log")).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let told: Value = serde_json::from_str(&line).unwrap_or_default();
        let log = || fs::read_to_string(folder.path().join("log")).unwrap();
        let url = told["http"].as_str().unwrap_or_else(|| panic!("{}", log())).to_owned();
        rustls::crypto::ring::default_provider().install_default().ok();
        let authority = reqwest::Certificate::from_pem(made.cert.pem().as_bytes()).unwrap();
        let http = Client::builder().tls_certs_merge([authority]).build().unwrap();
        Self { child, url, http, key, folder }
    }

    /// An answer with its head.
    async fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> (u16, String) {
        let method: Method = method.parse().unwrap();
        let mut request = self.http.request(method, format!("{}{path}", self.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = request.body(body.to_owned()).send().await.unwrap();
        let (status, head) = (answer.status().as_u16(), format!("{:?}", answer.headers()));
        (status, format!("{status} {head} {}", answer.text().await.unwrap()))
    }

    async fn by(&self, token: &str, method: &str, path: &str, body: &Value) -> (u16, String) {
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", &*bearer), ("content-type", "application/json")];
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.ask(method, path, &headers, &body).await
    }

    /// Drains it, and returns its log.
    fn ended(mut self) -> (String, TempDir) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
        (fs::read_to_string(self.folder.path().join("log")).unwrap(), self.folder)
    }
}

fn json_of(answer: &str) -> Value {
    let body = answer.find("} {").map_or("", |at| &answer[at + 2..]);
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

/// Sends tokens to every wrong place where people might put them.
async fn mistakes(service: &Service, written: &mut Written) {
    let json = ("content-type", "application/json");
    let (bearer, basic) = (format!("Bearer {STRAY}"), format!("Basic {STRAY}"));
    let field = format!(r#"{{"payload":"a","token":"{STRAY}"}}"#);
    let admin = format!("Bearer {ADMIN}");
    for (path, headers, body) in [
        ("/v1/queues", vec![("authorization", &*bearer)], ""),
        ("/v1/queues", vec![("authorization", &*basic)], ""),
        ("/v1/queues", vec![("authorization", STRAY)], ""),
        ("/v1/queues", vec![("authorization", &*bearer), ("authorization", &*bearer)], ""),
        ("/v1/queues", vec![("x-api-key", STRAY)], ""),
        ("/v1/queues", vec![("cookie", &*bearer)], ""),
        (&*format!("/v1/queues?token={STRAY}"), vec![], ""),
        (
            &*format!("/v1/queues/mails/tasks?access_token={STRAY}"),
            vec![("authorization", &*admin)],
            "",
        ),
        ("/v1/queues/mails/tasks", vec![("authorization", &*admin), json], &*field),
        ("/enqueue", vec![("authorization", &*bearer), json], &*field),
        ("/tasks", vec![("authorization", &*basic), json], &*field),
    ] {
        for method in ["GET", "POST"] {
            let (_, told) = service.ask(method, path, &headers, body).await;
            written.add(
                format!("the answer to {method} {path} {headers:?}").replace(STRAY, "…"),
                told,
            );
        }
    }
}

/// Runs a task from submit to end, with secrets in each part of it. Returns the owner id of its
/// lease, which is a secret of its holder.
async fn a_task(service: &Service, written: &mut Written) -> String {
    let queue = "/v1/queues/mails";
    assert_eq!(service.by(ADMIN, "PUT", queue, &json!({})).await.0, 200);
    let tasks = format!("{queue}/tasks");
    let (status, told) = service.by(ADMIN, "POST", &tasks, &json!({"payload": PAYLOAD})).await;
    assert_eq!(status, 201, "{told}");
    let id = json_of(&told)["id"].as_str().unwrap().to_owned();
    let ask = json!({"worker": "ann", "wait": "30s"});
    let (status, leased) = service.by(ADMIN, "POST", &format!("{queue}/leases"), &ask).await;
    assert!(status == 200 && leased.contains(PAYLOAD), "{leased}");
    let lease = json_of(&leased)["leases"][0]["lease"].as_str().unwrap().to_owned();
    let owner = lease.rsplit('~').next().unwrap().to_owned();
    assert_eq!(owner.len(), 32, "{lease}");
    let alive = json!({"lease": lease, "status": "IN_PROGRESS", "checkpoint_base64": CHECKPOINT, "progress": {"done": 1, "total": 2}});
    let report = format!("{queue}/leases:report");
    assert_eq!(service.by(ADMIN, "POST", &report, &alive).await.0, 200);
    // Twice: while the lease is held, and when the task is over.
    for _ in 0..2 {
        for path in ["", "/lease", "/history"] {
            let (status, told) =
                service.by(READER, "GET", &format!("{tasks}/{id}{path}"), &Value::Null).await;
            written.add(format!("{path} of a task, to a reader: {status}"), told);
        }
        for path in ["", "/tasks", "/counts", "/workers", "/actions", "/dead"] {
            let (status, told) =
                service.by(READER, "GET", &format!("{queue}{path}"), &Value::Null).await;
            assert_eq!(status, 200, "{told}");
            written.add(format!("{path} of a queue, to a reader"), told);
        }
        let done = json!({"lease": lease, "status": "SUCCEEDED", "result": RESULT});
        assert_eq!(service.by(ADMIN, "POST", &report, &done).await.0, 200);
    }
    for path in ["/payload", "/result"] {
        let (status, told) =
            service.by(READER, "GET", &format!("{tasks}/{id}{path}"), &Value::Null).await;
        assert_eq!(status, 403, "{told}");
        written.add(path, told);
    }
    let (_, seen) = service.by(ADMIN, "GET", &format!("{tasks}/{id}/result"), &Value::Null).await;
    assert!(seen.contains(RESULT), "what is searched for was there: {seen}");
    owner
}

/// The program's output about its settings, valid and invalid.
fn settings(folder: &Path, written: &mut Written) {
    let plain = json!({"tokens": [{"name": "boss", "sha256": ADMIN, "scopes": ["admin"]}]});
    fs::write(folder.join("plain.json"), plain.to_string()).unwrap();
    fs::write(folder.join("params"), format!("userId:ann,password:{PASSWORD}")).unwrap();
    for arguments in [
        "config show -o json",
        "config show",
        "context show",
        "server start --engine pulsar --service-url pulsar://127.0.0.1:1 --auth-plugin basic --timeout 1s --log trace",
        "task list mails --service-url pulsar://127.0.0.1:1 --auth-plugin basic --timeout 1s --log trace",
        "task list mails --service-url pulsar://127.0.0.1:1 --auth-plugin nonsense --log trace",
        // The file contains the token itself instead of its hash.
        "server start --data other --http 127.0.0.1:0 --broker 127.0.0.1:0 --admin 127.0.0.1:0 --http-tokens plain.json --log trace",
        // The key is given in place of the certificate.
        "server start --data other --http 127.0.0.1:0 --broker 127.0.0.1:0 --admin 127.0.0.1:0 --http-certificate-file key.pem --http-key-file key.pem",
    ] {
        let all: Vec<_> = arguments.split_whitespace().collect();
        let mut command = longhaul(&all, folder);
        secrets(&mut command, folder);
        command.env("LONGHAUL_TOKEN", STRAY);
        if arguments.contains("auth-plugin") {
            command.env_remove("LONGHAUL_TOKEN");
            command.env("LONGHAUL_AUTH_PARAMS_FILE", folder.join("params"));
        }
        // End processes that a wrong setting does not end.
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        if !arguments.starts_with("server start --engine") {
            let output = child.wait_with_output().unwrap();
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            if arguments.starts_with("config") {
                assert!(text(&output.stdout).contains("(hidden)"), "{output:?}");
            }
            written.add(arguments, text(&output.stdout) + &text(&output.stderr));
            continue;
        }
        let mut errors = String::new();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        while !errors.contains("127.0.0.1:1") && lines.read_line(&mut errors).unwrap() > 0 {}
        child.kill().unwrap();
        child.wait().unwrap();
        written.add(arguments, errors);
    }
}

async fn search(log_format: &str) {
    let service = Service::start(log_format);
    let mut written = Written(Vec::new());
    mistakes(&service, &mut written).await;
    let owner = a_task(&service, &mut written).await;
    for path in ["/metrics", "/v1/openapi.json", "/healthz", "/readyz", "/jobs", "/dead", "/stats"]
    {
        let (status, told) = service.by(READER, "GET", path, &Value::Null).await;
        assert_eq!(status, 200, "{path}: {told}");
        written.add(path, told);
    }
    let lines: Vec<_> = service
        .key
        .lines()
        .filter(|it| it.len() > 20 && !it.starts_with("--"))
        .map(str::to_owned)
        .collect();
    assert!(!lines.is_empty());
    let (log, folder) = service.ended();
    // Check that the searched log is complete.
    for word in ["TRACE", "DEBUG", "job_enqueued", "job_leased", "http_request"] {
        assert!(log.contains(word), "the log says nothing of {word}: {}", log.len());
    }
    written.add("the log", log);
    settings(folder.path(), &mut written);
    let mut secrets = vec![ADMIN, READER, STRAY, PAYLOAD, RESULT, CHECKPOINT, SIGNING, PASSWORD];
    secrets.extend(["canary-of-a-checkpoint", "canary-of-a-signing-key", "a-checkpoint"]);
    secrets.extend(lines.iter().map(String::as_str));
    secrets.push(&owner);
    let found: Vec<_> = secrets.iter().flat_map(|secret| written.with(secret)).collect();
    assert!(found.is_empty(), "secrets are shown in {} places:\n{}", found.len(), found.join("\n"));
}

#[tokio::test]
async fn no_secret_is_written_anywhere_with_a_log_in_text() {
    search("text").await;
}

#[tokio::test]
async fn no_secret_is_written_anywhere_with_a_log_in_json() {
    search("json").await;
}
