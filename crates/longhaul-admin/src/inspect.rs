//! What the broker stores of a queue's topics.

use super::admin::Admin;
use super::check::{TopicFinding, findings};
use super::http::AdminError;
use super::observe::{TopicRole, TopicState, observe};
use super::settings::TopicSettings;
use longhaul_core::topics::TopicNames;

/// The topics of a task topic, and what is wrong with them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopicReport {
    /// The existing topics.
    pub topics: Vec<TopicStorage>,
    /// What does not meet the protocol's needs, the most severe first.
    pub findings: Vec<TopicFinding>,
    /// The version of the broker; `None` if it does not tell.
    pub broker_version: Option<String>,
}

/// What is stored of a topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopicStorage {
    /// Full name.
    pub topic: String,
    /// Number of partitions; `None` without any.
    pub partitions: Option<u32>,
    /// Size of the entries and of the compacted view in bytes, over all partitions, as the broker
    /// counts it: one copy.
    pub stored_bytes: u64,
    /// How long and how much of it is kept after all subscriptions have acknowledged it, such as
    /// `60 min, unlimited in size`.
    pub retention: String,
    /// Whether the broker compacts it at a size.
    pub is_compacted: bool,
}

/// Reads the topics of a task topic and what is stored of them, and [checks](super::check) them.
///
/// # Errors
/// As [`check`](super::check).
pub async fn inspect(
    admin: &Admin,
    names: &TopicNames,
    settings: &TopicSettings,
) -> Result<TopicReport, AdminError> {
    let admin = admin.retrying();
    let observed = observe(&admin, names, settings).await?;
    let stored = TopicRole::ALL.iter().filter_map(|role| {
        let TopicState { shape, policies, partitions, .. } = observed.topic(*role)?;
        Some(TopicStorage {
            topic: role.topic(names).to_owned(),
            partitions: *shape,
            stored_bytes: partitions.iter().map(|partition| partition.stored_bytes).sum(),
            retention: policies.retention.to_string(),
            is_compacted: policies.compaction_threshold_bytes > 0,
        })
    });
    Ok(TopicReport {
        topics: stored.collect(),
        findings: findings(&observed, names, settings),
        broker_version: admin.broker_version().await,
    })
}
