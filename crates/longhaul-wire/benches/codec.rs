//! Measures frames, messages and batches: `cargo bench -p longhaul-wire --bench codec`.
//!
//! Each message has 100 bytes and six properties, as ledger entries have. Each row is measured five
//! times; the median is printed.

use bytes::{Bytes, BytesMut};
use longhaul_wire::batch::{BatchBuilder, Singles};
use longhaul_wire::frame;
use longhaul_wire::messages::{CommandSend, KeyValue, MessageMetadata, SingleMessageMetadata};
use longhaul_wire::payload::Payload;
use std::hint::black_box;
use std::io::Write;
use std::time::Instant;

/// Messages per row.
const COUNT: usize = 200_000;
/// Messages per batch.
const BATCH: usize = 100;
const MESSAGE_BYTES_MAX: usize = 5 << 20;
const BODY: [u8; 100] = [b'x'; 100];

fn main() -> std::io::Result<()> {
    let metadata = metadata();
    let send = CommandSend { producer_id: 1, sequence_id: 2, ..CommandSend::default() };
    let mut out = BytesMut::new();
    row("a message into a frame", COUNT, || {
        for _ in 0..COUNT {
            out.clear();
            frame::encode_message(send, black_box(&metadata), &BODY, &mut out);
        }
    })?;
    let mut stream = BytesMut::new();
    for _ in 0..COUNT {
        frame::encode_message(send, &metadata, &BODY, &mut stream);
    }
    let stream = stream.freeze();
    row("frames out of a stream", COUNT, || {
        let mut stream = BytesMut::from(stream.clone());
        while let Ok(Some(frame)) = frame::decode(&mut stream, MESSAGE_BYTES_MAX) {
            black_box(frame);
        }
    })?;
    let payload = Payload::new(&metadata, &BODY);
    row("a checksum", COUNT, || {
        for _ in 0..COUNT {
            drop(black_box(black_box(&payload).verify()));
        }
    })?;
    row("a message's metadata", COUNT, || {
        for _ in 0..COUNT {
            drop(black_box(black_box(&payload).metadata()));
        }
    })?;
    row("a message into a batch", COUNT, || {
        for _ in 0..COUNT / BATCH {
            black_box(batch());
        }
    })?;
    let batch = batch();
    row("a message out of a batch", COUNT, || {
        for _ in 0..COUNT / BATCH {
            Singles::new(batch.clone(), BATCH).for_each(|single| drop(black_box(single)));
        }
    })
}

fn properties() -> Vec<KeyValue> {
    let property = |key: &'static str| KeyValue { key: key.into(), value: "0123456789".into() };
    ["k", "t", "e", "a", "o", "s"].map(property).into()
}

fn metadata() -> MessageMetadata {
    MessageMetadata {
        producer_name: "bench".into(),
        publish_time: 1,
        partition_key: Some("1234:5678:-1/1/0123456789abcdef0123456789abcdef/1".into()),
        properties: properties(),
        ..MessageMetadata::default()
    }
}

fn batch() -> Bytes {
    let mut batch = BatchBuilder::with_capacity(BATCH * 300);
    for _ in 0..BATCH {
        let partition_key = Some("1234:5678:-1/1/0123456789abcdef0123456789abcdef/1".into());
        let properties = properties();
        let single = SingleMessageMetadata { partition_key, properties, ..Default::default() };
        batch.push(single, &BODY);
    }
    batch.finish()
}

/// Prints the nanoseconds per item for `count` items.
#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
#[expect(clippy::cast_precision_loss, reason = "for people")]
fn row(name: &str, count: usize, mut run: impl FnMut()) -> std::io::Result<()> {
    let mut each: Vec<f64> = Vec::new();
    for _ in 0..5 {
        let start = Instant::now();
        run();
        each.push(start.elapsed().as_secs_f64() * 1e9 / count as f64);
    }
    each.sort_by(f64::total_cmp);
    let median = each.get(2).copied().unwrap_or_default();
    writeln!(std::io::stdout(), "{name:<28} {median:>8.0} ns")
}
