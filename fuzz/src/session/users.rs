//! What the users of a connection do, with what they have and with what they had.

use super::bench::Bench;
use super::script::Script;
use bytes::Bytes;
use longhaul_session::machine::call::{
    BrokerRequest, ConnectionCall, ConsumerOptions, LookupQuestion, ProducerOptions, Publication,
    StartPlace, SubscriptionSpec,
};
use longhaul_transport::{
    Batching, EntryId, Outgoing, Position, TransportError, TransportErrorKind,
};

/// Of every size one that a limit is near to.
const BODY_BYTES: [usize; 8] = [0, 1, 10, 40, 100, 1_000, 5_000, 70_000];
const BODY: &[u8] = &[b'x'; 70_000];
/// A handle that nobody ever had.
const NO_HANDLE: u64 = 1 << 40;

pub(super) fn act(script: &mut Script<'_>, bench: &mut Bench) {
    match script.below(20) {
        0 => ask(bench, |topic| BrokerRequest::Partitions { topic }),
        1 => {
            let authoritative = script.chance(2);
            let listener_name = script.chance(4).then(|| "outside".to_owned());
            ask(bench, |topic| {
                BrokerRequest::Lookup(LookupQuestion { topic, authoritative, listener_name })
            });
        }
        2 | 3 => {
            // The stored inputs have this byte.
            script.chance(2);
            let batching = batching(script);
            open(script, bench, |topic| {
                BrokerRequest::Producer(ProducerOptions { topic, batching, schema: None })
            });
        }
        4 | 5 => {
            let subscription = subscription(script);
            open(script, bench, |topic| {
                BrokerRequest::Consumer(ConsumerOptions { topic, subscription })
            });
        }
        6..=9 => publish(script, bench),
        10 | 11 => {
            let consumer = consumer(script, bench);
            let count = script.one([0, 1, 1, 2, 3, 10, 1_000, u32::MAX]);
            bench.call(ConnectionCall::Request { consumer, count });
        }
        12 => {
            let consumer = consumer(script, bench);
            let count = script.one([1, 5, 300, 1_000_000]);
            let bytes = script.one([0, 100, 1 << 20, usize::MAX]);
            bench.call(ConnectionCall::Taken { consumer, count, bytes });
        }
        13 | 14 => {
            let (consumer, entry) = (consumer(script, bench), entry(script));
            for _ in 0..=script.below(4) {
                let token = bench.token();
                bench.call(ConnectionCall::Ack { consumer, entry, token });
            }
        }
        15 => {
            let (consumer, entry) = (consumer(script, bench), entry(script));
            bench.call(ConnectionCall::HandBack { consumer, entry });
        }
        16 => {
            let consumer = consumer(script, bench);
            let last = BrokerRequest::Last { consumer };
            let stats = BrokerRequest::Stats { consumer };
            let question = if script.chance(2) { last } else { stats };
            ask(bench, |_| question);
        }
        17 | 18 => {
            let producer = producer(script, bench);
            bench.call(ConnectionCall::CloseProducer(producer));
        }
        _ if script.chance(4) => {
            bench.call(if script.chance(2) {
                ConnectionCall::Watch
            } else {
                ConnectionCall::Unwatch
            });
        }
        _ => {
            let consumer = consumer(script, bench);
            bench.call(ConnectionCall::CloseConsumer(consumer));
        }
    }
}

/// The topic is named after the token, so that the question is known again.
fn ask(bench: &mut Bench, question: impl FnOnce(String) -> BrokerRequest) {
    let token = bench.token();
    bench.call(ConnectionCall::Ask(question(format!("topic-{token}")), token));
}

/// Now and then whoever opens something does not wait for the answer: what was opened is closed by the driver then.
fn open(
    script: &mut Script<'_>,
    bench: &mut Bench,
    question: impl FnOnce(String) -> BrokerRequest,
) {
    let token = bench.token();
    if script.chance(8) {
        bench.forsake(token);
    }
    bench.call(ConnectionCall::Ask(question(format!("topic-{token}")), token));
}

fn publish(script: &mut Script<'_>, bench: &mut Bench) {
    let producer = producer(script, bench);
    let size = script.one(BODY_BYTES);
    let deliver_at_ms = script.chance(16).then(|| script.number());
    let count = if size > 1_000 { 1 } else { script.below(16) + 1 };
    for _ in 0..count {
        let token = bench.token();
        let message = Outgoing {
            key: Some(token.to_string()),
            properties: [("k", "v")].into(),
            payload: Bytes::from_static(BODY.get(..size).unwrap_or_default()),
            null: false,
            event_time_ms: None,
            deliver_at_ms,
        };
        let publication = Publication { message, publish_time_ms: 1 };
        bench.call(ConnectionCall::Publish { producer, publication, token });
    }
}

pub(super) fn credentials(script: &mut Script<'_>) -> Result<Option<Bytes>, TransportError> {
    match script.below(8) {
        0 => Ok(None),
        1 if script.chance(8) => Err(TransportError {
            kind: TransportErrorKind::Invalid,
            address: "here".to_owned(),
            cause: "the file is gone".to_owned(),
        }),
        _ => Ok(Some(Bytes::from_static(b"secret"))),
    }
}

fn producer(script: &mut Script<'_>, bench: &Bench) -> u64 {
    let known: Vec<u64> = bench.model.producers.keys().copied().collect();
    script.pick(&known).unwrap_or(NO_HANDLE)
}

fn consumer(script: &mut Script<'_>, bench: &Bench) -> u64 {
    let known: Vec<u64> = bench.model.consumers.keys().copied().collect();
    script.pick(&known).unwrap_or(NO_HANDLE)
}

fn batching(script: &mut Script<'_>) -> Batching {
    if script.chance(2) { Batching::On } else { Batching::Off }
}

fn subscription(script: &mut Script<'_>) -> SubscriptionSpec {
    if script.chance(2) {
        return SubscriptionSpec::Shared { name: "s".to_owned() };
    }
    SubscriptionSpec::Reader {
        name: "r".to_owned(),
        start: place(script),
        compacted: script.chance(2),
        window: script.one([0, 1, 2, 10, 1_000]),
    }
}

fn entry(script: &mut Script<'_>) -> EntryId {
    EntryId { ledger: 7, entry: script.number() }
}

fn place(script: &mut Script<'_>) -> StartPlace {
    let batch_index = script.chance(3).then(|| u32::from(script.byte() % 4));
    let position = Position { ledger: 7, entry: script.number(), batch_index };
    let places = [
        StartPlace::Earliest,
        StartPlace::Latest,
        StartPlace::At(position),
        StartPlace::After(position),
    ];
    script.one(places)
}
