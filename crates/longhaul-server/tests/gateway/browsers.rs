//! Web pages of other sites can do nothing, unless their origin is allowed.

use crate::support::{config, exchange, with_gateway};

fn request(method: &str, headers: &str) -> String {
    format!("{method} /v1/queues/a,b HTTP/1.1\r\nConnection: close\r\n{headers}\r\n")
}

fn preflight(origin: &str) -> String {
    request(
        "OPTIONS",
        &format!("Host: localhost\r\nOrigin: {origin}\r\nAccess-Control-Request-Method: PUT\r\n"),
    )
}

#[test]
fn a_request_for_another_host_is_misdirected() {
    with_gateway(config(), async |server| {
        let answer = exchange(&server, &request("GET", "Host: evil.test\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 421 "), "{answer}");
        assert!(answer.contains("host_not_allowed"), "{answer}");
        let answer =
            exchange(&server, &request("GET", &format!("Host: {}\r\n", server.address()))).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    });
}

#[test]
fn cross_site_requests_change_nothing() {
    with_gateway(config(), async |server| {
        for (headers, status) in [
            ("Host: localhost\r\nSec-Fetch-Site: cross-site\r\n", "403"),
            ("Host: localhost\r\nOrigin: http://evil.test\r\n", "403"),
            ("Host: localhost\r\n", "400"),
        ] {
            let answer = exchange(&server, &request("DELETE", headers)).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{headers}: {answer}");
        }
    });
}

#[test]
fn cors_is_off_unless_an_origin_is_allowed_by_its_whole_name() {
    let allows = |answer: &str| answer.to_lowercase().contains("access-control-allow-origin");
    with_gateway(config(), async |server| {
        let answer = exchange(&server, &preflight("https://ui.example")).await;
        assert!(!allows(&answer), "{answer}");
    });
    let mut open = config();
    open.allowed_origins = vec!["https://ui.example".to_owned()];
    with_gateway(open, async |server| {
        let answer = exchange(&server, &preflight("https://ui.example")).await;
        assert!(answer.contains("access-control-allow-origin: https://ui.example"), "{answer}");
        assert!(!answer.contains("access-control-allow-credentials"), "{answer}");
        for origin in
            ["https://ui.example.evil.test", "http://ui.example", "null", "https://ui.example:8443"]
        {
            let answer = exchange(&server, &preflight(origin)).await;
            assert!(!allows(&answer), "{origin}: {answer}");
        }
        let headers =
            "Host: localhost\r\nSec-Fetch-Site: cross-site\r\nOrigin: https://ui.example\r\n";
        let answer = exchange(&server, &request("DELETE", headers)).await;
        assert!(answer.starts_with("HTTP/1.1 400 ") && allows(&answer), "{answer}");
    });
}
