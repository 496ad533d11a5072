//! Limits on time, size and number, on sockets.

use crate::support::{config, exchange, get, with_gateway};
use longhaul_server::Server;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const TASKS: &str = "/v1/queues/tasks/tasks";

/// The head of a request with a body of this many bytes.
fn head(path: &str, bytes: usize) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {bytes}\r\n\r\n"
    )
}

/// An incomplete request.
async fn unfinished(server: &Server, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    stream.write_all((head(path, 100) + "{").as_bytes()).await.unwrap();
    stream
}

async fn rest(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

#[test]
fn a_body_that_comes_too_slowly_is_given_up() {
    let mut config = config();
    config.limits.body_time = Duration::from_millis(300);
    with_gateway(config, async |server| {
        for path in [TASKS, "/v1/queues/tasks:purge", "/ui/queues/tasks/tasks"] {
            let answer = rest(unfinished(&server, path).await).await;
            assert!(answer.starts_with("HTTP/1.1 408 "), "{path}: {answer}");
            assert!(
                answer.contains("body_too_slow") && answer.contains("nothing was done"),
                "{answer}"
            );
        }
    });
}

/// A declared length over the limit is answered before the body is sent.
#[test]
fn a_body_that_is_too_long_is_refused_at_once() {
    with_gateway(config(), async |server| {
        let mib = 1024 * 1024;
        for (path, limit) in [
            (TASKS, 5 * mib),
            ("/v1/queues/tasks/tasks:batch", 32 * mib),
            ("/v1/queues/tasks:pause", 512 * 1024),
            // A form of the dashboard.
            ("/ui/queues/tasks/tasks", 5 * mib),
        ] {
            let answer = exchange(&server, &head(path, limit + 1)).await;
            assert!(answer.starts_with("HTTP/1.1 413 "), "{path}: {answer}");
            assert!(answer.contains(&format!("more than {limit} bytes")), "{answer}");
        }
        // A length that does not fit a number is invalid.
        let endless =
            head(TASKS, 1).replace("Content-Length: 1", "Content-Length: 99999999999999999999999");
        let answer = exchange(&server, &endless).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        let large = format!(
            "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n",
            "x".repeat(300_000)
        );
        let answer = exchange(&server, &large).await;
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    });
}

#[test]
fn requests_beyond_the_limit_are_told_to_come_again() {
    let mut config = config();
    (config.limits.requests, config.limits.waiting) = (2, 1);
    with_gateway(config, async |server| {
        let (short, long) = (TASKS, "/v1/queues/tasks:purge");
        let mut held = Vec::new();
        for path in [short, short, long] {
            held.push(unfinished(&server, path).await);
        }
        for path in [short, long] {
            // It is unknown when the requests have been read, so this asks until they have.
            let answer = loop {
                let answer = rest_of_refused(&server, path).await;
                if let Some(answer) = answer {
                    break answer;
                }
            };
            assert!(answer.contains("too_many_requests"), "{answer}");
            assert!(answer.to_lowercase().contains("retry-after: 1"), "{answer}");
        }
        for path in ["/healthz", "/readyz"] {
            assert!(
                exchange(&server, &get(path)).await.ends_with("ok\n"),
                "{path} is answered however busy it is"
            );
        }
        drop(held);
    });
}

/// The answer, if the request is refused at once: an admitted request waits for its body.
async fn rest_of_refused(server: &Server, path: &str) -> Option<String> {
    let stream = unfinished(server, path).await;
    // The gateway waits a second for the rest of the body behind the answer.
    let answer = tokio::time::timeout(Duration::from_secs(3), rest(stream)).await.ok()?;
    answer.starts_with("HTTP/1.1 503 ").then_some(answer)
}

#[test]
fn bodies_that_are_read_at_once_have_a_limit_together() {
    let mut config = config();
    config.limits.all_body_bytes = 4 * 1024 * 1024;
    with_gateway(config, async |server| {
        let mut first = TcpStream::connect(server.address()).await.unwrap();
        first.write_all(head(TASKS, 3 * 1024 * 1024).as_bytes()).await.unwrap();
        let answer = loop {
            let mut second = TcpStream::connect(server.address()).await.unwrap();
            second.write_all(head(TASKS, 3 * 1024 * 1024).as_bytes()).await.unwrap();
            let answer = tokio::time::timeout(Duration::from_secs(3), rest(second)).await;
            if let Ok(answer) = answer {
                break answer;
            }
            // This request was read first.
            drop(first);
            first = TcpStream::connect(server.address()).await.unwrap();
            first.write_all(head(TASKS, 3 * 1024 * 1024).as_bytes()).await.unwrap();
        };
        assert!(answer.contains("too_many_bytes"), "{answer}");
        drop(first);
    });
}

/// Requests in progress are answered; no new ones start.
#[test]
fn a_drain_waits_for_what_has_begun_and_not_for_ever() {
    with_gateway(config(), async |server| {
        let mut begun = TcpStream::connect(server.address()).await.unwrap();
        begun.write_all((head(TASKS, 2) + "{").as_bytes()).await.unwrap();
        // The head has been read once a later request on another connection is answered; an earlier
        // drain would close the connection unread.
        for _ in 0..20 {
            exchange(&server, &get("/healthz")).await;
        }
        let draining = server.drain(Duration::from_secs(20));
        let finishing = async {
            begun.write_all(b"}").await.unwrap();
            rest(begun).await
        };
        let (finished, answer) = tokio::join!(draining, finishing);
        assert!(finished, "all was done in time");
        assert!(answer.starts_with("HTTP/1.1 422 "), "{answer}");
    });
    with_gateway(config(), async |server| {
        let stuck = unfinished(&server, TASKS).await;
        for _ in 0..20 {
            exchange(&server, &get("/healthz")).await;
        }
        assert!(!server.drain(Duration::from_millis(200)).await, "it was cut off");
        server.join().await;
        drop(stuck);
    });
}
