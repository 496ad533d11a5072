//! The types for operators: tasks of a queue and their history, settings, dead letters and
//! schedules. Start with a [`Queue`](crate::Queue).

pub use crate::client::{
    ActionRecord, BrokenInvariant, DeadLetter, DeadLetterFilter, DeadLetterPage, DeadLetters,
    HistoryEntry, HistoryEvent, HolderSilence, Ignored, NewestTasks, PastInstant, Purged, Reach,
    Replayed, SubmittedTask, TaskCounts, TaskFilter, TaskHistory, TaskInfo, TaskLease, TaskLimits,
    TaskPage, TaskStatus, TaskStep, TaskView, Verification, VersionedSettings, Why, WhyCause,
    WorkerInfo, Zombie,
};
#[cfg(feature = "schedules")]
pub use crate::client::{Firing, ScheduleInfo, Schedules};
pub use crate::supervise::ConnectionState;
pub use longhaul_core::protocol::register::LimitUse;
pub use longhaul_core::protocol::seal::EndedCounts;
pub use longhaul_core::protocol::waits::{DependencyName, WaitsError};
pub use longhaul_core::settings::{
    DeadLetterSettings, QueueOrder, QueueSettings, QueueSettingsError,
};
