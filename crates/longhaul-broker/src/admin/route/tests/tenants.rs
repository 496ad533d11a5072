//! Administrators of tenants.

use super::*;

/// Roles were dropped, unknown clusters accepted, and neither could be changed.
#[test]
fn tenants_have_the_administrators_that_they_are_given() {
    let mut rig = AdminRig::new();
    let tenant = "/admin/v2/tenants/x";
    let given = json!({"adminRoles": ["boss", "chief"], "allowedClusters": ["standalone"]});
    assert_eq!(rig.ask("POST", tenant, &given.to_string()).0, 404);
    assert_eq!(rig.ask("PUT", tenant, &given.to_string()), DONE);
    assert_eq!(rig.ask("GET", tenant, ""), (200, given));
    let other = json!({"adminRoles": ["next"], "allowedClusters": ["standalone"]});
    assert_eq!(rig.ask("POST", tenant, r#"{"adminRoles":["next"]}"#), DONE);
    assert_eq!(rig.ask("GET", tenant, ""), (200, other.clone()));
    for (body, status) in [
        (r#"{"adminRoles":["boss"],"allowedClusters":["nowhere"]}"#, 412),
        (r#"{"allowedClusters":[]}"#, 412),
        (r#"{"adminRoles":[" boss"]}"#, 412),
        (r#"{"adminRoles":[""]}"#, 412),
        (r#"{"adminRoles":"boss"}"#, 400),
        ("7", 400),
    ] {
        for (method, path) in [("POST", tenant), ("PUT", "/admin/v2/tenants/y")] {
            assert_eq!(rig.ask(method, path, body).0, status, "{method} {body}");
        }
    }
    assert_eq!(rig.ask("GET", tenant, ""), (200, other), "what is refused changes nothing");
    assert_eq!(rig.ask("GET", "/admin/v2/tenants/y", "").0, 404);
    assert_eq!(rig.ask("DELETE", tenant, ""), DONE);
    assert_eq!(rig.ask("PUT", tenant, ""), DONE);
    assert_eq!(rig.ask("GET", tenant, "").1["adminRoles"], json!([]), "it is another one");
}

/// Grants of a new namespace were dropped.
#[test]
fn namespaces_have_the_grants_that_they_were_created_with() {
    let mut rig = AdminRig::new();
    let path = "/admin/v2/namespaces/public/n";
    let body = r#"{"auth_policies":{"namespace_auth":{"joe":["produce"]}}}"#;
    assert_eq!(rig.ask("PUT", path, body), DONE);
    let granted = json!({"joe": ["produce"]});
    assert_eq!(rig.ask("GET", &format!("{path}/permissions"), ""), (200, granted.clone()));
    let shown = rig.ask("GET", path, "").1;
    assert_eq!(shown["auth_policies"]["namespace_auth"], granted);
    let elsewhere = r#"{"replication_clusters":["a"]}"#;
    assert_eq!(rig.ask("PUT", "/admin/v2/namespaces/public/m", elsewhere).0, 412);
    assert_eq!(rig.ask("GET", "/admin/v2/namespaces/public/m", "").0, 404, "nothing was made");
}
