//! Calls of the admin interface.

use super::Machine;
use super::effect::{Effect, Refusal, Waiting};
use super::stats::{COMPACTION_CURSOR, shown};
use super::topics::{PARTITIONS_MAX, kind_by_name, kind_name};
use crate::admin::policies::{Policy, PolicyLevels};
use crate::admin::request::{
    AdminError, AdminReply, AdminRequest, CompactionStatus, NamespaceCall, NewSchema,
    Position as AdminPosition, Start, StoredSchema, SubscriptionCall, TopicCall,
};
use crate::name::TopicName;
use crate::state::SchemaVersion;
use crate::state::change::{
    Ack, CreateNamespace, CreateSubscription, DeleteNamespace, SetPartitions, Trim,
};
use crate::state::entries::Position;
use longhaul_wire::messages::{KeyValue, Schema, ServerError};
use std::collections::{BTreeMap, BTreeSet};

type Answer = Result<AdminReply, AdminError>;

impl Machine {
    /// A call of the admin interface. Its answer is an [`Effect::Reply`] with this ticket.
    pub(crate) fn call(&mut self, ticket: u64, request: AdminRequest) {
        let answer = match request {
            AdminRequest::Health => Ok(AdminReply::Done),
            AdminRequest::Metrics => Ok(AdminReply::Metrics(Box::new(self.metrics()))),
            AdminRequest::Tenants => Ok(self.names(|it| !it.contains('/'))),
            AdminRequest::CreateTenant(name) => self.create_tenant(name),
            AdminRequest::DeleteTenant(name) => self.delete_tenant(&name),
            AdminRequest::Namespaces { tenant } => {
                let prefix = format!("{tenant}/");
                if self.state.has_namespace(&tenant) {
                    Ok(self.names(|it| it.starts_with(&prefix)))
                } else {
                    Err(AdminError::NotFound(format!("tenant {tenant} does not exist")))
                }
            }
            AdminRequest::Namespace { namespace, call } => self.namespace_call(&namespace, call),
            AdminRequest::Topic { topic, call: TopicCall::Message(position) } => {
                return self
                    .read_message(ticket, &topic, |machine, id| machine.ordinal_at(id, position));
            }
            AdminRequest::Topic { topic, call } => {
                self.parsed(&topic).and_then(|name| self.topic_call(&name, call))
            }
            AdminRequest::Subscription {
                topic,
                subscription,
                call: SubscriptionCall::Peek { nth },
            } => {
                return self.read_message(ticket, &topic, |machine, id| {
                    machine.nth_open(id, &subscription, nth)
                });
            }
            AdminRequest::Subscription { topic, subscription, call } => self
                .parsed(&topic)
                .and_then(|name| self.subscription_call(&name, &subscription, &call)),
        };
        self.after_commit(Waiting::Then(Effect::Reply(ticket, answer)));
    }

    fn parsed(&self, topic: &str) -> Result<TopicName, AdminError> {
        TopicName::parse(topic).map_err(|cause| AdminError::PreconditionFailed(cause.to_string()))
    }

    fn names(&self, is_wanted: impl Fn(&str) -> bool) -> AdminReply {
        AdminReply::Names(
            self.state.namespaces().filter(|it| is_wanted(it)).map(str::to_owned).collect(),
        )
    }

    fn create_tenant(&mut self, name: String) -> Answer {
        if self.state.has_namespace(&name) {
            return Err(AdminError::Conflict(format!("tenant {name} exists")));
        }
        done(self.change(CreateNamespace { name }))
    }

    fn delete_tenant(&mut self, name: &str) -> Answer {
        if !self.state.has_namespace(name) {
            return Err(AdminError::NotFound(format!("tenant {name} does not exist")));
        }
        let prefix = format!("{name}/");
        if self.state.namespaces().any(|it| it.starts_with(&prefix)) {
            return Err(AdminError::Conflict(format!(
                "tenant {name} has namespaces: delete them first"
            )));
        }
        done(self.change(DeleteNamespace { name: name.to_owned() }))
    }

    fn namespace_call(&mut self, namespace: &str, call: NamespaceCall) -> Answer {
        if let NamespaceCall::Create { policies } = call {
            return self.create_namespace(namespace, policies);
        }
        if !self.state.has_namespace(namespace) {
            return Err(AdminError::NotFound(format!("namespace {namespace} does not exist")));
        }
        match call {
            NamespaceCall::Create { .. } => Ok(AdminReply::Done),
            NamespaceCall::Delete { force } => self.delete_namespace(namespace, force),
            NamespaceCall::Topics => Ok(AdminReply::Names(self.topics_in(namespace))),
            NamespaceCall::PartitionedTopics => {
                let names = self.state.partitioned().map(|(name, _)| name.to_owned());
                Ok(AdminReply::Names(names.filter(|it| in_namespace(it, namespace)).collect()))
            }
            NamespaceCall::Unload => {
                let topics: Vec<u32> = self
                    .state
                    .topics()
                    .filter(|(_, it)| it.name.namespace() == namespace)
                    .map(|(id, _)| id)
                    .collect();
                topics.into_iter().for_each(|it| self.unload(it));
                Ok(AdminReply::Done)
            }
            NamespaceCall::Policies => {
                let policies = self.state.settings(namespace).map(|it| it.policies.clone());
                Ok(AdminReply::Policies(Box::new(policies.unwrap_or_default())))
            }
            NamespaceCall::SetPolicy(policy) => {
                done(self.set(namespace, |it| it.policies.apply(policy)))
            }
            NamespaceCall::Grants => Ok(AdminReply::Grants(
                self.state.settings(namespace).map(|it| it.grants.clone()).unwrap_or_default(),
            )),
            NamespaceCall::Grant { role, actions } => {
                done(self.set(namespace, |it| it.grants.grant(&role, actions)))
            }
            NamespaceCall::Revoke { role } => {
                done(self.set(namespace, |it| it.grants.revoke(&role)))
            }
        }
    }

    fn create_namespace(&mut self, namespace: &str, policies: Vec<Policy>) -> Answer {
        let tenant = namespace.split('/').next().unwrap_or_default();
        if !self.state.has_namespace(tenant) {
            return Err(AdminError::NotFound(format!("tenant {tenant} does not exist")));
        }
        if self.state.has_namespace(namespace) {
            return Err(AdminError::Conflict(format!("namespace {namespace} exists")));
        }
        self.change(CreateNamespace { name: namespace.to_owned() }).map_err(failed)?;
        if policies.is_empty() {
            return Ok(AdminReply::Done);
        }
        done(
            self.set(namespace, |it| {
                policies.into_iter().for_each(|policy| it.policies.apply(policy))
            }),
        )
    }

    fn delete_namespace(&mut self, namespace: &str, force: bool) -> Answer {
        let topics: Vec<u32> = self
            .state
            .topics()
            .filter(|(_, it)| it.name.namespace() == namespace)
            .map(|(id, _)| id)
            .collect();
        let partitioned = self.state.partitioned().map(|(name, _)| name.to_owned());
        let partitioned: Vec<String> =
            partitioned.filter(|it| in_namespace(it, namespace)).collect();
        if !force && !(topics.is_empty() && partitioned.is_empty()) {
            return Err(AdminError::Conflict(format!(
                "namespace {namespace} has topics: delete them first, or force it"
            )));
        }
        for topic in topics {
            self.delete_topic(topic).map_err(failed)?;
        }
        for name in partitioned {
            self.change(SetPartitions { name, partitions: 0 }).map_err(failed)?;
        }
        done(self.change(DeleteNamespace { name: namespace.to_owned() }))
    }

    fn topic_call(&mut self, name: &TopicName, call: TopicCall) -> Answer {
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
                Ok(AdminReply::MessageId(shown(
                    self.state.topic(id).and_then(|it| it.position_before(readable)),
                )))
            }
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
            TopicCall::Compaction => self.compaction_status(name),
            TopicCall::Schema { .. }
            | TopicCall::Schemas
            | TopicCall::CreateSchema(_)
            | TopicCall::DeleteSchema => self.schema_call(name, call),
            // Answered elsewhere: it has to be read.
            TopicCall::Message(_) => Err(missing(name)),
            TopicCall::Policies => {
                self.whole(name)?;
                Ok(AdminReply::PolicyLevels(Box::new(self.policy_levels(name))))
            }
            TopicCall::SetPolicy(policy) => {
                self.whole(name)?;
                done(self.set(name.as_str(), |it| it.policies.apply(policy)))
            }
        }
    }

    pub(super) fn policy_levels(&self, name: &TopicName) -> PolicyLevels {
        let of = |scope: &str| {
            self.state.settings(scope).map(|it| it.policies.clone()).unwrap_or_default()
        };
        let whole = name.partition().map_or_else(|| name.clone(), |(whole, _)| whole);
        PolicyLevels {
            topic: of(whole.as_str()),
            namespace: of(name.namespace()),
            broker: crate::admin::policies::Policies::default(),
        }
    }

    /// A topic without partitions, or one partition.
    fn one(&self, name: &TopicName) -> Result<u32, AdminError> {
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
    fn all(&self, name: &TopicName) -> Result<Vec<u32>, AdminError> {
        let Some(count) = self.state.partitions(name.as_str()) else {
            return Ok(vec![self.one(name)?]);
        };
        let partitions = (0..count).map(|index| name.with_partition(index));
        Ok(partitions.filter_map(|it| self.state.topic_id(it.as_str())).collect())
    }

    /// Checks that it exists and is not a partition.
    fn whole(&self, name: &TopicName) -> Result<(), AdminError> {
        self.all(name)?;
        match name.partition() {
            Some((whole, _)) if self.state.partitions(whole.as_str()).is_some() => {
                let text = format!("{name} is a partition: policies belong to {whole}");
                Err(AdminError::PreconditionFailed(text))
            }
            _ => Ok(()),
        }
    }

    fn check_free(&self, name: &TopicName) -> Result<(), AdminError> {
        self.check_namespace(name).map_err(|refusal| AdminError::NotFound(refusal.text))?;
        let is_taken = self.state.topic_id(name.as_str()).is_some()
            || self.state.partitions(name.as_str()).is_some();
        if is_taken {
            Err(AdminError::Conflict("This topic already exists".to_owned()))
        } else {
            Ok(())
        }
    }

    fn check_unused(&self, id: u32, name: &TopicName, force: bool) -> Result<(), AdminError> {
        let Some((topic, live)) = self.state.topic(id).zip(self.live.get(&id)) else {
            return Ok(());
        };
        let what = if !live.producers.active.is_empty() {
            "producers"
        } else if !live.dispatchers.is_empty() {
            "consumers"
        } else if topic.durable().next().is_some() {
            "subscriptions"
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

    fn grow(&mut self, name: &TopicName, partitions: u32) -> Answer {
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
        let names: Vec<String> =
            first.map(|it| it.durable().map(|it| it.name.clone()).collect()).unwrap_or_default();
        for index in count..partitions {
            let Some(id) = self.state.topic_id(name.with_partition(index).as_str()) else {
                continue;
            };
            for subscription in &names {
                self.create_subscription(id, subscription, Start::Earliest).map_err(failed)?;
            }
        }
        Ok(AdminReply::Done)
    }

    fn delete_partitioned(&mut self, name: &TopicName, force: bool) -> Answer {
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
        done(self.change(SetPartitions { name: name.as_str().to_owned(), partitions: 0 }))
    }

    fn partitioned_stats(&self, name: &TopicName) -> Answer {
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
    fn unload(&mut self, topic: u32) {
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

    fn truncate(&mut self, topic: u32) -> Result<(), Refusal> {
        let readable = self.live.get(&topic).map_or(0, |it| it.readable);
        self.skip_to(topic, None, readable)?;
        self.change(Trim { topic, first: readable })
    }

    /// Acknowledges everything before the ordinal, for one subscription or all durable ones.
    fn skip_to(&mut self, topic: u32, only: Option<u32>, before: u64) -> Result<(), Refusal> {
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

    fn start_compaction(&mut self, name: &TopicName) -> Answer {
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

    fn compaction_status(&self, name: &TopicName) -> Answer {
        let id = self.one(name)?;
        let compaction =
            self.live.get(&id).map(|it| &it.compaction).ok_or_else(|| missing(name))?;
        let last_error = compaction.last.clone().and_then(Result::err).unwrap_or_default();
        Ok(AdminReply::Compaction(CompactionStatus { status: compaction.state(), last_error }))
    }

    fn schema_call(&mut self, name: &TopicName, call: TopicCall) -> Answer {
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

    fn subscription_call(
        &mut self,
        name: &TopicName,
        subscription: &str,
        call: &SubscriptionCall,
    ) -> Answer {
        let topics = match call {
            SubscriptionCall::Create { .. } if self.all(name).is_err() => {
                vec![self.ensure_topic(name, true).map_err(failed)?]
            }
            _ => self.all(name)?,
        };
        if let SubscriptionCall::Create { at, .. } = call {
            let exists = |id: &u32| {
                self.state.topic(*id).is_some_and(|it| it.subscription_id(subscription).is_some())
            };
            if topics.iter().all(exists) {
                return Err(AdminError::Conflict(
                    "Subscription already exists for topic".to_owned(),
                ));
            }
            for id in topics {
                self.create_subscription(id, subscription, *at).map_err(failed)?;
            }
            return Ok(AdminReply::Done);
        }
        if subscription == COMPACTION_CURSOR {
            let text = "compaction needs no subscription here: there is none that could be changed or lost";
            return Err(AdminError::PreconditionFailed(text.to_owned()));
        }
        let known = |id: u32| Some((id, self.state.topic(id)?.subscription_id(subscription)?));
        let known: Vec<(u32, u32)> = topics.into_iter().filter_map(known).collect();
        if known.is_empty() {
            return Err(AdminError::NotFound(format!("{name} has no subscription {subscription}")));
        }
        for (topic, id) in known {
            self.change_subscription(topic, id, call)?;
        }
        Ok(AdminReply::Done)
    }

    fn change_subscription(
        &mut self,
        topic: u32,
        id: u32,
        call: &SubscriptionCall,
    ) -> Result<(), AdminError> {
        let readable = self.live.get(&topic).map_or(0, |it| it.readable);
        let done = match call {
            SubscriptionCall::Delete { force } => {
                if !force && self.dispatcher(topic, id).is_some() {
                    let text = "the subscription has consumers: end them first, or force it";
                    return Err(AdminError::PreconditionFailed(text.to_owned()));
                }
                self.close_consumers(topic, id);
                self.delete_subscription(topic, id)
            }
            SubscriptionCall::SkipAll => self.skip_to(topic, Some(id), readable),
            SubscriptionCall::Skip { entries } => {
                let before = self.skipped(topic, id, *entries);
                self.skip_to(topic, Some(id), before)
            }
            SubscriptionCall::ResetToTime { timestamp_ms } => {
                let mark = self.ordinal_at_time(topic, *timestamp_ms).unwrap_or(readable);
                self.reset_cursor(topic, id, mark)
            }
            SubscriptionCall::Reset { to } => {
                let mark = self.start(topic, *to);
                self.reset_cursor(topic, id, mark)
            }
            SubscriptionCall::ExpireMessages { age_s } => self.expire(topic, Some(id), *age_s),
            SubscriptionCall::Create { .. } | SubscriptionCall::Peek { .. } => Ok(()),
        };
        done.map_err(failed)
    }

    /// Where a cursor stands that skips so many open entries.
    fn skipped(&self, topic: u32, id: u32, entries: u64) -> u64 {
        let Some((kept, live)) = self.state.topic(topic).zip(self.live.get(&topic)) else {
            return 0;
        };
        let Some(subscription) = kept.subscriptions.get(&id) else { return 0 };
        let mut at = subscription.cursor.mark().max(kept.entries.first());
        for _ in 0..entries {
            at = subscription.cursor.next_unacked(at) + 1;
            if at >= live.readable {
                return live.readable;
            }
        }
        at
    }

    fn start(&self, topic: u32, at: Start) -> u64 {
        let Some((kept, live)) = self.state.topic(topic).zip(self.live.get(&topic)) else {
            return 0;
        };
        let ordinal = match at {
            Start::Earliest => kept.entries.first(),
            Start::Latest => live.readable,
            Start::At(it) => kept.entries.ordinal_at_or_after(unsigned(it)),
            Start::After(AdminPosition { ledger, entry: ..0 }) => {
                kept.entries.ordinal_at_or_after(unsigned(AdminPosition { ledger, entry: 0 }))
            }
            Start::After(it) => {
                let it = AdminPosition { entry: it.entry.saturating_add(1), ..it };
                kept.entries.ordinal_at_or_after(unsigned(it))
            }
        };
        ordinal.clamp(kept.entries.first().min(live.readable), live.readable)
    }

    fn create_subscription(&mut self, topic: u32, name: &str, at: Start) -> Result<(), Refusal> {
        let mark = self.start(topic, at);
        let Some(kept) = self.state.topic(topic) else { return Ok(()) };
        if kept.subscription_id(name).is_some() {
            return Ok(());
        }
        let subscription = kept.next_subscription();
        self.change(CreateSubscription { topic, subscription, name: name.to_owned(), mark })
    }

    fn ordinal_at(&self, topic: u32, position: AdminPosition) -> Option<u64> {
        self.state.topic(topic)?.entries.ordinal_of(unsigned(position))
    }

    fn nth_open(&self, topic: u32, subscription: &str, nth: u64) -> Option<u64> {
        let kept = self.state.topic(topic)?;
        let id = kept.subscription_id(subscription)?;
        let skipped = self.skipped(topic, id, nth.checked_sub(1)?);
        Some(kept.subscriptions.get(&id)?.cursor.next_unacked(skipped))
    }

    fn read_message(
        &mut self,
        ticket: u64,
        topic: &str,
        find: impl FnOnce(&Self, u32) -> Option<u64>,
    ) {
        let found = self.parsed(topic).and_then(|name| {
            let id = self.one(&name)?;
            let none = || AdminError::NotFound("Message not found".to_owned());
            let ordinal = find(self, id).ok_or_else(none)?;
            let item = self.view(id, false).and_then(|it| it.get(ordinal)).ok_or_else(none)?;
            let slot =
                self.state.topic(id).and_then(|it| it.entries.get(ordinal)).ok_or_else(none)?;
            Ok((shown(Some(item.position)), slot.place))
        });
        self.effects.push(match found {
            Ok((position, place)) => Effect::Read { ticket, position, place },
            Err(error) => Effect::Reply(ticket, Err(error)),
        });
    }
}

fn done(result: Result<(), Refusal>) -> Answer {
    result.map(|()| AdminReply::Done).map_err(failed)
}

fn failed(refusal: Refusal) -> AdminError {
    match refusal.code {
        ServerError::TopicNotFound | ServerError::SubscriptionNotFound => {
            AdminError::NotFound(refusal.text)
        }
        ServerError::PersistenceError => AdminError::Unavailable(refusal.text),
        ServerError::IncompatibleSchema | ServerError::NotAllowedError => {
            AdminError::Conflict(refusal.text)
        }
        ServerError::InvalidTopicName => AdminError::PreconditionFailed(refusal.text),
        _ => AdminError::Internal(refusal.text),
    }
}

fn missing(name: &TopicName) -> AdminError {
    AdminError::NotFound(format!("Topic {name} not found"))
}

fn check_partitions(partitions: u32) -> Result<(), AdminError> {
    if (1..=PARTITIONS_MAX).contains(&partitions) {
        return Ok(());
    }
    Err(AdminError::BadRequest(format!(
        "a topic has 1 to {PARTITIONS_MAX} partitions, not {partitions}"
    )))
}

fn in_namespace(topic: &str, namespace: &str) -> bool {
    TopicName::parse(topic).is_ok_and(|it| it.namespace() == namespace)
}

/// An id from outside; what is below zero stands before everything.
fn unsigned(position: AdminPosition) -> Position {
    let number = |it: i64| u64::try_from(it).unwrap_or_default();
    Position { ledger: number(position.ledger), entry: number(position.entry) }
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
            .map(|it| (it.key.clone(), it.value.clone()))
            .collect(),
    }
}

fn new_schema(name: &TopicName, it: NewSchema) -> Result<Schema, AdminError> {
    let r#type = kind_by_name(&it.kind).ok_or_else(|| {
        AdminError::BadRequest(format!("unknown type of schema: {}", it.kind.escape_debug()))
    })?;
    let properties = it.properties.into_iter().map(|(key, value)| KeyValue { key, value });
    Ok(Schema {
        name: name.as_str().to_owned(),
        schema_data: it.data.into_bytes().into(),
        r#type,
        properties: properties.collect(),
    })
}
