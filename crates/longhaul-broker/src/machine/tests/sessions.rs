//! The handshake, requests of a connection, and their answers.

use super::support::{named, refusal, sent, shared, with_roles};
use super::*;
use crate::auth::tests::{token, with_secret};
use crate::machine::effect::RequestRefusal;
use longhaul_wire::messages::{
    CommandCloseConsumer, CommandCloseProducer, CommandConsumerStats, CommandGetLastMessageId,
    CommandGetOrCreateSchema, CommandGetSchema, CommandGetTopicsOfNamespace, CommandLookupTopic,
    CommandPartitionedTopicMetadata, CommandPing, CommandPong, CommandWatchTopicList,
    CommandWatchTopicListClose, LookupType, MetadataType, OtherRequest, TopicsMode,
};

const PONG: i32 = 19;
const ERROR: i32 = 14;

fn closes(effects: &[MachineEffect]) -> Vec<u64> {
    let conn = |effect: &MachineEffect| match effect {
        MachineEffect::Close(conn) => Some(*conn),
        _ => None,
    };
    effects.iter().filter_map(conn).collect()
}

fn connect(token: Option<String>) -> CommandConnect {
    CommandConnect {
        auth_method_name: token.is_some().then(|| "token".to_owned()),
        auth_data: token.map(Into::into),
        ..CommandConnect::default()
    }
}

/// The protocol version in the answer to CONNECT, or the error.
fn connected(effects: &[MachineEffect]) -> Result<i32, i32> {
    let found = sent(effects, |command| match command {
        Command::Connected(connected) => Some(Ok(connected.protocol_version())),
        Command::Error(error) => Some(Err(error.error)),
        _ => None,
    });
    found[0].1
}

#[test]
fn a_client_introduces_itself_first() {
    let mut rig = Rig::new();
    let totals = |rig: &Rig| {
        (rig.machine.totals.connections_accepted, rig.machine.totals.connections_refused)
    };
    assert_eq!(totals(&rig), (2, 0));
    rig.machine.opened(3, String::new());
    assert_eq!(names(&rig.ask(3, CommandPing {})), [PONG], "a look whether somebody is there");
    let effects = rig.ask(3, producer(1, 7, AccessMode::Shared));
    assert_eq!((refusal(&effects), closes(&effects)), (not_allowed(), vec![3]));
    assert!(rig.machine.live.is_empty() && totals(&rig) == (3, 1));
    let garbage =
        || ClientRequest::Garbage(RequestRefusal::new(ServerError::UnknownError, "no frame"));
    rig.machine.request(3, garbage());
    let effects = rig.settle();
    assert_eq!((names(&effects), closes(&effects)), (vec![], vec![3]), "it may not understand");
    assert_eq!(totals(&rig), (3, 2));
    rig.machine.request(1, garbage());
    let effects = rig.settle();
    assert_eq!(
        (refusal(&effects), closes(&effects)),
        (Some(ServerError::UnknownError.into()), vec![1])
    );
    let metadata = MessageMetadata::default();
    let message = verified(Payload::new(&metadata, b"x"));
    rig.machine.request(3, ClientRequest::Publish(CommandSend::default(), message));
    assert_eq!(refusal(&rig.settle()), not_allowed());
    assert!(rig.ask(9, CommandPing {}).is_empty(), "there is no such connection");
}

fn not_allowed() -> Option<i32> {
    Some(ServerError::NotAllowedError.into())
}

#[test]
fn a_client_is_served_the_protocol_that_both_speak() {
    let mut rig = Rig::new();
    for (conn, version, served) in
        [(3, Some(7), 7), (4, Some(21), 21), (5, Some(99), 21), (6, None, 0)]
    {
        rig.machine.opened(conn, String::new());
        let client_version = "v".repeat(150);
        let connect = CommandConnect { protocol_version: version, client_version, ..connect(None) };
        let effects = rig.ask(conn, connect);
        assert_eq!(connected(&effects), Ok(served));
        let told = sent(&effects, |command| match command {
            Command::Connected(connected) => Some(connected.max_message_size()),
            _ => None,
        });
        assert_eq!(told, [(conn, 4000)]);
        assert_eq!(rig.machine.sessions[&conn].client.len(), 100);
    }
}

#[test]
fn a_token_counts_until_it_expires() {
    let mut rig = Rig::guarded(Some(Arc::new(with_secret())), [None, None]);
    let second = START / 1000;
    let refused = Err(i32::from(ServerError::AuthenticationError));
    for (conn, token, expected) in [
        (3, Some(token(&format!(r#"{{"sub":"a","exp":{}}}"#, second + 100))), Ok(0)),
        (4, Some(token(&format!(r#"{{"sub":"a","exp":{}}}"#, second - 100))), refused),
        (5, Some("no token".to_owned()), refused),
        (6, None, refused),
    ] {
        rig.machine.opened(conn, String::new());
        let effects = rig.ask(conn, connect(token));
        assert_eq!(connected(&effects), expected);
        assert_eq!(closes(&effects), if expected.is_ok() { vec![] } else { vec![conn] });
    }
}

/// Each request gets an answer of its own kind, and the connection continues.
#[test]
fn every_request_is_answered() {
    let mut rig = Rig::with_producer();
    rig.subscribe(1, 5, |_| {});
    let topic = || TOPIC.to_owned();
    let other = OtherRequest { request_id: 6 };
    let requests: [(Command, &[i32]); 21] = [
        (CommandPing {}.into(), &[PONG]),
        (CommandPong {}.into(), &[]),
        (CommandPartitionedTopicMetadata { topic: topic(), ..Default::default() }.into(), &[22]),
        (CommandLookupTopic { topic: topic(), ..Default::default() }.into(), &[24]),
        (CommandConsumerStats { consumer_id: 5, request_id: 6 }.into(), &[26]),
        (CommandGetLastMessageId { consumer_id: 5, request_id: 6 }.into(), &[30]),
        (CommandGetLastMessageId { consumer_id: 9, request_id: 6 }.into(), &[ERROR]),
        (CommandGetTopicsOfNamespace::default().into(), &[33]),
        (CommandGetSchema { topic: topic(), ..Default::default() }.into(), &[35]),
        (CommandGetOrCreateSchema { topic: topic(), ..Default::default() }.into(), &[40]),
        (Command::NewTxn(other), &[ERROR]),
        (Command::AddPartitionToTxn(other), &[ERROR]),
        (Command::AddSubscriptionToTxn(other), &[ERROR]),
        (Command::EndTxn(other), &[ERROR]),
        (Command::EndTxnOnPartition(other), &[ERROR]),
        (Command::EndTxnOnSubscription(other), &[ERROR]),
        (Command::TcClientConnect(other), &[ERROR]),
        (CommandWatchTopicList { request_id: 6, ..Default::default() }.into(), &[65]),
        (CommandWatchTopicListClose { request_id: 6, watcher_id: 0 }.into(), &[13]),
        (CommandCloseConsumer::new(5, 6).into(), &[13]),
        (CommandCloseProducer::new(1, 6).into(), &[13]),
    ];
    for (request, answer) in requests {
        let text = format!("{request:?}");
        let effects = rig.ask(1, request);
        assert_eq!(names(&effects), answer, "{text}");
        assert!(closes(&effects).is_empty(), "{text}");
        let requests = sent(&effects, |command| match command {
            Command::Error(error) => Some(error.request_id),
            _ => None,
        });
        assert!(requests.iter().all(|found| *found == (1, 6)), "{text}");
    }
}

#[test]
fn a_client_that_is_out_of_step_is_refused() {
    for command in [connect(None).into(), Command::Send(CommandSend::default())] {
        let mut rig = Rig::new();
        let effects = rig.ask(1, command);
        assert_eq!((refusal(&effects), closes(&effects)), (not_allowed(), vec![1]));
    }
}

/// A client that withdraws its request before the holder has answered must not get the place later.
#[test]
fn who_closes_what_it_asked_for_does_not_get_it_later() {
    for gives_up in [false, true] {
        let mut rig = Rig::new();
        rig.subscribe(1, 5, |_| {});
        rig.produce(1, 1, AccessMode::Shared).unwrap();
        rig.ask(2, consumer(5));
        rig.ask(2, CommandProducer { producer_id: 3, ..producer(1, 7, AccessMode::Shared) });
        if gives_up {
            rig.ask(2, CommandCloseConsumer::new(5, 6));
            rig.ask(2, CommandCloseProducer::new(3, 6));
        } else {
            // Withdrawing other requests changes nothing.
            rig.ask(2, CommandCloseConsumer::new(6, 6));
            rig.ask(2, CommandCloseProducer::new(4, 6));
        }
        rig.machine.closed(1);
        let effects = rig.settle();
        let entered = names(&effects);
        assert_eq!(entered, if gives_up { vec![] } else { vec![13, 17] });
    }
}

#[test]
fn what_a_connection_leaves_behind_is_tidied_up() {
    let mut rig = Rig::new();
    rig.produce(1, 1, AccessMode::Exclusive).unwrap();
    rig.produce(2, 2, AccessMode::WaitForExclusive).unwrap();
    rig.publish(1, 1, b"x");
    assert_eq!(rig.subscribe(1, 5, shared), [0]);
    assert_eq!(rig.subscribe(2, 5, shared), [0; 0]);
    rig.machine.closed(1);
    let effects = rig.settle();
    assert_eq!((names(&effects), delivered(&effects)), (vec![17], vec![0]));
    assert!(!rig.machine.sessions.contains_key(&1));
    rig.machine.closed(1);
    assert!(rig.settle().is_empty(), "it is gone");
}

#[test]
fn so_many_closed_producers_are_remembered() {
    let mut rig = Rig::new();
    let session = rig.machine.sessions.get_mut(&1).unwrap();
    (0..10_000).for_each(|producer| session.record_closed(producer));
    assert_eq!(session.closed.len(), 10_000);
    session.record_closed(77);
    assert_eq!(session.closed.len(), 1, "all begin anew");
}

#[test]
fn a_connection_that_was_full_to_the_last_byte_goes_on() {
    let mut rig = Rig::with_producer();
    (0..3).for_each(|_| drop(rig.publish(1, 1, b"x")));
    let size = u64::from(rig.topic().entries.get(0).unwrap().location.size);
    rig.machine.settings.window_bytes = 2 * size;
    rig.machine.resize_windows();
    assert_eq!(rig.subscribe(1, 5, |_| {}), [0, 1]);
    rig.machine.written(1, 1);
    assert_eq!(delivered(&rig.settle()), [2]);
    rig.machine.written(1, 3 * size - 1);
    assert_eq!(rig.machine.totals.bytes_out, 3 * size);
    assert_eq!(rig.machine.sessions[&1].under_way, 0);
    rig.machine.written(9, 7);
}

/// Two roles with one permission each, and `root` and `nobody` on the connections 3 and 4.
fn guarded() -> Rig {
    let mut rig = with_roles();
    for (conn, name) in [(3, "root"), (4, "nobody")] {
        rig.machine.opened(conn, String::new());
        assert!(connected(&rig.ask(conn, connect(Some(named(name))))).is_ok());
    }
    rig
}

#[test]
fn who_may_use_nothing_learns_nothing() {
    let mut rig = guarded();
    assert_eq!(refusal(&rig.ask(3, producer(1, 7, AccessMode::Shared))), None, "root may all");
    for (conn, may) in [(1, true), (2, true), (3, true), (4, false)] {
        let topic = || TOPIC.to_owned();
        let denied = (!may).then_some(i32::from(ServerError::AuthorizationError));
        let lookup = CommandLookupTopic { topic: topic(), request_id: 8, ..Default::default() };
        let found = sent(&rig.ask(conn, lookup), |command| match command {
            Command::LookupResponse(response) => Some(response.clone()),
            _ => None,
        });
        let response = &found[0].1;
        let url = may.then(|| "pulsar://test:6650".to_owned());
        assert_eq!(
            (response.request_id, response.error, &response.broker_service_url),
            (8, denied, &url)
        );
        let kind = if may { LookupType::Connect } else { LookupType::Failed };
        assert_eq!((response.response, response.message.is_some()), (Some(kind.into()), !may));
        let metadata =
            CommandPartitionedTopicMetadata { topic: topic(), request_id: 8, ..Default::default() };
        let found = sent(&rig.ask(conn, metadata), |command| match command {
            Command::PartitionedMetadataResponse(response) => Some(response.clone()),
            _ => None,
        });
        let response = &found[0].1;
        assert_eq!(
            (response.request_id, response.error, response.partitions),
            (8, denied, may.then_some(0))
        );
        let kind = if may { MetadataType::Success } else { MetadataType::Failed };
        assert_eq!((response.response, response.message.is_some()), (Some(kind.into()), !may));
        for (mode, is_listed) in [
            (None, may),
            (Some(TopicsMode::Persistent), may),
            (Some(TopicsMode::All), may),
            (Some(TopicsMode::NonPersistent), false),
        ] {
            let list = CommandGetTopicsOfNamespace {
                namespace: "public/default".to_owned(),
                mode: mode.map(Into::into),
                ..Default::default()
            };
            let found = sent(&rig.ask(conn, list), |command| match command {
                Command::GetTopicsOfNamespaceResponse(response) => Some(response.topics.clone()),
                _ => None,
            });
            let expected = if is_listed { vec![topic()] } else { vec![] };
            assert_eq!(found, [(conn, expected)], "{mode:?}");
        }
    }
}

/// The text names the denied action, which is what the operator has to grant.
#[test]
fn who_is_refused_learns_what_it_may_not_do() {
    let mut rig = guarded();
    let text = |effects: &[MachineEffect]| {
        sent(effects, |command| match command {
            Command::Error(error) => Some(error.message.clone()),
            _ => None,
        })
    };
    let found = text(&rig.ask(4, producer(1, 7, AccessMode::Shared)));
    assert_eq!(
        found,
        [(
            4,
            "role nobody may not produce in public/default: ask a superuser for a grant".to_owned()
        )]
    );
    let subscribe = CommandSubscribe { topic: TOPIC.to_owned(), ..CommandSubscribe::default() };
    let found = text(&rig.ask(4, subscribe));
    assert_eq!(
        found,
        [(
            4,
            "role nobody may not consume in public/default: ask a superuser for a grant".to_owned()
        )]
    );
}
