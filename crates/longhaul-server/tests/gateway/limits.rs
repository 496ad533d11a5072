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

/// Once this test dropped each request that was admitted, and asked again. One that was admitted in
/// place of a request that was to be held kept a place free for ever, and CI hung.
#[test]
fn requests_beyond_the_limit_are_told_to_come_again() {
    let mut config = config();
    (config.limits.requests, config.limits.waiting) = (2, 1);
    config.limits.body_time = HELD;
    with_gateway(config, async |server| {
        let mut held = Vec::new();
        for (path, limit) in [(TASKS, 2), ("/v1/queues/tasks:purge", 1)] {
            let answer = refused(&server, (head(path, 100) + "{", limit), &mut held).await;
            assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
            assert!(answer.contains("too_many_requests"), "{answer}");
            assert!(answer.to_lowercase().contains("retry-after: 1"), "{answer}");
        }
        for path in ["/healthz", "/readyz"] {
            assert!(
                exchange(&server, &get(path)).await.ends_with("ok\n"),
                "{path} is answered however busy it is"
            );
        }
    });
}

/// How long the gateway waits for bodies that are never completed: longer than the test takes.
const HELD: Duration = Duration::from_secs(3600);

/// Sends incomplete requests until one is answered, and returns its answer: this many are admitted
/// before it, wait for their bodies, and are held.
async fn refused(
    server: &Server,
    (request, admitted): (String, usize),
    held: &mut Vec<TcpStream>,
) -> String {
    for _ in 0..admitted + 5 {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // The gateway waits a second for the rest of the body behind the answer.
        let read = tokio::time::timeout(Duration::from_secs(3), stream.read_to_end(&mut answer));
        match read.await {
            Ok(read) => {
                read.unwrap();
                return String::from_utf8(answer).unwrap();
            }
            Err(_) => held.push(stream),
        }
    }
    panic!("many more than {admitted} are admitted")
}

#[test]
fn bodies_that_are_read_at_once_have_a_limit_together() {
    let mut config = config();
    let limits = &mut config.limits;
    (limits.body_bytes, limits.batch_bytes, limits.all_body_bytes) = (1 << 20, 1 << 20, 4 << 20);
    config.limits.body_time = HELD;
    with_gateway(config, async |server| {
        let mut held = Vec::new();
        let answer = refused(&server, (head(TASKS, 768 * 1024), 1), &mut held).await;
        assert!(answer.contains("too_many_bytes"), "{answer}");
    });
}

/// Sixteen slow uploads of 32 MiB took all the room for bodies: every keep-alive was refused until
/// they were given up, and the tasks of all workers were taken from them.
#[test]
fn slow_uploads_leave_room_for_small_requests() {
    let mut config = config();
    config.limits.all_body_bytes = 128 * 1024 * 1024;
    config.limits.body_time = HELD;
    with_gateway(config, async |server| {
        let mut held = Vec::new();
        let batch = head("/v1/queues/tasks/tasks:batch", 32 * 1024 * 1024);
        let answer = refused(&server, (batch, 1), &mut held).await;
        assert!(answer.contains("too_many_bytes"), "{answer}");
        let ask = head("/v1/queues/tasks/leases", 14) + r#"{"worker":"w"}"#;
        let answer = exchange(&server, &ask).await;
        // It is let in, and misses the broker, which these tests do not have.
        assert!(answer.contains("broker_unreachable"), "{answer}");
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
