//! Statistics of a topic, in the JSON of Pulsar's `stats` and `internalStats`. Keys without a
//! meaning on a single machine are left out; tools treat them as zero.
//!
//! The machine fills the values. Times are milliseconds since 1970, 0 for never; rates are messages
//! or bytes per second over the last minute.

use super::text::{escape_java, iso_8601};
use super::values::AdminPosition;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use std::collections::BTreeMap;

/// An unpartitioned topic, or one partition.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TopicStats {
    pub(crate) msg_rate_in: f64,
    pub(crate) msg_throughput_in: f64,
    pub(crate) msg_rate_out: f64,
    pub(crate) msg_throughput_out: f64,
    pub(crate) bytes_in_counter: u64,
    pub(crate) msg_in_counter: u64,
    pub(crate) bytes_out_counter: u64,
    pub(crate) msg_out_counter: u64,
    pub(crate) average_msg_size: f64,
    pub(crate) msg_chunk_published: bool,
    /// Size of the stored entries in bytes.
    pub(crate) storage_size: u64,
    /// Size of the largest backlog in bytes.
    pub(crate) backlog_size: u64,
    pub(crate) earliest_msg_publish_time_in_backlogs: u64,
    pub(crate) publishers: Vec<PublisherStats>,
    pub(crate) waiting_publishers: u64,
    pub(crate) subscriptions: BTreeMap<String, SubscriptionStats>,
    /// `Enabled` or `Disabled`.
    pub(crate) deduplication_status: DeduplicationStatus,
    pub(crate) topic_epoch: Option<u64>,
    pub(crate) non_contiguous_deleted_messages_ranges: u64,
    pub(crate) compaction: CompactionStats,
    /// Unreadable entries that were set aside since the start. Pulsar has no such figure.
    pub(crate) unreadable_entries: u64,
    /// `host:port` of the admin interface; the router sets it.
    pub(crate) owner_broker: String,
}

impl TopicStats {
    /// Sets the fields that follow from the counters and from the subscriptions.
    pub(crate) fn derive(mut self) -> Self {
        self.average_msg_size = average(self.bytes_in_counter, self.msg_in_counter);
        let subscriptions = || self.subscriptions.values();
        self.non_contiguous_deleted_messages_ranges =
            subscriptions().map(|stats| stats.non_contiguous_deleted_messages_ranges).sum();
        self.earliest_msg_publish_time_in_backlogs = subscriptions()
            .map(|stats| stats.earliest_msg_publish_time_in_backlog)
            .fold(0, earlier);
        self
    }
}

/// The earlier of two times, each 0 for never.
pub(super) fn earlier(one: u64, other: u64) -> u64 {
    if one == 0 || other == 0 { one.max(other) } else { one.min(other) }
}

#[expect(clippy::cast_precision_loss, reason = "an average for people to look at")]
fn average(total: u64, count: u64) -> f64 {
    if count == 0 { 0.0 } else { total as f64 / count as f64 }
}

/// Whether deduplication is in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) enum DeduplicationStatus {
    /// Deduplication is in force.
    Enabled,
    /// Deduplication is not in force.
    #[default]
    Disabled,
}

/// A producer.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PublisherStats {
    /// Pulsar's name of its access mode.
    pub(crate) access_mode: &'static str,
    pub(crate) msg_rate_in: f64,
    pub(crate) msg_throughput_in: f64,
    pub(crate) average_msg_size: f64,
    pub(crate) producer_id: u64,
    pub(crate) producer_name: String,
    /// `/host:port`, as Java writes it.
    pub(crate) address: String,
    #[serde(serialize_with = "moment")]
    pub(crate) connected_since: u64,
    pub(crate) client_version: String,
    pub(crate) metadata: BTreeMap<String, String>,
}

/// A subscription.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SubscriptionStats {
    pub(crate) msg_rate_out: f64,
    pub(crate) msg_throughput_out: f64,
    pub(crate) bytes_out_counter: u64,
    pub(crate) msg_out_counter: u64,
    pub(crate) msg_rate_redeliver: f64,
    pub(crate) message_ack_rate: f64,
    /// Unacknowledged entries.
    pub(crate) msg_backlog: u64,
    /// Size of the backlog in bytes.
    pub(crate) backlog_size: u64,
    pub(crate) earliest_msg_publish_time_in_backlog: u64,
    pub(crate) msg_backlog_no_delayed: u64,
    pub(crate) blocked_subscription_on_unacked_msgs: bool,
    pub(crate) msg_delayed: u64,
    /// Unacknowledged messages at consumers.
    pub(crate) unacked_messages: u64,
    /// Pulsar's name of the type of its consumers; `None` without consumers.
    #[serde(rename = "type")]
    pub(crate) kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) active_consumer_name: Option<String>,
    pub(crate) msg_rate_expired: f64,
    pub(crate) total_msg_expired: u64,
    pub(crate) last_expire_timestamp: u64,
    pub(crate) last_consumed_flow_timestamp: u64,
    pub(crate) last_consumed_timestamp: u64,
    pub(crate) last_acked_timestamp: u64,
    pub(crate) last_mark_delete_advanced_timestamp: u64,
    pub(crate) consumers: Vec<ConsumerStats>,
    pub(crate) durable: bool,
    pub(crate) replicated: bool,
    /// `AUTO_SPLIT` or `STICKY`, for a Key_Shared subscription.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key_shared_mode: Option<&'static str>,
    pub(crate) draining_hashes_count: u64,
    pub(crate) draining_hashes_unacked_messages: u64,
    pub(crate) allow_out_of_order_delivery: bool,
    pub(crate) non_contiguous_deleted_messages_ranges: u64,
    pub(crate) subscription_properties: BTreeMap<String, String>,
}

/// A consumer.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConsumerStats {
    pub(crate) msg_rate_out: f64,
    pub(crate) msg_throughput_out: f64,
    pub(crate) bytes_out_counter: u64,
    pub(crate) msg_out_counter: u64,
    pub(crate) msg_rate_redeliver: f64,
    pub(crate) message_ack_rate: f64,
    pub(crate) consumer_name: String,
    /// Negative after a batch.
    pub(crate) available_permits: i64,
    pub(crate) unacked_messages: u64,
    pub(crate) avg_messages_per_entry: u64,
    pub(crate) blocked_consumer_on_unacked_msgs: bool,
    /// `/host:port`, as Java writes it.
    pub(crate) address: String,
    #[serde(serialize_with = "moment")]
    pub(crate) connected_since: u64,
    pub(crate) client_version: String,
    pub(crate) last_acked_timestamp: u64,
    pub(crate) last_consumed_timestamp: u64,
    pub(crate) last_consumed_flow_timestamp: u64,
    pub(crate) metadata: BTreeMap<String, String>,
    /// The key hashes of the consumer, as inclusive ranges, on a Key_Shared subscription.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key_hash_range_arrays: Option<Vec<(u16, u16)>>,
    pub(crate) draining_hashes_count: u64,
    pub(crate) draining_hashes_unacked_messages: u64,
    /// Some of the draining hashes.
    pub(crate) draining_hashes: Vec<DrainingHash>,
}

/// A hash that now belongs to another consumer, which gets no messages of it before all of these
/// are acknowledged.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DrainingHash {
    pub(crate) hash: u16,
    /// Number of entries, as on Pulsar.
    pub(crate) unack_msgs: u32,
}

/// Result of the last compaction.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CompactionStats {
    pub(crate) last_compaction_removed_event_count: u64,
    pub(crate) last_compaction_succeed_timestamp: u64,
    pub(crate) last_compaction_failed_timestamp: u64,
    pub(crate) last_compaction_duration_time_in_mills: u64,
}

/// Ledgers and cursors of an unpartitioned topic, or of one partition.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InternalStats {
    /// Entries since the topic was loaded.
    pub(crate) entries_added_counter: u64,
    /// Stored entries.
    pub(crate) number_of_entries: u64,
    pub(crate) total_size: u64,
    pub(crate) current_ledger_entries: u64,
    pub(crate) current_ledger_size: u64,
    #[serde(serialize_with = "moment")]
    pub(crate) last_ledger_created_timestamp: u64,
    pub(crate) waiting_cursors_count: u64,
    pub(crate) pending_add_entries_count: u64,
    #[serde(serialize_with = "position")]
    pub(crate) last_confirmed_entry: AdminPosition,
    /// `LedgerOpened`, or `Fenced` when the log is closed for writes.
    pub(crate) state: &'static str,
    pub(crate) ledgers: Vec<LedgerStats>,
    /// By name, including those of compaction (`__compaction`) and deduplication (`pulsar.dedup`).
    #[serde(serialize_with = "cursors")]
    pub(crate) cursors: BTreeMap<String, CursorStats>,
    pub(crate) schema_ledgers: Vec<LedgerStats>,
    /// All fields are -1 if the topic was never compacted.
    pub(crate) compacted_ledger: LedgerStats,
}

/// A ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LedgerStats {
    pub(crate) ledger_id: i64,
    pub(crate) entries: i64,
    pub(crate) size: i64,
    pub(crate) offloaded: bool,
    pub(crate) under_replicated: bool,
}

impl LedgerStats {
    /// The compacted ledger of a topic that was never compacted.
    pub(crate) const NONE: Self =
        Self { ledger_id: -1, entries: -1, size: -1, offloaded: false, under_replicated: false };
}

/// A cursor.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CursorStats {
    #[serde(serialize_with = "position")]
    pub(crate) mark_delete_position: AdminPosition,
    #[serde(serialize_with = "position")]
    pub(crate) read_position: AdminPosition,
    pub(crate) waiting_read_op: bool,
    pub(crate) pending_read_ops: u64,
    pub(crate) messages_consumed_counter: u64,
    pub(crate) cursor_ledger: i64,
    pub(crate) cursor_ledger_last_entry: i64,
    /// Holes in Pulsar's notation: `[(3:0..3:2]]`.
    pub(crate) individually_deleted_messages: String,
    #[serde(serialize_with = "moment")]
    pub(crate) last_ledger_switch_timestamp: u64,
    pub(crate) state: &'static str,
    pub(crate) active: bool,
    pub(crate) number_of_entries_since_first_not_acked_message: u64,
    pub(crate) total_non_contiguous_deleted_messages_range: u64,
    pub(crate) subscription_have_pending_read: bool,
    pub(crate) subscription_have_pending_replay_read: bool,
    pub(crate) properties: BTreeMap<String, i64>,
}

fn moment<S: Serializer>(ms: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&iso_8601(*ms))
}

fn position<S: Serializer>(position: &AdminPosition, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(position)
}

/// Cursor names as Pulsar writes them: encoded by Java's `URLEncoder`.
fn cursors<S: Serializer>(
    cursors: &BTreeMap<String, CursorStats>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(cursors.len()))?;
    for (name, cursor) in cursors {
        map.serialize_entry(&escape_java(name), cursor)?;
    }
    map.end()
}
