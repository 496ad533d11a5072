//! Measures the broker's machine, without sockets and without a disk:
//! `cargo bench -p longhaul-broker --features testing --bench dispatch`.
//!
//! A producer publishes messages of 100 bytes. A Shared consumer requests 1,000 of them, and
//! receives and acknowledges each. The broker encodes and decodes frames as for any client. Each
//! row is measured five times; the median per message is printed.

use anyhow::{Context, Result, ensure};
use bytes::BytesMut;
use longhaul_broker::internals::log::SimulatedStorage;
use longhaul_broker::internals::stepped::{Journal, SteppedBroker};
use longhaul_wire::frame;
use longhaul_wire::messages::{
    Command, CommandAck, CommandConnect, CommandFlow, CommandProducer, CommandSend,
    CommandSubscribe, MessageIdData, MessageMetadata, SubType,
};
use longhaul_wire::payload::Payload;
use std::io::Write;
use std::time::{Duration, Instant};

const MESSAGES: u32 = 20_000;
/// Messages per written group, and per request of the consumer.
const GROUP: u32 = 1_000;
const NOW_MS: u64 = 1_700_000_000_000;
const MESSAGE_BYTES_MAX: usize = 5 << 20;
const TOPIC: &str = "persistent://public/default/bench";
const PRODUCER: u64 = 1;
const CONSUMER: u64 = 2;

fn main() -> Result<()> {
    let mut rounds = Vec::new();
    for _ in 0..5 {
        rounds.push(round()?);
    }
    for (name, part) in [("publish", 0), ("deliver", 1), ("acknowledge", 2)] {
        let mut each: Vec<u128> = rounds
            .iter()
            .filter_map(|times| Some(times.get(part)?.as_nanos() / u128::from(MESSAGES)))
            .collect();
        each.sort_unstable();
        let median = each.get(2).context("five rounds")?;
        writeln!(std::io::stdout(), "{name:<12} {median:>8} ns")?;
    }
    Ok(())
}

/// Times to publish, to deliver and to acknowledge all messages.
fn round() -> Result<[Duration; 3]> {
    let mut bench = DispatchBench::open()?;
    let mut times = [Duration::ZERO; 3];
    let metadata =
        MessageMetadata { producer_name: "bench".into(), publish_time: 1, ..Default::default() };
    let payload = Payload::new(&metadata, &[b'x'; 100]);
    for group in 0..MESSAGES / GROUP {
        let mut bytes = BytesMut::new();
        for sequence in group * GROUP..(group + 1) * GROUP {
            let sequence_id = u64::from(sequence);
            let send = CommandSend { producer_id: 1, sequence_id, ..Default::default() };
            frame::encode_with(send, &payload, &mut bytes);
        }
        let (receipts, took) = timed(|| bench.publish(&bytes))?;
        ensure!(receipts == GROUP, "{receipts} receipts");
        add(&mut times, 0, took);
        let mut acks = BytesMut::new();
        let (mut delivered, mut deliveries) = (0, Vec::new());
        while delivered < GROUP {
            let (bytes, took) = timed(|| Ok(bench.deliver(delivered == 0)))?;
            add(&mut times, 1, took);
            deliveries.clear();
            messages(bytes, &mut deliveries)?;
            ensure!(!deliveries.is_empty(), "{delivered} of {GROUP} delivered");
            delivered += u32::try_from(deliveries.len())?;
            for message_id in deliveries.drain(..) {
                let message_id = vec![message_id];
                let ack = CommandAck { consumer_id: 1, message_id, ..Default::default() };
                frame::encode(ack, &mut acks);
            }
        }
        let (_, took) = timed(|| bench.acknowledge(&acks))?;
        add(&mut times, 2, took);
    }
    let backlog = bench.broker.look(TOPIC, "s").context("statistics")?.1;
    ensure!(backlog == 0, "{backlog} messages are left");
    Ok(times)
}

fn add(times: &mut [Duration; 3], part: usize, took: Duration) {
    if let Some(time) = times.get_mut(part) {
        *time += took;
    }
}

/// A broker with a producer and a consumer.
struct DispatchBench {
    broker: SteppedBroker,
}

impl DispatchBench {
    fn open() -> Result<Self> {
        let broker = SteppedBroker::open(&SimulatedStorage::new(7), NOW_MS)?;
        let mut bench = Self { broker };
        for conn in [PRODUCER, CONSUMER] {
            bench.broker.connect(conn);
            let connect = CommandConnect {
                client_version: "bench".into(),
                protocol_version: Some(21),
                ..Default::default()
            };
            bench.send(conn, connect)?;
        }
        let topic = TOPIC.to_owned();
        let producer = CommandProducer {
            topic: topic.clone(),
            producer_id: 1,
            request_id: 1,
            ..Default::default()
        };
        bench.send(PRODUCER, producer)?;
        let subscribe = CommandSubscribe {
            topic,
            subscription: "s".into(),
            sub_type: SubType::Shared.into(),
            consumer_id: 1,
            request_id: 1,
            ..Default::default()
        };
        bench.send(CONSUMER, subscribe)?;
        Ok(bench)
    }

    fn send(&mut self, conn: u64, command: impl Into<Command>) -> Result<()> {
        let mut bytes = BytesMut::new();
        frame::encode(command, &mut bytes);
        self.broker.receive(conn, &bytes, NOW_MS);
        self.settle()?;
        self.broker.take_output(conn);
        Ok(())
    }

    /// Writes until nothing is left to write.
    fn settle(&mut self) -> Result<()> {
        // The written entries are not needed.
        while self.broker.write(&mut Journal::new())? {
            self.broker.confirm();
        }
        self.broker.advance(NOW_MS);
        Ok(())
    }

    /// Returns the number of receipts.
    fn publish(&mut self, bytes: &[u8]) -> Result<u32> {
        self.broker.receive(PRODUCER, bytes, NOW_MS);
        while self.broker.write(&mut Journal::new())? {
            self.broker.confirm();
        }
        let mut out = self.broker.take_output(PRODUCER);
        let mut receipts = 0;
        while let Some(frame) = frame::decode(&mut out, MESSAGE_BYTES_MAX)? {
            receipts += u32::from(matches!(frame.command, Command::SendReceipt(_)));
        }
        Ok(receipts)
    }

    /// Returns the immediate deliveries, after a request for a group if `ask` is set.
    fn deliver(&mut self, ask: bool) -> BytesMut {
        if ask {
            let flow = CommandFlow { consumer_id: 1, message_permits: GROUP };
            let mut bytes = BytesMut::new();
            frame::encode(flow, &mut bytes);
            self.broker.receive(CONSUMER, &bytes, NOW_MS);
        }
        self.broker.advance(NOW_MS);
        self.broker.take_output(CONSUMER)
    }

    fn acknowledge(&mut self, bytes: &[u8]) -> Result<()> {
        self.broker.receive(CONSUMER, bytes, NOW_MS);
        self.settle()
    }
}

/// The ids of the delivered messages.
fn messages(mut bytes: BytesMut, ids: &mut Vec<MessageIdData>) -> Result<()> {
    while let Some(frame) = frame::decode(&mut bytes, MESSAGE_BYTES_MAX)? {
        if let Command::Message(message) = frame.command {
            ids.push(message.message_id);
        }
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
fn timed<T>(run: impl FnOnce() -> Result<T>) -> Result<(T, Duration)> {
    let start = Instant::now();
    let done = run()?;
    Ok((done, start.elapsed()))
}
