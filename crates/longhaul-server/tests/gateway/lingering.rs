//! Clients that send a request whole before they read its answer.

use crate::support::{config, with_gateway};
use longhaul_server::Server;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const TASKS: &str = "/v1/queues/tasks/tasks";
const MIB: usize = 1024 * 1024;

/// The framing of a body.
#[derive(Clone, Copy, Debug)]
enum Framing {
    Length,
    Chunks,
}

/// Sends a whole request, then reads the answer. Runs on a thread, since a client that only sends
/// must not depend on one that also reads.
fn sent_whole(
    server: &Server,
    path: &str,
    bytes: usize,
    framing: Framing,
) -> std::io::Result<String> {
    let address = server.address();
    let path = path.to_owned();
    let client = std::thread::spawn(move || {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        let framed = match framing {
            Framing::Length => format!("Content-Length: {bytes}"),
            Framing::Chunks => "Transfer-Encoding: chunked".to_owned(),
        };
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n{framed}\r\n\r\n"
        );
        stream.write_all(head.as_bytes())?;
        let part = vec![b' '; 64 * 1024];
        for _ in 0..bytes / part.len() {
            if let Framing::Chunks = framing {
                write!(stream, "{:x}\r\n", part.len())?;
            }
            stream.write_all(&part)?;
            if let Framing::Chunks = framing {
                stream.write_all(b"\r\n")?;
            }
        }
        if let Framing::Chunks = framing {
            stream.write_all(b"0\r\n\r\n")?;
        }
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    });
    client.join().unwrap()
}

/// Such a client must see the error, not a broken pipe.
#[test]
fn whoever_sends_before_he_reads_is_told_why_he_is_refused() {
    with_gateway(config(), async |server| {
        for framing in [Framing::Length, Framing::Chunks] {
            for (path, bytes, status, code) in [
                (TASKS, 6 * MIB, 413, "body_too_large"),
                ("/v1/queues/tasks/tasks:batch", 48 * MIB, 413, "body_too_large"),
                ("/v1/queues/tasks:pause", MIB, 413, "body_too_large"),
                ("/nothing", 8 * MIB, 404, "route_not_found"),
                ("/healthz", 8 * MIB, 405, "method_not_allowed"),
            ] {
                let answer =
                    tokio::task::block_in_place(|| sent_whole(&server, path, bytes, framing));
                let answer = answer.unwrap_or_else(|error| panic!("{path} {framing:?}: {error}"));
                assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {answer}");
                assert!(answer.contains(code), "{path}: {answer}");
            }
        }
    });
}

#[test]
fn whoever_has_no_token_is_told_so_though_he_sends_before_he_reads() {
    let tokens = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(tokens.path(), r#"{"tokens":[]}"#).unwrap();
    let mut config = config();
    config.token_file = Some(tokens.path().to_owned());
    with_gateway(config, async |server| {
        let sending = || sent_whole(&server, TASKS, 4 * MIB, Framing::Length);
        let answer = tokio::task::block_in_place(sending).unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 401 ") && answer.contains("token_missing"),
            "{answer}"
        );
    });
}

/// Discarding a body has a limit: a discarded body cannot keep a connection busy for ever.
#[test]
fn a_body_without_an_end_is_not_read_over_for_ever() {
    with_gateway(config(), async |server| {
        let endless = || sent_whole(&server, TASKS, 1024 * MIB, Framing::Chunks);
        let cut = tokio::task::block_in_place(endless);
        assert!(cut.is_err(), "a GiB was read over");
    });
}
