//! Reads from the broker what `check` judges and `setup` changes. It judges and changes nothing.

use super::calls::{AdminCalls, found};
use super::http::AdminError;
use super::policy::EffectivePolicies;
use super::settings::TopicSettings;
use super::traits::Traits;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt};
use longhaul_core::topics::TopicNames;
use std::fmt;

/// Partitions that are looked at together.
const PARTITIONS_AT_ONCE: usize = 8;

/// What part a topic plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TopicRole {
    Task,
    Metadata,
    Ledger,
    Register,
    DeadLetters,
}

impl TopicRole {
    /// The name of this topic.
    pub(super) fn topic(self, names: &TopicNames) -> &str {
        match self {
            Self::Task => &names.task,
            Self::Metadata => &names.metadata,
            Self::Ledger => &names.ledger,
            Self::Register => &names.register,
            Self::DeadLetters => &names.dead_letters,
        }
    }

    /// The broker compacts it, and readers see it from its start.
    pub(super) const fn is_compacted(self) -> bool {
        matches!(self, Self::Metadata | Self::Ledger | Self::Register)
    }

    /// One topic without partitions, whatever the task topic has.
    pub(super) const fn is_single(self) -> bool {
        matches!(self, Self::Register | Self::DeadLetters)
    }
}

/// Whether a topic is partitioned. Pulsar changes the number later, but not from none to some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TopicPartitioning {
    Unpartitioned,
    Partitioned(u32),
}

impl TopicPartitioning {
    pub(super) fn from_count(partitions: Option<u32>) -> Self {
        partitions.map_or(Self::Unpartitioned, Self::Partitioned)
    }

    pub(super) const fn count(self) -> Option<u32> {
        match self {
            Self::Unpartitioned => None,
            Self::Partitioned(count) => Some(count),
        }
    }
}

impl fmt::Display for TopicPartitioning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unpartitioned => f.write_str("no partitions"),
            Self::Partitioned(1) => f.write_str("1 partition"),
            Self::Partitioned(count) => write!(f, "{count} partitions"),
        }
    }
}

/// One partition as the broker has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PartitionState {
    /// The topic's count includes it, but the broker may have deleted it, or never made it.
    pub(super) exists: bool,
    /// Whether the subscription that the topic's role asks for is there: the workers' on the task
    /// topic, any durable one on the dead letters.
    pub(super) subscribed: bool,
    pub(super) compaction_cursor: bool,
    pub(super) has_entries: bool,
}

/// An existing topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TopicState {
    pub(super) shape: TopicPartitioning,
    pub(super) policies: EffectivePolicies,
    pub(super) traits: Traits,
    /// By index; the only one of a topic without partitions.
    pub(super) partitions: Vec<PartitionState>,
}

/// All that was read; a topic that does not exist is `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Observed {
    pub(super) task: Option<TopicState>,
    pub(super) metadata: Option<TopicState>,
    pub(super) ledger: Option<TopicState>,
    pub(super) register: Option<TopicState>,
    pub(super) dead_letters: Option<TopicState>,
    /// `None` where it cannot be read.
    pub(super) bookies: Option<u32>,
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

    /// Partitions of T whose subscription is gone although the ledger remembers tasks of them.
    pub(super) fn lost_subscriptions(&self) -> Vec<usize> {
        let (Some(task), Some(ledger)) = (&self.task, &self.ledger) else { return Vec::new() };
        let pairs = task.partitions.iter().zip(&ledger.partitions).enumerate();
        pairs
            .filter(|(_, (task, ledger))| task.exists && !task.subscribed && ledger.has_entries)
            .map(|(index, _)| index)
            .collect()
    }
}

/// Reads everything once. A plain function that boxes: see `Setup::begin` of the worker's builder.
pub(super) fn observe<'a>(
    admin: &'a AdminCalls,
    names: &'a TopicNames,
    settings: &'a TopicSettings,
) -> BoxFuture<'a, Result<Observed, AdminError>> {
    read_all(admin, names, settings).boxed()
}

async fn read_all(
    admin: &AdminCalls,
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
    admin: &AdminCalls,
    role: TopicRole,
    topic: &str,
    subscription: &str,
    encryption: bool,
) -> Result<Option<TopicState>, AdminError> {
    let Some(partitions) = found(admin.partitions(topic).await)? else { return Ok(None) };
    let shape = TopicPartitioning::from_count(partitions);
    // A topic that is deleted between the two calls is one that does not exist.
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
    admin: &AdminCalls,
    role: TopicRole,
    name: String,
    subscription: &str,
) -> Result<PartitionState, AdminError> {
    let stats = admin.partition_stats(&name).await?;
    let subscribed = match (&stats, role) {
        (None, _) => false,
        // Whoever handles dead letters may do so under a name of their own.
        (Some(_), TopicRole::DeadLetters) => admin.has_durable_subscription(&name).await?,
        (Some(stats), _) => stats.has_subscription(subscription),
    };
    Ok(PartitionState {
        exists: stats.is_some(),
        subscribed,
        compaction_cursor: stats.as_ref().is_some_and(|stats| stats.has_compaction_cursor()),
        has_entries: stats.is_some_and(|stats| stats.has_entries()),
    })
}

/// The names under which the broker knows the partitions of a topic.
pub(super) fn partition_names(topic: &str, shape: TopicPartitioning) -> Vec<String> {
    match shape {
        TopicPartitioning::Unpartitioned => vec![topic.to_owned()],
        TopicPartitioning::Partitioned(count) => {
            (0..count).map(|index| format!("{topic}-partition-{index}")).collect()
        }
    }
}
