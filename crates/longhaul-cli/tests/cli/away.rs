//! Waits and watches continue when the gateway goes away, and when it cannot serve requests.

use super::stage::{Stage, longhaul};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// The running program.
struct Running {
    child: Child,
    lines: BufReader<ChildStdout>,
    /// Its standard error, once it has ended.
    notes: Option<JoinHandle<String>>,
}

/// The end of the program.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    rest: String,
    notes: String,
}

impl Running {
    fn start(stage: &Stage, arguments: &[&str]) -> Self {
        let mut command = longhaul(arguments, stage.folder.path());
        command.envs(stage.variables()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let mut notes = child.stderr.take().unwrap();
        let notes = std::thread::spawn(move || {
            let mut text = String::new();
            notes.read_to_string(&mut text).unwrap();
            text
        });
        Self { child, lines, notes: Some(notes) }
    }

    /// The next line, as JSON.
    #[track_caller]
    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    fn ended(mut self) -> Ended {
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).unwrap();
        let code = self.child.wait().unwrap().code();
        Ended { code, rest, notes: self.notes.take().unwrap().join().unwrap() }
    }

    fn kill(mut self) -> Ended {
        self.child.kill().unwrap();
        self.ended()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has usually ended.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Submits a task directly at the broker, and waits for its end.
fn done(stage: &Stage, payload: &str) -> String {
    let task = stage.told(&["task", "submit", "tasks", payload, "-q"]).trim().to_owned();
    stage.told(&["task", "wait", &task]);
    task
}

/// The watch must not end with exit code 0, as though it were complete.
#[test]
fn a_watch_goes_on_where_it_was_when_its_gateway_is_back() {
    let mut stage = Stage::with_gateway();
    let mut tasks = vec![done(&stage, "before")];
    let url = stage.gateway();
    let mut watch =
        Running::start(&stage, &["task", "watch", "tasks", "-o", "jsonl", "--gateway", &url]);
    let mut seen = vec![watch.line()];
    for round in 0..2 {
        tasks.push(done(&stage, &format!("up {round}")));
        let address = stage.kill_gateway();
        tasks.push(done(&stage, &format!("down {round}")));
        stage.start_gateway(address);
        tasks.push(done(&stage, &format!("up again {round}")));
        // Two restarts during one reconnection would be reported as one.
        let last = tasks.last().unwrap();
        while seen.last().is_none_or(|it| it["id"] != *last || it["status"] != "completed") {
            seen.push(watch.line());
        }
    }
    let mut told = BTreeMap::<(&str, &str), usize>::new();
    for entry in &seen {
        *told
            .entry((entry["id"].as_str().unwrap(), entry["status"].as_str().unwrap()))
            .or_default() += 1;
    }
    for task in &tasks {
        assert_eq!(told.get(&(task.as_str(), "completed")), Some(&1), "{told:?}");
    }
    for task in tasks.iter().skip(1) {
        assert_eq!(told.get(&(task.as_str(), "running")), Some(&1), "{told:?}");
    }
    let ended = watch.kill();
    let says = |words: &str| ended.notes.matches(words).count();
    assert_eq!(
        says(&format!("reconnecting to the gateway at {url}/, for up to 5m")),
        2,
        "{ended:?}"
    );
    assert_eq!(says(&format!("connected to the gateway at {url}/ again, after ")), 2, "{ended:?}");
    assert_eq!(says("end of the current state"), 1, "{ended:?}");
    stage.end();
}

/// The waits must not end with exit code 5 without the task's end.
#[test]
fn who_waits_gets_the_end_of_the_task_from_the_gateway_that_is_back() {
    let mut stage = Stage::with_gateway();
    let (url, over) = (stage.gateway(), done(&stage, "over"));
    stage.told(&["queue", "pause", "tasks"]);
    let submit = ["task", "submit", "tasks", "hello", "--key", "mine", "--wait", "--gateway", &url];
    let submit = Running::start(&stage, &submit);
    let task = loop {
        let listed = stage.told(&["task", "list", "tasks", "-q"]);
        if let Some(task) = listed.lines().find(|it| **it != over) {
            break task.to_owned();
        }
    };
    // The first one is waiting when the gateway goes; the second one starts without it.
    let wait = ["task", "wait", &over, &task, "-o", "jsonl", "--gateway", &url];
    let mut first = Running::start(&stage, &wait);
    assert_eq!(first.line()["id"], over);
    let address = stage.kill_gateway();
    let second = Running::start(&stage, &wait).ended();
    assert_eq!(second.code, Some(5), "{second:?}");
    assert!(second.notes.contains("cannot be reached"), "{second:?}");
    stage.start_gateway(address);
    stage.told(&["queue", "resume", "tasks"]);
    let submit = submit.ended();
    assert_eq!((submit.code, submit.rest.as_str()), (Some(0), "HELLO"), "{submit:?}");
    let first = first.ended();
    assert_eq!(first.code, Some(0), "{first:?}");
    let over: Value = serde_json::from_str(&first.rest).unwrap();
    assert_eq!((&over["status"], &over["result"]), (&"completed".into(), &"HELLO".into()));
    stage.end();
}

/// A server that answers each request like a gateway without its broker.
fn refusing() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let body = r#"{"status":503,"code":"broker_unreachable","detail":"no way to the broker"}"#;
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let mut head = Vec::new();
            let mut chunk = [0; 1_024];
            while !head.ends_with(b"\r\n\r\n") {
                match stream.read(&mut chunk) {
                    Ok(0) | Err(_) => break,
                    Ok(read) => head.extend_from_slice(&chunk[..read]),
                }
            }
            stream.write_all(answer.as_bytes()).ok();
        }
    });
    url
}

#[test]
fn who_has_waited_for_too_long_is_told_so() {
    let mut stage = Stage::with_gateway();
    let task = done(&stage, "hello");
    let url = refusing();
    for command in ["wait", "watch"] {
        let arguments = ["task", command, &task, "--gateway", &url, "--reconnect-timeout", "200ms"];
        let ended = Running::start(&stage, &arguments).ended();
        assert_eq!((ended.code, ended.rest.as_str()), (Some(5), ""), "{ended:?}");
        let told = format!(
            "error: the gateway at {url}/ has not answered for 200ms: no way to the broker"
        );
        assert!(ended.notes.contains(&told), "{ended:?}");
        assert!(ended.notes.contains("--reconnect-timeout"), "{ended:?}");
    }
    let url = stage.gateway();
    let watch =
        ["task", "watch", "tasks", "-o", "jsonl", "--gateway", &url, "--reconnect-timeout", "0s"];
    let mut watch = Running::start(&stage, &watch);
    watch.line();
    stage.kill_gateway();
    let ended = watch.ended();
    assert_eq!(ended.code, Some(5), "{ended:?}");
    stage.end();
}

/// Without the gateway it must not continue for ever in silence.
#[test]
fn a_broker_that_stays_away_is_given_up_as_well() {
    let stage = Stage::with_worker();
    let over = done(&stage, "over");
    stage.told(&["queue", "pause", "tasks"]);
    let task = stage.told(&["task", "submit", "tasks", "hello", "-q"]);
    let wait = ["task", "wait", &over, task.trim(), "-o", "jsonl", "--reconnect-timeout", "300ms"];
    let mut wait = Running::start(&stage, &wait);
    assert_eq!(wait.line()["id"], over);
    stage.end();
    let ended = wait.ended();
    assert_eq!((ended.code, ended.rest.as_str()), (Some(5), ""), "{ended:?}");
    assert!(ended.notes.contains("reconnecting to the broker, for up to 300ms"), "{ended:?}");
    assert!(ended.notes.contains("error: the broker has not answered for 300ms"), "{ended:?}");
}

/// A way to a broker that breaks after the first greeting. It is open again when it is told so.
fn broken_way(broker: SocketAddr) -> (String, Receiver<()>, Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("pulsar://{}", listener.local_addr().unwrap());
    let ((tell, greeted), (open, opened)) = (channel(), channel());
    std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut server = TcpStream::connect(broker).unwrap();
        let mut frame = [0; 4_096];
        let read = client.read(&mut frame).unwrap();
        server.write_all(&frame[..read]).unwrap();
        let read = server.read(&mut frame).unwrap();
        client.write_all(&frame[..read]).unwrap();
        drop((client, server));
        tell.send(()).unwrap();
        opened.recv().unwrap();
        while let Ok((client, _)) = listener.accept() {
            let Ok(server) = TcpStream::connect(broker) else { continue };
            let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
            for (mut from, mut to) in [(client, server), back] {
                std::thread::spawn(move || {
                    std::io::copy(&mut from, &mut to).ok();
                    to.shutdown(Shutdown::Both).ok();
                });
            }
        }
    });
    (url, greeted, open)
}

/// A short command ended with exit code 5 when the broker went away after the greeting.
#[test]
#[expect(clippy::disallowed_methods, reason = "the outage takes real time")]
fn a_short_command_at_a_broker_outlives_its_restart() {
    let mut stage = Stage::with_queue("tasks");
    let task = stage.told(&["task", "submit", "tasks", "hello", "-q"]);
    let (url, greeted, open) = broken_way(stage.broker.address());
    let list = Running::start(&stage, &["task", "list", "tasks", "-q", "--service-url", &url]);
    greeted.recv().unwrap();
    stage.stop_broker();
    open.send(()).unwrap();
    std::thread::sleep(Duration::from_secs(3));
    stage.restart_broker();
    let ended = list.ended();
    assert_eq!((ended.code, &ended.rest), (Some(0), &task), "{ended:?}");
    stage.end();
}

/// It must not end with exit code 5 while the worker drains.
#[test]
fn who_waits_until_a_worker_has_drained_hears_it_from_the_gateway_that_is_back() {
    let mut stage = Stage::with_gateway();
    let task = stage.told(&["task", "submit", "tasks", "slow", "-q"]).trim().to_owned();
    let url = stage.gateway();
    let mut watch = Running::start(&stage, &["task", "watch", &task, "-o", "jsonl"]);
    while watch.line()["status"] != "running" {}
    watch.kill();
    let drain = ["worker", "drain", "tasks", "shouter", "--wait", "--gateway", &url];
    let mut command = longhaul(&drain, stage.folder.path());
    command.envs(stage.variables()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut notes = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut hear = |words: &str| {
        let mut said = notes.by_ref().map(Result::unwrap);
        assert!(said.any(|line| line.contains(words)), "it has ended before it said `{words}`");
    };
    hear(&format!("draining: {task} runs"));
    let address = stage.kill_gateway();
    hear(&format!("reconnecting to the gateway at {url}/, for up to 5m"));
    stage.start_gateway(address);
    hear(&format!("connected to the gateway at {url}/ again, after "));
    stage.told(&["task", "cancel", &task]);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    stage.end();
}
