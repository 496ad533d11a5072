//! Long-running tasks on Apache Pulsar. A tour of the crate, and then the README:
//!
//! - [`Client`] connects, submits tasks and follows them; [`Client::worker`] builds a worker.
//! - [`TaskProcessor`] is what you write, [`TaskContext`] what it is given, [`TaskError`] how it says what follows a failure.
//! - [`WorkerConfig`] holds every setting with its default, [`WorkerHandle`] drains and stops a worker.
//! - [`topics`] names, sets up and checks the topics.
//! - [`TaskMetadata`] is what the public sees of a task.
//!
#![doc = include_str!("../README.md")]
#![cfg_attr(
    not(feature = "testing"),
    allow(
        dead_code,
        unreachable_pub,
        unused_imports,
        reason = "the feature `testing` makes the inner modules public, for model and simulation"
    )
)]

mod client;
#[cfg(not(feature = "testing"))]
mod clock;
mod config;
#[cfg(not(feature = "testing"))]
mod gate;
#[cfg(not(feature = "testing"))]
mod ledger;
#[cfg(not(feature = "testing"))]
mod protocol;
mod task;
#[cfg(not(feature = "testing"))]
mod transport;
#[cfg(not(feature = "testing"))]
mod worker;

pub mod topics;

#[cfg(feature = "admin")]
pub use client::SetupTopicsError;
pub use client::{
    CancelError, Client, ClientBuilder, ConnectError, GetError, Submission, SubmitError, TaskRef,
    TaskRefError, WaitError, Watch, WatchError, WatchEvent, WatchFrom,
};
pub use config::{ConfigError, WorkerConfig};
pub use protocol::config::LedgerConfigError;
pub use protocol::retry::RetryPolicy;
pub use task::{
    EntryId, FromPayload, PayloadError, Position, Progress, Raw, TaskId, TaskIdError, TaskMetadata,
    TaskOutcome, TaskState, Text, ToPayload,
};
#[cfg(feature = "oauth2")]
pub use transport::session::OAuth2;
pub use transport::session::{ClientCertificate, ClientCertificatePaths, Credentials, TlsOptions};
pub use transport::{PublishError, TransportError, TransportErrorKind};
pub use worker::{
    CheckpointError, ConnectionState, FencingToken, ProcessorFn, TaskContext, TaskError,
    TaskErrorKind, TaskProcessor, TestContext, WorkerBuilder, WorkerError, WorkerHandle,
    WorkerStats, processor_fn,
};

// What the project's own tests may reach. Not a stable interface.
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod clock;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod gate;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod ledger;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod protocol;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod transport;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod worker;
