//! Long-running tasks on Apache Pulsar. A tour of the crate, followed by the README:
//!
//! - [`Client`] connects, submits tasks and follows them; [`Client::worker`] builds a worker.
//! - [`TaskProcessor`] is the trait that you implement, [`TaskContext`] its context, and
//!   [`TaskError`] decides what follows a failure.
//! - [`WorkerConfig`] holds every setting with its default, [`WorkerHandle`] drains and stops a
//!   worker.
//! - [`Router`] lets one worker process several types of tasks, [`Middleware`] wraps your code
//!   around its attempts.
//! - [`Queue`], from [`Client::queue`], shows the tasks of a queue and why one does not run. It
//!   also limits and pauses the queue, drains workers, replays dead letters, and manages schedules.
//!   Its types are in [`ops`].
//! - [`lease`] hands tasks to workers that do not speak Pulsar, [`auth`] has credentials.
//! - [`topics`] names, sets up and checks the topics.
//! - The module `testing`, behind the feature of that name, runs workers and clients in a unit
//!   test, without a broker and without waiting.
//! - [`TaskMetadata`] is the public state of a task.
//!
//! [CONTRIBUTING.md]: https://docs.rs/crate/longhaul/latest/source/CONTRIBUTING.md
//! [takeover]: https://docs.rs/crate/longhaul/latest/source/docs/pictures/takeover.png
//! [docs/any-language.md]: https://docs.rs/crate/longhaul/latest/source/docs/any-language.md
//! [docs/architecture.md]: https://docs.rs/crate/longhaul/latest/source/docs/architecture.md
//! [docs/broker.md]: https://docs.rs/crate/longhaul/latest/source/docs/broker.md
//! [docs/cli.md]: https://docs.rs/crate/longhaul/latest/source/docs/cli.md
//! [docs/clients.md]: https://docs.rs/crate/longhaul/latest/source/docs/clients.md
//! [docs/compare.md]: https://docs.rs/crate/longhaul/latest/source/docs/compare.md
//! [docs/concepts.md]: https://docs.rs/crate/longhaul/latest/source/docs/concepts.md
//! [docs/connecting.md]: https://docs.rs/crate/longhaul/latest/source/docs/connecting.md
//! [docs/dashboard.md]: https://docs.rs/crate/longhaul/latest/source/docs/dashboard.md
//! [docs/dead-letters.md]: https://docs.rs/crate/longhaul/latest/source/docs/dead-letters.md
//! [docs/dependencies.md]: https://docs.rs/crate/longhaul/latest/source/docs/dependencies.md
//! [docs/exec.md]: https://docs.rs/crate/longhaul/latest/source/docs/exec.md
//! [docs/http.md]: https://docs.rs/crate/longhaul/latest/source/docs/http.md
//! [docs/limits.md]: https://docs.rs/crate/longhaul/latest/source/docs/limits.md
//! [docs/order.md]: https://docs.rs/crate/longhaul/latest/source/docs/order.md
//! [docs/packaging.md]: https://docs.rs/crate/longhaul/latest/source/docs/packaging.md
//! [docs/performance.md]: https://docs.rs/crate/longhaul/latest/source/docs/performance.md
//! [docs/platform.md]: https://docs.rs/crate/longhaul/latest/source/docs/platform.md
//! [docs/protocol.md]: https://docs.rs/crate/longhaul/latest/source/docs/protocol.md
//! [docs/reading.md]: https://docs.rs/crate/longhaul/latest/source/docs/reading.md
//! [docs/runbooks.md]: https://docs.rs/crate/longhaul/latest/source/docs/runbooks.md
//! [docs/schedules.md]: https://docs.rs/crate/longhaul/latest/source/docs/schedules.md
//! [docs/start.md]: https://docs.rs/crate/longhaul/latest/source/docs/start.md
//! [docs/telemetry.md]: https://docs.rs/crate/longhaul/latest/source/docs/telemetry.md
//! [docs/tested.md]: https://docs.rs/crate/longhaul/latest/source/docs/tested.md
//! [docs/testing.md]: https://docs.rs/crate/longhaul/latest/source/docs/testing.md
//! [docs/tour.md]: https://docs.rs/crate/longhaul/latest/source/docs/tour.md
//! [docs/upgrading.md]: https://docs.rs/crate/longhaul/latest/source/docs/upgrading.md
//! [docs/workers.md]: https://docs.rs/crate/longhaul/latest/source/docs/workers.md
//!
// The first of two definitions of a link wins. These replace the README's relative paths, which do
// not work on docs.rs.
#![doc = include_str!("../README.md")]

#[cfg(test)]
mod captured;
mod chance;
mod client;
mod config;
mod letters;
mod supervise;
mod telemetry;
mod transport;
mod worker;

pub mod lease;
#[doc(hidden)]
pub mod migration;
pub mod ops;
#[cfg(feature = "testing")]
pub mod testing;
pub mod topics;

/// Credentials of a client, and the certificates that it trusts.
pub mod auth {
    #[cfg(feature = "oauth2")]
    pub use longhaul_session::OAuth2;
    pub use longhaul_session::{
        ClientCertificate, ClientCertificatePaths, Credentials, TlsOptions,
    };
}

pub use client::{
    ActionError, Cancellation, Client, ClientBuilder, ConnectError, Queue, ReadError, Submission,
    SubmitError, TaskRef, TaskRefError, WaitError, Watch, WatchEvent, WatchFrom, WatchPlace,
    WatchPlaceError,
};
pub use config::{ConfigError, WorkerConfig};
pub use longhaul_core::protocol::config::{LedgerConfigError, LedgerTimes};
pub use longhaul_core::protocol::retry::RetryPolicy;
pub use longhaul_core::protocol::waits::AfterFailed;
#[cfg(feature = "schedules")]
pub use longhaul_core::schedule::{Overlap, Schedule, ScheduleError};
pub use longhaul_core::settings::{Limit, Rate};
pub use longhaul_core::task::{
    Codec, EntryId, FailureCause, FromPayload, PayloadError, Position, Progress, Raw, TaskId,
    TaskIdError, TaskMetadata, TaskOutcome, TaskState, Text, ToPayload, WorkerIdentity,
};
pub use longhaul_types::error::ErrorKind;
pub use topics::Priority;
pub use transport::{PublishError, TransportError, TransportErrorKind};
#[cfg(feature = "tower")]
pub use worker::tower;
pub use worker::{Blocking, BlockingFn, BlockingProcessor, blocking, blocking_fn};
pub use worker::{
    CheckpointError, DeadLetterPolicy, FencingToken, Levels, Middleware, Next, Predecessor,
    PredecessorError, PredecessorOutcome, ProcessorFn, Router, Share, TaskContext, TaskError,
    TaskErrorKind, TaskProcessor, TestContext, With, WorkerBuilder, WorkerError, WorkerHandle,
    WorkerStats, processor_fn,
};

/// Compiles and runs the code of these pages as doc tests of this crate.
#[cfg(all(doctest, feature = "schedules", feature = "testing"))]
#[doc = include_str!("../docs/connecting.md")]
#[doc = include_str!("../docs/dead-letters.md")]
#[doc = include_str!("../docs/embedded.md")]
#[doc = include_str!("../docs/limits.md")]
#[doc = include_str!("../docs/order.md")]
#[doc = include_str!("../docs/reading.md")]
#[doc = include_str!("../docs/schedules.md")]
#[doc = include_str!("../docs/workers.md")]
mod pages {}

use longhaul_transport::{clock, gate};
