//! Topics, whole or single partitions. Unless it says otherwise, a method refuses a topic that does
//! not exist: [`AdminCallError::NotFound`].

use super::super::BrokerMachine;
use super::super::effect::RequestRefusal;
use super::super::figures::bytes_from;
use super::super::stats::before;
use super::super::topics::PARTITIONS_MAX;
use super::notes::check_properties;
use super::{AdminResult, missing};
use crate::admin::stats::{InternalStats, TopicStats};
use crate::admin::values::{
    AdminCallError, AdminPosition, CompactionRunStatus, PartitionedTopicMetadata,
    ResourceProperties, SubscriptionStart,
};
use crate::name::TopicName;
use crate::state::BrokerSubscription;
use crate::state::change::{Ack, SetPartitions, SetPolicies, Trim};
use std::collections::{BTreeMap, BTreeSet};

impl BrokerMachine {
    /// Creates one without partitions, or a single partition, and notes something on it;
    /// [`AdminCallError::Conflict`] when a topic of that name exists, partitioned or not.
    pub(crate) fn make_topic(
        &mut self,
        name: &TopicName,
        properties: ResourceProperties,
    ) -> AdminResult {
        self.check_free(name)?;
        check_properties(&properties)?;
        self.create_topic(name)?;
        self.note_new(name, properties)
    }

    /// Creates a partitioned topic and its partitions, at least one; [`AdminCallError::Conflict`] when
    /// a topic of that name exists.
    pub(crate) fn make_partitioned(
        &mut self,
        name: &TopicName,
        partitions: u32,
        properties: ResourceProperties,
    ) -> AdminResult {
        self.check_free(name)?;
        check_partitions(partitions)?;
        check_properties(&properties)?;
        self.create_partitioned(name, partitions)?;
        self.note_new(name, properties)
    }

    /// Creates the partitions that are counted but not there. Existing ones are left alone.
    pub(crate) fn make_missing_partitions(&mut self, name: &TopicName) -> AdminResult {
        let partitions = self.state.partitions(name.as_str()).ok_or_else(|| missing(name))?;
        Ok(self.create_partitioned(name, partitions)?)
    }

    /// Raises the number of partitions; [`AdminCallError::Unprocessable`] unless it is more than there
    /// are. The subscriptions of partition 0 come into being on the new ones.
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
                self.create_subscription(
                    id,
                    subscription,
                    SubscriptionStart::Earliest,
                    properties,
                )?;
            }
        }
        Ok(())
    }

    /// Deletes it with its subscriptions; [`AdminCallError::PreconditionFailed`] while it has producers
    /// or consumers, unless forced: then they are closed.
    pub(crate) fn remove_topic(&mut self, name: &TopicName, force: bool) -> AdminResult {
        let id = self.one(name)?;
        self.check_unused(id, name, force)?;
        Ok(self.delete_topic(id)?)
    }

    /// Deletes a partitioned topic with its partitions, as [`remove_topic`](Self::remove_topic).
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

    /// How many partitions it has, 0 for an existing topic without. Also 0 for one that does not
    /// exist, if it `may_create` and would be created without partitions.
    pub(crate) fn partitions(
        &mut self,
        name: &TopicName,
        may_create: bool,
    ) -> Result<PartitionedTopicMetadata, AdminCallError> {
        let count = self.partitions_of(name, may_create)?;
        // What is noted on a topic without partitions is shown elsewhere.
        let properties = if count == 0 { ResourceProperties::new() } else { self.noted_on(name) };
        Ok(PartitionedTopicMetadata::new(count, properties))
    }

    /// Figures of a topic without partitions, or of one partition.
    pub(crate) fn stats(&self, name: &TopicName) -> Result<TopicStats, AdminCallError> {
        self.topic_stats(self.one(name)?).ok_or_else(|| missing(name))
    }

    /// How many partitions there should be, and the figures of those that are there, by their full
    /// names. [`AdminCallError::NotFound`] for a topic without partitions.
    pub(crate) fn partitioned_stats(
        &self,
        name: &TopicName,
    ) -> Result<(PartitionedTopicMetadata, Vec<(String, TopicStats)>), AdminCallError> {
        let count = self.state.partitions(name.as_str()).ok_or_else(|| missing(name))?;
        let partitions = self.all(name)?.into_iter();
        let stats = partitions.filter_map(|id| {
            Some((self.state.topic(id)?.name.as_str().to_owned(), self.topic_stats(id)?))
        });
        Ok((PartitionedTopicMetadata::new(count, self.noted_on(name)), stats.collect()))
    }

    /// Ledgers and cursors of a topic without partitions, or of one partition.
    pub(crate) fn stats_of_ledgers(
        &self,
        name: &TopicName,
    ) -> Result<InternalStats, AdminCallError> {
        self.internal_stats(self.one(name)?).ok_or_else(|| missing(name))
    }

    /// The same of all partitions that are there, as
    /// [`partitioned_stats`](Self::partitioned_stats).
    pub(crate) fn partitioned_stats_of_ledgers(
        &self,
        name: &TopicName,
    ) -> Result<(PartitionedTopicMetadata, BTreeMap<String, InternalStats>), AdminCallError> {
        let count = self.state.partitions(name.as_str()).ok_or_else(|| missing(name))?;
        let partitions = self.all(name)?.into_iter();
        let stats = partitions.filter_map(|id| {
            Some((self.state.topic(id)?.name.as_str().to_owned(), self.internal_stats(id)?))
        });
        Ok((PartitionedTopicMetadata::new(count, self.noted_on(name)), stats.collect()))
    }

    /// About how many bytes there are from this entry on.
    pub(crate) fn backlog_size(
        &self,
        name: &TopicName,
        from: SubscriptionStart,
    ) -> Result<u64, AdminCallError> {
        let id = self.one(name)?;
        let kept = self.state.topic(id).ok_or_else(|| missing(name))?;
        Ok(bytes_from(kept, self.start(id, from), self.readable(id)))
    }

    /// The durable subscriptions; of a partitioned topic those of any of its partitions. The
    /// cursors that Pulsar has for itself, `__compaction` and `pulsar.dedup`, are not among them.
    pub(crate) fn subscriptions(
        &self,
        name: &TopicName,
    ) -> Result<BTreeSet<String>, AdminCallError> {
        let topics = self.all(name)?.into_iter().filter_map(|id| self.state.topic(id));
        Ok(topics.flat_map(|topic| topic.durable().map(|known| known.name.clone())).collect())
    }

    /// Closes all producers and consumers and starts a new ledger; of a partitioned topic on all
    /// its partitions.
    pub(crate) fn unload_topic(&mut self, name: &TopicName) -> AdminResult {
        self.all(name)?.into_iter().for_each(|id| self.unload(id));
        Ok(())
    }

    /// Moves all subscriptions behind the last message, and deletes what is then needed no more
    /// whatever the retention. Pulsar keeps the entries of its current ledger; nobody may count on
    /// that.
    pub(crate) fn truncate_topic(&mut self, name: &TopicName) -> AdminResult {
        for topic in self.all(name)? {
            let first = self.readable(topic);
            self.skip_to(topic, None, first)?;
            self.change(Trim { topic, first })?;
            self.tell_ends(topic);
        }
        Ok(())
    }

    /// Acknowledges for all subscriptions what was published at least so many seconds ago.
    pub(crate) fn expire_topic(&mut self, name: &TopicName, age_s: u64) -> AdminResult {
        for id in self.all(name)? {
            self.expire(id, None, age_s)?;
        }
        Ok(())
    }

    /// Starts a compaction, of a partitioned topic on all its partitions; [`AdminCallError::Conflict`]
    /// while one is under way.
    pub(crate) fn start_compaction(&mut self, name: &TopicName) -> AdminResult {
        let mut started = true;
        for id in self.all(name)? {
            started &= self.compact(id)?;
        }
        if started {
            return Ok(());
        }
        Err(AdminCallError::Conflict("Compaction already in progress".to_owned()))
    }

    /// How far a compaction has come, of a topic without partitions or of one partition.
    pub(crate) fn compaction_status(
        &self,
        name: &TopicName,
    ) -> Result<CompactionRunStatus, AdminCallError> {
        let live = self.live.get(&self.one(name)?).ok_or_else(|| missing(name))?;
        let last_error = live.compaction.last.clone().and_then(Result::err).unwrap_or_default();
        Ok(CompactionRunStatus { status: live.compaction.state(), last_error })
    }

    /// Ends a topic without partitions, or one partition: nothing more can be published. Says the
    /// last message.
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

    /// The same of all partitions; [`AdminCallError::NotFound`] for a topic without.
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

    /// Terminates a topic. Its last entry may not be on disk yet: whoever answers with it waits for
    /// that.
    fn end_of(&mut self, topic: u32, name: &TopicName) -> Result<AdminPosition, AdminCallError> {
        self.terminate(topic)?;
        let kept = self.state.topic(topic).ok_or_else(|| missing(name))?;
        Ok(before(kept, kept.entries.end()))
    }

    /// A topic without partitions, or one partition.
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

    /// Checks that it exists and is not a partition.
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

    /// Closes producers and consumers, and begins a new ledger with the next entry.
    pub(in crate::machine) fn unload(&mut self, topic: u32) {
        self.close_all(topic);
        if let Some(kept) = self.state.topic_mut(topic) {
            kept.is_open = false;
        }
        let policies = self.live.get(&topic).map(|live| std::sync::Arc::clone(&live.policies));
        if let Some(policies) = policies {
            // The next round tries again what a full disk keeps from being recorded.
            drop(self.trim(topic, &policies));
        }
    }

    /// Acknowledges everything before the ordinal, for one subscription or all durable ones.
    pub(in crate::machine) fn skip_to(
        &mut self,
        topic: u32,
        only: Option<u32>,
        before: u64,
    ) -> Result<(), RequestRefusal> {
        let Some(kept) = self.state.topic(topic) else { return Ok(()) };
        let chosen = kept
            .subscriptions
            .iter()
            .filter(|(id, known)| known.is_durable && only.is_none_or(|only| only == **id));
        let chosen: Vec<u32> = chosen.map(|(&id, _)| id).collect();
        for subscription in chosen {
            self.record_ack(Ack { topic, subscription, before: Some(before), ..Ack::default() })?;
        }
        Ok(())
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
