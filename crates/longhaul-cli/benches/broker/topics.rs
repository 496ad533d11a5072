//! How long a publisher waits on a broker with many topics: in the work of each second, beside
//! monitoring, and while checkpoints are written.
//!
//! `LONGHAUL_BENCH_TOPICS` topics, 100,000 by default, each with a durable subscription and an
//! entry that it has not acknowledged.

use super::{BenchBroker, RawConnection, directory, millis, pipeline, plain, quantile};
use bytes::BufMut;
use longhaul_wire::frame;
use longhaul_wire::messages::{Command, CommandProducer, CommandSend, CommandSubscribe, SubType};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Topics that are created over one connection.
const PART: u64 = 1000;
/// How long each of the three is measured.
const SPAN: Duration = Duration::from_secs(20);
/// Bodies that make checkpoints frequent.
const LARGE: usize = 64 * 1024;

pub(super) fn run() {
    let set = std::env::var("LONGHAUL_BENCH_TOPICS").ok();
    let topics: u64 = set.map_or(100_000, |text| text.parse().expect("a number of topics"));
    let folder = directory();
    let broker = BenchBroker::start(folder.path());
    let began = Instant::now();
    (0..topics / PART).map(|part| part * PART).for_each(|from| create(&broker, from));
    let (took, memory) = (began.elapsed().as_secs_f64(), broker.memory_kb() / 1024);
    println!("{topics} topics in {took:.1} s; memory {memory} MiB");
    println!("| beside | publishes | p50 ms | p99 ms | most ms | over 10 ms |");
    println!("|---|---|---|---|---|---|");
    measure(&broker, "nothing", 100, || {});
    measure(&broker, "a scrape each 0.1 s", 100, || drop(broker.http("GET", "/metrics", "")));
    measure(&broker, "large bodies, and so checkpoints", LARGE, || {});
    let metrics = broker.http("GET", "/metrics", "");
    let of = |line: &&str| line.starts_with("longhaul_broker_checkpoint");
    metrics.lines().filter(of).for_each(|line| println!("{line}"));
    broker.kill();
    let broker = BenchBroker::start(folder.path());
    println!("restart {:.0} ms", broker.started_in.as_secs_f64() * 1e3);
}

/// Creates topics with a subscription and an entry each.
fn create(broker: &BenchBroker, from: u64) {
    let mut raw = RawConnection::connect(&broker.address);
    for id in from..from + PART {
        let topic = format!("persistent://public/default/topic-{id}");
        raw.send(CommandSubscribe {
            topic: topic.clone(),
            subscription: "workers".into(),
            sub_type: SubType::Shared.into(),
            consumer_id: id,
            request_id: 2 * id,
            ..Default::default()
        });
        let (producer_id, request_id) = (id, 2 * id + 1);
        raw.send(CommandProducer { topic, producer_id, request_id, ..Default::default() });
    }
    answers(&mut raw, 2 * PART);
    let payload = plain(100)(0);
    let mut out = bytes::BytesMut::new();
    for producer_id in from..from + PART {
        let send = CommandSend { producer_id, ..Default::default() };
        frame::encode_head(send.into(), payload.len(), &mut out);
        out.put_slice(&payload);
    }
    raw.stream.write_all(&out).expect("a connection");
    answers(&mut raw, PART);
}

fn answers(raw: &mut RawConnection, count: u64) {
    let mut answered = 0;
    while answered < count {
        match raw.next().command {
            Command::Success(_) | Command::ProducerSuccess(_) | Command::SendReceipt(_) => {
                answered += 1;
            }
            Command::Error(error) => panic!("{error:?}"),
            Command::SendError(error) => panic!("{error:?}"),
            _ => {}
        }
    }
}

/// Publishes for a while, and prints how long that took at most.
fn measure(broker: &BenchBroker, what: &str, size: usize, beside: impl Fn() + Sync) {
    let is_over = AtomicBool::new(false);
    let mut latencies = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                beside();
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        let (began, mut latencies) = (Instant::now(), Vec::new());
        while began.elapsed() < SPAN {
            latencies.extend(pipeline(&broker.address, "beside", 1000, 10, &plain(size)).1);
        }
        is_over.store(true, Ordering::Relaxed);
        latencies
    });
    latencies.sort_unstable();
    let slow = latencies.iter().filter(|&&nanos| millis(nanos) > 10.0).count();
    let [half, most, all] = [0.5, 0.99, 1.0].map(|part| quantile(&latencies, part));
    let count = latencies.len();
    println!("| {what} | {count} | {half:.3} | {most:.3} | {all:.1} | {slow} |");
}
