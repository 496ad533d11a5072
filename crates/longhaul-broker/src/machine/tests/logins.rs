//! Periodic checks of open connections.

use super::support::{grants, named, refusal, sent, shared, with_roles};
use super::*;
use crate::auth::tests::{token, with_open_namespaces, with_secret};
use crate::policies::{AuthAction, Grants, Tenant};
use bytes::Bytes;
use longhaul_wire::messages::{AuthData, CommandAuthResponse, FeatureFlags};

/// Ids with their connections.
type Handles = Vec<(u64, u64)>;

/// The closed producers and consumers.
fn closed(effects: &[MachineEffect]) -> (Handles, Handles) {
    let producer = |command: &Command| match command {
        Command::CloseProducer(close) => Some(close.producer_id),
        _ => None,
    };
    let consumer = |command: &Command| match command {
        Command::CloseConsumer(close) => Some(close.consumer_id),
        _ => None,
    };
    (sent(effects, producer), sent(effects, consumer))
}

fn ends(effects: &[MachineEffect]) -> Vec<u64> {
    let conn = |effect: &MachineEffect| match effect {
        MachineEffect::Close(conn) => Some(*conn),
        _ => None,
    };
    effects.iter().filter_map(conn).collect()
}

const DENIED: ServerError = ServerError::AuthorizationError;
const UNKNOWN: ServerError = ServerError::AuthenticationError;

/// Administrators of a tenant may publish and consume there, as in Pulsar, for as long as they are
/// administrators.
#[test]
fn who_administers_a_tenant_may_use_its_topics() {
    let mut rig = Rig::guarded(Some(Arc::new(with_secret())), [Some(named("boss")), None]);
    let set = |rig: &mut Rig, roles: &[&str]| {
        let admin_roles = roles.iter().map(|&role| role.to_owned()).collect();
        let tenant = Tenant { admin_roles, ..Tenant::default() };
        rig.machine.call(1, |machine| machine.set_tenant("public", tenant)).unwrap();
        rig.settle()
    };
    assert_eq!(refusal(&rig.ask(1, producer(1, 7, AccessMode::Shared))), Some(DENIED.into()));
    set(&mut rig, &["boss"]);
    assert_eq!(refusal(&rig.ask(1, producer(1, 7, AccessMode::Shared))), None);
    assert_eq!(closed(&set(&mut rig, &["boss", "chief"])).0, []);
    assert_eq!(closed(&set(&mut rig, &["chief"])).0, [(1, 1)]);
    assert_eq!(refusal(&rig.ask(1, producer(1, 8, AccessMode::Shared))), Some(DENIED.into()));
}

/// Clients that an upgrade had locked out left no line in the log.
#[test]
fn what_a_role_may_not_do_is_told_once_a_minute() {
    let mut rig = Rig::guarded(Some(Arc::new(with_secret())), [Some(named("one")), None]);
    let told = |rig: &mut Rig| {
        let effects = rig.ask(1, producer(1, 7, AccessMode::Shared));
        assert_eq!(refusal(&effects), Some(DENIED.into()));
        let text = |effect: &MachineEffect| match effect {
            MachineEffect::Warn(text) => Some(text.clone()),
            _ => None,
        };
        effects.iter().filter_map(text).collect::<Vec<_>>()
    };
    let first = told(&mut rig);
    let [text] = &first[..] else { panic!("{first:?}") };
    assert!(text.starts_with("a request from "), "{text}");
    assert!(text.contains("role one may not produce in public/default"), "{text}");
    assert!(text.ends_with("ask a superuser for a grant"), "{text}");
    assert_eq!(told(&mut rig), [""; 0]);
    rig.pass(60_000);
    assert!(told(&mut rig)[0].ends_with("(1 more since this was last logged)"));
}

#[test]
fn namespaces_that_only_superusers_may_use_are_known() {
    let mut rig = Rig::guarded(Some(Arc::new(with_open_namespaces())), [Some(named("one")), None]);
    assert!(rig.machine.namespaces_without_grants().is_empty(), "they have no topics");
    assert_eq!(rig.produce(1, 1, AccessMode::Shared), Ok(true));
    assert!(rig.machine.namespaces_without_grants().into_iter().eq(["public/default"]));
    let one = |grants: &mut Grants| grants.grant("one", vec![AuthAction::Produce]);
    grants(&mut rig, one);
    assert!(rig.machine.namespaces_without_grants().is_empty());
}

/// A role without a grant could do everything in a namespace without grants.
#[test]
fn without_a_grant_a_role_may_nothing_unless_namespaces_are_open() {
    let tokens = || ["one", "two"].map(|name| Some(named(name)));
    let mut rig = Rig::guarded(Some(Arc::new(with_secret())), tokens());
    let effects = rig.ask(1, producer(1, 7, AccessMode::Shared));
    assert_eq!(refusal(&effects), Some(DENIED.into()));
    assert!(rig.machine.state.topics().next().is_none(), "nothing is created");
    let mut rig = Rig::guarded(Some(Arc::new(with_open_namespaces())), tokens());
    assert_eq!(rig.produce(1, 1, AccessMode::Shared), Ok(true));
    rig.publish(1, 1, b"x");
    assert_eq!(rig.subscribe(2, 5, |_| {}), [0]);
    // The first grant closes the namespace to all other roles, and their producers and consumers
    // are closed.
    let one = |grants: &mut Grants| grants.grant("one", vec![AuthAction::Produce]);
    assert_eq!(closed(&grants(&mut rig, one)), (vec![], vec![(2, 5)]));
}

#[test]
fn who_loses_a_grant_loses_what_is_open() {
    let mut rig = with_roles();
    let grant = |role: &'static str, actions: &'static [AuthAction]| {
        move |grants: &mut Grants| grants.grant(role, actions.to_vec())
    };
    grants(&mut rig, grant("producer", &[AuthAction::Produce, AuthAction::Consume]));
    assert_eq!(rig.produce(1, 1, AccessMode::Shared), Ok(true));
    assert_eq!(rig.subscribe(2, 5, shared), [0; 0]);
    rig.publish(1, 1, b"x");
    assert_eq!(delivered(&grants(&mut rig, grant("another", &[AuthAction::Consume]))), [0; 0]);
    // The entry that the closed consumer held goes to the other one.
    assert_eq!(rig.subscribe(1, 6, shared), [0; 0]);
    let effects = grants(&mut rig, |grants| grants.revoke("consumer"));
    assert_eq!(closed(&effects), (vec![], vec![(2, 5)]));
    assert_eq!(delivered(&effects), [0]);
    assert_eq!(refusal(&rig.ask(2, consumer(5))), Some(DENIED.into()));
    let effects = grants(&mut rig, grant("producer", &[AuthAction::Consume]));
    assert_eq!(closed(&effects), (vec![(1, 1)], vec![]), "it may still consume");
    assert!(names(&rig.publish(1, 1, b"y")).is_empty(), "what was under way is not answered");
    let effects = rig.ask(1, producer(1, 7, AccessMode::Shared));
    assert_eq!(refusal(&effects), Some(DENIED.into()));
    assert_eq!(rig.topic().entries.end(), 1);
}

/// A client on connection 3 whose token expires after 100 s, with a consumer and a producer.
fn with_short_token(renews: bool) -> Rig {
    let mut rig = with_roles();
    let actions = vec![AuthAction::Produce, AuthAction::Consume];
    grants(&mut rig, |grants| grants.grant("short", actions));
    rig.machine.opened(3, "/host:1".to_owned());
    let connect = CommandConnect {
        auth_method_name: Some("token".to_owned()),
        auth_data: Some(short(100).into()),
        feature_flags: Some(FeatureFlags {
            supports_auth_refresh: Some(renews),
            ..FeatureFlags::default()
        }),
        ..CommandConnect::default()
    };
    rig.ask(3, connect);
    assert_eq!(rig.produce(3, 1, AccessMode::Exclusive), Ok(true));
    rig.subscribe(3, 5, |_| {});
    rig
}

/// A token that expires this many seconds after the start.
fn short(seconds: u64) -> String {
    token(&format!(r#"{{"sub":"short","exp":{}}}"#, START / 1000 + seconds))
}

fn shows(rig: &mut Rig, token: String) -> Vec<MachineEffect> {
    let response =
        AuthData { auth_method_name: Some("token".to_owned()), auth_data: Some(token.into()) };
    rig.ask(3, CommandAuthResponse { response: Some(response), ..CommandAuthResponse::default() })
}

#[track_caller]
fn is_ended(rig: &Rig, effects: &[MachineEffect]) {
    assert_eq!((refusal(effects), ends(effects)), (Some(UNKNOWN.into()), vec![3]));
    assert!(!rig.machine.sessions.contains_key(&3));
    assert!(
        rig.machine.live.values().all(|topic| topic.dispatchers.is_empty()),
        "its consumer is gone"
    );
}

/// An expired token remained valid for as long as its connection stayed open.
#[test]
fn a_token_that_ends_ends_the_connection_of_who_has_no_other() {
    let mut rig = with_short_token(false);
    assert!(ends(&rig.pass(99_000)).is_empty());
    let effects = rig.pass(1_000);
    is_ended(&rig, &effects);
    assert!(rig.ask(3, producer(1, 7, AccessMode::Shared)).is_empty(), "nobody hears it any more");
}

#[test]
fn who_shows_a_new_token_keeps_the_connection() {
    let mut rig = with_short_token(true);
    let effects = rig.pass(100_000);
    let asked = sent(&effects, |command| match command {
        Command::AuthChallenge(challenge) => challenge.challenge.clone()?.auth_data,
        _ => None,
    });
    assert_eq!(asked, [(3, Bytes::from_static(b"PulsarAuthRefresh"))]);
    assert!(ends(&effects).is_empty());
    assert!(rig.pass(1_000).is_empty(), "it is asked once");
    assert!(shows(&mut rig, short(200)).is_empty());
    assert!(ends(&rig.pass(60_000)).is_empty(), "it had until then");
    assert_eq!(rig.machine.sessions[&3].consumers.len(), 1);
    assert_eq!(names(&rig.pass(60_000)), [36], "it is asked again when the next one ends");
}

#[test]
fn who_shows_none_in_time_or_that_of_another_is_ended() {
    let mut rig = with_short_token(true);
    rig.pass(100_000);
    assert!(ends(&rig.pass(30_000)).is_empty());
    let effects = rig.pass(1_000);
    is_ended(&rig, &effects);
    for wrong in [short(100), named("root"), "no token".to_owned()] {
        let mut rig = with_short_token(true);
        rig.pass(100_000);
        let effects = shows(&mut rig, wrong);
        is_ended(&rig, &effects);
    }
}

/// Regression: after a pause of 30 s, or while the disk hung, a client was ended whose new token was
/// there, unread.
#[test]
fn a_pause_of_the_broker_ends_no_login() {
    let mut rig = with_short_token(true);
    rig.pass(100_000);
    rig.machine.set_listening(false);
    assert!(ends(&rig.pass(60_000)).is_empty());
    rig.machine.set_listening(true);
    assert!(ends(&rig.stall(60_000)).is_empty());
    assert!(ends(&rig.pass(29_000)).is_empty(), "30 s are really heard");
    assert!(shows(&mut rig, short(400)).is_empty());
    assert!(ends(&rig.pass(60_000)).is_empty());
}

/// A grant for one topic opens no other topic, and is revoked like any other grant.
#[test]
fn a_grant_may_be_for_one_topic() {
    let mut rig = with_roles();
    grants(&mut rig, |grants| grants.revoke("producer"));
    rig.call(|machine, name| machine.make_topic(name));
    let denied = |rig: &mut Rig, topic: &str| {
        let command =
            CommandProducer { topic: topic.to_owned(), ..producer(1, 7, AccessMode::Shared) };
        refusal(&rig.ask(1, command)) == Some(DENIED.into())
    };
    assert!(denied(&mut rig, TOPIC));
    let grant = |grants: &mut Grants| grants.grant("producer", vec![AuthAction::Produce]);
    rig.call(|machine, name| machine.set_grants(name, grant));
    assert!(denied(&mut rig, "persistent://public/default/other"));
    assert!(!denied(&mut rig, TOPIC));
    let shown = rig.asked(TOPIC, |machine, name| machine.grants(name)).0.unwrap().shown();
    let roles: Vec<&String> = shown.keys().collect();
    assert_eq!(roles, ["consumer", "producer"], "those of the namespace, too");
    let revoke = |grants: &mut Grants| grants.revoke("producer");
    let effects = rig.call(|machine, name| machine.set_grants(name, revoke));
    assert_eq!(closed(&effects), (vec![(1, 1)], vec![]));
    assert!(denied(&mut rig, TOPIC));
}
