//! Properties of a topic besides the policies that setup sets: enforced schemas, required
//! encryption, replication.
//!
//! Other people decide about these, often for a whole namespace, so they are only reported.

use super::admin::Admin;
use super::check::{FindingKind, Severity};
use super::observe::TopicRole;
use longhaul_core::topics::TopicParts;
use serde::Deserialize;

const SCHEMA_VALIDATION: &str = "schemaValidationEnforced";
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

/// A property of the topic that harms the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unfit {
    pub(super) kind: FindingKind,
    pub(super) severity: Severity,
    pub(super) what: String,
    pub(super) risk: &'static str,
    pub(super) remedy: String,
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

    /// The properties that harm a topic of this role. Pure.
    pub(super) fn unfit(&self, role: TopicRole, topic: TopicParts<'_>) -> Vec<Unfit> {
        let found =
            [self.schema(role, topic), self.encryption(role, topic), self.replication(role)];
        found.into_iter().flatten().collect()
    }

    fn schema(&self, role: TopicRole, topic: TopicParts<'_>) -> Option<Unfit> {
        // Without a schema on the topic, the broker enforces nothing.
        if !self.schema_enforced || !self.has_schema {
            return None;
        }
        let (severity, risk) = match role {
            TopicRole::Task => (
                Severity::Warning,
                "longhaul's client names no schema, so the broker refuses its tasks; producers \
                 that name one are not affected",
            ),
            TopicRole::Ledger => (
                Severity::Error,
                "workers name no schema, so the broker refuses their claims, and no task is run",
            ),
            TopicRole::Register => (
                Severity::Error,
                "workers and clients name no schema, so the broker refuses their entries, and tasks with a key wait for ever",
            ),
            TopicRole::DeadLetters => (
                Severity::Error,
                "workers name no schema, so the broker refuses dead letters, and tasks that failed for good stay open",
            ),
            // Workers declare the Java reference's schema there.
            TopicRole::Metadata => return None,
        };
        let TopicParts { tenant, namespace, local } = topic;
        let remedy = format!(
            "delete the topic's schema: DELETE \
             /admin/v2/schemas/{tenant}/{namespace}/{local}/schema, or do not enforce schemas \
             there: POST /admin/v2/persistent/{tenant}/{namespace}/{local}/{SCHEMA_VALIDATION} \
             with the body false, the same for the namespace, and isSchemaValidationEnforced=false \
             at the brokers"
        );
        let what = "the topic has a schema, and producers that name none are refused".to_owned();
        Some(Unfit { kind: FindingKind::SchemaEnforced, severity, what, risk, remedy })
    }

    fn encryption(&self, role: TopicRole, topic: TopicParts<'_>) -> Option<Unfit> {
        if !self.encryption_required {
            return None;
        }
        let risk = match role {
            TopicRole::Task => {
                "longhaul neither encrypts nor decrypts: tasks of its client are refused, and \
                 encrypted tasks of others fail for good"
            }
            TopicRole::Ledger => {
                "longhaul does not encrypt: claims are refused, and no task is run"
            }
            TopicRole::Register => {
                "longhaul does not encrypt: its entries are refused, and tasks with a key wait for ever"
            }
            TopicRole::Metadata => {
                "longhaul does not encrypt: states and results are refused, and finished tasks stay open"
            }
            TopicRole::DeadLetters => {
                "longhaul does not encrypt: dead letters are refused, and tasks that failed for good stay open"
            }
        };
        let TopicParts { tenant, namespace, .. } = topic;
        let remedy = format!(
            "use another namespace, or do not require encryption: POST \
             /admin/v2/namespaces/{tenant}/{namespace}/encryptionRequired with the body false, and \
             encryptionRequireOnProducer=false at the brokers; disks can be encrypted below Pulsar"
        );
        Some(Unfit {
            kind: FindingKind::EncryptionRequired,
            severity: Severity::Error,
            what: "producers must encrypt".to_owned(),
            risk,
            remedy,
        })
    }

    fn replication(&self, role: TopicRole) -> Option<Unfit> {
        if self.clusters.len() < 2 {
            return None;
        }
        let (risk, remedy) = match role {
            TopicRole::Task => (
                "a task that another client submits reaches every cluster, with a different task \
                 id in each: it runs where it was submitted, and is dropped elsewhere unless \
                 workers set `run_replicated`, which runs it once in each cluster",
                "replicate the task topic to one cluster only",
            ),
            TopicRole::Ledger
            | TopicRole::Metadata
            | TopicRole::Register
            | TopicRole::DeadLetters => (
                "entries of workers do not leave their cluster: people in another cluster do not \
                 see them, and the broker may keep the log for a cluster that does not read it",
                "replicate the topic to one cluster only",
            ),
        };
        Some(Unfit {
            kind: FindingKind::Replicated,
            severity: Severity::Warning,
            what: format!(
                "the topic is replicated between the clusters {}",
                self.clusters.join(", ")
            ),
            risk,
            remedy: format!("{remedy}, or use a namespace that is not replicated"),
        })
    }
}
