//! Benchmarks of the broker as users run it: the program, over sockets, on a directory.
//!
//! ```text
//! cargo bench -p longhaul-cli --bench broker [-- row…]
//! ```
//!
//! Rows: `start`, `memory`, `publish`, `restart`, `growth`, `week`, `compaction`, `delayed`,
//! `topics`.
//! `growth` keeps `LONGHAUL_BENCH_ENTRIES` entries, 5 million by default; each million takes 0.2 GB
//! of disk. `week` passes as many through, 6 million by default. Timings are printed, not judged:
//! run it on an idle machine. With `LONGHAUL_BENCH_BROKER=host:port` the row `publish` measures a
//! running broker, such as Pulsar.

#![expect(clippy::print_stdout, reason = "its output is for people")]
#![expect(clippy::disallowed_methods, reason = "it measures time")]
#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "a benchmark ends with its first surprise"
)]

#[path = "broker/growth.rs"]
mod growth;
#[path = "broker/topics.rs"]
mod topics;
#[path = "broker/week.rs"]
mod week;

use bytes::{BufMut, Bytes, BytesMut};
use longhaul_wire::frame;
use longhaul_wire::messages::{
    Command, CommandConnect, CommandFlow, CommandProducer, CommandSend, CommandSubscribe,
    InitialPosition, MessageIdData, MessageMetadata, SubType,
};
use longhaul_wire::payload::Payload;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command as Process, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

fn main() {
    let rows: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let wanted = |row: &str| rows.is_empty() || rows.iter().any(|asked| asked == row);
    for (name, run) in [
        ("start", start as fn()),
        ("memory", memory),
        ("publish", publish),
        ("restart", restart),
        ("growth", growth::run),
        ("week", week::run),
        ("compaction", compaction),
        ("delayed", delayed),
        ("topics", topics::run),
    ] {
        if wanted(name) {
            println!("\n## {name}");
            run();
        }
    }
}

/// The program on its own directory.
struct BenchBroker {
    child: Child,
    address: String,
    admin: String,
    started_in: Duration,
}

impl BenchBroker {
    fn start(data: &std::path::Path) -> Self {
        let began = Instant::now();
        let child = Process::new(env!("CARGO_BIN_EXE_longhaul"))
            .args(["broker", "run", "--broker", "127.0.0.1:26657", "--admin", "127.0.0.1:26658"])
            .arg("--data")
            .arg(data)
            .stdout(Stdio::null())
            .env("RUST_LOG", "warn")
            .stdin(Stdio::null())
            .spawn()
            .expect("the program starts");
        let address = "127.0.0.1:26657".to_owned();
        while TcpStream::connect(&address).is_err() {
            std::thread::yield_now();
        }
        // The port opens before the log is read, but an answer comes only afterwards.
        drop(RawConnection::connect(&address));
        let admin = "127.0.0.1:26658".to_owned();
        Self { child, address, admin, started_in: began.elapsed() }
    }

    fn memory_kb(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))
            .unwrap_or_default();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
        line.split_whitespace().nth(1).and_then(|text| text.parse().ok()).unwrap_or_default()
    }

    /// Processor time in s.
    fn cpu(&self) -> f64 {
        let stat =
            std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        let fields: Vec<&str> =
            stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |at: usize| {
            fields.get(at).and_then(|text| text.parse::<f64>().ok()).unwrap_or_default()
        };
        (ticks(11) + ticks(12)) / 100.0
    }

    fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    fn http(&self, method: &str, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.admin).expect("the admin interface");
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }
}

impl Drop for BenchBroker {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A connection that speaks only the protocol.
struct RawConnection {
    stream: TcpStream,
    buffer: BytesMut,
}

impl RawConnection {
    fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).expect("a broker");
        stream.set_nodelay(true).expect("a socket");
        let mut raw = Self { stream, buffer: BytesMut::new() };
        raw.send(CommandConnect {
            client_version: "bench".into(),
            protocol_version: Some(21),
            ..Default::default()
        });
        raw.next();
        raw
    }

    fn send(&mut self, command: impl Into<Command>) {
        let mut out = BytesMut::new();
        frame::encode(command, &mut out);
        self.stream.write_all(&out).expect("a connection");
    }

    fn read(&mut self) -> usize {
        self.buffer.reserve(256 * 1024);
        let mut chunk = [0; 256 * 1024];
        let count = self.stream.read(&mut chunk).expect("a connection");
        self.buffer.put_slice(&chunk[..count]);
        count
    }

    fn next(&mut self) -> frame::Frame {
        loop {
            if let Some(frame) = frame::decode(&mut self.buffer, 5 << 20).expect("a frame") {
                if frame.command == Command::Ping(longhaul_wire::messages::CommandPing {}) {
                    self.send(longhaul_wire::messages::CommandPong {});
                    continue;
                }
                return frame;
            }
            assert!(self.read() > 0, "the broker has hung up");
        }
    }

    fn producer(&mut self, topic: &str) {
        self.send(CommandProducer {
            topic: topic.into(),
            producer_id: 1,
            request_id: 1,
            ..Default::default()
        });
        assert!(matches!(self.next().command, Command::ProducerSuccess(_)));
    }
}

fn send_frame(sequence: u64, payload: &[u8], out: &mut BytesMut) {
    let send = CommandSend { producer_id: 1, sequence_id: sequence, ..Default::default() };
    frame::encode_head(send.into(), payload.len(), out);
    out.put_slice(payload);
}

/// Publishes `count` messages with `in_flight` of them at once, without forcing small writes.
/// Returns the latencies if requested.
fn pipeline(
    address: &str,
    topic: &str,
    count: u64,
    in_flight: u64,
    payload: &dyn Fn(u64) -> Bytes,
) -> (Duration, Vec<u64>) {
    let mut raw = RawConnection::connect(address);
    raw.producer(topic);
    let mut writing = raw.stream.try_clone().expect("a socket");
    let received = Arc::new((Mutex::new(0_u64), Condvar::new()));
    let sent_at: Arc<Vec<AtomicU64>> = Arc::new((0..count).map(|_| AtomicU64::new(0)).collect());
    let began = Instant::now();
    let now = move || u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let reader = std::thread::spawn({
        let (received, sent_at) = (Arc::clone(&received), Arc::clone(&sent_at));
        move || {
            let mut latencies = Vec::with_capacity(usize::try_from(count).unwrap_or_default());
            while (latencies.len() as u64) < count {
                raw.read();
                let at = now();
                while let Some(frame) = frame::decode(&mut raw.buffer, 5 << 20).expect("a frame") {
                    match frame.command {
                        Command::SendReceipt(receipt) => {
                            let sent =
                                &sent_at[usize::try_from(receipt.sequence_id).unwrap_or_default()];
                            latencies.push(at.saturating_sub(sent.load(Ordering::Relaxed)));
                        }
                        Command::SendError(error) => panic!("{error:?}"),
                        _ => {}
                    }
                }
                *received.0.lock().unwrap() = latencies.len() as u64;
                received.1.notify_one();
            }
            latencies
        }
    });
    let mut sent = 0;
    let mut out = BytesMut::new();
    while sent < count {
        let mut done = received.0.lock().unwrap();
        while sent - *done >= in_flight {
            done = received.1.wait(done).unwrap();
        }
        let room = (in_flight - (sent - *done)).min(count - sent).min(1024);
        drop(done);
        let at = now();
        for sequence in sent..sent + room {
            sent_at[usize::try_from(sequence).unwrap_or_default()].store(at, Ordering::Relaxed);
            send_frame(sequence, &payload(sequence), &mut out);
        }
        writing.write_all(&out).expect("a connection");
        out.clear();
        sent += room;
    }
    let mut latencies = reader.join().expect("the reader");
    let took = began.elapsed();
    latencies.sort_unstable();
    (took, latencies)
}

fn plain(size: usize) -> impl Fn(u64) -> Bytes {
    let metadata =
        MessageMetadata { producer_name: "bench".into(), publish_time: 1, ..Default::default() };
    let payload = Payload::new(&metadata, &vec![7; size]).bytes().clone();
    move |_| payload.clone()
}

fn keyed(keys: u64, size: usize) -> impl Fn(u64) -> Bytes {
    move |sequence| {
        let metadata = MessageMetadata {
            producer_name: "bench".into(),
            publish_time: 1,
            partition_key: Some(format!("key-{}", sequence % keys)),
            ..Default::default()
        };
        Payload::new(&metadata, &vec![7; size]).bytes().clone()
    }
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn millis(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}

fn quantile(sorted: &[u64], part: f64) -> f64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index"
    )]
    let at = ((sorted.len() - 1) as f64 * part) as usize;
    millis(sorted[at])
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory")
}

fn start() {
    let folder = directory();
    for _ in 0..5 {
        let broker = BenchBroker::start(folder.path());
        println!("start to ready {:.1} ms", broker.started_in.as_secs_f64() * 1e3);
        broker.kill();
    }
}

fn memory() {
    let folder = directory();
    let broker = BenchBroker::start(folder.path());
    println!(
        "idle {:.1} MB",
        f64::from(u32::try_from(broker.memory_kb()).unwrap_or_default()) / 1024.0
    );
}

fn publish() {
    let folder = directory();
    let named = std::env::var("LONGHAUL_BENCH_BROKER").ok();
    let broker = named.is_none().then(|| BenchBroker::start(folder.path()));
    let address = named.unwrap_or_else(|| "127.0.0.1:26657".into());
    println!(
        "| body | in flight | publishes/s | p50 ms | p99 ms | broker's processor, µs per message |"
    );
    println!("|---|---|---|---|---|---|");
    for (size, in_flight, count) in [
        (100, 1, 5_000),
        (100, 10, 30_000),
        (100, 100, 200_000),
        (100, 1000, 500_000),
        (100, 10_000, 1_000_000),
        (4096, 1000, 100_000),
    ] {
        let cpu = broker.as_ref().map_or(0.0, BenchBroker::cpu);
        let (took, latencies) = pipeline(&address, "bench", count, in_flight, &plain(size));
        let cpu = broker.as_ref().map_or(0.0, BenchBroker::cpu) - cpu;
        let per =
            |seconds: f64| seconds * 1e6 / f64::from(u32::try_from(count).unwrap_or(u32::MAX));
        println!(
            "| {size} | {in_flight} | {:.0} | {:.3} | {:.3} | {:.2} |",
            1e6 / per(took.as_secs_f64()),
            quantile(&latencies, 0.5),
            quantile(&latencies, 0.99),
            per(cpu)
        );
    }
}

fn restart() {
    const COUNT: u64 = 1_000_000;
    let folder = directory();
    let broker = BenchBroker::start(folder.path());
    let before = broker.memory_kb();
    pipeline(&broker.address, "retained", COUNT, 10_000, &plain(100));
    let after = broker.memory_kb();
    broker.kill();
    let broker = BenchBroker::start(folder.path());
    let restarted = broker.memory_kb();
    println!(
        "1,000,000 retained entries of 100 bytes: restart {:.0} ms",
        broker.started_in.as_secs_f64() * 1e3
    );
    println!(
        "memory: {before} kB empty, {after} kB after publishing, {restarted} kB after the restart, {} bytes per entry",
        restarted.saturating_sub(before) * 1024 / COUNT
    );
    // Check that they can be read.
    let mut raw = RawConnection::connect(&broker.address);
    let start = MessageIdData { ledger_id: u64::MAX, entry_id: u64::MAX, ..Default::default() };
    raw.send(CommandSubscribe {
        topic: "retained".into(),
        subscription: "reader".into(),
        sub_type: SubType::Exclusive.into(),
        consumer_id: 1,
        request_id: 2,
        durable: Some(false),
        start_message_id: Some(start),
        initial_position: Some(InitialPosition::Earliest.into()),
        ..Default::default()
    });
    assert!(matches!(raw.next().command, Command::Success(_)));
    let began = Instant::now();
    raw.send(CommandFlow { consumer_id: 1, message_permits: 10_000 });
    let mut received = 0;
    while received < COUNT {
        if matches!(raw.next().command, Command::Message(_)) {
            received += 1;
            if received % 5000 == 0 {
                raw.send(CommandFlow { consumer_id: 1, message_permits: 5000 });
            }
        }
    }
    println!("read back from disk: {:.0} messages/s", 1e6 / began.elapsed().as_secs_f64());
}

fn compaction() {
    const KEYS: u64 = 1_000_000;
    let folder = directory();
    let broker = BenchBroker::start(folder.path());
    pipeline(&broker.address, "compacted", KEYS, 10_000, &keyed(KEYS, 100));
    let measure = || pipeline(&broker.address, "beside", 2_000, 10, &plain(100)).1;
    let path = "/admin/v2/persistent/public/default/compacted/compaction";
    let mut ratios = Vec::new();
    for round in 1..=5 {
        let idle: Vec<u64> = (0..10).flat_map(|_| measure()).collect();
        // Give each compaction work: publish everything again.
        pipeline(&broker.address, "compacted", 10_000, 1_000, &keyed(KEYS, 100));
        assert!(broker.http("PUT", path, "").starts_with("HTTP/1.1 204"));
        let began = Instant::now();
        let mut during = Vec::new();
        while broker.http("GET", path, "").contains("RUNNING") {
            during.extend(measure());
        }
        let took = began.elapsed().as_secs_f64();
        let [idle, during] = [idle, during].map(|mut latencies| {
            latencies.sort_unstable();
            [0.5, 0.99, 1.0].map(|part| quantile(&latencies, part))
        });
        println!(
            "round {round}: publish p50 {:.3}, p99 {:.3}, most {:.1} ms idle; {:.3}, {:.3}, {:.1} ms during a compaction of {took:.2} s",
            idle[0], idle[1], idle[2], during[0], during[1], during[2]
        );
        ratios.push(during[1] / idle[1]);
    }
    ratios.sort_by(f64::total_cmp);
    println!("median ratio {:.2}; memory {} kB", ratios[2], broker.memory_kb());
}

/// The delay of delayed messages, from their requested time to their read from the socket.
fn delayed() {
    const COUNT: u64 = 2_000;
    let folder = directory();
    let broker = BenchBroker::start(folder.path());
    let wall = || {
        let since =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    };
    let mut raw = RawConnection::connect(&broker.address);
    raw.send(CommandSubscribe {
        topic: "delayed".into(),
        subscription: "s".into(),
        sub_type: SubType::Shared.into(),
        consumer_id: 1,
        request_id: 2,
        ..Default::default()
    });
    assert!(matches!(raw.next().command, Command::Success(_)));
    raw.send(CommandFlow { consumer_id: 1, message_permits: 10_000 });
    let first = wall() / 1000 + 1000;
    let payload = move |sequence: u64| {
        let at = i64::try_from(first + sequence).unwrap_or(i64::MAX);
        let metadata =
            MessageMetadata { deliver_at_time: Some(at), publish_time: 1, ..Default::default() };
        Payload::new(&metadata, b"later").bytes().clone()
    };
    pipeline(&broker.address, "delayed", COUNT, 1000, &payload);
    let mut late = Vec::new();
    while (late.len() as u64) < COUNT {
        let frame = raw.next();
        let now = wall();
        let Some(metadata) = frame.payload.and_then(|payload| payload.metadata().ok()) else {
            continue;
        };
        let asked = u64::try_from(metadata.deliver_at_time()).unwrap_or_default() * 1000;
        assert!(now >= asked, "{} us early", asked - now);
        late.push((now - asked) * 1000);
    }
    late.sort_unstable();
    println!(
        "late by p50 {:.2} ms, p99 {:.2} ms, at most {:.2} ms; never early",
        quantile(&late, 0.5),
        quantile(&late, 0.99),
        quantile(&late, 1.0)
    );
}
