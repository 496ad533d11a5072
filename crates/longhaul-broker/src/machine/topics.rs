//! Creation of topics, partitions, policies.

use super::effect::RequestRefusal;
use super::limits::TOPIC_BYTES;
use super::{BrokerMachine, Live};
use crate::defaults::{self, TopicDefaults};
use crate::name::{NameError, TopicName};
use crate::policies::{Policies, PolicyLevels, ResourceProperties, TopicType};
use crate::state::ResourceSettings;
use crate::state::change::{
    CreateSubscription, CreateTopic, OpenLedger, SetPartitions, SetPolicies,
};
use longhaul_wire::messages::ServerError;
use std::sync::Arc;

/// Maximum number of partitions of a topic.
pub(crate) const PARTITIONS_MAX: u32 = 10_000;

/// The error for an invalid name. After `InvalidTopicName`, clients retry for half a minute and
/// then fail without the reason.
fn misnamed(cause: &NameError) -> RequestRefusal {
    RequestRefusal::not_allowed(cause.to_string())
}

impl BrokerMachine {
    pub(super) fn topic_name(&self, name: &str) -> Result<TopicName, RequestRefusal> {
        TopicName::parse(name).map_err(|cause| misnamed(&cause))
    }

    pub(super) fn check_namespace(&self, name: &TopicName) -> Result<(), RequestRefusal> {
        let namespace = name.namespace();
        if self.state.has_namespace(namespace) {
            return Ok(());
        }
        let text = format!(
            "namespace {namespace} does not exist: create it with PUT /admin/v2/namespaces/{namespace}, its tenant first"
        );
        Err(RequestRefusal::not_found(text))
    }

    /// The id of a topic, which is created if it does not exist and that is allowed.
    pub(super) fn ensure_topic(
        &mut self,
        name: &TopicName,
        may_create: bool,
    ) -> Result<u32, RequestRefusal> {
        if let Some(id) = self.state.topic_id(name.as_str()) {
            return Ok(id);
        }
        self.check_namespace(name)?;
        if let Some(count) = self.state.partitions(name.as_str()) {
            let text = format!(
                "{name} has {count} partitions: use one of them, {name}-partition-0 and so on"
            );
            return Err(RequestRefusal::not_allowed(text));
        }
        let is_partition = self.is_partition(name)?;
        let is_allowed = is_partition || (may_create && self.creates_topics(name));
        if !is_allowed {
            let text = format!(
                "{name} does not exist, and is not created by use: see PUT /admin/v2/persistent/…"
            );
            return Err(RequestRefusal::not_found(text));
        }
        if is_partition {
            self.check_disk(TOPIC_BYTES)?;
        } else {
            self.check_topics(name, &self.resolve_policies(name), 1)?;
        }
        self.create_topic(name)
    }

    /// Whether the name is that of a partition of a partitioned topic; an error if that topic has
    /// fewer partitions.
    fn is_partition(&self, name: &TopicName) -> Result<bool, RequestRefusal> {
        let Some((whole, index)) = name.partition() else { return Ok(false) };
        match self.state.partitions(whole.as_str()) {
            Some(count) if index >= count => {
                Err(RequestRefusal::not_found(format!("{whole} has {count} partitions")))
            }
            count => Ok(count.is_some()),
        }
    }

    fn creates_topics(&self, name: &TopicName) -> bool {
        let policies = self.resolve_policies(name);
        policies.auto_topic_creation.is_none_or(|policy| policy.allow_auto_topic_creation)
    }

    pub(super) fn create_topic(&mut self, name: &TopicName) -> Result<u32, RequestRefusal> {
        let (topic, _) = self.state.next_numbers();
        let (full, created_at) = (name.as_str().to_owned(), self.now);
        self.change(CreateTopic { topic, name: full, created_at })?;
        // Tools show a position before the first entry even for an empty topic.
        self.open_ledger(topic)?;
        self.enliven(topic);
        self.watchers.note(name);
        let whole = name.whole();
        let subscription =
            self.defaults_of(&whole).and_then(|defaults| defaults.subscription.clone());
        if let Some(subscription) = subscription {
            self.create_subscription(topic, subscription, None, ResourceProperties::new())?;
        }
        self.refresh_neighbours(&whole);
        Ok(topic)
    }

    /// Begins a ledger: unconfirmed writes may have left entries in the previous one, whose ids are
    /// not used again.
    pub(super) fn open_ledger(&mut self, topic: u32) -> Result<(), RequestRefusal> {
        let (_, ledger) = self.state.next_numbers();
        let first = self.state.topic(topic).map_or(0, |kept| kept.entries.end());
        self.change(OpenLedger { topic, ledger, first })
    }

    /// Creates a subscription, if it does not exist, that has acknowledged everything before this
    /// mark; without one, at the start of the topic.
    pub(super) fn create_subscription(
        &mut self,
        topic: u32,
        name: String,
        mark: Option<u64>,
        properties: ResourceProperties,
    ) -> Result<(), RequestRefusal> {
        let Some(kept) = self.invariants.kept(self.state.topic(topic)) else { return Ok(()) };
        if kept.subscription_id(&name).is_some() {
            return Ok(());
        }
        self.check_subscriptions(topic, kept, true)?;
        let mark = mark.unwrap_or_else(|| kept.entries.first());
        let subscription = kept.next_subscription();
        self.change(CreateSubscription { topic, subscription, name, mark, properties })
    }

    /// The defaults of a topic by its name, or by its topic's name for a partition.
    pub(super) fn defaults_of(&self, whole: &TopicName) -> Option<&TopicDefaults> {
        let exists = |name: &str| {
            self.state.partitions(name).is_some() || self.state.topic_id(name).is_some()
        };
        defaults::find(&self.settings.topic_defaults, whole.as_str(), exists)
    }

    /// Updates the policies of topics whose defaults depend on whether this topic exists.
    pub(super) fn refresh_neighbours(&mut self, whole: &TopicName) {
        let neighbours = defaults::neighbours(&self.settings.topic_defaults, whole.as_str());
        let names: Vec<TopicName> =
            neighbours.filter_map(|neighbour| TopicName::parse(neighbour).ok()).collect();
        for name in names {
            self.numbers_of(&name).into_iter().for_each(|topic| self.refresh_policies(topic));
        }
    }

    /// The ids of a topic, or of all its partitions.
    pub(super) fn numbers_of(&self, name: &TopicName) -> Vec<u32> {
        match self.state.partitions(name.as_str()) {
            None => self.state.topic_id(name.as_str()).into_iter().collect(),
            Some(count) => {
                let partitions = (0..count).map(|index| name.with_partition(index));
                partitions.filter_map(|partition| self.state.topic_id(partition.as_str())).collect()
            }
        }
    }

    /// Begins to serve a topic.
    pub(super) fn enliven(&mut self, topic: u32) {
        let Some(kept) = self.invariants.kept(self.state.topic(topic)) else { return };
        let name = kept.name.clone();
        let live = Live {
            readable: kept.entries.end(),
            partition: name.partition_index(),
            ..Live::default()
        };
        self.live.insert(topic, live);
        self.refresh_policies(topic);
    }

    /// The number of partitions; 0 for an unpartitioned topic. A missing topic that use would
    /// create counts as unpartitioned, or is created with partitions if that is the rule.
    pub(super) fn partitions_of(
        &mut self,
        name: &TopicName,
        may_create: bool,
    ) -> Result<u32, RequestRefusal> {
        if let Some(count) = self.state.partitions(name.as_str()) {
            return Ok(count);
        }
        if self.state.topic_id(name.as_str()).is_some() {
            return Ok(0);
        }
        self.check_namespace(name)?;
        if self.is_partition(name)? {
            return Ok(0);
        }
        let policy = self.resolve_policies(name).auto_topic_creation;
        if !may_create || policy.is_some_and(|policy| !policy.allow_auto_topic_creation) {
            return Err(RequestRefusal::not_found(format!("{name} does not exist")));
        }
        match policy.filter(|policy| {
            policy.topic_type == TopicType::Partitioned && name.partition().is_none()
        }) {
            Some(policy) => {
                let partitions =
                    policy.default_num_partitions.unwrap_or(1).clamp(1, PARTITIONS_MAX);
                self.create_partitioned(name, partitions)?;
                Ok(partitions)
            }
            None => Ok(0),
        }
    }

    /// Creates a partitioned topic with its partitions, or adds partitions to it.
    pub(super) fn create_partitioned(
        &mut self,
        name: &TopicName,
        partitions: u32,
    ) -> Result<(), RequestRefusal> {
        name.check_partitions(partitions).map_err(|cause| misnamed(&cause))?;
        let missing = partitions as usize - self.numbers_of(name).len().min(partitions as usize);
        self.check_topics(name, &self.resolve_policies(name), missing)?;
        self.change(SetPartitions { name: name.as_str().to_owned(), partitions })?;
        for index in 0..partitions {
            let partition = name.with_partition(index);
            if self.state.topic_id(partition.as_str()).is_none() {
                self.create_topic(&partition)?;
            }
        }
        Ok(())
    }

    /// Full names of the topics of a namespace: unpartitioned ones and partitions.
    pub(super) fn topics_in(&self, namespace: &str) -> Vec<String> {
        let start = TopicName::start_in(namespace);
        let topics = self.state.topics_named(&start);
        topics.map(|(_, topic)| topic.name.as_str().to_owned()).collect()
    }

    /// The policies of a topic on all levels.
    pub(super) fn policy_levels(&self, name: &TopicName) -> PolicyLevels {
        let of = |scope: &str| {
            self.state.settings(scope).map(|settings| settings.policies.clone()).unwrap_or_default()
        };
        let whole = name.whole();
        PolicyLevels {
            topic: of(whole.as_str()),
            namespace: of(name.namespace()),
            broker: defaults::policies(self.defaults_of(&whole)),
        }
    }

    pub(super) fn resolve_policies(&self, name: &TopicName) -> Policies {
        let levels = self.policy_levels(name);
        levels.applied()
    }

    /// Reloads the policies of a topic.
    pub(super) fn refresh_policies(&mut self, topic: u32) {
        let Some(kept) = self.invariants.kept(self.state.topic(topic)) else { return };
        let name = kept.name.clone();
        let policies = self.resolve_policies(&name);
        let live = self.live.get_mut(&topic);
        if let Some(live) = self.invariants.served(live) {
            live.policies = Arc::new(policies);
            self.shown.insert(topic);
        }
    }

    /// Changes the settings of a topic or a namespace, and applies them.
    pub(super) fn set(
        &mut self,
        scope: &str,
        set: impl FnOnce(&mut ResourceSettings),
    ) -> Result<(), RequestRefusal> {
        let mut settings = self.state.settings(scope).cloned().unwrap_or_default();
        let former = settings.policies.clone();
        set(&mut settings);
        let has_changed = settings.policies != former;
        let policies = serde_json::to_vec(&settings)
            .map_err(|cause| RequestRefusal::new(ServerError::UnknownError, cause.to_string()))?;
        self.change(SetPolicies { scope: scope.to_owned(), policies: policies.into() })?;
        // A namespace may have 100,000 topics, and clients wait meanwhile: grants do not concern them.
        let concerned: Vec<u32> = if !has_changed {
            Vec::new()
        } else if scope.contains("://") {
            let named = self.state.topics_named(scope);
            named
                .filter(|(_, named)| named.name.whole().as_str() == scope)
                .map(|named| named.0)
                .collect()
        } else if scope.contains('/') {
            self.state.topics_named(&TopicName::start_in(scope)).map(|named| named.0).collect()
        } else {
            // A tenant has no policies.
            Vec::new()
        };
        concerned.into_iter().for_each(|topic| self.refresh_policies(topic));
        Ok(())
    }
}
