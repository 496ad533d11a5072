//! Deletes a queue.

use super::{Client, SetupTopicsError};
use crate::topics::{SetupError, remove};

impl Client {
    /// Deletes a queue: its task topic, those of its levels, and all that belong to them, through
    /// the admin API ([`ClientBuilder::admin_url`](crate::ClientBuilder::admin_url)). End its
    /// workers first: see [`topics::remove`](crate::topics::remove).
    ///
    /// # Errors
    /// See [`SetupTopicsError`]. It can be repeated.
    pub async fn delete_topics(&self, task_topic: &str) -> Result<(), SetupTopicsError> {
        let names = self.names(task_topic)?;
        let levels = self.levels_of(&names)?;
        let admin = self.inner.preflight.admin().ok_or(SetupTopicsError::NoAdminUrl)?;
        let removed = remove(admin, &names, &levels).await;
        for topics in levels.iter().chain([&names]) {
            self.inner.existence.forget_queue(&topics.task);
        }
        removed.map_err(|error| SetupTopicsError::Setup(SetupError::Admin(error)))
    }
}
