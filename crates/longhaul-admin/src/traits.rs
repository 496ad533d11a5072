//! Properties of a topic besides the policies that setup sets: enforced schemas, required
//! encryption, replication.
//!
//! Other people decide about these, often for a whole namespace, so they are only reported.

use super::admin::Admin;
use serde::Deserialize;

pub(super) const SCHEMA_VALIDATION: &str = "schemaValidationEnforced";
const REPLICATION: &str = "replication";

/// The properties read. If the broker does not know a property, or the token may not read it, it
/// counts as off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Traits {
    /// Producers must name a schema if the topic has one.
    pub(super) schema_enforced: bool,
    /// A schema is registered for the topic.
    pub(super) has_schema: bool,
    /// Producers must encrypt.
    pub(super) encryption_required: bool,
    /// The clusters that have the topic, including the broker's own; empty if unknown.
    pub(super) clusters: Vec<String>,
}

/// The needed part of a namespace's policies; a broker may leave out each.
#[derive(Default, Deserialize)]
#[serde(default)]
struct NamespaceTraits {
    schema_validation_enforced: bool,
    encryption_required: bool,
    replication_clusters: Vec<String>,
}

impl Traits {
    /// Reads the properties of an existing topic. `topic` is the full name without a partition.
    pub(super) async fn read(admin: &Admin, topic: &str, encryption_everywhere: bool) -> Self {
        // These values only serve findings, and a token may not be allowed to read them.
        let namespace: NamespaceTraits = admin.namespace_policies(topic).await.unwrap_or_default();
        let enforced: Option<bool> =
            admin.policy(topic, SCHEMA_VALIDATION).await.unwrap_or_default();
        let clusters: Option<Vec<String>> =
            admin.policy(topic, REPLICATION).await.unwrap_or_default();
        let schema_enforced = enforced.unwrap_or(namespace.schema_validation_enforced);
        Self {
            schema_enforced,
            has_schema: schema_enforced && admin.has_schema(topic).await.unwrap_or_default(),
            encryption_required: encryption_everywhere || namespace.encryption_required,
            clusters: clusters.unwrap_or(namespace.replication_clusters),
        }
    }
}
