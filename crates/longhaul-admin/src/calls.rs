//! The calls of Pulsar's admin API that longhaul needs. Decisions are made in `setup` and `check`.
//!
//! A *topic* means the whole topic. Calls about one partition say so and take the broker's name of
//! that partition: `…-partition-N`, or the topic's own name if it has no partitions.

use super::admin::Admin;
use super::http::{AdminError, AdminErrorKind, AdminHttpCall};
use super::policy::Policy;
use longhaul_core::topics::TopicParts;

use http::Method;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use std::collections::BTreeMap;

/// The cursor that keeps uncompacted entries from being trimmed.
pub(super) const COMPACTION_CURSOR: &str = "__compaction";

/// The characters that Java's `URLEncoder` escapes. A space becomes `+` afterwards.
const JAVA_ESCAPES: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'*').remove(b' ');

/// A message id before the first message.
const EARLIEST: &str = r#"{"ledgerId":-1,"entryId":-1}"#;

/// The broker's statistics of one partition's log.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PartitionStats {
    /// Entries that still exist in the log.
    #[serde(default)]
    number_of_entries: i64,
    /// Their size in bytes.
    #[serde(default)]
    total_size: u64,
    /// Cursors by name, including those of subscriptions.
    #[serde(default)]
    cursors: BTreeMap<String, IgnoredAny>,
    #[serde(default)]
    compacted_ledger: Option<CompactedLedger>,
    #[serde(default)]
    state: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct CompactedLedger {
    #[serde(default)]
    entries: i64,
    /// In bytes; -1 without a compacted view.
    #[serde(default)]
    size: i64,
}

/// The broker's statistics of one partition's subscriptions.
#[derive(Deserialize)]
struct Subscriptions {
    #[serde(default)]
    subscriptions: BTreeMap<String, Durability>,
}

/// Brokers use one of these names, or both.
#[derive(Deserialize)]
struct Durability {
    #[serde(default = "unless_denied")]
    durable: bool,
    #[serde(default = "unless_denied", rename = "isDurable")]
    is_durable: bool,
}

const fn unless_denied() -> bool {
    true
}

#[derive(Deserialize)]
struct PartitionCount {
    partitions: u32,
}

/// The needed part of a broker's settings. All values are text.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BrokerRuntimeConfig {
    #[serde(default)]
    encryption_require_on_producer: String,
}

#[derive(Deserialize)]
struct Bookies {
    bookies: Vec<IgnoredAny>,
}

impl Admin {
    /// The number of partitions of a topic; `None` if it has none. Creates nothing.
    ///
    /// # Errors
    /// [`AdminErrorKind::NotFound`] when the topic does not exist.
    pub async fn partitions(&self, topic: &str) -> Result<Option<u32>, AdminError> {
        let call = self.topic_call(Method::GET, topic, &["partitions"])?;
        let PartitionCount { partitions } = self.http.json(&call).await?;
        if partitions > 0 {
            return Ok(Some(partitions));
        }
        // Some brokers answer 0 for a missing topic.
        self.subscriptions(topic).await.map(|_| None)
    }

    /// Creates a topic.
    ///
    /// # Errors
    /// [`AdminErrorKind::Conflict`] when the topic exists.
    pub async fn create_topic(
        &self,
        topic: &str,
        partitions: Option<u32>,
    ) -> Result<(), AdminError> {
        let segments: &[&str] = if partitions.is_some() { &["partitions"] } else { &[] };
        let mut call = self.topic_call(Method::PUT, topic, segments)?;
        call.body = partitions.map(|count| count.to_string());
        self.http.done(&call).await
    }

    /// Raises the number of partitions. The broker also creates the topic's subscriptions on the
    /// new partitions.
    ///
    /// # Errors
    /// The topic has no partitions, or more than `partitions`.
    pub async fn grow_partitions(&self, topic: &str, partitions: u32) -> Result<(), AdminError> {
        let mut call = self.topic_call(Method::POST, topic, &["partitions"])?;
        call.body = Some(partitions.to_string());
        self.http.done(&call).await
    }

    /// Creates the missing partitions of a partitioned topic, for example those that were deleted
    /// while inactive.
    ///
    /// # Errors
    /// The topic is not partitioned.
    pub async fn create_missing_partitions(&self, topic: &str) -> Result<(), AdminError> {
        let call = self.topic_call(Method::POST, topic, &["createMissedPartitions"])?;
        self.http.done(&call).await
    }

    /// The durable subscriptions of a topic or of one partition.
    ///
    /// # Errors
    /// [`AdminErrorKind::NotFound`] when the topic does not exist.
    pub async fn subscriptions(&self, topic: &str) -> Result<Vec<String>, AdminError> {
        let call = self.topic_call(Method::GET, topic, &["subscriptions"])?;
        let mut subscriptions: Vec<String> = self.http.json(&call).await?;
        subscriptions.retain(|name| name != COMPACTION_CURSOR);
        Ok(subscriptions)
    }

    /// Creates a durable subscription of a topic or of one partition, at the earliest message.
    ///
    /// # Errors
    /// [`AdminErrorKind::Conflict`] when the subscription exists.
    pub async fn create_subscription(
        &self,
        topic: &str,
        subscription: &str,
    ) -> Result<(), AdminError> {
        let path = ["subscription", subscription];
        let mut call = self.topic_call(Method::PUT, topic, &path)?;
        call.body = Some(EARLIEST.to_owned());
        self.http.done(&call).await
    }

    /// Sets a policy of a topic, for all its partitions. It takes effect a few milliseconds later.
    ///
    /// # Errors
    /// [`AdminErrorKind::PoliciesDisabled`] when the broker has no topic-level policies.
    pub async fn set_policy(&self, topic: &str, policy: &Policy) -> Result<(), AdminError> {
        let mut call = self.topic_call(Method::POST, topic, &[policy.segment()])?;
        call.query = policy.query();
        call.body = policy.body();
        self.http.done(&call).await
    }

    /// Deletes a topic with all its messages and subscriptions, even while clients use it.
    ///
    /// # Errors
    /// [`AdminErrorKind::NotFound`] when the topic does not exist.
    pub async fn delete_topic(&self, topic: &str) -> Result<(), AdminError> {
        let partitioned = self.partitions(topic).await?.is_some();
        let segments: &[&str] = if partitioned { &["partitions"] } else { &[] };
        let mut call = self.topic_call(Method::DELETE, topic, segments)?;
        call.query = Some("force=true".to_owned());
        self.http.done(&call).await
    }

    /// The effective value of a policy on a topic.
    pub(super) async fn policy<T: DeserializeOwned>(
        &self,
        topic: &str,
        segment: &'static str,
    ) -> Result<T, AdminError> {
        let mut call = self.topic_call(Method::GET, topic, &[segment])?;
        call.query = Some("applied=true".to_owned());
        self.http.json(&call).await
    }

    /// The policies of a topic's namespace.
    pub(super) async fn namespace_policies<T: DeserializeOwned>(
        &self,
        topic: &str,
    ) -> Result<T, AdminError> {
        let parts = self.parts(&Method::GET, topic)?;
        self.http.json(&call(Method::GET, &["namespaces", parts.tenant, parts.namespace])).await
    }

    /// The statistics of one partition's log; `None` if the partition does not exist.
    pub(super) async fn partition_stats(
        &self,
        partition: &str,
    ) -> Result<Option<PartitionStats>, AdminError> {
        let call = self.topic_call(Method::GET, partition, &["internalStats"])?;
        found(self.http.json(&call).await)
    }

    /// Whether one partition has a subscription that keeps messages while nobody consumes; `false`
    /// if the partition does not exist.
    pub(super) async fn has_durable_subscription(
        &self,
        partition: &str,
    ) -> Result<bool, AdminError> {
        let call = self.topic_call(Method::GET, partition, &["stats"])?;
        let Some(stats) = found(self.http.json::<Subscriptions>(&call).await)? else {
            return Ok(false);
        };
        let durable = |(name, found): (&String, &Durability)| {
            name != COMPACTION_CURSOR && found.durable && found.is_durable
        };
        Ok(stats.subscriptions.iter().any(durable))
    }

    /// Whether a schema is registered for a topic.
    pub(super) async fn has_schema(&self, topic: &str) -> Result<bool, AdminError> {
        let TopicParts { tenant, namespace, local } = self.parts(&Method::GET, topic)?;
        let path = ["schemas", tenant, namespace, local, "schema"];
        let schema: Option<IgnoredAny> = found(self.http.json(&call(Method::GET, &path)).await)?;
        Ok(schema.is_some())
    }

    /// Whether the broker requires producers to encrypt. `false` if the token or the broker does
    /// not allow the question.
    pub(super) async fn requires_encryption(&self) -> bool {
        let path = ["brokers", "configuration", "runtime"];
        let settings: Result<BrokerRuntimeConfig, _> =
            self.http.json(&call(Method::GET, &path)).await;
        settings.is_ok_and(|settings| settings.encryption_require_on_producer == "true")
    }

    /// The broker's version; `None` if the token or the broker does not allow the question.
    pub(super) async fn broker_version(&self) -> Option<String> {
        let (_, answer) = self.http.send(&call(Method::GET, &["brokers", "version"])).await.ok()?;
        let answer = String::from_utf8_lossy(&answer);
        let version = answer.trim().trim_matches('"');
        (!version.is_empty()).then(|| version.to_owned())
    }

    /// The number of bookies; `None` if the token or the broker does not allow the question.
    pub(super) async fn bookies(&self) -> Option<u32> {
        let bookies: Bookies =
            self.http.json(&call(Method::GET, &["bookies", "all"])).await.ok()?;
        u32::try_from(bookies.bookies.len()).ok()
    }

    /// The parts of a topic's name, for a call of this method.
    pub(super) fn parts<'a>(
        &self,
        method: &Method,
        topic: &'a str,
    ) -> Result<TopicParts<'a>, AdminError> {
        TopicParts::parse(topic).map_err(|cause| self.http.refuse(method, cause.into()))
    }

    pub(super) fn topic_call(
        &self,
        method: Method,
        topic: &str,
        rest: &[&str],
    ) -> Result<AdminHttpCall, AdminError> {
        let TopicParts { tenant, namespace, local } = self.parts(&method, topic)?;
        let mut path = vec!["persistent", tenant, namespace, local];
        path.extend(rest);
        Ok(call(method, &path))
    }
}

impl PartitionStats {
    /// Whether this durable subscription exists.
    pub(super) fn has_subscription(&self, subscription: &str) -> bool {
        self.cursors.contains_key(&cursor_name(subscription))
    }

    /// Whether compaction keeps entries that it has not read.
    pub(super) fn has_compaction_cursor(&self) -> bool {
        self.cursors.contains_key(COMPACTION_CURSOR)
    }

    /// Whether the partition accepts no more messages.
    pub(super) fn is_terminated(&self) -> bool {
        self.state == "Terminated"
    }

    /// The size of all entries and of the compacted view, in bytes.
    pub(super) fn stored_bytes(&self) -> u64 {
        let compacted = self.compacted_ledger.as_ref().map_or(0, |ledger| ledger.size);
        self.total_size.saturating_add(u64::try_from(compacted).unwrap_or(0))
    }

    /// Whether a reader of the compacted view would find any message.
    pub(super) fn has_entries(&self) -> bool {
        self.number_of_entries > 0
            || self.compacted_ledger.as_ref().is_some_and(|ledger| ledger.entries > 0)
    }
}

/// Turns "not found" into `None`.
pub(super) fn found<T>(result: Result<T, AdminError>) -> Result<Option<T>, AdminError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(e) if e.kind == AdminErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

pub(super) fn call(method: Method, path: &[&str]) -> AdminHttpCall {
    let path = ["admin", "v2"].iter().chain(path).map(|segment| (*segment).to_owned()).collect();
    AdminHttpCall { method, path, query: None, body: None }
}

/// The cursor name of a subscription: the broker encodes it as Java's `URLEncoder` does.
fn cursor_name(subscription: &str) -> String {
    utf8_percent_encode(subscription, JAVA_ESCAPES).to_string().replace(' ', "+")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_named_as_java_encodes_them() {
        assert_eq!(cursor_name("longhaul"), "longhaul");
        assert_eq!(cursor_name("a b:c+d*é"), "a+b%3Ac%2Bd*%C3%A9");
    }

    #[test]
    fn stats_of_a_real_broker_are_understood() {
        let json = r#"{"entriesAddedCounter":0,"numberOfEntries":2,"cursors":{"longhaul":{"markDeletePosition":"3:-1",
            "readPosition":"3:0","properties":{}},"__compaction":{"markDeletePosition":"3:1"}},
            "compactedLedger":{"ledgerId":-1,"entries":-1,"size":-1,"offloaded":false,"underReplicated":false}}"#;
        let stats: PartitionStats = serde_json::from_str(json).unwrap();
        assert!(stats.has_subscription("longhaul") && !stats.has_subscription("other"));
        assert!(stats.has_compaction_cursor() && stats.has_entries());
        let empty: PartitionStats = serde_json::from_str(r#"{"numberOfEntries":0}"#).unwrap();
        assert!(!empty.has_entries() && !empty.has_compaction_cursor());
    }
}
