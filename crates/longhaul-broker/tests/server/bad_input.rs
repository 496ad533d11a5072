//! Misbehaving clients: each gets an answer or a closed connection, memory stays bounded, and other
//! clients are not affected.

use crate::client::{Client, encode_publish, serves};
use bytes::{BufMut, BytesMut};
use longhaul_broker::{Broker, BrokerConfig};
use longhaul_wire::frame;
use longhaul_wire::messages::{
    Command, CommandLookupTopic, CommandProducer, CommandSend, CommandSubscribe, Schema,
    SchemaType, ServerError,
};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

fn broker() -> Broker {
    Broker::start(BrokerConfig::default()).unwrap()
}

/// Connects, sends bytes, and returns the answers until the broker closes the connection.
async fn ends_with(broker: &Broker, is_connected: bool, bytes: &[u8]) -> Vec<Command> {
    let mut client = if is_connected {
        Client::connect(broker.address()).await.unwrap()
    } else {
        Client::dial(broker.address()).await.unwrap()
    };
    client.write(bytes).await.unwrap();
    client.until_closed().await
}

#[tokio::test]
async fn what_is_no_frame_ends_the_connection() {
    let broker = broker();
    assert!(ends_with(&broker, false, b"GET / HTTP/1.1\r\n\r\n").await.is_empty());
    assert!(ends_with(&broker, false, &[0; 64]).await.is_empty());
    for garbage in [&b"\xff\xff\xff\xff"[..], &[0, 0, 0, 4, 0, 0, 0, 9], &[0; 8]] {
        let said = ends_with(&broker, true, garbage).await;
        assert!(matches!(&said[..], [Command::Error(_)]), "{said:?}");
    }
    // The size alone suffices: the broker does not wait for 100 MB.
    let mut large = BytesMut::new();
    large.put_u32(100_000_000);
    let said = ends_with(&broker, true, &large).await;
    let Some(Command::Error(error)) = said.first() else { panic!("{said:?}") };
    assert_eq!(error.error, i32::from(ServerError::NotAllowedError));
    let mut early = BytesMut::new();
    frame::encode(CommandLookupTopic { topic: "t".to_owned(), ..Default::default() }, &mut early);
    let said = ends_with(&broker, false, &early).await;
    assert!(matches!(&said[..], [Command::Error(_)]), "CONNECT comes first: {said:?}");
    serves(broker.address()).await;
}

#[tokio::test]
async fn a_message_with_a_bad_checksum_is_refused_alone() {
    let broker = broker();
    let mut client = Client::producer(broker.address(), "t").await.unwrap();
    let mut bytes = BytesMut::new();
    encode_publish(1, 4, b"hello", &mut bytes);
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    encode_publish(1, 5, b"hello", &mut bytes);
    client.write(&bytes).await.unwrap();
    let Command::SendError(error) = client.answer().await.unwrap().command else { panic!() };
    assert_eq!((error.sequence_id, error.error), (4, ServerError::ChecksumError.into()));
    let Command::SendReceipt(receipt) = client.answer().await.unwrap().command else { panic!() };
    assert_eq!(receipt.sequence_id, 5);
}

#[tokio::test]
async fn whoever_says_nothing_is_let_go() {
    let (handshake_timeout, keep_alive) = (Duration::from_millis(200), Duration::from_millis(300));
    let config = BrokerConfig { handshake_timeout, keep_alive, ..BrokerConfig::default() };
    let broker = Broker::start(config).unwrap();
    let mut half_open = Client::dial(broker.address()).await.unwrap();
    // A byte now and then does not extend the handshake.
    half_open.write(&[0]).await.unwrap();
    assert!(half_open.until_closed().await.is_empty());
    let mut silent = Client::connect(broker.address()).await.unwrap();
    let said = silent.until_closed().await;
    assert!(matches!(&said[..], [Command::Ping(_)]), "asked once: {said:?}");
    // A client that answers stays connected.
    let mut quiet = Client::connect(broker.address()).await.unwrap();
    for _ in 0..4 {
        assert!(matches!(quiet.read().await.unwrap().command, Command::Ping(_)));
        quiet.send(longhaul_wire::messages::CommandPong {}).await.unwrap();
    }
}

#[tokio::test]
async fn names_that_are_none_are_refused() {
    let broker = broker();
    let mut client = Client::connect(broker.address()).await.unwrap();
    for topic in [
        "..",
        "persistent://public/../t",
        "a\u{0}b",
        "a\nb",
        "persistent://nobody/default/t",
        "persistent://public/nowhere/t",
        "non-persistent://public/default/t",
        "",
    ] {
        let (topic, request_id) = (topic.to_owned(), client.request_id());
        client
            .send(CommandLookupTopic { topic: topic.clone(), request_id, ..Default::default() })
            .await
            .unwrap();
        let Command::LookupResponse(answer) = client.answer().await.unwrap().command else {
            panic!()
        };
        assert!(answer.error.is_some(), "{topic:?}");
        let producer = CommandProducer { topic: topic.clone(), request_id, ..Default::default() };
        client.send(producer).await.unwrap();
        let Command::Error(error) = client.answer().await.unwrap().command else {
            panic!("{topic:?}")
        };
        assert!(!error.message.contains(['\u{0}', '\n']), "{error:?}");
        let subscription = "s".to_owned();
        let subscribe = CommandSubscribe { topic, subscription, request_id, ..Default::default() };
        client.send(subscribe).await.unwrap();
        assert!(matches!(client.answer().await.unwrap().command, Command::Error(_)));
    }
}

#[tokio::test]
async fn a_schema_that_contradicts_is_refused_and_the_connection_goes_on() {
    let broker = broker();
    let mut client = Client::connect(broker.address()).await.unwrap();
    let mut answers = Vec::new();
    for (producer_id, kind) in [(1, SchemaType::Json), (2, SchemaType::Avro)] {
        let schema = Schema {
            name: "s".to_owned(),
            schema_data: "{}".into(),
            r#type: kind.into(),
            properties: Vec::new(),
        };
        let producer = CommandProducer {
            topic: "t".to_owned(),
            producer_id,
            request_id: producer_id,
            schema: Some(schema),
            ..CommandProducer::default()
        };
        client.send(producer).await.unwrap();
        let answer = client.answer().await.unwrap().command;
        answers.push(answer);
    }
    assert!(matches!(answers[0], Command::ProducerSuccess(_)), "{answers:?}");
    let Command::Error(error) = &answers[1] else { panic!("{answers:?}") };
    assert_eq!(error.error, i32::from(ServerError::IncompatibleSchema));
    client.publish_one(1, 0, b"x").await.unwrap();
}

#[tokio::test]
async fn a_message_for_no_producer_is_refused() {
    let broker = broker();
    let mut client = Client::connect(broker.address()).await.unwrap();
    client.publish(9, 3, b"x").await.unwrap();
    let Command::SendError(error) = client.answer().await.unwrap().command else { panic!() };
    assert_eq!((error.producer_id, error.sequence_id), (9, 3));
    client.send(CommandSend { producer_id: 9, ..CommandSend::default() }).await.unwrap();
    assert!(matches!(client.answer().await.unwrap().command, Command::SendError(_)));
    let mut byte = [0];
    let silent = timeout(Duration::from_millis(50), client.stream.read(&mut byte)).await;
    assert!(silent.is_err(), "and the connection goes on");
}
