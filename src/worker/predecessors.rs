//! The tasks that a task has waited for, as its processor sees them. Their data is read only on
//! request.

use crate::supervise::{
    Connections, KeptFollower, SessionSupervisor, TopicReadEvent, WholeFollower,
};
use crate::transport::{Follow, Start, TopicPartition, Transport, TransportError};
use bytes::Bytes;
use longhaul_core::ledger;
use longhaul_core::task::{FromPayload, PayloadError, Position, TaskId, TaskMetadata};
use std::fmt;
use std::sync::Arc;

/// The outcome of a task that another one has waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PredecessorOutcome {
    /// It has its result.
    Completed,
    /// It failed for good, or the seal of its batch tells only that some of its tasks have no
    /// result.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// It was not started in time.
    Expired,
    /// It does not exist, or could not be waited for because it waits for this task itself.
    Missing,
}

/// A task that this one has waited for: see
/// [`TaskContext::predecessors`](crate::TaskContext::predecessors).
#[derive(Clone)]
pub struct Predecessor {
    name: String,
    task: Option<TaskId>,
    outcome: PredecessorOutcome,
    source: ResultSource,
}

/// The source of a result.
#[derive(Clone)]
enum ResultSource {
    /// There is none.
    Nowhere,
    /// A test supplied it.
    Given(Bytes),
    Broker(Arc<ResultLocation>),
}

/// The location of a result.
pub(super) struct ResultLocation {
    pub(super) transport: Arc<dyn Transport>,
    pub(super) ledger: TopicPartition,
    /// The entry that ended the task, while it is on the ledger.
    pub(super) ended_at: Option<Position>,
    pub(super) metadata: TopicPartition,
}

/// A result could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PredecessorError {
    /// It is of another type.
    #[error("the result of task {0} cannot be decoded: {1}")]
    Decode(String, PayloadError),
    /// The broker does not answer.
    #[error("the result of task {0} cannot be read")]
    Transport(String, #[source] TransportError),
}

impl Predecessor {
    pub(super) fn new(
        (name, task): (String, Option<TaskId>),
        outcome: PredecessorOutcome,
        place: Option<Arc<ResultLocation>>,
    ) -> Self {
        let completed = outcome == PredecessorOutcome::Completed;
        let source =
            place.filter(|_| completed).map_or(ResultSource::Nowhere, ResultSource::Broker);
        Self { name, task, outcome, source }
    }

    pub(super) fn given(task: TaskId, outcome: PredecessorOutcome, result: Option<Bytes>) -> Self {
        let source = result.map_or(ResultSource::Nowhere, ResultSource::Given);
        Self { name: task.to_string(), task: Some(task), outcome, source }
    }

    /// Its id; `None` if it was named by a key that no task has taken.
    #[must_use]
    pub const fn id(&self) -> Option<TaskId> {
        self.task
    }

    /// Its name in the list of the waiting task: its id, or `key:` and its key.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its outcome.
    #[must_use]
    pub const fn outcome(&self) -> PredecessorOutcome {
        self.outcome
    }

    /// Reads its result; `None` if it has none, or if its retention is over. A result that a codec
    /// has encoded is returned in encoded form.
    ///
    /// It is read from the ledger, or, some time after the end of the task (an hour by default),
    /// from the metadata topic, which is read through for that.
    ///
    /// # Errors
    /// If the broker does not answer, or the result is of another type.
    pub async fn result<T: FromPayload>(&self) -> Result<Option<T>, PredecessorError> {
        let Some(bytes) = self.result_bytes().await? else { return Ok(None) };
        let read = T::from_payload(&bytes);
        read.map(Some).map_err(|error| PredecessorError::Decode(self.name.clone(), error))
    }

    /// Like [`result`](Self::result), for the bytes.
    ///
    /// # Errors
    /// If the broker does not answer.
    pub async fn result_bytes(&self) -> Result<Option<Bytes>, PredecessorError> {
        match &self.source {
            ResultSource::Nowhere => Ok(None),
            ResultSource::Given(bytes) => Ok(Some(bytes.clone())),
            ResultSource::Broker(place) => {
                let read = place.read(self.task).await;
                read.map_err(|error| PredecessorError::Transport(self.name.clone(), error))
            }
        }
    }
}

impl ResultLocation {
    async fn read(&self, task: Option<TaskId>) -> Result<Option<Bytes>, TransportError> {
        if let Some(at) = self.ended_at
            && let Some(message) = self.transport.fetch(&self.ledger, at).await?
            && let Some(result) = ledger::content(&message)
        {
            return Ok(Some(result));
        }
        // It was sealed, and its keys are gone.
        match task {
            Some(task) => self.read_metadata(task).await,
            None => Ok(None),
        }
    }

    /// Reads the metadata topic through, and keeps the last entry of the task.
    async fn read_metadata(&self, task: TaskId) -> Result<Option<Bytes>, TransportError> {
        // Not logged: the processor gets the error.
        let connections = Arc::new(Connections::untold());
        let session = SessionSupervisor::of_client(&self.transport, &self.metadata, &connections);
        let follow = Follow { start: Start::Earliest, compacted: true };
        let mut follower = WholeFollower::new(KeptFollower::new(session, follow));
        let (key, mut shown) = (task.to_string(), None);
        while let TopicReadEvent::Messages(messages) = follower.next().await? {
            for message in messages {
                if message.key.as_ref() == Some(&key) {
                    shown = (!message.null).then_some(message.payload);
                }
            }
        }
        let shown = shown.and_then(|json| serde_json::from_slice::<TaskMetadata>(&json).ok());
        // A result without bytes may be left out.
        Ok(shown.map(|shown| shown.result.unwrap_or_default()))
    }
}

impl fmt::Debug for Predecessor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Predecessor")
            .field("name", &self.name)
            .field("outcome", &self.outcome)
            .finish_non_exhaustive()
    }
}
