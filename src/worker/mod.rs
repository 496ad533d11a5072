//! Workers.

mod blocking;
mod budget;
mod builder;
mod coded;
mod dead_letters;
mod drain_request;
mod driver;
mod erased;
mod execution;
#[cfg_attr(
    not(feature = "testing"),
    allow(unreachable_pub, reason = "only the module `testing` shows how a worker is prepared")
)]
mod handle;
mod identity;
mod intake;
pub(crate) mod leasing;
mod mailbox;
mod middleware;
mod predecessors;
#[cfg(feature = "admin")]
mod preflight;
#[cfg(not(feature = "admin"))]
#[path = "preflight_without_admin.rs"]
mod preflight;
mod processor;
mod processor_fn;
mod reports;
mod router;
mod session;
mod shares;
mod signal;
mod stats;
mod task_error;
mod test_context;
#[cfg(feature = "tower")]
pub mod tower;

pub use blocking::{Blocking, BlockingFn, BlockingProcessor, blocking, blocking_fn};
pub use builder::WorkerBuilder;
pub use dead_letters::DeadLetterPolicy;
pub(crate) use handle::HandleView;
#[cfg(feature = "testing")]
pub use handle::{Plan, Surroundings, prepare};
pub use handle::{WorkerError, WorkerHandle};
pub(crate) use identity::of_this_process;
pub use middleware::{Middleware, Next, With};
pub use predecessors::{Predecessor, PredecessorError, PredecessorOutcome};
pub(crate) use preflight::Preflight;
pub use processor::{CheckpointError, FencingToken, TaskContext, TaskProcessor};
pub use processor_fn::{ProcessorFn, processor_fn};
pub use router::Router;
pub use shares::{Levels, Share};
pub use stats::WorkerStats;
#[cfg(feature = "testing")]
pub(crate) use task_error::chain;
pub use task_error::{TaskError, TaskErrorKind};
pub use test_context::TestContext;
