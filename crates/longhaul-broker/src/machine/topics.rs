//! Creation of topics, partitions, policies, schemas.

use super::effect::RequestRefusal;
use super::{BrokerMachine, Live};
use crate::defaults::{self, TopicDefaults};
use crate::name::{NameError, TopicName};
use crate::policies::{Policies, PolicyLevels, ResourceProperties, TopicType};
use crate::state::ResourceSettings;
use crate::state::change::{
    AddSchema, CreateSubscription, CreateTopic, DeleteSchemas, OpenLedger, SetPartitions,
    SetPolicies,
};
use bytes::Bytes;
use longhaul_wire::messages::{
    CommandGetOrCreateSchema, CommandGetOrCreateSchemaResponse, CommandGetSchema,
    CommandGetSchemaResponse, Schema, SchemaType, ServerError,
};
use prost::Message as _;
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
        if !is_partition {
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
        set(&mut settings);
        let policies = serde_json::to_vec(&settings)
            .map_err(|cause| RequestRefusal::new(ServerError::UnknownError, cause.to_string()))?;
        self.change(SetPolicies { scope: scope.to_owned(), policies: policies.into() })?;
        let concerned: Vec<u32> = if scope.contains("://") {
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

    /// The version of a producer's or consumer's schema, which is stored if it is new.
    pub(super) fn register_schema(
        &mut self,
        topic: u32,
        schema: Option<&Schema>,
    ) -> Result<Bytes, RequestRefusal> {
        let Some(schema) = schema.filter(|schema| is_definite(schema)) else {
            return Ok(Bytes::new());
        };
        let Some(kept) = self.invariants.kept(self.state.topic(topic)) else {
            return Ok(Bytes::new());
        };
        let name = kept.name.clone();
        self.store_schema(&name, schema).map(version_bytes)
    }

    /// Refuses a producer without a schema if the topic has one and the policy enforces it.
    pub(super) fn check_schema(
        &mut self,
        topic: u32,
        version: &Bytes,
    ) -> Result<(), RequestRefusal> {
        let both = self.state.topic(topic).zip(self.live.get(&topic));
        let Some((kept, live)) = self.invariants.served(both) else { return Ok(()) };
        let (name, is_enforced) = (&kept.name, live.policies.enforces_schemas.unwrap_or_default());
        let has_schema = !self.state.schemas(name.whole().as_str()).is_empty();
        if !is_enforced || !has_schema || !version.is_empty() {
            return Ok(());
        }
        let text = format!(
            "{name} has a schema, and producers without one are refused (schemaValidationEnforced)"
        );
        Err(RequestRefusal::new(ServerError::IncompatibleSchema, text))
    }

    pub(super) fn store_schema(
        &mut self,
        name: &TopicName,
        schema: &Schema,
    ) -> Result<u64, RequestRefusal> {
        // Partitions share the schemas of their topic.
        let whole = name.whole();
        let known = self.state.schemas(whole.as_str());
        let same = |known: &Schema| {
            known.r#type == schema.r#type && known.schema_data == schema.schema_data
        };
        if let Some(version) = known.iter().position(|version| same(&version.schema)) {
            return Ok(version as u64);
        }
        if let Some(last) = known.last().filter(|last| last.schema.r#type != schema.r#type) {
            let text = format!(
                "{name} has a schema of type {}, this one is of type {}: delete it first, or use another topic",
                kind_name(last.schema.r#type),
                kind_name(schema.r#type)
            );
            return Err(RequestRefusal::new(ServerError::IncompatibleSchema, text));
        }
        self.check_schemas(name, known, schema.encoded_len())?;
        let version = known.len() as u64;
        // The room that is left on a full disk is for acknowledgements.
        self.check_disk(schema.encoded_len())?;
        // A copy: these bytes are a part of a connection's buffer, and would keep all of it.
        let schema_data = Bytes::copy_from_slice(&schema.schema_data);
        let (name, schema) =
            (whole.as_str().to_owned(), Some(Schema { schema_data, ..schema.clone() }));
        self.change(AddSchema { name, schema, added_at: self.now })?;
        Ok(version)
    }

    pub(super) fn delete_schemas(
        &mut self,
        name: &TopicName,
    ) -> Result<Option<u64>, RequestRefusal> {
        let name = name.whole().as_str().to_owned();
        let count = self.state.schemas(&name).len() as u64;
        if count == 0 {
            return Ok(None);
        }
        self.change(DeleteSchemas { name })?;
        Ok(Some(count - 1))
    }

    /// A version of a topic's schema, by default the latest.
    pub(super) fn schema_of(
        &self,
        name: &TopicName,
        version: Option<u64>,
    ) -> Option<(u64, &crate::state::SchemaVersion)> {
        let known = self.state.schemas(name.whole().as_str());
        let version = version.or_else(|| (known.len() as u64).checked_sub(1))?;
        Some((version, known.get(usize::try_from(version).ok()?)?))
    }

    pub(super) fn get_schema(&mut self, conn: u64, command: &CommandGetSchema) {
        let asked = command.schema_version.as_ref().filter(|version| !version.is_empty());
        let found = self.topic_name(&command.topic).and_then(|name| {
            self.authorize_any(conn, &name)?;
            let found = match asked {
                Some(bytes) => {
                    version_number(bytes).and_then(|version| self.schema_of(&name, Some(version)))
                }
                None => self.schema_of(&name, None),
            };
            let missing = || RequestRefusal::not_found(format!("{name} has no such schema"));
            found.map(|(version, found)| (version, found.schema.clone())).ok_or_else(missing)
        });
        let mut response = CommandGetSchemaResponse {
            request_id: command.request_id,
            ..CommandGetSchemaResponse::default()
        };
        match found {
            Ok((version, schema)) => {
                response.schema = Some(schema);
                response.schema_version = Some(version_bytes(version));
            }
            Err(refusal) => {
                response.error_code = Some(refusal.code.into());
                response.error_message = Some(refusal.text);
            }
        }
        self.send_after_commit(conn, response);
    }

    pub(super) fn get_or_create_schema(&mut self, conn: u64, command: &CommandGetOrCreateSchema) {
        let stored = self.topic_name(&command.topic).and_then(|name| {
            self.authorize(conn, &name, crate::policies::AuthAction::Produce)?;
            if self.state.topic_id(name.as_str()).is_none()
                && self.state.partitions(name.as_str()).is_none()
            {
                return Err(RequestRefusal::not_found(format!("{name} does not exist")));
            }
            self.store_schema(&name, &command.schema)
        });
        let mut response = CommandGetOrCreateSchemaResponse {
            request_id: command.request_id,
            ..CommandGetOrCreateSchemaResponse::default()
        };
        match stored {
            Ok(version) => response.schema_version = Some(version_bytes(version)),
            Err(refusal) => {
                response.error_code = Some(refusal.code.into());
                response.error_message = Some(refusal.text);
            }
        }
        self.send_after_commit(conn, response);
    }
}

/// Whether a schema is stored: raw bytes, and a schema that the client asks for, are not.
fn is_definite(schema: &Schema) -> bool {
    schema.r#type != i32::from(SchemaType::None)
        && schema.r#type != i32::from(SchemaType::AutoConsume)
}

fn version_bytes(version: u64) -> Bytes {
    Bytes::copy_from_slice(&version.to_be_bytes())
}

fn version_number(bytes: &Bytes) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.as_ref().try_into().ok()?))
}

/// The type of a schema in Pulsar's JSON.
#[expect(clippy::wildcard_enum_match_arm, reason = "the others are one word")]
pub(super) fn kind_name(kind: i32) -> String {
    let Ok(kind) = SchemaType::try_from(kind) else { return format!("unknown ({kind})") };
    match kind {
        SchemaType::Bool => "BOOLEAN".to_owned(),
        SchemaType::KeyValue => "KEY_VALUE".to_owned(),
        SchemaType::LocalDate => "LOCAL_DATE".to_owned(),
        SchemaType::LocalTime => "LOCAL_TIME".to_owned(),
        SchemaType::LocalDateTime => "LOCAL_DATE_TIME".to_owned(),
        SchemaType::ProtobufNative => "PROTOBUF_NATIVE".to_owned(),
        SchemaType::AutoConsume => "AUTO_CONSUME".to_owned(),
        other => format!("{other:?}").to_uppercase(),
    }
}

/// The type of a schema that can be stored, from its name in Pulsar's JSON.
pub(crate) fn kind_by_name(name: &str) -> Option<i32> {
    (0..=20).find(|&kind| kind_name(kind) == name)
}
