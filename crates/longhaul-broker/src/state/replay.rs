//! From the records of the log to the state that they lead to: the same for the broker and for simulations of it.

use super::State;
use super::change::ChangeRecord;
use super::entries::Position;
use super::entry::EntryHead;
use crate::log::{Kind, Replayed};
use prost::Message as _;

/// Applies one record, as the machine did when it appended it.
///
/// # Errors
/// What contradicts itself, or comes from a later version.
pub(crate) fn replay(state: &mut State, it: Replayed<'_>) -> Result<(), String> {
    let apply = |state: &mut State, record: ChangeRecord| {
        let Some(change) = record.change else {
            return Err(
                "a change of a kind that this version does not know: use a newer one".to_owned()
            );
        };
        state.apply(&change).map_err(|cause| cause.to_string())
    };
    match it {
        Replayed::Checkpoint(mut image) => {
            while !image.is_empty() {
                let record = ChangeRecord::decode_length_delimited(&mut image)
                    .map_err(|cause| cause.to_string())?;
                apply(state, record)?;
            }
        }
        Replayed::Record { head, place, body, before_checkpoint } => match head.kind {
            Kind::Entry => {
                let mut body = body;
                let entry = EntryHead::decode(&mut body).ok_or("an entry without a head")?;
                let position = Position { ledger: head.ledger, entry: head.entry };
                state.restore(head.topic, position, place, &entry);
            }
            Kind::Change if before_checkpoint => {}
            Kind::Change => {
                apply(state, ChangeRecord::decode(body).map_err(|cause| cause.to_string())?)?;
            }
        },
    }
    Ok(())
}
