//! A task as submitted: its message on the task topic, claimed or not.

use super::logs::{LogReader, Logs};
use super::tasks::{ViewScope, partition_indices, partitions_of};
use super::{Client, Queue, ReadError, partition};
use crate::transport::Message;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
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
    /// The key of the message, which is its [order key](crate::Submission::order_key).
    pub order_key: Option<String>,
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
            .field("order_key", &self.order_key)
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
        message.map(submitted).transpose()
    }

    /// Reads all messages that are still on the task topic, partition by partition, in the order of
    /// their ids: of finished tasks, too. A message that cannot be read as a task is an error beside
    /// its id; behind any other error the stream ends. Messages that another cluster has replicated
    /// are left out.
    ///
    /// # Errors
    /// When the task topic cannot be read.
    #[doc(hidden)]
    pub async fn all_submitted(
        &self,
    ) -> Result<BoxStream<'static, Result<NextSubmitted, ReadError>>, ReadError> {
        let names = self.existing().await?;
        let count = partitions_of(&self.client.inner.transport, &names, ViewScope::All).await?;
        let left = partition_indices(count).into_iter().rev().collect();
        let reader = MessageReader { logs: self.client.logs(), topic: names.task, left, log: None };
        Ok(stream::try_unfold(reader, MessageReader::next).boxed())
    }
}

/// The id of a message, and the task in it or why it cannot be read.
pub type NextSubmitted = (TaskId, Result<SubmittedTask, ReadError>);

/// Reads the partitions of a task topic one after the other.
struct MessageReader {
    logs: Logs,
    topic: String,
    /// The partitions still to be read, the next one last.
    left: Vec<i32>,
    /// The partition that is read.
    log: Option<(i32, LogReader)>,
}

impl MessageReader {
    async fn next(mut self) -> Result<Option<(NextSubmitted, Self)>, ReadError> {
        loop {
            if let Some((index, log)) = &mut self.log {
                let index = *index;
                while let Some(message) = log.next().await? {
                    if message.replicated_from.is_none() {
                        let id = TaskId::new(message.position, index);
                        return Ok(Some(((id, submitted(message)), self)));
                    }
                }
            }
            let Some(index) = self.left.pop() else { return Ok(None) };
            let log = self.logs.open(&partition(self.topic.clone(), index), false).await?;
            self.log = Some((index, log));
        }
    }
}

fn submitted(message: Message) -> Result<SubmittedTask, ReadError> {
    if let Some(cause) = &message.undecodable {
        return Err(ReadError::Undecodable(cause.to_string()));
    }
    let order_key = message.order_key().and_then(|key| String::from_utf8(key.to_vec()).ok());
    Ok(SubmittedTask {
        payload: message.payload,
        properties: message.properties.to_map(),
        published_ms: message.publish_time_ms,
        order_key,
    })
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
