//! A task as submitted: its message on the task topic, claimed or not.

use super::{Client, Queue, ReadError, partition};
use bytes::Bytes;
use longhaul_core::task::text::TASK_CODEC;
use longhaul_core::task::{PayloadError, TaskId, decode};
use std::collections::BTreeMap;
use std::fmt;

/// A task as submitted.
///
/// Its debug form leaves out the payload, which may be private.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SubmittedTask {
    /// The payload as stored in the message: see [`SubmittedTask::codec`].
    pub payload: Bytes,
    /// The properties of the message: the submitter's own, and the options of the task.
    pub properties: BTreeMap<String, String>,
    /// The publish time, in ms since the epoch by the submitter's wall clock.
    pub published_ms: u64,
}

impl SubmittedTask {
    /// The codec of the payload, if any: [`Client::decode_payload`] decodes it.
    #[must_use]
    pub fn codec(&self) -> Option<&str> {
        self.properties.get(TASK_CODEC).map(String::as_str)
    }
}

impl fmt::Debug for SubmittedTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubmittedTask")
            .field("payload_bytes", &self.payload.len())
            .field("properties", &self.properties)
            .field("published_ms", &self.published_ms)
            .finish()
    }
}

impl Queue {
    /// Reads a task as it was submitted, claimed or not; `None` when its message is no longer on
    /// the task topic, or never was.
    ///
    /// ```no_run
    /// # async fn show(client: longhaul::Client, task: longhaul::TaskRef) -> Result<(), longhaul::ReadError> {
    /// if let Some(submitted) = client.queue(&task.topic).submitted(task.id).await? {
    ///     println!("{} bytes, {:?}", submitted.payload.len(), submitted.properties);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the task topic cannot be read.
    pub async fn submitted(&self, task: TaskId) -> Result<Option<SubmittedTask>, ReadError> {
        let names = self.existing().await?;
        let place = partition(names.task, task.partition);
        let message = self.client.inner.transport.fetch(&place, task.position()).await?;
        let Some(message) = message else { return Ok(None) };
        if let Some(cause) = message.undecodable {
            return Err(ReadError::Undecodable(cause.to_string()));
        }
        Ok(Some(SubmittedTask {
            payload: message.payload,
            properties: message.properties.to_map(),
            published_ms: message.publish_time_ms,
        }))
    }
}

impl Client {
    /// Decodes the payload by its codec; without a codec, returns it unchanged.
    ///
    /// # Errors
    /// When this client has no codec of that name, or the codec cannot decode the bytes.
    pub fn decode_payload(&self, submitted: &SubmittedTask) -> Result<Bytes, PayloadError> {
        let Some(name) = submitted.codec() else { return Ok(submitted.payload.clone()) };
        decode(&**self.inner.settings.codecs.get(name)?, &submitted.payload)
    }
}
