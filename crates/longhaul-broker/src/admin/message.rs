//! A stored message in the format of Pulsar's admin interface: metadata in headers, body as the
//! body.

use super::text::iso_8601;
use super::values::{AdminCallError, StoredMessage};
use bytes::Bytes;
use longhaul_wire::compression;
use longhaul_wire::messages::MessageMetadata;
use serde_json::json;
use std::collections::BTreeMap;

/// Largest body after decompression, in bytes.
const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Maximum number of properties in the answer.
const PROPERTIES_MAX: usize = 64;

type Headers = Vec<(String, String)>;

/// Headers and body. An encrypted body stays encrypted.
pub(super) fn show(stored: &StoredMessage) -> Result<(Headers, Bytes), AdminCallError> {
    let unreadable = |error: &dyn std::error::Error| AdminCallError::Internal(error.to_string());
    let metadata = stored.payload.metadata().map_err(|error| unreadable(&error))?;
    let body = stored.payload.body();
    if !metadata.encryption_keys.is_empty() {
        return Ok((headers(stored, &metadata), body));
    }
    let kind = compression::kind(metadata.compression).map_err(|error| unreadable(&error))?;
    let size = metadata.uncompressed_size.unwrap_or_default();
    let body = compression::unpack(kind, &body, size, BODY_BYTES_MAX);
    Ok((headers(stored, &metadata), body.map_err(|error| unreadable(&error))?))
}

fn headers(stored: &StoredMessage, metadata: &MessageMetadata) -> Headers {
    let mut headers = Headers::new();
    let mut add = |name: &str, value: String| headers.push((format!("x-pulsar-{name}"), value));
    add("message-id", stored.position.to_string());
    add("publish-time", iso_8601(metadata.publish_time));
    add("producer-name", metadata.producer_name.clone());
    add("sequence-id", metadata.sequence_id.to_string());
    if let Some(time) = metadata.event_time.filter(|time| *time > 0) {
        add("event-time", iso_8601(time));
    }
    if let Some(time) = metadata.deliver_at_time.and_then(|time| u64::try_from(time).ok()) {
        add("deliver-at-time", iso_8601(time));
    }
    if let Some(key) = &metadata.partition_key {
        add("partition-key", key.clone());
    }
    if let Some(key) = metadata.partition_key_b64_encoded {
        add("partition-key-b64-encoded", key.to_string());
    }
    if let Some(count) = metadata.num_messages_in_batch {
        add("num-batch-message", count.to_string());
    }
    if let Some(size) = metadata.uncompressed_size {
        add("uncompressed-size", size.to_string());
    }
    if let Some(null) = metadata.null_value {
        add("null-value", null.to_string());
    }
    add("is-encrypted", (!metadata.encryption_keys.is_empty()).to_string());
    let properties = metadata.properties.iter().take(PROPERTIES_MAX);
    let properties: BTreeMap<_, _> =
        properties.map(|property| (property.key(), property.value())).collect();
    add("property", json!(properties).to_string());
    headers
}
