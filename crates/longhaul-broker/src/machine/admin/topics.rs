//! Topics, as a whole or single partitions. Unless stated otherwise, a missing topic gives
//! [`AdminCallError::NotFound`].

use super::super::BrokerMachine;
use super::super::stats::before;
use super::super::topics::PARTITIONS_MAX;
use super::{AdminResult, missing};
use crate::admin::stats::{InternalStats, TopicStats};
use crate::admin::values::{
    AdminCallError, AdminPosition, CompactionRunStatus, PartitionedTopicMetadata,
};
use crate::name::TopicName;
use crate::policies::ResourceProperties;
use crate::state::BrokerSubscription;
use crate::state::change::{SetPartitions, SetPolicies, Trim};
use std::collections::{BTreeMap, BTreeSet};

impl BrokerMachine {
    /// Creates an unpartitioned topic or a single partition; [`AdminCallError::Conflict`] if a topic
    /// of that name exists, partitioned or not.
    pub(crate) fn make_topic(&mut self, name: &TopicName) -> AdminResult {
        self.check_free(name)?;
        self.check_topics(name, &self.resolve_policies(name), 1)?;
        self.create_topic(name)?;
        Ok(())
    }

    /// Creates a partitioned topic and its partitions, at least one; [`AdminCallError::Conflict`]
    /// if a topic of that name exists.
    pub(crate) fn make_partitioned(&mut self, name: &TopicName, partitions: u32) -> AdminResult {
        self.check_free(name)?;
        check_partitions(partitions)?;
        Ok(self.create_partitioned(name, partitions)?)
    }

    /// Creates the missing partitions of a partitioned topic. Existing ones stay unchanged.
    pub(crate) fn make_missing_partitions(&mut self, name: &TopicName) -> AdminResult {
        let partitions = self.state.partitions(name.as_str()).ok_or_else(|| missing(name))?;
        Ok(self.create_partitioned(name, partitions)?)
    }

    /// Raises the number of partitions; [`AdminCallError::Unprocessable`] unless it is higher than
    /// the current number. The subscriptions of partition 0 are created on the new partitions.
    pub(crate) fn grow(&mut self, name: &TopicName, partitions: u32) -> AdminResult {
        let count = self.state.partitions(name.as_str()).ok_or_else(|| missing(name))?;
        check_partitions(partitions)?;
        if partitions <= count {
            let text = format!("{name} has {count} partitions, and can only get more");
            return Err(AdminCallError::Unprocessable(text));
        }
        self.create_partitioned(name, partitions)?;
        let number = |index| self.state.topic_id(name.with_partition(index).as_str());
        let first = number(0).and_then(|id| self.state.topic(id));
        let copied = |known: &BrokerSubscription| (known.name.clone(), known.properties.clone());
        let subscriptions: Vec<(String, ResourceProperties)> =
            first.into_iter().flat_map(|topic| topic.durable().map(copied)).collect();
        let new: Vec<u32> = (count..partitions).filter_map(number).collect();
        for id in new {
            for (subscription, properties) in &subscriptions {
                let (subscription, properties) = (subscription.clone(), properties.clone());
                self.create_subscription(id, subscription, None, properties)?;
            }
        }
        Ok(())
    }

    /// Deletes a topic with its subscriptions; [`AdminCallError::PreconditionFailed`] while it has
    /// producers or consumers, unless `force` is set: then they are closed.
    pub(crate) fn remove_topic(&mut self, name: &TopicName, force: bool) -> AdminResult {
        let id = self.one(name)?;
        self.check_unused(id, name, force)?;
        Ok(self.delete_topic(id)?)
    }

    /// Deletes a partitioned topic with its partitions, like [`remove_topic`](Self::remove_topic).
    pub(crate) fn remove_partitioned(&mut self, name: &TopicName, force: bool) -> AdminResult {
        if self.state.partitions(name.as_str()).is_none() {
            return Err(missing(name));
        }
        let partitions = self.all(name)?;
        for &id in &partitions {
            self.check_unused(id, name, force)?;
        }
        for id in partitions {
            self.delete_topic(id)?;
        }
        self.delete_schemas(name)?;
        let (scope, policies) = (name.as_str().to_owned(), bytes::Bytes::new());
        self.change(SetPolicies { scope, policies })?;
        self.change(SetPartitions { name: name.as_str().to_owned(), partitions: 0 })?;
        self.refresh_neighbours(name);
        Ok(())
    }

    /// The number of partitions, 0 for an unpartitioned topic. Also 0 for a missing topic, if it
    /// `may_create` and would be created without partitions.
    pub(crate) fn partitions(
        &mut self,
        name: &TopicName,
        may_create: bool,
    ) -> Result<PartitionedTopicMetadata, AdminCallError> {
        Ok(PartitionedTopicMetadata::new(self.partitions_of(name, may_create)?))
    }

    /// Statistics of an unpartitioned topic or of one partition.
    pub(crate) fn stats(&self, name: &TopicName) -> Result<TopicStats, AdminCallError> {
        self.topic_stats(self.one(name)?).ok_or_else(|| missing(name))
    }

    /// The number of partitions, and the statistics of existing partitions by full name.
    /// [`AdminCallError::NotFound`] for an unpartitioned topic.
    pub(crate) fn partitioned_stats(
        &self,
        name: &TopicName,
    ) -> Result<(PartitionedTopicMetadata, BTreeMap<String, TopicStats>), AdminCallError> {
        let count = self.state.partitions(name.as_str()).ok_or_else(|| missing(name))?;
        let partitions = self.all(name)?.into_iter();
        let stats = partitions.filter_map(|id| {
            Some((self.state.topic(id)?.name.as_str().to_owned(), self.topic_stats(id)?))
        });
        Ok((PartitionedTopicMetadata::new(count), stats.collect()))
    }

    /// Ledgers and cursors of an unpartitioned topic or of one partition.
    pub(crate) fn stats_of_ledgers(
        &self,
        name: &TopicName,
    ) -> Result<InternalStats, AdminCallError> {
        self.internal_stats(self.one(name)?).ok_or_else(|| missing(name))
    }

    /// The durable subscriptions; for a partitioned topic, those of any of its partitions. Pulsar's
    /// internal cursors, `__compaction` and `pulsar.dedup`, are not included.
    pub(crate) fn subscriptions(
        &self,
        name: &TopicName,
    ) -> Result<BTreeSet<String>, AdminCallError> {
        let topics = self.all(name)?.into_iter().filter_map(|id| self.state.topic(id));
        Ok(topics.flat_map(|topic| topic.durable().map(|known| known.name.clone())).collect())
    }

    /// Closes all producers and consumers and starts a new ledger; on all partitions of a
    /// partitioned topic.
    pub(crate) fn unload_topic(&mut self, name: &TopicName) -> AdminResult {
        self.all(name)?.into_iter().for_each(|id| self.unload(id));
        Ok(())
    }

    /// Moves all subscriptions after the last message, and deletes the messages that are then
    /// unneeded, regardless of the retention. Pulsar keeps the entries of its current ledger; do
    /// not rely on that.
    pub(crate) fn truncate_topic(&mut self, name: &TopicName) -> AdminResult {
        for topic in self.all(name)? {
            let first = self.readable(topic);
            self.acknowledge_before(topic, None, first)?;
            self.change(Trim { topic, first })?;
            self.tell_ends(topic);
        }
        Ok(())
    }

    /// Acknowledges, for all subscriptions, messages published at least this many seconds ago.
    pub(crate) fn expire_topic(&mut self, name: &TopicName, age_s: u64) -> AdminResult {
        for id in self.all(name)? {
            self.expire(id, None, age_s)?;
        }
        Ok(())
    }

    /// Starts a compaction, on all partitions of a partitioned topic; [`AdminCallError::Conflict`]
    /// while one is running.
    pub(crate) fn start_compaction(&mut self, name: &TopicName) -> AdminResult {
        let mut started = true;
        for id in self.all(name)? {
            started &= self.compact(id);
        }
        if started {
            return Ok(());
        }
        Err(AdminCallError::Conflict("Compaction already in progress".to_owned()))
    }

    /// Progress of the compaction of an unpartitioned topic or of one partition.
    pub(crate) fn compaction_status(
        &self,
        name: &TopicName,
    ) -> Result<CompactionRunStatus, AdminCallError> {
        let live = self.live.get(&self.one(name)?).ok_or_else(|| missing(name))?;
        let last_error = live.compaction.last.clone().and_then(Result::err).unwrap_or_default();
        Ok(CompactionRunStatus { status: live.compaction.state(), last_error })
    }

    /// Terminates an unpartitioned topic or one partition: nothing more can be published. Returns
    /// the last message.
    pub(crate) fn terminate_topic(
        &mut self,
        name: &TopicName,
    ) -> Result<AdminPosition, AdminCallError> {
        if self.state.partitions(name.as_str()).is_some() {
            let text = format!("{name} is a partitioned topic: terminate its partitions");
            return Err(AdminCallError::MethodNotAllowed(text));
        }
        let id = self.one(name)?;
        self.end_of(id, name)
    }

    /// Terminates all partitions; [`AdminCallError::NotFound`] for an unpartitioned topic.
    pub(crate) fn terminate_partitions(
        &mut self,
        name: &TopicName,
    ) -> Result<BTreeMap<u32, AdminPosition>, AdminCallError> {
        if self.state.partitions(name.as_str()).is_none() {
            return Err(AdminCallError::NotFound(format!("{name} is not a partitioned topic")));
        }
        let partitions = (0..).zip(self.numbers_of(name));
        partitions.map(|(index, id)| Ok((index, self.end_of(id, name)?))).collect()
    }

    /// Terminates a topic. Its last entry may not be on disk yet; the caller must wait for that
    /// before it answers.
    fn end_of(&mut self, topic: u32, name: &TopicName) -> Result<AdminPosition, AdminCallError> {
        self.terminate(topic)?;
        let kept = self.state.topic(topic).ok_or_else(|| missing(name))?;
        Ok(before(kept, kept.entries.end()))
    }

    /// An unpartitioned topic or one partition.
    pub(super) fn one(&self, name: &TopicName) -> Result<u32, AdminCallError> {
        if let Some(id) = self.state.topic_id(name.as_str()) {
            return Ok(id);
        }
        if self.state.partitions(name.as_str()).is_some() {
            return Err(AdminCallError::NotFound(format!(
                "{name} is a partitioned topic: ask one of its partitions"
            )));
        }
        Err(missing(name))
    }

    /// A topic, or all its partitions.
    pub(super) fn all(&self, name: &TopicName) -> Result<Vec<u32>, AdminCallError> {
        if self.state.partitions(name.as_str()).is_none() {
            self.one(name)?;
        }
        Ok(self.numbers_of(name))
    }

    /// Checks that the topic exists and is not a partition.
    pub(super) fn whole(&self, name: &TopicName) -> AdminResult {
        self.all(name)?;
        match name.partition() {
            Some((whole, _)) if self.state.partitions(whole.as_str()).is_some() => {
                let text = format!("{name} is a partition: policies belong to {whole}");
                Err(AdminCallError::PreconditionFailed(text))
            }
            _ => Ok(()),
        }
    }

    fn check_free(&self, name: &TopicName) -> AdminResult {
        self.check_namespace(name).map_err(|refusal| AdminCallError::NotFound(refusal.text))?;
        let is_taken = self.state.topic_id(name.as_str()).is_some()
            || self.state.partitions(name.as_str()).is_some();
        if is_taken {
            Err(AdminCallError::Conflict("This topic already exists".to_owned()))
        } else {
            Ok(())
        }
    }

    fn check_unused(&self, id: u32, name: &TopicName, force: bool) -> AdminResult {
        let Some(live) = self.live.get(&id).filter(|_| !force) else { return Ok(()) };
        let what = if !live.producers.active.is_empty() {
            "producers"
        } else if !live.dispatchers.is_empty() {
            "consumers"
        } else {
            return Ok(());
        };
        Err(AdminCallError::PreconditionFailed(format!(
            "{name} has {what}: end them first, or force it"
        )))
    }

    /// Closes producers and consumers; the next entry begins a new ledger.
    pub(in crate::machine) fn unload(&mut self, topic: u32) {
        self.close_all(topic);
        if let Some(kept) = self.state.topic_mut(topic) {
            kept.is_open = false;
        }
        let policies = self.live.get(&topic).map(|live| std::sync::Arc::clone(&live.policies));
        if let Some(policies) = policies {
            // If a full disk prevents the trim, the next round tries again.
            drop(self.trim(topic, &policies));
        }
    }
}

fn check_partitions(partitions: u32) -> AdminResult {
    if (1..=PARTITIONS_MAX).contains(&partitions) {
        return Ok(());
    }
    Err(AdminCallError::NotAcceptable(format!(
        "the number of partitions must be 1 to {PARTITIONS_MAX}"
    )))
}
