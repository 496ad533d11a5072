//! Additional calls for the project's own tests.

use super::super::http::AdminError;
use super::{Admin, cursor_name};
use http::Method;
use longhaul_types::EntryId;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The broker's statistics of one partition's cursors.
#[derive(Deserialize)]
struct Cursors {
    #[serde(default)]
    cursors: BTreeMap<String, CursorStatsJson>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CursorStatsJson {
    mark_delete_position: String,
}

#[doc(hidden)]
impl Admin {
    /// Deletes a subscription of a topic or of one partition, even while consumers use it.
    ///
    /// # Errors
    /// [`AdminErrorKind::NotFound`](crate::AdminErrorKind::NotFound) when the topic or the
    /// subscription does not exist.
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

    /// The subscription's mark-delete position on one partition: every entry at or below it is
    /// acknowledged. `None` if the subscription does not exist.
    ///
    /// A position before the first entry of ledger `n` is returned as the last possible entry of
    /// ledger `n - 1`, which is equivalent and avoids entry -1.
    ///
    /// # Errors
    /// [`AdminErrorKind::NotFound`](crate::AdminErrorKind::NotFound) when the partition does not
    /// exist.
    pub async fn mark_delete_position(
        &self,
        partition: &str,
        subscription: &str,
    ) -> Result<Option<EntryId>, AdminError> {
        let call = self.topic_call(Method::GET, partition, &["internalStats"])?;
        let stats: Cursors = self.http.json(&call).await?;
        let Some(cursor) = stats.cursors.get(&cursor_name(subscription)) else { return Ok(None) };
        parse_mark_delete(&cursor.mark_delete_position).map(Some).ok_or_else(|| {
            let reason = format!("not a position: `{}`", cursor.mark_delete_position);
            self.http.unreadable(&call, &reason)
        })
    }

    /// Makes the broker close a topic or one partition and load it again, on any broker. All its
    /// clients reconnect.
    ///
    /// # Errors
    /// [`AdminErrorKind::NotFound`](crate::AdminErrorKind::NotFound) when the topic does not exist.
    pub async fn unload(&self, topic: &str) -> Result<(), AdminError> {
        let call = self.topic_call(Method::PUT, topic, &["unload"])?;
        self.http.done(&call).await
    }
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
}
