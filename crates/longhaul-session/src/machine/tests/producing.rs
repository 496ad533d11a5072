//! A producer: each message is written once, in order, and its result is reported.

use super::*;
use longhaul_wire::batch::Singles;
use longhaul_wire::messages::{CommandCloseProducer, CommandSend, CommandSendError};

/// The SENDs among the written frames; other frames fail the test.
#[track_caller]
fn sends(frames: Vec<Frame>) -> Vec<(CommandSend, MessageMetadata, Bytes)> {
    let parts = frames.into_iter().map(|frame| {
        let Command::Send(send) = frame.command else { panic!("not a SEND: {:?}", frame.command) };
        let payload = frame.payload.unwrap();
        payload.verify().unwrap();
        (send, payload.metadata().unwrap(), payload.body())
    });
    parts.collect()
}

fn sizes(bench: &mut Bench) -> Vec<i32> {
    sends(bench.written()).iter().map(|(send, ..)| send.num_messages()).collect()
}

fn send_error(bench: &mut Bench, producer_id: u64, sequence_id: u64, code: ServerError) {
    let message = "no".to_owned();
    bench.says(CommandSendError { producer_id, sequence_id, error: code as i32, message });
}

/// Callers that were not allowed to publish, or whose topic was terminated, got a lost connection
/// as the error and tried again for ever.
#[test]
fn what_is_refused_for_good_ends_a_producer_with_that_word() {
    use longhaul_transport::TransportErrorKind as Kind;
    for (code, kind) in [
        (ServerError::TopicTerminatedError, Kind::Terminated),
        (ServerError::AuthorizationError, Kind::Unauthorized),
        (ServerError::PersistenceError, Kind::Unreachable),
    ] {
        let mut bench = Bench::open();
        let producer = bench.producer(Batching::Off);
        bench.publish(producer, body(b"x"));
        bench.written();
        send_error(&mut bench, producer, 0, code);
        let outcome = bench.outcome();
        assert_eq!(outcome.producers_over, [producer]);
        assert_eq!(outcome.ends[0].kind, kind);
    }
}

/// It has sent nothing that could be refused. Whoever removes one that is being opened withdraws its
/// request, or the caller would get a producer that is gone.
#[test]
fn an_error_for_a_producer_that_is_being_opened_changes_nothing() {
    let mut bench = Bench::open();
    let (token, asked) = bench.ask_for_producer(Batching::Off);
    send_error(&mut bench, asked.producer_id, 0, ServerError::PersistenceError);
    let id = bench.producer_opened(token, asked.request_id, -1);
    bench.publish(id, body(b"x"));
    assert_eq!(sends(bench.written()).len(), 1);
}

#[test]
fn each_message_is_written_once_and_in_order() {
    let mut bench = Bench::open();
    let producer = bench.producer(Batching::Off);
    let tokens: Vec<u32> =
        [b"0", b"1", b"2"].into_iter().map(|it| bench.publish(producer, body(it))).collect();
    let written = sends(bench.written());
    for (index, (send, metadata, body)) in (0..).zip(&written) {
        assert_eq!((send.producer_id, send.sequence_id), (producer, index));
        assert_eq!(
            (send.highest_sequence_id, metadata.highest_sequence_id),
            (Some(index), Some(index))
        );
        assert_eq!(metadata.producer_name, "name");
        assert_eq!(metadata.num_messages_in_batch, None);
        assert_eq!(&body[..], index.to_string().as_bytes());
    }
    assert_eq!(written.len(), 3);
    bench.wait(Duration::from_secs(5));
    assert!(bench.written().is_empty());
    for index in 0..3 {
        bench.receipt(producer, index, 10 + index);
    }
    let published = bench.outcome().published;
    assert_eq!(super::tokens(&published), tokens);
    for (index, (_, stored)) in (10..).zip(published) {
        assert_eq!(stored.unwrap(), at(index, None));
    }
    assert!(bench.written().is_empty());
}

#[test]
fn batches_clock_themselves() {
    let mut bench = Bench::open();
    let producer = bench.producer(Batching::On);
    bench.publish(producer, body(b"alone"));
    assert_eq!(sizes(&mut bench), [1]);
    for _ in 0..5 {
        bench.publish(producer, body(b"together"));
    }
    assert_eq!(sizes(&mut bench), [5]);
    for _ in 0..2 {
        bench.publish(producer, body(b"alone"));
        assert_eq!(sizes(&mut bench), [1]);
    }
    // Four entries are in flight: further messages wait for a receipt.
    let waiting: Vec<u32> = (0..7).map(|_| bench.publish(producer, body(b"waits"))).collect();
    assert!(bench.written().is_empty());
    bench.receipt(producer, 0, 0);
    assert_eq!(sizes(&mut bench), [7]);
    assert_eq!(bench.outcome().published.len(), 1);
    for (sequence, entry) in [(1, 1), (6, 2), (7, 3), (8, 4)] {
        bench.receipt(producer, sequence, entry);
    }
    let published = bench.outcome().published;
    let places: Vec<Position> = published.iter().map(|(_, it)| it.clone().unwrap()).collect();
    let in_batch = |entry, count| (0..count).map(move |index| at(entry, Some(index)));
    let alone = [at(2, None), at(3, None)];
    let expected: Vec<Position> = in_batch(1, 5).chain(alone).chain(in_batch(4, 7)).collect();
    assert_eq!(places, expected);
    assert_eq!(tokens(&published)[7..], waiting);
}

#[test]
fn a_batch_carries_its_messages_whole() {
    let mut bench = Bench::open();
    let producer = bench.producer(Batching::On);
    let first = Outgoing {
        key: Some("key".to_owned()),
        properties: [("a", "b")].into(),
        payload: Bytes::from_static(b"body"),
        event_time_ms: Some(5),
        ..Outgoing::default()
    };
    let second = Outgoing { key: Some("gone".to_owned()), null: true, ..Outgoing::default() };
    bench.publish(producer, first);
    bench.publish(producer, second);
    let [(send, metadata, body)] = &sends(bench.written())[..] else { panic!("one entry") };
    assert_eq!((send.sequence_id, send.highest_sequence_id), (0, Some(1)));
    assert_eq!(metadata.num_messages_in_batch, Some(2));
    assert_eq!(metadata.uncompressed_size, u32::try_from(body.len()).ok());
    let singles: Vec<_> = Singles::new(body.clone(), 2).map(Result::unwrap).collect();
    let (first, second) = (&singles[0], &singles[1]);
    assert_eq!(
        (first.metadata.partition_key.as_deref(), &first.body[..]),
        (Some("key"), &b"body"[..])
    );
    assert_eq!((first.metadata.event_time, first.metadata.sequence_id), (Some(5), Some(0)));
    assert_eq!(first.metadata.properties[0].value(), "b");
    assert_eq!((second.metadata.null_value, second.metadata.sequence_id), (Some(true), Some(1)));
}

/// Compaction of brokers from 2025 recognizes a tombstone by its `uncompressed_size`, and readers
/// by its flag.
#[test]
fn a_tombstone_says_so_twice() {
    let mut bench = Bench::open();
    let producer = bench.producer(Batching::Off);
    bench.publish(
        producer,
        Outgoing { key: Some("k".to_owned()), null: true, ..Outgoing::default() },
    );
    let [(_, metadata, body)] = &sends(bench.written())[..] else { panic!("one entry") };
    assert_eq!((metadata.null_value, metadata.uncompressed_size), (Some(true), Some(0)));
    assert!(body.is_empty());
}

#[test]
fn a_message_for_later_has_an_entry_of_its_own() {
    let mut bench = Bench::open();
    let producer = bench.producer(Batching::On);
    for deliver_at_ms in [None, None, Some(9), None, Some(10)] {
        bench.publish(producer, Outgoing { deliver_at_ms, ..body(b"x") });
    }
    let written = sends(bench.written());
    let shape: Vec<_> =
        written.iter().map(|(send, it, _)| (send.num_messages(), it.deliver_at_time)).collect();
    assert_eq!(shape, [(2, None), (1, Some(9)), (1, None), (1, Some(10))]);
}

#[test]
fn a_batch_is_limited_in_messages_and_bytes() {
    let mut bench = Bench::open();
    let producer = bench.producer(Batching::On);
    for _ in 0..2_500 {
        bench.publish(producer, body(b"small"));
    }
    assert_eq!(sizes(&mut bench), [1_000, 1_000, 500]);
    let producer = bench.producer(Batching::On);
    for _ in 0..10 {
        bench
            .publish(producer, Outgoing { payload: vec![1; 40_000].into(), ..Outgoing::default() });
    }
    let written = sends(bench.written());
    let shape: Vec<i32> = written.iter().map(|(send, ..)| send.num_messages()).collect();
    assert_eq!(shape, [3, 3, 3, 1]);
    assert!(written.iter().all(|(_, _, body)| body.len() <= 128 * 1024));
}

#[test]
fn sequence_ids_go_on_behind_the_last_one_that_the_broker_knows() {
    let mut bench = Bench::open();
    let producer = bench.producer_behind(Batching::Off, 41);
    bench.publish(producer, body(b"x"));
    assert_eq!(sends(bench.written())[0].0.sequence_id, 42);
}

#[test]
fn what_is_too_large_is_refused_and_takes_no_sequence_id() {
    let mut bench = Bench::new(Greeting::default());
    bench.written();
    bench.says(CommandConnected {
        protocol_version: Some(21),
        max_message_size: Some(1_000),
        ..CommandConnected::default()
    });
    for batching in [Batching::Off, Batching::On] {
        let producer = bench.producer(batching);
        let large = Outgoing { payload: vec![1; 1_000].into(), ..Outgoing::default() };
        let tokens = [bench.publish(producer, large), bench.publish(producer, body(b"x"))];
        let written = sends(bench.written());
        assert_eq!(written.len(), 1);
        assert_eq!(written[0].0.sequence_id, 0);
        match &bench.outcome().published[..] {
            [(token, Err(PublishError::TooLarge { bytes, bytes_max: 1_000 }))]
                if *token == tokens[0] =>
            {
                assert!((1_001..1_100).contains(bytes), "{bytes}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_the_broker_does_not_allow_is_refused_alone() {
    let mut bench = Bench::open();
    let producer = bench.producer(Batching::Off);
    let tokens: Vec<u32> = (0..3).map(|_| bench.publish(producer, body(b"x"))).collect();
    bench.written();
    send_error(&mut bench, producer, 1, ServerError::NotAllowedError);
    match &bench.outcome().published[..] {
        [(token, Err(PublishError::Refused(cause)))] => {
            assert_eq!(*token, tokens[1]);
            assert!(cause.contains("NotAllowedError"), "{cause}");
        }
        other => panic!("{other:?}"),
    }
    bench.receipt(producer, 0, 0);
    bench.receipt(producer, 2, 1);
    assert_eq!(super::tokens(&bench.outcome().published), [tokens[0], tokens[2]]);
    assert!(bench.machine.end().is_none());
}

/// The limit of a topic was below the size of a batch. Its broker names a refused batch by its last
/// sequence id. The session searched by the first one, so the batch stayed in flight, and the next
/// receipt ended the connection. A matching search would have refused all messages of the batch for
/// good, including those of other tasks.
#[test]
fn of_a_batch_that_is_refused_each_message_has_another_try_alone() {
    let mut bench = Bench::open();
    let producer = bench.producer(Batching::On);
    let fill = |bench: &mut Bench, count: u32| -> Vec<u32> {
        (0..count).map(|_| bench.publish(producer, body(b"x"))).collect()
    };
    let batch = fill(&mut bench, 3);
    assert_eq!(sizes(&mut bench), [3]);
    let behind = fill(&mut bench, 2);
    assert_eq!(sizes(&mut bench), [2]);
    send_error(&mut bench, producer, 2, ServerError::NotAllowedError);
    let outcome = bench.outcome();
    assert_eq!(tokens(&outcome.published), batch);
    let not_stored = |fate: &Result<_, _>| matches!(fate, Err(PublishError::NotStored(_)));
    assert!(outcome.published.iter().all(|(_, fate)| not_stored(fate)));
    bench.receipt(producer, 3, 7);
    assert_eq!(tokens(&bench.outcome().published), behind);
    fill(&mut bench, 3);
    assert_eq!(sends(bench.written()).len(), 3);
    send_error(&mut bench, producer, 6, ServerError::NotAllowedError);
    let outcome = bench.outcome();
    assert!(matches!(&outcome.published[..], [(_, Err(PublishError::Refused(_)))]));
    assert!(bench.machine.end().is_none());
}

/// The broker kept the producer, which the session had forgotten, until the connection ended.
#[test]
fn what_the_broker_cannot_store_ends_the_producer_on_both_sides() {
    let mut bench = Bench::open();
    let producer = bench.producer(Batching::Off);
    let tokens: Vec<u32> = (0..3).map(|_| bench.publish(producer, body(b"x"))).collect();
    bench.written();
    send_error(&mut bench, producer, 1, ServerError::ChecksumError);
    let outcome = bench.outcome();
    assert_eq!(super::tokens(&outcome.published), tokens);
    for (_, fate) in outcome.published {
        assert!(matches!(fate, Err(PublishError::Unknown(cause)) if cause.contains("Checksum")));
    }
    assert_eq!(outcome.producers_over, [producer]);
    match &bench.commands()[..] {
        [Command::CloseProducer(close)] => assert_eq!(close.producer_id, producer),
        other => panic!("{other:?}"),
    }
    // Later answers of the broker about the producer are ignored.
    bench.receipt(producer, 0, 0);
    assert!(bench.outcome().published.is_empty() && bench.machine.end().is_none());
}

#[test]
fn of_what_a_producer_had_written_when_the_broker_closed_it_nobody_knows_the_fate() {
    let mut bench = Bench::open();
    let producer = bench.producer(Batching::On);
    let tokens: Vec<u32> = (0..6)
        .map(|_| {
            let token = bench.publish(producer, body(b"x"));
            bench.written();
            token
        })
        .collect();
    bench.says(CommandCloseProducer::new(producer, u64::MAX));
    let outcome = bench.outcome();
    assert_eq!(super::tokens(&outcome.published), tokens);
    // Four messages were written, and two waited for their batch.
    let (written, waited) = outcome.published.split_at(4);
    assert!(written.iter().all(|(_, it)| matches!(it, Err(PublishError::Unknown(_)))));
    assert!(waited.iter().all(|(_, it)| matches!(it, Err(PublishError::NotStored(_)))));
    assert_eq!(outcome.producers_over, [producer]);
    assert!(bench.written().is_empty(), "the broker knows");
    let late = bench.publish(producer, body(b"late"));
    let outcome = bench.outcome();
    assert!(
        matches!(&outcome.published[..], [(it, Err(PublishError::NotStored(_)))] if *it == late)
    );
}

#[test]
fn a_receipt_that_is_missing_ends_the_connection() {
    let mut bench = Bench::open();
    let producer = bench.producer(Batching::Off);
    let tokens = [bench.publish(producer, body(b"0")), bench.publish(producer, body(b"1"))];
    bench.written();
    bench.receipt(producer, 1, 0);
    assert!(bench.machine.end().unwrap().cause.contains("expected receipt 0, got 1"));
    let outcome = bench.outcome();
    assert_eq!(super::tokens(&outcome.published), tokens);
    assert!(outcome.published.iter().all(|(_, it)| matches!(it, Err(PublishError::Unknown(_)))));
}

#[test]
fn a_receipt_for_nothing_is_ignored() {
    let mut bench = Bench::open();
    let producer = bench.producer(Batching::Off);
    bench.receipt(producer, 0, 0);
    bench.receipt(99, 0, 0);
    assert!(bench.machine.end().is_none() && bench.outcome().published.is_empty());
}

/// A message that the broker drops as a duplicate gets a receipt without a position.
#[test]
fn a_receipt_without_a_message_says_nothing_about_its_fate() {
    let mut bench = Bench::open();
    let producer = bench.producer(Batching::Off);
    bench.publish(producer, body(b"0"));
    bench.written();
    bench.says(CommandSendReceipt {
        producer_id: producer,
        sequence_id: 0,
        message_id: Some(MessageIdData {
            ledger_id: u64::MAX,
            entry_id: u64::MAX,
            ..MessageIdData::default()
        }),
        highest_sequence_id: None,
    });
    assert!(matches!(&bench.outcome().published[..], [(_, Err(PublishError::Unknown(_)))]));
}

#[test]
fn a_receipt_that_does_not_come_ends_the_producer() {
    let mut bench = Bench::open();
    let producer = bench.producer(Batching::Off);
    let token = bench.publish(producer, body(b"0"));
    bench.written();
    for _ in 0..3 {
        assert!(bench.outcome().published.is_empty());
        bench.wait(Duration::from_secs(10));
        bench.says(longhaul_wire::messages::CommandPong {});
    }
    let outcome = bench.outcome();
    assert_eq!((tokens(&outcome.published), outcome.producers_over), (vec![token], vec![producer]));
    let commands = bench.commands();
    assert!(matches!(commands.last(), Some(Command::CloseProducer(_))), "{commands:?}");
}

#[test]
fn a_producer_is_closed_behind_its_last_receipt() {
    let mut bench = Bench::open();
    let producer = bench.producer(Batching::Off);
    bench.publish(producer, body(b"0"));
    bench.call(ConnectionCall::CloseProducer(producer));
    assert_eq!(sends(bench.written()).len(), 1);
    assert!(!bench.machine.is_quiet());
    bench.receipt(producer, 0, 0);
    let outcome = bench.outcome();
    assert!(outcome.published[0].1.is_ok() && outcome.producers_over.is_empty());
    match &bench.commands()[..] {
        [Command::CloseProducer(close)] => assert_eq!(close.producer_id, producer),
        other => panic!("{other:?}"),
    }
    assert_eq!(bench.outcome().producers_over, [producer]);
}

#[test]
fn a_producer_whose_last_message_is_refused_is_closed_all_the_same() {
    let mut bench = Bench::open();
    let producer = bench.producer(Batching::Off);
    bench.publish(producer, body(b"0"));
    bench.written();
    bench.call(ConnectionCall::CloseProducer(producer));
    send_error(&mut bench, producer, 0, ServerError::NotAllowedError);
    assert!(matches!(&bench.commands()[..], [Command::CloseProducer(_)]));
}

/// The answer that opened a producer did not schedule it: its queued messages waited for the next
/// message, or for ever.
#[test]
fn what_a_producer_is_given_before_it_is_open_is_written_when_it_is() {
    let mut bench = Bench::open();
    let options =
        ProducerOptions { topic: "topic".to_owned(), batching: Batching::Off, schema: None };
    bench.ask(BrokerRequest::Producer(options));
    let [Command::Producer(asked)] = &bench.commands()[..] else { panic!("one PRODUCER") };
    bench.publish(asked.producer_id, body(b"early"));
    bench.call(ConnectionCall::CloseProducer(asked.producer_id));
    assert!(bench.written().is_empty());
    bench.says(CommandProducerSuccess {
        request_id: asked.request_id,
        producer_name: "name".to_owned(),
        ..CommandProducerSuccess::default()
    });
    assert_eq!(sends(bench.written()).len(), 1);
    bench.receipt(asked.producer_id, 0, 0);
    assert!(matches!(&bench.commands()[..], [Command::CloseProducer(_)]));
}

/// When the broker refused the producer, its queued messages were dropped without a result.
#[test]
fn what_a_producer_was_given_that_is_never_opened_is_answered() {
    let mut bench = Bench::open();
    let options =
        ProducerOptions { topic: "topic".to_owned(), batching: Batching::Off, schema: None };
    bench.ask(BrokerRequest::Producer(options));
    let [Command::Producer(asked)] = &bench.commands()[..] else { panic!("one PRODUCER") };
    let token = bench.publish(asked.producer_id, body(b"early"));
    bench.refuses(asked.request_id, ServerError::TopicNotFound);
    let outcome = bench.outcome();
    assert_eq!((outcome.answered.len(), tokens(&outcome.published)), (1, vec![token]));
}

#[test]
fn producers_take_turns_and_a_full_outbox_is_waited_for() {
    let mut bench = Bench::open();
    let producers = [bench.producer(Batching::Off), bench.producer(Batching::Off)];
    for producer in producers {
        for _ in 0..8 {
            let large = Outgoing { payload: vec![1; 60_000].into(), ..Outgoing::default() };
            bench.publish(producer, large);
        }
    }
    let mut out = BytesMut::new();
    bench.machine.transmit(&mut out, bench.now);
    assert!((256 * 1024..256 * 1024 + 61_000).contains(&out.len()), "{}", out.len());
    let before = out.len();
    bench.machine.transmit(&mut out, bench.now);
    assert_eq!(out.len(), before);
    let mut turns = Vec::new();
    while let Some(frame) = frame::decode(&mut out, usize::MAX / 2).unwrap() {
        let Command::Send(send) = frame.command else { panic!("not a SEND") };
        turns.push(send.producer_id);
    }
    let [one, two] = producers;
    assert_eq!(turns, [one, two, one, two, one]);
    assert_eq!(sends(bench.written()).len(), 11);
}
