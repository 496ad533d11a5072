//! Questions, their answers, and answers that come too late.

use super::*;
use longhaul_transport::TransportErrorKind;
use longhaul_wire::messages::{
    CommandAckResponse, CommandCloseConsumer, CommandCloseProducer, CommandConsumerStatsResponse,
    CommandGetLastMessageIdResponse, CommandLookupTopicResponse,
    CommandPartitionedTopicMetadataResponse, LookupType, MetadataType,
};

fn partitions() -> BrokerRequest {
    BrokerRequest::Partitions { topic: "topic".to_owned() }
}

#[test]
fn answers_find_their_questions_in_any_order() {
    let mut bench = Bench::open();
    let tokens = [bench.ask(partitions()), bench.ask(partitions())];
    let commands = bench.commands();
    let ids: Vec<u64> = commands
        .iter()
        .map(|command| match command {
            Command::PartitionedMetadata(it) => it.request_id,
            other => panic!("{other:?}"),
        })
        .collect();
    for (id, count) in [(ids[1], 2), (ids[0], 0)] {
        bench.says(CommandPartitionedTopicMetadataResponse {
            partitions: Some(count),
            request_id: id,
            response: Some(MetadataType::Success as i32),
            ..CommandPartitionedTopicMetadataResponse::default()
        });
    }
    match &bench.outcome().answered[..] {
        [
            (first, Ok(BrokerResponse::Partitions(2))),
            (second, Ok(BrokerResponse::Partitions(0))),
        ] => {
            assert_eq!([*second, *first], tokens);
        }
        other => panic!("{other:?}"),
    }
}

/// In a namespace that auto-creates partitioned topics, asking for the number of partitions created
/// the topic, even a misspelt one.
#[test]
fn who_counts_partitions_creates_none() {
    let mut bench = Bench::open();
    bench.ask(partitions());
    let [Command::PartitionedMetadata(asked)] = &bench.commands()[..] else { panic!("one") };
    assert_eq!(asked.metadata_auto_creation_enabled, Some(false));
}

#[test]
fn a_lookup_says_where_to_go() {
    let mut bench = Bench::open();
    bench.ask(BrokerRequest::Lookup(LookupQuestion {
        topic: "topic".to_owned(),
        authoritative: true,
        listener_name: Some("outside".to_owned()),
    }));
    let [Command::Lookup(asked)] = &bench.commands()[..] else { panic!("one LOOKUP") };
    assert_eq!(asked.authoritative, Some(true));
    assert_eq!(asked.advertised_listener_name.as_deref(), Some("outside"));
    bench.says(CommandLookupTopicResponse {
        request_id: asked.request_id,
        response: Some(LookupType::Redirect as i32),
        broker_service_url: Some("pulsar://there".to_owned()),
        authoritative: Some(true),
        ..CommandLookupTopicResponse::default()
    });
    match &bench.outcome().answered[..] {
        [(_, Ok(BrokerResponse::Lookup(lookup)))] => {
            assert!(lookup.redirect && lookup.authoritative && !lookup.proxied);
            assert_eq!((&lookup.url[..], &lookup.url_tls[..]), ("pulsar://there", ""));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_answer_that_does_not_fit_its_question_is_an_error() {
    let mut bench = Bench::open();
    bench.ask(partitions());
    let [Command::PartitionedMetadata(asked)] = &bench.commands()[..] else { panic!("one") };
    bench.says(CommandSuccess { request_id: asked.request_id, schema: None });
    match &bench.outcome().answered[..] {
        [(_, Err(cause))] => assert_eq!(cause.kind, TransportErrorKind::Refused),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_error_without_a_question_ends_the_connection() {
    let mut bench = Bench::open();
    let token = bench.ask(partitions());
    bench.refuses(u64::MAX, ServerError::ServiceNotReady);
    assert!(bench.machine.end().is_some());
    assert_eq!(tokens(&bench.outcome().answered), [token]);
}

#[test]
fn a_question_without_an_answer_fails_in_time_and_its_late_answer_is_ignored() {
    let mut bench = Bench::open();
    let token = bench.ask(partitions());
    let [Command::PartitionedMetadata(asked)] = &bench.commands()[..] else { panic!("one") };
    bench.says(longhaul_wire::messages::CommandPong {});
    bench.wait(Duration::from_secs(29));
    assert!(bench.outcome().answered.is_empty());
    bench.says(longhaul_wire::messages::CommandPong {});
    bench.wait(Duration::from_secs(1));
    match &bench.outcome().answered[..] {
        [(it, Err(cause))] if *it == token => assert!(cause.cause.contains("no answer")),
        other => panic!("{other:?}"),
    }
    bench.refuses(asked.request_id, ServerError::MetadataError);
    assert!(bench.outcome().answered.is_empty() && bench.machine.end().is_none());
}

#[test]
fn what_was_opened_too_late_is_closed_again() {
    let mut bench = Bench::open();
    let topic = "topic".to_owned();
    let options = ProducerOptions { topic: topic.clone(), batching: Batching::Off, schema: None };
    bench.ask(BrokerRequest::Producer(options));
    let subscription = SubscriptionSpec::Shared { name: "s".to_owned() };
    bench.ask(BrokerRequest::Consumer(ConsumerOptions { topic, subscription }));
    let [Command::Producer(producer), Command::Subscribe(consumer)] = &bench.commands()[..] else {
        panic!("two questions")
    };
    bench.wait(Duration::from_secs(30));
    assert_eq!(bench.outcome().answered.len(), 2);
    match &bench.commands()[..] {
        [Command::Ping(_), Command::CloseProducer(first), Command::CloseConsumer(second)] => {
            assert_eq!(first.producer_id, producer.producer_id);
            assert_eq!(second.consumer_id, consumer.consumer_id);
        }
        other => panic!("{other:?}"),
    }
    // The answers change nothing, nor do commands for unknown ids.
    bench.says(CommandProducerSuccess {
        request_id: producer.request_id,
        ..CommandProducerSuccess::default()
    });
    bench.says(CommandSuccess { request_id: consumer.request_id, schema: None });
    let command = delivery(consumer.consumer_id, 0);
    bench.delivers(&command, &MessageMetadata::default(), b"late");
    let outcome = bench.outcome();
    assert!(outcome.answered.is_empty() && outcome.delivered.is_empty());
    let lost = bench.publish(producer.producer_id, body(b"x"));
    assert_eq!(tokens(&bench.outcome().published), [lost]);
}

/// A topic is unloaded while it is opened: the broker first closes the unconfirmed consumer and
/// then confirms it. The caller got a consumer that had already ended, and waited for deliveries
/// for ever.
#[test]
fn what_is_closed_before_it_is_open_is_never_open() {
    let mut bench = Bench::open();
    let topic = || "topic".to_owned();
    let subscription = SubscriptionSpec::Shared { name: "s".to_owned() };
    let options = ConsumerOptions { topic: topic(), subscription };
    let consumer = bench.ask(BrokerRequest::Consumer(options));
    let batching = Batching::On;
    let options = ProducerOptions { topic: topic(), batching, schema: None };
    let producer = bench.ask(BrokerRequest::Producer(options));
    let [Command::Subscribe(subscribe), Command::Producer(produce)] = &bench.commands()[..] else {
        panic!("one SUBSCRIBE, one PRODUCER")
    };
    let (consumer_id, producer_id) = (subscribe.consumer_id, produce.producer_id);
    bench.says(CommandCloseConsumer::new(consumer_id, u64::MAX));
    bench.says(CommandCloseProducer::new(producer_id, u64::MAX));
    // At once: the caller learned it only after ten seconds.
    let outcome = bench.outcome();
    assert_eq!(tokens(&outcome.answered), [consumer, producer]);
    assert!(outcome.answered.iter().all(|(_, it)| it.is_err()), "{:?}", outcome.answered);
    assert_eq!(outcome.consumers_over, [consumer_id]);
    assert_eq!(outcome.producers_over, [producer_id]);
    bench.says(CommandSuccess { request_id: subscribe.request_id, schema: None });
    let request_id = produce.request_id;
    bench.says(CommandProducerSuccess { request_id, ..CommandProducerSuccess::default() });
    let late = bench.outcome();
    assert!(late.answered.is_empty() && late.ends.is_empty());
    // If the broker has opened it after all, only this closes it.
    let written = bench.commands();
    let [Command::CloseConsumer(first), Command::CloseProducer(second)] = &written[..] else {
        panic!("{written:?}")
    };
    assert_eq!((first.consumer_id, second.producer_id), (consumer_id, producer_id));
}

#[test]
fn questions_about_a_consumer_are_answered_in_our_words() {
    let mut bench = Bench::open();
    let consumer = bench.consumer();
    bench.ask(BrokerRequest::Last { consumer });
    bench.ask(BrokerRequest::Stats { consumer });
    let [Command::GetLastMessageId(last), Command::ConsumerStats(stats)] = &bench.commands()[..]
    else {
        panic!("two questions")
    };
    bench.says(CommandGetLastMessageIdResponse {
        last_message_id: MessageIdData {
            ledger_id: LEDGER,
            entry_id: 3,
            batch_index: Some(-1),
            ..MessageIdData::default()
        },
        request_id: last.request_id,
        consumer_mark_delete_position: None,
    });
    bench.says(CommandConsumerStatsResponse {
        request_id: stats.request_id,
        available_permits: Some(3),
        msg_backlog: Some(9),
        blocked_consumer_on_unacked_msgs: Some(true),
        ..CommandConsumerStatsResponse::default()
    });
    match &bench.outcome().answered[..] {
        [(_, Ok(BrokerResponse::Last(last))), (_, Ok(BrokerResponse::Stats(stats)))] => {
            assert_eq!(*last, Some(at(3, None)));
            assert_eq!((stats.permits, stats.entries, stats.blocked), (3, 9, true));
        }
        other => panic!("{other:?}"),
    }
}

/// Pulsar 2.11 gives the last message index 0 when it is not part of a batch. Readers up to that
/// message waited for ever.
#[test]
fn the_last_message_is_reached_whatever_index_a_broker_gives_it() {
    let last_of = |index| {
        let mut bench = Bench::open();
        let consumer = bench.consumer();
        bench.ask(BrokerRequest::Last { consumer });
        let [Command::GetLastMessageId(last)] = &bench.commands()[..] else { panic!("one") };
        bench.says(CommandGetLastMessageIdResponse {
            last_message_id: MessageIdData {
                ledger_id: LEDGER,
                entry_id: 3,
                batch_index: index,
                ..MessageIdData::default()
            },
            request_id: last.request_id,
            consumer_mark_delete_position: None,
        });
        match &bench.outcome().answered[..] {
            [(_, Ok(BrokerResponse::Last(last)))] => last.expect("there is one"),
            other => panic!("{other:?}"),
        }
    };
    for index in [None, Some(-1), Some(0)] {
        assert!(at(3, None) >= last_of(index) && at(3, Some(0)) >= last_of(index), "{index:?}");
    }
    assert_eq!(last_of(Some(7)), at(3, Some(7)));
}

#[test]
fn the_end_of_something_may_be_refused_or_go_without_an_answer() {
    let mut bench = Bench::open();
    for answered in [true, false] {
        let producer = bench.producer(Batching::Off);
        bench.call(ConnectionCall::CloseProducer(producer));
        let [Command::CloseProducer(close)] = &bench.commands()[..] else { panic!("one") };
        if answered {
            bench.refuses(close.request_id, ServerError::UnknownError);
        }
        assert_eq!(bench.outcome().producers_over, [producer]);
    }
    bench.wait(Duration::from_secs(30));
    let outcome = bench.outcome();
    assert!(outcome.answered.is_empty() && bench.machine.end().is_none());
}

#[test]
fn an_ack_response_without_a_number_is_ignored() {
    let mut bench = Bench::open();
    bench.says(CommandAckResponse { consumer_id: 3, ..CommandAckResponse::default() });
    assert!(bench.machine.end().is_none());
}
