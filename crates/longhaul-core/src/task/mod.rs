//! The public parts of a task: its id, its state, and its entry on the metadata topic.

mod codec;
mod failure;
#[cfg(any(test, feature = "testing"))]
mod flip;
mod id;
mod log_lines;
mod metadata;
mod payload;
mod priority;
pub mod terms;
pub mod text;
mod worker;

pub use codec::{Codec, Codecs, decode, encode};
pub use failure::{Failure, FailureCause};
#[cfg(any(test, feature = "testing"))]
pub use flip::Flip;
pub use id::{TaskId, TaskIdError};
pub use log_lines::LogLines;
pub use longhaul_types::{EntryId, Position, Properties, PropertyWriter};
pub use metadata::{Progress, TaskMetadata, TaskOutcome, TaskState};
pub use metadata::{ShownMetadata, epoch_of, view_properties};
pub use payload::{FromPayload, PayloadError, Raw, Text, ToPayload};
pub use priority::Priority;
pub use worker::{WAITING_MAX, WorkerIdentity};

use std::fmt::{Display, Write};

/// Formats a value into a string with this capacity, so that frequent short texts need one
/// allocation.
pub fn text_of(value: impl Display, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes);
    // Writing to a string cannot fail.
    let _infallible = write!(text, "{value}");
    text
}
