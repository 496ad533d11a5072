//! Applies the records of the log to the state, for the broker and for its simulations.

use super::BrokerState;
use super::change::{ChangeRecord, StateChange};
use super::entries::EntryPosition;
use super::entry::EntryHead;
use crate::log::{RecordKind, ReplayedItem};
use prost::Message as _;

/// Applies one record, as the machine did when it appended it.
///
/// # Errors
/// A record that cannot be read or comes from a later version, and a checkpoint or a change that
/// contradicts what was recorded before it: a record was lost, or was read differently.
pub(crate) fn replay(state: &mut BrokerState, replayed: ReplayedItem<'_>) -> Result<(), String> {
    match replayed {
        ReplayedItem::Checkpoint(mut image) => {
            while !image.is_empty() {
                let record = ChangeRecord::decode_length_delimited(&mut image);
                let change = known(record.map_err(|cause| cause.to_string())?)?;
                state.apply(&change).map_err(|cause| cause.to_string())?;
            }
        }
        ReplayedItem::Entries(run) => state.restore_run(&run),
        ReplayedItem::Record { head, location, mut body, before_checkpoint } => match head.kind {
            RecordKind::Entry => {
                let entry = EntryHead::decode(&mut body).ok_or("an entry without a head")?;
                let position = EntryPosition { ledger: head.ledger, entry: head.entry };
                state.restore(head.topic, position, location, &entry);
            }
            RecordKind::Change if before_checkpoint => {}
            RecordKind::Change => replay_change(state, body)?,
        },
    }
    Ok(())
}

fn replay_change(state: &mut BrokerState, body: &[u8]) -> Result<(), String> {
    let record = ChangeRecord::decode(body).map_err(|cause| cause.to_string())?;
    state.apply(&known(record)?).map_err(|cause| {
        format!(
            "this change contradicts what was recorded before it ({cause}). Restore the data directory from a copy, or salvage what can be read"
        )
    })
}

fn known(record: ChangeRecord) -> Result<StateChange, String> {
    let unknown = "a change of a kind that this version does not know: use a newer one";
    record.change.ok_or_else(|| unknown.to_owned())
}
