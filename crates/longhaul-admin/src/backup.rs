//! The backup of longhaul's own broker. Pulsar has no such calls.

use super::admin::Admin;
use super::calls::call;
use super::http::AdminError;
use http::Method;
use serde::Deserialize;

const BACKUP: [&str; 2] = ["brokers", "backup"];

/// The passes of a broker's backup since its start.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct BackupPassReport {
    /// The time of the start, in ms since the epoch. The numbers of the passes begin anew with it.
    pub started_at: u64,
    /// Number of the last pass that has stored everything; 0 if none has.
    pub stored_pass: u64,
    /// Everything that was confirmed before this time is stored, in ms since the epoch; `None` if
    /// no pass has stored everything.
    pub stored_to: Option<u64>,
    /// Number of the last pass that has failed since then; 0 if none has.
    pub failed_pass: u64,
    /// Why it has failed; empty if none has.
    pub last_error: String,
}

/// A pass that a broker was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct BackupPassRequest {
    /// The start of the backup. If it has another one, the broker does not know of the request.
    pub started_at: u64,
    /// The number of the first pass that begins after the call.
    pub pass: u64,
}

impl Admin {
    /// Asks longhaul's broker for a pass of its backup.
    ///
    /// # Errors
    /// The broker has no backup, or it has ended, or the broker is none of longhaul.
    #[doc(hidden)]
    pub async fn back_up(&self) -> Result<BackupPassRequest, AdminError> {
        self.http.json(&call(Method::PUT, &BACKUP)).await
    }

    /// The passes of the backup of longhaul's broker.
    ///
    /// # Errors
    /// As for [`Admin::back_up`].
    #[doc(hidden)]
    pub async fn backup(&self) -> Result<BackupPassReport, AdminError> {
        self.http.json(&call(Method::GET, &BACKUP)).await
    }
}
