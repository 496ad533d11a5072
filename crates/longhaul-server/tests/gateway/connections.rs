//! Connections: addresses, slow heads, the end of a gateway.

use crate::support::{config, exchange, get, with_gateway};
use longhaul::testing::TestEngine;
use longhaul_server::{Server, ServerStartError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[test]
fn a_gateway_answers_at_the_address_that_it_tells() {
    with_gateway(config(), async |server| {
        assert_ne!(server.address().port(), 0);
        assert_eq!(server.url(), format!("http://{}", server.address()));
        for path in ["/healthz", "/livez", "/readyz"] {
            let answer = exchange(&server, &get(path)).await;
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
            assert!(answer.ends_with("\r\n\r\nok\n"), "{answer}");
            assert!(answer.contains("x-content-type-options: nosniff"), "{answer}");
        }
        let metrics = exchange(&server, &get("/metrics")).await;
        assert!(metrics.contains("longhaul_http_request_duration_seconds_bucket{route=\"/healthz\",method=\"GET\",status=\"200\""), "{metrics}");
        assert!(server.drain(Duration::from_secs(10)).await, "nothing is left to do");
        assert!(TcpStream::connect(server.address()).await.is_err(), "nobody listens any more");
    });
}

#[test]
fn an_address_in_use_is_told() {
    with_gateway(config(), async |server| {
        let mut taken = config();
        taken.listen = server.address();
        // A test engine has its own runtime.
        let client = std::thread::spawn(|| TestEngine::new().client().clone()).join().unwrap();
        let refused = Server::start(client, taken).await.unwrap_err();
        assert!(matches!(refused, ServerStartError::Listen { .. }), "{refused}");
        assert!(refused.to_string().contains("choose another address"), "{refused}");
    });
}

/// Axum's plain server waits for the head of a request for ever.
#[test]
fn heads_that_come_too_slowly_end_their_connections_and_nobody_else_waits() {
    let mut slow = config();
    slow.limits.header_time = Duration::from_millis(300);
    with_gateway(slow, async |server| {
        let mut streams = Vec::new();
        for _ in 0..200 {
            let mut stream = TcpStream::connect(server.address()).await.unwrap();
            stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: local").await.unwrap();
            streams.push(stream);
        }
        assert!(exchange(&server, &get("/healthz")).await.ends_with("ok\n"));
        for mut stream in streams {
            let mut rest = Vec::new();
            // The connection is closed, perhaps after an answer with the reason.
            let closed = stream.read_to_end(&mut rest);
            let closed = tokio::time::timeout(Duration::from_secs(20), closed).await;
            assert!(closed.is_ok(), "the connection is still open");
        }
    });
}

#[test]
fn further_connections_wait_until_there_is_room() {
    let mut small = config();
    small.limits.connections = 2;
    with_gateway(small, async |server| {
        let first = TcpStream::connect(server.address()).await.unwrap();
        let _second = TcpStream::connect(server.address()).await.unwrap();
        let mut third = TcpStream::connect(server.address()).await.unwrap();
        third.write_all(get("/healthz").as_bytes()).await.unwrap();
        let mut answer = String::new();
        {
            let reading = third.read_to_string(&mut answer);
            tokio::pin!(reading);
            let early = tokio::time::timeout(Duration::from_millis(200), reading.as_mut()).await;
            assert!(early.is_err(), "it is served beyond the limit");
            drop(first);
            reading.await.unwrap();
        }
        assert!(answer.ends_with("ok\n"), "{answer}");
    });
}
