use super::super::policies::{Action, Policy, Retention};
use super::super::request::{NewSchema, Position, Start, SubscriptionCall, TopicCall};
use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn routed(method: &str, path: &str, body: &str) -> Routed {
    let (path, query) =
        path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
    let target = Target::parse(path, query)?;
    route(Asked { method, target: &target, body: body.as_bytes() })
}

#[track_caller]
#[expect(clippy::needless_pass_by_value, reason = "a case is written out where it is checked")]
fn asks(method: &str, path: &str, body: &str, expected: AdminRequest) {
    match routed(method, path, body).unwrap().work {
        Work::Ask(request, _) => assert_eq!(request, expected, "{method} {path}"),
        Work::Tell(known) => panic!("{known:?}"),
    }
}

#[track_caller]
fn topic(method: &str, tail: &str, body: &str, call: TopicCall) {
    let path = format!("/admin/v2/persistent/public/default/a%20b{tail}");
    let topic = "persistent://public/default/a b".to_owned();
    asks(method, &path, body, AdminRequest::Topic { topic, call });
}

#[track_caller]
fn subscription(method: &str, tail: &str, body: &str, call: SubscriptionCall) {
    let path = format!("/admin/v2/persistent/public/default/a/subscription/s%2F1{tail}");
    let (topic, subscription) = ("persistent://public/default/a".to_owned(), "s/1".to_owned());
    asks(method, &path, body, AdminRequest::Subscription { topic, subscription, call });
}

#[track_caller]
fn namespace(method: &str, tail: &str, body: &str, call: NamespaceCall) {
    let path = format!("/admin/v2/namespaces/public/default{tail}");
    let namespace = "public/default".to_owned();
    asks(method, &path, body, AdminRequest::Namespace { namespace, call });
}

#[test]
fn topics_are_created_read_and_deleted() {
    topic("PUT", "", "", TopicCall::Create);
    topic("DELETE", "?force=true", "", TopicCall::Delete { force: true });
    topic("DELETE", "?force=false", "", TopicCall::Delete { force: false });
    let create = TopicCall::CreatePartitioned { partitions: 3 };
    for body in ["3", r#""3""#, r#"" 3 ""#, r#"{"partitions":"3"}"#] {
        topic("PUT", "/partitions", body, create.clone());
    }
    // How many there may be is the core's to say.
    for (body, partitions) in
        [("0", 0), ("-1", 0), ("1e9", 0), ("\"x\"", 0), ("99999999999", u32::MAX)]
    {
        topic("PUT", "/partitions", body, TopicCall::CreatePartitioned { partitions });
    }
    topic(
        "PUT",
        "/partitions?createLocalTopicOnly=false",
        r#"{"partitions":3,"properties":{}}"#,
        create,
    );
    topic("POST", "/partitions", "5", TopicCall::GrowPartitioned { partitions: 5 });
    topic("DELETE", "/partitions", "", TopicCall::DeletePartitioned { force: false });
    topic("POST", "/createMissedPartitions", "", TopicCall::CreateMissingPartitions);
    topic("GET", "/partitions", "", TopicCall::Partitions { allow_auto_creation: false });
    let looked_up = TopicCall::Partitions { allow_auto_creation: true };
    topic("GET", "/partitions?checkAllowAutoCreation=true", "", looked_up);
    topic("GET", "/stats?getPreciseBacklog=false", "", TopicCall::Stats);
    topic("GET", "/partitioned-stats", "", TopicCall::PartitionedStats);
    topic("GET", "/internalStats?metadata=false", "", TopicCall::InternalStats);
    topic("GET", "/subscriptions", "", TopicCall::Subscriptions);
    topic("PUT", "/compaction", "", TopicCall::Compact);
    topic("GET", "/compaction", "", TopicCall::Compaction);
    topic("GET", "/lastMessageId", "", TopicCall::LastMessageId);
    topic("PUT", "/unload", "", TopicCall::Unload);
    topic("DELETE", "/truncate", "", TopicCall::Truncate);
    topic("POST", "/all_subscription/expireMessages/7", "", TopicCall::ExpireMessages { age_s: 7 });
    let place = Position { ledger: 3, entry: 0 };
    topic("GET", "/ledger/3/entry/0", "", TopicCall::Message(place));
}

#[test]
fn topics_are_ended_looked_at_and_noted_on() {
    topic("POST", "/terminate", "", TopicCall::Terminate);
    topic("POST", "/terminate/partitions", "", TopicCall::TerminatePartitions);
    topic("GET", "/messageid/7", "", TopicCall::MessageIdAt { timestamp_ms: 7 });
    for (query, from_last, nth) in [
        ("", true, 1),
        ("?initialPosition=earliest&messagePosition=3", false, 3),
        ("?initialPosition=latest&messagePosition=2", true, 2),
        ("?messagePosition=-1", true, 1),
    ] {
        let call = TopicCall::Examine { from_last, nth };
        topic("GET", &format!("/examinemessage{query}"), "", call);
    }
    let properties = BTreeMap::from([("k".to_owned(), "v".to_owned())]);
    topic("GET", "/properties", "", TopicCall::Properties);
    topic("PUT", "/properties", r#"{"k":"v"}"#, TopicCall::SetProperties(properties));
    topic("DELETE", "/properties?key=k", "", TopicCall::RemoveProperty("k".to_owned()));
    let (role, actions) = ("r".to_owned(), vec![Action::Produce]);
    topic("GET", "/permissions", "", TopicCall::Grants);
    let grant = TopicCall::Grant { role: role.clone(), actions };
    topic("POST", "/permissions/r", r#"["produce"]"#, grant);
    topic("DELETE", "/permissions/r", "", TopicCall::Revoke { role });
}

#[test]
fn there_is_one_broker_and_each_namespace_is_one_bundle() {
    let work = |path: &str| routed("GET", path, "").unwrap().work;
    assert_eq!(work("/admin/v2/brokers/leaderBroker"), Work::Tell(Known::Leader));
    assert_eq!(work("/admin/v2/brokers/standalone"), Work::Tell(Known::Brokers));
    let bundle = "/lookup/v2/topic/persistent/public/default/a/bundle";
    assert_eq!(work(bundle), Work::Tell(Known::Text("0x00000000_0xffffffff")));
    for (path, show) in [
        ("broker-stats/topics", Show::Topics),
        ("broker-stats/metrics", Show::Monitoring),
        ("broker-stats/load-report", Show::LoadReport),
        ("brokers/standalone/localhost:8080/ownedNamespaces", Show::OwnedNamespaces),
    ] {
        let path = format!("/admin/v2/{path}");
        assert_eq!(work(&path), Work::Ask(AdminRequest::AllStats, show), "{path}");
    }
    namespace("GET", "/topics?mode=PERSISTENT", "", NamespaceCall::Topics);
    let none = work("/admin/v2/namespaces/public/default/topics?mode=NON_PERSISTENT");
    assert_eq!(none, Work::Tell(Known::Json(json!([]))));
    namespace("GET", "/bundles", "", NamespaceCall::Policies);
    namespace("PUT", "/0x00000000_0xffffffff/unload", "", NamespaceCall::Unload);
}

#[test]
fn non_persistent_topics_are_refused_by_name() {
    for path in ["public/default", "public/default/t", "public/default/t/partitions"] {
        let refused = routed("GET", &format!("/admin/v2/non-persistent/{path}"), "");
        let Err(AdminError::NotFound(reason)) = refused else { panic!("{path}") };
        assert!(reason.contains("use persistent://"), "{reason}");
    }
}

#[test]
fn subscriptions_are_moved() {
    let create = |at| SubscriptionCall::Create { at, properties: BTreeMap::new() };
    subscription("PUT", "", "", create(Start::Latest));
    subscription("PUT", "", "\"earliest\"", create(Start::Earliest));
    subscription("PUT", "", r#"{"ledgerId":-1,"entryId":-1}"#, create(Start::Earliest));
    let latest =
        r#"{"ledgerId":9223372036854775807,"entryId":9223372036854775807,"partitionIndex":-1}"#;
    subscription("PUT", "?replicated=false", latest, create(Start::Latest));
    subscription("DELETE", "?force=true", "", SubscriptionCall::Delete { force: true });
    subscription("POST", "/skip_all", "", SubscriptionCall::SkipAll);
    subscription("POST", "/skip/3", "", SubscriptionCall::Skip { entries: 3 });
    subscription("POST", "/resetcursor/9", "", SubscriptionCall::ResetToTime { timestamp_ms: 9 });
    let place = Position { ledger: 4, entry: 5 };
    let reset = |to| SubscriptionCall::Reset { to };
    subscription("POST", "/resetcursor", r#"{"ledgerId":4,"entryId":5}"#, reset(Start::At(place)));
    let excluded = r#"{"ledgerId":4,"entryId":5,"excluded":true,"batchIndex":-1}"#;
    subscription("POST", "/resetcursor", excluded, reset(Start::After(place)));
    subscription("POST", "/expireMessages/7", "", SubscriptionCall::ExpireMessages { age_s: 7 });
    subscription("GET", "/position/2", "", SubscriptionCall::Peek { nth: 2 });
}

#[test]
fn policies_are_set_and_read() {
    let forever = Some(Retention { minutes: -1, megabytes: -1 });
    let body = r#"{"retentionTimeInMinutes":-1,"retentionSizeInMB":-1}"#;
    topic("POST", "/retention", body, TopicCall::SetPolicy(Policy::Retention(forever)));
    topic("DELETE", "/retention", "", TopicCall::SetPolicy(Policy::Retention(None)));
    topic(
        "POST",
        "/messageTTL?messageTTL=5",
        "",
        TopicCall::SetPolicy(Policy::MessageTtl(Some(5))),
    );
    topic("POST", "/messageTTL", "", TopicCall::SetPolicy(Policy::MessageTtl(None)));
    topic("GET", "/compactionThreshold?applied=true", "", TopicCall::Policies);
    namespace("POST", "/retention", body, NamespaceCall::SetPolicy(Policy::Retention(forever)));
    namespace("POST", "/messageTTL", "5", NamespaceCall::SetPolicy(Policy::MessageTtl(Some(5))));
    let threshold = NamespaceCall::SetPolicy(Policy::CompactionThreshold(Some(5)));
    namespace("PUT", "/compactionThreshold", "5", threshold);
    namespace("GET", "/retention", "", NamespaceCall::Policies);
    namespace("GET", "", "", NamespaceCall::Policies);
    let age = Policy::Other("backlogQuotaAge", Some(json!({"limitTime": -1})));
    let path = "/backlogQuota?backlogQuotaType=message_age";
    namespace("POST", path, r#"{"limitTime":-1}"#, NamespaceCall::SetPolicy(age));
}

#[test]
fn tenants_and_namespaces_are_kept() {
    asks("GET", "/admin/v2/tenants", "", AdminRequest::Tenants);
    asks(
        "PUT",
        "/admin/v2/tenants/t",
        r#"{"adminRoles":[]}"#,
        AdminRequest::CreateTenant("t".to_owned()),
    );
    asks("DELETE", "/admin/v2/tenants/t", "", AdminRequest::DeleteTenant("t".to_owned()));
    let tenant = "public".to_owned();
    asks("GET", "/admin/v2/namespaces/public", "", AdminRequest::Namespaces { tenant });
    namespace("PUT", "", "", NamespaceCall::Create { policies: Vec::new() });
    namespace("DELETE", "?force=true", "", NamespaceCall::Delete { force: true });
    namespace("PUT", "/unload", "", NamespaceCall::Unload);
    namespace("GET", "/topics", "", NamespaceCall::Topics);
    namespace("GET", "/permissions", "", NamespaceCall::Grants);
    let actions = vec![Action::Produce, Action::Consume];
    let grant = NamespaceCall::Grant { role: "tasks".to_owned(), actions };
    namespace("POST", "/permissions/tasks", r#"["produce","consume"]"#, grant);
    namespace(
        "DELETE",
        "/permissions/tasks",
        "",
        NamespaceCall::Revoke { role: "tasks".to_owned() },
    );
    let namespace = "public/default".to_owned();
    let list = |call| AdminRequest::Namespace { namespace: namespace.clone(), call };
    asks("GET", "/admin/v2/persistent/public/default", "", list(NamespaceCall::Topics));
    let partitioned = list(NamespaceCall::PartitionedTopics);
    asks("GET", "/admin/v2/persistent/public/default/partitioned", "", partitioned);
}

#[test]
fn schemas_are_stored_and_read() {
    let schema = |method, tail: &str, body, call| {
        let topic = "persistent://public/default/a".to_owned();
        let path = format!("/admin/v2/schemas/public/default/a/{tail}");
        asks(method, &path, body, AdminRequest::Topic { topic, call });
    };
    schema("GET", "schema", "", TopicCall::Schema { version: None });
    schema("GET", "schema/7", "", TopicCall::Schema { version: Some(7) });
    schema("GET", "schemas", "", TopicCall::Schemas);
    schema("DELETE", "schema", "", TopicCall::DeleteSchema);
    let properties = BTreeMap::from([("k".to_owned(), "v".to_owned())]);
    let (kind, data) = ("JSON".to_owned(), "{}".to_owned());
    let new = TopicCall::CreateSchema(NewSchema { kind, data, properties });
    schema("POST", "schema", r#"{"type":"JSON","schema":"{}","properties":{"k":"v"}}"#, new);
}

#[test]
fn who_may_do_what() {
    let access = |method: &str, path: &str| routed(method, path, "").unwrap().access;
    let user = Access::User { topic: "persistent://public/default/a".to_owned() };
    assert_eq!(access("GET", "/admin/v2/brokers/health"), Access::Everybody);
    assert_eq!(access("GET", "/status.html"), Access::Everybody);
    assert_eq!(access("GET", "/metrics/"), Access::Authenticated);
    assert_eq!(access("GET", "/lookup/v2/topic/persistent/public/default/a"), user);
    assert_eq!(access("GET", "/admin/v2/persistent/public/default/a/partitions"), user);
    assert_eq!(access("GET", "/admin/v2/schemas/public/default/a/schema"), user);
    let viewer = Access::Viewer { topic: "persistent://public/default/a".to_owned() };
    for path in ["/stats", "/partitioned-stats", "/internalStats"] {
        let path = format!("/admin/v2/persistent/public/default/a{path}");
        assert_eq!(access("GET", &path), viewer, "{path}");
    }
    for (method, path) in
        [("GET", "/subscriptions"), ("PUT", ""), ("DELETE", ""), ("PUT", "/unload")]
    {
        let path = format!("/admin/v2/persistent/public/default/a{path}");
        assert_eq!(access(method, &path), Access::Superuser, "{method} {path}");
    }
}

#[test]
fn what_is_not_there_is_said() {
    let unknown = [
        ("GET", "/"),
        ("GET", "/admin/v2/functions/public/default"),
        ("GET", "/admin/v2/persistent/public/default/a/terminate"),
        ("GET", "/admin/v2/broker-stats/mbeans"),
        ("GET", "/admin/v2/persistent/public/default/a/nonsense"),
        ("PATCH", "/admin/v2/persistent/public/default/a"),
        ("POST", "/status.html"),
    ];
    for (method, path) in unknown {
        let Err(AdminError::NotFound(reason)) = routed(method, path, "") else { panic!("{path}") };
        assert!(reason.ends_with("is not part of this broker's admin interface"), "{reason}");
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let base = "/admin/v2/persistent/public/default";
    let refused = [
        ("GET", "a/messageid/x", ""),
        ("GET", "a/examinemessage?messagePosition=x", ""),
        ("DELETE", "a/properties", ""),
        ("PUT", "a/properties", "[]"),
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
        let error = routed(method, &format!("{base}/{path}"), body).unwrap_err();
        let refused =
            matches!(error, AdminError::BadRequest(_) | AdminError::PreconditionFailed(_));
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

/// A policy that was nested 125 deep was recorded, and a few objects deeper in the log than the parser of the next start would read.
#[test]
fn what_is_nested_too_deep_is_refused() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    let post =
        |depth| routed("POST", "/admin/v2/persistent/public/default/t/persistence", &nested(depth));
    assert!(post(JSON_DEPTH_MAX).is_ok());
    for depth in [JSON_DEPTH_MAX + 1, 125, 127, 200] {
        assert!(matches!(post(depth), Err(AdminError::BadRequest(_))), "{depth}");
    }
}
