//! Retries reads of an unreadable entry, before the machine goes on without it.

use super::messages::Stored;
use crate::log::{LogReadError, RecordReader};
use crate::machine::BrokerMachine;
use crate::machine::dispatcher::ConsumerKey;
use crate::machine::effect::Survivor;
use crate::machine::unreadable::Unreadable;
use crate::state::entries::EntryPosition;
use bytes::Bytes;
use longhaul_wire::messages::CommandMessage;
use std::time::Duration;

/// Pauses between the attempts to read an entry: a cable, a network disk or a controller may
/// recover.
pub(super) const PAUSES: [Duration; 3] =
    [Duration::from_millis(50), Duration::from_millis(200), Duration::from_millis(500)];

/// A message that was on its way to a consumer.
pub(super) fn of(
    conn: u64,
    command: &CommandMessage,
    stored: &Stored,
    cause: LogReadError,
) -> Unreadable {
    let id = &command.message_id;
    let location = match stored {
        Stored::Log(held) => Some(held.location()),
        Stored::Memory(_) | Stored::Compacted(..) => None,
    };
    Unreadable {
        consumer: ConsumerKey { conn, id: command.consumer_id },
        position: EntryPosition { ledger: id.ledger_id, entry: id.entry_id },
        location,
        cause,
    }
}

/// Makes the machine go on without these entries, and logs its warnings.
pub(super) fn withhold(machine: &mut BrokerMachine, entries: &[Unreadable]) {
    for entry in entries {
        if let Some(text) = machine.withhold(entry) {
            tracing::error!("{text}");
        }
    }
}

/// Reads entries that are to be copied to the end of the log. Unreadable ones are tried again when
/// their segment is cleaned again.
pub(super) async fn read_survivors(
    reader: RecordReader,
    survivors: Vec<Survivor>,
) -> (Vec<(Survivor, Bytes)>, Vec<(Survivor, LogReadError)>) {
    let read = tokio::task::spawn_blocking(move || {
        let locations: Vec<_> = survivors.iter().map(|survivor| survivor.location).collect();
        let (mut read, mut failed) = (Vec::with_capacity(survivors.len()), Vec::new());
        for (survivor, body) in survivors.into_iter().zip(reader.read_many(&locations)) {
            match body {
                Ok(body) => read.push((survivor, body)),
                Err(cause) => failed.push((survivor, cause)),
            }
        }
        (read, failed)
    });
    // If the broker ends, the task does not run, and nothing is copied.
    read.await.unwrap_or_default()
}
