//! What a task is to everybody: its id, its state, and its entry on the metadata topic.

mod codec;
mod id;
mod metadata;
mod payload;
pub(crate) mod terms;
pub(crate) mod text;
mod worker;

pub use codec::Codec;
#[cfg(test)]
pub(crate) use codec::tests::Flip;
pub(crate) use codec::{Codecs, decode, encode};
pub use id::{TaskId, TaskIdError};
pub use longhaul_transport::{EntryId, Position};
pub(crate) use longhaul_transport::{Properties, PropertyWriter};
pub use metadata::{Progress, TaskMetadata, TaskOutcome, TaskState};
pub(crate) use metadata::{ShownMetadata, epoch_of, view_properties};
pub use payload::{FromPayload, PayloadError, Raw, Text, ToPayload};
pub use worker::WorkerIdentity;

use std::fmt::{Display, Write};

/// The text form of what is written often, in memory that is taken once if it has not more bytes than this.
pub(crate) fn text_of(value: impl Display, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes);
    // A string takes whatever is written to it.
    let _infallible = write!(text, "{value}");
    text
}
