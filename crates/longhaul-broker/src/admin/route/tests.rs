use super::super::rig::{AdminRig, DONE, START, routed};
use super::*;
use proptest::prelude::*;
use serde_json::json;

mod access;
mod paths;
mod tenants;

const BASE: &str = "/admin/v2/persistent/public/default";

/// The answer to a call about the topic `a b`.
#[track_caller]
fn topic(rig: &mut AdminRig, method: &str, tail: &str, body: &str) -> (u16, Value) {
    rig.ask(method, &format!("{BASE}/a%20b{tail}"), body)
}

#[track_caller]
fn subscription(rig: &mut AdminRig, method: &str, tail: &str, body: &str) -> (u16, Value) {
    rig.ask(method, &format!("{BASE}/a%20b/subscription/s%2F1{tail}"), body)
}

#[track_caller]
fn namespace(rig: &mut AdminRig, method: &str, tail: &str, body: &str) -> (u16, Value) {
    rig.ask(method, &format!("/admin/v2/namespaces/public/default{tail}"), body)
}

/// A rig with the topic, with three messages, of which the last was published a second ago, and
/// with the subscription at the start.
fn with_messages() -> AdminRig {
    let mut rig = AdminRig::new();
    assert_eq!(topic(&mut rig, "PUT", "", ""), DONE);
    assert_eq!(subscription(&mut rig, "PUT", "", "\"earliest\""), DONE);
    rig.fill("a b", 3);
    rig
}

fn backlog(rig: &mut AdminRig) -> Value {
    topic(rig, "GET", "/stats", "").1["subscriptions"]["s/1"]["msgBacklog"].clone()
}

fn id(ledger: i64, entry: i64) -> (u16, Value) {
    (200, json!({"ledgerId": ledger, "entryId": entry, "partitionIndex": -1}))
}

#[test]
fn topics_are_created_read_and_deleted() {
    let mut rig = AdminRig::new();
    assert_eq!(topic(&mut rig, "PUT", "", ""), DONE);
    assert_eq!(topic(&mut rig, "PUT", "", "{}").0, 409);
    let all = json!(["persistent://public/default/a b"]);
    assert_eq!(rig.ask("GET", BASE, ""), (200, all));
    rig.produce("a b");
    for (query, status) in [("", 412), ("?force=false", 412), ("?force=true", 204)] {
        assert_eq!(topic(&mut rig, "DELETE", query, "").0, status, "{query}");
    }
    assert_eq!(topic(&mut rig, "GET", "/stats", "").0, 404);
}

#[test]
fn topics_with_partitions_are_created_and_grow() {
    let count = |rig: &mut AdminRig| topic(rig, "GET", "/partitions", "");
    for body in ["3", r#""3""#, r#"" 3 ""#, r#"{"partitions":"3"}"#] {
        let mut rig = AdminRig::new();
        assert_eq!(topic(&mut rig, "PUT", "/partitions", body), DONE);
        assert_eq!(count(&mut rig), (200, json!({"partitions": 3, "deleted": false})), "{body}");
    }
    let mut rig = AdminRig::new();
    for body in ["0", "-1", "1e9", "\"x\"", "99999999999"] {
        assert_eq!(topic(&mut rig, "PUT", "/partitions", body).0, 406, "{body}");
    }
    let given = (r#"{"partitions":3,"properties":{}}"#, "/partitions?createLocalTopicOnly=false");
    assert_eq!(topic(&mut rig, "PUT", given.1, given.0), DONE);
    assert_eq!(topic(&mut rig, "POST", "/partitions", "5"), DONE);
    assert_eq!(count(&mut rig).1["partitions"], 5);
    assert_eq!(rig.ask("DELETE", &format!("{BASE}/a%20b-partition-4"), ""), DONE);
    assert_eq!(rig.call(|machine| machine.tenants()), ["public"]);
    let all = |rig: &mut AdminRig| rig.ask("GET", BASE, "").1.as_array().unwrap().len();
    assert_eq!(all(&mut rig), 4);
    assert_eq!(topic(&mut rig, "POST", "/createMissedPartitions", ""), DONE);
    assert_eq!(all(&mut rig), 5);
    let whole = json!(["persistent://public/default/a b"]);
    assert_eq!(rig.ask("GET", &format!("{BASE}/partitioned"), ""), (200, whole));
    rig.produce("a b-partition-0");
    assert_eq!(topic(&mut rig, "DELETE", "/partitions", "").0, 412);
    assert_eq!(topic(&mut rig, "DELETE", "/partitions?force=true", ""), DONE);
    assert_eq!(count(&mut rig).0, 404);
    let (status, found) = topic(&mut rig, "GET", "/partitions?checkAllowAutoCreation=true", "");
    assert_eq!((status, &found["partitions"]), (200, &json!(0)), "it would come into being");
}

/// Properties that a tool sets on a new topic were dropped.
#[test]
fn a_topic_or_a_namespace_with_properties_is_refused() {
    let mut rig = AdminRig::new();
    let partitioned = r#"{"partitions":2,"properties":{"k":"v"}}"#;
    for (path, body) in [
        ("persistent/public/default/x", r#"{"k":"v"}"#),
        ("persistent/public/default/x/partitions", partitioned),
        ("namespaces/public/n", r#"{"properties":{"k":"v"}}"#),
    ] {
        let (status, told) = rig.ask("PUT", &format!("/admin/v2/{path}"), body);
        assert_eq!(status, 412, "{path}");
        assert!(told.to_string().contains("no properties on this broker"), "{told}");
    }
    for (path, body) in [
        ("persistent/public/default/x", r#"["k"]"#),
        ("persistent/public/default/x/partitions", r#"{"partitions":2,"properties":"k=v"}"#),
        ("namespaces/public/n", r#"{"properties":["k"]}"#),
    ] {
        assert_eq!(rig.ask("PUT", &format!("/admin/v2/{path}"), body).0, 400, "{path}");
    }
    assert_eq!(rig.ask("GET", BASE, ""), (200, json!([])));
    assert_eq!(rig.ask("GET", "/admin/v2/namespaces/public/n", "").0, 404);
}

#[test]
fn topics_are_looked_at_emptied_and_unloaded() {
    let mut rig = with_messages();
    assert_eq!(backlog(&mut rig), 3);
    assert_eq!(topic(&mut rig, "GET", "/stats?getPreciseBacklog=false", "").0, 200);
    let internal = topic(&mut rig, "GET", "/internalStats?metadata=false", "").1;
    assert_eq!(internal["lastConfirmedEntry"], "0:2");
    assert_eq!(topic(&mut rig, "GET", "/subscriptions", ""), (200, json!(["s/1"])));
    assert_eq!(topic(&mut rig, "GET", "/lastMessageId", ""), id(0, 2));
    for (path, entry) in [("/ledger/0/entry/0", "0"), ("/ledger/0/entry/2", "2")] {
        assert_eq!(topic(&mut rig, "GET", path, ""), (200, entry.parse().unwrap()), "{path}");
    }
    assert_eq!(topic(&mut rig, "GET", "/ledger/0/entry/3", "").0, 404);
    assert_eq!(topic(&mut rig, "PUT", "/compaction", ""), DONE);
    assert_eq!(topic(&mut rig, "GET", "/compaction", "").1["status"], "RUNNING");
    assert_eq!(topic(&mut rig, "PUT", "/compaction", "").0, 409);
    // The messages are three, two and one second old.
    assert_eq!(topic(&mut rig, "POST", "/all_subscription/expireMessages/1", ""), DONE);
    assert_eq!(backlog(&mut rig), 1);
    assert_eq!(topic(&mut rig, "PUT", "/unload", ""), DONE);
    assert_eq!(topic(&mut rig, "GET", "/stats", "").1["publishers"], json!([]));
    rig.fill("a b", 1);
    assert_eq!(topic(&mut rig, "GET", "/lastMessageId", ""), id(1, 0));
    assert_eq!(topic(&mut rig, "DELETE", "/truncate", ""), DONE);
    assert_eq!(topic(&mut rig, "GET", "/internalStats", "").1["numberOfEntries"], 0);
}

#[test]
fn topics_are_ended_looked_at_and_granted() {
    let mut rig = with_messages();
    for (moment, found) in [(START, id(0, 0)), (START + 1000, id(0, 1)), (START + 9000, id(0, 3))] {
        assert_eq!(topic(&mut rig, "GET", &format!("/messageid/{moment}"), ""), found);
    }
    for (query, found) in [
        ("", 2),
        ("?initialPosition=earliest&messagePosition=3", 2),
        ("?initialPosition=earliest", 0),
        ("?initialPosition=latest&messagePosition=2", 1),
        ("?messagePosition=-1", 2),
    ] {
        let path = format!("/examinemessage{query}");
        assert_eq!(topic(&mut rig, "GET", &path, ""), (200, json!(found)), "{query}");
    }
    assert_eq!(topic(&mut rig, "POST", "/permissions/r", r#"["produce"]"#), DONE);
    assert_eq!(topic(&mut rig, "GET", "/permissions", ""), (200, json!({"r": ["produce"]})));
    let of_namespace = namespace(&mut rig, "GET", "/permissions", "");
    assert_eq!(of_namespace, (200, json!({})), "it is granted for one topic");
    assert_eq!(topic(&mut rig, "DELETE", "/permissions/r", ""), DONE);
    assert_eq!(topic(&mut rig, "GET", "/permissions", ""), (200, json!({})));
    assert_eq!(topic(&mut rig, "POST", "/terminate", ""), id(0, 2));
    assert_eq!(topic(&mut rig, "GET", "/internalStats", "").1["state"], "Terminated");
    assert_eq!(rig.ask("PUT", &format!("{BASE}/parts/partitions"), "2"), DONE);
    let (status, ended) = rig.ask("POST", &format!("{BASE}/parts/terminate/partitions"), "");
    assert_eq!((status, &ended["1"]), (200, &id(2, -1).1));
}

#[test]
fn there_is_one_broker() {
    let mut rig = with_messages();
    let mut get = |path: &str| rig.ask("GET", &format!("/admin/v2/{path}"), "").1;
    assert_eq!(get("clusters"), json!(["standalone"]));
    assert_eq!(get("clusters/standalone")["brokerServiceUrl"], "pulsar://broker:6650");
    assert_eq!(get("bookies/all"), json!({"bookies": []}));
    let all = json!(["persistent://public/default/a b"]);
    for (query, expected) in
        [("", &all), ("?mode=PERSISTENT", &all), ("?mode=NON_PERSISTENT", &json!([]))]
    {
        let listed = namespace(&mut rig, "GET", &format!("/topics{query}"), "");
        assert_eq!(listed, (200, expected.clone()), "{query}");
    }
}

#[test]
fn non_persistent_topics_are_refused_by_name() {
    for path in ["public/default", "public/default/t", "public/default/t/partitions"] {
        let refused = routed("GET", &format!("/admin/v2/non-persistent/{path}"), "");
        let Err(AdminCallError::NotFound(reason)) = refused else { panic!("{path}") };
        assert!(reason.contains("use persistent://"), "{reason}");
    }
}

#[test]
fn subscriptions_start_where_they_are_told() {
    let latest =
        r#"{"ledgerId":9223372036854775807,"entryId":9223372036854775807,"partitionIndex":-1}"#;
    for (query, body, open) in [
        ("", "", 0),
        ("", "\"latest\"", 0),
        ("", "\"earliest\"", 3),
        ("", r#"{"ledgerId":-1,"entryId":-1}"#, 3),
        ("?replicated=false", latest, 0),
    ] {
        let mut rig = with_messages();
        assert_eq!(subscription(&mut rig, "DELETE", "", ""), DONE);
        assert_eq!(subscription(&mut rig, "PUT", query, body), DONE);
        assert_eq!(backlog(&mut rig), open, "{body}");
    }
    let mut rig = with_messages();
    assert_eq!(subscription(&mut rig, "DELETE", "", ""), DONE);
    let body = r#"{"ledgerId":0,"entryId":1,"properties":{"k":"v"}}"#;
    assert_eq!(subscription(&mut rig, "PUT", "", body), DONE);
    let shown = topic(&mut rig, "GET", "/stats", "").1["subscriptions"]["s/1"].clone();
    assert_eq!(
        (&shown["msgBacklog"], &shown["subscriptionProperties"]),
        (&json!(2), &json!({"k": "v"}))
    );
    assert_eq!(subscription(&mut rig, "GET", "/properties", ""), (200, json!({"k": "v"})));
    assert_eq!(topic(&mut rig, "GET", "/subscription/none/properties", "").0, 404);
}

/// The properties could be read and not set, although `pulsar-admin topics
/// update-subscription-properties` sets them.
#[test]
fn the_properties_of_a_subscription_are_replaced() {
    let mut rig = with_messages();
    let shown = |rig: &mut AdminRig| subscription(rig, "GET", "/properties", "").1;
    assert_eq!(shown(&mut rig), json!({}));
    for (body, after) in [
        (r#"{"k":"v","l":"w"}"#, json!({"k": "v", "l": "w"})),
        (r#"{"k":"x"}"#, json!({"k": "x"})),
        // `--clear` sends this too.
        ("{}", json!({})),
        (r#"{"k":"v"}"#, json!({"k": "v"})),
        ("null", json!({})),
    ] {
        assert_eq!(subscription(&mut rig, "PUT", "/properties", body), DONE, "{body}");
        assert_eq!(shown(&mut rig), after, "{body}");
    }
    let body = r#"{"k":"v"}"#;
    assert_eq!(subscription(&mut rig, "PUT", "/properties", body), DONE);
    let large = json!({"k": "v".repeat(16 * 1024)}).to_string();
    for (body, status) in [("[]", 400), (r#"{"k":7}"#, 400), ("{", 400), (&large, 412)] {
        assert_eq!(subscription(&mut rig, "PUT", "/properties", body).0, status);
        assert_eq!(shown(&mut rig), json!({"k": "v"}));
    }
    assert_eq!(topic(&mut rig, "PUT", "/subscription/none/properties", body).0, 404);
    assert_eq!(subscription(&mut rig, "DELETE", "/properties", "").0, 404, "nor on Pulsar");
}

#[test]
fn subscriptions_are_moved() {
    let mut rig = with_messages();
    rig.consume("a b", "s/1");
    for (query, status) in [("", 412), ("?force=true", 204)] {
        assert_eq!(subscription(&mut rig, "DELETE", query, "").0, status, "{query}");
    }
    let second = START + 1000;
    let id = |excluded: &str| format!(r#"{{"ledgerId":0,"entryId":1{excluded}}}"#);
    for (path, body, open) in [
        ("/skip_all", String::new(), 0),
        ("/skip/2", String::new(), 1),
        (&format!("/resetcursor/{second}"), String::new(), 2),
        ("/resetcursor", id(""), 2),
        ("/resetcursor", id(r#","excluded":true,"batchIndex":-1"#), 1),
        ("/expireMessages/2", String::new(), 2),
    ] {
        let mut rig = with_messages();
        assert_eq!(subscription(&mut rig, "POST", path, &body), DONE);
        assert_eq!(backlog(&mut rig), open, "{path} {body}");
    }
    let mut rig = with_messages();
    assert_eq!(subscription(&mut rig, "POST", "/skip/1", ""), DONE);
    for (nth, found) in [(0, 1), (1, 1), (2, 2)] {
        let peeked = subscription(&mut rig, "GET", &format!("/position/{nth}"), "");
        assert_eq!(peeked, (200, json!(found)), "{nth}");
    }
}

#[test]
fn policies_are_set_and_read() {
    let mut rig = with_messages();
    let forever = json!({"retentionTimeInMinutes": -1, "retentionSizeInMB": -1});
    for (method, path, body, shown) in [
        ("POST", "/retention", forever.to_string(), forever.clone()),
        ("POST", "/messageTTL?messageTTL=5", String::new(), json!(5)),
        ("PUT", "/compactionThreshold", "5".to_owned(), json!(5)),
    ] {
        let read = path.split('?').next().unwrap();
        assert_eq!(topic(&mut rig, method, path, &body), DONE);
        assert_eq!(topic(&mut rig, "GET", read, ""), (200, shown.clone()));
        assert_eq!(namespace(&mut rig, "GET", read, ""), DONE, "it is set on the topic");
        assert_eq!(topic(&mut rig, "DELETE", read, ""), DONE);
        assert_eq!(topic(&mut rig, "GET", read, ""), DONE);
        let body = if body.is_empty() { "5".to_owned() } else { body };
        assert_eq!(namespace(&mut rig, method, read, &body), DONE);
        assert_eq!(namespace(&mut rig, "GET", read, ""), (200, shown.clone()));
        let applied = topic(&mut rig, "GET", &format!("{read}?applied=true"), "");
        assert_eq!(applied, (200, shown), "{read}");
        assert_eq!(topic(&mut rig, "GET", read, ""), DONE);
    }
    assert_eq!(topic(&mut rig, "POST", "/messageTTL?messageTTL=5", ""), DONE);
    assert_eq!(topic(&mut rig, "POST", "/messageTTL", ""), DONE);
    assert_eq!(topic(&mut rig, "GET", "/messageTTL", ""), DONE, "nothing unsets it");
    let all = namespace(&mut rig, "GET", "", "").1;
    assert_eq!((&all["retention_policies"], &all["compaction_threshold"]), (&forever, &json!(5)));
    let path = "/backlogQuota?backlogQuotaType=message_age";
    let quota = r#"{"limitTime":7,"policy":"producer_exception"}"#;
    assert_eq!(namespace(&mut rig, "POST", path, quota), DONE);
    let quotas = json!({"message_age":
        {"limit": -1, "limitSize": -1, "limitTime": 7, "policy": "producer_exception"}});
    assert_eq!(namespace(&mut rig, "GET", "/backlogQuotaMap", ""), (200, quotas));
}

#[test]
fn tenants_and_namespaces_are_kept() {
    let mut rig = AdminRig::new();
    let tenant = "/admin/v2/tenants/t";
    assert_eq!(rig.ask("GET", tenant, "").0, 404);
    assert_eq!(rig.ask("PUT", tenant, r#"{"adminRoles":[]}"#), DONE);
    assert_eq!(rig.ask("GET", "/admin/v2/tenants", ""), (200, json!(["public", "t"])));
    let shown = json!({"adminRoles": [], "allowedClusters": ["standalone"]});
    assert_eq!(rig.ask("GET", tenant, ""), (200, shown));
    assert_eq!(rig.ask("DELETE", tenant, ""), DONE);
    assert_eq!(rig.ask("GET", "/admin/v2/tenants", ""), (200, json!(["public"])));
    let of_tenant = |rig: &mut AdminRig| rig.ask("GET", "/admin/v2/namespaces/public", "");
    assert_eq!(of_tenant(&mut rig), (200, json!(["public/default"])));
    assert_eq!(rig.ask("PUT", "/admin/v2/namespaces/public/n", ""), DONE);
    let policies = r#"{"message_ttl_in_seconds":3}"#;
    assert_eq!(rig.ask("PUT", "/admin/v2/namespaces/public/m", policies), DONE);
    assert_eq!(rig.ask("GET", "/admin/v2/namespaces/public/m/messageTTL", ""), (200, json!(3)));
    assert_eq!(of_tenant(&mut rig).1, json!(["public/default", "public/m", "public/n"]));
    assert_eq!(topic(&mut rig, "PUT", "", ""), DONE);
    let grant = r#"["produce","consume"]"#;
    assert_eq!(namespace(&mut rig, "POST", "/permissions/tasks", grant), DONE);
    let granted = json!({"tasks": ["produce", "consume"]});
    assert_eq!(namespace(&mut rig, "GET", "/permissions", ""), (200, granted));
    assert_eq!(namespace(&mut rig, "DELETE", "/permissions/tasks", ""), DONE);
    assert_eq!(namespace(&mut rig, "GET", "/permissions", ""), (200, json!({})));
    assert_eq!(namespace(&mut rig, "DELETE", "", "").0, 409);
    assert_eq!(namespace(&mut rig, "DELETE", "?force=true", ""), DONE);
    assert_eq!(of_tenant(&mut rig).1, json!(["public/m", "public/n"]));
}

#[test]
fn schemas_are_stored_and_read() {
    let mut rig = AdminRig::new();
    let mut schema = |method: &str, tail: &str, body: &str| {
        rig.ask(method, &format!("/admin/v2/schemas/public/default/a/{tail}"), body)
    };
    let body = r#"{"type":"JSON","schema":"{}","properties":{"k":"v"}}"#;
    assert_eq!(schema("POST", "schema", body), (200, json!({"version": {"version": 0}})));
    let older = r#"{"type":"JSON","data":"[]"}"#;
    assert_eq!(schema("POST", "schema", older), (200, json!({"version": {"version": 1}})));
    let stored = |version: u64, data: &str, properties: Value| {
        json!({"version": version, "type": "JSON", "timestamp": START, "data": data,
            "properties": properties})
    };
    let all = [stored(0, "{}", json!({"k": "v"})), stored(1, "[]", json!({}))];
    assert_eq!(schema("GET", "schema", ""), (200, all[1].clone()), "the latest");
    assert_eq!(schema("GET", "schema/0", ""), (200, all[0].clone()));
    assert_eq!(schema("GET", "schema/7", "").0, 404);
    assert_eq!(schema("GET", "schemas", ""), (200, json!({"getSchemaResponses": all})));
    assert_eq!(schema("DELETE", "schema", ""), (200, json!({"version": 1})));
    assert_eq!(schema("GET", "schema", "").0, 404);
}

#[test]
fn who_may_do_what() {
    let access = |method: &str, path: &str| routed(method, path, "").ok().unwrap().access;
    let name = TopicName::parse("persistent://public/default/a").unwrap();
    let user = AdminAccess::User(name.clone());
    assert_eq!(access("GET", "/admin/v2/brokers/health"), AdminAccess::Everybody);
    assert_eq!(access("GET", "/status.html"), AdminAccess::Everybody);
    assert_eq!(access("GET", "/metrics/"), AdminAccess::Authenticated);
    assert_eq!(access("GET", "/lookup/v2/topic/persistent/public/default/a"), user);
    assert_eq!(access("GET", "/admin/v2/persistent/public/default/a/partitions"), user);
    assert_eq!(access("GET", "/admin/v2/schemas/public/default/a/schema"), user);
    let viewer = AdminAccess::Viewer(name);
    for path in ["/stats", "/partitioned-stats", "/internalStats"] {
        let path = format!("/admin/v2/persistent/public/default/a{path}");
        assert_eq!(access("GET", &path), viewer, "{path}");
    }
    for (method, path) in
        [("GET", "/subscriptions"), ("PUT", ""), ("DELETE", ""), ("PUT", "/unload")]
    {
        let path = format!("/admin/v2/persistent/public/default/a{path}");
        let administrator = AdminAccess::Tenant("public".to_owned());
        assert_eq!(access(method, &path), administrator, "{method} {path}");
    }
    let namespace = AdminAccess::Namespace("public/default".to_owned());
    for path in ["", "/partitioned"] {
        let path = format!("/admin/v2/persistent/public/default{path}");
        assert_eq!(access("GET", &path), namespace, "{path}");
    }
    for path in ["tenants", "tenants/public", "brokers/version"] {
        assert_eq!(access("GET", &format!("/admin/v2/{path}")), AdminAccess::Superuser, "{path}");
    }
}

#[test]
fn what_is_not_there_is_said() {
    let unknown = [
        ("GET", "/"),
        ("GET", "/admin/v2/functions/public/default"),
        ("GET", "/admin/v2/persistent/public/default/a/terminate"),
        ("GET", "/admin/v2/broker-stats/topics"),
        ("GET", "/admin/v2/brokers/leaderBroker"),
        ("GET", "/admin/v2/namespaces/public/default/bundles"),
        ("PUT", "/admin/v2/namespaces/public/default/unload"),
        ("POST", "/admin/v2/namespaces/public/default/clearBacklog"),
        ("GET", "/admin/v2/namespaces/public/default/properties"),
        ("PUT", "/admin/v2/persistent/public/default/a/properties"),
        ("POST", "/admin/v2/persistent/public/default/a/persistence"),
        ("GET", "/lookup/v2/topic/persistent/public/default/a/bundle"),
        ("GET", "/admin/v2/persistent/public/default/a/nonsense"),
        ("PATCH", "/admin/v2/persistent/public/default/a"),
        ("POST", "/status.html"),
    ];
    for (method, path) in unknown {
        let Err(AdminCallError::NotFound(reason)) = routed(method, path, "") else {
            panic!("{path}")
        };
        assert!(reason.ends_with("is not part of this broker's admin interface"), "{reason}");
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let base = "/admin/v2/persistent/public/default";
    let refused = [
        ("GET", "a/messageid/x", ""),
        ("GET", "a/examinemessage?messagePosition=x", ""),
        ("POST", "a/permissions/r", r#"["everything"]"#),
        ("PUT", "a/partitions", "x"),
        ("PUT", "a/partitions", ""),
        ("PUT", "..", ""),
        ("PUT", "a%2F..%2Fb", ""),
        ("PUT", "a%00", ""),
        ("PUT", "a/subscription/%0A", ""),
        ("POST", "a/subscription/s/resetcursor/x", ""),
        ("POST", "a/subscription/s/resetcursor", ""),
        ("POST", "a/subscription/s/skip/-1", ""),
        ("POST", "a/messageTTL?messageTTL=-4", ""),
        ("POST", "a/compactionThreshold", "-5"),
        ("POST", "a/retention", r#"{"retentionTimeInMinutes":0,"retentionSizeInMB":5}"#),
    ];
    for (method, path, body) in refused {
        let error = routed(method, &format!("{base}/{path}"), body).err().unwrap();
        let refused =
            matches!(error, AdminCallError::BadRequest(_) | AdminCallError::PreconditionFailed(_));
        assert!(refused, "{method} {path}: {error:?}");
    }
    let schema = "/admin/v2/schemas/public/default/a/schema";
    assert!(routed("POST", schema, r#"{"type":"BOGUS","schema":""}"#).is_err());
}

proptest! {
    #[test]
    fn whatever_comes_is_routed_or_refused(
        method in "GET|PUT|POST|DELETE",
        start in "/admin/v2/(persistent|schemas|namespaces|tenants)",
        tail: String,
        body: String,
    ) {
        drop(routed(&method, &format!("{start}/{tail}"), &body));
        drop(routed(&method, &format!("{start}/public/default/{tail}"), &body));
    }
}
