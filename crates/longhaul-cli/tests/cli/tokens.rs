//! Tokens of the gateway and of the embedded broker, from creation to revocation.

use super::dev::Service;
use super::stage::longhaul;
use std::path::Path;
use tempfile::TempDir;

/// Exit code, standard output, standard error.
type Told = (Option<i32>, String, String);

fn run(folder: &Path, token: &str, arguments: &[&str]) -> Told {
    let mut command = longhaul(arguments, folder);
    for name in ["LONGHAUL_HTTP_TOKENS", "PULSAR_SERVICE_URL"] {
        command.env_remove(name);
    }
    command.env("LONGHAUL_CONFIG", "none.toml").env("LONGHAUL_TOKEN", token);
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn tokens_are_printed_once_listed_without_them_and_taken_away() {
    let folder = TempDir::new().unwrap();
    let token = |arguments: &[&str]| {
        run(folder.path(), "", &[&["token"], arguments, &["--file", "tokens.json"]].concat())
    };
    let first = ["create", "ci", "--scopes", "submit,read", "--queues", "a,b", "--expires", "90d"];
    let (code, made, note) = token(&first);
    assert_eq!(code, Some(0), "{note}");
    assert!(made.starts_with("lh_") && made.trim().len() > 40, "{made}");
    assert_eq!(note, "wrote its hash to tokens.json; the token is not shown again\n");
    for _ in 0..2 {
        assert_eq!(token(&["create", "ops", "--scopes", "admin", "-q"]).0, Some(0));
    }
    let (_, listed, _) = token(&["list", "-o", "json"]);
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed[0]["scopes"], serde_json::json!(["submit", "read"]), "{listed}");
    assert_eq!(listed[0]["queues"], serde_json::json!(["a", "b"]), "{listed}");
    assert_eq!((&listed[1]["name"], &listed[1]["expires"]), (&"ops".into(), &().into()));
    let (_, table, _) = token(&["ls"]);
    assert!(table.starts_with("NAME") && table.contains("never"), "{table}");

    let (code, _, told) = token(&["revoke", "ops"]);
    assert_eq!(code, Some(4), "{told}");
    let id = listed[1]["id"].as_str().unwrap();
    assert!(told.contains(id) && told.contains("revoke each by its id"), "{told}");
    for gone in [id, "ops", "ci"] {
        let expected = format!("the token {gone} is refused from now on\n");
        assert_eq!(token(&["revoke", gone]), (Some(0), String::new(), expected));
    }
    let (code, _, told) = token(&["revoke", "ci"]);
    assert_eq!(code, Some(3), "{told}");
    assert!(told.contains("`longhaul token list` lists its tokens"), "{told}");
}

#[test]
fn wrong_tokens_are_told_before_anything_is_written() {
    let folder = TempDir::new().unwrap();
    let refused = |arguments: &[&str], says: &str| {
        let (code, out, told) = run(folder.path(), "", &[&["token"], arguments].concat());
        assert_eq!((code, out.as_str()), (Some(2), ""), "{arguments:?}: {told}");
        assert!(told.contains(says), "{arguments:?}: {told}");
    };
    refused(
        &["create", "ann", "--scopes", "root", "--file", "t.json"],
        "submit, work, read, admin",
    );
    refused(&["create", "ann", "--file", "t.json"], "--scopes");
    // A token for it was made, and no request with it was ever allowed.
    let level = ["create", "ann", "--scopes", "read", "--queues", "a-high", "--file", "t.json"];
    refused(&level, "`a-high` is a level of the queue `a`");
    refused(&["create", "ann", "--scopes", "read"], "set it with --file FILE");
    refused(&["list", "--file", "t.json"], "t.json cannot be used");
    refused(&["sign", "--secret", "t.key", "--role", "ann"], "t.key");
    std::fs::write(folder.path().join("t.json"), "[]").unwrap();
    refused(&["create", "ann", "--scopes", "read", "--file", "t.json"], "t.json cannot be used");
    assert_eq!(std::fs::read_to_string(folder.path().join("t.json")).unwrap(), "[]");
    let secret = ["token", "secret", "t.json"];
    assert_eq!(run(folder.path(), "", &secret).0, Some(1), "a file that exists is not a new one");
}

/// The program alone is enough to run gateway and broker with tokens.
#[test]
fn gateway_and_broker_take_the_tokens_until_they_are_revoked() {
    let folder = TempDir::new().unwrap();
    let made = |arguments: &[&str]| {
        let (code, out, told) = run(folder.path(), "", &[&["token"], arguments].concat());
        assert_eq!(code, Some(0), "{told}");
        out.trim().to_owned()
    };
    made(&["secret", "broker.key"]);
    let ann = made(&["sign", "--secret", "broker.key", "--role", "ann", "--expires", "1h"]);
    let bob = made(&["sign", "--secret", "broker.key", "--role", "bob"]);
    let ci = made(&["create", "ci", "--scopes", "read", "--file", "tokens.json"]);
    let start = ["server", "start", "--data", "data", "--http-tokens", "tokens.json"];
    let service = Service::start_with(
        &[("LONGHAUL_BROKER_TOKEN_SECRET", "broker.key")],
        &[&start[..], &["--broker-superusers", "ann"]].concat(),
        folder.path(),
    );
    let (http, broker) = (service.http.as_str(), service.broker.as_str());
    let admin = service.admin.as_deref().unwrap();

    let setup = ["topic", "setup", "tasks", "--service-url", broker, "--admin-url", admin];
    let (code, _, told) = run(folder.path(), &ann, &setup);
    assert_eq!(code, Some(0), "{told}");
    let submit = ["task", "submit", "tasks", "x", "-q", "--service-url", broker];
    let (code, _, told) = run(folder.path(), &ann, &submit);
    assert_eq!(code, Some(0), "{told}");
    assert_eq!(run(folder.path(), &bob, &submit).0, Some(1), "bob was granted nothing");
    let list = ["queue", "list", "-q", "--gateway", http];
    let (code, out, told) = run(folder.path(), &ci, &list);
    assert_eq!((code, out.as_str()), (Some(0), "tasks\n"), "{told}");
    assert_eq!(
        run(folder.path(), &ann, &list).0,
        Some(1),
        "the gateway knows its own tokens alone"
    );
    made(&["revoke", "ci", "--file", "tokens.json"]);
    // The gateway checks the file once a second.
    while run(folder.path(), &ci, &list).0 == Some(0) {}
}
