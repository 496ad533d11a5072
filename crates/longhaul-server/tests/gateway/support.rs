//! A gateway on its own socket. No route in these tests uses the broker.

use longhaul::testing::TestEngine;
use longhaul_server::{Server, ServerConfig};
use std::future::Future;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A configuration with a port chosen by the system.
pub(crate) fn config() -> ServerConfig {
    let mut config = ServerConfig::default();
    config.listen = "127.0.0.1:0".parse().unwrap();
    config
}

/// Runs a test with a gateway, in real time.
pub(crate) fn with_gateway<T: Future<Output = ()>>(
    config: ServerConfig,
    test: impl FnOnce(Server) -> T,
) {
    let engine = TestEngine::new();
    let client = engine.client().clone();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(async {
        let server = Server::start(client, config).await.unwrap();
        test(server).await;
    });
}

/// Sends a raw request, and reads until the gateway closes the connection.
pub(crate) async fn exchange(server: &Server, request: &str) -> String {
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

/// A request without a body, with `Connection: close`.
pub(crate) fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
}
