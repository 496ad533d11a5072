//! Measures reading, writing and folding of ledger entries: `cargo bench -p longhaul-core --bench
//! fold`.
//!
//! The entries are a claim and an outcome of each task. Each row is measured five times; the median
//! is printed.

use bytes::Bytes;
use longhaul_core::ledger;
use longhaul_core::protocol::entry::{Claim, ClaimKind, Done, Entry, Outcome};
use longhaul_core::protocol::fold::TaskFold;
use longhaul_core::protocol::key::{Epoch, OnceKey, OwnerId};
use longhaul_core::task::TaskId;
use longhaul_types::Position;
use longhaul_types::{Message, OrderKey, Outgoing};
use std::collections::HashMap;
use std::hint::black_box;
use std::io::Write;
use std::time::Instant;

const TASKS: u64 = 100_000;
const OWNER: OwnerId = OwnerId(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);

fn main() -> std::io::Result<()> {
    let entries: Vec<Entry> = (0..TASKS).flat_map(|number| [claim(number), done(number)]).collect();
    let content = [b'x'; 100];
    row("an entry into a message", entries.len(), || {
        for entry in &entries {
            black_box(ledger::message(entry, &content));
        }
    })?;
    let messages: Vec<Message> = (0..)
        .zip(&entries)
        .map(|(number, entry)| message(number, ledger::message(entry, &content)))
        .collect();
    row("an entry out of a message", entries.len(), || {
        for message in &messages {
            drop(black_box(ledger::read(black_box(message))));
        }
    })?;
    row("the fold alone", entries.len(), || {
        let mut fold = TaskFold::default();
        for (at, entry) in entries.iter().enumerate() {
            if at % 2 == 0 {
                fold = TaskFold::default();
            }
            black_box(fold.apply(black_box(entry)));
        }
    })?;
    row("the fold of its task by id", entries.len(), || {
        let mut folds: HashMap<TaskId, TaskFold> = HashMap::new();
        for entry in &entries {
            if let Some(task) = entry.task() {
                black_box(folds.entry(task).or_default().apply(entry));
            }
        }
        black_box(folds);
    })
}

fn key(number: u64, serial: u64) -> OnceKey {
    let task = TaskId { ledger: 1, entry: number, partition: -1, batch_index: None };
    OnceKey { task, epoch: Epoch(1), owner: OWNER, serial }
}

fn claim(number: u64) -> Entry {
    let key = key(number, 2 * number);
    Entry::Claim(Claim::plain(key, 1, ClaimKind::Run))
}

fn done(number: u64) -> Entry {
    Entry::Done(Done {
        key: key(number, 2 * number + 1),
        attempt: 1,
        outcome: Outcome::Completed,
        writer: None,
    })
}

fn message(number: u64, outgoing: Outgoing) -> Message {
    let Outgoing { key, properties, payload, null, .. } = outgoing;
    Message {
        position: Position { ledger: 1, entry: number, batch_index: None },
        batch_size: None,
        key,
        order_key: OrderKey::OfMessage,
        properties,
        payload: Bytes::copy_from_slice(&payload),
        undecodable: None,
        null,
        publish_time_ms: 0,
        replicated_from: None,
        redelivery_count: 0,
    }
}

/// Prints the time in ns for one of `count` operations.
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
