//! The end of the driver: work in flight, the last checkpoint, the connections, the log.

use super::BrokerDriver;
use crate::error::BrokerError;
use std::time::Duration;
use tokio::time::timeout;

/// Time limit for the last answers and the last checkpoint.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

impl BrokerDriver {
    /// Ends in an orderly way, as far as possible.
    pub(super) async fn end(mut self, outcome: Result<(), BrokerError>) -> Result<(), BrokerError> {
        if outcome.is_ok() {
            let written = async {
                if self.checkpointed.is_expected() {
                    let result = self.checkpointed.comes().await;
                    self.checkpoint_written(&result);
                }
                self.machine.checkpoint();
                for effect in self.machine.take_effects() {
                    self.perform(effect);
                }
                let result = self.checkpointed.comes().await;
                self.checkpoint_written(&result);
            };
            if timeout(STOP_TIMEOUT, written).await.is_err() {
                tracing::warn!(
                    "the last checkpoint was not written in time; the next start takes longer"
                );
            }
        }
        for link in self.links.values() {
            link.outbox.close();
        }
        self.compactions.end();
        self.tasks.close();
        if timeout(STOP_TIMEOUT, self.tasks.wait()).await.is_err() {
            tracing::warn!("some reads did not end in time");
        }
        // Its threads may be in a sync.
        tokio::task::spawn_blocking(move || self.log.close()).await.ok();
        outcome
    }
}
