//! What a task is to everybody: its id, its state, and its entry on the metadata topic.

mod id;
mod metadata;
mod properties;
pub(crate) mod text;

pub use id::{EntryId, Position, TaskId, TaskIdError};
pub use metadata::{Progress, TaskMetadata, TaskOutcome, TaskState};
pub(crate) use metadata::{ShownMetadata, epoch_of, view_properties};
pub use properties::Properties;
pub(crate) use properties::PropertyWriter;
