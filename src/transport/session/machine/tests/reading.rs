//! A reader: where it begins, how far it reads ahead, and how it goes on elsewhere.

use super::*;
use longhaul_wire::messages::{CommandCloseConsumer, CommandSeek};

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
        bench.ask(Question::Consumer(ConsumerOptions { topic, subscription }));
        let [Command::Subscribe(asked)] = &bench.commands()[..] else { panic!("one SUBSCRIBE") };
        assert_eq!((asked.sub_type, asked.durable), (0, Some(false)));
        let found = asked.start_message_id.as_ref().map(|it| (it.ledger_id, it.entry_id));
        assert_eq!((found, asked.initial_position), (id, Some(initial)));
    };
    check(Place::Earliest, None, 1);
    check(Place::Latest, None, 0);
    check(Place::At(at(3, Some(1))), Some((LEDGER, 3)), 1);
    check(Place::After(at(3, None)), Some((LEDGER, 3)), 1);
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
    check(Place::Earliest, &[first, middle, last, next]);
    check(Place::At(middle), &[middle, last, next]);
    check(Place::After(middle), &[last, next]);
    check(Place::After(last), &[next]);
    check(Place::At(at(3, None)), &[first, middle, last, next]);
    check(Place::After(next), &[]);
}

/// What is skipped was sent for permits, too, and must not use them up.
#[test]
fn a_reader_without_a_window_gets_what_it_asks_for_behind_what_it_skips() {
    let mut bench = Bench::open();
    let consumer = bench.subscribe(reader(Place::After(at(3, Some(2))), 0));
    assert!(bench.commands().is_empty());
    bench.call(Call::Request { consumer, count: 1 });
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
    let consumer = bench.subscribe(reader(Place::Earliest, 100));
    assert_eq!(permits(&bench.commands()), 100);
    for entry in 0..100 {
        delivers_large(&mut bench, consumer, entry, 200_000);
    }
    assert!(bench.commands().is_empty(), "20 MB wait, five windows");
    for _ in 0..100 {
        bench.call(Call::Taken { consumer, count: 1, bytes: 200_000 });
    }
    let granted = permits(&bench.commands());
    assert!((15..25).contains(&granted), "{granted}");
}

/// A follower tells what it took when it is 250 messages or 1 MiB. Behind messages of some MiB a small one came, was taken, and was
/// too little to be told; the window, which expected the next message to be as large as those before, had no room beside it. Both
/// waited for ever.
#[test]
fn a_small_message_behind_large_ones_does_not_stop_a_reader() {
    let mut bench = Bench::open();
    let consumer = bench.subscribe(reader(Place::Earliest, 20));
    let mut granted = permits(&bench.commands());
    for entry in 0..40 {
        assert!(granted > 0, "nothing more comes behind entry {entry}");
        delivers_large(&mut bench, consumer, entry, 5 << 20);
        bench.call(Call::Taken { consumer, count: 1, bytes: 5 << 20 });
        granted += permits(&bench.commands());
        granted -= 1;
    }
    // All of these are taken, and none is told.
    for entry in 40..55 {
        assert!(granted > 0, "nothing more comes behind entry {entry}");
        delivers_large(&mut bench, consumer, entry, 10);
        granted += permits(&bench.commands());
        granted -= 1;
    }
}

fn seeks(bench: &mut Bench, consumer: u64, to: Place) -> CommandSeek {
    bench.ask(Question::Seek { consumer, to });
    let [Command::Seek(seek)] = &bench.commands()[..] else { panic!("one SEEK") };
    (**seek).clone()
}

fn comes_back(bench: &mut Bench) {
    let [Command::Subscribe(asked)] = &bench.commands()[..] else { panic!("one SUBSCRIBE") };
    let request_id = asked.request_id;
    bench.says(CommandSuccess { request_id, schema: None });
}

#[test]
fn a_reader_goes_on_elsewhere_as_if_it_had_begun_there() {
    for closes in [true, false] {
        let mut bench = Bench::open();
        let consumer = bench.subscribe(reader(Place::Earliest, 10));
        assert_eq!(permits(&bench.commands()), 10);
        let seek = seeks(&mut bench, consumer, Place::After(at(3, Some(1))));
        assert_eq!(
            seek.message_id.as_ref().map(|it| (it.ledger_id, it.entry_id)),
            Some((LEDGER, 3))
        );
        // What was under way is void.
        delivers_batch(&mut bench, consumer, 0, 3);
        if closes {
            bench.says(CommandCloseConsumer { consumer_id: consumer, request_id: u64::MAX });
        }
        delivers_batch(&mut bench, consumer, 1, 3);
        bench.says(CommandSuccess { request_id: seek.request_id, schema: None });
        comes_back(&mut bench);
        let outcome = bench.outcome();
        assert!(outcome.delivered.is_empty() && outcome.consumers_over.is_empty());
        assert!(
            matches!(&outcome.answered[..], [(_, Ok(Answer::Consumer(id)))] if *id == consumer)
        );
        assert_eq!(permits(&bench.commands()), 10, "the broker knows of no permits any more");
        delivers_batch(&mut bench, consumer, 3, 3);
        assert_eq!(places(&mut bench), [at(3, Some(2))]);
    }
}

#[test]
fn a_seek_says_where_to() {
    let mut bench = Bench::open();
    for (to, id, time) in [
        (Place::Earliest, Some(u64::MAX), None),
        (Place::Latest, Some(i64::MAX.unsigned_abs()), None),
        (Place::Since(77), None, Some(77)),
    ] {
        let consumer = bench.subscribe(reader(Place::Earliest, 0));
        let seek = seeks(&mut bench, consumer, to);
        assert_eq!(seek.message_id.as_ref().map(|it| it.ledger_id), id);
        assert_eq!(seek.message_publish_time, time);
    }
}

#[test]
fn a_seek_that_is_refused_ends_the_reader() {
    let mut bench = Bench::open();
    let consumer = bench.subscribe(reader(Place::Earliest, 0));
    let seek = seeks(&mut bench, consumer, Place::Latest);
    bench.refuses(seek.request_id, ServerError::MetadataError);
    let outcome = bench.outcome();
    assert!(matches!(&outcome.answered[..], [(_, Err(_))]));
    assert_eq!(outcome.consumers_over, [consumer]);
}

/// The broker had the consumer placed, or not; nobody knew it any more, so nobody closed it.
#[test]
fn a_reader_whose_seek_is_refused_is_closed_at_the_broker_too() {
    let mut bench = Bench::open();
    let consumer = bench.subscribe(reader(Place::Earliest, 0));
    let seek = seeks(&mut bench, consumer, Place::Latest);
    bench.refuses(seek.request_id, ServerError::MetadataError);
    assert!(
        matches!(&bench.commands()[..], [Command::CloseConsumer(close)] if close.consumer_id == consumer)
    );
}

#[test]
fn a_seek_without_an_answer_ends_the_reader_on_both_sides() {
    let mut bench = Bench::open();
    let consumer = bench.subscribe(reader(Place::Earliest, 0));
    seeks(&mut bench, consumer, Place::Latest);
    bench.wait(Duration::from_secs(10));
    let outcome = bench.outcome();
    assert_eq!((outcome.answered.len(), outcome.consumers_over), (1, vec![consumer]));
    assert!(matches!(&bench.commands()[..], [Command::CloseConsumer(_)]));
}

/// A topic that is unloaded as a reader comes back from being placed elsewhere. The machine took the broker's word for a part of
/// that, and the reader waited for ever.
#[test]
fn a_reader_that_is_closed_when_it_comes_back_is_over() {
    let mut bench = Bench::open();
    let consumer = bench.subscribe(reader(Place::Earliest, 10));
    let request_id = seeks(&mut bench, consumer, Place::Latest).request_id;
    let close = CommandCloseConsumer { consumer_id: consumer, request_id: u64::MAX };
    bench.says(close);
    assert!(bench.outcome().consumers_over.is_empty(), "a part of being placed elsewhere");
    bench.says(CommandSuccess { request_id, schema: None });
    assert!(matches!(&bench.commands()[..], [Command::Subscribe(_)]));
    bench.says(close);
    assert_eq!(bench.outcome().consumers_over, [consumer]);
}

#[test]
fn a_reader_that_is_being_placed_is_not_placed_again() {
    let mut bench = Bench::open();
    let consumer = bench.subscribe(reader(Place::Earliest, 0));
    seeks(&mut bench, consumer, Place::Latest);
    bench.ask(Question::Seek { consumer, to: Place::Earliest });
    assert!(matches!(&bench.outcome().answered[..], [(_, Err(_))]));
    assert!(bench.commands().is_empty());
}

#[test]
fn a_reader_that_is_closed_while_it_is_placed_elsewhere_goes_when_it_is_there() {
    let mut bench = Bench::open();
    let consumer = bench.subscribe(reader(Place::Earliest, 10));
    bench.commands();
    let seek = seeks(&mut bench, consumer, Place::Latest);
    bench.call(Call::CloseConsumer(consumer));
    assert!(bench.commands().is_empty());
    bench.says(CommandSuccess { request_id: seek.request_id, schema: None });
    comes_back(&mut bench);
    let commands = bench.commands();
    assert!(matches!(commands.last(), Some(Command::CloseConsumer(_))), "{commands:?}");
    assert_eq!(bench.outcome().consumers_over, [consumer]);
}

#[test]
fn a_damaged_delivery_ends_a_reader() {
    let mut bench = Bench::open();
    let consumer = bench.subscribe(reader(Place::Earliest, 0));
    let mut bytes = BytesMut::new();
    let command = delivery(consumer, 1);
    frame::encode_message(command, &MessageMetadata::default(), b"x", &mut bytes);
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    bench.machine.receive(&mut bytes, bench.now);
    assert_eq!(bench.outcome().consumers_over, [consumer]);
    assert!(matches!(&bench.commands()[..], [Command::CloseConsumer(_)]));
}
