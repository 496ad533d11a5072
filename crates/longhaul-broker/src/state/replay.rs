//! Applies the records of the log to the state, for the broker and for its simulations.

use super::change::{ChangeRecord, StateChange};
use super::entries::EntryPosition;
use super::entry::EntryHead;
use super::{BrokerState, StateError};
use crate::log::{RecordKind, ReplayedItem};
use prost::Message as _;

/// A change that was set aside, and the reason.
pub(crate) type SetAside = StateError;

/// Applies one record, as the machine did when it appended it.
///
/// A change that contradicts the records before it is set aside and returned, if an earlier version
/// may have recorded it: such versions recorded a change before they checked whether it applies.
/// The state is the same as then, so the running broker refused the change too.
///
/// # Errors
/// A record that cannot be read or comes from a later version, a checkpoint that
/// contradicts itself, and any other change that contradicts the records before it: a record was
/// lost, or was read differently.
pub(crate) fn replay(
    state: &mut BrokerState,
    replayed: ReplayedItem<'_>,
) -> Result<Option<SetAside>, String> {
    match replayed {
        ReplayedItem::Checkpoint(mut image) => {
            while !image.is_empty() {
                let record = ChangeRecord::decode_length_delimited(&mut image);
                let change = known(record.map_err(|cause| cause.to_string())?)?;
                state.apply(&change).map_err(|cause| cause.to_string())?;
            }
            Ok(None)
        }
        ReplayedItem::Entries(run) => {
            state.restore_run(&run);
            Ok(None)
        }
        ReplayedItem::Record { head, place, body, before_checkpoint, may_be_unchecked } => {
            match head.kind {
                RecordKind::Entry => {
                    let mut body = body;
                    let mut entry =
                        EntryHead::decode(&mut body).ok_or("an entry without a head")?;
                    entry.key_hash = Some(entry.key_hash_of(body));
                    let position = EntryPosition { ledger: head.ledger, entry: head.entry };
                    state.restore(head.topic, position, place, &entry);
                    Ok(None)
                }
                RecordKind::Change if before_checkpoint => Ok(None),
                RecordKind::Change => replay_change(state, body, may_be_unchecked),
            }
        }
    }
}

fn replay_change(
    state: &mut BrokerState,
    body: &[u8],
    may_be_unchecked: bool,
) -> Result<Option<SetAside>, String> {
    let record = ChangeRecord::decode(body).map_err(|cause| cause.to_string())?;
    match state.apply(&known(record)?) {
        Ok(()) => Ok(None),
        Err(cause) if may_be_unchecked => Ok(Some(cause)),
        Err(cause) => Err(format!(
            "this change contradicts what was recorded before it ({cause}). Restore the data directory from a copy, or salvage what can be read"
        )),
    }
}

/// Like [`replay`], for a log that this version has written: nothing is set aside.
///
/// # Errors
/// Those of [`replay`], and changes that would be set aside.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn replay_own(
    state: &mut BrokerState,
    replayed: ReplayedItem<'_>,
) -> Result<(), String> {
    replay(state, replayed)?.map_or(Ok(()), |cause| Err(cause.to_string()))
}

fn known(record: ChangeRecord) -> Result<StateChange, String> {
    let unknown = "a change of a kind that this version does not know: use a newer one";
    record.change.ok_or_else(|| unknown.to_owned())
}
