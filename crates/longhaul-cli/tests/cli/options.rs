//! Invalid options of `longhaul dev` and `longhaul server start`: a usage error before anything
//! listens, with the option that helps.

use super::stage::longhaul;
use std::net::TcpListener;
use tempfile::TempDir;

/// Options, and the required parts of the error.
const WRONG: [(&[&str], &[&str]); 41] = [
    (&["--http", "nowhere"], &["http is `nowhere`", "HOST:PORT"]),
    (&["--http", "127.0.0.1:99999"], &["http is `127.0.0.1:99999`"]),
    (&["--http", "0.0.0.0:0"], &["--http-tokens", "--insecure"]),
    (&["--broker", "nowhere"], &["broker is `nowhere`"]),
    (&["--broker", "0.0.0.0:0"], &["needs authentication", "--broker-token-secret"]),
    (&["--admin", "nowhere"], &["admin is `nowhere`"]),
    (&["--admin", "0.0.0.0:0"], &["needs authentication", "--broker-token-secret"]),
    (&["--admin-tls", "127.0.0.1:0"], &["certificate", "--broker-certificate-file"]),
    (&["--admin-hosts", "a:1"], &["`a:1` is not a host", "--admin-hosts"]),
    (&["--broker-host", "a:1"], &["`a:1` is not a host", "--broker-host"]),
    (&["--broker-token-secret", "nothing"], &["broker-token-secret cannot be used"]),
    (&["--broker-token-secret", "data:;base64,!!"], &["broker-token-secret", "Base64"]),
    (&["--broker-token-audience", "b"], &["broker-token-audience", "--broker-token-secret"]),
    (&["--broker-superusers", "ann"], &["broker-superusers", "--broker-token-secret"]),
    (&["--broker-monitors", "ann"], &["broker-monitors", "--broker-token-secret"]),
    (&["--broker-roles", "bad.pem"], &["broker-roles", "--broker-token-secret"]),
    (
        &[
            "--broker-token-secret",
            "data:;base64,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
            "--broker-roles",
            "bad.pem",
        ],
        &["the file of roles, bad.pem, must be JSON", "--broker-roles"],
    ),
    (
        &[
            "--broker-token-secret",
            "data:;base64,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
            "--broker",
            "0.0.0.0:0",
        ],
        &["listens on 0.0.0.0:0", "--broker-host"],
    ),
    (&["--broker-open-namespaces"], &["broker-open-namespaces", "--broker-token-secret"]),
    (&["--broker-tls", "127.0.0.1:0"], &["certificate", "--broker-key-file"]),
    (&["--broker-certificate-file", "bad.pem"], &["--broker-key-file"]),
    (
        &["--broker-certificate-file", "bad.pem", "--broker-key-file", "bad.pem"],
        &["bad.pem: it has no certificate", "--broker-certificate-file"],
    ),
    (&["--namespace", "public"], &["the namespace `public`", "--namespace"]),
    (&["--dialect", "001"], &["invalid value '001'", "possible values: jobs, dqueue"]),
    (&["--dialect-queue", "a/b"], &["queue name", "--dialect-queue"]),
    (&["--http-tokens", "nothing"], &["nothing cannot be used", "--http-tokens"]),
    (&["--http-tokens", "bad.pem"], &["bad.pem cannot be used", "--http-tokens"]),
    (&["--http-certificate-file", "bad.pem"], &["--http-key-file"]),
    (
        &["--http-certificate-file", "bad.pem", "--http-key-file", "bad.pem"],
        &["bad.pem", "--http-certificate-file"],
    ),
    (&["--http-client-authorities", "bad.pem"], &["--http-certificate-file"]),
    (&["--http-origins", "*"], &["the allowed origin `*`", "--http-origins"]),
    (&["--rate-limit", "many"], &["rate-limit is `many`", "100/1s"]),
    (&["--rate-limit", "0/1s"], &["must be at least 1", "--rate-limit"]),
    (&["--drain", "soon"], &["drain is `soon`"]),
    (&["--subscription", "a/b"], &["`a/b` is not a subscription name", "--subscription"]),
    (&["--engine", "steam"], &["engine is `steam`", "embedded or pulsar"]),
    (&["--output", "xml"], &["output is `xml`"]),
    (&["--log", "=?!"], &["log is `=?!`", "longhaul=debug"]),
    (&["--log-format", "xml"], &["log-format is `xml`", "text or json"]),
    (&["--color", "red"], &["color is `red`"]),
    (&["--timeout", "soon"], &["timeout is `soon`"]),
];

/// The options of `longhaul dev`.
const OF_DEV: [&str; 7] =
    ["--http", "--broker", "--admin", "--dialect", "--dialect-queue", "--output", "--log"];

fn refused(arguments: &[&str], folder: &TempDir, expected: &[&str]) {
    let mut command = longhaul(arguments, folder.path());
    let output = command.env("LONGHAUL_CONFIG", "none.toml").output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {told}");
    for text in expected {
        assert!(told.contains(text), "{arguments:?} does not tell `{text}`: {told}");
    }
    assert!(!told.contains("cannot listen"), "{arguments:?}: {told}");
}

/// A port in use must not hide an invalid option; the exit code is 2.
#[test]
fn a_wrong_option_is_told_before_a_port_that_is_taken() {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("bad.pem"), "nothing\n").unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (wrong, expected) in WRONG {
        let ports = ["--http", "--broker", "--admin"].into_iter().filter(|it| !wrong.contains(it));
        let ports = ports.flat_map(|port| [port, taken.as_str()]);
        let start = ["server", "start", "--data", "data"].into_iter().chain(ports.clone());
        let start: Vec<_> = start.chain(wrong.iter().copied()).collect();
        refused(&start, &folder, expected);
        if OF_DEV.contains(&wrong[0]) {
            let dev: Vec<_> =
                ["dev"].into_iter().chain(ports).chain(wrong.iter().copied()).collect();
            refused(&dev, &folder, expected);
        }
    }
    assert!(!folder.path().join("data").try_exists().unwrap(), "nothing was begun");
}

/// The gateway's options are checked before the broker is contacted.
#[test]
fn a_wrong_option_is_told_before_a_broker_that_is_away() {
    let folder = TempDir::new().unwrap();
    let away = ["server", "start", "--engine", "pulsar", "--service-url", "pulsar://127.0.0.1:1"];
    let wrong: [(&[&str], &[&str]); 5] = [
        (&["--namespace", "public"], &["--namespace"]),
        (&["--http-tokens", "nothing"], &["--http-tokens"]),
        (&["--admin-url", "nowhere"], &["--admin-url"]),
        (&["--tls-certificate-file", "mine.pem"], &["--tls-key-file"]),
        (&["--auth-plugin", "kerberos"], &["token, tls, basic or oauth2"]),
    ];
    for (wrong, expected) in wrong {
        let all: Vec<_> = away.iter().chain(wrong).copied().collect();
        refused(&all, &folder, expected);
    }
}
