//! Tenants and namespaces.

use super::*;
use crate::admin::values::NewSchema;
use crate::policies::{AuthAction, Grants, Policies};

fn create(name: &str) -> Ask<()> {
    namespace(name, move |machine, name| machine.create_namespace(name, Vec::new()))
}

fn delete(name: &str, force: bool) -> Ask<()> {
    namespace(name, move |machine, name| machine.delete_namespace(name, force))
}

fn of_tenant(tenant: &str) -> Ask<Vec<String>> {
    namespace(tenant, |machine, name| machine.namespaces_of(name))
}

fn create_tenant(name: &str) -> Ask<()> {
    namespace(name, BrokerMachine::create_tenant)
}

fn delete_tenant(name: &str) -> Ask<()> {
    namespace(name, BrokerMachine::delete_tenant)
}

/// A rig with the tenants `acme` and `acme2`, each with the namespace `a`.
fn rig() -> Rig {
    let mut rig = Rig::new();
    for tenant in ["acme", "acme2"] {
        assert_eq!(rig.answer(create_tenant(tenant)), DONE);
        assert_eq!(rig.answer(create(&format!("{tenant}/a"))), DONE);
    }
    rig
}

#[test]
fn tenants_and_namespaces_are_listed() {
    let mut rig = rig();
    assert_eq!(rig.machine.tenants(), ["acme", "acme2", "public"]);
    assert_eq!(rig.answer(of_tenant("acme")).unwrap(), ["acme/a"], "not those of `acme2`");
    assert_eq!(rig.answer(of_tenant("public")).unwrap(), ["public/default"]);
    rig.refuses(of_tenant("nobody"), 404, "tenant nobody does not exist");
}

#[test]
fn a_tenant_and_a_namespace_are_created_once() {
    let mut rig = rig();
    rig.refuses(create_tenant("acme"), 409, "tenant acme exists");
    rig.refuses(create("acme/a"), 409, "namespace acme/a exists");
    rig.refuses(create("nobody/a"), 404, "tenant nobody does not exist");
    assert_eq!(rig.answer(create("acme/b")), DONE);
    assert_eq!(rig.answer(of_tenant("acme")).unwrap(), ["acme/a", "acme/b"]);
}

#[test]
fn a_tenant_goes_after_its_namespaces() {
    let mut rig = rig();
    rig.refuses(delete_tenant("nobody"), 404, "tenant nobody does not exist");
    rig.refuses(delete_tenant("acme"), 409, "tenant acme has namespaces");
    assert_eq!(rig.answer(delete("acme/a", false)), DONE);
    assert_eq!(rig.answer(delete_tenant("acme")), DONE, "`acme2` is another one");
    assert_eq!(rig.machine.tenants(), ["acme2", "public"]);
    rig.refuses(of_tenant("acme"), 404, "");
}

#[test]
fn a_namespace_that_does_not_exist_has_nothing() {
    let mut rig = rig();
    for call in [
        on_namespace(|machine, name| machine.delete_namespace(name, false)),
        on_namespace(|machine, name| machine.delete_namespace(name, true)),
        on_namespace(|machine, name| machine.topics_of(name).map(drop)),
        on_namespace(|machine, name| machine.partitioned_topics_of(name).map(drop)),
        on_namespace(|machine, name| machine.namespace_settings(name).map(drop)),
        on_namespace(move |machine, name| {
            machine.set_namespace_policy(name, |policies| policies.message_ttl_s = Some(1))
        }),
        on_namespace(move |machine, name| {
            machine.set_namespace_grants(name, |grants| {
                grants.grant("role", vec![AuthAction::Produce])
            })
        }),
        on_namespace(move |machine, name| {
            machine.set_namespace_grants(name, |grants| grants.revoke("role"))
        }),
    ] {
        rig.refuses(namespace("acme/none", call), 404, "namespace acme/none does not exist");
    }
}

#[test]
fn a_namespace_starts_with_its_policies() {
    let mut rig = rig();
    let policies = [
        Box::new(|policies: &mut Policies| policies.message_ttl_s = Some(7)) as PolicyChange,
        Box::new(|policies: &mut Policies| policies.deduplication = Some(true)),
    ];
    let call = on_namespace(move |machine, name| machine.create_namespace(name, policies.into()));
    assert_eq!(rig.answer(namespace("acme/b", call)), DONE);
    let policies = |rig: &mut Rig, name: &str| {
        let settings = namespace(name, |machine, name| machine.namespace_settings(name));
        rig.answer(settings).unwrap().policies
    };
    let expected =
        Policies { message_ttl_s: Some(7), deduplication: Some(true), ..Policies::default() };
    assert_eq!(policies(&mut rig, "acme/b"), expected);
    assert_eq!(policies(&mut rig, "acme/a"), Policies::default());
    let call = on_namespace(move |machine, name| {
        machine.set_namespace_policy(name, |policies| policies.message_ttl_s = Some(3))
    });
    assert_eq!(rig.answer(namespace("acme/a", call)), DONE);
    let expected = Policies { message_ttl_s: Some(3), ..Policies::default() };
    assert_eq!(policies(&mut rig, "acme/a"), expected);
}

#[test]
fn grants_come_and_go() {
    let mut rig = rig();
    let grants = |rig: &mut Rig| {
        let settings = namespace("acme/a", |machine, name| machine.namespace_settings(name));
        rig.answer(settings).unwrap().grants
    };
    assert_eq!(grants(&mut rig), Grants::default());
    let call = on_namespace(move |machine, name| {
        machine
            .set_namespace_grants(name, |grants| grants.grant("worker", vec![AuthAction::Consume]))
    });
    assert_eq!(rig.answer(namespace("acme/a", call)), DONE);
    assert_eq!(grants(&mut rig).shown(), [("worker".to_owned(), vec![AuthAction::Consume])].into());
    let call = on_namespace(move |machine, name| {
        machine.set_namespace_grants(name, |grants| grants.revoke("worker"))
    });
    assert_eq!(rig.answer(namespace("acme/a", call)), DONE);
    assert!(grants(&mut rig).shown().is_empty());
    let allowed = grants(&mut rig).allow("worker", AuthAction::Consume);
    assert_eq!(allowed, Some(false), "the namespace stays closed");
}

/// A rig with topics in two namespaces: an unpartitioned and a partitioned one in each.
fn with_topics() -> Rig {
    let mut rig = rig();
    for location in ["persistent://acme/a", "persistent://acme2/a"] {
        rig.create(&format!("{location}/plain"));
        rig.create_partitioned(&format!("{location}/parts"), 2);
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
    assert_eq!(
        rig.answer(namespace("acme/a", |machine, name| machine.topics_of(name))).unwrap(),
        expected
    );
    assert_eq!(
        rig.answer(namespace("acme/a", |machine, name| machine.partitioned_topics_of(name)))
            .unwrap(),
        [parts]
    );
    let (none, call) = ([""; 0], on_namespace(|machine, name| machine.partitioned_topics_of(name)));
    assert_eq!(rig.answer(namespace("public/default", call)).unwrap(), none);
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
    assert_eq!(
        rig.answer(topic(partition, |machine, name| machine.remove_topic(name, false))),
        DONE
    );
    rig.refuses(delete("acme/a", false), 409, reason);
    assert_eq!(rig.answer(delete("acme/a", true)), DONE);
    assert!(rig.machine.state.partitioned().next().is_none());

    let mut rig = with_topics();
    rig.refuses(delete("acme/a", false), 409, reason);
    assert_eq!(rig.answer(delete("acme/a", true)), DONE);
    assert_eq!(rig.answer(of_tenant("acme")).unwrap(), [""; 0]);
    let location = "persistent://acme2/a";
    let left: Vec<_> = rig.machine.state.topics().map(|(_, topic)| topic.name.as_str()).collect();
    let parts = ["parts-partition-0", "parts-partition-1", "plain"];
    assert_eq!(
        left,
        parts.map(|part| format!("{location}/{part}")),
        "those of the other namespace"
    );
    let left: Vec<_> = rig.machine.state.partitioned().collect();
    assert_eq!(left, [(format!("{location}/parts").as_str(), 2)]);
}

/// When a namespace was deleted by force, the policies and schemas of its partitioned topics
/// stayed: a new topic of the same name in a new namespace of the same name got them.
#[test]
fn nothing_of_a_deleted_namespace_comes_back() {
    let mut rig = rig();
    let before = rig.changes();
    let parts = "persistent://acme/a/parts";
    rig.create_partitioned(parts, 2);
    let call = on_topic(move |machine, name| {
        machine.set_policy(name, |policies| policies.message_ttl_s = Some(7))
    });
    assert_eq!(rig.answer(topic(parts, call)), DONE);
    let schema =
        NewSchema { kind: "JSON".to_owned(), data: "{}".to_owned(), properties: BTreeMap::new() };
    rig.answer(topic(parts, move |machine, name| machine.add_schema(name, schema))).unwrap();
    let call = on_namespace(move |machine, name| {
        machine.set_namespace_policy(name, |policies| policies.message_ttl_s = Some(3))
    });
    assert_eq!(rig.answer(namespace("acme/a", call)), DONE);
    assert_eq!(rig.answer(delete("acme/a", true)), DONE);
    assert_eq!(rig.answer(create("acme/a")), DONE);
    let numbers =
        |change: &String| !change.starts_with("Numbers") && !change.starts_with("SetPolicies");
    let without = |changes: Vec<String>| changes.into_iter().filter(numbers).collect::<Vec<_>>();
    assert_eq!(without(rig.changes()), without(before));
    assert!(rig.machine.state.settings(parts).is_none());
    let settings = namespace("acme/a", |machine, name| machine.namespace_settings(name));
    assert_eq!(rig.answer(settings).unwrap().policies, Policies::default());
}

/// A grant took half a second with 100,000 topics in the namespace, in which nobody else was
/// answered: the policies of each topic were composed anew.
#[test]
fn a_grant_does_not_visit_the_topics() {
    let mut rig = Rig::new();
    rig.create("t");
    let policies = |rig: &Rig| Arc::clone(&rig.machine.live[&0].policies);
    let before = policies(&rig);
    let grant = |machine: &mut BrokerMachine, name: &str| {
        machine.set_namespace_grants(name, |it| it.grant("ann", vec![AuthAction::Produce]))
    };
    assert_eq!(rig.answer(namespace("public/default", on_namespace(grant))), DONE);
    assert!(Arc::ptr_eq(&policies(&rig), &before));
    assert!(rig.machine.shown.is_empty());
    let limit = |machine: &mut BrokerMachine, name: &str| {
        machine.set_namespace_policy(name, |policies| policies.message_ttl_s = Some(5))
    };
    assert_eq!(rig.answer(namespace("public/default", on_namespace(limit))), DONE);
    assert!(!Arc::ptr_eq(&policies(&rig), &before));
}
