//! A consumer of a Shared subscription: deliveries, acks and returned entries.

use super::*;
use longhaul_wire::messages::{
    CommandAckResponse, CommandCloseConsumer, CommandReachedEndOfTopic, CompressionType,
    EncryptionKeys,
};

fn one_message(bench: &mut Bench) -> Message {
    let mut delivered = bench.outcome().delivered;
    assert_eq!((delivered.len(), delivered[0].1.len()), (1, 1));
    delivered.remove(0).1.remove(0)
}

#[test]
fn a_consumer_that_asks_for_nothing_is_sent_nothing() {
    let mut bench = Bench::open();
    let consumer = bench.consumer();
    assert!(bench.commands().is_empty());
    assert_eq!(permits(&request(&mut bench, consumer, 0)), 0);
}

#[test]
fn permits_are_exact() {
    let mut bench = Bench::open();
    let consumer = bench.consumer();
    assert_eq!(permits(&request(&mut bench, consumer, 1)), 1);
    plain(&mut bench, consumer, 0);
    assert!(bench.commands().is_empty(), "nothing is asked for anew because something came");
    assert_eq!(permits(&request(&mut bench, consumer, 100)), 100);
    for entry in 1..=60 {
        plain(&mut bench, consumer, entry);
    }
    assert!(bench.commands().is_empty());
    assert_eq!(permits(&request(&mut bench, consumer, 7)), 7);
    assert_eq!(bench.outcome().delivered.len(), 61);
}

#[test]
fn what_a_batch_brings_beyond_what_was_asked_for_counts_for_what_is_asked_next() {
    let mut bench = Bench::open();
    let consumer = bench.consumer();
    assert_eq!(permits(&request(&mut bench, consumer, 1)), 1);
    let (metadata, body) = batch(10);
    bench.delivers(&delivery(consumer, 0), &metadata, &body);
    assert_eq!(permits(&bench.commands()), 0);
    let delivered = bench.outcome().delivered.remove(0).1;
    let positions: Vec<Position> = delivered.iter().map(|it| it.position).collect();
    assert_eq!(positions, (0..10).map(|index| at(0, Some(index))).collect::<Vec<_>>());
    assert!(delivered.iter().all(|it| it.batch_size == Some(10)));
    // The broker is owed nine: of the permits for ten more messages, nine pay for those, and one
    // allows a delivery.
    assert_eq!(permits(&request(&mut bench, consumer, 9)), 9);
    assert_eq!(permits(&request(&mut bench, consumer, 1)), 1);
}

#[test]
fn what_was_asked_for_before_the_consumer_was_there_is_asked_for_then() {
    let mut bench = Bench::open();
    let subscription = SubscriptionSpec::Shared { name: "s".to_owned() };
    let topic = "topic".to_owned();
    bench.ask(BrokerRequest::Consumer(ConsumerOptions { topic, subscription }));
    let [Command::Subscribe(asked)] = &bench.commands()[..] else { panic!("one SUBSCRIBE") };
    assert_eq!((asked.sub_type, asked.durable, asked.initial_position), (1, Some(true), Some(1)));
    assert!(request(&mut bench, asked.consumer_id, 3).is_empty());
    bench.says(CommandSuccess { request_id: asked.request_id, schema: None });
    assert_eq!(permits(&bench.commands()), 3);
}

#[test]
fn a_consumer_by_key_says_so() {
    let mut bench = Bench::open();
    let subscription = SubscriptionSpec::KeyShared { name: "s".to_owned() };
    let topic = "topic".to_owned();
    bench.ask(BrokerRequest::Consumer(ConsumerOptions { topic, subscription }));
    let [Command::Subscribe(asked)] = &bench.commands()[..] else { panic!("one SUBSCRIBE") };
    assert_eq!((asked.sub_type, asked.durable, asked.initial_position), (3, Some(true), Some(1)));
    let mode = asked.key_shared_meta.as_ref().map(|meta| meta.key_shared_mode);
    assert_eq!(mode, Some(0), "the broker splits the keys");
}

/// A broker distributes a batch as a whole: the keys of its messages do not determine their order.
#[test]
fn a_message_is_ordered_by_what_the_broker_deals_its_entry_by() {
    let check = |metadata: MessageMetadata, body: &[u8], expected: Option<&[u8]>| {
        let mut bench = Bench::open();
        let consumer = bench.consumer();
        request(&mut bench, consumer, 1);
        bench.delivers(&delivery(consumer, 3), &metadata, body);
        let messages = bench.outcome().delivered.remove(0).1;
        assert!(messages.iter().all(|message| message.order_key() == expected), "{messages:?}");
    };
    let (none, partition_key) = (MessageMetadata::default(), Some("key".to_owned()));
    let ordering_key = Some(Bytes::from_static(b"order"));
    let keyed = MessageMetadata { partition_key: partition_key.clone(), ..none.clone() };
    let ordered = MessageMetadata { ordering_key: ordering_key.clone(), ..keyed.clone() };
    check(none, b"x", None);
    check(keyed, b"x", Some(b"key"));
    check(ordered, b"x", Some(b"order"));
    let (metadata, body) = batch(3);
    check(metadata.clone(), &body, None);
    let keyed = MessageMetadata { partition_key, ..metadata };
    check(keyed.clone(), &body, Some(b"key"));
    check(MessageMetadata { ordering_key, ..keyed }, &body, Some(b"order"));
}

#[test]
fn acks_that_wait_together_go_together_and_each_frame_is_confirmed() {
    let mut bench = Bench::open();
    let consumer = bench.consumer();
    let tokens: Vec<u32> = (0..2_100)
        .map(|index| {
            let token = bench.token();
            bench.call(ConnectionCall::Ack { consumer, entry: entry(index), token });
            token
        })
        .collect();
    let commands = bench.commands();
    let frames: Vec<_> = commands
        .iter()
        .map(|command| match command {
            Command::Ack(ack) => (ack.message_id.len(), ack.request_id.unwrap()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(frames.iter().map(|it| it.0).collect::<Vec<_>>(), [1_000, 1_000, 100]);
    assert!(bench.outcome().answered.is_empty());
    bench.says(CommandAckResponse {
        consumer_id: consumer,
        request_id: Some(frames[1].1),
        ..CommandAckResponse::default()
    });
    let outcome = bench.outcome();
    assert!(outcome.answered.iter().all(|(_, it)| *it.as_ref().unwrap() == BrokerResponse::Done));
    assert_eq!(super::tokens(&outcome.answered), tokens[1_000..2_000]);
    bench.says(CommandAckResponse {
        consumer_id: consumer,
        request_id: Some(frames[2].1),
        error: Some(ServerError::MetadataError as i32),
        ..CommandAckResponse::default()
    });
    let outcome = bench.outcome();
    assert!(outcome.answered.iter().all(|(_, it)| it.is_err()));
    assert_eq!(super::tokens(&outcome.answered), tokens[2_000..]);
    // The first frame gets no answer in time.
    bench.wait(Duration::from_secs(30));
    let outcome = bench.outcome();
    assert!(outcome.answered.iter().all(|(_, it)| it.is_err()));
    assert_eq!(super::tokens(&outcome.answered), tokens[..1_000]);
}

#[test]
fn an_entry_that_is_given_back_comes_again_with_its_count() {
    let mut bench = Bench::open();
    let consumer = bench.consumer();
    request(&mut bench, consumer, 2);
    plain(&mut bench, consumer, 4);
    assert_eq!(one_message(&mut bench).redelivery_count, 0);
    bench.call(ConnectionCall::HandBack { consumer, entry: entry(4) });
    match &bench.commands()[..] {
        [Command::Redeliver(redeliver)] => {
            assert_eq!(redeliver.message_ids.len(), 1);
            assert_eq!(redeliver.message_ids[0].entry_id, 4);
        }
        other => panic!("{other:?}"),
    }
    let again = CommandMessage { redelivery_count: Some(1), ..delivery(consumer, 4) };
    bench.delivers(&again, &MessageMetadata::default(), b"body");
    assert_eq!(one_message(&mut bench).redelivery_count, 1);
}

#[test]
fn a_consumer_that_the_broker_closes_is_over() {
    let mut bench = Bench::open();
    let consumer = bench.consumer();
    request(&mut bench, consumer, 5);
    let token = bench.token();
    bench.call(ConnectionCall::Ack { consumer, entry: entry(0), token });
    bench.says(CommandCloseConsumer::new(consumer, u64::MAX));
    plain(&mut bench, consumer, 1);
    let outcome = bench.outcome();
    assert_eq!(outcome.consumers_over, [consumer]);
    assert!(matches!(&outcome.answered[..], [(it, Err(_))] if *it == token));
    assert!(outcome.delivered.is_empty() && bench.commands().is_empty());
    bench.call(ConnectionCall::Ack { consumer, entry: entry(0), token });
    assert!(matches!(&bench.outcome().answered[..], [(it, Err(_))] if *it == token));
}

#[test]
fn a_consumer_is_closed_behind_its_acks() {
    let mut bench = Bench::open();
    let consumer = bench.consumer();
    let token = bench.token();
    bench.call(ConnectionCall::Ack { consumer, entry: entry(0), token });
    bench.call(ConnectionCall::CloseConsumer(consumer));
    let commands = bench.commands();
    assert!(matches!(&commands[..], [Command::Ack(_), Command::CloseConsumer(_)]), "{commands:?}");
    let Command::Ack(ack) = &commands[0] else { panic!("an ACK") };
    bench.says(CommandAckResponse {
        consumer_id: consumer,
        request_id: ack.request_id,
        ..CommandAckResponse::default()
    });
    let outcome = bench.outcome();
    assert!(matches!(&outcome.answered[..], [(it, Ok(BrokerResponse::Done))] if *it == token));
    assert_eq!(outcome.consumers_over, [consumer]);
}

/// Delivers an entry whose checksum is wrong.
fn damaged(bench: &mut Bench, command: &CommandMessage, metadata: &MessageMetadata, body: &[u8]) {
    let mut bytes = BytesMut::new();
    frame::encode_message(command.clone(), metadata, body, &mut bytes);
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    bench.machine.receive(&mut bytes, bench.now);
}

#[test]
fn a_damaged_entry_is_asked_for_again_and_delivered_at_last() {
    let mut bench = Bench::open();
    let consumer = bench.consumer();
    assert_eq!(permits(&request(&mut bench, consumer, 1)), 1);
    for redelivery_count in 0..3 {
        let command =
            CommandMessage { redelivery_count: Some(redelivery_count), ..delivery(consumer, 5) };
        damaged(&mut bench, &command, &MessageMetadata::default(), b"body");
        match &bench.commands()[..] {
            [Command::Redeliver(_), Command::Flow(flow)] => assert_eq!(flow.message_permits, 1),
            other => panic!("{other:?}"),
        }
        assert!(bench.outcome().delivered.is_empty());
    }
    let command = CommandMessage { redelivery_count: Some(3), ..delivery(consumer, 5) };
    damaged(&mut bench, &command, &MessageMetadata::default(), b"body");
    let message = one_message(&mut bench);
    assert!(message.undecodable.is_some_and(|it| it.contains("checksum")));
    assert_eq!(message.position, at(5, None));
    assert!(bench.commands().is_empty());
}

/// A broker that sent only damaged entries, and read nothing, made the queue of returned entries
/// grow.
#[test]
fn damage_without_an_end_ends_a_consumer() {
    let mut bench = Bench::open();
    let consumer = bench.consumer();
    request(&mut bench, consumer, 20_000);
    for entry in 0..10_000 {
        damaged(&mut bench, &delivery(consumer, entry), &MessageMetadata::default(), b"body");
    }
    assert!(bench.outcome().consumers_over.is_empty());
    damaged(&mut bench, &delivery(consumer, 10_000), &MessageMetadata::default(), b"body");
    assert_eq!(bench.outcome().consumers_over, [consumer]);
    assert!(matches!(&bench.commands()[..], [Command::CloseConsumer(_)]));
}

/// A damaged batch counted as one message, while its broker had used ten permits for it: nine were
/// lost, and a consumer that requested one message at a time got no more.
#[test]
fn a_damaged_batch_takes_the_permits_that_the_broker_took_for_it() {
    let mut bench = Bench::open();
    let consumer = bench.consumer();
    assert_eq!(permits(&request(&mut bench, consumer, 1)), 1);
    let (metadata, body) = batch(10);
    let command = CommandMessage { redelivery_count: Some(3), ..delivery(consumer, 5) };
    damaged(&mut bench, &command, &metadata, &body);
    assert_eq!(one_message(&mut bench).batch_size, None);
    // The broker is owed nine.
    assert_eq!(permits(&bench.commands()), 9);
    assert_eq!(permits(&request(&mut bench, consumer, 1)), 1);
}

#[test]
fn what_cannot_be_read_is_delivered_with_the_reason() {
    let check = |metadata: MessageMetadata, body: &[u8], reason: &str| {
        let mut bench = Bench::open();
        let consumer = bench.consumer();
        request(&mut bench, consumer, 1);
        bench.delivers(&delivery(consumer, 3), &metadata, body);
        let message = one_message(&mut bench);
        assert_eq!((message.position, message.key.as_deref()), (at(3, None), Some("key")));
        assert!(message.payload.is_empty());
        let cause = message.undecodable.unwrap();
        assert!(cause.contains(reason), "{cause}");
    };
    let key =
        || MessageMetadata { partition_key: Some("key".to_owned()), ..MessageMetadata::default() };
    let keys = vec![EncryptionKeys { key: "k".to_owned(), ..EncryptionKeys::default() }];
    check(MessageMetadata { encryption_keys: keys, ..key() }, b"x", "encrypted");
    let (num_chunks_from_msg, total_chunk_msg_size) = (Some(2), Some(7_000));
    let chunk = MessageMetadata { num_chunks_from_msg, total_chunk_msg_size, ..key() };
    check(chunk, b"x", "it is one of 2 chunks of a message of 7000 bytes");
    check(MessageMetadata { compression: Some(77), ..key() }, b"x", "77");
    let zstd = Some(CompressionType::Zstd as i32);
    check(MessageMetadata { compression: zstd, uncompressed_size: Some(9), ..key() }, b"x", "");
    check(MessageMetadata { num_messages_in_batch: Some(-2), ..key() }, b"x", "-2 messages");
    check(MessageMetadata { num_messages_in_batch: Some(i32::MAX), ..key() }, b"x", "2147483647");
}

#[test]
fn of_a_batch_that_is_cut_short_the_rest_is_delivered_with_the_reason() {
    let mut bench = Bench::open();
    let consumer = bench.consumer();
    assert_eq!(permits(&request(&mut bench, consumer, 4)), 4);
    let (metadata, body) = batch(4);
    bench.delivers(&delivery(consumer, 3), &metadata, &body[..body.len() - 2]);
    let delivered = bench.outcome().delivered.remove(0).1;
    let readable: Vec<bool> = delivered.iter().map(|it| it.undecodable.is_none()).collect();
    assert_eq!(readable, [true, true, true, false]);
    assert_eq!(delivered[3].position, at(3, Some(3)));
    assert_eq!(permits(&request(&mut bench, consumer, 1)), 1);
}

#[test]
fn slots_that_compaction_emptied_are_skipped_and_replaced() {
    let mut bench = Bench::open();
    let consumer = bench.consumer();
    assert_eq!(permits(&request(&mut bench, consumer, 4)), 4);
    let (metadata, body) = batch_without(4, &[0, 2]);
    bench.delivers(&delivery(consumer, 3), &metadata, &body);
    let delivered = bench.outcome().delivered.remove(0).1;
    let places: Vec<Position> = delivered.iter().map(|it| it.position).collect();
    assert_eq!(places, [at(3, Some(1)), at(3, Some(3))]);
    assert_eq!(permits(&bench.commands()), 2);
}

#[test]
fn what_is_acknowledged_of_a_batch_is_not_delivered_and_took_no_permits() {
    let mut bench = Bench::open();
    let consumer = bench.consumer();
    assert_eq!(permits(&request(&mut bench, consumer, 3)), 3);
    let (metadata, body) = batch(4);
    let command = CommandMessage { ack_set: vec![0b1010], ..delivery(consumer, 3) };
    bench.delivers(&command, &metadata, &body);
    let delivered = bench.outcome().delivered.remove(0).1;
    let places: Vec<Position> = delivered.iter().map(|it| it.position).collect();
    assert_eq!(places, [at(3, Some(1)), at(3, Some(3))]);
    assert!(delivered.iter().all(|it| it.batch_size == Some(2)));
    assert_eq!(permits(&bench.commands()), 0);
    assert_eq!(permits(&request(&mut bench, consumer, 1)), 1);
}

/// The broker uses a permit for an entry that claims to be an empty batch. The session counted
/// none, and waited for ever for the message of a permit that was already used.
#[test]
fn a_batch_of_none_takes_a_permit() {
    let mut bench = Bench::open();
    let consumer = bench.consumer();
    assert_eq!(permits(&request(&mut bench, consumer, 1)), 1);
    let metadata = MessageMetadata { num_messages_in_batch: Some(0), ..MessageMetadata::default() };
    bench.delivers(&delivery(consumer, 3), &metadata, b"x");
    assert!(one_message(&mut bench).undecodable.is_some());
    assert_eq!(permits(&request(&mut bench, consumer, 1)), 1);
}

#[test]
fn a_delivery_without_a_message_ends_the_connection() {
    let mut bench = Bench::open();
    let consumer = bench.consumer();
    bench.says(delivery(consumer, 1));
    assert!(bench.machine.end().unwrap().cause.contains("without a message"));
}

/// The cluster of origin was dropped with the rest of the metadata, so tasks of another cluster
/// could not be recognized.
#[test]
fn a_message_says_which_cluster_it_comes_from() {
    let mut bench = Bench::open();
    let consumer = bench.consumer();
    request(&mut bench, consumer, 3);
    let replicated_from = || Some("elsewhere".to_owned());
    let (metadata, body) = batch(2);
    let metadata = MessageMetadata { replicated_from: replicated_from(), ..metadata };
    bench.delivers(&delivery(consumer, 0), &metadata, &body);
    let metadata = MessageMetadata { num_messages_in_batch: None, ..metadata };
    bench.delivers(&delivery(consumer, 1), &metadata, &body);
    let delivered: Vec<Message> =
        bench.outcome().delivered.into_iter().flat_map(|it| it.1).collect();
    assert_eq!(delivered.len(), 3);
    assert!(delivered.iter().all(|it| it.replicated_from == replicated_from()));
}

/// Pulsar says so before it confirms a new consumer, or later.
#[test]
fn a_consumer_is_told_that_its_topic_was_terminated_and_drained() {
    let mut bench = Bench::open();
    let end = |consumer_id: u64| CommandReachedEndOfTopic { consumer_id };
    let consumer = bench.consumer();
    let reader = bench.subscribe(reader(StartPlace::Earliest, 10));
    bench.says(end(consumer));
    bench.says(end(reader));
    bench.says(end(99));
    assert_eq!(bench.outcome().drained, [consumer], "readers need no notice");
    let (topic, subscription) =
        ("topic".to_owned(), SubscriptionSpec::Shared { name: "s".to_owned() });
    bench.commands();
    bench.ask(BrokerRequest::Consumer(ConsumerOptions { topic, subscription }));
    let [Command::Subscribe(asked)] = &bench.commands()[..] else { panic!("one SUBSCRIBE") };
    bench.says(end(asked.consumer_id));
    assert!(bench.outcome().drained.is_empty());
    bench.says(CommandSuccess { request_id: asked.request_id, schema: None });
    assert_eq!(bench.outcome().drained, [asked.consumer_id]);
}
