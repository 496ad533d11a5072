//! What is done about an entry that cannot be read, before the machine sets it aside.

use super::messages::Stored;
use crate::log::{ReadError, Reader};
use crate::machine::Machine;
use crate::machine::dispatcher::ConsumerKey;
use crate::machine::effect::Survivor;
use crate::machine::unreadable::Unreadable;
use crate::state::entries::Position;
use bytes::Bytes;
use longhaul_wire::messages::CommandMessage;
use std::time::Duration;

/// Between the attempts to read an entry: a cable, a network disk or a controller may recover.
pub(super) const PAUSES: [Duration; 3] =
    [Duration::from_millis(50), Duration::from_millis(200), Duration::from_millis(500)];

/// A message that was on its way to a consumer.
pub(super) fn of(
    conn: u64,
    command: &CommandMessage,
    stored: &Stored,
    cause: ReadError,
) -> Unreadable {
    let id = &command.message_id;
    let place = match stored {
        Stored::Log(held) => Some(held.place()),
        Stored::Memory(_) | Stored::Compacted(..) => None,
    };
    Unreadable {
        consumer: Some(ConsumerKey { conn, id: command.consumer_id }),
        topic: None,
        position: Position { ledger: id.ledger_id, entry: id.entry_id },
        place,
        cause,
    }
}

/// Lets the machine go on without these entries, and says so in the log.
pub(super) fn set_aside(machine: &mut Machine, entries: &[Unreadable]) {
    for entry in entries {
        if let Some(text) = machine.set_aside(entry) {
            tracing::error!("{text}");
        }
    }
}

/// Reads entries that are to be copied to the end of the log.
pub(super) async fn read_survivors(
    reader: &Reader,
    survivors: Vec<Survivor>,
) -> (Vec<(Survivor, Bytes)>, Vec<Unreadable>) {
    let (mut read, mut left) = (Vec::with_capacity(survivors.len()), survivors);
    let mut unreadable = Vec::new();
    for pause in [Duration::ZERO].into_iter().chain(PAUSES) {
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        let places: Vec<_> = left.iter().map(|it| it.place).collect();
        let reader = reader.clone();
        let bodies = tokio::task::spawn_blocking(move || reader.read_many(&places));
        // It is not run where the broker ends, and then nothing is copied.
        let Ok(bodies) = bodies.await else { break };
        unreadable.clear();
        let tried = std::mem::take(&mut left);
        for (survivor, body) in tried.into_iter().zip(bodies) {
            match body {
                Ok(body) => read.push((survivor, body)),
                // It was removed, so that nobody needs it.
                Err(ReadError::Gone { .. }) => {}
                Err(cause) => {
                    left.push(survivor);
                    unreadable.push(Unreadable {
                        consumer: None,
                        topic: Some(survivor.topic),
                        position: survivor.position,
                        place: Some(survivor.place),
                        cause,
                    });
                }
            }
        }
        if left.is_empty() {
            break;
        }
    }
    (read, unreadable)
}
