//! The calls of Pulsar's admin API that longhaul needs. It decides nothing: see `setup` and `check` for that.
//!
//! A *topic* is the whole of it; where a call is about one partition, it says so and takes the name under which the broker
//! knows that partition: `…-partition-N`, or the topic's own name when it has none.

use super::http::{AdminError, AdminErrorKind, AdminOptions, Call, Http};
use super::names::TopicParts;
use super::policy::Policy;
use crate::task::EntryId;
use reqwest::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::time::Duration;

/// For how long [`setup`](super::setup) and [`check`](super::check) try again what brokers cannot answer while a cluster fails over
/// ([`AdminErrorKind::Unavailable`]), all calls together. Pulsar notices a dead broker by its session, after 30 s by default.
pub const FAILOVER_TIME_MAX: Duration = Duration::from_secs(60);

/// The cursor that keeps uncompacted entries from being trimmed.
pub(super) const COMPACTION_CURSOR: &str = "__compaction";

/// A message id before the first message.
const EARLIEST: &str = r#"{"ledgerId":-1,"entryId":-1}"#;

/// A client of the admin API. Cheap to clone.
///
/// ```no_run
/// use longhaul::topics::{Admin, AdminOptions};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let admin = Admin::new("http://broker-1:8080,broker-2:8080", &AdminOptions::default())?;
/// println!("{:?}", admin.subscriptions("tasks").await?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Admin {
    http: Http,
}

/// How far a compaction has come.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Compaction {
    /// Where it stands.
    pub status: CompactionStatus,
    /// Why the last one failed; empty otherwise.
    #[serde(default, rename = "lastError")]
    pub last_error: String,
}

/// States of a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[non_exhaustive]
pub enum CompactionStatus {
    /// None was asked for since the broker has loaded the partition.
    NotRun,
    /// One is under way.
    Running,
    /// The last one ended well.
    Success,
    /// The last one failed.
    Error,
    /// A state that this version does not know.
    #[serde(other)]
    Unknown,
}

/// What the broker tells of the log of one partition.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PartitionStats {
    /// Entries that are still in the log.
    #[serde(default)]
    number_of_entries: i64,
    /// Cursors by name; subscriptions are among them.
    #[serde(default)]
    cursors: BTreeMap<String, Cursor>,
    #[serde(default)]
    compacted_ledger: Option<CompactedLedger>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Cursor {
    mark_delete_position: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct CompactedLedger {
    #[serde(default)]
    entries: i64,
}

/// What the broker tells of the subscriptions of one partition.
#[derive(Deserialize)]
struct Subscriptions {
    #[serde(default)]
    subscriptions: BTreeMap<String, Durability>,
}

/// Brokers say it under one name or the other, or under both.
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

/// The part of a broker's settings that is of use. It gives them as text.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Settings {
    #[serde(default)]
    encryption_require_on_producer: String,
}

#[derive(Deserialize)]
struct Bookies {
    bookies: Vec<serde::de::IgnoredAny>,
}

impl Admin {
    /// A client for the admin API at `url`, for example `http://localhost:8080`. Connects to nothing yet.
    ///
    /// Further hosts follow after commas, `http://one:8080,two:8080`: they are tried in turn until one answers.
    ///
    /// # Errors
    /// [`AdminErrorKind::Invalid`] when the URL, the token or the certificates cannot be used.
    pub fn new(url: &str, options: &AdminOptions) -> Result<Self, AdminError> {
        Ok(Self { http: Http::new(url, options)? })
    }

    /// The same for one piece of work, that goes on when a cluster fails over: its calls are tried again for [`FAILOVER_TIME_MAX`].
    pub(super) fn retrying(&self) -> Self {
        Self { http: self.http.retrying(FAILOVER_TIME_MAX) }
    }

    /// The number of partitions of a topic; `None` when it has none. Creates nothing.
    ///
    /// # Errors
    /// [`AdminErrorKind::NotFound`] when there is no such topic.
    pub async fn partitions(&self, topic: &str) -> Result<Option<u32>, AdminError> {
        let call = self.topic_call(Method::GET, topic, &["partitions"])?;
        let PartitionCount { partitions } = self.http.json(&call).await?;
        if partitions > 0 {
            return Ok(Some(partitions));
        }
        // Some brokers answer 0 for a topic that does not exist.
        self.subscriptions(topic).await.map(|_| None)
    }

    /// Creates a topic.
    ///
    /// # Errors
    /// [`AdminErrorKind::Conflict`] when it exists.
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

    /// Raises the number of partitions. The broker makes the topic's subscriptions on the new ones too.
    ///
    /// # Errors
    /// When the topic has none, or more than that.
    pub async fn grow_partitions(&self, topic: &str, partitions: u32) -> Result<(), AdminError> {
        let mut call = self.topic_call(Method::POST, topic, &["partitions"])?;
        call.body = Some(partitions.to_string());
        self.http.done(&call).await
    }

    /// Makes the partitions of a partitioned topic that are missing, for example because they were deleted while inactive.
    ///
    /// # Errors
    /// When the topic is not partitioned.
    pub async fn create_missing_partitions(&self, topic: &str) -> Result<(), AdminError> {
        let call = self.topic_call(Method::POST, topic, &["createMissedPartitions"])?;
        self.http.done(&call).await
    }

    /// Deletes a topic with all its messages and subscriptions, even while clients use it.
    ///
    /// # Errors
    /// [`AdminErrorKind::NotFound`] when there is no such topic.
    pub async fn delete_topic(&self, topic: &str) -> Result<(), AdminError> {
        let partitioned = self.partitions(topic).await?.is_some();
        let segments: &[&str] = if partitioned { &["partitions"] } else { &[] };
        let mut call = self.topic_call(Method::DELETE, topic, segments)?;
        call.query = Some("force=true".to_owned());
        self.http.done(&call).await
    }

    /// The durable subscriptions of a topic or of one partition.
    ///
    /// # Errors
    /// [`AdminErrorKind::NotFound`] when there is no such topic.
    pub async fn subscriptions(&self, topic: &str) -> Result<Vec<String>, AdminError> {
        let call = self.topic_call(Method::GET, topic, &["subscriptions"])?;
        let mut subscriptions: Vec<String> = self.http.json(&call).await?;
        subscriptions.retain(|name| name != COMPACTION_CURSOR);
        Ok(subscriptions)
    }

    /// Creates a durable subscription at the earliest message of a topic or of one partition.
    ///
    /// # Errors
    /// [`AdminErrorKind::Conflict`] when it exists.
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

    /// Deletes a subscription of a topic or of one partition, even while consumers use it.
    ///
    /// # Errors
    /// [`AdminErrorKind::NotFound`] when there is no such topic or subscription.
    pub async fn delete_subscription(
        &self,
        topic: &str,
        subscription: &str,
    ) -> Result<(), AdminError> {
        let path = ["subscription", subscription];
        let mut call = self.topic_call(Method::DELETE, topic, &path)?;
        call.query = Some("force=true".to_owned());
        self.http.done(&call).await
    }

    /// The subscription's mark-delete position on one partition: every entry at or below it is acknowledged. `None` when
    /// there is no such subscription.
    ///
    /// A position before the first entry of ledger `n` is given as the last possible entry of ledger `n - 1`, which means the
    /// same and needs no entry -1.
    ///
    /// # Errors
    /// [`AdminErrorKind::NotFound`] when there is no such partition.
    pub async fn mark_delete_position(
        &self,
        partition: &str,
        subscription: &str,
    ) -> Result<Option<EntryId>, AdminError> {
        let call = self.topic_call(Method::GET, partition, &["internalStats"])?;
        let stats: PartitionStats = self.http.json(&call).await?;
        let Some(cursor) = stats.cursors.get(&cursor_name(subscription)) else { return Ok(None) };
        parse_mark_delete(&cursor.mark_delete_position).map(Some).ok_or_else(|| {
            let reason = format!("not a position: `{}`", cursor.mark_delete_position);
            self.http.unreadable(&call, &reason)
        })
    }

    /// Lets the broker close a topic or one partition and load it again, wherever it likes. All its clients reconnect.
    ///
    /// # Errors
    /// [`AdminErrorKind::NotFound`] when there is no such topic.
    pub async fn unload(&self, topic: &str) -> Result<(), AdminError> {
        let call = self.topic_call(Method::PUT, topic, &["unload"])?;
        self.http.done(&call).await
    }

    /// Starts the compaction of a topic, all partitions of it, or of one partition.
    ///
    /// # Errors
    /// [`AdminErrorKind::Conflict`] when one is under way.
    pub async fn compact(&self, topic: &str) -> Result<(), AdminError> {
        let call = self.topic_call(Method::PUT, topic, &["compaction"])?;
        self.http.done(&call).await
    }

    /// How far the compaction of one partition has come.
    ///
    /// # Errors
    /// [`AdminErrorKind::NotFound`] when there is no such partition, or for the name of a topic that has partitions.
    pub async fn compaction(&self, partition: &str) -> Result<Compaction, AdminError> {
        let call = self.topic_call(Method::GET, partition, &["compaction"])?;
        self.http.json(&call).await
    }

    /// Sets a policy of a topic, for all its partitions. The broker obeys a few milliseconds later.
    ///
    /// # Errors
    /// [`AdminErrorKind::PoliciesDisabled`] when the broker has no topic-level policies.
    pub async fn set_policy(&self, topic: &str, policy: &Policy) -> Result<(), AdminError> {
        let mut call = self.topic_call(Method::POST, topic, &[policy.segment()])?;
        call.query = policy.query();
        call.body = policy.body();
        self.http.done(&call).await
    }

    /// The value of a policy that is in force on a topic.
    pub(super) async fn policy<T: DeserializeOwned>(
        &self,
        topic: &str,
        segment: &'static str,
    ) -> Result<T, AdminError> {
        let mut call = self.topic_call(Method::GET, topic, &[segment])?;
        call.query = Some("applied=true".to_owned());
        self.http.json(&call).await
    }

    /// The policies of the namespace of a topic.
    pub(super) async fn namespace_policies<T: DeserializeOwned>(
        &self,
        topic: &str,
    ) -> Result<T, AdminError> {
        let parts = self.parts(&Method::GET, topic)?;
        self.http.json(&call(Method::GET, &["namespaces", parts.tenant, parts.namespace])).await
    }

    /// What the broker tells of the log of one partition; `None` when there is no such partition.
    pub(super) async fn partition_stats(
        &self,
        partition: &str,
    ) -> Result<Option<PartitionStats>, AdminError> {
        let call = self.topic_call(Method::GET, partition, &["internalStats"])?;
        found(self.http.json(&call).await)
    }

    /// Whether one partition has any subscription that keeps messages while nobody consumes; `false` when there is no such
    /// partition.
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
        let schema: Option<serde::de::IgnoredAny> =
            found(self.http.json(&call(Method::GET, &path)).await)?;
        Ok(schema.is_some())
    }

    /// Whether the broker asks every producer to encrypt. `false` where the token, or the broker, does not let us know.
    pub(super) async fn requires_encryption(&self) -> bool {
        let path = ["brokers", "configuration", "runtime"];
        let settings: Result<Settings, _> = self.http.json(&call(Method::GET, &path)).await;
        settings.is_ok_and(|settings| settings.encryption_require_on_producer == "true")
    }

    /// The number of bookies; `None` where the token, or the broker, does not let us know.
    pub(super) async fn bookies(&self) -> Option<u32> {
        let bookies: Bookies =
            self.http.json(&call(Method::GET, &["bookies", "all"])).await.ok()?;
        u32::try_from(bookies.bookies.len()).ok()
    }

    fn parts<'a>(&self, method: &Method, topic: &'a str) -> Result<TopicParts<'a>, AdminError> {
        TopicParts::parse(topic).map_err(|e| self.http.refuse(method, e.into()))
    }

    fn topic_call(&self, method: Method, topic: &str, rest: &[&str]) -> Result<Call, AdminError> {
        let TopicParts { tenant, namespace, local } = self.parts(&method, topic)?;
        let mut path = vec!["persistent", tenant, namespace, local];
        path.extend(rest);
        Ok(call(method, &path))
    }
}

impl PartitionStats {
    /// Whether a durable subscription is there.
    pub(super) fn has_subscription(&self, subscription: &str) -> bool {
        self.cursors.contains_key(&cursor_name(subscription))
    }

    /// Whether compaction holds on to what it has not read.
    pub(super) fn has_compaction_cursor(&self) -> bool {
        self.cursors.contains_key(COMPACTION_CURSOR)
    }

    /// Whether a reader of the compacted view would find anything.
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

fn call(method: Method, path: &[&str]) -> Call {
    let path = ["admin", "v2"].iter().chain(path).map(|segment| (*segment).to_owned()).collect();
    Call { method, path, query: None, body: None }
}

/// The broker names a subscription's cursor as Java's `URLEncoder` would write the subscription.
fn cursor_name(subscription: &str) -> String {
    let mut name = String::with_capacity(subscription.len());
    for byte in subscription.bytes() {
        match byte {
            b'-' | b'_' | b'.' | b'*' => name.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => name.push(char::from(byte)),
            b' ' => name.push('+'),
            _ => name.push_str(&format!("%{byte:02X}")),
        }
    }
    name
}

fn parse_mark_delete(position: &str) -> Option<EntryId> {
    let (ledger, entry) = position.split_once(':')?;
    let ledger: u64 = ledger.parse().ok()?;
    match entry.parse::<i64>().ok()? {
        -1 => Some(EntryId { ledger: ledger.checked_sub(1)?, entry: u64::MAX }),
        entry => Some(EntryId { ledger, entry: u64::try_from(entry).ok()? }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mark_delete_positions_keep_their_order() {
        let parse = |text| parse_mark_delete(text);
        assert_eq!(parse("3:7"), Some(EntryId { ledger: 3, entry: 7 }));
        assert_eq!(parse("9:-1"), Some(EntryId { ledger: 8, entry: u64::MAX }));
        assert!(parse("3:7") < parse("9:-1") && parse("9:-1") < parse("9:0"));
        for text in ["", "3", "3:", "a:b", "-1:-1", "0:-1", "3:-2"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

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
