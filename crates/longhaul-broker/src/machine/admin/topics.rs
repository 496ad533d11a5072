//! Topics, whole or single partitions.

use super::super::Machine;
use super::super::effect::Refusal;
use super::super::stats::{before, shown};
use super::super::topics::{PARTITIONS_MAX, kind_by_name, kind_name};
use super::{Answer, done, failed, missing};
use crate::admin::policies::Grants;
use crate::admin::request::{
    AdminError, AdminReply, CompactionStatus, NewSchema, Start, StoredSchema, TopicCall,
};
use crate::name::TopicName;
use crate::state::SchemaVersion;
use crate::state::change::{Ack, SetPartitions, SetPolicies, Trim};
use longhaul_wire::messages::{KeyValue, Schema};
use std::collections::{BTreeMap, BTreeSet};

impl Machine {
    pub(in crate::machine) fn topic_call(&mut self, name: &TopicName, call: TopicCall) -> Answer {
        match call {
            TopicCall::Create => {
                self.check_free(name)?;
                self.create_topic(name).map(|_| AdminReply::Done).map_err(failed)
            }
            TopicCall::CreatePartitioned { partitions } => {
                self.check_free(name)?;
                check_partitions(partitions)?;
                done(self.create_partitioned(name, partitions))
            }
            TopicCall::GrowPartitioned { partitions } => self.grow(name, partitions),
            TopicCall::CreateMissingPartitions => match self.state.partitions(name.as_str()) {
                Some(partitions) => done(self.create_partitioned(name, partitions)),
                None => Err(missing(name)),
            },
            TopicCall::DeletePartitioned { force } => self.delete_partitioned(name, force),
            TopicCall::Delete { force } => {
                let id = self.one(name)?;
                self.check_unused(id, name, force)?;
                done(self.delete_topic(id))
            }
            TopicCall::Partitions { allow_auto_creation } => self
                .partitions_of(name, allow_auto_creation)
                .map(AdminReply::Partitions)
                .map_err(failed),
            TopicCall::Unload => {
                self.all(name)?.into_iter().for_each(|it| self.unload(it));
                Ok(AdminReply::Done)
            }
            TopicCall::Truncate => {
                for id in self.all(name)? {
                    self.truncate(id).map_err(failed)?;
                }
                Ok(AdminReply::Done)
            }
            TopicCall::ExpireMessages { age_s } => {
                for id in self.all(name)? {
                    self.expire(id, None, age_s).map_err(failed)?;
                }
                Ok(AdminReply::Done)
            }
            TopicCall::Compact => self.start_compaction(name),
            TopicCall::Schema { .. }
            | TopicCall::Schemas
            | TopicCall::CreateSchema(_)
            | TopicCall::DeleteSchema => self.schema_call(name, call),
            TopicCall::SetPolicy(policy) => {
                self.whole(name)?;
                done(self.set(name.as_str(), |it| it.policies.apply(policy)))
            }
            TopicCall::Terminate => self.terminate_one(name),
            TopicCall::TerminatePartitions => self.terminate_partitions(name),
            TopicCall::SetProperties(_)
            | TopicCall::RemoveProperty(_)
            | TopicCall::Grant { .. }
            | TopicCall::Revoke { .. } => self.note_on_topic(name, call),
            TopicCall::Stats
            | TopicCall::Properties
            | TopicCall::Grants
            | TopicCall::MessageIdAt { .. }
            | TopicCall::Examine { .. }
            | TopicCall::PartitionedStats
            | TopicCall::InternalStats
            | TopicCall::Subscriptions
            | TopicCall::LastMessageId
            | TopicCall::Compaction
            | TopicCall::Policies
            | TopicCall::Message(_) => self.topic_question(name, &call),
        }
    }

    /// Calls that change nothing.
    #[expect(clippy::wildcard_enum_match_arm, reason = "whoever calls it has sorted them")]
    fn topic_question(&self, name: &TopicName, call: &TopicCall) -> Answer {
        match call {
            TopicCall::Stats => {
                let stats = self.topic_stats(self.one(name)?).ok_or_else(|| missing(name))?;
                Ok(AdminReply::Stats(Box::new(stats)))
            }
            TopicCall::PartitionedStats => self.partitioned_stats(name),
            TopicCall::InternalStats => {
                let stats = self.internal_stats(self.one(name)?).ok_or_else(|| missing(name))?;
                Ok(AdminReply::InternalStats(Box::new(stats)))
            }
            TopicCall::Subscriptions => {
                let topics = self.all(name)?;
                let topics = topics.iter().filter_map(|&id| self.state.topic(id));
                let names: BTreeSet<String> =
                    topics.flat_map(|it| it.durable().map(|it| it.name.clone())).collect();
                Ok(AdminReply::Names(names.into_iter().collect()))
            }
            TopicCall::LastMessageId => {
                let id = self.one(name)?;
                let readable = self.live.get(&id).map_or(0, |it| it.readable);
                let topic = self.state.topic(id).ok_or_else(|| missing(name))?;
                Ok(AdminReply::MessageId(before(topic, readable)))
            }
            TopicCall::MessageIdAt { timestamp_ms } => {
                let id = self.one(name)?;
                let topic = self.state.topic(id).ok_or_else(|| missing(name))?;
                let ordinal = self.ordinal_at_time(id, *timestamp_ms).unwrap_or_default();
                Ok(AdminReply::MessageId(shown(topic.entries.position_of(ordinal))))
            }
            TopicCall::Properties => {
                self.all(name)?;
                let settings = self.state.settings(name.as_str());
                let properties = settings.map(|it| it.properties.clone()).unwrap_or_default();
                Ok(AdminReply::Properties(properties))
            }
            TopicCall::Grants => {
                self.check_namespace(name).map_err(failed)?;
                let grants = self.grants_of(name).into_iter().flatten();
                Ok(AdminReply::Grants(grants.fold(Grants::default(), Grants::and)))
            }
            TopicCall::Policies => {
                self.whole(name)?;
                Ok(AdminReply::PolicyLevels(Box::new(self.policy_levels(name))))
            }
            TopicCall::Compaction => self.compaction_status(name),
            // A message is answered elsewhere: it has to be read. The others are no questions.
            _ => Err(missing(name)),
        }
    }

    /// A topic without partitions, or one partition.
    pub(in crate::machine) fn one(&self, name: &TopicName) -> Result<u32, AdminError> {
        if let Some(id) = self.state.topic_id(name.as_str()) {
            return Ok(id);
        }
        if self.state.partitions(name.as_str()).is_some() {
            return Err(AdminError::NotFound(format!(
                "{name} is a partitioned topic: ask one of its partitions"
            )));
        }
        Err(missing(name))
    }

    /// A topic, or all its partitions.
    pub(in crate::machine) fn all(&self, name: &TopicName) -> Result<Vec<u32>, AdminError> {
        if self.state.partitions(name.as_str()).is_none() {
            self.one(name)?;
        }
        Ok(self.numbers_of(name))
    }

    /// Checks that it exists and is not a partition.
    pub(in crate::machine) fn whole(&self, name: &TopicName) -> Result<(), AdminError> {
        self.all(name)?;
        match name.partition() {
            Some((whole, _)) if self.state.partitions(whole.as_str()).is_some() => {
                let text = format!("{name} is a partition: policies belong to {whole}");
                Err(AdminError::PreconditionFailed(text))
            }
            _ => Ok(()),
        }
    }

    pub(in crate::machine) fn check_free(&self, name: &TopicName) -> Result<(), AdminError> {
        self.check_namespace(name).map_err(|refusal| AdminError::NotFound(refusal.text))?;
        let is_taken = self.state.topic_id(name.as_str()).is_some()
            || self.state.partitions(name.as_str()).is_some();
        if is_taken {
            Err(AdminError::Conflict("This topic already exists".to_owned()))
        } else {
            Ok(())
        }
    }

    pub(in crate::machine) fn check_unused(
        &self,
        id: u32,
        name: &TopicName,
        force: bool,
    ) -> Result<(), AdminError> {
        let Some(live) = self.live.get(&id) else {
            return Ok(());
        };
        let what = if !live.producers.active.is_empty() {
            "producers"
        } else if !live.dispatchers.is_empty() {
            "consumers"
        } else {
            return Ok(());
        };
        if force {
            return Ok(());
        }
        Err(AdminError::PreconditionFailed(format!(
            "{name} has {what}: end them first, or force it"
        )))
    }

    pub(in crate::machine) fn grow(&mut self, name: &TopicName, partitions: u32) -> Answer {
        let Some(count) = self.state.partitions(name.as_str()) else { return Err(missing(name)) };
        check_partitions(partitions)?;
        if partitions <= count {
            let text = format!("{name} has {count} partitions, and can only get more");
            return Err(AdminError::Conflict(text));
        }
        self.create_partitioned(name, partitions).map_err(failed)?;
        let first = self
            .state
            .topic_id(name.with_partition(0).as_str())
            .and_then(|id| self.state.topic(id));
        let subscriptions = first.into_iter().flat_map(|topic| topic.durable());
        let subscriptions: Vec<(String, BTreeMap<String, String>)> =
            subscriptions.map(|known| (known.name.clone(), known.properties.clone())).collect();
        for index in count..partitions {
            let Some(id) = self.state.topic_id(name.with_partition(index).as_str()) else {
                continue;
            };
            for (subscription, properties) in &subscriptions {
                self.create_subscription(id, subscription, Start::Earliest, properties.clone())
                    .map_err(failed)?;
            }
        }
        Ok(AdminReply::Done)
    }

    pub(in crate::machine) fn delete_partitioned(
        &mut self,
        name: &TopicName,
        force: bool,
    ) -> Answer {
        if self.state.partitions(name.as_str()).is_none() {
            return Err(missing(name));
        }
        let partitions = self.all(name)?;
        for &id in &partitions {
            self.check_unused(id, name, force)?;
        }
        for id in partitions {
            self.delete_topic(id).map_err(failed)?;
        }
        self.delete_schemas(name).map_err(failed)?;
        let (scope, policies) = (name.as_str().to_owned(), bytes::Bytes::new());
        self.change(SetPolicies { scope, policies }).map_err(failed)?;
        self.change(SetPartitions { name: name.as_str().to_owned(), partitions: 0 })
            .map_err(failed)?;
        self.refresh_neighbours(name);
        Ok(AdminReply::Done)
    }

    pub(in crate::machine) fn partitioned_stats(&self, name: &TopicName) -> Answer {
        let Some(partitions) = self.state.partitions(name.as_str()) else {
            return Err(missing(name));
        };
        let stats: BTreeMap<_, _> = self
            .all(name)?
            .into_iter()
            .filter_map(|id| {
                Some((self.state.topic(id)?.name.as_str().to_owned(), self.topic_stats(id)?))
            })
            .collect();
        Ok(AdminReply::PartitionedStats { partitions, stats })
    }

    /// Closes producers and consumers, and begins a new ledger with the next entry.
    pub(in crate::machine) fn unload(&mut self, topic: u32) {
        self.close_all(topic);
        if let Some(kept) = self.state.topic_mut(topic) {
            kept.is_open = false;
        }
        if let Some(policies) = self.live.get(&topic).map(|it| std::sync::Arc::clone(&it.policies))
        {
            // The next round tries again what a full disk keeps from being recorded.
            drop(self.trim(topic, &policies));
        }
    }

    pub(in crate::machine) fn truncate(&mut self, topic: u32) -> Result<(), Refusal> {
        let readable = self.live.get(&topic).map_or(0, |it| it.readable);
        self.skip_to(topic, None, readable)?;
        self.change(Trim { topic, first: readable })?;
        self.tell_ends(topic);
        Ok(())
    }

    /// Acknowledges everything before the ordinal, for one subscription or all durable ones.
    pub(in crate::machine) fn skip_to(
        &mut self,
        topic: u32,
        only: Option<u32>,
        before: u64,
    ) -> Result<(), Refusal> {
        let Some(kept) = self.state.topic(topic) else { return Ok(()) };
        let chosen = kept
            .subscriptions
            .iter()
            .filter(|(id, it)| it.is_durable && only.is_none_or(|only| only == **id));
        let chosen: Vec<u32> = chosen.map(|(&id, _)| id).collect();
        for subscription in chosen {
            self.record_ack(Ack { topic, subscription, before: Some(before), ..Ack::default() })?;
        }
        Ok(())
    }

    pub(in crate::machine) fn start_compaction(&mut self, name: &TopicName) -> Answer {
        let mut started = true;
        for id in self.all(name)? {
            started &= self.compact(id).map_err(failed)?;
        }
        if started {
            Ok(AdminReply::Done)
        } else {
            Err(AdminError::Conflict("Compaction already in progress".to_owned()))
        }
    }

    pub(in crate::machine) fn compaction_status(&self, name: &TopicName) -> Answer {
        let id = self.one(name)?;
        let compaction =
            self.live.get(&id).map(|it| &it.compaction).ok_or_else(|| missing(name))?;
        let last_error = compaction.last.clone().and_then(Result::err).unwrap_or_default();
        Ok(AdminReply::Compaction(CompactionStatus { status: compaction.state(), last_error }))
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "whoever calls it has sorted them")]
    pub(in crate::machine) fn schema_call(&mut self, name: &TopicName, call: TopicCall) -> Answer {
        let none = || AdminError::NotFound(format!("{name} has no such schema"));
        match call {
            TopicCall::Schema { version } => {
                let (version, it) = self.schema_of(name, version).ok_or_else(none)?;
                Ok(AdminReply::Schema(stored(version, it)))
            }
            TopicCall::CreateSchema(it) => {
                self.check_namespace(name).map_err(|refusal| AdminError::NotFound(refusal.text))?;
                let schema = new_schema(name, it)?;
                self.store_schema(name, &schema).map(AdminReply::SchemaVersion).map_err(failed)
            }
            TopicCall::DeleteSchema => {
                let last = self.delete_schemas(name).map_err(failed)?;
                last.map(AdminReply::SchemaVersion).ok_or_else(none)
            }
            _ => {
                let versions = (0..).map_while(|version| self.schema_of(name, Some(version)));
                Ok(AdminReply::Schemas(versions.map(|(version, it)| stored(version, it)).collect()))
            }
        }
    }
}

fn check_partitions(partitions: u32) -> Result<(), AdminError> {
    if (1..=PARTITIONS_MAX).contains(&partitions) {
        return Ok(());
    }
    Err(AdminError::PreconditionFailed(format!(
        "the number of partitions must be 1 to {PARTITIONS_MAX}"
    )))
}

fn stored(version: u64, it: &SchemaVersion) -> StoredSchema {
    StoredSchema {
        version,
        kind: kind_name(it.schema.r#type),
        timestamp: it.added_at,
        data: String::from_utf8_lossy(&it.schema.schema_data).into_owned(),
        properties: it
            .schema
            .properties
            .iter()
            .map(|it| (it.key().to_owned(), it.value().to_owned()))
            .collect(),
    }
}

fn new_schema(name: &TopicName, it: NewSchema) -> Result<Schema, AdminError> {
    let r#type = kind_by_name(&it.kind).ok_or_else(|| {
        AdminError::BadRequest(format!("unknown type of schema: {}", it.kind.escape_debug()))
    })?;
    let properties = it.properties.into_iter().map(|(key, value)| KeyValue::new(key, value));
    Ok(Schema {
        name: name.as_str().to_owned(),
        schema_data: it.data.into_bytes().into(),
        r#type,
        properties: properties.collect(),
    })
}
