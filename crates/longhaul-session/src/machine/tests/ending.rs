//! However a connection ends, every caller is told, once.

use super::*;
use longhaul_transport::TransportErrorKind;

fn gone() -> TransportError {
    TransportError::new(TransportErrorKind::Unreachable, "here", "gone")
}

#[test]
fn every_token_comes_back_exactly_once() {
    let mut bench = Bench::open();
    let (producer, consumer) = (bench.producer(Batching::On), bench.consumer());
    let reader = bench.subscribe(reader(StartPlace::Earliest, 10));
    let mut expected = Vec::new();
    let mut published = Vec::new();
    // Questions, written and unwritten; a producer and consumers that are being opened; acks in
    // flight and waiting; messages written and queued.
    for write in [true, false] {
        expected.push(bench.ask(BrokerRequest::Partitions { topic: "topic".to_owned() }));
        let topic = "topic".to_owned();
        let options = ProducerOptions { topic, batching: Batching::Off, schema: None };
        expected.push(bench.ask(BrokerRequest::Producer(options)));
        let topic = "topic".to_owned();
        let subscription = SubscriptionSpec::Shared { name: "s".to_owned() };
        expected.push(bench.ask(BrokerRequest::Consumer(ConsumerOptions { topic, subscription })));
        expected.push(bench.ask(BrokerRequest::Last { consumer }));
        expected.push(bench.ask(BrokerRequest::Stats { consumer }));
        for index in 0..3 {
            let token = bench.token();
            bench.call(ConnectionCall::Ack { consumer, entry: entry(index), token });
            expected.push(token);
        }
        for _ in 0..6 {
            published.push(bench.publish(producer, body(b"x")));
            if write {
                bench.written();
            }
        }
    }
    assert!(bench.outcome().answered.is_empty());

    bench.machine.fail(gone());
    bench.machine.fail(TransportError::new(TransportErrorKind::Refused, "here", "second"));
    assert_eq!(bench.machine.end().map(|it| &it.cause[..]), Some("gone"));
    let outcome = bench.outcome();
    let mut answered = tokens(&outcome.answered);
    answered.sort_unstable();
    expected.sort_unstable();
    assert_eq!(answered, expected);
    assert!(outcome.answered.iter().all(|(_, it)| it.as_ref().is_err_and(|it| it.cause == "gone")));
    assert_eq!(tokens(&outcome.published), published);
    for (_, fate) in &outcome.published {
        assert!(matches!(fate, Err(PublishError::Unknown(_) | PublishError::NotStored(_))));
    }
    assert!(outcome.consumers_over.contains(&consumer) && outcome.consumers_over.contains(&reader));
    assert!(outcome.producers_over.contains(&producer));
    assert!(bench.written().is_empty() && bench.machine.timeout().is_none());
    assert!(bench.machine.is_quiet());
}

#[test]
fn whoever_comes_after_the_end_is_told_so() {
    let mut bench = Bench::open();
    let (producer, consumer) = (bench.producer(Batching::Off), bench.consumer());
    bench.machine.fail(gone());
    bench.outcome();
    let asked = bench.ask(BrokerRequest::Partitions { topic: "topic".to_owned() });
    let acked = bench.token();
    bench.call(ConnectionCall::Ack { consumer, entry: entry(0), token: acked });
    let published = bench.publish(producer, body(b"x"));
    bench.call(ConnectionCall::Request { consumer, count: 1 });
    bench.call(ConnectionCall::HandBack { consumer, entry: entry(0) });
    bench.call(ConnectionCall::CloseConsumer(consumer));
    bench.call(ConnectionCall::CloseProducer(producer));
    bench.call(ConnectionCall::Credentials(Ok(None)));
    bench.says(CommandSuccess { request_id: 1, schema: None });
    let outcome = bench.outcome();
    assert_eq!(tokens(&outcome.answered), [asked, acked]);
    assert_eq!(tokens(&outcome.published), [published]);
    assert!(bench.written().is_empty() && bench.machine.is_quiet());
}

#[test]
fn too_many_questions_are_refused_at_once() {
    let mut bench = Bench::open();
    for _ in 0..10_000 {
        bench.ask(BrokerRequest::Partitions { topic: "topic".to_owned() });
    }
    assert!(bench.outcome().answered.is_empty());
    let token = bench.ask(BrokerRequest::Partitions { topic: "topic".to_owned() });
    assert!(matches!(&bench.outcome().answered[..], [(it, Err(_))] if *it == token));
}
