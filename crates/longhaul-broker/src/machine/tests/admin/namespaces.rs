//! Tenants and namespaces.

use super::*;
use crate::admin::policies::{Action, Grants, Policies};
use crate::admin::request::NewSchema;

fn create(name: &str) -> AdminRequest {
    namespace(name, NamespaceCall::Create { policies: Vec::new() })
}

fn delete(name: &str, force: bool) -> AdminRequest {
    namespace(name, NamespaceCall::Delete { force })
}

fn of_tenant(tenant: &str) -> AdminRequest {
    AdminRequest::Namespaces { tenant: tenant.to_owned() }
}

fn delete_tenant(name: &str) -> AdminRequest {
    AdminRequest::DeleteTenant(name.to_owned())
}

/// With tenants `acme` and `acme2`, each with the namespace `a`.
fn rig() -> Rig {
    let mut rig = Rig::new();
    for tenant in ["acme", "acme2"] {
        assert_eq!(rig.answer(AdminRequest::CreateTenant(tenant.to_owned())), DONE);
        assert_eq!(rig.answer(create(&format!("{tenant}/a"))), DONE);
    }
    rig
}

#[test]
fn tenants_and_namespaces_are_listed() {
    let mut rig = rig();
    assert_eq!(rig.names(AdminRequest::Tenants), ["acme", "acme2", "public"]);
    assert_eq!(rig.names(of_tenant("acme")), ["acme/a"], "not those of `acme2`");
    assert_eq!(rig.names(of_tenant("public")), ["public/default"]);
    rig.refuses(of_tenant("nobody"), 404, "tenant nobody does not exist");
}

#[test]
fn a_tenant_and_a_namespace_are_created_once() {
    let mut rig = rig();
    rig.refuses(AdminRequest::CreateTenant("acme".to_owned()), 409, "tenant acme exists");
    rig.refuses(create("acme/a"), 409, "namespace acme/a exists");
    rig.refuses(create("nobody/a"), 404, "tenant nobody does not exist");
    assert_eq!(rig.answer(create("acme/b")), DONE);
    assert_eq!(rig.names(of_tenant("acme")), ["acme/a", "acme/b"]);
}

#[test]
fn a_tenant_goes_after_its_namespaces() {
    let mut rig = rig();
    rig.refuses(delete_tenant("nobody"), 404, "tenant nobody does not exist");
    rig.refuses(delete_tenant("acme"), 409, "tenant acme has namespaces");
    assert_eq!(rig.answer(delete("acme/a", false)), DONE);
    assert_eq!(rig.answer(delete_tenant("acme")), DONE, "`acme2` is another one");
    assert_eq!(rig.names(AdminRequest::Tenants), ["acme2", "public"]);
    rig.refuses(of_tenant("acme"), 404, "");
}

#[test]
fn a_namespace_that_does_not_exist_has_nothing() {
    let mut rig = rig();
    let role = || "role".to_owned();
    for call in [
        NamespaceCall::Delete { force: false },
        NamespaceCall::Delete { force: true },
        NamespaceCall::Topics,
        NamespaceCall::PartitionedTopics,
        NamespaceCall::Unload,
        NamespaceCall::Policies,
        NamespaceCall::SetPolicy(Policy::MessageTtl(Some(1))),
        NamespaceCall::Grants,
        NamespaceCall::Grant { role: role(), actions: vec![Action::Produce] },
        NamespaceCall::Revoke { role: role() },
    ] {
        rig.refuses(namespace("acme/none", call), 404, "namespace acme/none does not exist");
    }
}

#[test]
fn a_namespace_starts_with_its_policies() {
    let mut rig = rig();
    let policies = vec![Policy::MessageTtl(Some(7)), Policy::Deduplication(Some(true))];
    let call = NamespaceCall::Create { policies };
    assert_eq!(rig.answer(namespace("acme/b", call)), DONE);
    let policies =
        |rig: &mut Rig, name: &str| rig.answer(namespace(name, NamespaceCall::Policies)).unwrap();
    let expected =
        Policies { message_ttl_s: Some(7), deduplication: Some(true), ..Policies::default() };
    assert_eq!(policies(&mut rig, "acme/b"), AdminReply::Policies(Box::new(expected)));
    assert_eq!(policies(&mut rig, "acme/a"), AdminReply::Policies(Box::default()));
    let call = NamespaceCall::SetPolicy(Policy::MessageTtl(Some(3)));
    assert_eq!(rig.answer(namespace("acme/a", call)), DONE);
    let expected = Policies { message_ttl_s: Some(3), ..Policies::default() };
    assert_eq!(policies(&mut rig, "acme/a"), AdminReply::Policies(Box::new(expected)));
}

#[test]
fn grants_come_and_go() {
    let mut rig = rig();
    let grants = |rig: &mut Rig| match rig.answer(namespace("acme/a", NamespaceCall::Grants)) {
        Ok(AdminReply::Grants(grants)) => grants,
        other => panic!("{other:?}"),
    };
    assert_eq!(grants(&mut rig), Grants::default());
    let call = NamespaceCall::Grant { role: "worker".to_owned(), actions: vec![Action::Consume] };
    assert_eq!(rig.answer(namespace("acme/a", call)), DONE);
    assert_eq!(grants(&mut rig).roles().collect::<Vec<_>>(), [("worker", &[Action::Consume][..])]);
    let call = NamespaceCall::Revoke { role: "worker".to_owned() };
    assert_eq!(rig.answer(namespace("acme/a", call)), DONE);
    assert!(grants(&mut rig).roles().next().is_none());
    let allowed = grants(&mut rig).allow("worker", Action::Consume);
    assert_eq!(allowed, Some(false), "the namespace stays closed");
}

/// Topics of two namespaces: a plain one and a partitioned one in each.
fn with_topics() -> Rig {
    let mut rig = rig();
    for place in ["persistent://acme/a", "persistent://acme2/a"] {
        rig.create(&format!("{place}/plain"));
        rig.create_partitioned(&format!("{place}/parts"), 2);
    }
    rig
}

#[test]
fn topics_are_listed_by_namespace() {
    let mut rig = with_topics();
    let parts = "persistent://acme/a/parts";
    let expected = [
        format!("{parts}-partition-0"),
        format!("{parts}-partition-1"),
        "persistent://acme/a/plain".to_owned(),
    ];
    assert_eq!(rig.names(namespace("acme/a", NamespaceCall::Topics)), expected);
    assert_eq!(rig.names(namespace("acme/a", NamespaceCall::PartitionedTopics)), [parts]);
    let (none, call) = ([""; 0], NamespaceCall::PartitionedTopics);
    assert_eq!(rig.names(namespace("public/default", call)), none);
}

#[test]
fn a_namespace_is_unloaded_alone() {
    let mut rig = with_topics();
    rig.produce_to(1, 1, "persistent://acme/a/plain");
    rig.produce_to(1, 2, "persistent://acme/a/parts-partition-1");
    rig.produce_to(1, 3, "persistent://acme2/a/plain");
    let (answer, effects) = rig.answer_and_effects(namespace("acme/a", NamespaceCall::Unload));
    assert_eq!(answer, DONE);
    let closed: Vec<u64> = effects
        .iter()
        .filter_map(|it| match it {
            Effect::Send(1, Command::CloseProducer(it)) => Some(it.producer_id),
            _ => None,
        })
        .collect();
    assert_eq!(closed, [2, 1], "partitions come first by name");
    rig.fill(1, 3, 1);
}

#[test]
fn a_namespace_with_topics_is_deleted_by_force_alone() {
    let reason = "namespace acme/a has topics";
    let mut rig = rig();
    rig.create("persistent://acme/a/plain");
    rig.refuses(delete("acme/a", false), 409, reason);
    assert_eq!(rig.answer(delete("acme/a", true)), DONE);
    assert!(rig.id_of("persistent://acme/a/plain").is_none());

    // A partitioned topic whose partitions were deleted one by one.
    let mut rig = self::rig();
    rig.create_partitioned("persistent://acme/a/parts", 1);
    let partition = "persistent://acme/a/parts-partition-0";
    assert_eq!(rig.answer(topic(partition, TopicCall::Delete { force: false })), DONE);
    rig.refuses(delete("acme/a", false), 409, reason);
    assert_eq!(rig.answer(delete("acme/a", true)), DONE);
    assert!(rig.machine.state.partitioned().next().is_none());

    let mut rig = with_topics();
    rig.refuses(delete("acme/a", false), 409, reason);
    assert_eq!(rig.answer(delete("acme/a", true)), DONE);
    assert_eq!(rig.names(of_tenant("acme")), [""; 0]);
    let place = "persistent://acme2/a";
    let left: Vec<_> = rig.machine.state.topics().map(|(_, it)| it.name.as_str()).collect();
    let parts = ["parts-partition-0", "parts-partition-1", "plain"];
    assert_eq!(left, parts.map(|it| format!("{place}/{it}")), "those of the other namespace");
    let left: Vec<_> = rig.machine.state.partitioned().collect();
    assert_eq!(left, [(format!("{place}/parts").as_str(), 2)]);
}

/// When a namespace was deleted by force, the policies and the schemas of its partitioned topics stayed: a new topic of the same
/// name, in a new namespace of the same name, began with them.
#[test]
fn nothing_of_a_deleted_namespace_comes_back() {
    let mut rig = rig();
    let before = rig.changes();
    let parts = "persistent://acme/a/parts";
    rig.create_partitioned(parts, 2);
    let call = TopicCall::SetPolicy(Policy::MessageTtl(Some(7)));
    assert_eq!(rig.answer(topic(parts, call)), DONE);
    let schema =
        NewSchema { kind: "JSON".to_owned(), data: "{}".to_owned(), properties: BTreeMap::new() };
    rig.answer(topic(parts, TopicCall::CreateSchema(schema))).unwrap();
    let call = NamespaceCall::SetPolicy(Policy::MessageTtl(Some(3)));
    assert_eq!(rig.answer(namespace("acme/a", call)), DONE);
    assert_eq!(rig.answer(delete("acme/a", true)), DONE);
    assert_eq!(rig.answer(create("acme/a")), DONE);
    let numbers = |it: &String| !it.starts_with("Numbers") && !it.starts_with("SetPolicies");
    let without = |changes: Vec<String>| changes.into_iter().filter(numbers).collect::<Vec<_>>();
    assert_eq!(without(rig.changes()), without(before));
    assert!(rig.machine.state.settings(parts).is_none());
    let policies = rig.answer(namespace("acme/a", NamespaceCall::Policies)).unwrap();
    assert_eq!(policies, AdminReply::Policies(Box::default()));
}
