//! The cost of one entry that stays open for a week, while a hundred entries per second come and
//! go: disk and memory, compared with the same week without it.
//!
//! A week takes ten minutes: a thousand seconds in each. The broker's timers therefore run less
//! often than in a week. `LONGHAUL_BENCH_PACE` sets the messages per second, by default 100,000.

use super::{BenchBroker, RawConnection, directory, pipeline, plain};
use longhaul_wire::frame;
use longhaul_wire::messages::{
    Command, CommandAck, CommandFlow, CommandSubscribe, InitialPosition, MessageIdData, SubType,
};
use std::path::Path;

/// The messages of a week.
const WEEK: u64 = 100 * 7 * 24 * 60 * 60;
/// The default messages per second, and the messages published at once.
const PACE: u64 = 100_000;
const GO: u64 = 10_000;
const TOPIC: &str = "week";
/// Delivered and unacknowledged besides the one: tasks of ten seconds.
const OPEN: usize = 1000;
/// Messages between two measurements of disk and memory.
const LOOK: u64 = 200_000;

/// The maximum of all measurements after the first.
#[derive(Clone, Copy, Debug, Default)]
struct Most {
    disk_kb: u64,
    memory_kb: u64,
}

pub(super) fn run() {
    let set = |name: &str, otherwise: u64| {
        let text = std::env::var(name).ok();
        text.map_or(otherwise, |text| text.parse().expect("a number of messages"))
    };
    let count = set("LONGHAUL_BENCH_ENTRIES", WEEK / 10);
    let pace = set("LONGHAUL_BENCH_PACE", PACE);
    let [without, with] = [false, true].map(|stays| {
        let began = std::time::Instant::now();
        let most = week(count, pace, stays);
        let rate = u128::from(count) * 1000 / began.elapsed().as_millis().max(1);
        let what = if stays { "one stays open" } else { "all are acknowledged" };
        let (disk, memory) = (most.disk_kb / 1024, most.memory_kb / 1024);
        println!(
            "{count} messages, {rate} a second, {what}: at most {disk} MiB of disk, {memory} MiB of memory"
        );
        most
    });
    let ratio = |with: u64, without: u64| 100 * with / without.max(1);
    println!(
        "with the one: {} % of the disk and {} % of the memory without it",
        ratio(with.disk_kb, without.disk_kb),
        ratio(with.memory_kb, without.memory_kb)
    );
}

fn week(count: u64, pace: u64, stays: bool) -> Most {
    let folder = directory();
    let broker = BenchBroker::start(folder.path());
    let mut consumer = RawConnection::connect(&broker.address);
    consumer.send(CommandSubscribe {
        topic: TOPIC.into(),
        subscription: "workers".into(),
        sub_type: SubType::Shared.into(),
        consumer_id: 1,
        request_id: 2,
        initial_position: Some(InitialPosition::Earliest.into()),
        ..Default::default()
    });
    assert!(matches!(consumer.next().command, Command::Success(_)));
    let address = broker.address.clone();
    let publisher = std::thread::spawn(move || {
        let began = std::time::Instant::now();
        let mut published = 0;
        while published < count {
            let some = GO.min(count - published);
            pipeline(&address, TOPIC, some, 1000, &plain(100));
            published += some;
            let due = std::time::Duration::from_micros(published * 1_000_000 / pace);
            std::thread::sleep(due.saturating_sub(began.elapsed()));
        }
    });
    let mut most = Most::default();
    let mut held = Vec::with_capacity(2 * OPEN);
    consumer.send(CommandFlow { consumer_id: 1, message_permits: 4000 });
    for received in 1..=count {
        held.push(message(&mut consumer));
        if held.len() >= 2 * OPEN {
            // The oldest ones, except the very first.
            let first = usize::from(stays);
            acknowledge(&mut consumer, held.drain(first..=OPEN).collect());
        }
        if received % 2000 == 0 {
            consumer.send(CommandFlow { consumer_id: 1, message_permits: 2000 });
        }
        if received % LOOK == 0 && received > LOOK {
            most.disk_kb = most.disk_kb.max(disk_kb(folder.path()));
            most.memory_kb = most.memory_kb.max(broker.memory_kb());
        }
    }
    publisher.join().expect("the publisher");
    broker.kill();
    most
}

fn message(consumer: &mut RawConnection) -> MessageIdData {
    loop {
        if let Command::Message(message) = consumer.next().command {
            return message.message_id;
        }
    }
}

fn acknowledge(consumer: &mut RawConnection, ids: Vec<MessageIdData>) {
    let mut out = bytes::BytesMut::new();
    let ack = CommandAck { consumer_id: 1, message_id: ids, ..Default::default() };
    frame::encode(ack, &mut out);
    std::io::Write::write_all(&mut consumer.stream, &out).expect("a connection");
}

/// The size of the files in the data directory.
fn disk_kb(folder: &Path) -> u64 {
    let mut bytes = 0;
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            // A segment may be removed meanwhile.
            let Ok(about) = entry.metadata() else { continue };
            if about.is_dir() {
                folders.push(entry.path());
            } else {
                bytes += about.len();
            }
        }
    }
    bytes / 1024
}
