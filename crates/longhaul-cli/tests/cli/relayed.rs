//! What the program asks a gateway, and what it does when an answer is lost.

use super::stage::Stage;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// A way to a gateway that records what it is asked.
struct Relay {
    url: String,
    asked: Arc<Mutex<Vec<u8>>>,
}

impl Relay {
    /// Loses so many answers, with their connections.
    fn losing(lost: usize, gateway: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let gateway = gateway.trim_start_matches("http://").to_owned();
        let (asked, lost) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(lost)));
        let recorded = Arc::clone(&asked);
        std::thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                let server = TcpStream::connect(&gateway).unwrap();
                let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
                let (recorded, lost) = (Arc::clone(&recorded), Arc::clone(&lost));
                let record = move |bytes: &[u8]| {
                    recorded.lock().unwrap().extend_from_slice(bytes);
                    true
                };
                let lose = move |_: &[u8]| {
                    let left = |left: usize| left.checked_sub(1);
                    lost.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_err()
                };
                std::thread::spawn(move || pass(client, server, record));
                std::thread::spawn(move || pass(back.0, back.1, lose));
            }
        });
        Self { url, asked }
    }

    /// How often something was asked for.
    fn count(&self, words: &str) -> usize {
        String::from_utf8_lossy(&self.asked.lock().unwrap()).matches(words).count()
    }
}

/// Passes on what comes, for as long as that is wanted.
fn pass(mut from: TcpStream, mut to: TcpStream, wanted: impl Fn(&[u8]) -> bool) {
    let mut bytes = [0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if !wanted(&bytes[..count]) || to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    from.shutdown(Shutdown::Both).ok();
    to.shutdown(Shutdown::Both).ok();
}

fn submit(stage: &Stage, payload: &str) -> String {
    let submitted = stage.told(&["task", "submit", "tasks", payload, "-q"]);
    let task = submitted.trim().to_owned();
    stage.told(&["task", "wait", &task]);
    task
}

/// To print three lines of one task, the program downloaded the results of all others.
#[test]
fn a_watch_of_a_task_asks_for_the_result_of_no_other() {
    let stage = Stage::with_gateway();
    let tasks = [(); 3].map(|()| submit(&stage, &"x".repeat(100_000)));
    let relay = Relay::losing(0, &stage.gateway());
    let watch = ["task", "watch", &tasks[1], "-o", "jsonl", "--gateway", &relay.url];
    let told = stage.told(&watch);
    let seen: Value = serde_json::from_str(told.trim()).unwrap();
    assert_eq!((&seen["id"], &seen["status"]), (&tasks[1].clone().into(), &"completed".into()));
    assert_eq!(seen["result"].as_str().map(str::len), Some(100_000));
    assert_eq!((relay.count("/result "), relay.count("GET ")), (1, 2));
    stage.end();
}

/// It waited in silence for ever.
#[test]
fn a_watch_of_an_unknown_task_says_so() {
    let stage = Stage::with_worker();
    let told = stage.longhaul(&["task", "watch", "tasks@999999:0:-1"]);
    assert_eq!(told.status.code(), Some(3), "{told:?}");
    assert!(String::from_utf8_lossy(&told.stderr).contains("there is no task"), "{told:?}");
    stage.end();
}

/// The program said "try again", and who did so had two tasks.
#[test]
fn a_submit_whose_answer_is_lost_makes_one_task() {
    let stage = Stage::with_gateway();
    let relay = Relay::losing(2, &stage.gateway());
    let submit = ["task", "submit", "tasks", "hello", "-q", "--gateway", &relay.url];
    let task = stage.told(&submit);
    assert_eq!(relay.count("POST "), 3);
    assert_eq!(stage.told(&["task", "list", "tasks", "-q"]), task);
    stage.end();
}

/// One bad line ended the rest: 100 tasks were printed, 127 stored, and nothing said which.
#[test]
fn a_line_that_is_refused_ends_nothing() {
    let stage = Stage::with_gateway();
    let lines = stage.folder.path().join("lines");
    std::fs::write(&lines, b"one\n\xff\n\nfour\r\nfive\n").unwrap();
    let (file, url) = (lines.display().to_string(), stage.gateway());
    let submit = |more: &[&str]| {
        let all = ["task", "submit", "tasks", "--lines", "-o", "jsonl", "--gateway", &url];
        stage.longhaul(&[&all, more].concat())
    };
    let told = submit(&["--file", &file]);
    assert_eq!(told.status.code(), Some(2), "{told:?}");
    let outcomes = String::from_utf8(told.stdout).unwrap();
    let outcomes: Vec<Value> =
        outcomes.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    let found: Vec<_> =
        outcomes.iter().map(|it| (it["line"].as_u64().unwrap(), it["id"].is_string())).collect();
    assert_eq!(found, [(1, true), (2, false), (4, true), (5, true)]);
    let error = String::from_utf8(told.stderr).unwrap();
    assert!(error.contains("1 of 4 lines were not submitted, first line 2: "), "{error}");
    let told = submit(&["--file", &file, "--from-line", "5"]);
    assert_eq!(String::from_utf8(told.stdout).unwrap().lines().count(), 1);
    // The name of a file is no line.
    assert_eq!(submit(&[&file]).status.code(), Some(2));
    for task in outcomes.iter().filter_map(|it| it["id"].as_str()) {
        stage.told(&["task", "wait", task]);
    }
    assert_eq!(stage.told(&["task", "list", "tasks", "-q"]).lines().count(), 4);
    stage.end();
}
