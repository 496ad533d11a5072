//! Boundary values: the last accepted value, and the first refused one.

use super::super::weight;
use super::*;
use longhaul_transport::TransportErrorKind;
use longhaul_wire::messages::{
    CommandCloseConsumer, CommandConsumerStatsResponse, CommandGetLastMessageIdResponse,
    CommandLookupTopicResponse, CommandTopicMigrated, ResourceType,
};
use prost::Message as _;

const NOBODY: u64 = u64::MAX;

/// A connection to a broker of this version, with this limit for messages.
fn taken_in(protocol_version: i32, bytes_max: i32) -> Bench {
    let mut bench = Bench::new(Greeting::default());
    bench.written();
    bench.says(CommandConnected {
        protocol_version: Some(protocol_version),
        max_message_size: Some(bytes_max),
        ..CommandConnected::default()
    });
    bench
}

fn bytes(count: usize) -> Outgoing {
    Outgoing { payload: vec![b'x'; count].into(), ..Outgoing::default() }
}

#[test]
fn the_oldest_broker_that_confirms_acks_will_do() {
    assert!(taken_in(17, 1_000).machine.is_open());
    assert!(!taken_in(16, 1_000).machine.is_open());
}

/// A message of exactly the broker's limit must be accepted.
#[test]
fn a_message_may_be_as_large_as_the_broker_takes_it() {
    const BYTES_MAX: usize = 1_000;
    let mut bench = taken_in(21, 1_000);
    let producer = bench.producer(Batching::Off);
    let mut largest = 0;
    for count in 800..=BYTES_MAX {
        bench.publish(producer, bytes(count));
        for frame in bench.written() {
            let payload = frame.payload.unwrap();
            let metadata = payload.metadata().unwrap();
            largest = largest.max(metadata.encoded_len() + payload.body().len());
        }
    }
    assert_eq!(largest, BYTES_MAX);
    // A message above the limit does not end the producer.
    let mut bench = taken_in(21, 1_000);
    let producer = bench.producer(Batching::Off);
    for (count, written) in [(BYTES_MAX, 0), (1, 1)] {
        bench.publish(producer, bytes(count));
        assert_eq!(bench.written().len(), written);
    }
    assert!(bench.outcome().producers_over.is_empty());
}

/// A consumer that only listens makes no calls. When the broker closed it after an hour, the
/// connection counted as unused for that hour and ended at once, while another caller was opening
/// the next consumer.
#[test]
fn what_a_broker_ends_was_used_until_then() {
    let mut bench = Bench::open();
    let consumer = bench.consumer();
    bench.now = bench.now + Duration::from_secs(40);
    bench.says(CommandCloseConsumer::new(consumer, u64::MAX));
    bench.now = bench.now + Duration::from_secs(25);
    bench.says(longhaul_wire::messages::CommandPong {});
    bench.machine.tick(bench.now);
    assert!(bench.machine.end().is_none(), "{:?}", bench.machine.end());
}

/// Waiting for an answer that never comes counts as use, too.
#[test]
fn what_is_given_up_was_used_until_then() {
    let mut bench = Bench::open();
    bench.ask(BrokerRequest::Partitions { topic: "topic".to_owned() });
    bench.wait(Duration::from_secs(30));
    assert!(matches!(&bench.outcome().answered[..], [(_, Err(_))]));
    bench.now = bench.now + Duration::from_secs(1);
    bench.says(longhaul_wire::messages::CommandPong {});
    bench.wait(Duration::from_secs(34));
    assert!(bench.machine.end().is_none(), "{:?}", bench.machine.end());
}

#[test]
fn a_message_is_weighed_with_all_that_surrounds_it() {
    let properties = [("a", "bcd"), ("e", "")];
    let message =
        Outgoing { key: Some("key".to_owned()), properties: properties.into(), ..bytes(5) };
    assert_eq!(weight(&message), 64 + "key".len() + (1 + 3 + 16) + (1 + 16) + 5);
}

#[test]
fn a_batch_may_be_as_large_as_its_limit_and_says_when_it_was_published() {
    const BYTES_MAX: usize = 4_000;
    for (count, entries) in [(BYTES_MAX / 4, 1), (BYTES_MAX / 4 + 1, 2)] {
        let mut bench = taken_in(21, 4_000);
        let producer = bench.producer(Batching::On);
        for _ in 0..2 {
            bench.publish(producer, bytes(count - weight(&bytes(0))));
        }
        let written = bench.written();
        assert_eq!(written.len(), entries, "{count} bytes each");
        let metadata = written[0].payload.as_ref().unwrap().metadata().unwrap();
        assert_eq!(metadata.publish_time, 1_000);
    }
}

/// With any part of the position missing, the message may have been stored anyway.
#[test]
fn half_a_position_is_none() {
    for (ledger_id, entry_id) in [(NOBODY, 3), (LEDGER, NOBODY)] {
        let position = MessageIdData { ledger_id, entry_id, ..MessageIdData::default() };
        let mut bench = Bench::open();
        let producer_id = bench.producer(Batching::Off);
        bench.publish(producer_id, body(b"0"));
        bench.written();
        let message_id = Some(position.clone());
        bench.says(CommandSendReceipt {
            producer_id,
            sequence_id: 0,
            message_id,
            highest_sequence_id: None,
        });
        assert!(matches!(&bench.outcome().published[..], [(_, Err(PublishError::Unknown(_)))]));
        let consumer = bench.consumer();
        bench.ask(BrokerRequest::Last { consumer });
        let [Command::GetLastMessageId(asked)] = &bench.commands()[..] else { panic!("one") };
        bench.says(CommandGetLastMessageIdResponse {
            last_message_id: position,
            request_id: asked.request_id,
            consumer_mark_delete_position: None,
        });
        assert!(matches!(&bench.outcome().answered[..], [(_, Ok(BrokerResponse::Last(None)))]));
    }
}

/// An empty schema version means that the topic has no schema.
#[test]
fn a_version_of_a_schema_that_is_empty_is_none() {
    for (version, shown) in [(&b""[..], None), (b"1", Some(&b"1"[..]))] {
        let mut bench = Bench::open();
        let (topic, batching) = ("topic".to_owned(), Batching::Off);
        bench.ask(BrokerRequest::Producer(ProducerOptions { topic, batching, schema: None }));
        let [Command::Producer(asked)] = &bench.commands()[..] else { panic!("one PRODUCER") };
        let id = asked.producer_id;
        bench.says(CommandProducerSuccess {
            request_id: asked.request_id,
            schema_version: Some(Bytes::copy_from_slice(version)),
            ..CommandProducerSuccess::default()
        });
        bench.publish(id, body(b"0"));
        let [frame] = &bench.written()[..] else { panic!("one SEND") };
        let metadata = frame.payload.as_ref().unwrap().metadata().unwrap();
        assert_eq!(metadata.schema_version.as_deref(), shown);
    }
}

#[test]
fn an_answer_without_one_is_a_refusal() {
    let mut bench = Bench::open();
    let consumer = bench.consumer();
    let (topic, listener_name) = ("topic".to_owned(), None);
    bench.ask(BrokerRequest::Lookup(LookupQuestion { topic, authoritative: false, listener_name }));
    bench.ask(BrokerRequest::Stats { consumer });
    let [Command::Lookup(lookup), Command::ConsumerStats(stats)] = &bench.commands()[..] else {
        panic!("two questions")
    };
    bench.says(CommandLookupTopicResponse {
        request_id: lookup.request_id,
        broker_service_url: Some("pulsar://there".to_owned()),
        ..CommandLookupTopicResponse::default()
    });
    bench.says(CommandConsumerStatsResponse {
        request_id: stats.request_id,
        error_code: Some(ServerError::ConsumerNotFound as i32),
        ..CommandConsumerStatsResponse::default()
    });
    let outcome = bench.outcome();
    assert!(matches!(&outcome.answered[..], [(_, Err(_)), (_, Err(_))]), "{outcome:?}");
}

/// A producer or consumer that the broker moves while it opens is closed there once, open or not.
#[test]
fn what_moves_before_it_is_open_is_closed_once() {
    let (topic, batching) = ("topic".to_owned(), Batching::Off);
    let producer = ProducerOptions { topic: topic.clone(), batching, schema: None };
    let consumer = ConsumerOptions { topic, subscription: reader(StartPlace::Earliest, 1) };
    for (question, kind) in [
        (BrokerRequest::Producer(producer), ResourceType::Producer),
        (BrokerRequest::Consumer(consumer), ResourceType::Consumer),
    ] {
        let mut bench = Bench::open();
        bench.ask(question);
        let resource_id = match &bench.commands()[..] {
            [Command::Producer(asked)] => asked.producer_id,
            [Command::Subscribe(asked)] => asked.consumer_id,
            other => panic!("{other:?}"),
        };
        bench.says(CommandTopicMigrated {
            resource_id,
            resource_type: kind as i32,
            broker_service_url: Some(format!("pulsar://{}", "x".repeat(1_024 - 9))),
            broker_service_url_tls: Some(format!("pulsar+ssl://{}", "x".repeat(1_024))),
        });
        let outcome = bench.outcome();
        let [moved] = &outcome.moved[..] else { panic!("{outcome:?}") };
        assert_eq!(
            (moved.url.len(), moved.url_tls.len()),
            (1_024, 0),
            "the longest that is believed"
        );
        assert_eq!(bench.commands().len(), 1);
    }
}

/// A user that leaves waits for the work in flight, and for nothing once the connection has ended.
#[test]
fn a_connection_is_quiet_when_nothing_is_to_be_written_or_when_it_has_ended() {
    let mut bench = Bench::new(Greeting::default());
    assert!(!bench.machine.is_quiet(), "it has not introduced itself");
    bench.machine.fail(TransportError::new(TransportErrorKind::Refused, "", ""));
    assert!(bench.machine.is_quiet());
    let mut bench = Bench::open();
    let consumer = bench.consumer();
    bench.written();
    assert!(bench.machine.is_quiet());
    bench.call(ConnectionCall::HandBack { consumer, entry: entry(1) });
    assert!(!bench.machine.is_quiet(), "an entry is to be given back");
    bench.written();
    assert!(bench.machine.is_quiet());
    bench.says(longhaul_wire::messages::CommandPing {});
    assert!(!bench.machine.is_quiet(), "an answer is to be written");
    bench.written();
    bench.wait(Duration::from_secs(30));
    assert!(!bench.machine.is_quiet(), "a question is to be written");
    bench.machine.fail(TransportError::new(TransportErrorKind::Refused, "", ""));
    assert!(bench.machine.is_quiet());
}

/// An entry of which every message was already read is not delivered.
#[test]
fn an_entry_of_which_nothing_is_wanted_is_not_delivered() {
    let mut bench = Bench::open();
    let consumer = bench.subscribe(reader(StartPlace::After(at(5, Some(9))), 10));
    bench.commands();
    let (metadata, body) = batch(10);
    bench.delivers(&delivery(consumer, 5), &metadata, &body);
    assert!(bench.outcome().delivered.is_empty());
    bench.delivers(&delivery(consumer, 6), &metadata, &body);
    assert_eq!(bench.outcome().delivered[0].1.len(), 10);
}
