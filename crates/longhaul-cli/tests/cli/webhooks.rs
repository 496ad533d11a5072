//! A gateway that calls webhooks.

use super::dev::Service;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

/// Reads a request and answers it with this status; returns its head and body.
fn served(stream: TcpStream, status: &str) -> (Vec<String>, Value) {
    let mut reader = BufReader::new(stream);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            break;
        }
        head.push(line.trim().to_ascii_lowercase());
    }
    let length = head.iter().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    let answer = format!("HTTP/1.1 {status}\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n");
    reader.get_mut().write_all(answer.as_bytes()).unwrap();
    (head, serde_json::from_slice(&body).unwrap())
}

fn header<'a>(head: &'a [String], name: &str) -> &'a str {
    head.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).unwrap()
}

#[test]
fn the_end_of_a_task_is_called_until_the_receiver_accepts_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("secret"), "a secret of at least 24 bytes").unwrap();
    let receiver = TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = format!("http://{}", receiver.local_addr().unwrap());
    let (calls, called) = mpsc::channel();
    std::thread::spawn(move || {
        for status in ["503 Service Unavailable", "204 No Content"] {
            calls.send(served(receiver.accept().unwrap().0, status)).unwrap();
        }
    });
    let next = || called.recv_timeout(Duration::from_secs(60)).unwrap();
    let (data, secret) = (path("data"), path("secret"));
    let options = ["--webhook-allow", &origin, "--webhook-secret-file", &secret];
    let start = [&["server", "start", "--data", &data], &options[..]].concat();
    let service = Service::start(&start, folder.path());
    let queue = "/v1/queues/mails";
    assert_eq!(service.call("PUT", queue, "{}").0, 200);
    let set = |url: &str| {
        let body = json!({"expected_version": 0, "settings": {"webhooks": [url]}});
        service.call("PATCH", queue, &body.to_string())
    };
    let (status, refused) = set("http://127.0.0.1:1/ends");
    assert_eq!((status, &refused["code"]), (400, &json!("webhook_refused")));
    assert_eq!(set(&format!("{origin}/ends")).0, 200);
    let (status, task) = service.call("POST", &format!("{queue}/tasks"), r#"{"payload":"a"}"#);
    assert_eq!(status, 201, "{task}");
    let ask = r#"{"worker":"ann","count":1,"wait":"20s"}"#;
    let (_, leased) = service.call("POST", &format!("{queue}/leases"), ask);
    let report =
        json!({"lease": leased["leases"][0]["lease"], "status": "SUCCEEDED", "result": "done"});
    let (status, told) =
        service.call("POST", &format!("{queue}/leases:report"), &report.to_string());
    assert_eq!(status, 200, "{told}");
    let (first, _) = next();
    let (again, event) = next();
    assert_eq!(first[0], "post /ends http/1.1");
    assert_eq!(header(&first, "webhook-id"), header(&again, "webhook-id"));
    assert_eq!((&event["id"], &event["status"]), (&task["id"], &json!("completed")));
    assert_eq!((&event["queue"], &event["result"]), (&json!("mails"), &json!("done")));
    // The call is a task like any other.
    let calls = "/v1/queues/webhooks/tasks";
    let (_, listed) = service.call("GET", calls, "");
    let call = listed["tasks"][0]["id"].as_str().unwrap();
    let place = format!("{calls}/{call}");
    let (status, _) = service.call("GET", &format!("{place}/wait?timeout=20s"), "");
    assert_eq!(status, 200);
    let (_, ended) = service.call("GET", &place, "");
    assert_eq!((&ended["status"], &ended["attempts"]), (&json!("completed"), &json!(2)), "{ended}");
    assert_eq!(service.call("POST", calls, r#"{"payload":"forged"}"#).0, 403);
    assert_eq!(service.end(Signal::TERM), Some(0));
}
