//! `longhaul dev` and `longhaul server start`: start, use, kill, restart, drain.

use super::stage::longhaul;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStderr, Output, Stdio};
use tempfile::TempDir;

/// A running service.
pub(crate) struct Service {
    child: Child,
    pub(crate) http: String,
    pub(crate) broker: String,
    pub(crate) admin: Option<String>,
    /// Its standard error.
    notes: BufReader<ChildStderr>,
}

const ANY_PORTS: [&str; 6] =
    ["--http", "127.0.0.1:0", "--broker", "127.0.0.1:0", "--admin", "127.0.0.1:0"];

impl Service {
    /// Starts it, and reads its addresses.
    pub(crate) fn start(arguments: &[&str], folder: &Path) -> Self {
        Self::start_with(&[], arguments, folder)
    }

    /// Starts it with these variables.
    pub(crate) fn start_with(
        variables: &[(&str, &str)],
        arguments: &[&str],
        folder: &Path,
    ) -> Self {
        let all: Vec<_> =
            arguments.iter().copied().chain(ANY_PORTS).chain(["-o", "jsonl"]).collect();
        let mut command = longhaul(&all, folder);
        command.env("LONGHAUL_CONFIG", folder.join("config.toml"));
        command.envs(variables.iter().copied());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let told: Value = serde_json::from_str(&line).unwrap();
        let text = |name: &str| told[name].as_str().map(str::to_owned);
        let (http, broker) = (text("http").unwrap(), text("broker").unwrap());
        let notes = BufReader::new(child.stderr.take().unwrap());
        Self { child, http, broker, admin: text("admin"), notes }
    }

    /// Runs a command against it.
    fn longhaul(&self, arguments: &[&str], folder: &Path) -> Output {
        let mut command = longhaul(arguments, folder);
        command.env("LONGHAUL_CONFIG", folder.join("config.toml"));
        command.env("LONGHAUL_SERVICE_URL", &self.broker).env("LONGHAUL_TIMEOUT", "1m");
        if let Some(admin) = &self.admin {
            command.env("LONGHAUL_ADMIN_URL", admin);
        }
        command.output().unwrap()
    }

    #[track_caller]
    pub(crate) fn told(&self, arguments: &[&str], folder: &Path) -> String {
        let output = self.longhaul(arguments, folder);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// The status line of a GET; `None` without an answer.
    fn get(&self, path: &str) -> Option<String> {
        let answer = ask(&self.http, "GET", path, "")?;
        answer.lines().next().map(str::to_owned)
    }

    /// The status and body of a JSON request.
    #[track_caller]
    pub(crate) fn call(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let answer = ask(&self.http, method, path, body).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap_or_default())
    }

    /// The topics of a queue and its levels, from the admin API.
    fn topics(&self, queue: &str) -> BTreeSet<String> {
        let all = topics(self.admin.as_ref().unwrap());
        let prefix = format!("persistent://public/default/{queue}");
        all.into_iter().filter(|topic| topic.starts_with(&prefix)).collect()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub(crate) fn end(mut self, signal: Signal) -> Option<i32> {
        self.signal(signal);
        self.child.wait().unwrap().code()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The topics of the namespace, from the admin API.
pub(crate) fn topics(admin: &str) -> BTreeSet<String> {
    let answer = ask(admin, "GET", "/admin/v2/persistent/public/default", "").unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap()
}

/// The head and body of an answer; `None` without one.
pub(crate) fn ask(url: &str, method: &str, path: &str, body: &str) -> Option<String> {
    let mut stream = TcpStream::connect(url.strip_prefix("http://")?).ok()?;
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.0\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// Clients of the dialect cannot create its queue. Requests to a queue without priorities create
/// none.
#[test]
fn a_dialect_works_in_a_fresh_directory_and_reads_make_no_topics() {
    let folder = TempDir::new().unwrap();
    let here = folder.path();
    let one = Service::start(&["dev", "--data", "data", "--dialect", "jobs"], here);
    let (status, job) = one.call("POST", "/enqueue", r#"{"payload":"work"}"#);
    assert_eq!(status, 200, "{job}");
    let (status, polled) = one.call("POST", "/poll", r#"{"worker_id":"ann"}"#);
    assert_eq!((status, &polled["id"]), (200, &job["job_id"]), "{polled}");
    let before = one.topics("default");
    assert!(before.contains("persistent://public/default/default"), "{before:?}");
    let (status, jobs) = one.call("GET", "/jobs", "");
    assert_eq!((status, jobs.as_object().map(serde_json::Map::len)), (200, Some(1)), "{jobs}");
    assert_eq!(one.call("GET", "/dead", ""), (200, serde_json::json!({})));
    let queue = "/v1/queues/default";
    for path in
        ["/counts?level=high", "/tasks?level=low", "/events?level=high", "/workers?level=low"]
    {
        let (status, problem) = one.call("GET", &format!("{queue}{path}"), "");
        assert_eq!((status, &problem["code"]), (409, &"queue_has_no_levels".into()), "{path}");
    }
    for path in ["", "/history", "/result", "/wait", "/payload"] {
        let (status, problem) = one.call("GET", &format!("{queue}/tasks/high~1:2:-1{path}"), "");
        assert_eq!((status, &problem["code"]), (404, &"task_not_found".into()), "{path}");
    }
    assert_eq!(one.topics("default"), before);
    assert_eq!(one.end(Signal::TERM), Some(0));

    let both = ["dev", "--data", "data", "--dialect", "jobs", "--dialect", "dqueue"];
    let both = Service::start(&both, here);
    let (status, stats) = both.call("GET", "/stats", "");
    assert_eq!((status, &stats["total"]), (200, &1.into()), "{stats}");
    assert_eq!(both.topics("default"), before);
}

/// DQueue has priorities. The queue may have another name.
#[test]
fn the_queue_of_dqueue_has_levels() {
    let folder = TempDir::new().unwrap();
    let arguments = ["dev", "--dialect", "dqueue", "--dialect-queue", "jobs"];
    let two = Service::start(&arguments, folder.path());
    let (status, stats) = two.call("GET", "/stats", "");
    assert_eq!((status, &stats["total"]), (200, &0.into()), "{stats}");
    let (status, task) = two.call("POST", "/tasks", r#"{"payload":"work","priority":7}"#);
    assert_eq!((status, &task["state"]), (201, &"PENDING".into()), "{task}");
    let (status, leased) = two.call("POST", "/tasks/lease", r#"{"worker_id":"ann","wait":"30s"}"#);
    assert_eq!((status, &leased["id"]), (200, &task["id"]), "{leased}");
    assert!(two.topics("jobs").contains("persistent://public/default/jobs-high"));
    assert!(two.topics("default").is_empty());
}

#[test]
fn what_was_submitted_is_there_after_a_kill() {
    let folder = TempDir::new().unwrap();
    let here = folder.path();
    let start = || Service::start(&["dev", "--data", "data"], here);
    let dev = start();
    assert_eq!(dev.get("/livez").as_deref(), Some("HTTP/1.0 200 OK"));
    let task = dev.told(&["task", "submit", "hello", "Hello", "--key", "first", "-q"], here);
    // A second process on the same folder would destroy the first one's data.
    let second = [&["dev", "--data", "data"], ANY_PORTS.as_slice()].concat();
    let second = longhaul(&second, here).output().unwrap();
    let told = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(2), "{told}");
    assert!(
        told.contains("in use") && told.contains("choose another directory with --data"),
        "{told}"
    );

    dev.end(Signal::KILL);
    let dev = start();
    let found: Value =
        serde_json::from_str(&dev.told(&["task", "get", &task, "-o", "json"], here)).unwrap();
    assert_eq!((&found["status"], &found["key"]), (&"ready".into(), &"first".into()));
    assert_eq!(dev.told(&["task", "payload", &task], here), "Hello");
    assert_eq!(dev.end(Signal::TERM), Some(0), "SIGTERM ends it in order");
}

#[test]
fn a_port_that_is_taken_is_told_with_its_option() {
    let folder = TempDir::new().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for option in ["--http", "--broker", "--admin"] {
        let others = ANY_PORTS.chunks(2).filter(|pair| pair[0] != option).flatten().copied();
        let arguments: Vec<_> = ["dev", option, &taken].into_iter().chain(others).collect();
        let output = longhaul(&arguments, folder.path()).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{told}");
        let first = format!("error: cannot listen on {taken}: another program listens there\n");
        assert!(told.starts_with(&first), "{told}");
        assert!(told.contains(&format!("{option} 127.0.0.1:0")), "{told}");
    }
}

/// A test run was killed by SIGKILL, and its `longhaul dev` ran on for ever.
#[test]
fn a_server_until_stdin_closes_ends_with_the_program_that_holds_the_pipe() {
    let folder = TempDir::new().unwrap();
    let ours = ["dev", "--until-stdin-closes", "-o", "jsonl"];
    let all: Vec<_> = ours.into_iter().chain(ANY_PORTS).collect();
    let mut command = longhaul(&all, folder.path());
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    assert_ne!(output.read_line(&mut String::new()).unwrap(), 0);
    assert_eq!(child.try_wait().unwrap(), None);
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn the_demo_shows_success_failure_and_retry() {
    let folder = TempDir::new().unwrap();
    let here = folder.path();
    let dev = Service::start(&["dev", "--demo"], here);
    // The task that fails for good is submitted last.
    dev.told(&["task", "watch", "demo", "--until", "failed"], here);
    let tasks = dev.told(&["task", "list", "demo", "-o", "jsonl"], here);
    // More of them follow.
    let named = |kind: &str| {
        let tasks = tasks.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let of_kind = tasks.filter(|task| task["type"] == kind);
        let first = of_kind.min_by_key(|task| task["created_at"].as_u64()).unwrap();
        first["id"].as_str().unwrap().to_owned()
    };
    let broken = dev.longhaul(&["task", "wait", &named("broken")], here);
    assert_eq!(broken.status.code(), Some(1), "{broken:?}");
    let flaky = dev.told(&["task", "wait", &named("flaky"), "-o", "jsonl"], here);
    let flaky: Value = serde_json::from_str(&flaky).unwrap();
    assert_eq!((&flaky["status"], &flaky["attempts"]), (&"completed".into(), &3.into()));
    let letters = dev.told(&["dead", "list", "demo", "-q"], here);
    assert!(letters.lines().any(|letter| letter == named("broken")), "{letters}");
    let counted = dev.told(&["task", "get", &named("count"), "-o", "json"], here);
    let counted: Value = serde_json::from_str(&counted).unwrap();
    assert!(counted["progress"]["total"] == 20 || counted["status"] == "completed", "{counted}");
    // It goes on by itself.
    let schedules = dev.told(&["schedule", "list", "demo", "-q"], here);
    assert_eq!(schedules.trim(), "every-minute");
    let counting = || dev.told(&["task", "list", "demo", "--type", "count", "-q"], here);
    assert!((0..1000).any(|_| counting().lines().count() > 2), "{}", counting());
    assert_eq!(dev.end(Signal::INT), Some(0));
}

/// The samples of the demo get a second to end; the second signal comes in that time.
#[test]
fn a_second_signal_ends_it_at_once() {
    let folder = TempDir::new().unwrap();
    let mut dev = Service::start(&["dev", "--demo"], folder.path());
    dev.told(&["task", "watch", "demo", "--until", "running"], folder.path());
    dev.signal(Signal::INT);
    let mut line = String::new();
    dev.notes.read_line(&mut line).unwrap();
    assert!(line.starts_with("stopping; a second signal"), "{line}");
    assert_eq!(dev.end(Signal::INT), Some(1));
}

#[test]
fn a_gateway_stands_before_a_pulsar() {
    let folder = TempDir::new().unwrap();
    let here = folder.path();
    let dev = Service::start(&["dev"], here);
    let start = ["server", "start", "--engine", "pulsar", "--service-url", &dev.broker];
    let gateway = Service::start(&start, here);
    assert_eq!((gateway.broker.as_str(), gateway.admin.as_deref()), (dev.broker.as_str(), None));
    assert_eq!(gateway.get("/livez").as_deref(), Some("HTTP/1.0 200 OK"));
    assert_eq!(gateway.end(Signal::TERM), Some(0));
}
