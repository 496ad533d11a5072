//! The backup of longhaul's own broker. Pulsar has no such calls.

use super::admin::Admin;
use super::calls::call;
use super::http::AdminError;
use http::Method;
use serde::Deserialize;

const BACKUP: [&str; 2] = ["brokers", "backup"];

/// The last pass of a broker's backup that has stored everything or failed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct BackupPassReport {
    /// Its number.
    pub pass: u64,
    /// Everything that was confirmed before this time is stored, in ms since the epoch.
    pub stored_to: u64,
    /// Why it has failed; empty if it has not.
    pub last_error: String,
}

#[derive(Deserialize)]
struct Asked {
    pass: u64,
}

impl Admin {
    /// Asks longhaul's broker for a pass of its backup. Returns the number of the first pass that
    /// begins after the call.
    ///
    /// # Errors
    /// The broker has no backup, or is none of longhaul.
    #[doc(hidden)]
    pub async fn back_up(&self) -> Result<u64, AdminError> {
        let Asked { pass } = self.http.json(&call(Method::PUT, &BACKUP)).await?;
        Ok(pass)
    }

    /// The last pass of the backup of longhaul's broker.
    ///
    /// # Errors
    /// As for [`Admin::back_up`].
    #[doc(hidden)]
    pub async fn backup(&self) -> Result<BackupPassReport, AdminError> {
        self.http.json(&call(Method::GET, &BACKUP)).await
    }
}
