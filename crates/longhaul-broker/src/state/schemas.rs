//! The schemas of topics.

use longhaul_wire::messages::Schema;
use prost::Message as _;
use std::collections::HashMap;

/// A version of a topic's schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaVersion {
    /// The schema.
    pub schema: Schema,
    /// Wall clock, in ms since the epoch.
    pub added_at: u64,
}

/// All schemas, by name of the topic without partition.
#[derive(Clone, Debug, Default)]
pub(super) struct TopicSchemas {
    versions: HashMap<String, Vec<SchemaVersion>>,
    bytes: usize,
}

impl TopicSchemas {
    /// The versions of a topic's schema, the oldest first.
    pub(super) fn of(&self, name: &str) -> &[SchemaVersion] {
        self.versions.get(name).map(Vec::as_slice).unwrap_or_default()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, &Vec<SchemaVersion>)> {
        self.versions.iter()
    }

    /// Bytes of all versions.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn add(&mut self, name: &str, version: SchemaVersion) {
        self.bytes += version.schema.encoded_len();
        self.versions.entry(name.to_owned()).or_default().push(version);
    }

    pub(super) fn remove(&mut self, name: &str) {
        let gone = self.versions.remove(name).unwrap_or_default();
        self.bytes = self.bytes.saturating_sub(schema_bytes(&gone));
    }
}

/// Bytes of these versions, with their names and properties.
pub(crate) fn schema_bytes(versions: &[SchemaVersion]) -> usize {
    versions.iter().map(|version| version.schema.encoded_len()).sum()
}
