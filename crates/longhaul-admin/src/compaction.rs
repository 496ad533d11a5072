//! Compaction on demand: what a broker does by itself when a topic has grown by its threshold.

use super::admin::Admin;
use super::calls::{AdminCalls, found};
use super::http::{AdminError, AdminErrorKind};
use super::observe::{TopicPartitioning, partition_names};
use longhaul_core::topics::TopicNames;
use reqwest::Method;
use serde::Deserialize;

/// How far the compaction of one partition has come.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompactionState {
    /// The partition, as the broker knows it: `…-partition-N`, or the topic where it has none.
    pub topic: String,
    /// Where it stands.
    pub status: CompactionStatus,
    /// Why the last one failed; empty otherwise.
    pub last_error: String,
}

/// States of a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[non_exhaustive]
pub enum CompactionStatus {
    /// None was asked for since the broker has loaded the partition.
    NotRun,
    /// One is under way.
    Running,
    /// The last one ended well.
    Success,
    /// The last one failed.
    Error,
    /// A state that this version does not know.
    #[serde(other)]
    Unknown,
}

/// What a broker answers.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CompactionStatusJson {
    status: CompactionStatus,
    #[serde(default)]
    last_error: String,
}

/// Has the broker compact the ledger, the metadata topic and the register of a task topic, and
/// those of its levels, and returns when that has begun. Nothing depends on it: a reader of a
/// compacted topic has less to read. What is under way already goes on, and what does not exist is
/// left out. Dead letters are not compacted.
///
/// # Errors
/// When the admin API cannot be asked, or refuses.
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

/// How far the compactions have come that [`compact`] has asked for, or anybody else, for each
/// partition that there is.
///
/// # Errors
/// When the admin API cannot be asked, or refuses.
pub async fn compactions(
    admin: &Admin,
    names: &TopicNames,
    levels: &[TopicNames],
) -> Result<Vec<CompactionState>, AdminError> {
    let admin = admin.retrying();
    let mut states = Vec::new();
    for topic in compacted(names, levels) {
        let Some(count) = found(admin.partitions(topic).await)? else { continue };
        for partition in partition_names(topic, TopicPartitioning::from_count(count)) {
            states.extend(found(admin.compaction(&partition).await)?);
        }
    }
    Ok(states)
}

/// The topics on which a later entry of a key takes the place of an earlier one.
fn compacted<'a>(names: &'a TopicNames, levels: &'a [TopicNames]) -> impl Iterator<Item = &'a str> {
    let of = |names: &'a TopicNames| [names.ledger.as_str(), names.metadata.as_str()];
    // Levels share the register of their queue.
    let all = [names].into_iter().chain(levels).flat_map(of);
    all.chain([names.register.as_str()])
}

impl AdminCalls {
    /// Starts the compaction of a topic, all partitions of it, or of one partition.
    ///
    /// # Errors
    /// [`AdminErrorKind::Conflict`] when one is under way.
    pub async fn compact(&self, topic: &str) -> Result<(), AdminError> {
        let call = self.topic_call(Method::PUT, topic, &["compaction"])?;
        self.http.done(&call).await
    }

    /// How far the compaction of one partition has come.
    ///
    /// # Errors
    /// [`AdminErrorKind::NotFound`] when there is no such partition, or for the name of a topic
    /// that has partitions.
    pub async fn compaction(&self, partition: &str) -> Result<CompactionState, AdminError> {
        let call = self.topic_call(Method::GET, partition, &["compaction"])?;
        let CompactionStatusJson { status, last_error } = self.http.json(&call).await?;
        Ok(CompactionState { topic: partition.to_owned(), status, last_error })
    }
}
