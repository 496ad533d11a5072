//! Reads the state that `check` judges and `setup` changes. This module only reads.

use super::admin::Admin;
use super::calls::found;
use super::http::AdminError;
use super::policy::EffectivePolicies;
use super::settings::TopicSettings;
use super::traits::Traits;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt};
use longhaul_core::topics::TopicNames;

/// Partitions that are read in parallel.
const PARTITIONS_AT_ONCE: usize = 8;

/// Role of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TopicRole {
    Task,
    Metadata,
    Ledger,
    Register,
    DeadLetters,
}

impl TopicRole {
    /// The name of the topic with this role.
    pub(super) fn topic(self, names: &TopicNames) -> &str {
        match self {
            Self::Task => &names.task,
            Self::Metadata => &names.metadata,
            Self::Ledger => &names.ledger,
            Self::Register => &names.register,
            Self::DeadLetters => &names.dead_letters,
        }
    }

    /// Whether the broker compacts the topic, and readers read it from its start.
    pub(super) const fn is_compacted(self) -> bool {
        matches!(self, Self::Metadata | Self::Ledger | Self::Register)
    }

    /// Whether it is one topic without partitions, regardless of the task topic.
    pub(super) const fn is_single(self) -> bool {
        matches!(self, Self::Register | Self::DeadLetters)
    }
}

/// The number of a topic's partitions in words.
pub(super) fn in_words(partitions: Option<u32>) -> String {
    match partitions {
        None => "no partitions".to_owned(),
        Some(1) => "1 partition".to_owned(),
        Some(count) => format!("{count} partitions"),
    }
}

/// State of one partition at the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PartitionState {
    /// Whether the partition exists. The topic's count includes it, but the broker may have deleted
    /// it or never created it.
    pub(super) exists: bool,
    /// Whether the subscription of the topic's role exists: the workers' subscription on the task
    /// topic, any durable one on the dead letters.
    pub(super) subscribed: bool,
    pub(super) compaction_cursor: bool,
    pub(super) has_entries: bool,
    /// Whether it accepts no more messages.
    pub(super) terminated: bool,
    pub(super) stored_bytes: u64,
}

/// An existing topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TopicState {
    /// The number of its partitions; `None` without partitions. Pulsar can raise the number, but
    /// cannot partition an unpartitioned topic.
    pub(super) shape: Option<u32>,
    pub(super) policies: EffectivePolicies,
    pub(super) traits: Traits,
    /// By index; a topic without partitions has one.
    pub(super) partitions: Vec<PartitionState>,
}

/// Everything that was read; `None` for a topic that does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Observed {
    pub(super) task: Option<TopicState>,
    pub(super) metadata: Option<TopicState>,
    pub(super) ledger: Option<TopicState>,
    pub(super) register: Option<TopicState>,
    pub(super) dead_letters: Option<TopicState>,
    /// `None` if unknown.
    pub(super) bookies: Option<u32>,
}

impl TopicRole {
    pub(super) const ALL: [Self; 5] =
        [Self::Task, Self::Ledger, Self::Metadata, Self::Register, Self::DeadLetters];
}

impl Observed {
    pub(super) const fn topic(&self, role: TopicRole) -> Option<&TopicState> {
        match role {
            TopicRole::Task => self.task.as_ref(),
            TopicRole::Metadata => self.metadata.as_ref(),
            TopicRole::Ledger => self.ledger.as_ref(),
            TopicRole::Register => self.register.as_ref(),
            TopicRole::DeadLetters => self.dead_letters.as_ref(),
        }
    }

    /// Partitions of the task topic whose subscription is gone although the ledger has tasks of
    /// them.
    pub(super) fn lost_subscriptions(&self) -> Vec<usize> {
        let (Some(task), Some(ledger)) = (&self.task, &self.ledger) else { return Vec::new() };
        let pairs = task.partitions.iter().zip(&ledger.partitions).enumerate();
        pairs
            .filter(|(_, (task, ledger))| task.exists && !task.subscribed && ledger.has_entries)
            .map(|(index, _)| index)
            .collect()
    }
}

/// Reads everything once. Boxes the future outside of an `async fn`: see `Setup::begin` of the
/// worker's builder.
pub(super) fn observe<'a>(
    admin: &'a Admin,
    names: &'a TopicNames,
    settings: &'a TopicSettings,
) -> BoxFuture<'a, Result<Observed, AdminError>> {
    read_all(admin, names, settings).boxed()
}

async fn read_all(
    admin: &Admin,
    names: &TopicNames,
    settings: &TopicSettings,
) -> Result<Observed, AdminError> {
    let encryption = admin.requires_encryption().await;
    let topic = |role| topic(admin, role, role.topic(names), &settings.subscription, encryption);
    Ok(Observed {
        task: topic(TopicRole::Task).await?,
        metadata: topic(TopicRole::Metadata).await?,
        ledger: topic(TopicRole::Ledger).await?,
        register: topic(TopicRole::Register).await?,
        dead_letters: topic(TopicRole::DeadLetters).await?,
        bookies: admin.bookies().await,
    })
}

async fn topic(
    admin: &Admin,
    role: TopicRole,
    topic: &str,
    subscription: &str,
    encryption: bool,
) -> Result<Option<TopicState>, AdminError> {
    let Some(shape) = found(admin.partitions(topic).await)? else { return Ok(None) };
    // A topic that is deleted between the two calls counts as missing.
    let Some(policies) = found(EffectivePolicies::read(admin, topic).await)? else {
        return Ok(None);
    };
    let traits = Traits::read(admin, topic, encryption).await;
    let partitions = futures::stream::iter(partition_names(topic, shape))
        .map(|name| partition(admin, role, name, subscription))
        .buffered(PARTITIONS_AT_ONCE)
        .try_collect()
        .await?;
    Ok(Some(TopicState { shape, policies, traits, partitions }))
}

async fn partition(
    admin: &Admin,
    role: TopicRole,
    name: String,
    subscription: &str,
) -> Result<PartitionState, AdminError> {
    let stats = admin.partition_stats(&name).await?;
    let subscribed = match (&stats, role) {
        (None, _) => false,
        // Dead letters may be consumed under any subscription name.
        (Some(_), TopicRole::DeadLetters) => admin.has_durable_subscription(&name).await?,
        (Some(stats), _) => stats.has_subscription(subscription),
    };
    Ok(PartitionState {
        exists: stats.is_some(),
        subscribed,
        compaction_cursor: stats.as_ref().is_some_and(|stats| stats.has_compaction_cursor()),
        terminated: stats.as_ref().is_some_and(|stats| stats.is_terminated()),
        stored_bytes: stats.as_ref().map_or(0, |stats| stats.stored_bytes()),
        has_entries: stats.is_some_and(|stats| stats.has_entries()),
    })
}

/// The broker's names of a topic's partitions.
pub(super) fn partition_names(topic: &str, partitions: Option<u32>) -> Vec<String> {
    let Some(count) = partitions else { return vec![topic.to_owned()] };
    (0..count).map(|index| format!("{topic}-partition-{index}")).collect()
}
