//! Compaction on demand. Brokers also compact by themselves when a topic has grown by its
//! threshold.

use super::admin::Admin;
use super::calls::found;
use super::http::{AdminError, AdminErrorKind};
use super::observe::partition_names;
use http::Method;
use longhaul_core::topics::TopicNames;
use serde::Deserialize;

/// Progress of the compaction of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompactionState {
    /// The broker's name of the partition: `…-partition-N`, or the topic if it has no partitions.
    pub topic: String,
    /// Status.
    pub status: CompactionStatus,
    /// Error of the last compaction; empty otherwise.
    pub last_error: String,
}

/// States of a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[non_exhaustive]
pub enum CompactionStatus {
    /// No compaction was requested since the broker loaded the partition.
    NotRun,
    /// A compaction is running.
    Running,
    /// The last compaction succeeded.
    Success,
    /// The last compaction failed.
    Error,
    /// A status that this version does not know.
    #[serde(other)]
    Unknown,
}

/// A broker's answer.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CompactionStatusJson {
    status: CompactionStatus,
    #[serde(default)]
    last_error: String,
}

/// Starts the compaction of the ledger, the metadata topic and the register of a task topic and of
/// its levels. Returns when the compactions have begun. Compaction is optional: it gives readers of
/// a compacted topic less to read. Compactions that are already running go on, and missing topics
/// are skipped. Dead letters are not compacted.
///
/// # Errors
/// The admin API cannot be reached, or refuses.
pub async fn compact(
    admin: &Admin,
    names: &TopicNames,
    levels: &[TopicNames],
) -> Result<(), AdminError> {
    let admin = admin.retrying();
    for topic in compacted(names, levels) {
        match admin.compact(topic).await {
            Err(error)
                if matches!(error.kind, AdminErrorKind::Conflict | AdminErrorKind::NotFound) => {}
            started => started?,
        }
    }
    Ok(())
}

/// Progress of the compactions that [`compact`] or others have requested, for each existing
/// partition.
///
/// # Errors
/// The admin API cannot be reached, or refuses.
pub async fn compactions(
    admin: &Admin,
    names: &TopicNames,
    levels: &[TopicNames],
) -> Result<Vec<CompactionState>, AdminError> {
    let admin = admin.retrying();
    let mut states = Vec::new();
    for topic in compacted(names, levels) {
        let Some(count) = found(admin.partitions(topic).await)? else { continue };
        for partition in partition_names(topic, count) {
            states.extend(found(admin.compaction(&partition).await)?);
        }
    }
    Ok(states)
}

/// The topics on which a later entry of a key replaces an earlier one.
fn compacted<'a>(names: &'a TopicNames, levels: &'a [TopicNames]) -> impl Iterator<Item = &'a str> {
    let of = |names: &'a TopicNames| [names.ledger.as_str(), names.metadata.as_str()];
    // Levels share the register of their queue.
    let all = [names].into_iter().chain(levels).flat_map(of);
    all.chain([names.register.as_str()])
}

impl Admin {
    /// Starts the compaction of a topic with all its partitions, or of one partition.
    ///
    /// # Errors
    /// [`AdminErrorKind::Conflict`] when a compaction is running.
    pub async fn compact(&self, topic: &str) -> Result<(), AdminError> {
        let call = self.topic_call(Method::PUT, topic, &["compaction"])?;
        self.http.done(&call).await
    }

    /// Progress of the compaction of one partition.
    ///
    /// # Errors
    /// [`AdminErrorKind::NotFound`] when the partition does not exist, or `partition` names a
    /// partitioned topic.
    pub async fn compaction(&self, partition: &str) -> Result<CompactionState, AdminError> {
        let call = self.topic_call(Method::GET, partition, &["compaction"])?;
        let CompactionStatusJson { status, last_error } = self.http.json(&call).await?;
        Ok(CompactionState { topic: partition.to_owned(), status, last_error })
    }
}
