//! What an error means for the program that gets it.

/// What an error means for the program that gets it. Each error returns it by its method `kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A value given with the call is wrong. Nothing was sent.
    Invalid,
    /// A setting of this program is wrong or missing. Nothing was sent.
    Misconfigured,
    /// Something is larger than it may be. Nothing was changed.
    TooLarge,
    /// There is no such task, topic, worker or schedule.
    NotFound,
    /// It was deleted since, or its time on record is over.
    Gone,
    /// Its state does not allow the call, or somebody else has changed it.
    Conflict,
    /// The topics of the queue are not set up as they must be.
    NotSetUp,
    /// What is stored cannot be read as what was asked for.
    Unreadable,
    /// Too much waits already: try again later.
    Busy,
    /// The broker cannot be reached: try again.
    Unreachable,
    /// The request was sent, and its effect is unknown.
    Unknown,
    /// The broker, or what is stored there, does not allow it.
    Refused,
    /// The task failed for good.
    TaskFailed,
    /// The task was cancelled.
    TaskCancelled,
    /// The task was not started in time.
    TaskExpired,
    /// A part of this program, or its machine, failed.
    Internal,
}

/// A kind, and a word that does not change, such as `task_over`.
pub type Class = (ErrorKind, &'static str);

/// Makes the functions `kind` and `code` of an error from its function `class`.
#[macro_export]
macro_rules! classified {
    ($($error:ty),+ $(,)?) => { $(
        impl $error {
            /// What the error means for the program that gets it.
            #[must_use]
            pub fn kind(&self) -> $crate::error::ErrorKind {
                self.class().0
            }

            /// A word for the error that does not change, such as `task_over`: for logs, metrics
            /// and answers.
            #[must_use]
            pub fn code(&self) -> &'static str {
                self.class().1
            }
        }
    )+ };
}
