//! `longhaul dev` and `longhaul server start`: ready, used, killed, started again, ended in order.

use super::stage::longhaul;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStderr, Output, Stdio};
use tempfile::TempDir;

/// A service that runs.
struct Service {
    child: Child,
    http: String,
    broker: String,
    admin: Option<String>,
    /// What it says on standard error.
    notes: BufReader<ChildStderr>,
}

const ANY_PORTS: [&str; 6] =
    ["--http", "127.0.0.1:0", "--broker", "127.0.0.1:0", "--admin", "127.0.0.1:0"];

impl Service {
    /// Starts it, and reads where it listens.
    fn start(arguments: &[&str], folder: &Path) -> Self {
        let all: Vec<_> =
            arguments.iter().copied().chain(ANY_PORTS).chain(["-o", "jsonl"]).collect();
        let mut command = longhaul(&all, folder);
        command.env("LONGHAUL_CONFIG", folder.join("config.toml"));
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

    /// A command against it.
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
    fn told(&self, arguments: &[&str], folder: &Path) -> String {
        let output = self.longhaul(arguments, folder);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// The status of a GET; `None` if nobody answers.
    fn get(&self, path: &str) -> Option<String> {
        let address = self.http.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(address).ok()?;
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        answer.lines().next().map(str::to_owned)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn end(mut self, signal: Signal) -> Option<i32> {
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

#[test]
fn what_was_submitted_is_there_after_a_kill() {
    let folder = TempDir::new().unwrap();
    let here = folder.path();
    let start = || Service::start(&["dev", "--data", "data"], here);
    let dev = start();
    assert_eq!(dev.get("/livez").as_deref(), Some("HTTP/1.1 200 OK"));
    let task = dev.told(&["task", "submit", "hello", "Hello", "--key", "first", "-q"], here);
    // A second one on the same folder would destroy what the first one writes.
    let second = [&["dev", "--data", "data"], ANY_PORTS.as_slice()].concat();
    let second = longhaul(&second, here).output().unwrap();
    let told = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(2), "{told}");
    assert!(told.contains("in use") && told.contains("--data names another directory"), "{told}");

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

#[test]
fn the_demo_shows_success_failure_and_retry() {
    let folder = TempDir::new().unwrap();
    let here = folder.path();
    let dev = Service::start(&["dev", "--demo"], here);
    // The one that fails for good is submitted last.
    dev.told(&["task", "watch", "demo", "--until", "failed"], here);
    let tasks = dev.told(&["task", "list", "demo", "-o", "jsonl"], here);
    let named = |kind: &str| {
        let mut tasks = tasks.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let found = tasks.find(|task| task["type"] == kind).unwrap();
        found["task"].as_str().unwrap().to_owned()
    };
    let broken = dev.longhaul(&["task", "wait", &named("broken")], here);
    assert_eq!(broken.status.code(), Some(1), "{broken:?}");
    let flaky = dev.told(&["task", "wait", &named("flaky"), "-o", "jsonl"], here);
    let flaky: Value = serde_json::from_str(&flaky).unwrap();
    assert_eq!((&flaky["status"], &flaky["attempts"]), (&"completed".into(), &3.into()));
    assert_eq!(dev.told(&["dead", "list", "demo", "-q"], here), named("broken"));
    let counted = dev.told(&["task", "get", &named("count"), "-o", "json"], here);
    let counted: Value = serde_json::from_str(&counted).unwrap();
    assert!(counted["progress"]["total"] == 20 || counted["status"] == "completed", "{counted}");
    assert_eq!(dev.end(Signal::INT), Some(0));
}

/// The samples of the demo have a second before they are told to end: in that time the second signal comes.
#[test]
fn a_second_signal_ends_it_at_once() {
    let folder = TempDir::new().unwrap();
    let mut dev = Service::start(&["dev", "--demo"], folder.path());
    dev.told(&["task", "watch", "demo", "--until", "running"], folder.path());
    dev.signal(Signal::INT);
    let mut line = String::new();
    dev.notes.read_line(&mut line).unwrap();
    assert!(line.starts_with("ending in order"), "{line}");
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
    assert_eq!(gateway.get("/livez").as_deref(), Some("HTTP/1.1 200 OK"));
    assert_eq!(gateway.end(Signal::TERM), Some(0));
}
