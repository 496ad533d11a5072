//! The findings about enforced schemas, required encryption and replication.

use super::{FindingKind, Judge, Severity, TopicFinding};
use crate::observe::TopicRole;
use crate::traits::{SCHEMA_VALIDATION, Traits};
use longhaul_core::topics::TopicParts;

impl Judge<'_> {
    /// The properties that harm a topic of this role.
    pub(super) fn traits(&self, traits: &Traits) -> Vec<TopicFinding> {
        let Ok(topic) = TopicParts::parse(self.topic) else { return Vec::new() };
        let found =
            [self.schema(traits, topic), self.encryption(traits, topic), self.replication(traits)];
        found.into_iter().flatten().collect()
    }

    fn schema(&self, traits: &Traits, topic: TopicParts<'_>) -> Option<TopicFinding> {
        // Without a schema on the topic, the broker enforces nothing.
        if !traits.schema_enforced || !traits.has_schema {
            return None;
        }
        let (severity, risk) = match self.role {
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
        Some(self.finding(FindingKind::SchemaEnforced, severity, what, risk, remedy))
    }

    fn encryption(&self, traits: &Traits, topic: TopicParts<'_>) -> Option<TopicFinding> {
        if !traits.encryption_required {
            return None;
        }
        let risk = match self.role {
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
        let what = "producers must encrypt".to_owned();
        Some(self.finding(FindingKind::EncryptionRequired, Severity::Error, what, risk, remedy))
    }

    fn replication(&self, traits: &Traits) -> Option<TopicFinding> {
        if traits.clusters.len() < 2 {
            return None;
        }
        let (risk, remedy) = match self.role {
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
        let clusters = traits.clusters.join(", ");
        let what = format!("the topic is replicated between the clusters {clusters}");
        let remedy = format!("{remedy}, or use a namespace that is not replicated");
        Some(self.finding(FindingKind::Replicated, Severity::Warning, what, risk, remedy))
    }
}
