//! The persistent state of the broker, which results from the records of the log. Pure.
//!
//! [`BrokerState::apply`] is the only way to change it. It runs when a record is *appended*, and in
//! the same way after a restart. An appended record is not on disk yet: before a client gets an
//! answer, or a consumer an entry, the machine waits for the commit. If the commit fails the
//! process ends, so nothing is ever rolled back.

pub mod change;
pub mod cursor;
pub mod entries;
pub mod entry;
mod named;
mod pages;
mod ranges;
pub(crate) mod replay;
mod rows;
mod schemas;
mod slot;
mod snapshot;
#[cfg(test)]
mod tests;
mod topic;

use crate::ids::IdMap;
use crate::log::{LedgerRun, RecordLocation};
use crate::name::TopicName;
use crate::policies::{Grants, Policies, Tenant};
use bytes::Bytes;
use change::StateChange;
use entries::EntryPosition;
use entry::EntryHead;
use schemas::TopicSchemas;
use serde::{Deserialize, Serialize};
use snapshot::StateImage;
use std::collections::{BTreeMap, BTreeSet, HashMap};

pub use schemas::SchemaVersion;
pub(crate) use schemas::schema_bytes;
pub(crate) use snapshot::PIECE_BYTES;
pub use topic::{BrokerSubscription, BrokerTopic, CompactedView};

/// Why a record cannot be applied: the log contradicts itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// The topic of the record does not exist.
    #[error("a record is about topic {0}, which does not exist")]
    Topic(u32),
    /// The subscription of the record does not exist.
    #[error("a record is about subscription {1} of topic {0}, which does not exist")]
    Subscription(u32, u32),
    /// The content of the record is malformed.
    #[error("a record's content cannot be read: {0}")]
    Content(String),
}

/// Settings of a topic or a namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResourceSettings {
    /// Policies.
    pub(crate) policies: Policies,
    /// Grants.
    pub(crate) grants: Grants,
    /// Administrators of a tenant, if set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<Tenant>,
}

/// The persistent state.
#[derive(Clone, Debug)]
pub struct BrokerState {
    topics: IdMap<u32, BrokerTopic>,
    /// Ids by full name, in order, so that the topics of a namespace are adjacent.
    names: BTreeMap<String, u32>,
    /// Partitioned topics, by full name, with the number of their partitions.
    partitioned: BTreeMap<String, u32>,
    /// Tenants, and namespaces as `tenant/namespace`.
    namespaces: BTreeSet<String>,
    /// By name of a topic or namespace.
    settings: HashMap<String, ResourceSettings>,
    schemas: TopicSchemas,
    /// Bytes of live entries in each log segment.
    live: BTreeMap<u32, u64>,
    /// A segment whose byte count would have become negative.
    miscounted: Option<u32>,
    next_topic: u32,
    next_ledger: u64,
    /// The image that is being composed.
    image: Option<Box<StateImage>>,
}

impl Default for BrokerState {
    fn default() -> Self {
        let namespaces = ["public", "public/default"].map(str::to_owned).into();
        Self {
            topics: IdMap::default(),
            names: BTreeMap::new(),
            partitioned: BTreeMap::new(),
            namespaces,
            settings: HashMap::new(),
            schemas: TopicSchemas::default(),
            live: BTreeMap::new(),
            miscounted: None,
            next_topic: 0,
            next_ledger: 0,
            image: None,
        }
    }
}

/// Result of forgetting entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forgotten {
    /// Checked pages of 1,024 entries.
    pub pages: usize,
    /// Forgotten entries.
    pub entries: usize,
    /// Where to continue, if there are more pages.
    pub next: Option<u64>,
}

impl BrokerState {
    /// A topic by id.
    #[must_use]
    pub fn topic(&self, id: u32) -> Option<&BrokerTopic> {
        self.topics.get(&id)
    }

    /// A subscription by the ids of its topic and its own.
    #[must_use]
    pub fn subscription(&self, topic: u32, id: u32) -> Option<&BrokerSubscription> {
        Some(self.topic(topic)?.subscriptions.get(&id)?)
    }

    /// A topic by id. Only data that is not recorded may be changed in it: subscriptions of
    /// readers.
    pub fn topic_mut(&mut self, id: u32) -> Option<&mut BrokerTopic> {
        self.topics.get_mut(&id)
    }

    /// The id of a topic.
    #[must_use]
    pub fn topic_id(&self, name: &str) -> Option<u32> {
        self.names.get(name).copied()
    }

    /// All topics with their ids, by name.
    pub fn topics(&self) -> impl Iterator<Item = (u32, &BrokerTopic)> {
        self.names.values().filter_map(|id| Some((*id, self.topics.get(id)?)))
    }

    /// Number of topics.
    #[must_use]
    pub fn topic_count(&self) -> usize {
        self.names.len()
    }

    /// The partitioned topics with their numbers of partitions.
    pub fn partitioned(&self) -> impl Iterator<Item = (&str, u32)> {
        self.partitioned.iter().map(|(name, &count)| (name.as_str(), count))
    }

    /// The number of partitions; `None` if the topic is not partitioned.
    #[must_use]
    pub fn partitions(&self, name: &str) -> Option<u32> {
        self.partitioned.get(name).copied()
    }

    /// Whether the namespace or tenant exists.
    #[must_use]
    pub fn has_namespace(&self, name: &str) -> bool {
        self.namespaces.contains(name)
    }

    /// Tenants, and namespaces as `tenant/namespace`.
    pub fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.namespaces.iter().map(String::as_str)
    }

    /// The settings of a topic or a namespace.
    #[must_use]
    pub fn settings(&self, scope: &str) -> Option<&ResourceSettings> {
        self.settings.get(scope)
    }

    /// The versions of a topic's schema, the oldest first.
    #[must_use]
    pub fn schemas(&self, name: &str) -> &[SchemaVersion] {
        self.schemas.of(name)
    }

    /// Bytes of all schemas.
    #[must_use]
    pub const fn schema_bytes(&self) -> usize {
        self.schemas.bytes()
    }

    /// Free ids for a topic and for a ledger.
    #[must_use]
    pub const fn next_numbers(&self) -> (u32, u64) {
        (self.next_topic, self.next_ledger)
    }

    /// Bytes of live entries in each log segment that has any.
    #[must_use]
    pub const fn live(&self) -> &BTreeMap<u32, u64> {
        &self.live
    }

    /// A segment whose byte count would have become negative. Then no count is reliable, and a
    /// needed segment may seem unneeded.
    #[must_use]
    pub const fn miscounted(&self) -> Option<u32> {
        self.miscounted
    }

    /// Adds an entry at the end of its topic. Returns its ordinal.
    ///
    /// # Errors
    /// The topic does not exist.
    pub fn push(
        &mut self,
        id: u32,
        location: RecordLocation,
        head: &EntryHead,
    ) -> Result<u64, StateError> {
        let topic = self.named(id)?;
        let ordinal = topic.entries.push(location, &head.facts);
        topic.bytes += u64::from(location.size);
        if let Some((producer, highest)) = &head.sequence {
            topic.record_sequence(producer, *highest, topic.last_use.saturating_add(1));
        }
        *self.live.entry(location.segment).or_default() += u64::from(location.size);
        Ok(ordinal)
    }

    /// Restores an entry after a restart. Entries of deleted topics, and trimmed ones, are skipped.
    pub fn restore(
        &mut self,
        id: u32,
        position: EntryPosition,
        location: RecordLocation,
        head: &EntryHead,
    ) {
        // The topic was deleted later in the log.
        let Some(topic) = self.topics.get_mut(&id) else { return };
        let end = topic.entries.end();
        let (is_there, former) = topic.entries.restore(position, location, &head.facts);
        if !is_there {
            return;
        }
        topic.bytes += u64::from(location.size);
        *self.live.entry(location.segment).or_default() += u64::from(location.size);
        if let Some((producer, highest)) = &head.sequence {
            // A copy of an entry, or an entry before the checkpoint, is no new use.
            let is_new = topic.entries.end() > end;
            topic.record_sequence(
                producer,
                *highest,
                if is_new { topic.last_use.saturating_add(1) } else { 0 },
            );
        }
        if let Some(former) = former {
            topic.bytes = topic.bytes.saturating_sub(u64::from(former.size));
            self.release(former);
        }
    }

    /// Restores adjacent entries in one segment. Their sequence ids are known.
    pub fn restore_run(&mut self, run: &LedgerRun<'_>) {
        // The topic was deleted later in the log.
        let Some(topic) = self.topics.get_mut(&run.topic) else { return };
        let position = EntryPosition { ledger: run.ledger, entry: run.first };
        let (added, former) = topic.entries.restore_run(position, run.entries);
        if let (Some(first), true) = (run.entries.first(), added > 0) {
            topic.bytes += added;
            *self.live.entry(first.location.segment).or_default() += added;
        }
        let bytes: u64 = former.iter().map(|location| u64::from(location.size)).sum();
        topic.bytes = topic.bytes.saturating_sub(bytes);
        former.into_iter().for_each(|location| self.release(location));
    }

    /// Changes the location of an existing entry.
    pub fn relocate(&mut self, id: u32, ordinal: u64, location: RecordLocation) {
        // The topic may have been deleted while the entry was copied.
        let Some(topic) = self.topics.get_mut(&id) else { return };
        let Some(former) = topic.entries.relocate(ordinal, location) else { return };
        topic.bytes =
            (topic.bytes + u64::from(location.size)).saturating_sub(u64::from(former.size));
        *self.live.entry(location.segment).or_default() += u64::from(location.size);
        self.release(former);
    }

    /// Forgets entries that every durable subscription has acknowledged although older ones are
    /// unacknowledged, if they are in earlier segments and were published before that time. The log
    /// does not record it: entries that are still in the log come back with a restart, and are
    /// forgotten again.
    pub fn forget_acked(
        &mut self,
        id: u32,
        from: u64,
        pages_max: usize,
        segment: u32,
        published_before: u64,
    ) -> Forgotten {
        let Some(topic) = self.topics.get_mut(&id) else { return Forgotten::default() };
        let (freed, pages, next) = topic.forget_acked(from, pages_max, |slot| {
            slot.location.segment < segment && slot.publish_time < published_before
        });
        let entries = freed.len();
        self.forget_locations(id, freed);
        Forgotten { pages, entries, next }
    }

    fn forget_locations(&mut self, id: u32, freed: Vec<RecordLocation>) {
        let bytes: u64 = freed.iter().map(|location| u64::from(location.size)).sum();
        if let Some(topic) = self.topics.get_mut(&id) {
            topic.bytes = topic.bytes.saturating_sub(bytes);
        }
        freed.into_iter().for_each(|location| self.release(location));
    }

    /// Applies a change.
    ///
    /// # Errors
    /// The change contradicts the records before it.
    pub fn apply(&mut self, change: &StateChange) -> Result<(), StateError> {
        match change {
            StateChange::CreateTopic(details) => self.create_topic(details)?,
            StateChange::DeleteTopic(details) => self.delete_topic(details.topic)?,
            StateChange::SetPartitions(details) if details.partitions == 0 => {
                self.partitioned.remove(&details.name);
            }
            StateChange::SetPartitions(details) => {
                self.partitioned.insert(details.name.clone(), details.partitions);
            }
            StateChange::CreateNamespace(details) => {
                self.namespaces.insert(details.name.clone());
            }
            StateChange::DeleteNamespace(details) => {
                self.namespaces.remove(&details.name);
                self.settings.remove(&details.name);
            }
            StateChange::SetPolicies(details) => self.set(&details.scope, &details.policies)?,
            StateChange::AddSchema(details) => {
                let schema = details.schema.clone().ok_or_else(|| missing("a schema"))?;
                let version = SchemaVersion { schema, added_at: details.added_at };
                self.schemas.add(&details.name, version);
            }
            StateChange::DeleteSchemas(details) => self.schemas.remove(&details.name),
            StateChange::Numbers(details) => {
                self.next_topic = self.next_topic.max(details.topic);
                self.next_ledger = self.next_ledger.max(details.ledger);
            }
            StateChange::OpenLedger(details) => self.open_ledger(details)?,
            StateChange::CreateSubscription(details) => {
                self.named(details.topic)?.add_subscription(details.clone(), true);
            }
            StateChange::DeleteSubscription(details) => {
                self.named(details.topic)?.subscriptions.remove(&details.subscription);
            }
            StateChange::NoteSubscription(details) => {
                let known = self.named_subscription(details.topic, details.subscription)?;
                known.properties.clone_from(&details.properties);
            }
            StateChange::Ack(details) => {
                let known = self.named_subscription(details.topic, details.subscription)?;
                known.cursor.apply(details);
            }
            StateChange::ResetCursor(details) => {
                let known = self.named_subscription(details.topic, details.subscription)?;
                known.cursor.reset(details.mark);
            }
            StateChange::Trim(details) => {
                let freed = self.named(details.topic)?.trim(details.first);
                self.forget_locations(details.topic, freed);
            }
            StateChange::Compacted(details) => {
                let (horizon, file) = (details.horizon, details.file.clone());
                let view = (!file.is_empty()).then_some(CompactedView { horizon, file });
                self.named(details.topic)?.compacted = view;
            }
            StateChange::Sequence(details) => {
                let topic = self.named(details.topic)?;
                topic.record_sequence(&details.producer, details.highest, details.last_use);
            }
            StateChange::TopicEpoch(details) => {
                self.named(details.topic)?.epoch = Some(details.epoch);
            }
            StateChange::Terminate(details) => self.named(details.topic)?.is_terminated = true,
            StateChange::TopicEnd(details) => {
                self.named(details.topic)?.entries.extend_to(details.end);
            }
        }
        Ok(())
    }

    /// The topic that is about to be changed.
    fn named(&mut self, id: u32) -> Result<&mut BrokerTopic, StateError> {
        let topic = self.topics.get_mut(&id).ok_or(StateError::Topic(id))?;
        if let Some(image) = &mut self.image {
            image.keep(id, topic);
        }
        Ok(topic)
    }

    /// The subscription that a change names.
    fn named_subscription(
        &mut self,
        topic: u32,
        id: u32,
    ) -> Result<&mut BrokerSubscription, StateError> {
        let known = self.named(topic)?.subscriptions.get_mut(&id);
        Ok(known.ok_or(StateError::Subscription(topic, id))?)
    }

    fn create_topic(&mut self, details: &change::CreateTopic) -> Result<(), StateError> {
        let name = TopicName::parse(&details.name);
        let name = name.map_err(|cause| StateError::Content(cause.to_string()))?;
        self.names.insert(details.name.clone(), details.topic);
        let topic = BrokerTopic::new(name, details.created_at);
        self.topics.insert(details.topic, topic);
        self.next_topic = self.next_topic.max(details.topic.saturating_add(1));
        Ok(())
    }

    fn delete_topic(&mut self, id: u32) -> Result<(), StateError> {
        self.named(id)?;
        let topic = self.topics.remove(&id).ok_or(StateError::Topic(id))?;
        self.names.remove(topic.name.as_str());
        self.settings.remove(topic.name.as_str());
        for (_, slot) in topic.entries.iter() {
            self.release(slot.location);
        }
        Ok(())
    }

    fn open_ledger(&mut self, details: &change::OpenLedger) -> Result<(), StateError> {
        let topic = self.named(details.topic)?;
        topic.entries.open_ledger(details.ledger, details.first);
        topic.is_open = true;
        self.next_ledger = self.next_ledger.max(details.ledger.saturating_add(1));
        Ok(())
    }

    fn set(&mut self, scope: &str, json: &Bytes) -> Result<(), StateError> {
        if json.is_empty() {
            self.settings.remove(scope);
            return Ok(());
        }
        let settings = serde_json::from_slice(json);
        let settings = settings.map_err(|cause| StateError::Content(cause.to_string()))?;
        self.settings.insert(scope.to_owned(), settings);
        Ok(())
    }

    /// Subtracts an entry's bytes from the count of its segment.
    fn release(&mut self, location: RecordLocation) {
        let counted = self.live.get(&location.segment).copied().unwrap_or_default();
        match counted.checked_sub(u64::from(location.size)) {
            Some(0) => drop(self.live.remove(&location.segment)),
            Some(left) => drop(self.live.insert(location.segment, left)),
            None => self.miscounted = self.miscounted.or(Some(location.segment)),
        }
    }

    /// Loses the counts of the segments, as a defect might.
    #[cfg(test)]
    pub(crate) fn lose_counts(&mut self) {
        self.live.clear();
    }

    /// Closes all ledgers: after a restart, each topic begins a new one before its next entry.
    pub fn close_ledgers(&mut self) {
        self.topics.values_mut().for_each(|topic| topic.is_open = false);
    }
}

fn missing(what: &str) -> StateError {
    StateError::Content(format!("{what} is missing"))
}
