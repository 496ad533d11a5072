//! The token file.

use crate::support::{config, exchange, with_gateway};
use longhaul::testing::TestEngine;
use longhaul_server::{Server, ServerStartError};
use std::time::Duration;

/// The output of `printf %s TOKEN | sha256sum` for `test` and `zebra`. No value in the metrics
/// contains them.
const TEST: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
const ZEBRA: &str = "676cb75018edccf10fce6f376f2124e02c3293fa3fe8f953c75386198c714514";

fn file(sha256: &str) -> String {
    format!(r#"{{"tokens":[{{"name":"ops","sha256":"{sha256}","scopes":["read"]}}]}}"#)
}

fn with_token(token: &str) -> String {
    format!(
        "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
    )
}

#[test]
fn tokens_are_read_again_when_their_file_changes() {
    let tokens = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(tokens.path(), file(TEST)).unwrap();
    let mut config = config();
    config.token_file = Some(tokens.path().to_owned());
    with_gateway(config, async |server| {
        let is_let_in = async |token: &str| {
            let answer = exchange(&server, &with_token(token)).await;
            assert!(!answer.contains(token), "the answer shows the token: {answer}");
            answer.starts_with("HTTP/1.1 200 ")
        };
        assert!(is_let_in("test").await && !is_let_in("zebra").await);
        std::fs::write(tokens.path(), file(ZEBRA) + "\n").unwrap();
        let changed = async {
            while !is_let_in("zebra").await {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), changed).await.expect("it is not read again");
        assert!(!is_let_in("test").await, "the old one counts no more");
        // An unreadable file leaves the previous tokens valid.
        std::fs::write(tokens.path(), "{").unwrap();
        tokio::time::sleep(Duration::from_millis(1_200)).await;
        assert!(is_let_in("zebra").await && !is_let_in("test").await);
    });
}

#[test]
fn a_gateway_does_not_start_with_tokens_that_it_cannot_read_or_open_to_all() {
    let client = TestEngine::new().client().clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let start = |change: &dyn Fn(&mut longhaul_server::ServerConfig)| {
        let mut config = config();
        change(&mut config);
        runtime.block_on(Server::start(client.clone(), config)).map(drop)
    };
    let missing = start(&|it| it.token_file = Some("/does/not/exist".into())).unwrap_err();
    assert!(matches!(missing, ServerStartError::Tokens(_)), "{missing}");
    let open = start(&|it| it.listen = "0.0.0.0:0".parse().unwrap()).unwrap_err();
    assert!(matches!(open, ServerStartError::Config(_)), "{open}");
    assert!(open.to_string().contains("set a token file"), "{open}");
    start(&|it| (it.listen, it.insecure) = ("0.0.0.0:0".parse().unwrap(), true)).unwrap();
}
