//! A reader: its start, and how far it reads ahead.

use super::*;

fn delivers_batch(bench: &mut Bench, consumer: u64, entry: u64, count: u8) {
    let (metadata, body) = batch(count);
    bench.delivers(&delivery(consumer, entry), &metadata, &body);
}

fn places(bench: &mut Bench) -> Vec<Position> {
    let delivered = bench.outcome().delivered;
    delivered.into_iter().flat_map(|(_, messages)| messages).map(|it| it.position).collect()
}

fn delivers_large(bench: &mut Bench, consumer: u64, entry: u64, bytes: usize) {
    bench.delivers(&delivery(consumer, entry), &MessageMetadata::default(), &vec![1; bytes]);
}

#[test]
fn a_reader_begins_where_it_is_told() {
    let check = |start, id: Option<(u64, u64)>, initial| {
        let mut bench = Bench::open();
        let topic = "topic".to_owned();
        let subscription = reader(start, 100);
        bench.ask(BrokerRequest::Consumer(ConsumerOptions { topic, subscription }));
        let [Command::Subscribe(asked)] = &bench.commands()[..] else { panic!("one SUBSCRIBE") };
        assert_eq!((asked.sub_type, asked.durable), (0, Some(false)));
        let found = asked.start_message_id.as_ref().map(|it| (it.ledger_id, it.entry_id));
        assert_eq!((found, asked.initial_position), (id, Some(initial)));
    };
    check(StartPlace::Earliest, None, 1);
    check(StartPlace::Latest, None, 0);
    check(StartPlace::At(at(3, Some(1))), Some((LEDGER, 3)), 1);
    check(StartPlace::After(at(3, None)), Some((LEDGER, 3)), 1);
}

#[test]
fn what_lies_before_the_start_is_not_delivered() {
    let check = |start, expected: &[Position]| {
        let mut bench = Bench::open();
        let consumer = bench.subscribe(reader(start, 100));
        assert_eq!(permits(&bench.commands()), 100);
        delivers_batch(&mut bench, consumer, 3, 3);
        delivers_large(&mut bench, consumer, 4, 10);
        assert_eq!(places(&mut bench), expected);
    };
    let (first, last) = (at(3, Some(0)), at(3, Some(2)));
    let (middle, next) = (at(3, Some(1)), at(4, None));
    check(StartPlace::Earliest, &[first, middle, last, next]);
    check(StartPlace::At(middle), &[middle, last, next]);
    check(StartPlace::After(middle), &[last, next]);
    check(StartPlace::After(last), &[next]);
    check(StartPlace::At(at(3, None)), &[first, middle, last, next]);
    check(StartPlace::After(next), &[]);
}

/// Skipped messages were sent for permits too, and must not use them up.
#[test]
fn a_reader_without_a_window_gets_what_it_asks_for_behind_what_it_skips() {
    let mut bench = Bench::open();
    let consumer = bench.subscribe(reader(StartPlace::After(at(3, Some(2))), 0));
    assert!(bench.commands().is_empty());
    bench.call(ConnectionCall::Request { consumer, count: 1 });
    assert_eq!(permits(&bench.commands()), 1);
    delivers_batch(&mut bench, consumer, 3, 3);
    assert_eq!(permits(&bench.commands()), 3);
    delivers_batch(&mut bench, consumer, 4, 1);
    assert_eq!(places(&mut bench), [at(4, Some(0))]);
    assert!(bench.commands().is_empty());
}

#[test]
fn a_reader_reads_ahead_as_far_as_its_window_in_bytes() {
    let mut bench = Bench::open();
    let consumer = bench.subscribe(reader(StartPlace::Earliest, 100));
    assert_eq!(permits(&bench.commands()), 100);
    for entry in 0..100 {
        delivers_large(&mut bench, consumer, entry, 200_000);
    }
    assert!(bench.commands().is_empty(), "20 MB wait, five windows");
    for _ in 0..100 {
        bench.call(ConnectionCall::Taken { consumer, count: 1, bytes: 200_000 });
    }
    let granted = permits(&bench.commands());
    assert!((15..25).contains(&granted), "{granted}");
}

/// A follower reports the messages that it took at 250 messages or 1 MiB. After messages of some
/// MiB, a small one was taken and was too little to be reported. The window, which expected another
/// large message, had no room beside it. Both sides waited for ever.
#[test]
fn a_small_message_behind_large_ones_does_not_stop_a_reader() {
    let mut bench = Bench::open();
    let consumer = bench.subscribe(reader(StartPlace::Earliest, 20));
    let mut granted = permits(&bench.commands());
    for entry in 0..40 {
        assert!(granted > 0, "nothing more comes behind entry {entry}");
        delivers_large(&mut bench, consumer, entry, 5 << 20);
        bench.call(ConnectionCall::Taken { consumer, count: 1, bytes: 5 << 20 });
        granted += permits(&bench.commands());
        granted -= 1;
    }
    // All of these are taken, and none is reported.
    for entry in 40..55 {
        assert!(granted > 0, "nothing more comes behind entry {entry}");
        delivers_large(&mut bench, consumer, entry, 10);
        granted += permits(&bench.commands());
        granted -= 1;
    }
}

#[test]
fn a_damaged_delivery_ends_a_reader() {
    let mut bench = Bench::open();
    let consumer = bench.subscribe(reader(StartPlace::Earliest, 0));
    let mut bytes = BytesMut::new();
    let command = delivery(consumer, 1);
    frame::encode_message(command, &MessageMetadata::default(), b"x", &mut bytes);
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    bench.machine.receive(&mut bytes, bench.now);
    assert_eq!(bench.outcome().consumers_over, [consumer]);
    assert!(matches!(&bench.commands()[..], [Command::CloseConsumer(_)]));
}
