//! Rate limits per caller.

use crate::support::{config, exchange, get, with_gateway};
use longhaul_server::{Dialect, RateLimit, Server, ServerConfig};
use std::time::Duration;

/// The output of `printf %s TOKEN | sha256sum` for `test` and `123`.
const TEST: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
const ONE_TWO_THREE: &str = "a665a45920422f9d417e4867efdc4fb8a04a1f3fff1fa07e998e86f7f7a27ae3";

/// Three requests at once, and one more after ten minutes, which no test reaches.
fn limited() -> ServerConfig {
    let mut config = config();
    config.rate_limit = Some(RateLimit { requests: 6, per: Duration::from_secs(3_600), burst: 3 });
    config
}

async fn status(server: &Server, request: &str) -> String {
    let answer = exchange(server, request).await;
    answer.split(' ').nth(1).unwrap_or_default().to_owned()
}

#[test]
fn who_asks_too_often_is_told_when_to_come_again() {
    with_gateway(limited(), async |server| {
        for _ in 0..3 {
            assert_eq!(status(&server, &get("/metrics")).await, "200");
        }
        let refused = exchange(&server, &get("/metrics")).await;
        assert!(refused.starts_with("HTTP/1.1 429 "), "{refused}");
        let (head, body) = refused.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("content-type: application/problem+json"), "{head}");
        let after = head.lines().find_map(|line| line.strip_prefix("retry-after: ")).unwrap();
        assert!((590..=600).contains(&after.parse::<u32>().unwrap()), "{after}");
        let problem: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(problem["code"], "rate_limited");
        assert_eq!(problem["retry_after"].to_string(), after);
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("6 requests in 3600s, 3 at once; nothing was done"), "{detail}");
        for path in ["/healthz", "/livez", "/readyz", "/v1/openapi.json"] {
            assert_eq!(status(&server, &get(path)).await, "200", "{path} is free");
        }
    });
}

#[test]
fn each_name_of_a_token_has_a_bucket_of_its_own() {
    let tokens = tempfile::NamedTempFile::new().unwrap();
    let entry = |name: &str, sha256: &str| {
        format!(r#"{{"name":"{name}","sha256":"{sha256}","scopes":["read"]}}"#)
    };
    let entries = [entry("ann", TEST), entry("bob", ONE_TWO_THREE)].join(",");
    std::fs::write(tokens.path(), format!(r#"{{"tokens":[{entries}]}}"#)).unwrap();
    let mut config = limited();
    config.token_file = Some(tokens.path().to_owned());
    with_gateway(config, async |server| {
        let by = async |token: &str| {
            let more = format!("Authorization: Bearer {token}\r\nConnection: close\r\n\r\n");
            let request = get("/metrics").replace("Connection: close\r\n\r\n", &more);
            status(&server, &request).await
        };
        for _ in 0..3 {
            assert_eq!(by("test").await, "200");
        }
        assert_eq!(by("test").await, "429");
        assert_eq!(by("wrong").await, "401", "no bucket is spent for nobody");
        assert_eq!(by("123").await, "200", "from the same address, by another token");
        assert_eq!(by("test").await, "429");
    });
}

/// In the error format of the dialects.
#[test]
fn the_routes_of_dialects_are_limited_as_well() {
    let mut config = limited();
    config.dialects = vec![Dialect::Jobs, Dialect::DQueue];
    with_gateway(config, async |server| {
        let malformed = |path: &str| {
            format!(
                "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 1\r\n\r\n{{"
            )
        };
        for path in ["/enqueue", "/tasks", "/poll"] {
            assert_eq!(status(&server, &malformed(path)).await, "400", "{path}");
        }
        for path in ["/enqueue", "/tasks", "/poll", "/tasks/lease"] {
            let refused = exchange(&server, &malformed(path)).await;
            assert!(refused.starts_with("HTTP/1.1 429 "), "{path}: {refused}");
            assert!(refused.contains("\"code\":\"rate_limited\""), "{path}: {refused}");
        }
        assert_eq!(status(&server, &get("/health")).await, "200");
    });
}

#[test]
fn there_is_no_limit_unless_it_is_said() {
    with_gateway(config(), async |server| {
        for _ in 0..50 {
            assert_eq!(status(&server, &get("/metrics")).await, "200");
        }
    });
}
