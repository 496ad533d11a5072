//! The start of a connection, and detection of a dead peer.

use super::super::ConnectionTimeouts;
use super::*;
use longhaul_transport::TransportErrorKind;
use longhaul_wire::messages::{CommandAuthChallenge, CommandPing, CommandPong};

fn connected(protocol_version: i32, max_message_size: Option<i32>) -> CommandConnected {
    CommandConnected {
        server_version: "test".to_owned(),
        protocol_version: Some(protocol_version),
        max_message_size,
        feature_flags: None,
    }
}

#[test]
fn a_connection_introduces_itself_and_says_nothing_more_until_it_is_taken_in() {
    let greeting = Greeting {
        auth_method: "token",
        auth_data: Some(Bytes::from_static(b"secret").into()),
        behind_proxy: Some("broker:6650".to_owned()),
        ..Greeting::default()
    };
    let mut bench = Bench::new(greeting);
    let [Command::Connect(connect)] = &bench.commands()[..] else { panic!("one CONNECT") };
    assert_eq!(connect.auth_method_name.as_deref(), Some("token"));
    assert_eq!(connect.auth_data.as_deref(), Some(&b"secret"[..]));
    assert_eq!(connect.proxy_to_broker_url.as_deref(), Some("broker:6650"));
    bench.says(connected(21, None));
    assert!(bench.machine.is_open() && bench.commands().is_empty());
}

#[test]
fn a_broker_without_receipts_for_acks_is_too_old() {
    let mut bench = Bench::new(Greeting::default());
    bench.says(connected(16, None));
    let end = bench.machine.end().unwrap();
    assert_eq!(end.kind, TransportErrorKind::Refused);
    assert!(end.cause.contains("too old"), "{end}");
}

/// A broker refused a client certificate, which has no bytes to show. The error said that no token
/// was given, although none was needed.
#[test]
fn refused_credentials_are_told_from_missing_ones() {
    let check = |auth_method, data: Option<&'static [u8]>, hint: bool| {
        let auth_data = data.map(|data| Bytes::from_static(data).into());
        let mut bench = Bench::new(Greeting { auth_method, auth_data, ..Greeting::default() });
        bench.refuses(u64::MAX, ServerError::AuthenticationError);
        let end = bench.machine.end().unwrap();
        assert_eq!(end.kind, TransportErrorKind::Unauthorized);
        assert_eq!(end.cause.contains("no token was given"), hint, "{end}");
    };
    check("none", None, true);
    check("token", Some(b"wrong"), false);
    check("tls", None, false);
}

#[test]
fn debug_hides_the_credentials() {
    let secret = || Some(Bytes::from_static(b"secret").into());
    let greeting = Greeting { auth_method: "token", auth_data: secret(), ..Greeting::default() };
    let call: ConnectionCall<u32, u32> = ConnectionCall::Credentials(Ok(secret()));
    let mut shown = format!("{greeting:?} {call:?}");
    let mut bench = Bench::new(greeting);
    // The credentials wait to be written.
    shown.push_str(&format!("{:?}", bench.machine));
    bench.commands();
    bench.says(connected(21, None));
    bench.call(call);
    shown.push_str(&format!("{:?}", bench.machine));
    assert!(!shown.contains("secret"), "{shown}");
    assert!(matches!(&bench.commands()[..], [Command::AuthResponse(_)]));
}

#[test]
fn what_is_no_answer_to_a_greeting_ends_it() {
    let mut bench = Bench::new(Greeting::default());
    bench.says(CommandSuccess { request_id: 1, schema: None });
    assert!(bench.machine.end().unwrap().cause.contains("command 13"));
}

/// One command that this version does not know ended the connection, with all its sessions.
#[test]
fn what_only_newer_brokers_say_is_skipped() {
    const UNKNOWN: u8 = 100;
    let unknown = [0, 0, 0, 6, 0, 0, 0, 2, 8, UNKNOWN];
    let mut bench = Bench::new(Greeting::default());
    bench.says(connected(21, None));
    bench.says_bytes(&unknown);
    assert!(bench.machine.end().is_none());
    bench.says(CommandPing {});
    assert!(matches!(&bench.commands()[..], [.., Command::Pong(_)]));
    // An unknown command is not an answer to the handshake.
    let mut bench = Bench::new(Greeting::default());
    bench.says_bytes(&unknown);
    assert!(bench.machine.end().unwrap().cause.contains("unknown command"));
}

#[test]
fn a_challenge_is_answered_before_and_after_the_greeting() {
    let mut bench = Bench::new(Greeting { auth_method: "token", ..Greeting::default() });
    bench.commands();
    let challenge = CommandAuthChallenge::default();
    for open in [false, true] {
        bench.says(challenge.clone());
        assert_eq!(bench.outcome().challenges, 1);
        bench.call(ConnectionCall::Credentials(Ok(Some(Bytes::from_static(b"fresh").into()))));
        let [Command::AuthResponse(response)] = &bench.commands()[..] else { panic!("{open}") };
        let response = response.response.as_ref().unwrap();
        assert_eq!(response.auth_method_name.as_deref(), Some("token"));
        assert_eq!(response.auth_data.as_deref(), Some(&b"fresh"[..]));
        bench.says(connected(21, None));
    }
}

fn gone() -> ConnectionCall<u32, u32> {
    let kind = TransportErrorKind::Invalid;
    ConnectionCall::Credentials(Err(TransportError::new(kind, "here", "the file is gone")))
}

#[test]
fn without_credentials_nobody_is_taken_in() {
    let mut bench = Bench::new(Greeting { auth_method: "token", ..Greeting::default() });
    bench.commands();
    bench.says(CommandAuthChallenge::default());
    bench.call(gone());
    assert_eq!(bench.machine.end().unwrap().cause, "the file is gone");
}

/// A broker asked for a newer token while the token's file was being replaced, or its issuer
/// restarted. The connection ended with all its sessions, although the broker would have waited for
/// a minute.
#[test]
fn credentials_that_cannot_be_had_are_asked_for_again_while_the_connection_goes_on() {
    let mut bench = Bench::open();
    bench.consumer();
    bench.says(CommandAuthChallenge::default());
    assert_eq!(bench.outcome().challenges, 1);
    for pause in [1, 2, 4, 8] {
        bench.call(gone());
        assert_eq!(bench.outcome().challenges, 0);
        bench.says(CommandAuthChallenge::default());
        assert_eq!(bench.outcome().challenges, 0, "who is asked is not asked again");
        let almost = Duration::from_millis(1);
        bench.wait(Duration::from_secs(pause) - almost);
        assert_eq!(bench.outcome().challenges, 0, "before its time");
        bench.wait(almost);
        assert_eq!(bench.outcome().challenges, 1);
    }
    // The last try; from here on, the broker decides.
    bench.call(gone());
    bench.wait(Duration::from_secs(20));
    assert_eq!(bench.outcome().challenges, 0);
    assert!(bench.machine.end().is_none());
    bench.says(CommandAuthChallenge::default());
    assert_eq!(bench.outcome().challenges, 1);
    bench.call(ConnectionCall::Credentials(Ok(Some(Bytes::from_static(b"fresh").into()))));
    assert!(bench.commands().iter().any(|it| matches!(it, Command::AuthResponse(_))));
    bench.wait(Duration::from_secs(20));
    assert_eq!(bench.outcome().challenges, 0);
}

/// The broker's figures did not show which of a hundred workers held a task: each was named
/// `longhaul-1`. Producers get no name of ours: under a used name, a broker that drops duplicates
/// would drop new messages.
#[test]
fn a_consumer_is_named_after_its_client_and_a_producer_says_it_beside() {
    let name = "worker-7".to_owned();
    let mut bench = Bench::new(Greeting { name, ..Greeting::default() });
    bench.written();
    bench.says(connected(21, None));
    let topic = || "topic".to_owned();
    let subscription = SubscriptionSpec::Shared { name: "s".to_owned() };
    bench.ask(BrokerRequest::Consumer(ConsumerOptions { topic: topic(), subscription }));
    let batching = Batching::Off;
    let options = ProducerOptions { topic: topic(), batching, schema: None };
    bench.ask(BrokerRequest::Producer(options));
    let commands = bench.commands();
    let [Command::Subscribe(consumer), Command::Producer(producer)] = &commands[..] else {
        panic!("{commands:?}")
    };
    let name = format!("worker-7-{}", consumer.consumer_id);
    assert_eq!(consumer.consumer_name, Some(name));
    assert_eq!(producer.producer_name, None);
    for metadata in [&consumer.metadata, &producer.metadata] {
        let [named] = &metadata[..] else { panic!("{metadata:?}") };
        assert_eq!((named.key(), named.value()), ("client", "worker-7"));
    }
}

#[test]
fn a_broker_is_waited_for_as_long_as_is_asked() {
    let times =
        ConnectionTimeouts { keep_alive: Duration::from_secs(5), answer: Duration::from_secs(3) };
    let mut bench = Bench::new(Greeting { times, ..Greeting::default() });
    bench.written();
    bench.says(connected(21, None));
    let producer = bench.producer(Batching::Off);
    let published = bench.publish(producer, body(b"x"));
    bench.written();
    let asked = bench.ask(BrokerRequest::Partitions { topic: "topic".to_owned() });
    bench.wait(Duration::from_secs(3));
    let outcome = bench.outcome();
    assert_eq!(
        (tokens(&outcome.answered), tokens(&outcome.published)),
        (vec![asked], vec![published])
    );
    bench.wait(Duration::from_secs(2));
    assert!(bench.commands().contains(&Command::Ping(CommandPing {})));
    bench.wait(Duration::from_secs(5));
    assert!(bench.machine.end().unwrap().cause.contains("silent"));
}

#[test]
fn the_brokers_largest_message_is_ours() {
    for (stated, expected) in
        [(Some(1_000), 1_000), (None, 5 << 20), (Some(0), 5 << 20), (Some(-1), 5 << 20)]
    {
        let mut bench = Bench::new(Greeting::default());
        bench.commands();
        bench.says(connected(21, stated));
        let options =
            ProducerOptions { topic: "topic".to_owned(), batching: Batching::Off, schema: None };
        bench.ask(BrokerRequest::Producer(options));
        let [Command::Producer(asked)] = &bench.commands()[..] else { panic!("one PRODUCER") };
        assert_eq!(asked.user_provided_producer_name, Some(false));
        bench.says(CommandProducerSuccess {
            request_id: asked.request_id,
            producer_name: "mine".to_owned(),
            ..CommandProducerSuccess::default()
        });
        match &bench.outcome().answered[..] {
            [(_, Ok(BrokerResponse::Producer { message_bytes_max, .. }))] => {
                assert_eq!(*message_bytes_max, expected);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_silent_broker_is_asked_once_and_then_given_up() {
    let mut bench = Bench::open();
    bench.consumer();
    bench.wait(Duration::from_secs(29));
    assert!(bench.commands().is_empty());
    bench.wait(Duration::from_secs(1));
    assert_eq!(bench.commands(), [Command::Ping(CommandPing {})]);
    bench.wait(Duration::from_secs(29));
    assert!(bench.commands().is_empty(), "one question is enough");
    bench.says(CommandPong {});
    bench.wait(Duration::from_secs(30));
    assert_eq!(bench.commands(), [Command::Ping(CommandPing {})]);
    bench.wait(Duration::from_secs(30));
    assert!(bench.machine.end().unwrap().cause.contains("silent"));
}

#[test]
fn a_part_of_a_frame_is_a_sign_of_life() {
    let mut bench = Bench::open();
    bench.consumer();
    bench.wait(Duration::from_secs(40));
    bench.machine.receive(&mut BytesMut::from(&[0, 0][..]), bench.now);
    bench.wait(Duration::from_secs(29));
    assert!(bench.machine.end().is_none());
}

/// A broker that pinged without reading made a queue of PONGs grow without limit. For each
/// challenge a task fetched credentials, and its answers queued up too.
#[test]
fn a_flood_of_questions_has_one_answer() {
    let mut bench = Bench::open();
    for _ in 0..1_000 {
        bench.says(CommandPing {});
        bench.says(CommandAuthChallenge::default());
    }
    assert_eq!(bench.outcome().challenges, 1, "who is asked is not asked again");
    for data in [&b"old"[..], b"new"] {
        bench.call(ConnectionCall::Credentials(Ok(Some(Bytes::copy_from_slice(data).into()))));
    }
    assert!(!bench.machine.is_quiet());
    let [Command::AuthResponse(response), Command::Pong(_)] = &bench.commands()[..] else {
        panic!("one answer to each")
    };
    let data = response.response.as_ref().and_then(|it| it.auth_data.as_deref());
    assert_eq!(data, Some(&b"new"[..]));
    assert!(bench.machine.is_quiet());
    bench.says(CommandPing {});
    bench.says(CommandAuthChallenge::default());
    assert_eq!((bench.commands().len(), bench.outcome().challenges), (1, 1), "but later it is");
}

/// A question before the broker's acceptance was written right after CONNECT, which brokers treat
/// as an attack.
#[test]
fn what_is_asked_too_early_is_written_when_the_broker_has_taken_us_in() {
    let mut bench = Bench::new(Greeting::default());
    bench.ask(BrokerRequest::Partitions { topic: "topic".to_owned() });
    assert!(matches!(&bench.commands()[..], [Command::Connect(_)]));
    bench.says(connected(21, None));
    assert!(matches!(&bench.commands()[..], [Command::PartitionedMetadata(_)]));
}

/// Before the broker's acceptance no ping is sent, but the ping's deadline still fired, again and
/// again: the driver ran in a busy loop from half of a silent handshake's time to its end.
#[test]
fn a_silent_greeting_is_given_up_without_a_busy_loop() {
    let mut bench = Bench::new(Greeting::default());
    bench.commands();
    bench.wait(Duration::from_secs(31));
    assert!(bench.machine.end().is_none() && bench.commands().is_empty());
    bench.wait(Duration::from_secs(29));
    assert!(bench.machine.end().unwrap().cause.contains("silent"));
}

#[test]
fn a_connection_that_nobody_uses_is_closed() {
    let mut bench = Bench::open();
    for _ in 0..5 {
        bench.wait(Duration::from_secs(10));
        bench.says(CommandPong {});
    }
    assert!(bench.machine.end().is_none());
    bench.wait(Duration::from_secs(10));
    assert!(bench.machine.end().unwrap().cause.contains("it was unused"));
}

/// An idle gateway held a connection in order to learn of its end. The connection was closed as
/// unused each minute, and the gateway reported each time that it had lost its broker.
#[test]
fn whoever_waits_for_the_end_of_a_connection_uses_it() {
    let mut bench = Bench::open();
    bench.call(ConnectionCall::Watch);
    for _ in 0..20 {
        bench.wait(Duration::from_secs(10));
        bench.says(CommandPong {});
    }
    assert!(bench.machine.end().is_none());
    bench.call(ConnectionCall::Unwatch);
    for _ in 0..6 {
        bench.wait(Duration::from_secs(10));
        bench.says(CommandPong {});
    }
    assert!(bench.machine.end().unwrap().cause.contains("it was unused"));
}

#[test]
fn what_is_no_frame_ends_the_connection() {
    let mut bench = Bench::open();
    let mut bytes = BytesMut::from(&[0, 0, 0, 4, 0, 0, 0, 9][..]);
    bench.machine.receive(&mut bytes, bench.now);
    assert!(bench.machine.end().unwrap().cause.contains("not understood"));
}
