//! Limits against a broker that breaks the protocol: it delivers no more than was requested and no
//! more than there is room for.

use super::*;
use longhaul_wire::compression;
use longhaul_wire::messages::{
    CommandAckResponse, CommandCloseConsumer, CompressionType, EncryptionKeys,
};

const MIB: usize = 1024 * 1024;

/// Unrequested deliveries were accepted, and a broker could fill the memory of an idle worker.
#[test]
fn a_delivery_that_nobody_asked_for_ends_its_consumer() {
    let shared = SubscriptionSpec::Shared { name: "s".to_owned() };
    for subscription in [shared, reader(StartPlace::Earliest, 0)] {
        let mut bench = Bench::open();
        let consumer = bench.subscribe(subscription);
        request(&mut bench, consumer, 2);
        for entry in 0..2 {
            plain(&mut bench, consumer, entry);
        }
        assert_eq!(bench.outcome().delivered.len(), 2);
        plain(&mut bench, consumer, 2);
        let outcome = bench.outcome();
        assert!(outcome.delivered.is_empty());
        assert_eq!(outcome.consumers_over, [consumer]);
        assert!(matches!(&bench.commands()[..], [Command::CloseConsumer(_)]));
    }
}

/// Pulsar sends as many entries at once as there are permits, and only counts the sizes of their
/// batches afterwards.
#[test]
fn entries_are_asked_for_as_brokers_count_them() {
    let mut bench = Bench::open();
    let consumer = bench.consumer();
    request(&mut bench, consumer, 3);
    let (metadata, body) = batch(10);
    for entry in 0..3 {
        bench.delivers(&delivery(consumer, entry), &metadata, &body);
    }
    let outcome = bench.outcome();
    assert_eq!(outcome.delivered.len(), 3);
    assert!(outcome.consumers_over.is_empty());
    // 27 messages came beyond the request; the permits for them do not allow more entries.
    assert_eq!(permits(&request(&mut bench, consumer, 27)), 27);
}

/// An entry of a few bytes claimed to be a batch of 100,000 messages, and each of them was created:
/// 20 MB for the worker, and as many failing tasks.
#[test]
fn a_batch_has_no_more_messages_than_its_bytes_may_hold() {
    let count_of = |claimed: i32, metadata: MessageMetadata, body: &[u8]| {
        let mut bench = Bench::open();
        let consumer = bench.consumer();
        request(&mut bench, consumer, 1);
        let metadata = MessageMetadata { num_messages_in_batch: Some(claimed), ..metadata };
        bench.delivers(&delivery(consumer, 0), &metadata, body);
        let delivered = bench.outcome().delivered.remove(0).1;
        assert!(delivered.iter().all(|it| it.undecodable.is_some()));
        delivered.len()
    };
    let plain = MessageMetadata::default;
    assert_eq!(count_of(100_000, plain(), b"short"), 1);
    assert_eq!(count_of(1_001, plain(), &[0; 6_000]), 1);
    assert_eq!(count_of(1_001, plain(), &[0xff; 6_006]), 1_001);
    // A batch of 1,000 may be compressed to almost nothing before it is encrypted: each of its
    // tasks fails with that reason.
    let keys = vec![EncryptionKeys { key: "k".to_owned(), ..EncryptionKeys::default() }];
    let encrypted = || MessageMetadata { encryption_keys: keys.clone(), ..plain() };
    assert_eq!(count_of(1_000, encrypted(), b"sealed"), 1_000);
    assert_eq!(count_of(1_001, encrypted(), b"sealed"), 1);
}

/// A message that unpacks to this many zeros.
fn zeros(bytes: usize) -> (MessageMetadata, Bytes) {
    let body = Bytes::from(vec![0; bytes]);
    let packed = compression::pack(CompressionType::Zstd, &body).unwrap();
    assert!(packed.len() < 10_000);
    let metadata = MessageMetadata {
        compression: Some(CompressionType::Zstd as i32),
        uncompressed_size: u32::try_from(bytes).ok(),
        ..MessageMetadata::default()
    };
    (metadata, packed)
}

/// Entries of a few KB unpacked to 32 MiB each, as many as there were permits: a worker with room
/// for 100 tasks would have held 3 GB.
#[test]
fn what_would_unpack_to_more_than_there_is_room_for_comes_again_when_there_is() {
    let mut bench = Bench::open();
    let consumer = bench.consumer();
    assert_eq!(permits(&request(&mut bench, consumer, 10)), 10);
    let (metadata, body) = zeros(20 * MIB);
    for entry in 0..4 {
        bench.delivers(&delivery(consumer, entry), &metadata, &body);
    }
    let outcome = bench.outcome();
    assert_eq!(outcome.delivered.len(), 3);
    assert!(outcome.delivered.iter().all(|(_, it)| it[0].payload.len() == 20 * MIB));
    // The entry is returned, and not requested again yet: it would come at once.
    let [Command::Redeliver(back)] = &bench.commands()[..] else { panic!("one REDELIVER") };
    assert_eq!(back.message_ids[0].entry_id, 3);
    // An uncompressed body needs no more room than it already takes.
    plain(&mut bench, consumer, 4);
    assert_eq!(bench.outcome().delivered.len(), 1);
    bench.call(ConnectionCall::Taken { consumer, count: 3, bytes: 60 * MIB });
    assert_eq!(permits(&bench.commands()), 1);
    bench.delivers(&delivery(consumer, 3), &metadata, &body);
    assert_eq!(bench.outcome().delivered.len(), 1);
}

/// A reader cannot return entries. It ends, and the next one continues after its last delivery.
#[test]
fn a_reader_ends_where_there_is_no_room_to_unpack() {
    let mut bench = Bench::open();
    let consumer = bench.subscribe(reader(StartPlace::Earliest, 10));
    bench.commands();
    let (metadata, body) = zeros(30 * MIB);
    for entry in 0..3 {
        bench.delivers(&delivery(consumer, entry), &metadata, &body);
    }
    let outcome = bench.outcome();
    assert_eq!((outcome.delivered.len(), outcome.consumers_over), (2, vec![consumer]));
    assert!(matches!(&bench.commands()[..], [Command::CloseConsumer(_)]));
}

/// A topic moved, and its broker closed the consumer. Acks in flight, and questions, waited ten
/// seconds for answers that never came.
#[test]
fn what_was_asked_of_a_consumer_is_answered_when_the_broker_closes_it() {
    let mut bench = Bench::open();
    let (consumer, other) = (bench.consumer(), bench.consumer());
    let mut ask = |of: u64| {
        let token = bench.token();
        bench.call(ConnectionCall::Ack { consumer: of, entry: entry(0), token });
        let last = bench.ask(BrokerRequest::Last { consumer: of });
        vec![token, last, bench.ask(BrokerRequest::Stats { consumer: of })]
    };
    let (mut expected, others) = (ask(consumer), ask(other));
    let written = bench.commands();
    let acks: Vec<_> = written.iter().filter(|it| matches!(it, Command::Ack(_))).collect();
    assert_eq!(acks.len(), 2);
    bench.says(CommandCloseConsumer::new(consumer, u64::MAX));
    let outcome = bench.outcome();
    let mut answered = tokens(&outcome.answered);
    answered.sort_unstable();
    expected.sort_unstable();
    assert_eq!(answered, expected);
    assert!(outcome.answered.iter().all(|(_, it)| it.is_err()));
    // A late answer changes nothing, and other answers are still expected.
    for ack in written {
        if let Command::Ack(ack) = ack {
            bench.says(CommandAckResponse {
                consumer_id: ack.consumer_id,
                request_id: ack.request_id,
                ..CommandAckResponse::default()
            });
        }
    }
    let outcome = bench.outcome();
    assert!(matches!(&outcome.answered[..], [(it, Ok(_))] if *it == others[0]));
}
