//! The types for operators: tasks of a queue and their history, settings, dead letters, schedules,
//! and moves to another cluster. Start with a [`Queue`](crate::Queue).

pub use crate::client::{
    ActionRecord, BrokenInvariant, Closed, DeadLetter, DeadLetterFilter, DeadLetterPage,
    DeadLetters, Export, ExportRecord, Exported, HistoryEntry, HistoryEvent, HolderSilence,
    Ignored, Imported, MoveError, NewestTasks, PastInstant, Purged, Reach, Replayed, SubmittedTask,
    TaskCounts, TaskFilter, TaskHistory, TaskInfo, TaskLease, TaskLimits, TaskPage, TaskStatus,
    TaskStep, TaskView, Unmoved, Verification, VersionedSettings, Why, WhyCause, WorkerInfo,
    Zombie,
};
#[cfg(feature = "schedules")]
pub use crate::client::{Firing, ScheduleInfo, Schedules};
pub use crate::supervise::ConnectionState;
pub use longhaul_core::protocol::register::LimitUse;
pub use longhaul_core::protocol::seal::EndedCounts;
pub use longhaul_core::settings::{
    DeadLetterSettings, QueueOrder, QueueSettings, QueueSettingsError,
};
