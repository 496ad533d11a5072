//! Ledgers and cursors of a topic, in the format of Pulsar's metadata store, and those of all
//! partitions. Pure.

use super::stats::InternalStats;
use super::text::{escape_java, iso_8601};
use super::values::{AdminPosition, PartitionedTopicMetadata};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// `internal-info`: the content of Pulsar's metadata store.
pub(super) fn info(stats: &InternalStats) -> Value {
    let ledgers = stats.ledgers.iter().map(|ledger| {
        json!({
            "ledgerId": ledger.ledger_id,
            "entries": ledger.entries,
            "size": ledger.size,
            "isOffloaded": ledger.offloaded,
        })
    });
    let cursors = stats.cursors.iter().map(|(name, cursor)| {
        let shown = json!({
            "version": 0,
            "cursorsLedgerId": cursor.cursor_ledger,
            "markDelete": position_json(cursor.mark_delete_position),
        });
        (escape_java(name), shown)
    });
    json!({
        "version": 0,
        "creationDate": iso_8601(stats.last_ledger_created_timestamp),
        "modificationDate": iso_8601(stats.last_ledger_created_timestamp),
        "ledgers": ledgers.collect::<Vec<_>>(),
        "cursors": cursors.collect::<Map<_, _>>(),
        "terminatedPosition": (stats.state == "Terminated").then(|| position_json(stats.last_confirmed_entry)),
    })
}

fn position_json(position: AdminPosition) -> Value {
    json!({"ledgerId": position.ledger, "entryId": position.entry})
}

/// `partitioned-internalStats`, by full name of the partitions.
pub(super) fn partitioned(
    metadata: &PartitionedTopicMetadata,
    partitions: &BTreeMap<String, InternalStats>,
) -> Value {
    json!({"metadata": metadata, "partitions": partitions})
}
