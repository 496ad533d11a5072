//! Permissions that are checked before a body is read.

use super::*;

fn before(method: &str, path: &str) -> Result<AdminAccess, AdminCallError> {
    let target = RequestTarget::parse(path, None).unwrap();
    access_of(method, &target)
}

/// Regression: a role without any permission could make the broker hold 1 MiB on each connection.
/// All routes that take a body, with a body that they take.
#[test]
fn the_permission_is_the_same_before_the_body_is_read_and_after() {
    let position = r#"{"ledgerId":0,"entryId":1}"#;
    let schema = r#"{"type":"JSON","schema":"{}"}"#;
    let topic = "persistent/t/n/a";
    let routes = [
        ("PUT", "brokers/backup", ""),
        ("PUT", "tenants/t", ""),
        ("POST", "tenants/t", ""),
        ("DELETE", "tenants/t", ""),
        ("PUT", "namespaces/t/n", ""),
        ("DELETE", "namespaces/t/n", ""),
        ("POST", "namespaces/t/n/permissions/r", "[]"),
        ("DELETE", "namespaces/t/n/permissions/r", ""),
        ("POST", "namespaces/t/n/messageTTL", "5"),
        ("DELETE", "namespaces/t/n/retention", ""),
        ("PUT", topic, ""),
        ("DELETE", topic, ""),
        ("PUT", "persistent/t/n/a/partitions", "3"),
        ("POST", "persistent/t/n/a/partitions", "4"),
        ("DELETE", "persistent/t/n/a/partitions", ""),
        ("POST", "persistent/t/n/a/createMissedPartitions", ""),
        ("PUT", "persistent/t/n/a/compaction", ""),
        ("PUT", "persistent/t/n/a/unload", ""),
        ("DELETE", "persistent/t/n/a/truncate", ""),
        ("POST", "persistent/t/n/a/all_subscription/expireMessages/9", ""),
        ("POST", "persistent/t/n/a/terminate", ""),
        ("POST", "persistent/t/n/a/terminate/partitions", ""),
        ("POST", "persistent/t/n/a/permissions/r", "[]"),
        ("DELETE", "persistent/t/n/a/permissions/r", ""),
        ("POST", "persistent/t/n/a/retention", "null"),
        ("DELETE", "persistent/t/n/a/retention", ""),
        ("PUT", "persistent/t/n/a/subscription/s", ""),
        ("DELETE", "persistent/t/n/a/subscription/s", ""),
        ("PUT", "persistent/t/n/a/subscription/s/properties", "{}"),
        ("POST", "persistent/t/n/a/subscription/s/skip_all", ""),
        ("POST", "persistent/t/n/a/subscription/s/skip/1", ""),
        ("POST", "persistent/t/n/a/subscription/s/resetcursor/1", ""),
        ("POST", "persistent/t/n/a/subscription/s/resetcursor", position),
        ("POST", "persistent/t/n/a/subscription/s/expireMessages", position),
        ("POST", "persistent/t/n/a/subscription/s/expireMessages/1", ""),
        ("POST", "schemas/t/n/a/schema", schema),
        ("POST", "schemas/t/n/a/compatibility", schema),
        ("DELETE", "schemas/t/n/a/schema", ""),
    ];
    for (method, path, body) in routes {
        let path = format!("/admin/v2/{path}");
        let after = routed(method, &path, body).ok().unwrap().access;
        assert_eq!(before(method, &path).ok(), Some(after), "{method} {path}");
    }
}

/// A role that may only consume registered schemas.
#[test]
fn a_schema_is_added_by_those_who_produce() {
    let name = names::topic(["t", "n", "a"]).unwrap();
    let path = "/admin/v2/schemas/t/n/a/schema";
    assert_eq!(before("POST", path).ok(), Some(AdminAccess::Producer(name)));
}

#[test]
fn what_is_not_there_is_refused_before_its_body_is_read() {
    for (method, path) in [
        ("PUT", "/a"),
        ("POST", "/metrics"),
        ("PATCH", "/admin/v2/persistent/t/n/a"),
        ("PUT", "/admin/v2/tenants"),
        ("POST", "/admin/v2/namespaces/t"),
        ("PUT", "/admin/v2/persistent/t/n"),
        ("PUT", "/admin/v2/clusters/c"),
        ("PUT", "/admin/v2/non-persistent/t/n/a"),
        ("POST", "/admin/v2/brokers/configuration/x/1"),
    ] {
        let error = before(method, path).unwrap_err();
        assert!(matches!(error, AdminCallError::NotFound(_)), "{path}: {error:?}");
    }
}
